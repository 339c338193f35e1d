"""The manager's end of a worker: a process that parses one file after another, and may die of each.

`worker` has the protocol. Nothing that a file does to its own process, to the worker or to the
pipe comes out of here as anything but a `ParseReply`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.dags.bundles.interpreter import environment_for
from backfill_manager.dags.importing.parse_file import ParseJob

MAX_RESULT_SIZE: Final = 64 << 20
_STARTUP_TIMEOUT_S: Final = 120.0  # for the worker to start, and to import pandas or PySpark on a busy machine
_GRACE_S: Final = 10.0  # for the worker, which waits `GRACE_S` of its own, to end the file's process first
_STOP_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class ParseReply:
    """What came of a file. `began`: its process was started. `code`: how that ended; None when the worker was lost
    (`worker_code`: how). `late`: it took longer than its time. `refused`: why it was not parsed."""

    output: bytes = b""
    began: bool = False
    code: int | None = None
    worker_code: int | None = None
    late: bool = False
    refused: str = ""


class WorkerProcess:
    """May be used by one thread at a time; `stop` by any. `python`: its interpreter; None is this one."""

    def __init__(self, python: str | None = None) -> None:
        self._clock = SystemClock()  # a real process takes real time
        self.preloaded: set[str] = set()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python or sys.executable, "-m", "backfill_manager.dags.importing.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), start_new_session=True,
                env=environment_for(python),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def parse(self, job: ParseJob) -> ParseReply:
        """Parses one file. Afterwards the worker may be lost (`is_alive`)."""
        pipe, theirs = os.pipe()
        try:
            try:
                socket.send_fds(self._control, [job.to_json().encode() + b"\n"], [theirs])
            except OSError:  # it has died, or was stopped, while it had nothing to do
                return self._lost(None, b"")
            finally:
                os.close(theirs)
            reply = self._listen(pipe, job.seconds)
        finally:
            os.close(pipe)
        if reply.code is not None:
            self.preloaded |= set(job.preload)
        return reply

    def stop(self) -> None:
        """And with it the process of the file that it is reading."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """After `stop`, when no thread uses it any more."""
        self.stop()
        self._control.close()

    def _listen(self, pipe: int, seconds: float) -> ParseReply:
        output, lines = bytearray(), bytearray()
        child: int | None = None
        deadline = self._clock.monotonic() + _STARTUP_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(self._control, selectors.EVENT_READ)
            while True:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return self._lost(child, output, late=True)
                for key, _ in selector.select(left):
                    if key.fd == pipe:
                        if not _read(pipe, output):
                            selector.unregister(pipe)
                        if len(output) > MAX_RESULT_SIZE:
                            return self._lost(child, output)
                        continue
                    heard = b""
                    with suppress(ConnectionResetError):
                        heard = self._control.recv(4096)
                    if not heard:
                        return self._lost(child, output)
                    lines += heard
                while b"\n" in lines:
                    line, _, lines = lines.partition(b"\n")
                    message: dict[str, Any] = json.loads(line)
                    if "pid" not in message:
                        _drain(pipe, output)
                        return ParseReply(bytes(output), began="code" in message, **message)
                    child = message["pid"]
                    deadline = self._clock.monotonic() + seconds + _GRACE_S

    def _lost(self, child: int | None, output: bytes | bytearray, late: bool = False) -> ParseReply:
        """It can't be used any more. The file's process first: as long as the worker is there, its id is its own."""
        if child is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        if late or len(output) > MAX_RESULT_SIZE:
            self._process.kill()
        self.stop()
        return ParseReply(bytes(output), began=child is not None, worker_code=self._process.returncode, late=late)


def _read(pipe: int, into: bytearray) -> bool:
    chunk = os.read(pipe, 1 << 16)
    into += chunk
    return bool(chunk)


def _drain(pipe: int, into: bytearray) -> None:
    """What is in the pipe still. Its end is not waited for: a process that escaped may hold the pipe open."""
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while len(into) <= MAX_RESULT_SIZE and _read(pipe, into):
            pass
