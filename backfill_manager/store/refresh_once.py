"""One look at each table for a whole command or page, where looking costs a request.

In a state on a disk a look at a table costs next to nothing. In an object store it is two requests, one after the other, and a
page reads ten tables, some of them several times. Inside `refresh_once` each table of such a state is looked at once, those that
are known already all at the same time; what is older than `MAX_AGE_S` is looked at again, for commands that wait for an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

MAX_AGE_S: Final = 0.5

looked_at: ContextVar[dict[tuple[int, str], float] | None] = ContextVar("looked_at", default=None)
"""When each table was looked at (by the monotonic clock), by store and table; None outside of `refresh_once`."""


@contextmanager
def refresh_once() -> Iterator[None]:
    before = looked_at.set({})
    try:
        yield
    finally:
        looked_at.reset(before)
