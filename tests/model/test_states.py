"""The legal transitions are data: every named change keeps to them, and anything else raises with its story."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from backfill_manager.errors import IllegalTransition
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import COMMIT_ORDER, TABLES, Backfill, BackfillItem, DagRun, TaskInstance

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)
KNOWN = {
    "task_instance": s.TASK_STATES,
    "dag_run": s.RUN_STATES,
    "backfill": s.BACKFILL_STATES,
    "backfill_item": s.ITEM_STATES,
}


def ti(state: str, **fields: object) -> TaskInstance:
    return TaskInstance("d", "r", "t", state, 1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", KNOWN)
def test_every_transition_is_between_known_states_and_every_state_is_reached(table: str) -> None:
    reached = {to for _, to in s.LEGAL[table]}
    assert {state for pair in s.LEGAL[table] for state in pair} <= set(KNOWN[table])
    first = {"task_instance": s.NONE, "dag_run": s.QUEUED, "backfill": s.QUEUED, "backfill_item": s.PENDING}[table]
    assert reached | {first} == set(KNOWN[table])


def test_states_and_kinds_of_run_are_those_of_the_documentation() -> None:
    """docs/semantics.md and everybody's queries name them: one more or less is a change for people."""
    assert set(s.TASK_STATES) == {
        "none", "scheduled", "queued", "running", "success", "failed", "up_for_retry", "upstream_failed", "skipped",
        "cancelled", "removed",
    }  # fmt: skip
    assert set(s.RUN_STATES) == {"queued", "running", "success", "failed", "cancelled", "overridden"}
    assert set(s.BACKFILL_STATES) == {"queued", "running", "paused", "success", "failed", "cancelled"}
    assert set(s.ITEM_STATES) == {"pending", "running", "success", "failed", "cancelled", "skipped"}
    assert set(s.RUN_TYPES) == {"scheduled", "backfill", "manual", "external", "preview"}


def test_an_illegal_change_raises_with_the_things_story() -> None:
    with pytest.raises(IllegalTransition, match="task_instance d/r/t: success -> running"):
        c.started(ti(s.SUCCESS), AT)
    with pytest.raises(IllegalTransition, match="dag_run d/r: running -> overridden"):
        c.run_overridden(DagRun("d", "r", "backfill", s.RUNNING, 1, 1, AT), "r__2")
    with pytest.raises(IllegalTransition, match="backfill_item b/1: skipped -> running"):
        c.item_started(BackfillItem("b", 1, s.SKIPPED, 1), "r")
    backfill = Backfill("b", "d", s.SUCCESS, "{}", "none", 1, 0, "backfill", False, AT, 1)
    with pytest.raises(IllegalTransition, match="backfill b: success -> paused"):
        c.backfill_paused(backfill)


def test_a_try_has_its_length_and_its_number() -> None:
    once = c.started(c.queued(c.scheduled(ti(s.NONE)), AT, "backfill"), AT)
    again = c.up_for_retry(once, AT + timedelta(seconds=90), "boom", AT + timedelta(minutes=5))
    assert (once.try_number, once.launch, again.duration_s, again.failures) == (1, 1, 90.0, 1)
    twice = c.queued(c.scheduled(again), AT, "backfill")
    assert (twice.try_number, twice.launch, twice.duration_s, twice.error) == (2, 2, None, None)


def test_a_start_that_was_lost_costs_no_try_but_has_a_launch_of_its_own() -> None:
    gone = c.lost(c.started(c.queued(c.scheduled(ti(s.NONE)), AT, "backfill"), AT), AT, "gone", AT)
    again = c.queued(c.scheduled(gone), AT, "backfill")
    assert (gone.failures, again.try_number, again.launch) == (0, 1, 2)


def test_every_table_that_a_tick_writes_has_its_place_in_the_order() -> None:
    assert set(COMMIT_ORDER) == set(TABLES) - {"request", "manager"}
    order = [t for t in COMMIT_ORDER if t in ("task_instance", "dag_run", "backfill_item", "backfill")]
    assert order == ["task_instance", "dag_run", "backfill_item", "backfill"], "children before parents"
    assert COMMIT_ORDER[0] == "dag_version", "none of them names a version that is not there"
