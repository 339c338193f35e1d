"""Processes of this machine: which machine that is, and whether one of them is still there."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import uuid
from pathlib import Path


@functools.cache
def this_machine() -> str:
    """Tells this machine (and, on Linux, this boot and process namespace) from others: a pid means nothing elsewhere."""
    parts = [socket.gethostname(), f"{uuid.getnode():x}"]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        if os.path.lexists(path):
            parts.append(os.readlink(path) if Path(path).is_symlink() else Path(path).read_text().strip())
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:8]


def is_process_alive(pid: int) -> bool:
    """True while there is such a process. One that has ended and was not fetched by its parent yet does not count; where
    there is no /proc to tell, it does."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, PermissionError) as error:
        return isinstance(error, PermissionError)
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def manager_id(of: str) -> str:
    """The id of a manager that runs here: one of its own, and this machine."""
    return f"{of}.{this_machine()}"


def ran_here(manager: str) -> bool:
    return manager.rpartition(".")[2] == this_machine()


def is_gone(manager: str, pid: int) -> bool:
    """True when this manager was a process of this very machine that is not there any more."""
    return ran_here(manager) and not is_process_alive(pid)
