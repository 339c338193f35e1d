"""What handlers are given: the settings, the store, the clock, and a memory of what was read.

A value that was computed from some tables stays right for as long as their versions stand still, so it is computed once
for each change of the state, however many ask (`cached_by_version`). Asking for a version costs next to nothing on a
disk, a listing elsewhere. What is kept is weighed, so that memory stays bounded whatever is asked for.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, TypeVar, cast

from fastapi import Depends, Request

from backfill_manager.api.response_waiter import ResponseWaiter
from backfill_manager.api.version_watcher import VersionWatcher
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

T = TypeVar("T")
Versions = tuple[int, ...]
MOST_KEPT: Final = 1024  # values
MOST_KEPT_BYTES: Final = 32_000_000  # of all values together, as `weight` tells


@dataclass
class _Kept:
    """One value, its weight, and what it was computed from. `lock`: the others wait for the first who computes."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    versions: Versions | None = None
    value: Any = None
    size: int = 0


class AppContext:
    def __init__(self, settings: Settings, store: Store, clock: Clock, *, secret: bytes) -> None:
        self.settings, self.store, self.clock = settings, store, clock
        self.secret = secret  # signs session cookies
        self.answers = ResponseWaiter(store)
        self.tables = VersionWatcher(store)
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def versions(self, tables: Sequence[str]) -> Versions:
        return tuple(self.store.version(table) for table in tables)

    def cached_by_version(self, tables: Sequence[str], key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()` of now, or of an earlier call with this key when none of the tables has changed since. The value
        is shared: leave it as it is."""
        return self.at_versions(self.versions(tables), key, compute)

    def at_versions(self, versions: Versions, key: Hashable, compute: Callable[[], T]) -> T:
        kept = self._kept_under(key)
        with kept.lock:
            if kept.versions != versions:
                try:
                    kept.value, kept.versions = compute(), versions
                    kept.size = weight(kept.value) + weight(key)  # an address may be as long as an answer
                finally:
                    self._make_room()
            return cast(T, kept.value)

    def etag(self, versions: Versions, *about: str) -> str:
        """Weak: the same content, not necessarily the same bytes."""
        told = "\n".join((self.store.root, *map(str, versions), *about))
        return f'W/"{hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:24]}"'

    def _kept_under(self, key: Hashable) -> _Kept:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            return kept

    def _make_room(self) -> None:
        with self._lock:
            for key in [key for key, kept in self._kept.items() if kept.versions is None and not kept.lock.locked()]:
                del self._kept[key]  # nothing came of it: there is no such thing
            size = sum(kept.size for kept in self._kept.values())
            while len(self._kept) > MOST_KEPT or (size > MOST_KEPT_BYTES and len(self._kept) > 1):
                size -= self._kept.popitem(last=False)[1].size


def weight(value: object) -> int:
    """About how many bytes it takes in memory, with all that it holds. What it shares with others counts for each."""
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return size + sum(weight(key) + weight(one) for key, one in value.items())
    if isinstance(value, (list, tuple, AbstractSet)):
        return size + sum(map(weight, value))
    if is_dataclass(value):
        return size + sum(weight(getattr(value, one.name)) for one in fields(value))
    return size


def app_context(request: Request) -> AppContext:
    return cast(AppContext, request.app.state.house)


HouseOf = Annotated[AppContext, Depends(app_context)]
