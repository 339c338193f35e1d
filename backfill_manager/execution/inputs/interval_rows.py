"""Counts the rows of a table in each of many intervals: by the values in the files that intervals share, without Spark, or by
one Spark job over the whole range.

For Spark the intervals are cut into bins of one width, so that the join is by equality: each row has one bin, and meets the few
intervals that touch it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError

from backfill_manager.clock import EPOCH, UTC, from_micros, micros
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.interval import Interval
from backfill_manager.execution.interval import ends as interval_ends
from backfill_manager.planning.data.data_gaps import Axis, lie_across, rows_in
from backfill_manager.store.data_tables.file_values import counted_in_files
from backfill_manager.store.data_tables.table_log import TableLog
from backfill_manager.store.sql_guard import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.store.data_tables.places import Numbers

MAX_BINS: Final = 200_000
_DAY_US: Final = 86_400_000_000
_log = logging.getLogger(__name__)


def rows_by_values(path: str, log: TableLog, axis: Axis) -> Numbers | None:
    """Of the files whose bounds do not tell, the column is read. None: it can't be, or not so much."""
    if log.why_unknown is not None:
        return None
    across = lie_across(axis, log.files)
    shared = log.files.where(across)
    read = counted_in_files(path, shared, log.name_in_files, log.kind, axis.starts, axis.ends)
    return None if read is None else rows_in(axis, log.files.where(~across)).n + read


def rows_counter(spark: SparkSession) -> Callable[[str, str, str, Axis], Numbers | None]:
    """`queries.data_gaps.CountRows` of this session. What Spark can't read is None, with the reason in the log."""

    def count(path: str, column: str, kind: str, axis: Axis) -> Numbers | None:
        from pyspark.errors import PySparkException

        try:
            return _counted(spark, path, column, kind, axis)
        except (PySparkException, Py4JJavaError) as error:
            _log.warning("%s: its rows can't be counted: %s", path, one_line(error))
            return None

    return count


def axis_along(starts: Numbers, ends: Numbers, kind: str, timezone: str) -> Axis:
    """Intervals, in epoch micros, along a column of this type: a date and a reading of a wall clock are those of this zone."""
    if kind == "timestamp" or not kind:
        return Axis(starts, ends)
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    texts = [interval_ends(Interval(from_micros(first), from_micros(last)), timezone)[kind] for first, last in pairs]
    sides = np.array([[_reading(text) for text in pair] for pair in texts], np.int64).reshape(-1, 2)
    return Axis(sides[:, 0], sides[:, 1])


def _reading(text: str) -> int:
    """An end of an interval in a column's own type, as micros of that reading."""
    return micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


def _counted(spark: SparkSession, path: str, column: str, kind: str, axis: Axis) -> Numbers:
    from pyspark.sql import functions as F

    counted = np.zeros(len(axis.starts), np.int64)
    lengths = (axis.ends - axis.starts)[axis.ends > axis.starts]
    if not len(lengths):
        return counted
    low, high = int(axis.starts[0]), int(axis.ends[-1])
    width = max(int(lengths.min()), -(-(high - low) // MAX_BINS))
    bins = spark.createDataFrame(_bins(axis, low, width))
    value = F.col(identifier(column))
    rows = spark.read.format("delta").load(path).where((value >= _literal(low, kind)) & (value < _literal(high, kind)))
    rows = rows.select(_micros(value, kind).alias("at")).withColumn("bin", F.expr(f"(at - {low}L) DIV {width}L"))
    met = rows.join(F.broadcast(bins), "bin").where("at >= first AND at < past")
    for number, n in ((one["number"], one["count"]) for one in met.groupBy("number").count().collect()):
        counted[number] = n
    return counted


def _bins(axis: Axis, low: int, width: int) -> pa.Table:
    """Each interval once for every bin that it touches."""
    number = np.flatnonzero(axis.ends > axis.starts)
    first, last = (axis.starts[number] - low) // width, (axis.ends[number] - 1 - low) // width
    n = last - first + 1
    within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    again = np.repeat(number, n)
    return pa.table({
        "bin": np.repeat(first, n) + within, "number": again, "first": axis.starts[again], "past": axis.ends[again],
    })  # fmt: skip


def _micros(value: Any, kind: str) -> Any:
    from pyspark.sql import functions as F

    if kind == "date":
        return F.unix_date(value).cast("bigint") * _DAY_US
    # A reading of a clock as if it were UTC's, which the session's zone is.
    return F.unix_micros(value.cast("timestamp"))


def _literal(at: int, kind: str) -> Any:
    from pyspark.sql import functions as F

    reading = EPOCH + timedelta(microseconds=at)
    if kind == "date":
        return F.lit(reading.date())
    text = reading.replace(tzinfo=None).isoformat(timespec="microseconds")
    return F.lit(f"{text}Z").cast("timestamp") if kind == "timestamp" else F.lit(text).cast("timestamp_ntz")
