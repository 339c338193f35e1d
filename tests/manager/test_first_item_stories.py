"""The first item of a backfill and the run before it (`ignore_first_depends_on_past`), and which tasks of a backfill
depend on the past at all."""

from __future__ import annotations

import pytest
from support.scenarios import accepted, nothing_hangs, refused

from backfill_manager.execution.messages import Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days

JANUARY = days("2013-01-01", 8)
ROLL = dag_spec("d", "roll", each={"roll": {"depends_on_past": True}}, batchable=True)


def failing_on(*dates: str) -> InMemoryManager:
    """A DAG whose task depends on the past; on these days it fails until `mend`."""
    ground = InMemoryManager(ROLL, script=lambda it: Failed("boom") if it.run.run_id[15:20] in dates else Succeeded())
    return ground


def mend(ground: InMemoryManager) -> None:
    ground.script = lambda _: Succeeded()


def after_a_failure(day: int = 0) -> InMemoryManager:
    """The run of one day has failed, and nothing else has run."""
    ground = failing_on(f"01-{day + 1:02}")
    ground.backfill("d", JANUARY[day : day + 1])
    ground.drain()
    mend(ground)
    return ground


def states(ground: InMemoryManager, backfill: str) -> list[str]:
    nothing_hangs(ground)
    return [item.state for item in ground.items(backfill)]


def test_the_first_item_does_not_wait_for_the_run_before_it() -> None:
    ground = after_a_failure()
    backfill = ground.backfill("d", JANUARY[1:4])
    ground.drain()
    assert states(ground, backfill) == [s.SUCCESS] * 3
    assert ground.runs("d")[1].previous_run_id == "backfill__2013-01-01T00:00:00Z", "its place in the timeline stays"


@pytest.mark.parametrize("setting", [False, None])
def test_told_to_wait_or_of_an_older_release_it_waits_and_a_failed_past_is_a_deadlock(setting: bool | None) -> None:
    ground = after_a_failure()
    backfill = ground.backfill("d", JANUARY[1:4], ignore_first_depends_on_past=setting)
    ground.drain()
    assert states(ground, backfill) == [s.FAILED] * 3
    assert "deadlock: task 'roll' of run backfill__2013-01-02" in (ground.items(backfill)[0].reason or "")


def test_the_others_wait_for_the_item_before_them() -> None:
    ground = after_a_failure()
    ground.script = lambda it: Failed("boom") if "01-03" in it.run.run_id else Succeeded()
    backfill = ground.backfill("d", JANUARY[1:5])
    ground.drain()
    assert states(ground, backfill) == [s.SUCCESS, s.FAILED, s.FAILED, s.FAILED]


def test_the_first_that_is_not_skipped_is_the_first() -> None:
    ground = after_a_failure(0)
    backfill = ground.backfill("d", JANUARY[:3])  # its first date has a run: it already exists
    ground.drain()
    assert states(ground, backfill) == [s.SKIPPED, s.SUCCESS, s.SUCCESS]


def test_of_several_stretches_only_the_very_first_item_is_the_first() -> None:
    ground = failing_on("01-01", "01-04")
    for day in (0, 3):
        ground.backfill("d", JANUARY[day : day + 1])
    ground.drain()
    mend(ground)
    backfill = ground.backfill("d", [*JANUARY[1:3], *JANUARY[4:6]])
    ground.drain()
    assert states(ground, backfill) == [s.SUCCESS, s.SUCCESS, s.FAILED, s.FAILED]
    assert "backfill__2013-01-04" in (ground.items(backfill)[2].reason or ""), (
        "the second stretch waits for what lies between"
    )


def test_a_run_that_is_going_on_before_it_is_not_waited_for_either() -> None:
    ground = InMemoryManager(ROLL, script=lambda it: None if "01-01" in it.run.run_id else Succeeded())
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    backfill = ground.backfill("d", JANUARY[1:2])
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS
    later = ground.backfill("d", JANUARY[2:3], ignore_first_depends_on_past=False)
    ground.drain()
    assert ground.row(later).state == s.SUCCESS, "its own past is done"


def test_it_holds_for_the_first_batch_and_its_halves() -> None:
    ground = after_a_failure()
    ground.script = lambda it: Failed("boom") if it.run.items > 1 else Succeeded()
    backfill = ground.backfill("d", JANUARY[1:5], batch=4, max_active_runs=1)
    ground.drain()
    assert states(ground, backfill) == [s.SUCCESS] * 4


def test_partitions_have_no_past() -> None:
    ground = after_a_failure()
    for setting in (True, False):
        backfill = ground.backfill(
            "d", keys=[f"north{setting}", f"south{setting}"], ignore_first_depends_on_past=setting
        )
        ground.drain()
        assert states(ground, backfill) == [s.SUCCESS] * 2


def test_a_retried_first_item_does_not_wait_and_a_later_one_still_does() -> None:
    ground = after_a_failure()
    ground.script = lambda it: Failed("boom") if "01-02" in it.run.run_id else Succeeded()
    backfill = ground.backfill("d", JANUARY[1:4])
    ground.drain()
    assert states(ground, backfill) == [s.FAILED] * 3
    ground.script = lambda it: Failed("boom") if "01-03" in it.run.run_id else Succeeded()
    accepted(ground, "backfill.retry", backfill_id=backfill)
    assert states(ground, backfill) == [s.SUCCESS, s.FAILED, s.FAILED]
    mend(ground)
    accepted(ground, "backfill.retry", backfill_id=backfill)
    assert states(ground, backfill) == [s.SUCCESS] * 3


def test_the_next_manager_knows_the_first_item() -> None:
    ground = after_a_failure()
    ground.script = lambda _: None
    backfill = ground.backfill("d", JANUARY[:4])  # the first is skipped
    ground.tick()
    ground.crash()
    mend(ground)
    ground.drain()
    assert states(ground, backfill) == [s.SKIPPED, s.SUCCESS, s.SUCCESS, s.SUCCESS]


def test_a_cleared_first_run_does_not_wait_either() -> None:
    ground = after_a_failure()
    backfill = ground.backfill("d", JANUARY[1:3])
    ground.drain()
    (first, *_) = [run.run_id for run in ground.runs("d") if run.backfill_id == backfill]
    accepted(ground, "tasks.clear", ask={"dag": "d", "run_ids": [first]})
    assert states(ground, backfill) == [s.SUCCESS] * 2


def test_a_skipped_task_of_the_first_item_is_past_enough() -> None:
    ground = after_a_failure()
    ground.script = lambda it: Skipped("no data") if "01-02" in it.run.run_id else Succeeded()
    backfill = ground.backfill("d", JANUARY[1:4])
    ground.drain()
    assert states(ground, backfill) == [s.SUCCESS] * 3


# -- what is not chosen does not depend on the past -------------------------------------------------------------------


def by_hand(_: TaskLaunch) -> Outcome | None:
    return None


def test_a_task_that_is_not_chosen_keeps_no_order() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=by_hand)
    backfill = ground.backfill("d", JANUARY[:3], tasks="^load$", max_active_runs=3)
    assert not ground.state.backfills[backfill].depends_on_past
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"tasks": "roll"})
    assert ground.state.backfills[backfill].depends_on_past


def test_newest_first_looks_only_at_the_tasks_that_are_chosen_also_when_they_change() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=by_hand)
    config = '{"type": "schedule", "run_backwards": true}'
    backfill = ground.backfill("d", JANUARY[:3], tasks="^load$", config_json=config)
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"overrides": {"retries": 2}})
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"overrides": {"roll.depends_on_past": False}})
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"tasks": "roll"})
    message = refused(ground, "backfill.set", backfill_id=backfill, changes={"overrides": {}})
    assert "its task 'roll' has depends_on_past" in message


def test_a_pool_that_is_not_there_or_closed_is_refused_by_the_manager_too() -> None:
    ground = InMemoryManager(dag_spec("d", "load"), script=by_hand)
    backfill = ground.backfill("d", JANUARY[:3])
    ask = {"dag_id": "d", "start_date": "2013-01-01T00:00:00Z", "end_date": "2013-01-02T00:00:00Z"}
    for overrides, message in (
        ({"load.pool": "scheduled"}, "overrides load.pool=scheduled: the pool 'scheduled' is for scheduled runs"),
        ({"pool": "nope"}, "overrides pool: there is no pool 'nope'. There are backfill."),
        ({"pool": ["x"]}, "overrides pool: pool must be"),
    ):
        submitted = {"backfill_id": "other", "ask": {**ask, "overrides": overrides}}
        assert message in refused(ground, "backfill.create", **submitted)
        assert message in refused(ground, "backfill.set", backfill_id=backfill, changes={"overrides": overrides})
    assert "the pool 'scheduled' is for" in refused(
        ground, "backfill.set", backfill_id=backfill, changes={"pool": "scheduled"}
    )
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"overrides": {"load.pool": None}})
