"""The time by which retention deletes. What is deleted does not come back, so a clock that is set far ahead is not believed at
once: until it has stayed so for `CONFIRMED_AFTER`, time goes on from what it was. A clock that is set back is believed at once.

Time that this machine sleeps is no jump (`Clock.boottime`). A clock that was wrong before is compared with the state: its leaders
have written down when they led (`doubt_of`). Where nobody did for long, either no manager ran or the clock is ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.clock import Clock, format_instant
from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger
from backfill_manager.model.records import Manager
from backfill_manager.store.base import Condition, Store

TOLERANCE: Final = timedelta(minutes=1)
CONFIRMED_AFTER: Final = timedelta(days=1)
GAP: Final = timedelta(hours=1)  # the least age there is

log = get_logger("retention")


@dataclass(frozen=True)
class Doubt:
    """By how much the clock may be ahead, and since when it has shown this time."""

    by: timedelta
    since: datetime


def doubt_of(store: Store, now: datetime, *, term: int | None = None) -> Doubt | None:
    """None: no longer gap between leaderships ended in the last `CONFIRMED_AFTER`. `term`: that of who asks. A clock that does
    not agree with the state is logged."""
    last: datetime | None = None
    newest: datetime | None = None
    by, since, gap = timedelta(0), now, timedelta(0)
    before = [] if term is None else [Condition("term", "<", term)]
    led = [(row.started_at, row.heartbeat_at) for row in store.read(Manager, before, ["term"])]
    for start, end in [*led, (now, now)]:
        last, gap = newest, timedelta(0) if newest is None else start - newest
        if gap >= GAP and now - start < CONFIRMED_AFTER:
            by, since = by + gap, start
        newest = end if last is None else max(last, end)
    seen = {"clock": format_instant(now), "newest_in_state": format_instant(last)}
    if gap < -TOLERANCE:
        log.warning("the clock is behind the state; is it right?", by=duration(-gap.total_seconds()), **seen)
    elif gap >= GAP:
        after, wait = duration(gap.total_seconds()), duration(CONFIRMED_AFTER.total_seconds())
        log.info(  # it does each time where managers run now and then
            "no manager has led the state for long, or the clock is ahead; retention goes by the time before",
            by=after, until_confirmed=wait, **seen,
        )  # fmt: skip
    return Doubt(by, since) if by else None


class SteadyClock:
    """For one thread."""

    def __init__(self, clock: Clock, doubt: Doubt | None = None) -> None:
        self._clock = clock
        by = doubt.by if doubt else timedelta(0)
        self._believed, self._at = clock.now() - by, clock.boottime()
        # by how much, and when it was first seen, in steady time
        self._jump: tuple[timedelta, datetime] | None = (by, doubt.since - by) if doubt else None

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
