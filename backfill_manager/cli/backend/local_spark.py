"""A Spark session for the few commands that need one: a dry run without a manager, and every command on a state in
`catalog.schema`, which only Spark can open."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.model.records import Pool
from backfill_manager.store.uri import is_local

if TYPE_CHECKING:
    from backfill_manager.cli.context import CliContext


@contextmanager
def local_spark(context: CliContext) -> Iterator[Any]:
    """For reading only: the folder of the warehouse, which Spark creates at the first query of any table, is removed again."""
    warehouse = context.settings.warehouse
    folder = Path(warehouse)
    was_there = not is_local(warehouse) or folder.exists()
    with _quiet_stderr(unless=context.debug):
        spark = start_spark(context)
        try:
            yield spark
        finally:
            spark.stop()
            if not was_there and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def start_spark(context: CliContext) -> Any:
    """A SparkSession as the settings say. It ends with the process, unless it is stopped before."""
    from backfill_manager.execution.spark.session import build_session

    settings = context.settings
    pools = [Pool(name=p.name, slots=p.slots, weight=p.weight, min_share=p.min_share) for p in settings.pools]
    with _quiet_stderr(unless=context.debug):
        return build_session(
            pools=pools, app_name="bfm", master=settings.spark.master, warehouse=settings.warehouse,
            conf=settings.spark.conf,
        )  # fmt: skip


@contextmanager
def _quiet_stderr(*, unless: bool) -> Iterator[None]:
    """Hides what Spark's JVM prints on standard error when it starts."""
    if unless:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as away:
        os.dup2(away.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
