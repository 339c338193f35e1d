"""File descriptors of this process: how many it may have, and whether enough of them are free.

A manager that serves pages shares its descriptors with whoever connects. So the soft limit is raised when it starts,
connections get a part of them only (`api.connections`), and a tick begins when there are enough for its commit.
"""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

MOST: Final = (
    65_536  # a hard limit may be a thousand million: programs that close every possible one would take minutes
)
FOR_A_COMMIT: Final = 48  # files of tables and logs that are open at once, with a margin
NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)


def limit() -> int:
    """How many this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit towards the hard one, where that is allowed; returns what it is then. Never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    for most in (wanted, 10_240):  # macOS says "no limit", and allows no more than OPEN_MAX
        if soft == resource.RLIM_INFINITY or soft >= most:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            continue
        break
    return limit()


def are_free(n: int = FOR_A_COMMIT) -> bool:
    """True when `n` more could be opened now. (A process with a lower limit than that is left to try.)"""
    opened: list[int] = []
    try:
        for _ in range(min(n, limit() // 4)):
            opened.append(os.dup(opened[-1]) if opened else os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in NONE_LEFT:
            raise
        return False
    finally:
        for one in opened:
            os.close(one)
    return True
