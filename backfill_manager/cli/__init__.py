"""`bfm`: an index of commands, one file per noun. Each asks `views/` or `requests/` and draws the answer.

May import everything below. What `dags list`, `backfill list` and `backfill create` import must stay light: no pyspark,
pyarrow, pandas or structlog at module level, here or in what is imported from here (a test looks at `sys.modules`).
"""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    from backfill_manager.cli.app import run

    return run(argv)
