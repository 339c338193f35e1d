"""What a DAG file may contain, what it becomes, and the error of each mistake."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any

import pendulum
import pytest

from backfill_manager import Dag, dag, sql, task
from backfill_manager.dags.authoring import collecting
from backfill_manager.dags.definition import DagSpec
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
