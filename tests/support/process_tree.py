"""Processes below a process, by /proc."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Any


def signal_all(process: subprocess.Popen[Any], number: int) -> None:
    """It and all processes below it: of a manager its JVM and its tasks."""
    for pid in (process.pid, *processes_below(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def processes_below(pid: int) -> list[int]:
    """All of them, parents first."""
    found: list[int] = []
    try:
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *processes_below(child)]
    except FileNotFoundError:  # it has just ended
        pass
    return found


def command_of(pid: int) -> str:
    """With its arguments, separated by blanks; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except FileNotFoundError:
        return ""
