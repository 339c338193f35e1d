"""Ends the driver with the process that started it.

Under spark-submit the driver is a child of the JVM, and SIGTERM or SIGKILL to that JVM does not reach the driver: it would
continue without Spark, and could still commit through delta-rs. So it has the kernel send a signal (Linux), and polls
(everywhere) whether its parent, and any other process that it depends on, is alive. If one is gone, it sends SIGTERM to
itself, as if it were stopped; if it is still there after a while, it exits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from typing import Final

from backfill_manager.process_info import is_process_alive

PR_SET_PDEATHSIG: Final = 1
POLL_INTERVAL_S: Final = 0.5
EXIT_TIMEOUT_S: Final = 40.0  # more than the manager takes to drain
LOST_EXIT_CODE: Final = 143  # as if SIGTERM had ended it; not 0, so that whatever watches over us starts us again

# What the kernel sends when the parent dies. Not SIGTERM itself: it comes once for each thread of a dying JVM, which has the same
# process id until its last one is gone, and a second SIGTERM would end this process before it has shut down.
DEATH_OF_PARENT: Final = signal.SIGUSR1

_parent: int | None = None  # with which this process is to end
_kernel_reported_end = False  # by the kernel


def end_with_parent(*, also_with: int | None = None, exit_timeout_s: float = EXIT_TIMEOUT_S) -> threading.Thread:
    """Has this process end when its parent does, or the process `also_with`; returns the watching thread. Call it early: a
    parent that was lost before is not missed."""
    global _parent
    _parent = parent = os.getppid()
    has_kernel_signal = _request_kernel_signal()
    watch = threading.Thread(
        target=_watch, args=(parent, has_kernel_signal, also_with, exit_timeout_s), name="parent watchdog", daemon=True
    )
    watch.start()
    return watch


def parent_has_ended() -> bool:
    """Whether the process with which this one is to end has ended: then SIGTERM comes from the watchdog, not from a person."""
    return _kernel_reported_end or (_parent is not None and os.getppid() != _parent)


def _request_kernel_signal() -> bool:
    """Linux sends a signal at the moment in which the parent dies; elsewhere polling must do."""
    if sys.platform != "linux":
        return False
    signal.signal(DEATH_OF_PARENT, _on_death_of_parent)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_PDEATHSIG, DEATH_OF_PARENT, 0, 0, 0) == 0)


def _on_death_of_parent(_number: int, _frame: object) -> None:
    global _kernel_reported_end
    if not _kernel_reported_end:
        _kernel_reported_end = True
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(parent: int, has_kernel_signal: bool, also_with: int | None, exit_timeout_s: float) -> None:
    never = threading.Event()
    while os.getppid() == parent and (also_with is None or is_process_alive(also_with)):
        never.wait(POLL_INTERVAL_S)
    if os.getppid() == parent or not has_kernel_signal:  # a second SIGTERM would end the process at once
        os.kill(os.getpid(), signal.SIGTERM)
    never.wait(exit_timeout_s)
    os._exit(LOST_EXIT_CODE)
