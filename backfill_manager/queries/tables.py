"""Tables that tasks have read and written, and what depends on what: by the accesses that every try records.

A task counts as writer or reader of a table if it was one in the newest version of its DAG in which it ran. Of failed tries only
the reads count: they show what the task needs. A table has one key: its name in the catalog, else its path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import EPOCH, format_instant
from backfill_manager.errors import NotFound
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.model.records import TableAccess
from backfill_manager.planning.data.written_intervals import REVERT, without_reverted
from backfill_manager.queries.dags import known_dag
from backfill_manager.queries.documents import document
from backfill_manager.schemas import resources
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.value_rules import table_key, table_keys

_SIMILAR_LENGTH: Final = (0.75, 1.34)  # times that of another interval: months differ, and days when clocks change
_TASK: Final = ("dag_id", "task_id")
_PART: Final = (*_TASK, "interval_start", "interval_end", "partition_key")  # of a table, that a task writes
_ACCESS: Final = ("run_id", "at", "version", "access")
_COLUMNS: Final = (*_TASK, "access", "succeeded", "dag_version", "table_name", "table_path", "version", "at")


def list_tables(store: Store) -> list[dict[str, Any]]:
    """In the order of their names."""
    found = []
    for key, uses in _by_table(_uses(store)).items():
        writes = [use for use in uses if use["access"] == "write"]
        changes = [use for use in uses if use["access"] in ("write", REVERT)]
        last = max(changes, key=lambda use: use["at"], default=None)
        placed = [use for use in changes or uses if use["table_path"]]  # it may have moved since the first of them
        path = max(placed, key=lambda use: use["at"])["table_path"] if placed else None
        found.append({
            "table": key, "path": path,
            "written_by": _tasks(writes), "read_by": _tasks(use for use in uses if use["access"] == "read"),
            "version": last and last["version"], "written_at": last and format_instant(last["at"]),
        })  # fmt: skip
    return sorted(found, key=lambda one: one["table"])


def find_table(store: Store, name: str) -> dict[str, Any]:
    """By its name in the catalog or its path, as people write them. `NotFound` when nothing has read or written it."""
    tables = list_tables(store)
    for wanted in table_keys(name):
        for one in tables:
            if wanted in (table_key(one["table"]), table_key(one["path"] or "")):
                return one
    raise NotFound("table", name, [one["table"] for one in tables], hint="see_tables")


class LastWrite(NamedTuple):
    """Of one interval or partition of a table: who has written it last. They sort by time."""

    at: int  # microseconds since 1970
    dag_id: str
    run_id: str
    task_id: str
    row: int
    revert: int | None  # the row of the revert after it


class LastWrites(Sequence[dict[str, Any]]):
    """The newest write first, as documents that are made when they are looked at: a table may have intervals without number."""

    def __init__(self, rows: pa.Table, writes: list[LastWrite], reverted: Container[tuple[str, str]]) -> None:
        self.writes = sorted(writes, reverse=True)
        self._rows, self._reverted = rows, reverted

    def __len__(self) -> int:
        return len(self.writes)

    def __getitem__(self, place: Any) -> Any:
        found = self.documents(self.writes[place] if isinstance(place, slice) else [self.writes[place]])
        return found if isinstance(place, slice) else found[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.documents(self.writes))

    def documents(self, writes: Sequence[LastWrite]) -> list[dict[str, Any]]:
        shown = self._rows.take(pa.array([write.row for write in writes], pa.int64())).to_pylist()
        for row, write in zip(shown, writes, strict=True):
            row["reverted_run_id"] = None
            if write.revert is not None:  # the table is as that left it
                revert = self._rows.slice(write.revert, 1).to_pylist()[0]
                row |= {"version": revert["version"], "at": revert["at"], "reverted_run_id": revert["run_id"]}
                if (row["dag_id"], row["run_id"]) in self._reverted:  # there was none before
                    row |= {"rows_written": None, "bytes_written": None}
        return [document(resources.TableInterval.model_fields, None, **row) for row in shown]


def list_table_intervals(store: Store, name: str) -> LastWrites:
    """Who has written which part of a table last: one document for each task and interval or partition."""
    table = find_table(store, name)
    column, value = ("table_path", table["path"]) if table["path"] else ("table_name", table["table"])
    where = [
        Condition(column, "=", value),
        Condition("access", "in", ("write", REVERT)),
        Condition("succeeded", "=", True),
    ]
    names = [name for name in resources.TableInterval.model_fields if name != "reverted_run_id"]
    rows = store.read_arrow(TableAccess.TABLE, (*names, "access"), where).sort_by("at")
    instants = {name: rows[name].cast(pa.int64()) for name in ("interval_start", "interval_end", "at")}
    parts, accesses = (
        list(zip(*(instants.get(name, rows[name]).to_pylist() for name in columns), strict=True))
        for columns in (_PART, _ACCESS)
    )
    both = list(zip(parts, accesses, strict=True))
    reverted = {(dag_id, run_id) for (dag_id, *_), (run_id, _, _, access) in both if access == REVERT}
    newest: dict[tuple[Any, ...], LastWrite] = {}
    reverts: dict[tuple[Any, ...], tuple[int, int]] = {}
    for n, (part, (run_id, at, version, access)) in enumerate(both):
        dag_id, task_id, *_ = part
        if access == REVERT:
            reverts[part] = at, n
        before = newest.get(part)
        if before is not None and (dag_id, run_id) in reverted:
            continue
        # A try that found its rows there, written by the one before it, knows neither version nor rows.
        if before is None or version is not None or before.run_id != run_id:
            newest[part] = LastWrite(at, dag_id, run_id, task_id, n, None)
    writes = [_after(write, *reverts.get(part, (0, None))) for part, write in newest.items()]
    return LastWrites(rows, writes, reverted)


def _after(write: LastWrite, at: int, revert: int | None) -> LastWrite:
    """The same after the revert of a later one, if there was one after it."""
    return write if revert is None or at < write.at else write._replace(at=at, revert=revert)


def rows_before(store: Store, launch: TaskLaunch, table: str, number: int, unit: str) -> list[int]:
    """Rows that the task of this launch wrote into a table for each of the `number` intervals before its own (`unit`
    "intervals"), or for those of the `number` days before ("days"), the newest first; of an interval that was written again the
    last time. Intervals of another length do not count, such as those of runs that took many at once."""
    interval = launch.interval
    if interval is None:
        return []
    where = matching(dag_id=launch.ti.dag_id, task_id=launch.ti.task_id, access=("write", REVERT), succeeded=True)
    where += matching(**{"table_path" if "/" in table else "table_name": table})
    where.append(Condition("interval_end", "<=", interval.start))
    length = interval.end - interval.start

    def since(start: datetime) -> list[int]:
        return _rows_by_interval(store, [*where, Condition("interval_start", ">=", start)], length)

    if unit == "days":
        return since(interval.start - timedelta(days=number))
    near = 4 * number * length  # mostly it has so many there: its history, which may be long, is not read
    if near < interval.start - EPOCH and len(found := since(interval.start - near)) >= number:
        return found[:number]
    return _rows_by_interval(store, where, length)[:number]


def _rows_by_interval(store: Store, where: Sequence[Condition], length: timedelta) -> list[int]:
    """For each interval of about this length the rows that the last try wrote; the newest interval first."""
    columns = ("interval_start", "interval_end", "dag_id", "run_id", "access", "launch", "at", "rows_written")
    last: dict[datetime, tuple[datetime, tuple[Any, ...]]] = {}  # when an interval was written last, and by which try
    rows = Counter[tuple[Any, ...]]()  # of each try and interval
    found = without_reverted(store.read_arrow(TableAccess.TABLE, columns, where))
    for one in found.filter(pc.is_valid(found["rows_written"])).to_pylist():
        start = one["interval_start"]
        if _SIMILAR_LENGTH[0] * length <= one["interval_end"] - start <= _SIMILAR_LENGTH[1] * length:
            write = (start, one["run_id"], one["launch"])
            rows[write] += one["rows_written"]
            last[start] = max(last.get(start, (one["at"], write)), (one["at"], write))
    return [rows[last[start][1]] for start in sorted(last, reverse=True)]


def lineage(store: Store, *, dag_id: str | None = None, table: str | None = None) -> dict[str, Any]:
    """What a DAG or a table is made of, and what is made of it, over all DAGs: `edges` between tables and tasks, each with the
    direction in which it lies."""
    uses = [use for use in _uses(store) if use["access"] != REVERT]
    if table is not None:
        start = {find_table(store, table)["table"]}
        above = below = start
        edges = set[tuple[str, ...]]()
    else:
        assert dag_id is not None
        known_dag(store, dag_id)
        own = [use for use in uses if use["dag_id"] == dag_id]
        above = {_key(use) for use in own if use["access"] == "read"}
        below = {_key(use) for use in own if use["access"] == "write"}
        edges = {_edge(use, "own") for use in own}
    known = {edge[1:] for edge in edges}
    for direction, into, out_of, tables in (
        ("upstream", "write", "read", above),
        ("downstream", "read", "write", below),
    ):
        seen, next_tables = set(tables), set(tables)
        while next_tables:
            tasks = {_task(use) for use in uses if use["access"] == into and _key(use) in next_tables}
            near = [
                use for use in uses
                if _task(use) in tasks and (use["access"] == out_of or (use["access"] == into and _key(use) in next_tables))
            ]  # fmt: skip
            edges |= {edge for use in near if (edge := _edge(use, direction))[1:] not in known}
            next_tables = {_key(use) for use in near if use["access"] == out_of} - seen
            seen |= next_tables
    names = ("direction", "table", "dag_id", "task_id", "access")
    return {
        "of": dag_id if dag_id is not None else next(iter(start)),
        "edges": [{**dict(zip(names, edge, strict=True)), "task": ".".join(edge[2:4])} for edge in sorted(edges)],
    }


def _uses(store: Store) -> list[dict[str, Any]]:
    """The newest access of each kind of each task to each table, in the newest version of its DAG in which it ran."""
    rows = store.read_arrow(TableAccess.TABLE, _COLUMNS)
    rows = rows.filter(pc.or_(rows["succeeded"], pc.equal(rows["access"], "read")))
    newest = rows.group_by(_TASK).aggregate([("dag_version", "max")])
    rows = rows.join(newest, list(_TASK), join_type="inner")
    rows = rows.filter(pc.equal(rows["dag_version"], rows["dag_version_max"]))
    grouped = rows.group_by([*_TASK, "access", "table_name", "table_path"])
    found = grouped.aggregate([("version", "max"), ("at", "max")]).rename_columns(
        {"version_max": "version", "at_max": "at"}
    )
    return _with_names(found)


def _with_names(found: pa.Table) -> list[dict[str, Any]]:
    """One table may be named by some tasks and be used by its path by others: then all know its name."""
    uses: list[dict[str, Any]] = found.to_pylist()
    names = {use["table_path"]: use["table_name"] for use in uses if use["table_path"] and use["table_name"]}
    return [{**use, "table_name": use["table_name"] or names.get(use["table_path"])} for use in uses]


def _by_table(uses: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for use in uses:
        found.setdefault(_key(use), []).append(use)
    return found


def _key(use: dict[str, Any]) -> str:
    return str(use["table_name"] or use["table_path"])


def _task(use: dict[str, Any]) -> tuple[str, str]:
    return use["dag_id"], use["task_id"]  # not one text: names may have dots


def _tasks(uses: Iterable[dict[str, Any]]) -> list[str]:
    return [".".join(task) for task in sorted({_task(use) for use in uses})]


def _edge(use: dict[str, Any], direction: str) -> tuple[str, ...]:
    return direction, _key(use), *_task(use), use["access"]
