"""Refusals that repeat dates as they were typed, not the instants in UTC that were read of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from backfill_manager.clock import format_instant
from backfill_manager.errors import BackfillManagerError


@contextmanager
def repeat_typed(**read: tuple[datetime | None, str | None]) -> Iterator[None]:
    """For each param of an error the instant that was read, and the text it was read of (None: it was not typed)."""
    try:
        yield
    except BackfillManagerError as error:
        for param, (at, text) in read.items():
            if text is not None and at is not None and error.params.get(param) == format_instant(at):
                error.params[param] = text.strip()
        raise
