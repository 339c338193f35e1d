"""The first item of a backfill and the run before it (`ignore_first_depends_on_past`), and which tasks of a backfill
depend on the past at all."""

from __future__ import annotations

import pytest
from support.scenarios import accepted, dies_after, key_of, never, nothing_hangs, refused

from backfill_manager.execution.messages import Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days

JANUARY = days("2013-01-01", 8)
ROLL = dag_spec("d", "roll", each={"roll": {"depends_on_past": True}}, batchable=True)


def failing_on(*dates: str) -> InMemoryManager:
    """A DAG whose task depends on the past; on these days it fails until `mend`."""
    manager = InMemoryManager(ROLL, script=lambda it: Failed("boom") if it.run.run_id[15:20] in dates else Succeeded())
    return manager


def mend(manager: InMemoryManager) -> None:
    manager.script = lambda _: Succeeded()


def after_a_failure(day: int = 0) -> InMemoryManager:
    """The run of one day has failed, and nothing else has run."""
    manager = failing_on(f"01-{day + 1:02}")
    manager.backfill("d", JANUARY[day : day + 1])
    manager.drain()
    mend(manager)
    return manager


def states(manager: InMemoryManager, backfill: str) -> list[str]:
    nothing_hangs(manager)
    return [item.state for item in manager.items(backfill)]


def test_the_first_item_does_not_wait_for_the_run_before_it() -> None:
    manager = after_a_failure()
    backfill = manager.backfill("d", JANUARY[1:4])
    manager.drain()
    assert states(manager, backfill) == [s.SUCCESS] * 3
    assert manager.runs("d")[1].previous_run_id == "backfill__2013-01-01T00:00:00Z", "its place in the timeline stays"


@pytest.mark.parametrize("setting", [False, None])
def test_set_to_wait_or_of_an_older_release_it_waits_and_a_failed_past_is_a_deadlock(setting: bool | None) -> None:
    manager = after_a_failure()
    backfill = manager.backfill("d", JANUARY[1:4], ignore_first_depends_on_past=setting)
    manager.drain()
    assert states(manager, backfill) == [s.FAILED] * 3
    assert "deadlock: task 'roll' of run backfill__2013-01-02" in (manager.items(backfill)[0].reason or "")


def test_the_others_wait_for_the_item_before_them() -> None:
    manager = after_a_failure()
    manager.script = lambda it: Failed("boom") if "01-03" in it.run.run_id else Succeeded()
    backfill = manager.backfill("d", JANUARY[1:5])
    manager.drain()
    assert states(manager, backfill) == [s.SUCCESS, s.FAILED, s.FAILED, s.FAILED]


def test_the_first_that_is_not_skipped_is_the_first() -> None:
    manager = after_a_failure(0)
    backfill = manager.backfill("d", JANUARY[:3])  # its first date has a run: it already exists
    manager.drain()
    assert states(manager, backfill) == [s.SKIPPED, s.SUCCESS, s.SUCCESS]


def test_of_several_stretches_only_the_very_first_item_is_the_first() -> None:
    manager = failing_on("01-01", "01-04")
    for day in (0, 3):
        manager.backfill("d", JANUARY[day : day + 1])
    manager.drain()
    mend(manager)
    backfill = manager.backfill("d", [*JANUARY[1:3], *JANUARY[4:6]])
    manager.drain()
    assert states(manager, backfill) == [s.SUCCESS, s.SUCCESS, s.FAILED, s.FAILED]
    assert "backfill__2013-01-04" in (manager.items(backfill)[2].reason or ""), (
        "the second stretch waits for what lies between"
    )


def test_a_run_that_is_going_on_before_it_is_not_waited_for_either() -> None:
    manager = InMemoryManager(ROLL, script=lambda it: None if "01-01" in it.run.run_id else Succeeded())
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    backfill = manager.backfill("d", JANUARY[1:2])
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
    later = manager.backfill("d", JANUARY[2:3], ignore_first_depends_on_past=False)
    manager.drain()
    assert manager.row(later).state == s.SUCCESS, "its own past is done"


def test_it_holds_for_the_first_batch_and_its_halves() -> None:
    manager = after_a_failure()
    manager.script = lambda it: Failed("boom") if it.run.items > 1 else Succeeded()
    backfill = manager.backfill("d", JANUARY[1:5], batch=4, max_active_runs=1)
    manager.drain()
    assert states(manager, backfill) == [s.SUCCESS] * 4


def killed_as_a_run_comes_behind_one_that_fails(tables: int, n: int) -> tuple[InMemoryManager, str]:
    """The run of the first of `n` days is made in the tick in which the run before it fails, and the manager is killed in the
    commit of that tick, after so many tables."""
    manager = InMemoryManager(ROLL, script=never)
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    backfill = manager.backfill("d", JANUARY[1 : 1 + n], ignore_first_depends_on_past=False, max_active_runs=1)
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    dies_after(manager, tables)
    manager.script = lambda it: Failed("boom") if "01-01" in it.run.run_id else Succeeded()
    return manager, backfill


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("tables", range(8))
def test_killed_between_a_run_that_can_not_start_and_its_item_the_item_is_that_of_the_run(tables: int, n: int) -> None:
    manager, backfill = killed_as_a_run_comes_behind_one_that_fails(tables, n)
    assert states(manager, backfill) == [s.FAILED] * n
    (run,) = [run for run in manager.runs("d") if run.backfill_id == backfill]
    item = manager.items(backfill)[0]
    assert item.run_id == run.run_id and item.reason == run.reason
    assert "deadlock: task 'roll' of run backfill__2013-01-02" in (run.reason or "")


@pytest.mark.parametrize("tables", range(8))
def test_killed_there_and_paused_the_run_that_can_not_start_ends(tables: int) -> None:
    manager, backfill = killed_as_a_run_comes_behind_one_that_fails(tables, 3)
    accepted(manager, "backfill.pause", backfill_id=backfill)
    assert not manager.state.runs
    if manager.row(backfill).is_paused:
        accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert states(manager, backfill) == [s.FAILED] * 3


def test_the_run_of_another_dag_with_the_same_id_is_not_its_past() -> None:
    past = {"roll": {"depends_on_past": True}}
    specs = [dag_spec(dag_id, "load", "roll", upstream={"roll": ["load"]}, each=past) for dag_id in ("d", "other")]
    manager = InMemoryManager(*specs)
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    manager.script = never
    manager.backfill("other", JANUARY[:1])
    backfill = manager.backfill("d", JANUARY[1:2], ignore_first_depends_on_past=False)
    manager.drain()
    (other,) = [key for key in manager.running if key[0] == "other"]
    manager.finish(other, Failed("boom"))
    manager.drain()
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-02"), Succeeded())
    assert states(manager, backfill) == [s.SUCCESS]


def test_partitions_have_no_past() -> None:
    manager = after_a_failure()
    for setting in (True, False):
        backfill = manager.backfill(
            "d", keys=[f"north{setting}", f"south{setting}"], ignore_first_depends_on_past=setting
        )
        manager.drain()
        assert states(manager, backfill) == [s.SUCCESS] * 2


def test_a_retried_first_item_does_not_wait_and_a_later_one_still_does() -> None:
    manager = after_a_failure()
    manager.script = lambda it: Failed("boom") if "01-02" in it.run.run_id else Succeeded()
    backfill = manager.backfill("d", JANUARY[1:4])
    manager.drain()
    assert states(manager, backfill) == [s.FAILED] * 3
    manager.script = lambda it: Failed("boom") if "01-03" in it.run.run_id else Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    assert states(manager, backfill) == [s.SUCCESS, s.FAILED, s.FAILED]
    mend(manager)
    accepted(manager, "backfill.retry", backfill_id=backfill)
    assert states(manager, backfill) == [s.SUCCESS] * 3


def test_the_next_manager_knows_the_first_item() -> None:
    manager = after_a_failure()
    manager.script = lambda _: None
    backfill = manager.backfill("d", JANUARY[:4])  # the first is skipped
    manager.tick()
    manager.crash()
    mend(manager)
    manager.drain()
    assert states(manager, backfill) == [s.SKIPPED, s.SUCCESS, s.SUCCESS, s.SUCCESS]


def test_a_cleared_first_run_does_not_wait_either() -> None:
    manager = after_a_failure()
    backfill = manager.backfill("d", JANUARY[1:3])
    manager.drain()
    (first, *_) = [run.run_id for run in manager.runs("d") if run.backfill_id == backfill]
    accepted(manager, "tasks.clear", ask={"dag": "d", "run_ids": [first]})
    assert states(manager, backfill) == [s.SUCCESS] * 2


def test_a_skipped_task_of_the_first_item_is_past_enough() -> None:
    manager = after_a_failure()
    manager.script = lambda it: Skipped("no data") if "01-02" in it.run.run_id else Succeeded()
    backfill = manager.backfill("d", JANUARY[1:4])
    manager.drain()
    assert states(manager, backfill) == [s.SUCCESS] * 3


# -- what is not chosen does not depend on the past -------------------------------------------------------------------


def by_hand(_: TaskLaunch) -> Outcome | None:
    return None


def test_a_task_that_is_not_chosen_keeps_no_order() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=by_hand)
    backfill = manager.backfill("d", JANUARY[:3], tasks="^load$", max_active_runs=3)
    assert not manager.state.backfills[backfill].depends_on_past
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"tasks": "roll"})
    assert manager.state.backfills[backfill].depends_on_past


def test_newest_first_looks_only_at_the_tasks_that_are_chosen_also_when_they_change() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=by_hand)
    config = '{"type": "schedule", "run_backwards": true}'
    backfill = manager.backfill("d", JANUARY[:3], tasks="^load$", config_json=config)
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {"retries": 2}})
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {"roll.depends_on_past": False}})
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"tasks": "roll"})
    message = refused(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {}})
    assert "its task 'roll' has depends_on_past" in message


def test_a_pool_that_is_not_there_or_closed_is_refused_by_the_manager_too() -> None:
    manager = InMemoryManager(dag_spec("d", "load"), script=by_hand)
    backfill = manager.backfill("d", JANUARY[:3])
    ask = {"dag_id": "d", "start_date": "2013-01-01T00:00:00Z", "end_date": "2013-01-02T00:00:00Z"}
    for overrides, message in (
        ({"load.pool": "scheduled"}, "overrides load.pool=scheduled: the pool 'scheduled' is for scheduled runs"),
        ({"pool": "nope"}, "overrides pool: there is no pool 'nope'. There are backfill."),
        ({"pool": ["x"]}, "overrides pool: pool must be"),
    ):
        submitted = {"backfill_id": "other", "ask": {**ask, "overrides": overrides}}
        assert message in refused(manager, "backfill.create", **submitted)
        assert message in refused(manager, "backfill.set", backfill_id=backfill, changes={"overrides": overrides})
    assert "the pool 'scheduled' is for" in refused(
        manager, "backfill.set", backfill_id=backfill, changes={"pool": "scheduled"}
    )
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {"load.pool": None}})
