"""Where a table that a DAG reads lies, and what its files hold by its log: for estimates, no query is run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.store.data_tables.file_statistics import file_statistics
from backfill_manager.value_rules import table_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def input_files(spark: SparkSession) -> Callable[[str, str | None], pa.Table | None]:
    """Gives `file_statistics` of a table by its name or path, and None for one that isn't there, or isn't Delta.
    Each table is looked at once, so take a new one for each plan."""

    @cache
    def files_of(table: str, time_column: str | None) -> pa.Table | None:
        location = location_of(spark, table)
        return None if location is None else file_statistics(location, time_column)

    return files_of


def location_of(spark: SparkSession, table: str) -> str | None:
    """The path or URI of a Delta table. As for `ctx.write` a name with a `/` in it is one already, whether it is there or not.
    None if there is no such table."""
    from pyspark.errors import PySparkException

    if "/" in table:
        return table_path(table)
    try:
        folder = OutputTable(spark, table).folder(spark)
    except (PySparkException, InvalidInput):  # no name at all; a view; a table of another format
        return None
    return None if folder is None else table_path(folder)
