"""Keeps the threads of the manager on one core for as long as every core of the machine is busy (Linux).

A commit to the state is some four hundred hand-overs between threads of the Delta library. A thread that wakes another on a core
where a task computes waits until the kernel takes that core from the task, 4 ms with a tick of 250 Hz, whatever their priorities;
one that wakes another on its own core does not wait. So a commit takes twenty times as long when every core has a task that
computes, and as long as ever when all the threads share a core. As long as any core is idle, they may use all.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from backfill_manager.logging import get_logger
from backfill_manager.service import Service

log = get_logger("core_affinity")

INTERVAL_S: Final = 1.0
BUSY_BELOW: Final = 0.5  # idle cores, on average since the last look
FREE_FROM: Final = 0.75
# The cores with which this process was started.
_ALLOWED: Final = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset[int]()


class CoreTimes(NamedTuple):
    """What a core has done since the machine started, in units of 10 ms."""

    urgent: int  # computed with the normal priority or a higher one, or in the kernel
    idle: int
    total: int


def core_times(stat: str) -> dict[int, CoreTimes]:
    """By core, of the text of /proc/stat."""
    found = {}
    for name, *rest in map(str.split, stat.splitlines()):
        if name.startswith("cpu") and name != "cpu":
            # what follows the eighth is counted in `user` as well
            user, _nice, system, idle, waiting, *others = map(int, rest[:8])
            times = CoreTimes(user + system + sum(others), idle + waiting, sum(map(int, rest[:8])))
            found[int(name.removeprefix("cpu"))] = times
    return found


class CoreAffinity(Service):
    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        super().__init__("core affinity")
        self._stat = stat
        self._before: dict[int, CoreTimes] = {}
        self._core: int | None = None  # on which this process is kept

    def run_once(self) -> float | None:
        if len(_ALLOWED) < 2:
            return None
        try:
            self._look()
        except OSError as error:  # a container may forbid it, or take cores away; it is no reason to end the manager
            log.warning("the manager's threads are not kept on one core while all are busy", reason=str(error))
            return None
        return INTERVAL_S

    def _look(self) -> None:
        times = core_times(self._stat.read_text())
        before, self._before = self._before, times
        cores = sorted(_ALLOWED & times.keys() & before.keys())
        if cores and all(times[core].total > before[core].total for core in cores):
            self._keep(cores, before, times)

    def stop(self) -> None:
        super().stop()
        if self._core is not None:
            self._core = None
            with suppress(OSError):
                _restrict(_ALLOWED)

    def _keep(self, cores: list[int], before: dict[int, CoreTimes], times: dict[int, CoreTimes]) -> None:
        def share(core: int, of: str) -> float:
            passed = times[core].total - before[core].total
            return float(getattr(times[core], of) - getattr(before[core], of)) / passed

        idle = sum(share(core, "idle") for core in cores)
        if self._core is None and idle < BUSY_BELOW:
            # tasks have a lower priority: they give way
            self._core = min(cores, key=lambda core: share(core, "urgent"))
        elif self._core is not None and idle >= FREE_FROM:
            self._core = None
            _restrict(_ALLOWED)
        # Again each time: a thread may have been started meanwhile by one that was not restricted yet.
        if self._core is not None:
            _restrict({self._core})


def lift(pid: int) -> None:
    """For a process that this one has started: it may use every core that this one may."""
    if _ALLOWED:
        with suppress(OSError):  # it has ended, or it may not: then it has the cores that this thread has
            os.sched_setaffinity(pid, _ALLOWED)


def _restrict(cores: frozenset[int] | set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
