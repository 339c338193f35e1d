"""Who leads a state that many stories share: taking over is dear with Spark, so it is done only when it must be."""

from __future__ import annotations

from backfill_manager.store.base import Leader, Store
from support.state_changes import takes_over


class Leadership:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: Leader | None = None

    def __call__(self) -> Leader:
        """The one who leads now."""
        last = self._store.lease()
        if self._held is None or last is None or self._held.term != last.term or last.state != "leading":
            return self.take_over()
        return self._held

    def take_over(self) -> Leader:
        self._held = takes_over(self._store)
        return self._held
