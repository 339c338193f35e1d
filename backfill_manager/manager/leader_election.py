"""One manager leads at a time: taking the lease, keeping it, and noticing at once when it is lost.

The lease is the row of the highest term in the table `manager`; the fence is the transaction that every commit of a term
carries (store/base.py). A standby takes over when the leader has given the lease back, when the row has not changed for
`lease_s` of the standby's *own* monotonic time (no two clocks are compared), or at once when the leader was a process of
this machine that has ended.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from backfill_manager import __version__
from backfill_manager.clock import Clock
from backfill_manager.errors import (
    BackfillManagerError,
    LostLease,
    StateCopied,
    StateError,
    StateLost,
    StateUnavailable,
)
from backfill_manager.execution.spark.spark_health import ignore_stopped_context
from backfill_manager.logging import get_logger
from backfill_manager.manager.commit_preconditions import why_no_commit
from backfill_manager.manager.shutdown import spark_gone_error
from backfill_manager.manager.state_identity import Adopted, identity_fields, other_place
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager
from backfill_manager.process_info import is_gone, manager_id, ran_here
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.service import FailureHandler, Service
from backfill_manager.store.base import Leader, Store

log = get_logger("leader_election")

STANDBY_REPORT_INTERVAL_S: Final = 300.0  # queries.managers lists a standby for a while longer
POLL_INTERVAL_S: Final = 1.0
MAX_AWAY_S: Final = 600.0  # storage, from a manager that stands by


class LeaderElector:
    """Waits for the lease and takes it."""

    def __init__(
        self, store: Store, clock: Clock, *, lease_s: int, adopted: Adopted | None = None,
        spark_gone_reason: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        """`adopted`: what a person has declared the state to be, if it is found at a new place (state_identity.py).
        `spark_gone_reason`: of the Spark that a state in a catalog is read by."""
        self._spark_gone_reason = spark_gone_reason
        self._store, self._clock, self._lease_s, self._adopted = store, clock, lease_s, adopted
        self._compared_root: str | None = None  # the place of the state's last manager, known to be no other state
        self._id = manager_id(clock.new_id())
        self.leader: Manager | None = None  # whom this one stands by for, as last read
        self._read_at = 0.0
        self._reported_at: float | None = None

    def run_once(self) -> Leader | None:
        """One attempt: the leader's half of the store, or None while another manager leads. `StateCopied` if this state is the
        copy of one that is still there."""
        row = self._store.lease()
        if row is not None and self._adopted is None:
            self._refuse_a_copy(row)
        now = self._clock.monotonic()
        if row != self.leader:
            self.leader, self._read_at = row, now
        if row is not None and row.state == s.LEADING and not _has_ended(row):
            silent_s = now - self._read_at
            if silent_s < row.lease_s:
                return None
            log.warning("lease ran out", term=row.term, leader=row.manager_id, silent_s=round(silent_s, 1))
        at = self._clock.now()
        mine = Manager(
            term=row.term + 1 if row else 1, manager_id=self._id, host=socket.gethostname(),
            pid=os.getpid(), state=s.LEADING, started_at=at, heartbeat_at=at, lease_s=self._lease_s, version=__version__,
            **identity_fields(self._store, row, self._clock, self._adopted),
        )  # fmt: skip
        try:
            return self._store.lead(mine)
        except LostLease:
            return None  # another one was quicker

    def _refuse_a_copy(self, row: Manager) -> None:
        if row.state_root == self._compared_root:
            return
        if other := other_place(self._store, row):
            raise StateCopied(self._store.root, *other)
        if row.state_root not in (None, self._store.place):
            log.info("the state has moved", before=row.state_root, now=self._store.place)
        self._compared_root = row.state_root

    def wait(self, stop: threading.Event) -> Leader | None:
        """Stand by until the lease is ours; None when `stop` was set before. Storage that is away is waited for; after
        `MAX_AWAY_S` that is `StateLost`, and `StateUnavailable` if it was never there. `SparkGone` as soon as Spark is."""
        is_logged, last_reason, reached_at = False, None, None
        while not stop.is_set():
            reason = why_no_commit(self._store.root)
            try:
                if reason is None:
                    if (leader := self.run_once()) is not None:
                        return leader
                    reached_at = self._clock.monotonic()
            except StateUnavailable as error:
                if gone := self._spark_gone_reason():  # which does not come back
                    raise spark_gone_error(gone) from error
                if reached_at is None:
                    raise
                if self._clock.monotonic() - reached_at >= MAX_AWAY_S:
                    raise StateLost(str(error)) from error
                reason = str(error)
            if reason is not None and reason != last_reason:
                log.warning(f"waiting: {reason}")
            last_reason = reason
            if reason is not None:
                stop.wait(POLL_INTERVAL_S)
                continue
            if not is_logged and (row := self.leader):
                is_logged = True
                of_leader = {"leader": row.manager_id, "host": row.host, "pid": row.pid, "term": row.term}
                log.info("standing by", **of_leader, lease_s=row.lease_s)
            self.report_standby()
            stop.wait(min(POLL_INTERVAL_S, self._lease_s / 5))
        return None

    def report_standby(self) -> None:
        """Now and then, by a request as from any client: a standby writes nothing else."""
        now = self._clock.monotonic()
        if self._reported_at is not None and now - self._reported_at < STANDBY_REPORT_INTERVAL_S:
            return
        self._reported_at = now
        payload = {"manager_id": self._id, "host": socket.gethostname(), "pid": os.getpid()}
        try:
            submit.submit(self._store, self._clock, request_kinds.MANAGER_STAND_BY, payload)
        except (OSError, StateError) as error:  # storage is away for a moment
            log.warning("standby can't report", reason=str(error))


def _has_ended(row: Manager) -> bool:
    """The row's process was killed on this machine, or was this one (in tests, or a pid that came round)."""
    return is_gone(row.manager_id, row.pid) or (ran_here(row.manager_id) and row.pid == os.getpid())


class Heartbeat(Service):
    """Keeps the lease, in a thread of its own, so that a long tick costs no lease. Every write asks `is_leader()`."""

    def __init__(
        self, leader: Leader, clock: Clock, *, lease_s: int, on_lost: Callable[[], None] = lambda: None,
        payload: Callable[[], dict[str, Any]] = dict, figures: Callable[[], dict[str, Any]] = dict,
    ) -> None:  # fmt: skip
        """`payload()` and `figures()` give further columns of the lease row, `figures()` also when the lease is given back."""
        super().__init__("heartbeat")
        self._leader, self._clock, self._lease_s = leader, clock, lease_s
        self._on_lost, self._payload, self._figures = on_lost, payload, figures
        self._last_beat = clock.boottime()
        self._is_lost = False

    def is_leader(self) -> bool:
        """False from the moment at which another manager may lead, whether or not it does: also right after this machine has
        slept."""
        return not self._is_lost and self._clock.boottime() - self._last_beat < self._lease_s

    def run_once(self) -> float | None:
        began = self._clock.boottime()
        try:
            self._leader.heartbeat(self._clock.now(), **self._payload(), **self._figures())
        except LostLease as error:
            log.error("lease lost", reason=str(error))
            self._give_up()
        except (OSError, StateError) as error:  # storage is away for a moment; the lease decides how long that may last
            log.warning("heartbeat failed", reason=str(error))
            if not self.is_leader():
                self._give_up()
        else:
            self._last_beat = began
        return self._lease_s / 3

    def _give_up(self) -> None:
        self._is_lost = True
        self._stopping.set()
        self._on_lost()

    @contextmanager
    def holding(self, on_failure: FailureHandler | None = None) -> Iterator[None]:
        """Beats while the block runs; then the lease is given back, unless it was lost."""
        self.start(on_failure)
        try:
            yield
        except BaseException as error:
            self.stop()
            if not isinstance(error, LostLease):
                with ignore_stopped_context(), suppress(BackfillManagerError):  # storage may be what failed
                    self._leader.resign(self._clock.now(), **self._figures())
                    log.info("lease given back", term=self._leader.term)
            raise
        self.stop()
        self._leader.resign(self._clock.now(), **self._figures())
