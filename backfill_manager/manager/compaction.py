"""Tidy up a state that no manager leads: take the lease for as long as it takes, as only a leader may write."""

from __future__ import annotations

import threading

from backfill_manager import __version__
from backfill_manager.clock import Clock
from backfill_manager.errors import LostLease
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store


def compact_state(store: Store, settings: Settings, clock: Clock) -> dict[str, int]:
    """Table -> files now. Waits for the lease of a manager that went without a word to run out; `LostLease` when another
    one was quicker, or took over in the middle: nothing is lost then, and a manager tidies up by itself."""
    seconds = settings.lease.seconds
    leader = LeaderElector(store, clock, lease_s=seconds, version=__version__).wait(threading.Event())
    if leader is None:
        raise LostLease("The lease of the state can't be had.")
    heart = Heartbeat(leader, clock, lease_s=seconds, on_lost=lambda: None)
    heart.start()
    try:
        return leader.compact(everywhere=True)
    finally:
        heart.stop()
        leader.resign(clock.now())
