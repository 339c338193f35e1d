"""A person's answer to "this state is a copy" (state_identity.py). It is kept in the state, by a term that does nothing else."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import Final

from backfill_manager import __version__
from backfill_manager.clock import Clock
from backfill_manager.errors import LostLease, StateError
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.state_identity import COPY, ORIGINAL, Adopted, other_place
from backfill_manager.model.records import Manager
from backfill_manager.schemas import errors
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

LOOK_AGAIN_S: Final = 0.5


@dataclass(frozen=True)
class Adoption:
    state_id: str
    previous_id: str | None
    other: str | None  # where the other one is, if there is one
    other_id: str | None  # what that one is called from now on; None: it was left as it is


def adopt_state(store: Store, settings: Settings, clock: Clock, how: Adopted) -> Adoption:
    """As a copy, the state gets a new id. As the original, it keeps its id, and the state at its last place gets a new one, if
    that can be reached: no two states shall have one. `Refused` while a manager leads either of them."""
    last = store.lease()
    other = other_place(store, last) if last is not None else None
    other_id = None
    if how == ORIGINAL and other is not None:
        try:
            beside = store.beside(other[0])
            if (found := beside.lease()) is not None and last is not None and found.state_id == last.state_id:
                other_id = _led_once(beside, settings, clock, COPY).state_id
        except StateError:  # out of reach from here, which the command says
            other_id = None
    now = _led_once(store, settings, clock, how)
    assert now.state_id is not None
    return Adoption(now.state_id, last.state_id if last else None, other[0] if other else None, other_id)


def _led_once(store: Store, settings: Settings, clock: Clock, how: Adopted) -> Manager:
    """The row of a term that is given back at once. Waits for the lease of a manager that went without a word."""
    candidate = LeaderElector(store, clock, lease_s=settings.lease.seconds, version=__version__, adopted=how)
    first, never = store.lease(), threading.Event()
    while (leader := candidate.run_once()) is None:
        row = store.lease()
        if row is not None and row != first:
            raise errors.STATE_IS_LED(term=row.term, pid=row.pid, host=row.host, root=store.root)
        never.wait(LOOK_AGAIN_S)
    with contextlib.suppress(LostLease):  # a standby was quicker: it has our row to go on from
        leader.resign(clock.now())
    return leader.row
