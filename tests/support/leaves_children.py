"""A process that starts others, tells their numbers, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any, NoReturn


def start_children() -> list[int]:
    """One that a signal to the session reaches, one that has left it and knows nothing of its parent, and one that nobody in its
    session is the parent of."""
    plain = subprocess.Popen(["sleep", "100000"])
    bare = subprocess.Popen(["sleep", "100000"], env={}, start_new_session=True)
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            signal.pause()
        os._exit(0)
    return [plain.pid, bare.pid, int(os.read(read, 20))]


def run(_: dict[str, Any], descriptors: list[int]) -> NoReturn:
    os.write(descriptors[0], json.dumps([os.getppid(), os.getpid(), *start_children()]).encode())
    while True:
        signal.pause()
