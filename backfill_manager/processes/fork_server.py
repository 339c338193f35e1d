"""The fork server: `python -m backfill_manager.processes.fork_server FD MODULE...`, started by `fork_server_client`.

It imports the modules named, and what requests name beside them, and forks a process for each request: the process calls
`module:function` of ours with the request's job and descriptors, and that never returns. The server itself runs no code of DAGs,
so nothing that one process does reaches the next. One thread only: a fork of a process with threads may hang.

Over the socket FD come requests (`processes.channel`), and go back what became of them:

    {"fork": 7, "call": "module:function", "job": {...}, "name": "bfm task", "preload": ["pyspark"]}  with descriptors
                                        "prepare": "module:function" is called here before: it reads what all processes need
    {"signal": 15, "to": 7}             for a process that may have ended: then nothing happens
    -> {"server": 12}                   its own number, at first
    -> {"id": 7, "pid": 123}            before it runs anything
    -> {"id": 7, "code": -9}            it has ended, and so has everything that it started

The end of the socket is the end of the server and of all its processes: nothing outlives the manager. If the server is killed,
its parent ends what it has left behind (`processes.server_parent`).
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn

from backfill_manager.processes import server_parent
from backfill_manager.processes.channel import Channel
from backfill_manager.processes.huge_pages import use_huge_pages

PRELOADS: Final = {  # what PySpark imports at its first use, too, and functions that are called
    "pyspark": (
        "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types", "pyspark.sql.classic.dataframe",
        "pyspark.sql.classic.column", "pyspark.java_gateway", "pyspark.accumulators", "pyspark.cloudpickle",
        "delta.tables", "encodings.idna", "backfill_manager.processes.without_numpy",
        "backfill_manager.execution.lineage.table_access:change_readers",
    ),
    "numpy": ("numpy",),
    "pandas": ("pandas",),
    "pyarrow": ("pyarrow",),
}  # fmt: skip
MANAGERS_PYTHONPATH: Final = "BFM_MANAGERS_PYTHONPATH"  # what PYTHONPATH is in the manager's own environment
HEAVY: Final = ("numpy", "pandas", "pyarrow")  # each fork costs more when the server has imported them
_WITHOUT_THREADS: Final = {  # numpy's and Arrow's libraries start some when they are imported, unless these say otherwise
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
HUGE_PAGES_AFTER_S: Final = 0.3  # without a request: it takes as long, and the first processes are waited for
HUGE_PAGES_AFTER_FORKS: Final = 16
_exit = os._exit


class ForkServer:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._children: dict[int, int] = {}  # pid -> id of its request
        self._preloaded: set[str] = set()
        self._forks, self._has_huge_pages = 0, False
        self._pid, self._below = os.getpid(), server_parent.open_list_of_children()
        self._child_ended, self._wake = os.pipe()
        for end in (self._child_ended, self._wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # one handler, or there is no wakeup
        self._report(server=self._pid)

    def serve(self) -> None:
        """Until the manager closes its end."""
        gc.collect()
        gc.disable()
        while True:
            timeout = None if self._has_huge_pages else HUGE_PAGES_AFTER_S
            ready, _, _ = select.select([self._channel.fileno(), self._child_ended], [], [], timeout)
            if not self._has_huge_pages and (not ready or self._forks >= HUGE_PAGES_AFTER_FORKS):
                use_huge_pages()
                self._has_huge_pages = True
            if self._child_ended in ready:
                with suppress(BlockingIOError):
                    while os.read(self._child_ended, 4096):
                        pass
            self._reap()
            if self._channel.fileno() in ready:
                received = self._channel.receive()
                if received is None:
                    return self._end_all()
                self._handle(*received)

    def _handle(self, request: dict[str, Any], descriptors: list[int]) -> None:
        if "signal" in request:
            for pid, number in self._children.items():
                if number == request["to"]:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, request["signal"])
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # what the process starts must not keep them open
        self._preload(request.get("preload", ()))
        call, prepare = _function(request["call"]), request.get("prepare")
        try:
            if prepare:
                _function(prepare)(request["job"])
            gc.freeze()  # or the child's collector begins with all that came since the last, and copies the pages that it touches
            child = os.fork()
        except OSError as error:
            where = f"{error.filename} can't be read" if error.filename else "no process could be started"
            self._report(id=request["fork"], refused=f"{where}: {error.strerror}")
        else:
            if child == 0:
                self._run_child(call, request, descriptors)
            self._children[child] = request["fork"]
            self._forks += 1
            self._report(id=request["fork"], pid=child)
        for descriptor in descriptors:
            os.close(descriptor)

    def _run_child(self, call: Any, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            server_parent.end_with_parent(self._pid)
            server_parent.take_orphans()  # what its children leave behind stays below it, until it ends
            server_parent.set_name(request["name"])
            self._channel.close()
            os.close(self._child_ended)
            os.close(self._wake)
            if self._below is not None:
                os.close(self._below)
            gc.enable()
            call(request["job"], descriptors)
        finally:
            _exit(1)

    def _preload(self, names: Iterable[str]) -> None:
        """Ends this server when it can't fork safely after it; the manager then starts another, which does without."""
        new = sorted(set(names) - self._preloaded)
        if not new:
            return
        self._report(id=0, preloading=new)
        kept = {name: os.environ[name] for name in _WITHOUT_THREADS if name in os.environ}
        os.environ.update(_WITHOUT_THREADS)
        for name in new:
            with suppress(Exception):  # whoever needs it reports why it can't be imported
                for one in PRELOADS.get(name, (name,)):
                    if ":" in one:
                        _function(one)()
                    else:
                        importlib.import_module(one)
        for name in _WITHOUT_THREADS:
            os.environ.pop(name, None)
        os.environ.update(kept)
        if _threads() > 1:
            sys.exit(f"a preloaded module started threads ({', '.join(new)})")
        self._report(id=0, preloading=[])
        self._preloaded.update(new)
        self._forks, self._has_huge_pages = 0, False
        gc.collect()

    def _reap(self) -> None:
        """Ends the sessions of those that have ended, and what they left behind, before their ids are given up."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while True:
            try:
                if sys.platform == "linux":
                    ended = os.waitid(os.P_ALL, 0, how)
                    pid = ended.si_pid if ended else 0
                    status = 0
                else:
                    pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for kill in (os.killpg, os.kill):
                with suppress(ProcessLookupError, PermissionError):  # a group that is gone; or a zombie, on macOS
                    kill(pid, signal.SIGKILL)
            if sys.platform == "linux":
                _, status = os.waitpid(pid, 0)
            self._kill_orphans()
            if pid in self._children:
                self._report(id=self._children.pop(pid), code=os.waitstatus_to_exitcode(status))

    def _kill_orphans(self) -> None:
        """Processes that had left their session: on Linux this process inherits them when the child ends that they were below."""
        server_parent.kill_children(self._below, but=self._children)

    def _end_all(self) -> None:
        for pid in self._children:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._children:
            self._children.pop(os.wait()[0], None)
        self._kill_orphans()

    def _report(self, **what: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the manager is gone: `receive` sees it too
            self._channel.send(what)


def _function(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def _threads() -> int:
    """Of this process, those of C libraries too where the system tells."""
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        return threading.active_count()


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # `-m` puts the current directory there; the manager's own path came in PYTHONPATH
    own_path = os.environ.pop(MANAGERS_PYTHONPATH, None)
    if own_path is not None:  # another Python that a task starts must not find our packages
        os.environ["PYTHONPATH"] = own_path
    server_parent.go_below_a_parent()
    _, descriptor, *modules = sys.argv
    sys.argv[:] = [""]  # ours are nothing for code that looks at its arguments
    server = ForkServer(Channel(socket.socket(fileno=int(descriptor))))
    for module in modules:
        _function(f"{module}:warm_up")()
    server.serve()


if __name__ == "__main__":
    main()
