"""`TokenBuckets`: a limit of how often something may happen, for each key."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from cachetools import LRUCache

from backfill_manager.clock import Clock

MAX_KEYS: Final = 10_000  # that are remembered


class TokenBuckets:
    """For each key `at_once` times, and `per_second` times a second from then on."""

    def __init__(self, clock: Clock, *, per_second: float, at_once: float) -> None:
        self._clock, self._per_second, self._at_once = clock, per_second, at_once
        self._buckets: LRUCache[Hashable, tuple[float, float]] = LRUCache(MAX_KEYS)  # key: what is left, as of

    def has(self, key: Hashable) -> bool:
        return self._left(key) >= 1

    def take(self, key: Hashable) -> bool:
        """Takes one from the key's bucket; False when it is empty."""
        left = self._left(key)
        self._buckets[key] = left - 1 if left >= 1 else left, self._clock.monotonic()
        return left >= 1

    def _left(self, key: Hashable) -> float:
        now = self._clock.monotonic()
        left, as_of = self._buckets.get(key, (self._at_once, now))
        return min(self._at_once, left + (now - as_of) * self._per_second)
