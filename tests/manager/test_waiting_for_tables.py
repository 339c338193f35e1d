"""Tasks with `waits_for` start once other tasks have written the tables for their interval."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.scenarios import accepted, clear, next_due

from backfill_manager import dag, task
from backfill_manager.errors import InvalidDag
from backfill_manager.execution import messages as m
from backfill_manager.manager.maintenance.retention import Sweep
from backfill_manager.model import states as s
from backfill_manager.settings import RetentionSettings
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

DAY = days("2024-01-02", 1)
HOURS = [(DAY[0][0] + timedelta(hours=n), DAY[0][0] + timedelta(hours=n + 1)) for n in range(24)]
EVENTS = m.AccessedTable("write", "bronze.events", "s3a://lake/bronze/events", 1, 10, 100)


def silver(**task: Any) -> Any:
    return dag_spec("silver", "clean", "report", upstream={"report": ["clean"]}, each={"clean": task})


class Lake(InMemoryManager):
    """Two DAGs: `bronze` (hourly) writes the table that `silver` (daily) waits for."""

    def __init__(self, **task: Any) -> None:
        bronze = dag_spec("bronze", "load", schedule="@hourly")
        script = lambda launch: None if launch.ti.dag_id == "bronze" else m.Succeeded()  # noqa: E731
        super().__init__(bronze, silver(waits_for=("bronze.events",), **task), script=script, clock=FakeClock())

    def write(
        self, hours: list[tuple[datetime, datetime]], table: m.AccessedTable = EVENTS, outcome: Any = None
    ) -> None:
        self.backfill("bronze", hours)
        self.drain()
        while self.running:
            for key in list(self.running):
                self.finish(key, outcome or m.Succeeded(), tables=[table])
            self.drain()

    def state_of(self, task_id: str = "clean") -> str:
        return self.tasks("silver", task_id)[-1].state


def test_a_daily_run_waits_until_every_hour_has_been_written() -> None:
    lake = Lake()
    lake.write(HOURS[:12])
    lake.backfill("silver", DAY)
    lake.drain()
    assert (lake.state_of(), lake.runs("silver")[0].reason) == (s.NONE, "waits for bronze.events")
    assert not lake.running, "no slot is taken"
    lake.write(HOURS[13:])
    assert lake.state_of() == s.NONE, "an hour is missing"
    lake.write(HOURS[12:13])
    run = lake.runs("silver")[0]
    assert (lake.state_of(), run.state, run.reason) == (s.SUCCESS, s.SUCCESS, None)


def test_a_day_that_is_missing_holds_back_no_other_of_a_batch() -> None:
    lake, eight = Lake(), days("2024-01-02", 8)
    lake.write(eight[:5] + eight[6:])
    backfill = lake.backfill("silver", eight, batch=8)
    lake.drain()
    runs = [(run.items, run.state) for run in lake.runs("silver")]
    assert runs == [(5, s.SUCCESS), (1, s.QUEUED), (2, s.SUCCESS)]
    lake.write(eight[5:6])
    assert lake.states(backfill) == {s.SUCCESS: 8}


def test_an_hour_needs_the_day_that_holds_it() -> None:
    manager = InMemoryManager(
        dag_spec("bronze", "load"), dag_spec("hourly", "split", schedule="@hourly", each={"split": {"waits_for": ("events",)}}),
        script=lambda launch: None if launch.ti.dag_id == "bronze" else m.Succeeded(),
    )  # fmt: skip
    manager.backfill("bronze", DAY)
    manager.backfill("hourly", [HOURS[5]])
    manager.drain()
    (key,) = manager.running
    assert manager.tasks("hourly")[0].state == s.NONE
    manager.finish(key, m.Succeeded(), tables=[m.AccessedTable("write", "default.events", None)])
    manager.drain()
    assert manager.tasks("hourly")[0].state == s.SUCCESS, "a name without a schema is one in Spark's own"


@pytest.mark.parametrize(
    ("table", "outcome"),
    [
        (EVENTS, m.Failed("no", retryable=False)),
        (m.AccessedTable("read", "bronze.events", None), m.Succeeded()),
        (m.AccessedTable("write", "bronze.others", "s3a://lake/bronze/others"), m.Succeeded()),
    ],
)
def test_only_what_a_successful_try_has_written_counts(table: m.AccessedTable, outcome: m.Outcome) -> None:
    lake = Lake()
    lake.backfill("silver", DAY)
    lake.write(HOURS, table, outcome)
    assert lake.state_of() == s.NONE


def test_what_was_written_before_and_under_another_leader_counts() -> None:
    lake = Lake()
    lake.write(HOURS[:20])
    lake.backfill("silver", DAY)
    lake.drain()
    lake.crash()
    lake.drain()
    assert (lake.state_of(), lake.runs("silver")[0].reason) == (s.NONE, "waits for bronze.events")
    lake.write(HOURS[20:])
    assert lake.state_of() == s.SUCCESS


def test_retention_keeps_the_run_that_alone_tells_what_was_written() -> None:
    """The hour was written, then run again, and that failed."""
    lake = Lake()
    lake.write(HOURS)
    for _ in range(2):
        lake.backfill("bronze", HOURS[3:5], reprocess="completed")
        lake.drain()
        for key in list(lake.running):
            is_third = lake.running[key].run.logical_date == HOURS[3][0]
            outcome = m.Failed("no", retryable=False) if is_third else m.Succeeded()
            lake.finish(key, outcome, tables=[EVENTS])
        lake.drain()
    later = lake.clock.now() + timedelta(hours=3)
    gone = Sweep(lake.store, RetentionSettings(runs=3600.0), later, leader=lake.leader).run()
    assert gone["runs"] == 3, "the first failure of the one hour, two successes of the other"
    lake.crash()
    lake.backfill("silver", DAY)
    lake.drain()
    assert lake.state_of() == s.SUCCESS


@pytest.mark.parametrize(
    ("then", "states"), [("fail", [s.FAILED, s.UPSTREAM_FAILED]), ("skip", [s.SKIPPED, s.SKIPPED])]
)
def test_a_wait_that_takes_too_long_ends(then: str, states: list[str]) -> None:
    lake = Lake(wait_limit=7200.0, after_wait_limit=then)
    lake.backfill("silver", DAY)
    lake.drain()
    assert lake._decisions.next_due(lake.clock.now()) == lake.clock.now() + timedelta(hours=2), (
        "the manager wakes for it"
    )
    lake.clock.advance(seconds=7199)
    lake.drain()
    assert lake.state_of() == s.NONE
    lake.clock.advance(seconds=1)
    lake.drain()
    assert [ti.state for ti in lake.tasks("silver")] == states
    assert lake.tasks("silver", "clean")[0].error == "waited 2 h for bronze.events"


def test_the_limit_of_a_wait_goes_on_under_another_leader() -> None:
    lake = Lake(wait_limit=7200.0)
    lake.backfill("silver", DAY)
    lake.drain()
    for _ in range(3):  # a restart every half an hour
        lake.clock.advance(seconds=1800)
        lake.crash()
        lake.drain()
        assert lake.state_of() == s.NONE
    lake.clock.advance(seconds=1799)
    lake.crash()
    lake.drain()
    assert next_due(lake) == lake.clock.now() + timedelta(seconds=1)
    lake.clock.advance(seconds=1)
    lake.drain()
    (clean,) = lake.tasks("silver", "clean")
    assert (clean.state, clean.error, clean.wait_ends_at) == (s.FAILED, "waited 2 h for bronze.events", None)


def test_a_wait_that_is_cancelled_has_no_end() -> None:
    lake = Lake(wait_limit=7200.0)
    lake.backfill("silver", DAY)
    lake.drain()
    assert lake.tasks("silver", "clean")[0].wait_ends_at == lake.clock.now() + timedelta(hours=2)
    accepted(lake, "run.cancel", dag_id="silver", run_id=lake.runs("silver")[0].run_id)
    (clean,) = lake.tasks("silver", "clean")
    assert (clean.state, clean.wait_ends_at) == (s.CANCELLED, None)


def test_a_failed_wait_that_is_cleared_waits_anew() -> None:
    lake = Lake(wait_limit=60.0)
    lake.backfill("silver", DAY)
    lake.drain()
    lake.clock.advance(seconds=60)
    lake.drain()
    assert lake.state_of() == s.FAILED
    run = lake.runs("silver")[0]
    accepted(lake, "tasks.clear", **clear("silver", run_ids=[run.run_id]))
    lake.drain()
    assert lake.state_of() == s.NONE
    lake.clock.advance(seconds=60)
    lake.drain()
    assert lake.state_of() == s.FAILED
    lake.write(HOURS)
    accepted(lake, "tasks.clear", **clear("silver", run_ids=[run.run_id]))
    lake.drain()
    assert lake.state_of() == s.SUCCESS


def written_but_one(lake: Lake, missing: int, **fields: Any) -> str:
    """A backfill of eight days of `silver` in one batch, which then waits for the data of one of them (from 0)."""
    eight = days("2024-01-02", 8)
    backfill = lake.backfill("silver", eight, batch=8, **fields)
    lake.drain()
    lake.write(eight[:missing] + eight[missing + 1 :])
    assert [run.items for run in lake.runs("silver")] == [8]
    return backfill


def test_the_halves_of_a_batch_whose_wait_has_ended_do_not_wait_once_more() -> None:
    lake = Lake(wait_limit=7200.0)
    backfill = written_but_one(lake, 5)
    lake.clock.advance(seconds=7200)
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 7, s.FAILED: 1}
    (failed,) = (run for run in lake.runs("silver") if run.state == s.FAILED)
    assert (failed.logical_date, failed.items) == (days("2024-01-07", 1)[0][0], 1)
    tasks = [ti for ti in lake.tasks("silver", "clean") if ti.run_id == failed.run_id]
    assert [ti.error for ti in tasks] == ["waited 2 h for bronze.events"]


def test_a_batch_whose_wait_ends_skips_only_the_day_without_data() -> None:
    lake = Lake(wait_limit=7200.0, after_wait_limit="skip")
    backfill = written_but_one(lake, 2)
    lake.clock.advance(seconds=7200)
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 8}, "a run whose tasks are skipped succeeds"
    skipped = {ti.run_id for ti in lake.tasks("silver", "clean") if ti.state == s.SKIPPED}
    runs = [run for run in lake.runs("silver") if run.run_id in skipped]
    assert [(run.logical_date, run.items) for run in runs] == [(days("2024-01-04", 1)[0][0], 1)]


def test_a_batch_whose_wait_ends_skips_only_the_day_without_data_also_with_a_leaf_that_runs_always() -> None:
    waits = {"waits_for": ("bronze.events",), "wait_limit": 3600.0, "after_wait_limit": "skip"}
    each = {"clean": waits, "report": {"trigger_rule": "all_done"}}
    lake, four = Lake(), days("2024-01-02", 4)
    lake.add_dag(dag_spec("silver", "clean", "report", upstream={"report": ["clean"]}, each=each, batchable=True))
    backfill = lake.backfill("silver", four, batch=4)
    lake.drain()
    lake.write(four[:3])
    lake.clock.advance(hours=1)
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 4}
    stand = {run.run_id: run.items for run in lake.runs("silver") if run.state != s.OVERRIDDEN}
    done = [(ti.state, stand[ti.run_id]) for ti in lake.tasks("silver", "clean") if ti.run_id in stand]
    assert done == [(s.SUCCESS, 2), (s.SUCCESS, 1), (s.SKIPPED, 1)]


def test_a_batch_that_is_not_split_skips_no_interval_that_may_have_its_data() -> None:
    waits = {"waits_for": ("bronze.events",), "wait_limit": 3600.0, "after_wait_limit": "skip"}
    lake, four = Lake(), days("2024-01-02", 4)
    lake.add_dag(dag_spec("silver", "clean", each={"clean": waits}, batchable=True))
    lake.backfill("silver", four, batch=4)
    lake.drain()
    (run,) = lake.runs("silver")
    accepted(lake, "run.mark", dag_id="silver", run_id=run.run_id, state="failed")
    lake.write(four[:3])
    again = lake.backfill("silver", four, reprocess="failed_tasks")
    lake.drain()
    lake.clock.advance(hours=1)
    lake.drain()
    assert ([run.items for run in lake.runs("silver")], lake.states(again)) == ([4], {s.FAILED: 4})


def test_another_leader_knows_that_a_half_has_waited_and_a_retry_waits_anew() -> None:
    lake = Lake(wait_limit=7200.0)
    backfill = written_but_one(lake, 0, max_active_runs=1)
    lake.clock.advance(seconds=7200)
    while lake.states(backfill) == {s.RUNNING: 8}:
        lake.tick()
    lake.crash()  # before the first half has its run
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 7, s.FAILED: 1}
    accepted(lake, "backfill.retry", backfill_id=backfill)
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 7, s.RUNNING: 1}
    lake.clock.advance(seconds=7200)
    lake.drain()
    assert lake.states(backfill) == {s.SUCCESS: 7, s.FAILED: 1}


def test_a_task_of_a_half_that_had_not_waited_in_the_batch_has_its_whole_limit() -> None:
    lake = Lake()
    each = {
        "clean": {"waits_for": ("bronze.events",), "wait_limit": 7200.0},
        "join": {"waits_for": ("bronze.places",), "wait_limit": 3600.0},
    }
    lake.add_dag(dag_spec("silver", "clean", "join", upstream={"join": ["clean"]}, each=each))
    backfill = written_but_one(lake, 7)
    lake.clock.advance(seconds=7200)
    lake.drain()
    assert lake.states(backfill) == {s.RUNNING: 7, s.FAILED: 1}
    lake.clock.advance(seconds=3600)
    lake.drain()
    assert lake.states(backfill) == {s.FAILED: 8}, "and halves of these do not wait again, whichever task has waited"


def test_it_waits_for_its_upstream_first_and_from_then_on() -> None:
    spec = dag_spec(
        "silver", "fetch", "join", upstream={"join": ["fetch"]},
        each={"join": {"waits_for": ("bronze.events",), "wait_limit": 60.0}},
    )  # fmt: skip
    manager = InMemoryManager(spec, script=lambda _: None)
    manager.backfill("silver", DAY)
    manager.drain()
    manager.clock.advance(seconds=600)
    (key,) = manager.running
    manager.finish(key, m.Succeeded())
    manager.drain()
    assert manager.tasks("silver", "join")[0].state == s.NONE
    manager.clock.advance(seconds=60)
    manager.drain()
    assert manager.tasks("silver", "join")[0].state == s.FAILED


def test_a_dag_declares_it_for_the_tasks_that_wait_for_no_other() -> None:
    @dag(waits_for=["bronze.events", "bronze.events", "bronze.places"], default_args={"wait_limit": timedelta(hours=6)})
    def silver() -> None:
        @task
        def clean(ctx: Any) -> None: ...

        @task
        def report(ctx: Any) -> None: ...

        @task(waits_for=["bronze.rates"], after_wait_limit="skip")
        def convert(ctx: Any) -> None: ...

        clean() >> report()
        convert()

    tasks = {one.task_id: one for one in silver.spec.tasks}
    assert tasks["clean"].waits_for == ("bronze.events", "bronze.places")
    assert (tasks["report"].waits_for, tasks["convert"].waits_for) == ((), ("bronze.rates",))
    assert {one.wait_limit for one in tasks.values()} == {21600.0}
    assert type(silver.spec).from_json(silver.spec.to_json()) == silver.spec


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"waits_for": "bronze.events"}, "waits_for must be a list"),
        ({"waits_for": [""]}, "waits_for"),
        ({"wait_limit": 0}, "wait_limit"),
        ({"after_wait_limit": "panic"}, "after_wait_limit"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDag, match=message):

        @dag
        def silver() -> None:
            @task(**settings)
            def clean(ctx: Any) -> None: ...

            clean()


def test_a_clock_that_stands_still_makes_no_commits() -> None:
    lake = Lake()
    lake.backfill("silver", DAY)
    lake.drain()
    assert not lake.tick(), "waiting changes nothing"


def test_a_task_that_is_blocked_by_its_past_does_not_end_one_that_waits_for_data() -> None:
    spec = dag_spec("d", "x", "y", each={"x": {"depends_on_past": True}, "y": {"waits_for": ("bronze.events",)}})
    manager = InMemoryManager(spec, dag_spec("bronze", "load", schedule=None), script=lambda _: m.Failed("x"))
    manager.backfill("d", days("2013-01-01", 3), max_active_runs=1, tasks="x", with_upstream=False)
    manager.drain()
    backfill = manager.backfill("d", days("2013-01-04", 4), max_active_runs=1, ignore_first_depends_on_past=False)
    manager.drain()
    assert {ti.task_id: ti.state for ti in manager.tasks("d") if ti.run_id == manager.runs("d")[-1].run_id} == {
        "x": s.NONE, "y": s.NONE,
    }  # fmt: skip
    assert manager.states(backfill) == {s.PENDING: 3, s.RUNNING: 1}


def test_the_limit_of_a_wait_counts_anew_for_a_run_whose_place_an_older_one_has_taken() -> None:
    spec = dag_spec(
        "d", "y", each={"y": {"waits_for": ("bronze.events",), "wait_limit": 60.0}}, max_active_runs=1, schedule=None
    )
    manager = InMemoryManager(spec, dag_spec("bronze", "load", schedule=None), script=lambda _: None)
    accepted(manager, "dag.trigger", dag_id="d", logical_date="2023-12-20T00:00:00+00:00", conf={})
    manager.add_dag(dag_spec("d", "y", max_active_runs=1, schedule=None))
    accepted(manager, "dag.trigger", dag_id="d", logical_date="2023-12-10T00:00:00+00:00", conf={})
    manager.clock.advance(seconds=61)
    manager.drain()
    due = next_due(manager)
    assert due is None or due > manager.clock.now(), "else it would tick without a pause"
    manager.finish(next(iter(manager.running)), m.Succeeded())
    manager.drain()
    assert [ti.state for ti in manager.tasks("d")] == [s.NONE, s.SUCCESS]
    assert next_due(manager) == manager.clock.now() + timedelta(seconds=60)
    manager.clock.advance(seconds=30)
    manager.crash()
    manager.drain()
    assert next_due(manager) == manager.clock.now() + timedelta(seconds=30), "also for the next leader"
