"""The queue of the writers of one table in this process."""

from __future__ import annotations

import threading
from collections import deque


class TableQueue:
    """A lock that is given in the order of arrival. Those who share it (appends, which never conflict with each other in
    Delta) hold it together; others hold it alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._sharing = 0
        self._is_alone = False

    def acquire(self, *, blocking: bool = True, shared: bool = False) -> bool:
        ticket = object()
        with self._changed:
            if not blocking and (self._waiting or not self._is_free(shared)):
                return False
            self._waiting.append(ticket)
            self._changed.notify_all()  # for tests that watch the queue
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._is_free(shared))
            self._waiting.popleft()
            self._sharing += shared
            self._is_alone = not shared
            self._changed.notify_all()  # the next one may share it
            return True

    def release(self) -> None:
        """By any holder."""
        with self._changed:
            self._sharing = max(0, self._sharing - 1)
            self._is_alone = False
            self._changed.notify_all()

    def _is_free(self, shared: bool) -> bool:
        return not self._is_alone and (shared or not self._sharing)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
