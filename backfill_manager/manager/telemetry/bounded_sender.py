"""A thread that sends telemetry to a server that may be away: a queue in memory with a bound, one batch after another.

What waits stays in its order, and an attempt that fails is repeated with growing delays. Beyond the bound the oldest are left
out, which the log says once, when sending works again. A tick only puts things into the queue. A manager that is killed loses
what waited.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, Final, Generic, TypeVar

from backfill_manager.execution.error_format import one_line
from backfill_manager.logging import get_logger
from backfill_manager.service import Service

MAX_WAITING: Final = 10_000
RETRY_S: Final = (1.0, 60.0)  # after the first failure, doubled by each further one up to the last
FLUSH_S: Final = 5.0  # at the manager's end

T = TypeVar("T")


class BoundedSender(Service, Generic[T]):
    """`what` is sent, `of` names its logger. `batch`: as many as one attempt takes."""

    JOINED: ClassVar = False  # an attempt may wait for a server

    def __init__(self, name: str, what: str, of: str, *, max_waiting: int = MAX_WAITING, batch: int = 1) -> None:
        super().__init__(name)
        self._what, self._log = what, get_logger(of)
        self._waiting: deque[T] = deque()
        self._in_hand: list[T] = []  # the batch whose turn it is; it counts to the bound, and is never left out
        self._max_waiting, self._batch, self._left_out, self._failures = max_waiting, batch, 0, 0
        self._lock, self._is_empty = threading.Lock(), threading.Event()
        self._is_empty.set()

    @abstractmethod
    def send(self, batch: list[T]) -> None:
        """One attempt. An exception: it is repeated later."""

    def put_all(self, new: Iterable[T]) -> None:
        with self._lock:
            self._waiting.extend(new)
            while self._waiting and len(self._waiting) + len(self._in_hand) > self._max_waiting:
                self._waiting.popleft()
                self._left_out += 1
            if self._waiting:
                self._is_empty.clear()
            is_away = self._failures > 0
        if not is_away:  # else the next attempt is due after its delay, however much comes meanwhile
            self.wake()

    def run_once(self) -> float | None:
        while batch := self._next_batch():
            try:
                self.send(batch)
            except Exception as error:  # noqa: BLE001 - each server has errors of its own; no task depends on it
                self._failures += 1
                if self._failures == 1:
                    self._log.warning(f"{self._what} can't be sent; they wait", reason=one_line(error))
                first, longest = RETRY_S
                return min(first * 2.0 ** min(self._failures - 1, 10), longest)
            with self._lock:
                self._in_hand = []
                left_out, self._left_out = self._left_out, 0
            if self._failures or left_out:
                self._log.info(f"{self._what} are sent again", left_out=left_out, failures=self._failures)
            self._failures = 0
        return None

    def _next_batch(self) -> list[T]:
        """One that could not be sent is the next again, as it was: what `send` has made of it may be kept."""
        with self._lock:
            if not self._in_hand:
                self._in_hand = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            if not self._in_hand:
                self._is_empty.set()
            return self._in_hand

    def stop(self) -> None:
        """Sends what waits, for a few seconds at most."""
        self.wake()
        if not self._is_empty.wait(FLUSH_S):
            self._log.warning(f"{self._what} are lost", number=len(self._waiting) + len(self._in_hand))
        super().stop()
