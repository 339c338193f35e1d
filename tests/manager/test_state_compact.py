"""`state compact`, as the manager that leads carries it out, on tables as they are; and as a process that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_manager.clock import SystemClock
from backfill_manager.errors import LostLease
from backfill_manager.manager.maintenance.short_leadership import compact_state
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.tick_decisions import Decisions
from backfill_manager.model.records import TABLES, DagRun, Manager, Response, TaskTry
from backfill_manager.model.transitions import Changes
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Store
from backfill_manager.store.memory import MemoryStore

NOW = datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def state(tmp_path: Path) -> Store:
    store = open_store(str(tmp_path / "state"))
    store.init()
    return store


def leading_manager() -> Manager:
    return Manager(1, "m", "host", 1, "leading", NOW, NOW, 15, "0")


def tick(decisions: Decisions, store: Store) -> None:
    """One turn, as `manager.tick` takes it, of a manager that has nothing else to do."""
    todo = decisions.decide([], store.unanswered(), {}, NOW)
    decisions.commit(todo)
    for request_id in todo.compactions:
        decisions.compact_state(request_id, NOW)


def asked_to_compact(decisions: Decisions, store: Store) -> Response:
    """The answer to the newest request."""
    request = submit.submit(store, SystemClock(), request_kinds.STATE_COMPACT, {})
    tick(decisions, store)
    tick(decisions, store)  # in which the answer is committed
    (answer,) = [row for row in store.read(Response) if row.request_id == request.request_id]
    return answer


def a_try(decisions: Decisions, seq: int) -> None:
    made = Changes()
    made.put(TaskTry("d", f"run{seq}", "t", 1, 1, "success", seq, 1))
    decisions.leader.commit(made)


def test_a_state_that_can_not_be_compacted_is_reported_to_who_asked_and_the_manager_goes_on(state: Store) -> None:
    """A manager that ended of it would carry the request out again, and end again, each time that it starts."""
    leader = state.lead(leading_manager())
    decisions = Decisions(restore_state(state, term=1, now=NOW), state, leader)
    for seq in range(2):
        a_try(decisions, seq)
    gone = next(Path(state.locations()["task_try"]).glob("*.parquet"))
    kept = gone.read_bytes()
    gone.unlink()

    answer = asked_to_compact(decisions, state)
    assert (answer.outcome, "task_try" in (answer.message or "")) == ("refused", True)
    assert not decisions.requests.has_unanswered
    a_try(decisions, 3)

    gone.write_bytes(kept)  # from a backup
    answer = asked_to_compact(decisions, state)
    assert (answer.outcome, json.loads(answer.payload_json or "{}")["files"]["task_try"]) == ("accepted", 1)
    assert state.count("task_try", []) == {(): 3}


def rows(root: str) -> dict[str, list[str]]:
    """All that a state knows, but for who led it and when: each table's rows in an order of their own."""
    store = open_store(root)
    return {name: sorted(map(repr, store.read(record))) for name, record in TABLES.items() if name != Manager.TABLE}


def versions(state: Store) -> int:
    """How many commits all tables together have had."""
    logs = [Path(at, "_delta_log") for at in state.locations().values()]
    return sum(max(int(entry.stem) for entry in log.glob("*.json") if entry.stem.isdigit()) for log in logs)


def test_a_compaction_that_is_killed_at_any_of_its_commits_loses_nothing(tmp_path: Path, state: Store) -> None:
    root = str(tmp_path / "state")
    decisions = Decisions(restore_state(state, term=1, now=NOW), state, leader := state.lead(leading_manager()))
    for seq in range(1, 31):
        run = Changes()
        run.put(DagRun("d", f"run{seq}", "manual", "success", 1, seq, NOW))
        leader.commit(run)
        a_try(decisions, seq)
    for _ in range(3):
        submit.submit(state, SystemClock(), request_kinds.STATE_COMPACT, {})
    leader.resign(NOW)
    before = rows(root)
    assert len(before["task_try"]) == 30

    command = [sys.executable, "-m", "backfill_manager", "--state", root, "state", "compact"]
    ended_by_itself, never = False, threading.Event()
    for commits in range(1, 40, 3):  # each would take twenty seconds more
        ahead = versions(state) + commits
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and versions(state) < ahead:
                never.wait(0.001)
            process.kill()
            result = process.stderr.read() if process.stderr else ""
        assert rows(root) == before, f"killed at commit {commits}"
        ended_by_itself = process.returncode == 0
        if ended_by_itself:
            break
        assert process.returncode == -9, result
    assert ended_by_itself
    assert len(DeltaTable(state.locations()["task_try"]).file_uris()) == 1


def test_it_ends_when_another_manager_leads() -> None:
    store, clock = MemoryStore(), SystemClock()
    store.init()
    now = clock.now()
    leader = store.lead(
        Manager(
            term=1, manager_id="elsewhere", host="other", pid=1, state="leading", started_at=now, heartbeat_at=now, lease_s=2,
            version="x",
        )
    )  # fmt: skip
    ended: list[object] = []

    def compact() -> None:
        try:
            ended.append(compact_state(store, Settings(), clock))
        except LostLease as error:
            ended.append(str(error))

    thread = threading.Thread(target=compact, daemon=True)
    thread.start()
    for _ in range(100):
        leader.heartbeat(clock.now())
        thread.join(0.2)
        if not thread.is_alive():
            break
    assert ended == ["Another manager leads the state, or was quicker: term 1, on other."]
