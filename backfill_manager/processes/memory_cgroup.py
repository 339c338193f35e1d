"""A cgroup for one try: what its process and all that it starts may take of the machine's memory, together (Linux).

Made and removed by the manager, below the cgroup that the manager is in itself, so its own limits go on to hold for all. Where:

- cgroup v1: below the manager's `memory` cgroup, where it may write there (as root, usually).
- cgroup v2: where systemd has delegated the manager's cgroup, or the one above it, with the memory controller
  (`Delegate=memory`). A cgroup that has others below it may hold no processes (the kernel's rule), so the processes of the
  manager's cgroup move into one of their own below it, unless `DelegateSubgroup=` has put them there.

Whether it works is found out once, with a process that is put into one. What a process had before it is added does not count.
"""

from __future__ import annotations

import itertools
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.process_info import is_process_alive, this_machine
from backfill_manager.processes.limits import CGROUP_PREFIX

_OWN_GROUP: Final = "bfm-manager"  # of the manager's own processes, in v2
_END_TIMEOUT_S: Final = 5.0  # for processes that were killed
_UNLIMITED_V1: Final = 1 << 62  # the kernel writes the largest number of pages
_MAX_ROUNDS: Final = 20  # of killing, while processes start others


@dataclass(frozen=True)
class _Place:
    """A folder of the cgroup file system in which ours are made."""

    folder: Path
    is_v2: bool


@dataclass(frozen=True)
class MemoryLimit:
    """In bytes. Files that the kernel can drop from memory count as free."""

    most: int
    free: int


class MemoryCgroup:
    """The cgroup of one try. Used by the manager; the process needs to know nothing of it."""

    def __init__(self, folder: Path, is_v2: bool) -> None:
        self._folder, self._is_v2 = folder, is_v2
        self._went_over = False

    @classmethod
    def create(cls, name: str, memory_mb: int) -> MemoryCgroup | None:
        """None where no cgroup can be made: then the process has to limit itself (`limits.apply_in_child`)."""
        place = _usable_place()
        return None if place is None else _make(place, name, memory_mb)

    def add(self, pid: int) -> bool:
        """With all that it starts from now on. False when it has ended, or may not be moved."""
        try:
            _write(self._folder / "cgroup.procs", pid)
        except OSError:
            return False
        return True

    def went_over(self) -> bool:
        """Whether the kernel has ended a process in it because the limit was reached; also after `remove`."""
        if not self._went_over:
            events = self._folder / ("memory.events" if self._is_v2 else "memory.oom_control")
            with suppress(OSError):
                self._went_over = _numbers(events).get("oom_kill", 0) > 0
        return self._went_over

    def remove(self) -> None:
        """Ends what is left in it. What can't be removed now is when a manager starts the next time."""
        self.went_over()
        self._end_all()
        with suppress(FileNotFoundError):  # it was removed before
            for folder, _, _ in os.walk(self._folder, topdown=False):  # a task may have made others below
                with suppress(OSError):
                    os.rmdir(folder)

    def _end_all(self) -> None:
        for _ in range(_MAX_ROUNDS):
            pids = self._pids()
            if not pids:
                return
            if self._is_v2:
                with suppress(OSError):  # not in older kernels
                    _write(self._folder / "cgroup.kill", 1)
            handles = {pid: _handle(pid) for pid in pids}
            still_here = self._pids()  # a pid that has a handle now is not given to another process
            for pid in still_here & pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except PermissionError:  # of another user: `sudo`
                    still_here.remove(pid)
                except ProcessLookupError:
                    pass
            for pid, handle in handles.items():
                if handle is not None:
                    if pid in still_here:
                        select.select([handle], [], [], _END_TIMEOUT_S)
                    os.close(handle)

    def _pids(self) -> set[int]:
        """Of those below it too."""
        found = set[int]()
        for folder, _, _ in os.walk(self._folder):
            with suppress(OSError):
                found |= set(map(int, (Path(folder) / "cgroup.procs").read_text().split()))
        return found


def remove_leftovers() -> None:
    """Those of managers that were killed, where this one would make its own: with what still runs in them."""
    for place in _places():
        with suppress(OSError):
            for folder in list(place.folder.iterdir()):
                match = re.fullmatch(rf"{CGROUP_PREFIX}{this_machine()}\.(\d+)\.([0-9a-f]+)-.*", folder.name)
                if match is None or match[2] == _OWN_TOKEN:
                    continue
                if int(match[1]) == os.getpid() or not is_process_alive(int(match[1])):
                    MemoryCgroup(folder, place.is_v2).remove()


_OWN_TOKEN: Final = os.urandom(4).hex()  # an earlier manager may have had this one's pid
_numbered = itertools.count(1)
_found: list[_Place | None] = []
_finding = threading.Lock()


def _usable_place() -> _Place | None:
    """None if tries can't be limited by cgroups here; found out at the first call."""
    with _finding:
        if not _found:
            remove_leftovers()
            _found.append(next((place for place in _places() if _is_usable(place)), None))
        return _found[0]


def _is_usable(place: _Place) -> bool:
    try:
        if place.is_v2:
            _use_below(place.folder)
    except OSError:
        return False
    cgroup = _make(place, "trial", 64)
    if cgroup is None:
        return False
    waits = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    try:
        with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
            return cgroup.add(process.pid) and process.pid in cgroup._pids() and not cgroup.went_over()
    finally:
        cgroup.remove()


def _make(place: _Place, name: str, memory_mb: int) -> MemoryCgroup | None:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100]
    folder = place.folder / f"{CGROUP_PREFIX}{this_machine()}.{os.getpid()}.{_OWN_TOKEN}-{next(_numbered)}-{plain}"
    cgroup = MemoryCgroup(folder, place.is_v2)
    most = memory_mb << 20
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        if place.is_v2:
            _write(folder / "memory.max", most)
            with suppress(FileNotFoundError):  # a kernel that does not count swap
                _write(folder / "memory.swap.max", 0)
            # All of the try ends, or the rest would go on without what is missing.
            _write(folder / "memory.oom.group", 1)
        else:
            _write(folder / "memory.limit_in_bytes", most)
            with suppress(OSError):  # a kernel that does not count swap
                _write(folder / "memory.memsw.limit_in_bytes", most)
        events = folder / ("memory.events" if place.is_v2 else "memory.oom_control")
        if "oom_kill" in _numbers(events):  # older kernels do not tell
            return cgroup
    except OSError:
        pass
    cgroup.remove()
    return None


def memory_limit() -> MemoryLimit | None:
    """Of the cgroups that this process is in, such as a container's, the one that leaves it least; None: none has a limit."""
    own = [(one, top, is_v2) for folder, top, is_v2 in _own_cgroups() for one in (folder, *folder.parents)]
    limits = (_limit(one, is_v2) for one, top, is_v2 in own if one.is_relative_to(top))
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.free, default=None)


def _limit(folder: Path, is_v2: bool) -> MemoryLimit | None:
    names = ("memory.max", "memory.current") if is_v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    try:
        (most,), (used,) = (_words(folder / name) for name in names)
        if most == "max" or int(most) >= _UNLIMITED_V1:
            return None
        cache = _numbers(folder / "memory.stat")["inactive_file" if is_v2 else "total_inactive_file"]
    except (OSError, ValueError, KeyError):  # the root has none of these files
        return None
    return MemoryLimit(int(most), max(0, int(most) - max(0, int(used) - cache)))


def _places() -> Iterator[_Place]:
    """Where cgroups might be made."""
    for folder, _, is_v2 in _own_cgroups():
        if not is_v2:
            yield _Place(folder, False)
            continue
        # The one above: where DelegateSubgroup= has put the manager into its own, or it has done so itself.
        for one in (folder.parent, folder):
            if _is_delegated(one) and "memory" in _words(one / "cgroup.controllers"):
                yield _Place(one, True)


def _own_cgroups() -> Iterator[tuple[Path, Path, bool]]:
    """The cgroup that this process is in, where its file system is mounted, and whether it is v2, which has the controllers that
    v1 does not use."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return
    for number, controllers, path in own:
        is_v2 = number == "0"
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        for fields in mounts:
            root, mount_point, kind = fields[3], fields[4], fields[fields.index("-") + 1]
            is_this = kind == "cgroup2" if is_v2 else kind == "cgroup" and "memory" in fields[-1].split(",")
            if is_this and f"{path}/".startswith(f"{root.rstrip('/')}/"):
                yield Path(mount_point + path[len(root.rstrip("/")) :]), Path(mount_point), is_v2


def _use_below(folder: Path) -> None:
    """Gives the memory controller to what is below it, as systemd leaves to whom it delegates. Processes that are in it itself
    move into a cgroup of their own first."""
    if "memory" in _words(folder / "cgroup.subtree_control"):
        return
    own = folder / _OWN_GROUP
    for pid in _words(folder / "cgroup.procs"):
        own.mkdir(exist_ok=True)
        with suppress(ProcessLookupError):
            _write(own / "cgroup.procs", int(pid))
    (folder / "cgroup.subtree_control").write_text("+memory")


def _is_delegated(folder: Path) -> bool:
    """As systemd marks it: what is below it is ours to divide."""
    if sys.platform != "linux":
        return False
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _handle(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None if it has, or the kernel is older than that."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _numbers(file: Path) -> dict[str, int]:
    """Of lines such as `oom_kill 1`."""
    words = file.read_text().split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=False)}


def _write(file: Path, value: int) -> None:
    file.write_text(str(value))
