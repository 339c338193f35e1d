"""A fork server for DAG files: `python -m backfill_manager.dags.importing.worker FD`, started by `worker_process`.

It imports what DAG files need, and forks a fresh process for each file, which begins warm and ends with whatever the file
did to it. No code of a bundle runs in the worker itself, so no file affects the next. One thread only: a fork of a process
with threads may hang.

Over the socket FD come requests (a line of JSON, with the pipe for the answer), one at a time, and go back:

    {"pid": 123}                        the file's process, before it runs any code of the file
    {"code": 0, "late": false}          how that process ended (`late`: its time was up, and it was killed)
    {"refused": "..."}                  instead of both: the bundle's folder can't be read

The end of the socket is the end of the worker and of the process that it waits for: nothing outlives the manager.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from backfill_manager.clock import SystemClock
from backfill_manager.dags.authoring import dag, sql
from backfill_manager.dags.importing.bundle_path import Bundle
from backfill_manager.dags.importing.parse_file import ParseJob, parse_and_exit
from backfill_manager.schemas.dag_settings import DagSettings, SqlSettings, TaskSettings, YamlDag, adapter

GRACE_S: Final = 3.0  # for the watchdog in the file's process, which knows more, to be first
WARM: Final = (  # what files and the reports of their mistakes need: imported once, before they come
    "backfill_manager.dags.schedule.timetable",
    "backfill_manager.dags.yaml.reader",
    "backfill_manager.logging",
    "croniter",
    "yaml",
)
NICENESS: Final = 10  # ticks come before parsing
PRELOADS: Final = {"pyspark": ("pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types"), "pandas": ("pandas",)}
_WITHOUT_THREADS: Final = {  # numpy's and Arrow's libraries start some when they are imported, unless these say otherwise
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class Worker:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._clock = SystemClock()  # a real process takes real time
        self._bundle: Bundle | None = None
        self._bundle_key: tuple[str, int, int] | None = None
        self._preloaded: set[str] = set()
        self._child_ended, self._wake = os.pipe()
        for end in (self._child_ended, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # one handler, or there is no wakeup

    def serve(self) -> None:
        """Until the manager closes its end."""
        for module in WARM:
            importlib.import_module(module)
        _warm_up()
        gc.collect()
        gc.disable()
        while (received := self._receive()) is not None:
            job, pipe = received
            try:
                self._serve(job, pipe)
            finally:
                os.close(pipe)

    def _serve(self, job: ParseJob, pipe: int) -> None:
        self._preload(job.preload)
        try:
            bundle = self._open(job.root)
        except OSError as error:
            self._send(refused=f"{error.filename or job.root} can't be read: {error.strerror}")
            return
        child = os.fork()
        if child == 0:
            self._run_child(bundle, job, pipe)
        self._send(**self._wait(child, job.seconds + GRACE_S))

    def _preload(self, names: Sequence[str]) -> None:
        """Ends this worker when it can't fork safely after it; the manager then starts another and does without."""
        new = set(names) - self._preloaded
        if not new:
            return
        kept = {name: os.environ[name] for name in _WITHOUT_THREADS if name in os.environ}
        os.environ.update(_WITHOUT_THREADS)
        for name in sorted(new):
            with suppress(Exception):  # the file's process reports it; a parser's package may raise anything
                for module in PRELOADS.get(name, (name,)):
                    importlib.import_module(module)
        for name in _WITHOUT_THREADS:
            os.environ.pop(name, None)
        os.environ.update(kept)
        if _threads() > 1:
            sys.exit(f"a preloaded module started threads ({', '.join(sorted(new))})")
        self._preloaded |= new
        gc.collect()
        gc.freeze()  # so that the collector of a child does not touch, and so copy, every page

    def _open(self, root: str) -> Bundle:
        """The folder's names, read once for all of its files. A folder that was made anew is another one."""
        about = os.stat(root)
        key = (root, about.st_ino, about.st_mtime_ns)
        if self._bundle is None or key != self._bundle_key:
            self._bundle, self._bundle_key = Bundle(Path(root)), key
            gc.collect()
            gc.freeze()
        return self._bundle

    def _run_child(self, bundle: Bundle, job: ParseJob, pipe: int) -> NoReturn:
        ends = os._exit
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            self._send(pid=os.getpid())
            self._control.close()
            os.close(self._child_ended)
            os.close(self._wake)
            parse_and_exit(bundle, job, pipe)
        finally:
            ends(1)

    def _wait(self, child: int, seconds: float) -> dict[str, Any]:
        """Until it ends, for at most `seconds`; then its whole session is ended, before its id is given up."""
        deadline = self._clock.monotonic() + seconds
        late = False
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT  # it keeps its id, so that its group can still be named
        while sys.platform != "linux" or os.waitid(os.P_PID, child, how) is None:
            left = deadline - self._clock.monotonic()
            late = left <= 0
            ready, _, _ = select.select([self._control.fileno(), self._child_ended], [], [], max(left, 0))
            if late or self._control.fileno() in ready or sys.platform != "linux":
                break  # elsewhere (macOS) nothing else can have woken us: it is our only child
            self._drain_signals()
        for kill in (os.killpg, os.kill):  # it may not have a group of its own yet
            with suppress(ProcessLookupError, PermissionError):  # a group that is gone; or a zombie, on macOS
                kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        _kill_orphans()
        self._drain_signals()
        return {"code": os.waitstatus_to_exitcode(status), "late": late}

    def _drain_signals(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._child_ended, 4096):
                pass

    def _receive(self) -> tuple[ParseJob, int] | None:
        try:
            text, pipes, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            while text and not text.endswith(b"\n"):
                more = self._control.recv(1 << 16)
                if not more:
                    return None
                text += more
        except ConnectionResetError:  # a manager that was killed before it had read everything
            return None
        if not text:
            return None
        os.set_inheritable(pipes[0], False)  # what the file starts must not keep the pipe open
        return ParseJob.from_json(text), pipes[0]

    def _send(self, **what: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the manager is gone: `_receive` sees it too
            self._control.sendall(json.dumps(what).encode() + b"\n")


def _warm_up() -> None:
    """Makes a DAG once: what is filled at first use (zones, validators, caches) every child would fill for itself."""
    for settings in (DagSettings, TaskSettings, SqlSettings, YamlDag):
        adapter(settings)
    made = dag("rehearsal", schedule="0 5 * * *", timezone="Europe/Berlin", start_date="2013-01-01")
    made(lambda: sql("count", "SELECT 1")).spec.to_json()


def _kill_orphans() -> None:
    """Processes that left the file's session: on Linux this process inherits them when their parent ends."""
    with suppress(ChildProcessError):
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            me = os.getpid()
            for orphan in map(int, Path(f"/proc/{me}/task/{me}/children").read_text().split()):
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)


def _threads() -> int:
    """Of this process, those of C libraries too where the system tells."""
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        return threading.active_count()


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # `-m` puts the current directory there; the manager's own path came in PYTHONPATH
    # The manager goes first for cores, the workers when memory runs out; children inherit it.
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    with suppress(OSError):  # Linux only, and not in every container
        Path("/proc/self/oom_score_adj").write_text("1000")
    Worker(socket.socket(fileno=int(sys.argv[1]))).serve()
