"""The parent of a fork server (Linux): it waits for the server's end, and ends what that has left behind.

    manager ─► parent ─► fork server ─► task process ─► what it starts

The processes of a server that was killed end with it (PR_SET_PDEATHSIG); what they had started comes below the parent, as the
nearest living ancestor that takes it (PR_SET_CHILD_SUBREAPER), and is killed. Then the parent ends in the same way as the
server. It holds the server's socket, so the manager hears of the end when nothing is left. SIGTERM makes it kill the server.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_exit = os._exit


def go_below_a_parent() -> None:
    """What is called after this runs in a child of this process. Nothing happens where the system has no such parents, or no
    process left."""
    take_orphans()
    if _libc is None:
        return
    own = os.getpid()
    try:
        child = os.fork()
    except OSError:
        return
    if child:
        _wait_for(child)
    end_with_parent(own)
    os.setsid()  # who ends the session of the server leaves the parent
    take_orphans()


def take_orphans() -> None:
    """What processes below this one leave behind comes below it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """This process, a child of that one, is killed when that ends; also if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        _exit(1)


def set_name(name: str) -> None:
    """As lists of processes show it."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def open_list_of_children() -> int | None:
    """For `kill_children`; None where the system has no such list."""
    try:
        return os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except FileNotFoundError:
        return None


def kill_children(list_of_children: int | None, but: Collection[int] = ()) -> None:
    """And what comes below this process when they have ended. Those of another user (`sudo`) may not be ended, and go on."""
    others = set[int]()
    while list_of_children is not None:
        os.lseek(list_of_children, 0, os.SEEK_SET)
        below = b"".join(iter(lambda: os.read(list_of_children, 1 << 16), b""))
        orphans = set(map(int, below.split())) - set(but) - others
        if not orphans:
            return
        for orphan in orphans:
            try:
                os.kill(orphan, signal.SIGKILL)
            except PermissionError:
                others.add(orphan)
                continue
            except ProcessLookupError:
                pass
            with suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def _wait_for(server: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, lambda *_: os.kill(server, signal.SIGKILL))
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)  # until it is waited for, nobody else has its number
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        kill_children(open_list_of_children())
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if -code != signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        _exit(code if code >= 0 else 1)


def _prctl(option: int, value: int) -> None:
    if _libc is not None:
        _libc.prctl(option, value, 0, 0, 0)
