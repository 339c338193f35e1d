"""A state on disk in which a manager has done something of everything, and a manager that goes on from it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import TABLES
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from support.faulty_store import Faults, FaultyDeltaStore

SPEC = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
NOON = datetime(2024, 2, 1, 12, tzinfo=UTC)


def script(launch: TaskLaunch) -> Outcome | None:
    """The second of January fails."""
    return Failed("boom") if launch.run.logical_date and launch.run.logical_date.day == 2 else Succeeded()


def open_state(root: Path | str, clock: FakeClock) -> FaultyDeltaStore:
    """The real delta-rs store, none of whose storage fails, with what a `MemoryStore` has beside."""
    return FaultyDeltaStore(root, Faults(0, clock, 0.0), clock)


def recorded_state(root: Path | str) -> InMemoryManager:
    """One backfill has ended, one waits paused after its first item; requests are answered. The lease is given back."""
    clock = FakeClock(NOON)
    manager = InMemoryManager(SPEC, script=script, clock=clock, store=open_state(root, clock))  # type: ignore[arg-type]
    manager.backfill("flights", days("2024-01-01", 3))
    manager.drain()
    second = manager.backfill("flights", days("2024-01-10", 4), max_active_runs=1)
    manager.tick()
    manager.ask("backfill.pause", backfill_id=second)
    manager.drain()
    manager.leader.resign(clock.now())
    return manager


def go_on(root: Path | str, at: datetime = NOON, **how: Any) -> InMemoryManager:
    """A new manager over the state."""
    clock = FakeClock(at)
    store = open_state(root, clock)
    store.init()
    return InMemoryManager(script=script, clock=clock, store=store, **how)  # type: ignore[arg-type]


def rows_of(root: Path | str, *left_out: str) -> dict[str, Any]:
    """Every row of every table, but those of `manager`, which every term adds to."""
    store = open_state(root, FakeClock(NOON))
    return {name: store.rows(name) for name in TABLES if name not in ("manager", *left_out)}
