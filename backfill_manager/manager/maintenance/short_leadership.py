"""Short leaderships for one job: to compact or prune a state that nobody leads, to adopt a copy. Only a leader may write."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.clock import Clock
from backfill_manager.errors import BackfillManagerError, LostLease, StateError
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.manager.maintenance.retention import Sweep
from backfill_manager.manager.state_identity import COPY, ORIGINAL, Adopted, other_place
from backfill_manager.model.records import Manager
from backfill_manager.model.states import LEADING
from backfill_manager.schemas import errors
from backfill_manager.settings import Settings
from backfill_manager.store import open_like
from backfill_manager.store.base import Leader, Store

POLL_INTERVAL_S: Final = 0.5


def compact_state(store: Store, settings: Settings, clock: Clock) -> dict[str, int]:
    """Compacts every table; returns table -> files now. Waits for the lease of a manager that was killed to run out. `LostLease`
    when another manager was quicker, or took over meanwhile: nothing is lost then, and a manager compacts by itself."""
    with leading(store, settings, clock) as leader:
        return leader.compact(everywhere=True)


def prune_state(store: Store, settings: Settings, clock: Clock, snapshots: Path | None) -> Counter[str]:
    """Deletes what is older than its age in the settings, as `compact_state` does its job; returns what was deleted."""
    with leading(store, settings, clock) as leader:
        return Sweep(store, settings.retention, clock.now(), leader=leader, snapshots=snapshots).run()


@contextlib.contextmanager
def leading(store: Store, settings: Settings, clock: Clock) -> Iterator[Leader]:
    """The writing half, for as long as the block runs. `LostLease` when another manager was quicker."""

    def lost(row: Manager) -> LostLease:
        return LostLease(f"Another manager leads the state, or was quicker: term {row.term}, on {row.host}.")

    leader = _lead(store, settings, clock, lost)
    with Heartbeat(leader, clock, lease_s=settings.lease.seconds).holding():
        yield leader


def _lead(
    store: Store, settings: Settings, clock: Clock, refusal: Callable[[Manager], BackfillManagerError],
    adopted: Adopted | None = None,
) -> Leader:  # fmt: skip
    """Waits for the lease of a manager that was killed. Raises the `refusal` when another one leads."""
    elector, never = LeaderElector(store, clock, lease_s=settings.lease.seconds, adopted=adopted), threading.Event()
    first = store.lease()
    while (leader := elector.run_once()) is None:
        row = store.lease()
        if row is not None and row != first and row.state == LEADING:
            raise refusal(row)
        never.wait(POLL_INTERVAL_S)
    return leader


@dataclass(frozen=True)
class Adoption:
    state_id: str
    previous_id: str | None
    other: str | None  # where the other state is, if there is one
    other_id: str | None  # its id from now on; None: it was left as it is


def adopt_state(store: Store, settings: Settings, clock: Clock, how: Adopted) -> Adoption:
    """Resolves "this state is a copy" (state_identity.py). As a copy, the state gets a new id. As the original, it keeps its id,
    and the state at its last place gets a new one, if that can be reached: no two states may share one. `Refused` while a manager
    leads either of them."""
    last = store.lease()
    other = other_place(store, last) if last is not None else None
    other_id = None
    if how == ORIGINAL and other is not None:
        try:
            beside = open_like(store, other[0])
            lease = beside.lease()
            if lease is not None and last is not None and lease.state_id == last.state_id:
                other_id = _lead_once(beside, settings, clock, COPY).state_id
        except StateError:  # out of reach from here, which the command says
            other_id = None
    now = _lead_once(store, settings, clock, how)
    assert now.state_id is not None
    return Adoption(now.state_id, last.state_id if last else None, other[0] if other else None, other_id)


def _lead_once(store: Store, settings: Settings, clock: Clock, how: Adopted) -> Manager:
    """The lease row of a term that is given back at once."""

    def led(row: Manager) -> BackfillManagerError:
        return errors.STATE_IS_LED(term=row.term, pid=row.pid, host=row.host, root=store.root)

    leader = _lead(store, settings, clock, led, how)
    with contextlib.suppress(LostLease):  # a standby was quicker: it goes on from our row
        leader.resign(clock.now())
    return leader.row
