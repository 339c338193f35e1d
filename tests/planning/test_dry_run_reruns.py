"""Which items of a dry run with `--reprocess failed_tasks` re-run which failed tasks: what the plan says is what a manager
then does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import accepted

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.dry_run import with_dry_run
from backfill_manager.planning.backfills.dry_run_reruns import Rerun, _covering, with_reruns
from backfill_manager.planning.runs.timeline import TimelineWindow
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Condition
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

CHAIN = dag_spec(
    "d", "a", "b", "c", upstream={"b": ["a"], "c": ["b"]}, batchable=True, callbacks=["b.on_failure"],
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
)  # fmt: skip
WEEK = days("2024-01-01", 7)


def run_of(day: int) -> str:
    return f"backfill__2024-01-{day:02}T00:00:00Z"


def world(*broken: str) -> InMemoryManager:
    """`broken`: the tasks that fail, as `b 02` on the second of January."""

    def script(launch: TaskLaunch) -> Outcome | None:
        return Failed("boom") if f"{launch.task.task_id} {launch.run.logical_date:%d}" in broken else Succeeded()

    return InMemoryManager(CHAIN, script=script, clock=FakeClock(datetime(2024, 1, 8, tzinfo=UTC)))


def done(manager: InMemoryManager, first: int, last: int, **fields: object) -> str:
    backfill = manager.backfill("d", WEEK[first - 1 : last], **fields)
    manager.drain()
    return backfill


def planned(manager: InMemoryManager, *, skipped: Sequence[int] = (), reprocess: str = "failed_tasks") -> BackfillPlan:
    """A plan of the week, in which the items of these days are skipped."""
    pending = [s.SKIPPED if n in skipped else s.PENDING for n in range(1, 8)]
    starts = [start for start, _ in WEEK]
    named = {
        "ordinal": range(1, 8), "logical_date": starts, "interval_start": starts, "interval_end": [end for _, end in WEEK],
        "partition_key": [None] * 7, "state": pending,
        "reason": ["already exists" if n in skipped else None for n in range(1, 8)],
    }  # fmt: skip
    kinds = arrow_schema(BackfillItem)
    items = pa.table({name: pa.array(values, kinds.field(name).type) for name, values in named.items()})
    ask = CreateBackfill(dag_id="d", start_date=starts[0], end_date=starts[-1], reprocess=reprocess)
    return with_reruns(BackfillPlan(ask, CHAIN, 1, items), manager.store)


def test_each_failed_run_is_named_with_its_failed_tasks_and_callbacks_do_not_count() -> None:
    manager = world("b 02", "b.on_failure 02", "a 04")
    done(manager, 1, 5)
    plan = planned(manager, skipped=(1, 3, 5))
    assert plan.reruns == {2: Rerun(run_of(2), 2), 4: Rerun(run_of(4), 3)}
    assert (plan.summary["pending"], plan.summary["runs"]) == (4, 4)
    assert plan.summary["reruns"] == {"runs": 2, "failed_tasks": 5}
    assert [(item["run_id"], item["failed_tasks"]) for item in plan.to_json_document()["items"]] == [
        (None, None), (run_of(2), 2), (None, None), (run_of(4), 3), (None, None), (None, None), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("reprocess", ["none", "failed", "completed"])
def test_other_ways_to_reprocess_re_run_no_task_in_place(reprocess: str) -> None:
    manager = world("b 02")
    done(manager, 1, 3)
    plan = planned(manager, skipped=(1, 3), reprocess=reprocess)
    assert plan.reruns == {} and "reruns" not in plan.summary
    assert "failed_tasks" not in plan.to_json_document()["items"][1]


def test_a_batch_that_failed_is_one_run_for_all_its_days() -> None:
    manager = world("b 01")
    first = manager.backfill("d", WEEK[:4], batch=4, max_active_runs=1)
    manager.tick()
    manager.ask("backfill.cancel", backfill_id=first, let_running_finish=True)
    manager.drain()
    plan = planned(manager)
    assert plan.reruns == dict.fromkeys(range(1, 5), Rerun(run_of(1), 2))
    assert plan.summary["runs"] == 1 + 3
    assert plan.summary["reruns"] == {"runs": 1, "failed_tasks": 2}


def test_a_day_that_was_done_in_part_since_its_batch_failed_gets_a_run_of_its_own_as_the_manager_makes_it() -> None:
    manager = world("b 01")
    first = manager.backfill("d", WEEK[:4], batch=4, max_active_runs=1)
    manager.tick()
    manager.ask("backfill.cancel", backfill_id=first, let_running_finish=True)
    manager.drain()
    done(manager, 2, 2, tasks="^a$", reprocess="failed")
    agrees(manager, planned(manager))


@pytest.mark.parametrize("broken", [("b 02",), ("a 02", "c 03"), ("b 01", "b 02", "b 07")])
def test_the_manager_re_runs_the_runs_that_the_plan_names(broken: Sequence[str]) -> None:
    manager = world(*broken)
    done(manager, 1, 7)
    failed = {int(one[2:]) for one in broken}
    agrees(manager, planned(manager, skipped=tuple({*range(1, 8)} - failed)))


def test_a_run_that_was_marked_as_failed_re_runs_what_was_marked() -> None:
    manager = world()
    done(manager, 1, 3)
    manager.ask("run.mark", dag_id="d", run_id=run_of(2), state="failed")
    manager.drain()
    plan = planned(manager, skipped=(1, 3))
    assert plan.reruns == {2: Rerun(run_of(2), 1)}
    agrees(manager, plan)


def test_a_failed_run_of_which_no_task_failed_is_made_anew() -> None:
    manager = world()
    done(manager, 1, 3)
    manager.store.write([run.evolve(state=s.FAILED) for run in manager.runs("d") if run.run_id == run_of(2)])
    manager.crash()
    plan = planned(manager, skipped=(1, 3))
    assert plan.reruns == {}
    agrees(manager, plan)


@pytest.mark.parametrize("how", ["in part", "reverted"])
def test_a_failed_run_that_counts_as_none_is_made_anew(how: str) -> None:
    manager = world("a 02")
    done(manager, 2, 2, tasks="^a$" if how == "in part" else None)
    if how == "reverted":
        manager.store.write([run.evolve(reverted_at=manager.clock.now()) for run in manager.runs("d")])
        manager.crash()
    plan = planned(manager)
    assert plan.reruns == {}
    agrees(manager, plan)


@pytest.mark.parametrize("how", ["cancelled", "marked"])
def test_a_run_that_was_ended_while_it_ran_goes_on_where_it_was(how: str) -> None:
    manager = world()
    manager.script = lambda launch: Succeeded() if launch.task.task_id == "a" else None
    done(manager, 2, 2)
    if how == "cancelled":
        manager.ask("run.cancel", dag_id="d", run_id=run_of(2))
    else:
        manager.ask("run.mark", dag_id="d", run_id=run_of(2), state="failed")
    manager.drain()
    plan = planned(manager)
    assert plan.reruns[2].run_id == run_of(2)
    agrees(manager, plan)


def test_a_run_that_was_cancelled_before_anything_began() -> None:
    manager = world()
    manager.script = lambda _: None
    done(manager, 1, 2, max_active_runs=1)
    manager.ask("run.cancel", dag_id="d", run_id=run_of(1))
    manager.drain()
    agrees(manager, planned(manager, skipped=(2,)))


def test_more_failed_runs_than_one_condition_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_manager.planning.backfills.dry_run_reruns._MAX_NAMED", 1)
    manager = world("b 02", "a 04", "c 06")
    done(manager, 1, 7)
    assert planned(manager, skipped=(1, 3, 5, 6, 7)).reruns == {2: Rerun(run_of(2), 2), 4: Rerun(run_of(4), 3)}


def batch_of(first: int, n: int, state: str) -> DagRun:
    start = WEEK[0][0] + timedelta(days=first)
    return DagRun(
        "d", f"r{first}", s.BACKFILL_RUN, state, 1, first, start, logical_date=start, interval_start=start,
        interval_end=start + timedelta(days=n), items=max(n, 2),
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 9), st.sampled_from((s.FAILED, s.SUCCESS, s.RUNNING))),
        max_size=8, unique_by=lambda one: one[0],
    ),
)  # fmt: skip
def test_the_batch_of_each_date_is_that_of_the_timeline(drawn: list[tuple[int, int, str]]) -> None:
    batches = [batch_of(*one) for one in drawn]
    timeline, dates = TimelineWindow.of(batches), [WEEK[0][0] + timedelta(days=n) for n in range(32)]
    expected = {date: run.run_id for date in dates if (run := timeline.covering(date)) is not None}
    assert _covering(dates, map(vars, batches)) == expected


@pytest.mark.usefixtures("must_end")
def test_a_long_history_of_batches_is_walked_once() -> None:
    batches = [batch_of(10 * n, 10, s.FAILED) for n in range(20_000)]
    dates = [WEEK[0][0] + timedelta(days=n) for n in range(200_000)]
    assert len(_covering(dates, map(vars, batches))) == 9 * 20_000


def agrees(manager: InMemoryManager, plan: BackfillPlan) -> None:
    """The manager makes the plan's pending items real: items that the plan says are re-run keep the run that is there."""
    there = {run.run_id for run in manager.runs("d")}
    manager.script = lambda _: Succeeded()
    expected = [row for row in plan.items.to_pylist() if row["state"] == s.PENDING]
    spans = [(row["interval_start"], row["interval_start"] + timedelta(days=1)) for row in expected]
    backfill = manager.backfill("d", spans, reprocess="failed_tasks", request_id="asked")
    manager.drain()
    taken = dict(zip((row["ordinal"] for row in expected), manager.items(backfill), strict=True))
    assert {ordinal: item.run_id for ordinal, item in taken.items() if item.run_id in there} == {
        ordinal: rerun.run_id for ordinal, rerun in plan.reruns.items()
    }
    assert {item.state for item in taken.values()} == {s.SUCCESS}


def id_of_first(manager: InMemoryManager) -> str:
    """The id of its first run by a dry run."""
    plan, now = planned(manager, reprocess="completed"), manager.clock.now()
    plan = with_dry_run(plan, manager.store, now, check_waits=lambda *_: {}, files_of=lambda _: {})
    first = plan.first_item()
    assert first is not None
    run_id: str = first["run_id"]
    return run_id


def test_the_first_run_of_a_dry_run_has_the_id_that_it_will_get() -> None:
    manager = world()
    done(manager, 1, 1)
    done(manager, 1, 1, reprocess="completed")
    expected = id_of_first(manager)
    done(manager, 1, 1, reprocess="completed")
    assert expected == manager.store.read(DagRun, order_by=["-run_seq"])[0].run_id == f"{run_of(1)}__3"
    manager.leader.delete("dag_run", [Condition("run_id", "=", run_of(1))])  # it is old enough
    assert id_of_first(manager) == f"{run_of(1)}__4"


def test_a_task_run_by_hand_is_no_run_before_the_first_one_of_a_dry_run() -> None:
    manager = world()
    accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2024-01-01T00:00:00Z")
    expected = id_of_first(manager)
    done(manager, 1, 1)
    assert expected == manager.store.read(DagRun, order_by=["-run_seq"])[0].run_id == run_of(1)
