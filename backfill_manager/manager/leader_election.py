"""One manager leads at a time: taking the lease, keeping it, and knowing at once when it is gone.

The lease is the row of the highest term in the table `manager`; the fence is the transaction that every commit of a term
carries (store/base.py). A standby takes over when the leader has given the lease back, when the row has not changed for
`lease_s` of the standby's *own* monotonic time (no two clocks are compared), or at once when the leader was a process of
this very machine that is not there any more.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from backfill_manager import descriptors
from backfill_manager.clock import Clock
from backfill_manager.errors import LostLease, StateError
from backfill_manager.logging import get_logger
from backfill_manager.manager.state_identity import Adopted, identity_fields, refuse_a_copy
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager
from backfill_manager.process_info import is_gone, manager_id, ran_here
from backfill_manager.requests import command_types, submit
from backfill_manager.service import ServiceFailed, ServiceThread
from backfill_manager.store.base import Leader, Store

log = get_logger("lease")


STANDBY_REPORT_INTERVAL_S: Final = (
    300.0  # between two signs of life of a standby; views.terms believes one for a while longer
)


def is_over(row: Manager) -> bool:
    """True when the row's process was killed on this machine, or was this one (in tests, or a pid that came round)."""
    return is_gone(row.manager_id, row.pid) or (ran_here(row.manager_id) and row.pid == os.getpid())


class LeaderElector:
    """Waits for the lease and takes it."""

    def __init__(
        self, store: Store, clock: Clock, *, lease_s: int, version: str, adopted: Adopted | None = None
    ) -> None:
        """`adopted`: a person has said what this state is, if it is found at a new place (state_identity.py)."""
        self._store, self._clock, self._lease_s, self._version = store, clock, lease_s, version
        self._adopted = adopted
        self._looked_up: str | None = None  # the place of the state's last manager that was compared with ours
        self._id = manager_id(clock.new_id())
        self._seen: Manager | None = None
        self._seen_at = 0.0
        self._said_at: float | None = None

    def run_once(self) -> Leader | None:
        """One look: the leader's half of the store, or None while another manager leads. `StateCopied` if this state is the
        copy of one that is still there."""
        row = self._store.lease()
        if row is not None and self._adopted is None:
            self._refuse_a_copy(row)
        now = self._clock.monotonic()
        if row != self._seen:
            self._seen, self._seen_at = row, now
        if row is not None and row.state == s.LEADING and not is_over(row):
            silent_for = now - self._seen_at
            if silent_for < row.lease_s:
                return None
            log.warning("lease ran out", term=row.term, leader=row.manager_id, silent_s=round(silent_for, 1))
        at = self._clock.now()
        mine = Manager(
            term=row.term + 1 if row else 1, manager_id=self._id, host=socket.gethostname(),
            pid=os.getpid(), state=s.LEADING, started_at=at, heartbeat_at=at, lease_s=self._lease_s, version=self._version,
            **identity_fields(self._store, row, self._clock, self._adopted),
        )  # fmt: skip
        try:
            return self._store.lead(mine)
        except LostLease:
            return None  # someone else was quicker

    def _refuse_a_copy(self, row: Manager) -> None:
        if row.state_root == self._looked_up:
            return
        refuse_a_copy(self._store, row)
        if row.state_root not in (None, self._store.place):
            log.info("the state is at another place than before", was=row.state_root, now=self._store.place)
        self._looked_up = row.state_root

    @property
    def leader(self) -> Manager | None:
        """Whom this one stands by for, as last seen."""
        return self._seen

    def wait(self, stop: threading.Event) -> Leader | None:
        """Stand by until the lease is ours; None when told to stop before that."""
        told = False
        while not stop.is_set():
            if not descriptors.are_free():
                stop.wait(1.0)
                continue
            leader = self.run_once()
            if leader is not None:
                return leader
            if not told and (row := self.leader):
                told = True
                log.info(
                    "standing by", leader=row.manager_id, host=row.host, pid=row.pid, term=row.term, lease_s=row.lease_s
                )
            self.report_standby()
            stop.wait(min(1.0, self._lease_s / 5))
        return None

    def report_standby(self) -> None:
        """Tell now and then, as everybody asks: by a request. A standby writes nothing else."""
        now = self._clock.monotonic()
        if self._said_at is not None and now - self._said_at < STANDBY_REPORT_INTERVAL_S:
            return
        self._said_at = now
        payload = {"manager_id": self._id, "host": socket.gethostname(), "pid": os.getpid()}
        try:
            submit.submit(self._store, self._clock, command_types.MANAGER_STAND_BY, payload)
        except (OSError, StateError) as error:  # storage is away for a moment
            log.warning("standing by unheard", reason=str(error))


class Heartbeat:
    """Beats in a thread of its own, so that a long tick costs no lease. `leads()` is what every write asks."""

    def __init__(
        self,
        leader: Leader,
        clock: Clock,
        *,
        lease_s: int,
        on_lost: Callable[[], None],
        on_failure: ServiceFailed | None = None,
    ) -> None:
        self._leader, self._clock, self._lease_s, self._on_lost = leader, clock, lease_s, on_lost
        self._beaten_at = clock.monotonic()
        self._lost = False
        self._stop = threading.Event()
        self.knows: Callable[[], dict[str, Any]] = dict  # of this manager, for the lease row
        self._thread = ServiceThread("heart", self._loop, on_failure=on_failure)

    def start(self) -> None:
        self._thread.start()

    def leads(self) -> bool:
        """False from the moment at which another manager may lead, whether or not it does."""
        return not self._lost and self._clock.monotonic() - self._beaten_at < self._lease_s

    def run_once(self) -> None:
        began = self._clock.monotonic()
        try:
            self._leader.heartbeat(self._clock.now(), **self.knows())
        except LostLease as error:
            log.error("lease lost", reason=str(error))
            self._give_up()
        except (OSError, StateError) as error:  # storage is away for a moment; the lease decides how long that may last
            log.warning("heartbeat failed", reason=str(error))
            if not self.leads():
                self._give_up()
        else:
            self._beaten_at = began

    def _give_up(self) -> None:
        self._lost = True
        self._stop.set()
        self._on_lost()

    def _loop(self) -> None:
        while not self._stop.wait(self._lease_s / 3):
            self.run_once()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
