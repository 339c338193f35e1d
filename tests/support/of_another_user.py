"""Processes of another user, as `sudo` starts them, which may not be ended; and those that may not read all files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

NOBODY: Final = 65534
NAMELESS: Final = 54321
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


def bfm_without_rights(
    *args: str, cwd: Path, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command line of a process that may not read what its modes forbid, which root may."""
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    return _bfm(prefix, args, cwd, dict(environ or {}))


def bfm_without_home(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """One of a user with a number alone, as containers have them."""
    may_read = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return _bfm(["setpriv", f"--reuid={NAMELESS}", f"--regid={NAMELESS}", "--clear-groups", *may_read], args, cwd, {})


def _bfm(
    prefix: list[str], args: Sequence[str], cwd: Path, environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("BFM_", "XDG_")) and name != "HOME"
    }
    path = os.pathsep.join(one for one in sys.path if one)
    return subprocess.run(
        [*prefix, sys.executable, "-m", "backfill_manager", *args], cwd=cwd, stdin=subprocess.DEVNULL, text=True,
        env={**kept, "PYTHONPATH": path, **environ}, capture_output=True, check=False,
    )  # fmt: skip
