"""`AppContext`: what every handler works with: settings, store, clock, and a cache of what was read from the state.

A value that was computed from some tables is valid for as long as the versions of these tables stay the same, so it is
computed once for each change of the state, however many clients request it (`cached_by_version`). Reading versions costs next
to nothing on a local disk, and on object storage the time of one listing for a whole response (store/refresh_once.py). The cache
is bounded by the size of its values.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

from cachetools import LRUCache
from fastapi import Depends, Request

from backfill_manager.api.failed_logins import FailedLogins
from backfill_manager.api.polling import ResponseWaiter, VersionWatcher
from backfill_manager.api.sessions import EndedSessions
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

T = TypeVar("T")
Versions = tuple[int, ...]
MAX_CACHE_ENTRIES: Final = 1024
MAX_CACHE_BYTES: Final = 32_000_000  # of all values together, as `size_in_memory` estimates them


class AppContext:
    def __init__(self, settings: Settings, store: Store, clock: Clock, *, secret: bytes) -> None:
        self.settings, self.store, self.clock = settings, store, clock
        self.secret = secret  # signs session cookies
        self.failed_logins, self.ended_sessions = FailedLogins(clock), EndedSessions(store.root)
        self.responses = ResponseWaiter(store)
        self.tables = VersionWatcher(store)
        # Each entry weighs at least its share, so that one limit bounds the number of entries, too.
        self._cache: LRUCache[Hashable, tuple[Versions, Any, int]] = LRUCache(
            MAX_CACHE_BYTES, getsizeof=lambda entry: max(entry[2], MAX_CACHE_BYTES // MAX_CACHE_ENTRIES)
        )
        self._lock = threading.Lock()
        self._computing: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()

    def versions(self, tables: Sequence[str]) -> Versions:
        return tuple(self.store.version(table) for table in tables)

    def cached_by_version(self, tables: Sequence[str], key: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute()`: from the cache, unless one of the tables has changed since. The value is shared:
        callers must not modify it."""
        return self.at_versions(self.versions(tables), key, compute)

    def at_versions(self, versions: Versions, key: Hashable, compute: Callable[[], T]) -> T:
        """As `cached_by_version`, for versions that were read before. Concurrent callers wait for the first to compute."""
        with self._lock:
            computing = self._computing.setdefault(key, threading.Lock())
        with computing:
            with self._lock:
                entry = self._cache.get(key)
            if entry is not None and entry[0] == versions:
                return cast(T, entry[1])
            value = compute()
            size = size_in_memory(value) + size_in_memory(key)  # an address may be as long as a response
            with self._lock, suppress(ValueError):  # larger than the whole cache: not kept
                self._cache[key] = versions, value, size
            return value


def size_in_memory(value: object) -> int:
    """About how many bytes a value takes, with all that it holds. What it shares with others counts for each."""
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(size_in_memory(key) + size_in_memory(one) for key, one in value.items())
    if isinstance(value, (list, tuple, AbstractSet)):
        return size + sum(map(size_in_memory, value))
    if is_dataclass(value):
        return size + sum(size_in_memory(getattr(value, one.name)) for one in fields(value))
    return size


def app_context(request: Request) -> AppContext:
    return cast(AppContext, request.app.state.context)


Context = Annotated[AppContext, Depends(app_context)]
