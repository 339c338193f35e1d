"""`state compact`, as the manager that leads carries it out, on tables as they are."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.manager.deciding import Decisions
from backfill_manager.manager.instructions import Instructions
from backfill_manager.manager.rescuer import wake
from backfill_manager.model.changes import Changes
from backfill_manager.model.records import Manager, Response, TaskTry
from backfill_manager.requests import asking, kinds
from backfill_manager.store import open_store
from backfill_manager.store.contract import Store

NOW = datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def state(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "state"))
    store.init()
    return store


def tick(decisions: Decisions, store: Store) -> None:
    """One turn, as `manager.tick` takes it, of a manager that has nothing else to do."""
    todo = Instructions()
    decisions.decide([], store.unanswered(), {}, NOW, todo)
    decisions.commit(todo)
    for request_id in todo.compactions:
        decisions.tidy_up(request_id, NOW)


def asked_to_compact(decisions: Decisions, store: Store) -> Response:
    """The answer to the newest request."""
    request = asking.ask(store, SystemClock(), kinds.STATE_COMPACT, {})
    tick(decisions, store)
    tick(decisions, store)  # in which the answer is committed
    (answer,) = [row for row in store.read(Response) if row.request_id == request.request_id]
    return answer


def a_try(decisions: Decisions, seq: int) -> None:
    made = Changes()
    made.put(TaskTry("d", f"run{seq}", "t", 1, 1, "success", seq, 1))
    decisions.leader.commit(made)


def test_a_state_that_can_not_be_tidied_up_is_told_to_who_asked_and_the_manager_goes_on(state: Store) -> None:
    """A manager that ended of it would carry the request out again, and end again, each time that it starts."""
    leader = state.lead(Manager(1, "m", "host", 1, "leading", NOW, NOW, 15, "0"))
    decisions = Decisions(wake(state, term=1, now=NOW), state, leader)
    for seq in range(2):
        a_try(decisions, seq)
    gone = next(Path(state.locations()["task_try"]).glob("*.parquet"))
    kept = gone.read_bytes()
    gone.unlink()

    answer = asked_to_compact(decisions, state)
    assert (answer.outcome, "task_try" in (answer.message or "")) == ("refused", True)
    assert not decisions.inbox.is_planning
    a_try(decisions, 3)

    gone.write_bytes(kept)  # from a backup
    answer = asked_to_compact(decisions, state)
    assert (answer.outcome, json.loads(answer.payload_json or "{}")["files"]["task_try"]) == ("accepted", 1)
    assert state.count("task_try", []) == {(): 3}
