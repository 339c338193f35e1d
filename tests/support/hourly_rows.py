"""Tasks that write some hours of their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

HOURS = "SELECT timestamp_seconds({start} + 3600 * id) AS at, {value} AS value FROM range({n})"


def hours(ctx: Any, value: int = 1, n: int = 3, shift: int = 0) -> DataFrame:
    """The first `n` hours of the run's interval."""
    start = int(ctx.interval.start.timestamp()) + 3600 * shift
    frame: DataFrame = ctx.spark.sql(HOURS.format(start=start, value=value, n=n))
    return frame


def writes(table: str, value: int = 1, **how: Any) -> Callable[[Any], Any]:
    return lambda ctx: ctx.write(hours(ctx, value), table, **({"time_column": "at"} | how))


def values(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["value"] for row in spark.table(table).collect())
