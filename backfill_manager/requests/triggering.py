"""Asking for a run by hand: what can be refused before the manager hears of it."""

from __future__ import annotations

from datetime import datetime

from backfill_manager.clock import format_instant
from backfill_manager.errors import InvalidInput


def check_logical_date(at: datetime | None, now: datetime, *, allow_future: bool) -> None:
    """`InvalidInput` for a date in the future, unless it is asked for. None: the manager chooses, and never such a one."""
    if at is not None and at > now and not allow_future:
        raise InvalidInput(
            f"--logical-date {format_instant(at)} lies in the future (it is {format_instant(now)} now); to run it before"
            " its time, add --allow-future"
        )
