"""Leadership of a state that many tests share: a take-over is expensive with Spark, so it happens only when needed."""

from __future__ import annotations

from backfill_manager.store.base import Leader, Store
from support.state_changes import takes_over


class Leadership:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: Leader | None = None

    def __call__(self) -> Leader:
        """The current leader."""
        last = self._store.lease()
        if self._held is None or last is None or self._held.term != last.term or last.state != "leading":
            return self.take_over()
        return self._held

    def take_over(self) -> Leader:
        self._held = takes_over(self._store)
        return self._held
