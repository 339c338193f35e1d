"""The threads that a manager can't do without.

A thread that dies leaves a process that looks alive and does only a part of its work. So every part of the manager runs in a
`ServiceThread`: whoever built the part hears of its end by an exception, and ends the manager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

ServiceFailed = Callable[[str, BaseException], None]  # (name of the part, what ended it), called in its thread


class ServiceThread(threading.Thread):
    """A daemon thread that runs `target` once. Without `on_failure` an exception ends it as it ends any thread."""

    def __init__(
        self, name: str, target: Callable[..., None], *args: Any, on_failure: ServiceFailed | None = None
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self._part, self._on_failure = name, on_failure

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:  # SystemExit too, which would end a thread without a word
            if self._on_failure is None:
                raise
            self._on_failure(self._part, error)
