"""The driver's life hangs on the process that started it.

Under spark-submit the driver is a child of the JVM, and SIGTERM or SIGKILL to that JVM does not reach the driver: it
would live on without Spark, and could still commit through delta-rs. So it asks the kernel to be told (Linux), and
looks for itself (everywhere) whether its parent, and whoever else it depends on, still lives. If one is lost, it is
told in the way that it knows, by SIGTERM, as if a person had stopped it; if it is still there after a while, it ends.
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
LOOK_EVERY_S: Final = 0.5
TIME_TO_END_S: Final = 40.0  # more than the manager takes to drain
LOST_EXIT_CODE: Final = 143  # as if SIGTERM had ended it; not 0, so that whatever watches over us starts us again

# What the kernel sends when the parent dies. Not SIGTERM itself: it comes once for each thread of a dying JVM, which has the same
# process id until its last one is gone, and a second SIGTERM would end this process before it has ended well.
DEATH_OF_PARENT: Final = signal.SIGUSR1

_parent: int | None = None  # with whom this process is to end
_told_of_its_end = False  # by the kernel


def end_with_parent(*, also_with: int | None = None, time_to_end_s: float = TIME_TO_END_S) -> threading.Thread:
    """From now on this process ends when its parent does, or the process `also_with`; returns the watching thread.

    Call it early: a parent that was lost before is not missed.
    """
    global _parent
    _parent = parent = os.getppid()
    told_by_kernel = _ask_kernel()
    watch = threading.Thread(
        target=_watch, args=(parent, told_by_kernel, also_with, time_to_end_s), name="lifeline", daemon=True
    )
    watch.start()
    return watch


def parent_has_ended() -> bool:
    """True when the process with which this one is to end (under spark-submit: the JVM) has ended: the SIGTERM that we were
    sent tells of that, and is no wish of a person."""
    return _told_of_its_end or (_parent is not None and os.getppid() != _parent)


def _ask_kernel() -> bool:
    """Linux sends a signal in the moment in which the parent dies; elsewhere the look every half second must do."""
    if sys.platform != "linux":
        return False
    signal.signal(DEATH_OF_PARENT, _on_death_of_parent)
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_PDEATHSIG, DEATH_OF_PARENT, 0, 0, 0) == 0)


def _on_death_of_parent(_number: int, _frame: object) -> None:
    global _told_of_its_end
    if not _told_of_its_end:
        _told_of_its_end = True
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(parent: int, told_by_kernel: bool, also_with: int | None, time_to_end_s: float) -> None:
    never = threading.Event()
    while os.getppid() == parent and (also_with is None or is_process_alive(also_with)):
        never.wait(LOOK_EVERY_S)
    if os.getppid() == parent or not told_by_kernel:  # told twice, a process would not take the time to end well
        os.kill(os.getpid(), signal.SIGTERM)
    never.wait(time_to_end_s)
    os._exit(LOST_EXIT_CODE)
