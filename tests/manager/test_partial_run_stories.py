"""Runs that left tasks out by choice (`backfill create --tasks`): a whole backfill takes their dates for ones without a run."""

from __future__ import annotations

import pytest
from support.scenarios import accepted, at, clear, nothing_hangs, refused

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

CHAIN = dag_spec("d", "a", "b", "c", upstream={"b": ["a"], "c": ["b"]})
DAYS = days("2024-01-01", 3)


def world(script: object = lambda _: Succeeded()) -> InMemoryManager:
    return InMemoryManager(CHAIN, script=script, clock=FakeClock(at("2024-01-08")))  # type: ignore[arg-type]


def ran(manager: InMemoryManager, n: int = 1, **fields: object) -> list[str]:
    """The tasks that a backfill of so many days ran, in order."""
    manager.launched.clear()
    manager.backfill("d", DAYS[:n], **fields)
    nothing_hangs(manager)
    return [launch.task.task_id for launch in manager.launched]


@pytest.mark.parametrize(
    ("upstream", "downstream", "chosen"),
    [(True, False, ["a", "b"]), (False, False, ["b"]), (True, True, ["a", "b", "c"]), (False, True, ["b", "c"])],
)
def test_tasks_take_upstream_and_downstream_along_as_asked(upstream: bool, downstream: bool, chosen: list[str]) -> None:
    manager = world()
    assert ran(manager, tasks="^b$", with_upstream=upstream, with_downstream=downstream) == chosen
    (run,) = manager.runs("d")
    assert (run.state, run.is_partial) == (s.SUCCESS, len(chosen) < 3)


@pytest.mark.parametrize("fails", ["a", "b", "d"])
def test_every_chosen_task_that_no_chosen_one_waits_for_decides_how_the_run_ends(fails: str) -> None:
    """`b` is a leaf of what is to run, though `c` of the DAG comes after it."""
    spec = dag_spec("d", "a", "b", "c", "d", upstream={"b": ["a"], "c": ["b"], "d": ["a"]})
    manager = InMemoryManager(spec, script=lambda it: Failed("x") if it.task.task_id == fails else Succeeded())
    backfill = manager.backfill("d", DAYS[:1], tasks="^(b|d)$")
    nothing_hangs(manager)
    assert ([run.state for run in manager.runs("d")], manager.states(backfill)) == ([s.FAILED], {s.FAILED: 1})


def test_a_backfill_of_an_older_release_goes_on_with_the_tasks_that_it_named_alone() -> None:
    assert ran(world(), tasks="^b$", with_upstream=None, with_downstream=None) == ["b"]


@pytest.mark.parametrize("rule", ["all_success", "all_failed", "one_success", "one_failed", "none_skipped", "all_done"])
def test_a_task_that_was_left_out_holds_none_that_was_chosen_whatever_its_trigger_rule(rule: str) -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"b": {"trigger_rule": rule}})
    manager = InMemoryManager(spec)
    assert ran(manager, tasks="^b$", with_upstream=False) == ["b"]
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


@pytest.mark.parametrize("reprocess", ["none", "failed", "failed_tasks", "completed"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_whole_backfill_does_a_date_that_was_only_done_in_part(reprocess: str, fails: bool) -> None:
    def script(launch: TaskLaunch) -> Outcome | None:
        return Failed("boom") if fails and launch.run.is_partial else Succeeded()

    manager = world(script)
    ran(manager, 2, tasks="^a$")
    assert ran(manager, 3, reprocess=reprocess) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    standing = [run for run in manager.runs("d") if run.state != s.OVERRIDDEN]
    assert [(run.state, run.is_partial) for run in standing] == [(s.SUCCESS, False)] * 3


def test_to_a_backfill_that_chooses_tasks_a_partial_run_is_a_run_like_any_other() -> None:
    manager = world()
    ran(manager, tasks="^a$")
    assert ran(manager, tasks="^b$") == []
    assert ran(manager, tasks="^b$", reprocess="completed") == ["a", "b"]


def test_a_partial_run_that_is_active_is_in_flight() -> None:
    manager = world(lambda _: None)
    manager.backfill("d", DAYS[:1], tasks="^a$")
    manager.drain()
    whole = manager.backfill("d", DAYS[:1])
    manager.drain()
    assert [(item.state, item.reason) for item in manager.items(whole)] == [(s.SKIPPED, "in flight")]


def test_an_expression_that_chooses_every_task_makes_whole_runs() -> None:
    manager = world()
    ran(manager, tasks="[abc]")
    assert [run.is_partial for run in manager.runs("d")] == [False]
    assert ran(manager) == []


def test_a_partial_run_that_is_cleared_stays_partial() -> None:
    manager = world()
    ran(manager, tasks="^a$")
    assert accepted(manager, "tasks.clear", **clear("d")).message == "cleared 1 task in 1 run"
    nothing_hangs(manager)
    assert [run.is_partial for run in manager.runs("d")] == [True]
    assert ran(manager) == ["a", "b", "c"]


def test_a_task_that_was_left_out_can_not_be_cleared() -> None:
    manager = world()
    ran(manager, tasks="^a$")
    assert "no task, of those that match '^b$', that has started" in refused(
        manager, "tasks.clear", **clear("d", tasks="^b$")
    )
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_of_an_older_release_a_partial_run_is_known_by_what_it_left_out() -> None:
    """It did not write down which of its runs are partial; the tasks were changed while the backfill ran."""
    manager = world(lambda it: None if "01-01" in it.run.run_id else Succeeded())
    backfill = manager.backfill("d", DAYS[:2], max_active_runs=1, with_upstream=None, with_downstream=None)
    manager.drain()
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"tasks": "^b$"})
    manager.script = lambda _: Succeeded()
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    manager.store.write([run.evolve(is_partial=None) for run in manager.store.read(DagRun)])
    manager.crash()
    result = timeline_around("d", [start for start, _ in DAYS], [], manager.store)
    assert [run.is_partial for run in sorted(result, key=lambda run: run.run_id)] == [None, True]
    assert ran(manager, 2) == ["a", "b", "c"]
