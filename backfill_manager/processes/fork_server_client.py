"""The manager's end of a fork server: starts it, asks it for processes, and learns how each ended."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from backfill_manager.errors import BackfillManagerError
from backfill_manager.processes.channel import Channel
from backfill_manager.processes.core_affinity import lift
from backfill_manager.processes.interpreter import environment_for

WARM_UP: Final = ("backfill_manager.dags.importing.warm_up",)  # a server calls their `warm_up()` before it serves
STOP_TIMEOUT_S: Final = 5.0


class NoProcess(BackfillManagerError):
    """No process could be started: the fork server has ended, or the system has none left."""

    code_of_server = 0  # as of `ForkedProcess`
    is_of_interpreter = False  # it can't be executed, and will not be until somebody mends it


class ForkedProcess:
    """A process that was asked for. `code` is its exit code, or the signal that ended it as a negative number; None while it
    runs, and when its server was lost."""

    def __init__(self, server: ForkServerProcess, number: int, on_end: Callable[[], object]) -> None:
        self._server, self._number, self._on_end = server, number, on_end
        self.pid: int | None = None
        self.code: int | None = None
        self.refused = ""  # why it could not be started
        self._begun, self._ended = threading.Event(), threading.Event()

    @property
    def has_ended(self) -> bool:
        """Everything that it had started has, too."""
        return self._ended.is_set()

    @property
    def is_lost(self) -> bool:
        """Its fork server has ended, and took it along."""
        return self.has_ended and self.code is None

    @property
    def code_of_server(self) -> int:
        """See `ForkServerProcess.code_of_end`."""
        return self._server.code_of_end()

    def wait_begun(self, timeout_s: float) -> bool:
        return self._begun.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has ended within that time."""
        return self._ended.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        if not self.has_ended:
            self._server.send({"signal": int(number), "to": self._number})

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def kill_server(self) -> None:
        """For one that can't be killed: the server does not answer (something has stopped it). All its processes end with it."""
        self._server.stop()

    def _heard(self, message: Mapping[str, Any]) -> None:
        if "pid" in message:
            self.pid = message["pid"]
            self._begun.set()
            return
        self.refused = message.get("refused", "")
        self.code = message.get("code")
        self._on_end()  # before anybody goes on who waits for the end
        self._ended.set()
        self._begun.set()


class ForkServerProcess:
    """A running fork server. Used by any thread."""

    def __init__(self, python: str | None = None, unfit: Collection[str] = ()) -> None:
        """`python` is the interpreter; None: this one. `unfit`: modules that are not preloaded."""
        self._unfit = unfit
        self.preloading: list[str] = []  # at this moment
        self._numbers = itertools.count(1)
        self._processes: dict[int, ForkedProcess] = {}
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        with theirs, ExitStack() as on_error:
            on_error.callback(ours.close)
            self._process = subprocess.Popen(
                [python or sys.executable, "-m", "backfill_manager.processes.fork_server", str(theirs.fileno()), *WARM_UP],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True,
                env=environment_for(python),
            )  # fmt: skip
            on_error.pop_all()
        lift(self._process.pid)
        self.pid, self._is_lost = self._process.pid, False  # that of the parent of its processes, once it has said so
        self._listener = threading.Thread(target=self._listen, name=f"fork server {self._process.pid}", daemon=True)
        self._listener.start()

    @property
    def is_alive(self) -> bool:
        return not self._is_lost

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def code_of_end(self) -> int:
        """Its exit code, for one whose socket has ended, if it has ended by itself; 0 when a signal has ended it."""
        with suppress(subprocess.TimeoutExpired):  # its socket ends before it does
            self._process.wait(STOP_TIMEOUT_S)
        return max(0, self.exit_code or 0)

    def fork(
        self, call: str, job: Mapping[str, Any], descriptors: Sequence[int], *, name: str, preload: Sequence[str] = (),
        prepare: str = "", on_end: Callable[[], object] = lambda: None,
    ) -> ForkedProcess:  # fmt: skip
        """A process that calls `module:function` of this package with (job, descriptors); before, the server calls `prepare` with
        the job. `on_end` is called once, in a thread of this object, when it has ended; not if this raises `NoProcess`, as the
        server is gone."""
        with self._lock:
            process = ForkedProcess(self, next(self._numbers), on_end)
            self._processes[process._number] = process
        preload = sorted(set(preload) - set(self._unfit))
        request = {
            "fork": process._number, "call": call, "job": job, "name": name, "preload": preload, "prepare": prepare,
        }  # fmt: skip
        try:
            if self._is_lost:
                raise BrokenPipeError
            self._channel.send(request, descriptors)
        except OSError as error:
            with self._lock:
                if isinstance(error, BrokenPipeError | ConnectionResetError):
                    self._is_lost = True  # the listener may not have come to see it
                was_heard = self._processes.pop(process._number, None) is None
            if not was_heard:  # else `on_end` is called, and its caller learns of the end only once
                gone = NoProcess(f"the fork server (pid {self.pid}) has ended")
                gone.code_of_server = self.code_of_end()
                raise gone from None
        return process

    def send(self, request: dict[str, Any]) -> None:
        with suppress(OSError):  # the server is gone, and its processes with it
            self._channel.send(request)

    def stop(self) -> None:
        """And with it all its processes."""
        with suppress(OSError):
            self._channel.shutdown()
        for end in (self._process.terminate, self._process.kill):  # its parent ends it then; without one, it is killed
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
        if threading.current_thread() is not self._listener:
            self._listener.join()
        self._channel.close()

    def _listen(self) -> None:
        while True:
            try:
                received = self._channel.receive()
            except (OSError, ValueError):
                received = None
            if received is None:
                break
            message, _ = received
            if "server" in message:
                self.pid = message["server"]
                lift(self.pid)  # it may have been forked before its parent was
                continue
            if "preloading" in message:
                self.preloading = message["preloading"]
                continue
            with self._lock:
                process = self._processes.get(message["id"])
                if "pid" not in message:
                    self._processes.pop(message["id"], None)
            if process is not None:
                process._heard(message)
        self.code_of_end()
        with self._lock:
            self._is_lost = True
            left = list(self._processes.values())
            self._processes.clear()
        for process in left:
            # There they end with their parent (PR_SET_PDEATHSIG).
            if process.pid is not None and sys.platform != "linux":
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process._heard({"id": 0})


_NOT_EXECUTABLE: Final = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP)
_KILLED: Final = (-signal.SIGKILL, -signal.SIGTERM)


class ForkServers:
    """The fork servers of this process, one for each interpreter, started when first needed. `close` ends them."""

    def __init__(self) -> None:
        self._servers: dict[str | None, ForkServerProcess] = {}
        self._unfit: set[str] = set()  # modules that no server gets through importing
        self._interrupted: set[str] = set()  # those in whose import one was killed
        self._lock = threading.Lock()
        self._is_closed = False

    def get(self, python: str | None = None) -> ForkServerProcess:
        """That of this interpreter (None: ours); a new one if it has ended. `NoProcess` if it can't be started."""
        with self._lock:
            if self._is_closed:
                raise NoProcess("the fork servers are closed")
            server = self._servers.get(python)
            if server is None or not server.is_alive:
                if server is not None:
                    was_killed, preloading = server.exit_code in _KILLED, set(server.preloading)
                    server.stop()
                    if was_killed and not preloading <= self._interrupted:  # once that says nothing of what it imported
                        self._interrupted |= preloading
                    else:
                        self._unfit |= preloading
                try:
                    server = self._servers[python] = ForkServerProcess(python, self._unfit)
                except OSError as error:
                    none = NoProcess(f"{python or sys.executable} can't be started: {error.strerror}")
                    none.is_of_interpreter = error.errno in _NOT_EXECUTABLE
                    raise none from error
            return server

    def end(self, python: str | None) -> None:
        """End that of this interpreter, with all its processes; the next `get` starts another."""
        with self._lock:
            server = self._servers.pop(python, None)
        if server is not None:
            server.stop()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            servers = list(self._servers.values())
            self._servers.clear()
        for server in servers:
            server.stop()

    def __enter__(self) -> ForkServers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
