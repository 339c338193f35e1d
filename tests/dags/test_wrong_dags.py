"""Mistakes in a DAG file: each has an error of its own, which says what would be right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pendulum
import pytest

from backfill_manager import Check, Dag, dag, sql, task
from backfill_manager.errors import InvalidDag

any_dag: Any = dag  # for calls that a type checker would refuse too
any_task: Any = task


def _work(ctx: Any) -> None: ...


def _a_task() -> None:
    task(_work)()


def _make(**settings: Any) -> Dag:
    made: Dag = any_dag("d", **settings)(_a_task)
    return made


def _with_task(**settings: Any) -> Dag:
    def body() -> None:
        any_task(**settings)(_work)()

    made: Dag = any_dag("d")(body)
    return made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedul": "@daily"}, "DAG 'd' has no setting 'schedul'; did you mean 'schedule'?"),
        ({"retries": 3}, "DAG 'd' has no setting 'retries'; retries is one of tasks, and of default_args"),
        ({"schedule": "Daily"}, "DAG 'd': schedule: 'Daily' is not a schedule; did you mean '@daily'?"),
        ({"xyzzy": 1}, "DAG 'd' has no setting 'xyzzy'; known are dag_id, schedule, "),
        (
            {"dag_id": "a b"},
            "dag_id must be 1 to 200 letters (a to z), digits, `_`, `.` or `-`, not dots only, not 'a b'",
        ),
        ({"dag_id": "größe"}, "dag_id must be 1 to 200 letters (a to z), digits"),
        ({"dag_id": ".."}, "not dots only, not '..'"),
        ({"max_active_runs": 0}, "DAG 'd': max_active_runs must be 1 or more, not 0"),
        ({"max_active_tasks": True}, "max_active_tasks must be a whole number, not True"),
        ({"catchup": "no"}, "catchup must be true or false, not 'no'"),
        ({"tags": "demo"}, "tags must be a list, not 'demo'"),
        ({"params": {"at": datetime(2013, 1, 1)}}, "params must be JSON values all through"),
        ({"params": {1: 2}}, "params must be a dict with texts as keys"),
        ({"params": {"a": float("nan")}}, "params must be JSON values all through"),
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"start_date": "soon"}, "start_date"),
        ({"start_date": 5}, "start_date must be a date as text, date or datetime, not 5"),
        ({"start_date": "2013-02-01", "end_date": "2013-01-01"}, "start_date 2013-02-01 is after end_date 2013-01-01"),
        ({"schedule": 5}, "schedule"),
        ({"schedule": "61 * * * *"}, "61"),
        ({"schedule": "@dayly"}, "'@daily'"),
        ({"schedule": timedelta(0)}, "schedule"),
        ({"schedule": pendulum.duration(months=1)}, "use '@monthly'"),
        ({"default_args": {"retry": 1}}, "DAG 'd': default_args has no setting 'retry'; did you mean 'retries'?"),
        ({"default_args": {"task_id": "x"}}, "default_args has no setting 'task_id'"),
        ({"default_args": 3}, "default_args must be keys and values, not 3"),
    ],
)
def test_a_wrong_dag_setting_is_reported_with_the_dag_and_what_would_be_right(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidDag) as error:
        _make(**settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retrys": 1}, "DAG 'd', task '_work' has no setting 'retrys'; did you mean 'retries'?"),
        ({"execution_timeout": 1}, "did you mean 'timeout'?"),
        ({"retries": -1}, "DAG 'd', task '_work': retries must be 0 or more, not -1"),
        ({"retries": 1.5}, "retries must be a whole number"),
        ({"retry_delay": -1}, "retry_delay must be 0 or more, not -1"),
        ({"retry_delay": "60"}, "retry_delay must be seconds or a timedelta, not '60'"),
        ({"retry_backoff": 0.5}, "retry_backoff must be 1 or more, not 0.5"),
        ({"timeout": 0}, "timeout must be more than 0, not 0"),
        ({"timeout": float("inf")}, "timeout must be seconds or a timedelta, not inf"),
        (
            {"trigger_rule": "all_succes"},
            "trigger_rule must be a trigger rule, not 'all_succes'; did you mean 'all_success'?",
        ),
        ({"weight": 0}, "weight must be 1 or more"),
        ({"max_active_tis": 0}, "max_active_tis must be 1 or more"),
        ({"memory": "2 apples"}, "memory must be MB, or a size such as `512 MB` or `2 GB`, not '2 apples'"),
        ({"memory": 15}, "memory must be 16 or more, not 15"),
        ({"memory": "2 TB"}, "memory must be 1048576 or less"),
        ({"memory": True}, "memory must be MB, or a size"),
        ({"memory": 1.5}, "memory must be a whole number"),
        ({"nice": -1}, "nice must be 0 or more, not -1"),
        ({"nice": 20}, "nice must be 19 or less, not 20"),
        ({"pool": "a pool"}, "pool must be 1 to 200 letters"),
        ({"priority": "high"}, "priority must be a whole number, not 'high'"),
        ({"depends_on_past": 1}, "depends_on_past must be true or false, not 1"),
        ({"task_id": "a/b"}, "task_id must be 1 to 200 letters"),
        ({"into": "t"}, "has no setting 'into'"),
        (
            {"checks": "rows > 0"},
            "task '_work': checks must be a list of checks, such as ['rows > 0', 'no nulls in id']",
        ),
        ({"checks": ["a > 0", "unique a, b", "unique()"]}, "[2] 'unique()': a column's name is missing"),
        ({"checks": [Check("a > 0", on_failure="stop")]}, "on_failure is 'fail' or 'warn', not 'stop'"),
        ({"priority": 10**20}, "priority must be 2147483647 or less, not 100000000000000000000"),
        ({"priority": -(10**20)}, "priority must be -2147483647 or more, not -1"),
        ({"retry_backoff": 1e300}, "retry_backoff must be 2147483647 or less, not 1e+300"),
        ({"max_retry_delay": 1e300}, "max_retry_delay must be 315360000 or less, not 1e+300"),
        ({"timeout": timedelta(days=4000)}, "timeout must be 315360000 or less, not 345600000.0"),
    ],
)
def test_a_wrong_task_setting_is_reported_with_dag_and_task(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDag) as error:
        _with_task(**settings)
    assert message in str(error.value)


def _twice() -> None:
    work = task(_work)
    work()
    work()


def _round() -> None:
    a, b, c = (task(task_id=name)(_work)() for name in "abc")
    a >> b >> c >> a


def _never_called() -> None:
    @task
    def clean(ctx: Any) -> None: ...


def _ordered_before_made() -> None:
    clean: Any = task(_work)
    sql("s", "SELECT 1") >> clean


def _with_arguments() -> None:
    task(_work)("data")


def _dag_in_dag() -> None:
    _make()


def _column_without_table() -> None:
    sql("s", "SELECT 1", time_column="day")


def _mode_without_table() -> None:
    sql("s", "INSERT INTO t SELECT 1", mode="append")


def _schema_without_table() -> None:
    sql("s", "INSERT INTO t SELECT 1", schema="merge")


def _unknown_mode() -> None:
    sql("s", "SELECT 1", into="t", mode="apend")  # type: ignore[arg-type]


def _unknown_schema() -> None:
    sql("s", "SELECT 1", into="t", schema="overwrite")  # type: ignore[arg-type]


def _overwrite_of_an_interval() -> None:
    sql("s", "SELECT 1", into="t", mode="overwrite", time_column="day")


def _merge_without_table() -> None:
    sql("s", "SELECT 1", merge_on="id")


def _merge_of_an_interval() -> None:
    sql("s", "SELECT 1", into="t", merge_on=["id"], time_column="day")


def _not_a_task() -> None:
    sql("s", "SELECT 1") >> [None]


def _plain_function() -> None:
    def helper(ctx: Any) -> None: ...

    sql("s", "SELECT 1") >> [helper]


def _generator_dag() -> Iterator[Any]:
    yield sql("a", "SELECT 1")


async def _async_dag() -> None:
    sql("a", "SELECT 1")


def _async_task() -> None:
    @task
    async def late(ctx: Any) -> None: ...


def _task_without_ctx() -> None:
    @task
    def clean() -> None: ...


def _needs_arguments(region: str) -> None: ...


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_twice, "DAG 'd' has two tasks with the id '_work'; give one of them another with task_id=..."),
        (_round, "DAG 'd' has a cycle: "),
        (_never_called, "DAG 'd' has no task: clean is never called"),
        (lambda: None, "DAG 'd' has no task"),
        (_ordered_before_made, "DAG 'd', task '_work' is put in order before it is made; call it: _work()"),
        (_with_arguments, "DAG 'd', task '_work': call it without arguments here"),
        (_dag_in_dag, "DAG 'd' is made inside another DAG"),
        (_column_without_table, "task 's': time_column tells which rows of a table are the interval's; name the table"),
        (_mode_without_table, "task 's': mode says how rows go into a table; name the table with into=..."),
        (_schema_without_table, "task 's': schema says how rows go into a table; name the table with into=..."),
        (_unknown_mode, "task 's': mode must be 'replace', 'append' or 'overwrite', not 'apend'"),
        (_unknown_schema, "task 's': schema must be 'merge', not 'overwrite'"),
        (_overwrite_of_an_interval, "mode='overwrite' replaces the whole table, so it takes no time_column"),
        (_merge_without_table, "task 's': merge_on says how rows go into a table; name the table with into=..."),
        (_merge_of_an_interval, "merge_on updates rows by their key, wherever they are, so it takes no time_column"),
        (_not_a_task, "can be put in order with tasks and lists of tasks, not with None"),
        (_plain_function, "can't be put in order with the function helper: it is no task; decorate it with @task"),
        (_async_task, "task 'late' is an async function or a generator"),
        (_async_dag, "DAG 'd' is an async function or a generator; its body would never run"),
        (_generator_dag, "DAG 'd' is an async function or a generator; its body would never run"),
        (_task_without_ctx, "task 'clean' must take one argument, as in `def clean(ctx)`"),
        (_needs_arguments, "its function must take no arguments"),
        (5, "@dag decorates a function, not 5"),
    ],
)
def test_a_wrong_body_is_reported(body: Any, message: str) -> None:
    with pytest.raises(InvalidDag) as error:
        any_dag("d")(body)
    assert message in str(error.value)


def test_a_task_of_one_dag_cannot_wait_for_a_task_of_another() -> None:
    tasks: list[Any] = []

    @dag
    def one() -> None:
        tasks.append(sql("s", "SELECT 1"))

    def two() -> None:
        tasks[0] >> sql("t", "SELECT 2")

    with pytest.raises(InvalidDag, match="they are of different DAGs"):
        any_dag("two")(two)


def test_a_mistake_in_one_dag_leaves_the_next_one_untouched() -> None:
    with pytest.raises(InvalidDag):
        any_dag("d")(_twice)
    assert [t.task_id for t in _make().spec.tasks] == ["_work"]


def test_a_task_that_is_made_cannot_be_mapped_any_more() -> None:
    with pytest.raises(
        InvalidDag, match=r"DAG 'd', task '_work' is made already; map its function, without calling it"
    ):

        @dag
        def d() -> None:
            any_task(_work)().expand(over=["a"])
