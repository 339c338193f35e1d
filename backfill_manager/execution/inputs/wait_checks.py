"""Looks for what tasks wait for: rows of a table, by its log where that says enough; a file; what a query says.

Each function gives for every look whether it is there, or, as a text, why nobody can say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from backfill_manager.clock import micros
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.error_format import one_line, unbound_parameter
from backfill_manager.execution.inputs.interval_rows import axis_along, rows_by_values, rows_counter
from backfill_manager.execution.interval import instant_literal
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.spark.catalog import with_new_tables
from backfill_manager.planning.backfills.plan_waits import CheckWaits
from backfill_manager.planning.data.data_gaps import Axis, rows_in
from backfill_manager.planning.data.wait_conditions import WaitCheck
from backfill_manager.schemas.waits import ConditionWait, FileWait, RowsWait
from backfill_manager.store.data_tables.file_exists import file_exists
from backfill_manager.store.data_tables.table_log import TableLog, read_table_log
from backfill_manager.store.sql_guard import spark_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_INTERVAL: Final = "the run has no interval"
MAX_FILES_OF_PLAN: Final = 100
_THREADS: Final = 8  # that look for files of a plan
Found = dict[WaitCheck, bool | str]


def look_for_file(look: WaitCheck) -> bool | str:
    if look.path is None:
        return NO_INTERVAL
    try:
        return file_exists(look.path)
    except OSError as error:
        return one_line(error)


def look_for_rows(spark: SparkSession, looks: Sequence[WaitCheck], *, may_count: bool = True) -> Found:
    """Of one table and column. Where its log does not tell enough, the column is read; if that is too much, Spark counts, or
    these looks are left out."""
    first = looks[0].wait
    assert isinstance(first, RowsWait)
    table, column = first.rows, first.time_column
    of_intervals = [look for look in looks if look.start is not None and look.end is not None and look.start < look.end]
    found: Found = dict.fromkeys(set(looks).difference(of_intervals), NO_INTERVAL)
    location = _location(spark, table)
    if location is None:
        return found | dict.fromkeys(of_intervals, "table not found")
    log = read_table_log(location, column, None, None)
    if problem := log.problem_of(column):
        return found | dict.fromkeys(of_intervals, "table not found" if log.is_gone else problem)
    for apart in _apart(of_intervals):
        found |= _counted(spark, location, log, apart, may_count)
    return found


def wait_checks_of_plan(spark: SparkSession) -> CheckWaits:
    """What a dry run can look for in passing: rows that a table's log tells of, some files, and no condition."""

    def check_waits(looks: Sequence[WaitCheck]) -> Found:
        found: Found = {}
        by_table: dict[tuple[str, str], list[WaitCheck]] = defaultdict(list)
        for look in looks:
            if isinstance(look.wait, RowsWait):
                by_table[look.wait.rows, look.wait.time_column].append(look)
        for of_table in by_table.values():
            try:
                found |= look_for_rows(spark, of_table, may_count=False)
            except Exception as error:  # noqa: BLE001 - the plan says so
                found |= dict.fromkeys(of_table, one_line(error))
        files = [look for look in looks if isinstance(look.wait, FileWait)][:MAX_FILES_OF_PLAN]
        with ThreadPoolExecutor(_THREADS) as threads:
            return found | dict(zip(files, threads.map(look_for_file, files), strict=True))

    return check_waits


def look_for_condition(spark: SparkSession, look: WaitCheck) -> bool | str:
    """By a query alone: Spark's parser takes nothing else here. `InvalidInput` for one that does not give true or false."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, NullType

    assert isinstance(look.wait, ConditionWait)
    (query,) = spark_statements(look.wait.condition)
    spark._jsparkSession.sessionState().sqlParser().parseQuery(query)
    instants = {"interval_start": look.start, "interval_end": look.end, "logical_date": look.start}
    values: dict[str, Any] = {name: F.expr(instant_literal(at)) for name, at in instants.items() if at is not None}
    if look.partition_key is not None:
        values["partition_key"] = F.lit(look.partition_key)
    try:
        answer = with_new_tables(spark, lambda: spark.sql(query, args=values))
    except AnalysisException as error:
        name = unbound_parameter(error)
        known = ", ".join(f":{each}" for each in sorted(values)) or "nothing"
        return f"it uses :{name}, which the run does not have; it has {known}"
    kinds = [field.dataType for field in answer.schema.fields]
    if len(kinds) != 1 or not isinstance(kinds[0], BooleanType | NullType):
        given = ", ".join(kind.simpleString() for kind in kinds)
        return f"it gives {given}, where one value, true or false, is wanted, such as count(*) > 0"
    rows = answer.limit(2).collect()
    return "it gives more than one row" if len(rows) > 1 else bool(rows and rows[0][0])


def _counted(
    spark: SparkSession, path: str, log: TableLog, looks: Sequence[WaitCheck], may_count: bool
) -> Found:  # fmt: skip
    """Of intervals in order, none of which overlaps another. One in which the column has no value (an hour that a clock
    repeats, of a column of dates any but that of midnight) has no row to wait for."""
    wanted = np.array([look.wait.at_least for look in looks if isinstance(look.wait, RowsWait)], np.int64)
    axis = _axis(log, looks)
    wanted[axis.starts >= axis.ends] = 0
    rows = rows_in(axis, log.files)
    is_known = rows.is_exact & (log.why_unknown is None)
    n = np.where(log.why_unknown is None, rows.n, 0)
    found: Found = dict(zip(looks, (n >= wanted).tolist(), strict=True))
    open_ = [look for look, is_open in zip(looks, ((n < wanted) & ~is_known).tolist(), strict=True) if is_open]
    if not open_:
        return found
    axis = _axis(log, open_)
    counted = rows_by_values(path, log, axis)
    if counted is None and not may_count:
        return {look: result for look, result in found.items() if look not in open_}
    if counted is None:
        counted = rows_counter(spark)(path, log.column, log.kind, axis)
    for number, look in enumerate(open_):
        assert isinstance(look.wait, RowsWait)
        unknown = "its rows can't be counted, as the manager's log says"
        found[look] = unknown if counted is None else bool(counted[number] >= look.wait.at_least)
    return found


def _axis(log: TableLog, looks: Sequence[WaitCheck]) -> Axis:
    sides = np.array([(micros(look.start), micros(look.end)) for look in looks if look.start and look.end], np.int64)
    return axis_along(sides[:, 0], sides[:, 1], log.kind, looks[0].timezone)


def _location(spark: SparkSession, table: str) -> str | None:
    """Where a Delta table lies; None if there is none. `InvalidInput` for another kind of table."""
    if "/" in table:
        return table
    output = OutputTable(spark, table)
    try:
        return output.folder(spark)
    except InvalidInput:
        raise InvalidInput("it is no Delta table; wait for a condition instead") from None


def _apart(looks: Sequence[WaitCheck]) -> Iterator[list[WaitCheck]]:
    """In groups of one time zone and in order, in which none overlaps another."""
    groups: dict[str, list[list[WaitCheck]]] = defaultdict(list)
    for look in sorted(looks, key=lambda look: (look.start or 0, look.end or 0)):
        of_zone = groups[look.timezone]
        group = next((one for one in of_zone if one[-1].end <= look.start), None)  # type: ignore[operator]
        if group is None:
            of_zone.append(group := [])
        group.append(look)
    for of_zone in groups.values():
        yield from of_zone
