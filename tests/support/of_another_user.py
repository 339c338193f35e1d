"""What a process leaves behind that may not be ended: one of another user, as `sudo` starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any, Final, NoReturn

import pytest

NOBODY: Final = 65534
ONLY_AS_ROOT: Final = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root starts processes of another user"
)


def run(_: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """In a process of a fork server: leaves one that ends with the other end of its descriptor, the first."""
    subprocess.Popen(["cat"], stdin=descriptors[0], stdout=subprocess.DEVNULL, user=NOBODY, start_new_session=True)
    os._exit(0)


def without_leave_to_kill(code: str) -> str:
    """What Python code prints that may end processes of its own user only, as all but root may."""
    command = ["setpriv", "--bounding-set=-kill", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}  # these tests' too
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout
