"""The time by which retention deletes. What is deleted does not come back, so a clock that is set far ahead is not believed at
once: until it has stayed so for `CONFIRMED_AFTER`, time goes on from what it was. A clock that is set back is believed at once.

Time that this machine sleeps is no jump (`Clock.boottime`). What was wrong when the manager started can't be seen.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from backfill_manager.clock import Clock
from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger

TOLERANCE: Final = timedelta(minutes=1)
CONFIRMED_AFTER: Final = timedelta(days=1)

log = get_logger("retention")


class SteadyClock:
    """For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._believed, self._at = clock.now(), clock.boottime()
        self._jump: tuple[timedelta, datetime] | None = None  # by how much, and when it was first seen, in steady time

    def now(self) -> datetime:
        now = self._clock.now()
        steady = self._believed + timedelta(seconds=self._clock.boottime() - self._at)
        ahead = now - steady
        if ahead > TOLERANCE:
            if self._jump is None or abs(ahead - self._jump[0]) > TOLERANCE:
                self._jump = ahead, steady
                by, wait = duration(ahead.total_seconds()), duration(CONFIRMED_AFTER.total_seconds())
                log.warning("the clock was set ahead; retention goes by the time before", by=by, until_confirmed=wait)
            if steady - self._jump[1] < CONFIRMED_AFTER:
                return steady
        self._believed, self._at, self._jump = now, self._clock.boottime(), None
        return now
