"""`bfm`, the command line: `commands/` (a file for each noun) over `backend/` (local tables or a server) and `render/`.

May import everything below. What `dags list`, `backfill list` and `backfill create` import must stay light: no pyspark,
pyarrow, pandas or structlog at module level, here or in what is imported from here (a test looks at `sys.modules`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

GC_THRESHOLD: Final = gc.get_threshold()  # for a command that lives long


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed (`>&-`): a file that is opened next would be in its place
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends
    if list(sys.argv[1:] if argv is None else argv) == ["--version"]:  # without the 100 ms that Typer and rich take
        from importlib.metadata import version

        with suppress(OSError):  # a full disk, or nobody reads: said below
            print(f"backfill_manager {version('backfill-manager')}", flush=True)
            return 0
    os.environ.setdefault("RUST_LOG", "error")  # delta-rs warns in five lines of what our message says in one
    gc.set_threshold(200_000)  # imports make much and drop little: looking for that took a third of a light command
    from backfill_manager.cli.app import run

    try:
        return run(argv)
    finally:
        gc.freeze()  # the process ends: Python need not look through everything once more
