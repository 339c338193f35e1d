"""Loops in threads of their own, whose failure ends the process that runs them.

A thread that dies leaves a process that looks alive and does only part of its work. So an exception that ends the thread of
a `Service`, or a call of a `ServicePool`, is reported to its `FailureHandler`; the manager's is `manager/shutdown.py`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, Final

FailureHandler = Callable[[str, BaseException], None]  # (name of the service, what ended it), called in its thread
LONG_S: Final = 600.0  # a pass of most services takes less


class ServiceThread(threading.Thread):
    """A daemon thread that runs `target` once. Without `on_failure` an exception ends it as it ends any thread."""

    def __init__(
        self, name: str, target: Callable[..., None], *args: Any, on_failure: FailureHandler | None = None
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=True)
        self.on_failure = on_failure

    def run(self) -> None:
        service = self.name  # the executor renames its threads for each task
        try:
            super().run()
        except BaseException as error:  # SystemExit too, which would end a thread silently
            if self.on_failure is None:
                raise
            self.on_failure(service, error)


class Pass:
    """Since when a loop has been at what it does now, for `manager/services/long_passes.py`."""

    def __init__(self, name: str, long_s: float = LONG_S, max_s: float | None = None) -> None:
        """`long_s`: what takes longer is reported; `max_s`: it hangs, and nothing works without this loop."""
        self.name, self.long_s, self.max_s = name, long_s, max_s
        self.since: float | None = None  # monotonic seconds; None: it waits for work
        self.thread: int | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self.thread, self.since = threading.get_ident(), time.monotonic()
        try:
            yield
        finally:
            self.since = None


class ServicePool:
    """Threads for calls whose result nobody waits for. An exception of one goes to `on_failure`: in a plain pool it would stay in
    its future, unseen, and whoever waits for what the call should have done would wait for ever."""

    def __init__(
        self, name: str, threads: int, *, on_failure: FailureHandler | None = None, set_up: Callable[[], object] | None = None
    ) -> None:  # fmt: skip
        """`set_up` is called in each thread before its first call."""
        self._name, self._on_failure = name, on_failure
        self.passes = [Pass(name) for _ in range(threads)]
        self._free = deque(self.passes)  # one for each call that runs
        self._threads = ThreadPoolExecutor(threads, name, set_up)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Soon, in one of the threads."""
        self._threads.submit(self._run, function, *args).add_done_callback(self._report)

    def close(self, *, cancel: bool = False) -> None:
        """Waits for the calls that have begun; the others are made first, or are not made if `cancel`."""
        self._threads.shutdown(cancel_futures=cancel)

    def _run(self, function: Callable[..., object], *args: Any) -> object:
        its_pass = self._free.popleft()
        try:
            with its_pass.at_work():
                return function(*args)
        finally:
            self._free.append(its_pass)

    def _report(self, call: Future[object]) -> None:
        if not call.cancelled() and (error := call.exception()) is not None:
            if self._on_failure is None:
                raise error  # the future logs it
            self._on_failure(self._name, error)


class Service(ABC):
    """A loop: calls `run_once` until it is stopped. Tests call `run_once` by hand."""

    JOINED: ClassVar = True  # whether `stop` waits for the thread

    def __init__(self, name: str) -> None:
        self._stopping, self._woken = threading.Event(), threading.Event()
        self._thread = ServiceThread(name, self._run)
        self.current_pass = Pass(name)

    @abstractmethod
    def run_once(self) -> float | None:
        """One pass; returns the seconds until the next one, None to wait for `wake`."""

    def set_up(self) -> None:  # noqa: B027 - most have nothing to set up
        """Called once in the thread, before the first pass."""

    def start(self, on_failure: FailureHandler | None = None) -> None:
        self._thread.on_failure = on_failure
        self._thread.start()

    def wake(self) -> None:
        """Have the next pass begin now."""
        self._woken.set()

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self.JOINED and self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        with self.current_pass.at_work():
            self.set_up()
        while not self._stopping.is_set():
            with self.current_pass.at_work():
                seconds = self.run_once()
            self._woken.wait(seconds)
            self._woken.clear()
