"""What a process has beside its modules and objects, so that one can see whether a task has left it as it found it.

A process serves another try (`reuse_process`) only if nothing of this differs. What Python code keeps in modules and globals
is not looked at: to show that nothing of it was changed costs as much as a new process.
"""

from __future__ import annotations

import decimal
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection
from typing import Any, Final

# without that of a stop, which each try gets anew
_SIGNALS: Final = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM}))
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_OF_SPARK: Final = "PYSPARK_PYTHON"  # set when the process is attached to Spark, whenever that is
_MODULES: Final = "modules"  # how many are imported: no difference by itself
_WITH_IMPORTS: Final = frozenset({"warnings"})  # what libraries add to when they are imported, in whatever try that is
_THREADS: Final = "threads"
_THREAD_END_S: Final = 0.1  # a thread that was joined may be listed by the system for so long (usually well below 1 ms)
_LIMITS: Final = tuple(
    getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_") and name != "RLIMIT_CORE"
)


def process_state(own_threads: Collection[threading.Thread] = ()) -> dict[str, Any]:
    """By name, values that are equal as long as nobody has changed them. Linux and macOS; threads of C libraries and child
    processes are seen on Linux only. `own_threads`: those of ours, which are not counted."""
    root = logging.getLogger()
    seen: dict[str, Callable[[], Any]] = {
        "the current folder": os.getcwd,
        "environment variables": lambda: {name: value for name, value in os.environ.items() if name != _OF_SPARK},
        "the umask": _umask,
        "handlers of signals": lambda: [signal.getsignal(number) for number in _SIGNALS],
        "blocked signals": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "timers": lambda: [signal.getitimer(which)[0] > 0 for which in _TIMERS],
        "the locale": lambda: locale.setlocale(locale.LC_ALL),
        "limits": lambda: [resource.getrlimit(which) for which in _LIMITS],
        "its priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
        "sys.path": lambda: list(sys.path),
        "sys.argv": lambda: list(sys.argv),
        "standard streams": lambda: [*map(id, (sys.stdin, sys.stdout, sys.stderr)), *map(_file, range(3))],
        "hooks of the interpreter": lambda: [sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile()],
        "logging": lambda: [root.level, root.disabled, logging.root.manager.disable, list(root.handlers)],
        "warnings": lambda: [list(warnings.filters), warnings.showwarning],
        "the time-out of sockets": socket.getdefaulttimeout,
        "the limit of recursion": sys.getrecursionlimit,
        "the context of decimal": lambda: repr(decimal.getcontext()),
        "the garbage collector": lambda: [gc.isenabled(), gc.get_threshold()],
        _THREADS: lambda: _threads(own_threads),
        "child processes": _children,
        _MODULES: lambda: len(sys.modules),
    }
    return {name: look() for name, look in seen.items()}


def first_difference(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """The name of what is different; None if nothing is."""
    allowed = {_MODULES} if before[_MODULES] == after[_MODULES] else {_MODULES, *_WITH_IMPORTS}
    for name in (name for name in before if name not in allowed):
        # One thread fewer is none: those of libraries end when they have had nothing to do for a while.
        if after[name] - before[name] if name == _THREADS else after[name] != before[name]:
            return name
    return None


def difference_since(before: dict[str, Any], own_threads: Collection[threading.Thread] = ()) -> str | None:
    """What of this process is different now from what it was `before`; None if nothing is."""
    last = time.monotonic() + _THREAD_END_S
    while (changed := first_difference(before, process_state(own_threads))) == _THREADS and time.monotonic() < last:
        time.sleep(0.001)  # nothing tells of the end of a thread
    return changed


def _file(descriptor: int) -> tuple[int, int] | None:
    """Which file, or pipe, it is; None: it is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _threads(own: Collection[threading.Thread]) -> frozenset[int]:
    """The system's numbers of those that are not ours."""
    try:
        every = set(map(int, os.listdir("/proc/self/task")))
    except FileNotFoundError:
        every = {thread.native_id or 0 for thread in threading.enumerate()}
    return frozenset(every - {thread.native_id for thread in own})


def _children() -> str:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""
