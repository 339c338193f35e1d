"""A process that waits for a line before it runs its code: time to put it into a cgroup, say."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Start = Callable[[str], "subprocess.Popen[str]"]  # the fixture `start`


def release(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Lets it run to its end: exit code, standard output and error."""
    out, err = process.communicate("go\n", timeout=60)
    return process.returncode, out, err
