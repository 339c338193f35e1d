"""The command line as a process, and which modules it has loaded when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("pyspark", "py4j", "delta", "pyarrow", "pandas", "numpy", "structlog", "pendulum", "fastapi")
SAY_WHAT_IS_LOADED = """
import sys
from backfill_manager.cli import main
code = main(sys.argv[1:])
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def process(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
