"""File descriptors of this process: how many it may have, and whether enough of them are free.

A manager that serves pages shares its descriptors with its clients. So the soft limit is raised when it starts,
connections get a part of them only (`api.connections`), and a tick begins when there are enough for its commit.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

# A hard limit may be a thousand million: programs that close every possible descriptor would take minutes.
MAX_LIMIT: Final = 65_536
COMMIT_DESCRIPTORS: Final = 48  # files of tables and logs that are open at once, with a margin
NO_DESCRIPTOR_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)


def limit() -> int:
    """How many this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit towards the hard one, where that is allowed; returns what it is then. Never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = MAX_LIMIT if hard == resource.RLIM_INFINITY else min(hard, MAX_LIMIT)
    for target in (highest, 10_240):  # macOS says "no limit", and allows no more than OPEN_MAX
        if soft == resource.RLIM_INFINITY or soft >= target:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        except (OSError, ValueError):
            continue
        break
    return limit()


def are_free(n: int = COMMIT_DESCRIPTORS) -> bool:
    """True when `n` more could be opened now. (A process with a lower limit than that is left to try.)"""
    opened: list[int] = []
    try:
        for _ in range(min(n, limit() // 4)):
            opened.append(os.dup(opened[-1]) if opened else os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR_ERRNOS:
            raise
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True
