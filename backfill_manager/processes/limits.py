"""Limits that a process of other people's code gives itself before it begins: memory, priority, and who goes first when the
machine's memory runs out. Time-outs are the manager's (execution/executor.py).

The memory of a process *and of what it starts* is limited by the manager, with a cgroup of its own (`processes.memory_cgroup`).
Where there is none, each process has the limit for itself: RLIMIT_DATA, which counts what is reserved, used or not.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from typing import Final

from backfill_manager.humanise import memory

CGROUP_PREFIX: Final = "bfm-task-"  # of the names of our cgroups
MAX_NICE: Final = 19
_SPARE_MEMORY: Final = 32 << 20  # to report that the memory was used up
_FIRST_TO_GO: Final = "1000"


def apply_in_child(memory_mb: int | None, nice: int) -> None:
    """In a forked process, before it runs other people's code. `nice` is added to what it has; `memory_mb` is what it may take
    beyond what it uses now, and nothing happens to it where the process is in a cgroup of ours."""
    lower_priority(nice)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # When the machine's memory is used up, Linux ends this process before the manager; children inherit it.
    _write("/proc/self/oom_score_adj", _FIRST_TO_GO)
    if memory_mb is not None and not is_in_memory_cgroup():
        limit_memory(memory_mb)


def went_over(memory_mb: int) -> str:
    """What to say of a try that took more: `went over its memory of 2 GB`."""
    return f"went over its memory of {memory(memory_mb)}"


def lower_priority(by: int) -> None:
    """Of all threads of this process. Where Linux has autogroups, nice values count only among the processes of one session, and
    a process that has a session of its own (`setsid`) lowers that of the session too."""
    if by <= 0:
        return
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + by, MAX_NICE)
    with suppress(FileNotFoundError):  # macOS, where the process has one value
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.setpriority(os.PRIO_PROCESS, int(thread), nice)
    if os.getpriority(os.PRIO_PROCESS, 0) < nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    if os.getsid(0) == os.getpid():
        _write("/proc/self/autogroup", str(nice))


def limit_memory(megabytes: int) -> None:
    """That many more than are in use now; more is a `MemoryError`. `lift_memory_limit` gives a little, to report it."""
    most = _memory_in_use() + (megabytes << 20)
    hardest = most + _SPARE_MEMORY
    _, limit = resource.getrlimit(resource.RLIMIT_DATA)
    if limit != resource.RLIM_INFINITY:
        hardest = min(limit, hardest)
    resource.setrlimit(resource.RLIMIT_DATA, (min(most, hardest), hardest))


def lift_memory_limit() -> None:
    _, hardest = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hardest, hardest))


def is_in_memory_cgroup() -> bool:
    """Whether this process is in a cgroup that `memory_cgroup` made for it."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            return any(f"/{CGROUP_PREFIX}" in line for line in file)
    except FileNotFoundError:
        return False


def _memory_in_use() -> int:
    """What RLIMIT_DATA counts, in bytes; where the system does not tell (macOS), nothing."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(b"VmData:"))
    except FileNotFoundError:
        return 0


def _write(path: str, text: str) -> None:
    with suppress(OSError):  # Linux only, and not in every container
        file = os.open(path, os.O_WRONLY)  # every process does this; no text layer
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
