"""`bfm`, the command line: `commands/` (a file for each noun) over `backend/` (local tables or a server) and `render/`.

May import everything below. What `dags list`, `backfill list` and `backfill create` import must stay light: no pyspark,
pyarrow, pandas or structlog at module level, here or in what is imported from here (a test looks at `sys.modules`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    if list(sys.argv[1:] if argv is None else argv) == ["--version"]:  # without the 100 ms that Typer and rich take
        from importlib.metadata import version

        print(f"backfill_manager {version('backfill-manager')}")
        return 0
    from backfill_manager.cli.app import run

    return run(argv)
