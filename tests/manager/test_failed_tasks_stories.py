"""`--reprocess failed_tasks`: the failed tasks of runs that are there run again in place, with what depends on them."""

from __future__ import annotations

import pytest
from support.scenarios import accepted, at, clear, dies_after, never, nothing_hangs, refused, task_of

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskTry
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

FOUR = dag_spec(
    "d", "load", "clean", "report", "other", upstream={"clean": ["load"], "report": ["clean"], "other": ["load"]},
    batchable=True, start_date=at("2024-01-01"), catchup=True, callbacks=["clean.on_failure", "on_success"],
)  # fmt: skip
WEEK = days("2024-01-01", 7)
SECOND = "backfill__2024-01-02T00:00:00Z"


class World:
    """`broken`: the tasks that fail, as `clean 01-02`."""

    def __init__(self, *broken: str, scheduled: bool = False) -> None:
        self.broken = set(broken)
        self.manager = InMemoryManager(FOUR, script=self.script, clock=FakeClock(at("2024-01-08")), scheduled=scheduled)

    def script(self, launch: TaskLaunch) -> Outcome | None:
        name = f"{launch.task.task_id} {launch.run.logical_date:%m-%d}"
        return Failed("boom") if name in self.broken else Succeeded()

    def done(self, n: int = 7, **fields: object) -> str:
        backfill = self.manager.backfill("d", WEEK[:n], **fields)
        self.manager.drain()
        return backfill

    def rerun(self, n: int = 7, **fields: object) -> str:
        self.manager.launched.clear()
        return self.done(n, reprocess="failed_tasks", request_id="asked", **fields)

    @property
    def launched(self) -> set[str]:
        return {f"{it.task.task_id} {it.run.logical_date:%m-%d}" for it in self.manager.launched if it.ended is None}


def test_only_what_failed_and_what_depends_on_it_runs_again_in_the_run_that_is_there() -> None:
    world = World("clean 01-02", "load 01-04")
    world.done(5)
    world.broken.clear()
    backfill = world.rerun(5)
    nothing_hangs(world.manager)
    assert world.launched == {
        "clean 01-02", "report 01-02", "load 01-04", "clean 01-04", "report 01-04", "other 01-04",
    }  # fmt: skip
    assert {run.state for run in world.manager.runs("d")} == {s.SUCCESS} and len(world.manager.runs("d")) == 5
    again = task_of(world.manager, SECOND, "clean")
    assert (again.try_number, again.generation, again.cleared_by) == (2, 1, "asked")
    assert task_of(world.manager, SECOND, "load").try_number == 1
    tries = [
        (row.try_number, row.state)
        for row in world.manager.store.read(TaskTry)
        if row.key[:3] == (*("d", SECOND), "clean")
    ]
    assert sorted(tries) == [(1, s.FAILED), (2, s.SUCCESS)]
    items = world.manager.items(backfill)
    assert [(item.state, item.reason) for item in items] == [
        (s.SKIPPED, "already exists"), (s.SUCCESS, None), (s.SKIPPED, "already exists"), (s.SUCCESS, None),
        (s.SKIPPED, "already exists"),
    ]  # fmt: skip
    assert items[1].run_id == SECOND
    assert world.manager.row(backfill).state == s.SUCCESS


def test_a_task_that_is_marked_in_the_same_moment_stays_marked_and_its_run_keeps_its_turn() -> None:
    world = World("clean 01-01", "clean 01-02")
    world.done(2)
    world.broken.clear()
    world.manager.launched.clear()
    world.manager.backfill("d", WEEK[:2], reprocess="failed_tasks", max_active_runs=2)
    run_id = world.manager.runs("d")[0].run_id
    world.manager.ask("task.mark", dag_id="d", run_id=run_id, task_id="other", state="skipped")
    while world.manager.tick():
        for run in world.manager.state.runs.values():
            assert run.tasks == {ti.task_id: ti for ti in world.manager.tasks("d") if ti.run_id == run.row.run_id}, (
                "memory is what the tables say"
            )
    again = [f"{it.task.task_id} {it.run.logical_date:%m-%d}" for it in world.manager.launched if it.ended is None]
    assert again == ["clean 01-01", "clean 01-02", "report 01-01", "report 01-02"]
    assert task_of(world.manager, run_id, "other").state == s.SKIPPED


def test_the_tick_that_takes_a_run_takes_its_item() -> None:
    world = World("clean 01-01")
    world.done(1)
    world.manager.script = never
    backfill = world.manager.backfill("d", WEEK[:1], reprocess="failed_tasks")
    while not world.manager.running:
        world.manager.tick()
    (run,), (item,) = world.manager.runs("d"), world.manager.items(backfill)
    assert (run.state, run.backfill_id) == (s.RUNNING, backfill)
    assert (item.state, item.run_id) == (s.RUNNING, run.run_id)


def test_dates_without_a_run_get_one_and_the_run_belongs_to_the_backfill_that_runs_it_again() -> None:
    world = World("clean 01-02")
    first = world.done(3)
    world.broken.clear()
    second = world.rerun(4)
    runs = {run.run_id: run.backfill_id for run in world.manager.runs("d")}
    assert runs.pop(SECOND) == second and runs.pop("backfill__2024-01-04T00:00:00Z") == second
    assert set(runs.values()) == {first}
    assert world.manager.row(first).state == s.FAILED, "what it came to stays"


@pytest.mark.parametrize("run_type", ["scheduled", "manual"])
def test_runs_of_every_kind_run_again_within_the_limits_and_in_the_pool_of_the_backfill(run_type: str) -> None:
    world = World(*(f"clean 01-{day:02}" for day in range(1, 8)), scheduled=run_type == "scheduled")
    world.manager.drain()
    for start, _ in WEEK if run_type == "manual" else ():
        accepted(world.manager, "dag.trigger", dag_id="d", logical_date=f"{start:%Y-%m-%d}T00:00:00Z", conf={})
    assert {run.run_type for run in world.manager.runs("d")} == {run_type}
    world.manager.script = never
    backfill = world.rerun(max_active_runs=2, priority=7)
    assert len(world.manager.running) == 2
    assert {(launch.pool, launch.ti.priority) for launch in world.manager.launched} == {("backfill", 7)}
    world.manager.ask("backfill.pause", backfill_id=backfill)
    world.manager.tick()
    for key in list(world.manager.running):
        world.manager.finish(key, Succeeded())
    world.manager.script = lambda _: Succeeded()
    world.manager.drain()
    assert world.manager.states(backfill) == {s.SUCCESS: 2, s.PENDING: 5}
    accepted(world.manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(world.manager)
    assert world.manager.states(backfill) == {s.SUCCESS: 7}


def test_cancelling_the_backfill_stops_the_run_that_it_runs_again() -> None:
    world = World("clean 01-02")
    world.done(3)
    world.manager.script = never
    backfill = world.rerun(3)
    accepted(world.manager, "backfill.cancel", backfill_id=backfill, let_running_finish=False)
    nothing_hangs(world.manager)
    (run,) = [run for run in world.manager.runs("d") if run.run_id == SECOND]
    assert (run.state, world.manager.row(backfill).state) == (s.CANCELLED, s.CANCELLED)


def test_what_was_cancelled_runs_again_too() -> None:
    world = World()
    world.manager.script = never
    world.manager.backfill("d", WEEK[:1])
    world.manager.drain()
    accepted(world.manager, "run.cancel", dag_id="d", run_id="backfill__2024-01-01T00:00:00Z")
    world.manager.script = lambda _: Succeeded()
    assert world.manager.states(world.rerun(1)) == {s.SUCCESS: 1}
    assert len(world.manager.runs("d")) == 1


def test_a_run_that_fails_again_is_a_failed_item_and_a_retry_runs_its_failed_tasks_once_more() -> None:
    world = World("clean 01-02", "report 01-03")
    world.done(3)
    world.broken = {"clean 01-02"}
    backfill = world.rerun(3)
    assert world.manager.states(backfill) == {s.SKIPPED: 1, s.FAILED: 1, s.SUCCESS: 1}
    world.broken.clear()
    accepted(world.manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(world.manager)
    assert world.manager.states(backfill) == {s.SKIPPED: 1, s.SUCCESS: 2}
    assert len(world.manager.runs("d")) == 3
    assert task_of(world.manager, SECOND, "clean").try_number == 3


def test_a_batch_that_failed_is_one_run_whose_dates_go_with_it_and_is_not_parted() -> None:
    """Of a backfill that meets only some of its dates."""
    world = World("clean 01-01")
    first = world.manager.backfill("d", WEEK[:4], batch=4, max_active_runs=1)
    world.manager.tick()
    world.manager.ask("backfill.cancel", backfill_id=first, let_running_finish=True)
    world.manager.drain()
    (batch,) = world.manager.runs("d")
    assert (batch.state, batch.items) == (s.FAILED, 4)
    second = world.manager.backfill("d", WEEK[1:6], reprocess="failed_tasks", request_id="asked")
    nothing_hangs(world.manager)
    taken = [item.run_id for item in world.manager.items(second)]
    assert taken[:3] == [batch.run_id] * 3 and len(set(taken[3:])) == 2
    assert world.manager.states(second) == {s.FAILED: 3, s.SUCCESS: 2}
    world.broken.clear()
    accepted(world.manager, "backfill.retry", backfill_id=second)
    nothing_hangs(world.manager)
    assert world.manager.states(second) == {s.SUCCESS: 5}
    assert len(world.manager.runs("d")) == 3


def test_a_run_keeps_its_version_and_settings_of_a_task_that_it_does_not_have_are_passed_over() -> None:
    world = World("clean 01-01")
    world.done(1)
    newer = dag_spec("d", "load", "clean", "report", "other", "added", upstream={"clean": ["load"], "added": ["clean"]})
    world.manager.add_dag(newer)
    backfill = world.rerun(1, overrides_json='{"added.retries": 3, "clean.retries": 1, "clean.retry_delay": 1}')
    nothing_hangs(world.manager)
    (run,) = world.manager.runs("d")
    assert (run.dag_version, run.state, world.manager.row(backfill).dag_version) == (1, s.FAILED, 2)
    assert task_of(world.manager, run.run_id, "clean").try_number == 3, "a retry as the backfill sets it"


def test_a_run_that_was_cleared_meanwhile_is_in_flight_and_one_that_was_mended_is_left_alone() -> None:
    world = World("clean 01-01", "clean 01-02", "clean 01-03")
    world.done(3)
    world.manager.script = lambda it: None if "01-02" in it.run.run_id else Succeeded()
    backfill = world.manager.backfill("d", WEEK[:3], reprocess="failed_tasks", is_paused=True, state=s.PAUSED)
    accepted(world.manager, "tasks.clear", **clear("d", end="2024-01-02", only_failed=True))
    accepted(world.manager, "backfill.unpause", backfill_id=backfill)
    assert [item.reason for item in world.manager.items(backfill)] == ["already exists", "in flight", None]


def test_callbacks_tell_again_of_what_ran_again() -> None:
    world = World("clean 01-01")
    world.done(1)
    world.broken.clear()
    world.rerun(1)
    assert [it.task.task_id for it in world.manager.launched] == ["clean", "report", "on_success"]


def test_what_such_a_backfill_can_not_do_is_refused_also_while_it_runs() -> None:
    world = World("clean 01-01")
    world.done(2)
    world.manager.script = never
    backfill = world.rerun(2)
    message = refused(world.manager, "backfill.set", backfill_id=backfill, changes={"batch": 3})
    assert message.startswith("reprocess failed_tasks re-runs the failed tasks of runs as they are; leave batch 3 out")


def test_what_was_left_out_of_a_run_stays_so_and_a_callback_that_failed_tells_only_of_what_runs_again() -> None:
    spec = dag_spec(
        "d", "load", "clean", "report", upstream={"clean": ["load"], "report": ["clean"]}, callbacks=["load.on_success"]
    )
    manager = InMemoryManager(spec, script=lambda it: Succeeded() if it.task.task_id == "load" else Failed("boom"))
    manager.backfill("d", WEEK[:1], tasks="clean")
    manager.drain()
    (run,) = manager.runs("d")
    assert (run.state, task_of(manager, run.run_id, "load.on_success").state) == (s.FAILED, s.FAILED)
    manager.launched.clear()
    manager.script = lambda _: Succeeded()
    manager.backfill("d", WEEK[:1], tasks="clean", reprocess="failed_tasks")
    nothing_hangs(manager)
    assert [it.task.task_id for it in manager.launched] == ["clean"]
    assert task_of(manager, run.run_id, "report").state == s.SKIPPED


@pytest.mark.parametrize("tables", range(8))
def test_failed_tasks_run_again_in_their_run_wherever_the_manager_is_killed(tables: int) -> None:
    world = World("clean 01-01", "clean 01-02")
    world.done(2)
    world.broken.clear()
    backfill = world.manager.backfill("d", WEEK[:2], reprocess="failed_tasks")
    dies_after(world.manager, tables)
    nothing_hangs(world.manager)
    assert world.manager.states(backfill) == {s.SUCCESS: 2}
    assert [run.state for run in world.manager.runs("d")] == [s.SUCCESS] * 2, "no run takes their places"
    assert {ti.try_number for ti in world.manager.tasks("d", "load")} == {1}
