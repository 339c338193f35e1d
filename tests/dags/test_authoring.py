"""What a DAG file may contain, what it becomes, and the error of each mistake."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pendulum
import pytest

from backfill_manager import Check, Dag, bash_task, condition, dag, sql, task
from backfill_manager.dags.authoring import collecting
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.yaml.reader import dags_of_yaml
from backfill_manager.errors import InvalidDag
from backfill_manager.testing import dag_spec
from backfill_manager.value_rules import read_memory

UTC = timezone.utc
any_dag: Any = dag  # for calls that a type checker would refuse too
any_task: Any = task
any_sql: Any = sql


@pytest.mark.parametrize(
    ("schedule", "end", "last"),
    [
        ("@hourly", "2013-12-31", datetime(2014, 1, 1, 4, tzinfo=UTC)),
        ("@hourly", date(2013, 12, 31), datetime(2014, 1, 1, 4, tzinfo=UTC)),
        ("@hourly", "2013-12-31T00:00", datetime(2013, 12, 31, 5, tzinfo=UTC)),
        ("@hourly", datetime(2013, 12, 31), datetime(2013, 12, 31, 5, tzinfo=UTC)),
        ("@daily", "2013-12-31", datetime(2013, 12, 31, 5, tzinfo=UTC)),
        (timedelta(hours=8), "2013-12-31", datetime(2013, 12, 31, 21, tzinfo=UTC)),
        (None, "2013-12-31", datetime(2013, 12, 31, 5, tzinfo=UTC)),
    ],
)
def test_a_date_alone_as_end_date_is_its_whole_day(schedule: Any, end: Any, last: datetime) -> None:
    @any_dag(schedule=schedule, start_date="2013-01-01", end_date=end, timezone="America/New_York")
    def bounded() -> None:
        @task
        def one(ctx: Any) -> None: ...

        one()

    assert bounded.spec.end_date == last


def test_a_dag_is_its_settings_its_tasks_and_their_order() -> None:
    @dag(
        schedule="@daily",
        start_date="2013-01-01",
        end_date="2013-12-31",
        timezone="America/New_York",
        max_active_runs=8,
        batchable=True,
        params={"region": "eu"},
        tags=["demo"],
        owner="data",
    )
    def flights() -> None:
        """Flights, day by day.

        And more that is not the description.
        """

        @task(retries=2, retry_delay=timedelta(minutes=1), timeout=600, pool="heavy", priority=3, weight=2)
        def clean(ctx: Any) -> str:
            return f"cleaned {ctx}"

        @task(depends_on_past=True, trigger_rule="all_done", max_active_tis=1)
        def delays(ctx: Any) -> None: ...

        clean() >> delays()

    spec = flights.spec
    assert (spec.dag_id, spec.schedule, spec.timezone, spec.owner) == ("flights", "@daily", "America/New_York", "data")
    assert spec.start_date == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert spec.end_date == datetime(2013, 12, 31, 5, tzinfo=UTC)
    assert (spec.max_active_runs, spec.batchable, spec.params, spec.tags) == (8, True, {"region": "eu"}, ("demo",))
    assert spec.description == "Flights, day by day."
    clean, delays = spec.tasks
    assert (clean.retries, clean.retry_delay, clean.timeout, clean.pool) == (2, 60.0, 600.0, "heavy")
    assert (clean.priority, clean.weight, clean.upstream) == (3, 2, ())
    assert (delays.depends_on_past, delays.trigger_rule, delays.max_active_tis) == (True, "all_done", 1)
    assert delays.upstream == ("clean",)
    assert flights.functions["clean"]("x") == "cleaned x"
    assert DagSpec.from_json(spec.to_json()) == spec


def test_the_past_is_declared_for_all_tasks_of_a_dag_and_each_may_say_otherwise() -> None:
    @dag(depends_on_past=True, default_args={"retries": 1})
    def in_order() -> None:
        task(lambda ctx: None, task_id="a")()
        task(lambda ctx: None, task_id="b", depends_on_past=False)()
        task(lambda ctx: None, task_id="c", wait_for_downstream=True)()

    @dag(wait_for_downstream=True, default_args={"wait_for_downstream": False})
    def free() -> None:
        task(lambda ctx: None, task_id="a")()

    said = [(one.depends_on_past, one.wait_for_downstream, one.retries) for one in in_order.spec.tasks]
    assert said == [(True, False, 1), (False, False, 1), (True, True, 1)]
    assert not free.spec.depends_on_past, "default_args come before what the DAG says of all"
    assert DagSpec.from_json(in_order.spec.to_json()) == in_order.spec
    assert "wait_for_downstream" not in free.spec.to_json(), "a DAG of before has the same text, and no new version"


def test_calling_the_dag_at_the_end_of_the_file_as_in_airflow_makes_it_no_second_time() -> None:
    with collecting(Path("/bundle"), Path("/bundle/f.py")) as collection:

        @dag
        def flights() -> None:
            task(_work)()

        assert flights() is flights
    assert [made.dag_id for made in collection.dags] == ["flights"]


def test_dags_made_in_a_loop_each_see_their_own_values() -> None:
    made = []
    for region in ("eu", "us"):

        @dag(f"load_{region}")
        def load() -> None:
            sql("copy", f"SELECT '{region}'")  # noqa: B023 - what the test is about

        made.append(load)
    assert [(d.dag_id, d.spec.task("copy").sql) for d in made] == [
        ("load_eu", "SELECT 'eu'"),
        ("load_us", "SELECT 'us'"),
    ]


def test_order_is_set_with_arrows_and_lists_on_either_side() -> None:
    @dag
    def fan() -> None:
        a, b, c, d, e, f = (task(task_id=name)(_work)() for name in "abcdef")
        a >> [b, c] >> d
        e << [d, c]
        [f] << e
        a >> b  # said twice

    assert {t.task_id: t.upstream for t in fan.spec.tasks} == {
        "a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d", "c"), "f": ("e",),
    }  # fmt: skip


def test_tasks_in_a_set_are_put_in_order_by_their_ids() -> None:
    """The order of a set differs from process to process; the definition must not, or each start makes a version."""

    @dag
    def fan() -> None:
        names = "hbdafceg"
        {task(task_id=name)(_work)() for name in names} >> task(task_id="last")(_work)()

    assert fan.spec.task("last").upstream == tuple("abcdefgh")


def test_a_task_function_outside_of_a_dag_is_the_function_it_was() -> None:
    @task(retries=3)
    def double(ctx: int) -> int:
        """Twice as much."""
        return 2 * ctx

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")


def test_one_function_becomes_two_tasks_by_override() -> None:
    @dag
    def copies() -> None:
        work = task(retries=1)(_work)
        work() >> work.override(task_id="again", retries=5)()

    assert {t.task_id: t.retries for t in copies.spec.tasks} == {"_work": 1, "again": 5}


def test_an_executor_task_and_a_sql_task_say_what_they_are() -> None:
    @dag
    def kinds() -> None:
        @task.executor
        def fetch(ctx: Any) -> None: ...

        @task.executor(retries=1)
        def store(ctx: Any) -> None: ...

        query = sql("count", "SELECT 1 AS n", into="counts", time_column="day", retries=2)
        [fetch(), store()] >> query

    spec = kinds.spec
    assert {t.task_id: t.kind for t in spec.tasks} == {"fetch": "executor", "store": "executor", "count": "sql"}
    assert (spec.task("count").into, spec.task("count").time_column, spec.task("count").retries) == ("counts", "day", 2)
    assert spec.task("count").upstream == ("fetch", "store")
    assert set(kinds.functions) == {"fetch", "store"}


def test_a_sql_file_is_read_from_beside_the_dags_file(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "delays.sql").write_text("SELECT 1\n")
    with collecting(tmp_path, tmp_path / "flights.py"):

        @dag
        def flights() -> None:
            sql("delays", "queries/delays.sql")

    assert flights.spec.task("delays").sql == "SELECT 1\n"


def test_a_byte_order_mark_is_no_part_of_a_statement_or_a_command(tmp_path: Path) -> None:
    """Editors of Windows write one; bash would take it for the first letter of a command's name."""
    (tmp_path / "delays.sql").write_bytes(b"\xef\xbb\xbfSELECT 1")
    (tmp_path / "copy.sh").write_bytes(b"\xef\xbb\xbfcp a b")
    with collecting(tmp_path, tmp_path / "flights.py"):

        @dag
        def flights() -> None:
            sql("delays", "delays.sql")
            bash_task("copy", "copy.sh")

    assert (flights.spec.task("delays").sql, flights.spec.task("copy").bash) == ("SELECT 1", "cp a b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.sql", "nothing.sql can't be read from the DAG file's folder: No such file or directory"),
        ("../outside.sql", "../outside.sql must lie in the bundle"),
        ("empty.sql", "empty.sql is empty"),
        ("binary.sql", "not UTF-8 text"),
        ("", "needs a statement, or the name of a .sql file"),
    ],
)
def test_a_sql_file_that_cannot_be_used_is_reported(tmp_path: Path, name: str, message: str) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (tmp_path / "outside.sql").write_text("SELECT 1")
    (bundle / "empty.sql").write_text(" \n")
    (bundle / "binary.sql").write_bytes(b"\xff\xfe")
    with collecting(bundle, bundle / "flights.py"), pytest.raises(InvalidDag) as error:

        @dag
        def flights() -> None:
            sql("delays", name)

    assert message in str(error.value)
    assert str(error.value).startswith("DAG 'flights', task 'delays': ")


def test_default_args_hold_for_every_task_that_does_not_set_them() -> None:
    @dag(default_args={"retries": 4, "timeout": 60})
    def d() -> None:
        task(_work)()
        sql("s", "SELECT 1", retries=0)

    assert {t.task_id: (t.retries, t.timeout) for t in d.spec.tasks} == {"_work": (4, 60.0), "s": (0, 60.0)}


@pytest.mark.parametrize(
    "start",
    [
        "2013-01-01",
        date(2013, 1, 1),
        datetime(2013, 1, 1),
        datetime(2013, 1, 1, 5, tzinfo=UTC),
        "2013-01-01T00:00:00-05:00",
    ],
)
def test_a_date_is_the_dags_wall_clock_unless_it_says_otherwise(start: Any) -> None:
    @dag(start_date=start, timezone="America/New_York")
    def d() -> None:
        task(_work)()

    assert d.spec.start_date == datetime(2013, 1, 1, 5, tzinfo=UTC)


def test_a_day_begins_with_its_first_instant_also_where_midnight_comes_twice() -> None:
    @dag(start_date="2013-11-03", timezone="America/Havana")
    def d() -> None:
        task(_work)()

    assert d.spec.start_date == datetime(2013, 11, 3, 4, tzinfo=UTC)


def test_pendulum_dates_and_durations_are_understood() -> None:
    class Rule(str, Enum):
        DONE = "all_done"

    @dag(start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"), schedule=pendulum.duration(hours=6))
    def d() -> None:
        task(retry_delay=pendulum.duration(minutes=2), trigger_rule=Rule.DONE)(_work)()

    assert d.spec.start_date == datetime(2013, 1, 1, 5, tzinfo=UTC)
    assert d.spec.schedule == {"seconds": 21600}
    assert (d.spec.tasks[0].retry_delay, d.spec.tasks[0].trigger_rule) == (120.0, "all_done")
    assert DagSpec.from_json(d.spec.to_json()) == d.spec


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


async def _async_dag() -> None:
    sql("a", "SELECT 1")


def _generator_dag() -> Iterator[Any]:
    yield sql("a", "SELECT 1")


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


def test_sql_outside_of_a_dag_is_reported() -> None:
    with pytest.raises(InvalidDag, match="call it in the body of a @dag function"):
        sql("s", "SELECT 1")


def test_a_mistake_in_one_dag_leaves_the_next_one_untouched() -> None:
    with pytest.raises(InvalidDag):
        any_dag("d")(_twice)
    assert [t.task_id for t in _make().spec.tasks] == ["_work"]


# -- callbacks --------------------------------------------------------------------------------------------------------


def notify(ctx: Any) -> None:
    raise AssertionError("a callback never runs in the parser")


def notify_more(ctx: Any) -> None:
    raise AssertionError("a callback never runs in the parser")


def test_callbacks_of_dag_task_and_sql_become_tasks_of_their_own() -> None:
    @dag(on_success=notify)
    def flights() -> None:
        @task(on_failure=notify, priority=4, retries=3, depends_on_past=True, pool="heavy")
        def clean(ctx: Any) -> None: ...

        clean() >> sql("delays", "SELECT 1", on_success=notify_more, on_failure=notify)

    spec = flights.spec
    assert [(one.task_id, one.watches, one.calls_back) for one in spec.callbacks] == [
        ("clean.on_failure", "clean", "failed"),
        ("delays.on_success", "delays", "success"),
        ("delays.on_failure", "delays", "failed"),
        ("on_success", None, "success"),
    ]
    message = spec.task("clean.on_failure")
    assert (message.kind, message.upstream, message.retries, message.timeout, message.pool) == (
        "python",
        (),
        0,
        600.0,
        None,
    )
    assert (message.priority, message.depends_on_past) == (4, False), "as urgent as its task, and nothing else of it"
    assert flights.functions["clean.on_failure"] is notify and flights.functions["delays.on_success"] is notify_more
    assert ([one.task_id for one in spec.work], spec.leaves) == (["clean", "delays"], ("delays",))
    assert [one.task_id for one in spec.in_order][:2] == ["clean", "delays"], "callbacks come last"
    assert DagSpec.from_json(spec.to_json()) == spec


def test_default_args_give_every_task_a_callback_but_those_that_opt_out() -> None:
    @dag(default_args={"on_failure": notify})
    def flights() -> None:
        @task
        def clean(ctx: Any) -> None: ...

        @task(on_failure=None)
        def quiet(ctx: Any) -> None: ...

        @task.executor(on_failure=notify_more)
        def fetch(ctx: Any) -> None: ...

        clean(), quiet(), fetch(), clean.override(task_id="again", on_failure=None)()

    assert [one.task_id for one in flights.spec.callbacks] == ["clean.on_failure", "fetch.on_failure"]
    assert (flights.functions["clean.on_failure"], flights.functions["fetch.on_failure"]) == (notify, notify_more)


def test_a_callback_may_have_some_of_its_arguments_already() -> None:
    def notify(channel: str, ctx: Any) -> None: ...

    @dag(on_failure=partial(notify, "#ops"))
    def flights() -> None:
        sql("s", "SELECT 1")

    assert [one.task_id for one in flights.spec.callbacks] == ["on_failure"]


def _async_callback() -> Any:
    async def late(ctx: Any) -> None: ...

    return late


@pytest.mark.parametrize("value", ["notify", [notify], 5, task(notify), _async_callback(), lambda: None, Path])
def test_a_callback_that_is_no_plain_function_is_reported(value: Any) -> None:
    for keyword in ("on_success", "on_failure"):
        with pytest.raises(InvalidDag, match=f"DAG 'd': {keyword} must be a plain function that takes one argument"):
            any_dag("d", **{keyword: value})(lambda: None)
        with pytest.raises(InvalidDag, match=f"task 's': {keyword} must be a plain function"):
            any_dag("d")(lambda keyword=keyword: sql("s", "SELECT 1", **{keyword: value}))


def test_a_task_with_the_id_of_a_callback_is_reported() -> None:
    def body() -> None:
        sql("s", "SELECT 1", on_failure=notify)
        sql("s.on_failure", "SELECT 1")

    with pytest.raises(
        InvalidDag, match=r"DAG 'd', callback 's\.on_failure' has the id of a task; give the task another"
    ):
        any_dag("d")(body)
    with pytest.raises(InvalidDag, match="callback 'on_failure' has the id of a task"):
        any_dag("d", on_failure=notify)(lambda: sql("on_failure", "SELECT 1"))


def test_nothing_waits_for_a_callback() -> None:
    work = TaskSpec("a", upstream=("b.on_failure",))
    message = TaskSpec("b.on_failure", calls_back="failed", watches="b")
    with pytest.raises(
        InvalidDag, match=r"task 'a' waits for 'b\.on_failure', which is a callback: nothing can wait for it"
    ):
        DagSpec("d", (TaskSpec("b"), work, message)).check()
    with pytest.raises(InvalidDag, match=r"callback 'b\.on_failure' watches 'b', which does not exist"):
        DagSpec("d", (TaskSpec("a"), message)).check()
    with pytest.raises(InvalidDag, match="is a plain function that waits only for what it reports on"):
        DagSpec("d", (TaskSpec("b"), dataclasses.replace(message, depends_on_past=True))).check()
    with pytest.raises(InvalidDag, match="DAG 'd' has no task"):
        DagSpec("d", (TaskSpec("on_failure", calls_back="failed"),)).check()


def test_limits_of_a_task_are_its_own_or_the_default_of_its_dag_and_say_nothing_where_nobody_set_them() -> None:
    @dag(default_args={"memory": 512, "nice": 12})
    def d() -> None:
        @task(memory="2 GB", nice=3)
        def own(ctx: Any) -> None: ...

        @task(memory=None)
        def unlimited(ctx: Any) -> None: ...

        own(), unlimited(), sql("q", "SELECT 1")

    assert [(one.memory, one.nice) for one in d.spec.tasks] == [(2048, 3), (None, 12), (512, 12)]
    assert DagSpec.from_json(d.spec.to_json()) == d.spec
    plain = json.loads(dag_spec("d", "a").to_json())["tasks"][0]
    assert not {"memory", "nice", "reuse_process"} & plain.keys(), (
        "the text, and so the version, of a DAG without stays"
    )


def test_a_task_whose_process_does_not_stand_back_keeps_that() -> None:
    spec = dag_spec("d", "a", each={"a": {"nice": 0}})
    assert DagSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("512 MB", 512), ("2 GB", 2048), ("2gib", 2048), ("1.5 G", 1536), (" 64 ", 64), ("1 TB", 1 << 20), (100, 100)],
)
def test_memory_is_read_as_megabytes(text: Any, megabytes: int) -> None:
    assert read_memory(text) == megabytes


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("SELECT 1\n WHERE d = :interval_strat", {}, "line 2 of its text: :interval_strat is no param"),
        ("SELECT :regio", {}, "did you mean ':region'?"),
        (
            "SELECT :x",
            {},
            "; there are :region, :interval_end, :interval_start, :logical_date, :partition_key, :run_id",
        ),
        ("SELECT {{\n interval.start }}\n{% if run_id %}, :x{% endif %}", {}, "line 3 of its text: :x is no"),
        ("wrong.sql", {}, "wrong.sql, line 3: :to is no param"),
        ("SELECT :mapped_value", {}, "only a mapped task, one with over=..., has it"),
        ("SELECT :mapped_value, :region, :interval_end, :run_id, :logical_date, :partition_key", {"over": ["a"]}, None),
        ("SELECT ':x', `:y`, a:b, a::int -- :z\n, CAST(a AS STRUCT<b:int, date:date>), '12:30' /* :c */", {}, None),
    ],
)
def test_a_named_parameter_that_no_run_has_is_reported(
    tmp_path: Path, text: str, settings: dict[str, Any], message: str | None
) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT 1\nWHERE at >= :interval_start\n  AND at < :to\n")

    def make(**of_dag: Any) -> None:
        with collecting(tmp_path, tmp_path / "d.py"):

            @dag(**of_dag)
            def d() -> None:
                any_sql("s", text, **settings)

    make()  # without params and schedule: each run sets what it likes
    of_dags: list[dict[str, Any]] = [{"params": {"region": "eu"}}, {"params": {"region": "eu"}, "schedule": "@daily"}]
    for of_dag in of_dags:
        if message is None:
            make(**of_dag)
            continue
        with pytest.raises(InvalidDag) as error:
            make(**of_dag)
        assert str(error.value).startswith("DAG 'd', task 's': ")
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "into", "message"),
    [
        ("SELECT 'x", None, "a quotation mark or a comment does not end"),
        ("SELECT 1 /* why", None, "a quotation mark or a comment does not end"),
        ("-- nothing\n/* at all */ ;", None, "it has no statement"),
        (
            "SELECT 1; insert INTO t SELECT 1",
            "u",
            "its last statement begins with INSERT, and with into=... it is a query",
        ),
        ("INSERT INTO t SELECT 1", None, None),
        ("CREATE TEMP VIEW v AS SELECT 1; WITH x AS (SELECT 1) SELECT created_at -- it's", "u", None),
        ("BEGIN INSERT INTO t SELECT 1; SELECT 2; END", "u", None),
        ("SELECT 'it\\'s', r'\\', \"'\", `a'b`", "u", None),
        ("FROM t SELECT 1", "u", None),
    ],
)
def test_a_text_that_can_be_no_statement_is_reported(text: str, into: str | None, message: str | None) -> None:
    def make() -> Dag:
        return dag("d")(lambda: any_sql("s", text, into=into))

    if message is None:
        assert make().spec.tasks[0].sql == text
    else:
        with pytest.raises(InvalidDag) as error:
            make()
        assert str(error.value).startswith(f"DAG 'd', task 's': {message}")


def test_a_task_that_is_made_cannot_be_mapped_any_more() -> None:
    with pytest.raises(
        InvalidDag, match=r"DAG 'd', task '_work' is made already; map its function, without calling it"
    ):

        @dag
        def d() -> None:
            any_task(_work)().expand(over=["a"])


def test_what_is_shown_of_a_dag_is_not_longer_than_lists_can_hold() -> None:
    def make(doc: str = "", **settings: Any) -> Dag:
        def d() -> None:
            sql("s", "SELECT 1")

        d.__doc__ = doc
        made: Dag = any_dag(**settings)(d)
        return made

    longest = make(tags=["x" * 200, "y"], owner="x" * 200, description="x" * 4000)
    assert (len(longest.spec.tags[0]), len(longest.spec.owner), len(longest.spec.description)) == (200, 200, 4000)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tags": ["y", "x" * 201]}, "tags[1] must be text of at most 200 characters, not 'xxx"),
        ({"owner": "x" * 201}, "owner must be text of at most 200 characters, not 'xxx"),
        ({"description": "x" * 4001}, "description must be text of at most 4,000 characters, not 'xxx"),
        ({"doc": "x" * 4001}, "description must be text of at most 4,000 characters, not 'xxx"),
    ]
    for wrong, message in cases:
        with pytest.raises(InvalidDag) as error:
            make(**wrong)
        assert str(error.value).startswith(f"DAG 'd': {message}")


def test_what_a_version_has_stored_is_not_judged_again_where_its_tasks_run(tmp_path: Path) -> None:
    with collecting(tmp_path, tmp_path / "d.py", is_for_task=True):

        @dag(owner="x" * 201, schedule="@daily")
        def d() -> None:
            any_task(checks=["delay >"])(_work)()
            sql("s", "SELECT :x")

    assert list(d.functions) == ["_work"]
    file = tmp_path / "d.dag.yaml"
    file.write_text(f"dag_id: d\nschedule: '@daily'\ntags: [{'x' * 201}]\ntasks:\n  s: {{sql: 'SELECT :x'}}\n")
    with pytest.raises(InvalidDag, match="of at most 200 characters"):
        dags_of_yaml(file, tmp_path, lambda name: pytest.fail(name))
    (made,) = dags_of_yaml(file, tmp_path, lambda name: pytest.fail(name), is_for_task=True)
    assert made.dag_id == "d"


def test_a_schedule_without_params_takes_none_in_its_sql_either() -> None:
    with pytest.raises(InvalidDag, match=":x is no param of the DAG, and no value that every run has"):

        @dag(schedule="@daily")
        def d() -> None:
            sql("s", "SELECT :x")

    with pytest.raises(InvalidDag, match="every run has; did you mean ':interval_start'"):

        @dag(schedule="@daily")
        def e() -> None:
            sql("s", "SELECT :interval_strat")


def test_a_condition_to_wait_for_has_the_values_of_its_interval_alone() -> None:
    with pytest.raises(InvalidDag, match="waits_for: a condition has no value :region; there are :interval_end, "):

        @dag(params={"region": "eu"})
        def d() -> None:
            sql("s", "SELECT :region", waits_for=[condition("SELECT count(*) > 0 FROM t WHERE r = :region")])


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("delay >", "check 'delay >': it is no condition in Spark SQL: it can't be read at '>'"),
        ("(delay > 1", "it can't be read at '1'"),
        ("delay > 1 and", "it can't be read at 'and'"),
        ("a && b", "it can't be read at '&&'"),
        ("name = 'x", "a quotation mark or a comment does not end"),
        ("a > 1; b > 1", "it is one condition, and has no semicolon"),
        ("SELECT a > 1", "it is a condition that each row has to meet, such as `delay > 0`, and no query"),
        ("day >= :interval_start", "it has no parameters or macros, such as :interval_start"),
        ("day >= {{ interval.start }}", "it has no parameters or macros, such as {{ ... }}"),
        ("max(delay) < 100", "each row has to meet it by itself, and max(...) is of many rows"),
    ],
)
def test_a_check_that_can_be_no_condition_is_reported_when_the_file_is_read(check: str, message: str) -> None:
    for make in (
        lambda: any_task(checks=[check])(_work)(),
        lambda: any_sql("_work", "SELECT 1", into="t", checks=[check]),
    ):
        with pytest.raises(InvalidDag) as error:
            dag("d")(make)
        assert str(error.value).startswith("DAG 'd', task '_work': check ")
        assert message in str(error.value)


@pytest.mark.parametrize(
    "check",
    [
        "event:user.id::int > 0", "values > 1", "range < 1", "a >>> 1 = 0", "a = X '1C'", "my_function(a) IS NOT NULL",
        "forall(transform(a, (x, i) -> x + i), y -> y > 0)", "a NOT RLIKE ALL ('x', 'y')", "a COLLATE UTF8_LCASE = 'x'",
        "id IN (SELECT max(id) FROM t)", "`max` > 1", "day >= DATE'2020-01-01' -- since then", "CASE WHEN a THEN b ELSE c END",
    ],
)  # fmt: skip
def test_a_check_that_only_spark_can_judge_is_taken(check: str) -> None:
    @dag
    def d() -> None:
        sql("s", "SELECT 1", into="t", checks=[check])

    assert [one.condition for one in d.spec.tasks[0].checks] == [check]
