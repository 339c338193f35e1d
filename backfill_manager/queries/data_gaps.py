"""What lies in the tables that a DAG writes against its runs: the state's records and the tables' logs, brought together for
`planning.data.data_gaps`, which decides.

- A DAG's output tables are those that its present tasks have written with the column that tells the rows of an interval
  (`ctx.write(..., time_column=...)`). One with a name lies where it was written last.
- The inputs of an output are the Delta tables that the tasks which wrote it have read, with the column that the DAG declares
  (`reads=`), that those who write it have named, or that is named as the output's. A table without one is read whole, and left
  out.
- Where the bounds of files do not tell the rows of an interval, the one column is read (`store/data_tables/file_values.py`); what
  can't be read so is counted where there is a Spark session (`CountRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import EPOCH, format_instant, from_micros, micros
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.execution.inputs.interval_rows import axis_along, rows_by_values
from backfill_manager.model import states
from backfill_manager.model.records import DagRow, TableAccess
from backfill_manager.planning.data.data_gaps import NONE, Access, Axis, Input, Judged, Output, Runs, judge
from backfill_manager.planning.data.gap_kinds import FindWanted, Wanted
from backfill_manager.planning.data.interval_overlap import micros_of
from backfill_manager.planning.data.written_intervals import REVERT, without_reverted
from backfill_manager.planning.runs.timeline import CURRENT_RUNS
from backfill_manager.schemas import errors
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Condition, Store
from backfill_manager.store.data_tables.places import TIME_TYPES, Flags, Numbers
from backfill_manager.store.data_tables.table_log import TableLog, read_table_log

CountRows = Callable[[str, str, str, Axis], Numbers | None]
"""Rows in each interval of an axis, of the table at a path, by its column and that column's type; None if it can't be read."""

MAX_INTERVALS: Final = 100_000  # that are looked at together
_COLUMNS: Final = (
    "dag_id", "run_id", "task_id", "launch", "access", "at", "table_name", "table_path", "table_id", "version", "rows_written",
    "interval_start", "interval_end", "interval_column",
)  # fmt: skip


@dataclass(frozen=True)
class TableGaps:
    """Of one output table."""

    table: str
    column: str
    problem: str | None = None  # why nothing, or nothing more, is known of it
    judged: Judged | None = None
    run_ids: Sequence[str | None] = ()  # that wrote each interval last, by the records


@dataclass(frozen=True)
class GapReport:
    dag: DagSpec
    starts: Numbers  # of the intervals, in epoch micros
    ends: Numbers
    runs: Runs
    tables: tuple[TableGaps, ...]

    @property
    def is_missing(self) -> Flags:
        """Intervals in which data are missing from a table."""
        return self._any(lambda one: one.is_missing)

    @property
    def is_outdated(self) -> Flags:
        return self._any(lambda one: one.flags["outdated"])

    def _any(self, of: Callable[[Judged], Flags]) -> Flags:
        found = np.zeros(len(self.starts), np.bool_)
        for table in self.tables:
            if table.judged is not None:
                found |= of(table.judged)
        return found

    def to_json_document(self) -> list[dict[str, Any]]:
        """One row for each finding: table by table, in the order of intervals; first what holds of the whole table."""
        return [row for table in self.tables for row in self._rows(table)]

    def _rows(self, table: TableGaps) -> list[dict[str, Any]]:
        base = {"dag_id": self.dag.dag_id, "table": table.table}
        rows = []
        if table.problem is not None:
            nothing = dict.fromkeys(("interval_start", "interval_end", "rows", "usual_rows", "run_id"))
            rows.append({**base, "finding": "unknown", "because": table.problem, **nothing})
        for gap in table.judged.gaps() if table.judged is not None else ():
            rows.append({
                **base, "finding": gap.finding, "because": gap.because,
                "interval_start": format_instant(from_micros(int(self.starts[gap.interval]))),
                "interval_end": format_instant(from_micros(int(self.ends[gap.interval]))),
                "rows": gap.rows, "usual_rows": gap.usual_rows, "run_id": table.run_ids[gap.interval],
            })  # fmt: skip
        return rows


def find_gaps(store: Store, dag: DagSpec, start: datetime, end: datetime, count: CountRows | None = None) -> GapReport:
    """Of the intervals that begin in `[start, end]`."""
    grid = _Grid.of(dag, start, end)
    own = grid.accesses(store, [Condition("dag_id", "=", dag.dag_id)])
    own = own.filter(
        pc.is_in(own["task_id"].cast(pa.string()), pa.array([task.task_id for task in dag.tasks], pa.string()))
    )
    runs = grid.runs(store, dag.dag_id)
    search = _Search(store, dag, grid, own, runs, count)
    return GapReport(dag, grid.starts, grid.ends, runs, tuple(search.table(path) for path in search.outputs))


def dags_with_tables(store: Store) -> list[str]:
    """Ids of the active DAGs of which a task has ever written a table by interval."""
    where = [
        Condition("access", "=", "write"), Condition("succeeded", "=", True), Condition("interval_column", "not_null"),
    ]  # fmt: skip
    found = store.read_arrow(TableAccess.TABLE, ("dag_id",), where)
    writers = set(found["dag_id"].cast(pa.string()).unique().to_pylist())
    rows = store.read(DagRow, [Condition("is_active", "=", True)], order_by=("dag_id",)) if writers else []
    return [row.dag_id for row in rows if row.dag_id in writers]


def wanted_by_data(store: Store, count: CountRows | None) -> FindWanted:
    """For the plans that go by data. `InvalidInput` where an output table says nothing."""

    def find(command: CreateBackfill, dag: DagSpec) -> Wanted:
        assert command.start_date is not None and command.end_date is not None, "the range is filled in"
        report = find_gaps(store, dag, command.start_date, command.end_date, count)
        if not report.tables:
            raise errors.NO_TABLES_BY_DATA(dag_id=dag.dag_id)
        for table in report.tables:
            if table.judged is None:
                raise errors.TABLE_NOT_JUDGED(table=table.table, problem=table.problem)
        wanted = report.is_outdated if command.kind == "outdated" else report.is_missing
        return Wanted(report.starts, report.ends, wanted)

    return find


@dataclass(frozen=True)
class _Last:
    """The last of some accesses in each interval."""

    version: Numbers
    rows: Numbers
    at: Numbers
    ids: Sequence[str | None]
    id_of: Numbers  # into `ids`
    run_ids: Sequence[str]
    run_of: Numbers  # into `run_ids`

    def as_access(self, log: TableLog) -> Access:
        others = np.array([one is not None and one != log.table_id for one in self.ids] + [False])
        return Access(self.version, others[self.id_of], self.rows)


@dataclass(frozen=True)
class _Grid:
    """The intervals of the schedule, and what the state has recorded for them."""

    dag: DagSpec
    starts: Numbers
    ends: Numbers
    _axes: dict[str, Axis] = field(default_factory=dict)

    @classmethod
    def of(cls, dag: DagSpec, start: datetime, end: datetime) -> _Grid:
        found = list(islice(timetable_of(dag, start).intervals(start, end), MAX_INTERVALS + 1))
        if len(found) > MAX_INTERVALS:
            raise errors.TOO_MANY_TO_COMPARE(max=f"{MAX_INTERVALS:,}")
        sides = np.array([(micros(first), micros(last)) for first, last in found], np.int64).reshape(-1, 2)
        return cls(dag, sides[:, 0], sides[:, 1])

    def axis(self, kind: str) -> Axis:
        """The intervals along a column of this type."""
        if kind not in self._axes:
            self._axes[kind] = axis_along(self.starts, self.ends, kind, self.dag.timezone)
        return self._axes[kind]

    def runs(self, store: Store, dag_id: str) -> Runs:
        where = [Condition("dag_id", "=", dag_id), *CURRENT_RUNS, *self._in_range()]
        columns = ("state", "is_partial", "interval_start", "interval_end", "reverted_at", "restored_run_id")
        found = store.read_arrow("dag_run", columns, where).sort_by("interval_start")
        state, is_restored = found["state"].cast(pa.string()), pc.is_valid(found["restored_run_id"])
        live = found.filter(pc.is_in(state, pa.array(sorted(states.RUN_LIVE))))
        is_whole = pc.invert(pc.fill_null(found["is_partial"].cast(pa.bool_()), False))
        counts = pc.or_(pc.and_(is_whole, pc.is_null(found["reverted_at"])), is_restored)
        is_done = pc.or_(pc.equal(state, states.SUCCESS), is_restored)
        return Runs(self._painted(found, pc.and_(counts, is_done)), self._covered(live))

    def accesses(self, store: Store, where: Sequence[Condition]) -> pa.Table:
        """What successful tries have recorded, in the order of time; not of runs that were reverted."""
        where = [*where, Condition("succeeded", "=", True), *self._in_range()]
        found = store.read_arrow(TableAccess.TABLE, _COLUMNS, where)
        order = [("at", "ascending"), ("run_id", "ascending"), ("launch", "ascending"), ("version", "descending")]
        return without_reverted(found).sort_by(order)

    def _in_range(self) -> list[Condition]:
        if not len(self.starts):
            return [Condition("interval_end", "<", EPOCH), Condition("interval_start", ">", EPOCH)]
        first, last = from_micros(int(self.starts[0])), from_micros(int(self.ends[-1]))
        return [Condition("interval_end", ">", first), Condition("interval_start", "<", last)]

    def last(self, accesses: pa.Table) -> _Last:
        """`accesses` as `accesses` gives them: what comes later replaces what came before; of one try, the lowest version
        stays."""
        interval, row = self._cells(accesses)
        ids = accesses["table_id"].cast(pa.string()).combine_chunks().dictionary_encode()
        run_ids = accesses["run_id"].cast(pa.string()).combine_chunks().dictionary_encode()

        def painted(values: pa.ChunkedArray | pa.Array, nothing: int) -> Numbers:
            cells = np.full(len(self.starts), nothing, np.int64)
            cells[interval] = np.asarray(pc.fill_null(values.cast(pa.int64()), nothing), np.int64)[row]
            return cells

        return _Last(
            painted(accesses["version"], NONE), painted(accesses["rows_written"], NONE),
            painted(accesses["at"].cast(pa.timestamp("us", tz="UTC")), NONE), ids.dictionary.to_pylist(),
            painted(ids.indices, -1), run_ids.dictionary.to_pylist(), painted(run_ids.indices, -1),
        )  # fmt: skip

    def _painted(self, rows: pa.Table, values: pa.ChunkedArray) -> Flags:
        """The value of the last of the rows of each interval."""
        flags = np.zeros(len(self.starts), np.bool_)
        interval, row = self._cells(rows)
        flags[interval] = np.asarray(values, np.bool_)[row]
        return flags

    def _covered(self, rows: pa.Table) -> Flags:
        flags = np.zeros(len(self.starts), np.bool_)
        flags[self._cells(rows)[0]] = True
        return flags

    def _cells(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        """Which intervals lie within those of the rows: the numbers of both, one pair for each."""
        if not rows.num_rows:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing
        first, last = micros_of(rows["interval_start"]), micros_of(rows["interval_end"])
        low, high = np.searchsorted(self.starts, first, "left"), np.searchsorted(self.ends, last, "right")
        n = np.maximum(high - low, 0)
        row = np.repeat(np.arange(rows.num_rows), n)
        within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        return np.repeat(low, n) + within, row


class _Search:
    """The tables of one DAG."""

    def __init__(
        self, store: Store, dag: DagSpec, grid: _Grid, own: pa.Table, runs: Runs, count: CountRows | None
    ) -> None:  # fmt: skip
        self._store, self._dag, self._grid, self._own, self._runs, self._count = store, dag, grid, own, runs, count
        lease = store.lease()
        self._state_id = None if lease is None else lease.state_id
        ever = _with_column(store, [Condition("dag_id", "=", dag.dag_id)])
        tasks = {task.task_id for task in dag.tasks}
        self._names = {**_names(ever), **_names(own.to_pylist())}
        paths = tuple(sorted({one["table_path"] for one in ever} | set(own["table_path"].drop_null().to_pylist())))
        there = [Condition("table_path", "in", paths)]
        self._writes = grid.accesses(store, [Condition("access", "in", ("write", REVERT)), *there]) if paths else own
        # by path: as the last write that named one
        self._columns = {
            one["table_path"]: one["interval_column"] for one in (_with_column(store, there) if paths else ())
        }
        self._logs: dict[tuple[str, str], TableLog] = {}
        places = {self._name(one["table_path"]): one["table_path"] for one in ever}  # of one that has moved the last
        written = {self._name(one["table_path"]) for one in ever if one["task_id"] in tasks}
        self.outputs = [places[name] for name in sorted(written)]

    def table(self, path: str) -> TableGaps:
        column, name = self._columns[path], self._name(path)
        writes = self._of_table(self._own, path, "write")
        last = self._grid.last(writes)
        log = self._log(path, column, last.version)
        problem = log.problem_of(column)
        table = TableGaps(name, column, problem, run_ids=[last.run_ids[i] if i >= 0 else None for i in last.run_of])
        if problem is not None and not log.is_gone:
            return table
        output = Output(
            name, log, self._grid.axis(log.kind), last.as_access(log),
            self._grid.last(self._of_table(self._writes, path, "write")).at != NONE, self._inputs(path, writes, column),
        )  # fmt: skip
        judged = judge(self._runs, output)
        if not log.is_gone and bool((~judged.rows.is_exact & (judged.rows.n == 0)).any()):
            counted = self._counted(path, log, output.axis)
            judged = judged if counted is None else judge(self._runs, replace(output, counted=counted))
        return replace(table, judged=judged)

    def _counted(self, path: str, log: TableLog, axis: Axis) -> Numbers | None:
        """Rows in each interval by their values, of the files whose bounds do not tell; None if there is no way to know them."""
        counted = rows_by_values(path, log, axis)
        if counted is None and self._count is not None:
            return self._count(path, log.column, log.kind, axis)
        return counted

    def _inputs(self, output: str, writes: pa.Table, column: str) -> list[Input]:
        found = []
        for task_id in sorted(set(writes["task_id"].to_pylist())):
            of_task = self._own.filter(pc.equal(self._own["task_id"].cast(pa.string()), task_id))
            last_try = self._grid.last(of_task).at
            read = pc.equal(of_task["access"].cast(pa.string()), "read")
            delta = of_task.filter(pc.and_(read, pc.is_valid(of_task["version"])))
            for path in sorted({path for path in delta["table_path"].to_pylist() if path and path != output}):
                last = self._grid.last(self._of_table(delta, path, "read"))
                # A try before the last read it, and the last did not.
                version = np.where(last.at == last_try, last.version, NONE)
                known = self._input(path, column, version)
                if known is not None:
                    axis = self._grid.axis(known.kind)
                    found.append(Input(self._name(path), known, axis, replace(last, version=version).as_access(known)))
        return found

    def _input(self, path: str, column: str, version: Numbers) -> TableLog | None:
        """None for a table that is read whole, as far as anybody knows."""
        declared = {read.table.casefold(): read.time_column for read in self._dag.reads}
        named = declared.get(self._name(path).casefold()) or self._columns.get(path)
        log = self._log(path, named or column, version)
        if log.problem is None and log.kind not in TIME_TYPES:
            return None if named is None else replace(log, problem=log.problem_of(named))
        return log

    def _log(self, path: str, column: str, versions: Numbers) -> TableLog:
        since = int(versions[versions != NONE].min(initial=2**62))
        known = self._logs.get((path, column))
        if known is None or (since < known.changes_from - 1 and since < known.version):
            known = read_table_log(path, column, None if since == 2**62 else since, self._state_id)
            self._logs[path, column] = known
        return known

    def _name(self, path: str) -> str:
        return self._names.get(path) or path

    @staticmethod
    def _of_table(accesses: pa.Table, path: str, access: str) -> pa.Table:
        chosen = pc.and_(
            pc.equal(accesses["table_path"].cast(pa.string()), path),
            pc.equal(accesses["access"].cast(pa.string()), access),
        )
        return accesses.filter(chosen)


def _with_column(store: Store, where: Sequence[Condition]) -> list[dict[str, Any]]:
    """Writes that have named the column of their interval, whenever: one for each task, table and column, the last one last."""
    columns = ("task_id", "table_path", "table_name", "interval_column")
    where = [
        *where, Condition("access", "=", "write"), Condition("succeeded", "=", True), Condition("table_path", "not_null"),
        Condition("interval_column", "not_null"), Condition("interval_start", "not_null"),
    ]  # fmt: skip
    found = store.read_arrow(TableAccess.TABLE, (*columns, "at"), where)
    last = found.group_by(list(columns)).aggregate([("at", "max")]).sort_by("at_max")
    rows: list[dict[str, Any]] = last.to_pylist()
    return rows


def _names(accesses: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {one["table_path"]: one["table_name"] for one in accesses if one["table_path"] and one["table_name"]}
