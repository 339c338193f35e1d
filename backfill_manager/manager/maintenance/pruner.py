"""When a manager sweeps its state (retention.py): at its start, every hour, and when a request asks for it; one step per tick."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from backfill_manager.clock import Clock
from backfill_manager.errors import StateError
from backfill_manager.logging import get_logger
from backfill_manager.manager.maintenance.retention import Sweep, ages, summary_of
from backfill_manager.manager.operations.request_handler import RequestHandler
from backfill_manager.manager.steady_clock import Doubt, SteadyClock
from backfill_manager.schemas import errors, request_kinds
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.base import Leader, Store

log = get_logger("retention")

INTERVAL: Final = timedelta(hours=1)


class Pruner:
    def __init__(
        self, store: Store, leader: Leader, requests: RequestHandler, retention: RetentionSettings, snapshots: Path | None,
        clock: Clock, doubt: Doubt | None = None,
    ) -> None:  # fmt: skip
        self._store, self._leader, self._requests, self._retention = store, leader, requests, retention
        self._snapshots, self._clock = snapshots, SteadyClock(clock, doubt)
        self._has_ages = bool(ages(retention))
        self._sweep: Sweep | None = None
        self._next_at: datetime | None = None  # None: at once
        self._waiting: list[str] = []  # requests that the next sweep answers
        self._asked: list[str] = []  # ... that this one does

    def ask(self, request_id: str, now: datetime) -> None:
        """Sweep now, and answer this request then."""
        if self._has_ages:
            self._waiting.append(request_id)
            self._next_at = None
        else:
            self._requests.refuse(request_id, request_kinds.STATE_PRUNE, now, errors.NO_RETENTION())

    def due_at(self, now: datetime) -> datetime | None:
        """When the next step is due; None: never."""
        if not self._has_ages:
            return None
        if self._sweep is not None or self._next_at is None or self._next_at - now > INTERVAL:  # the clock was set back
            return now
        return self._next_at

    def is_due(self, now: datetime) -> bool:
        due = self.due_at(now)
        return due is not None and due <= now

    def step(self, now: datetime) -> None:
        """What fails is left to the next sweep; a manager that ended of it would begin it again."""
        if self._sweep is None:
            at = self._clock.now()
            self._sweep = Sweep(self._store, self._retention, at, leader=self._leader, snapshots=self._snapshots)
            self._asked, self._waiting = self._waiting, []
        if self._sweep.step():
            return
        gone, problems = dict(self._sweep.gone), self._sweep.problems
        if any(gone.values()):
            log.info("state pruned", **gone)
        if problems:
            log.error("could not prune the state", reason="; ".join(dict.fromkeys(map(str, problems))))
        kind = request_kinds.STATE_PRUNE
        for request_id in self._asked:
            if problems:
                error = problems[0] if isinstance(problems[0], StateError) else str(problems[0])
                self._requests.refuse(request_id, kind, now, error)
            else:
                self._requests.accept(request_id, kind, now, None, summary_of(gone), {"pruned": gone})
        self._sweep = None
        self._next_at = None if self._waiting else now + INTERVAL
