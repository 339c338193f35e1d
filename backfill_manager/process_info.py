"""Identifies this machine, and tells whether a process of it is alive."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import uuid
from pathlib import Path


@functools.cache
def this_machine() -> str:
    """Identifies this machine (on Linux also its boot and process namespace): a pid means nothing elsewhere."""
    parts = [socket.gethostname(), f"{uuid.getnode():x}"]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        if os.path.lexists(path):
            parts.append(os.readlink(path) if Path(path).is_symlink() else Path(path).read_text().strip())
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]


def is_process_alive(pid: int) -> bool:
    """Whether there is such a process. A zombie does not count where there is /proc to recognise it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, PermissionError) as error:
        return isinstance(error, PermissionError)
    except OverflowError:
        return False  # no process has such a number
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def manager_id(own_id: str) -> str:
    """The id of a manager that runs on this machine."""
    return f"{own_id}.{this_machine()}"


def ran_here(manager: str) -> bool:
    return manager.rpartition(".")[2] == this_machine()


def is_gone(manager: str, pid: int) -> bool:
    """Whether this manager was a process of this machine that has ended."""
    return ran_here(manager) and not is_process_alive(pid)
