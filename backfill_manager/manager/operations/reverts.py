"""What reverting runs changes in the state: they keep their place in the timeline, and count no more.

The tables are changed before, outside of the tick (table_jobs.py). A crash between the two has the request
handled again: its commits are found in the logs of the tables, and runs that this request has reverted are its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import NotFound
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.promote_revert.revert import Reverted, WrittenTable
from backfill_manager.humanise import plural
from backfill_manager.manager.decisions.apply_outcomes import access_row
from backfill_manager.manager.decisions.callbacks import outcome_of
from backfill_manager.manager.decisions.create_run import existing_run
from backfill_manager.manager.decisions.reopen import READ_BATCH, LoadedRows, load_version
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Call, RevertJob
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.pools import BACKFILL_POOL
from backfill_manager.model.records import Backfill, DagRun, RunKey, TableAccess
from backfill_manager.planning.data.written_intervals import REVERT, WrittenIntervals, without_reverted
from backfill_manager.planning.runs.recent_runs import with_partial_marked
from backfill_manager.planning.runs.timeline import CURRENT_RUNS, first_date, run_id_for, runs_meet, timeline_key
from backfill_manager.schemas import commands, errors
from backfill_manager.store.base import Condition, Store, matching, spanning

MAX_READERS: Final = 100  # that an answer names
RevertCommand = commands.RevertRun | commands.RevertBackfill


def job_of(state: ManagerState, store: Store, command: RevertCommand, call: Call) -> RevertJob:
    """`Refused` where the state says that it can't be done."""
    if isinstance(command, commands.RevertRun):
        what, object_id = f"Run {command.run_id}", command.run_id
        runs, pool = [_run(store, command)], BACKFILL_POOL
    else:
        what, object_id = f"Backfill {command.backfill_id}", command.backfill_id
        row = _backfill(state, store, command.backfill_id)
        pool = row.pool
        of_it = matching(backfill_id=row.backfill_id)
        runs = [run for run in store.read(DagRun, of_it, order_by=["run_seq"]) if not _wrote_no_table(run)]
    for run in runs:
        if run.key in state.runs:
            raise errors.REVERT_STILL_RUNS(what=f"Run {run.run_id}", state=state.runs[run.key].row.state)
    left = [run for run in runs if run.reverted_at is None or run.reverted_by == call.id]
    if runs and not left:
        last = max(run.reverted_at for run in runs if run.reverted_at is not None)
        raise errors.ALREADY_REVERTED(what=what, when=f" at {format_instant(last)}")
    _refuse_active(state, left, what)
    tables = _tables(store, left)
    if not tables:
        raise errors.WROTE_NO_TABLE(what=what)
    keys = tuple(run.key for run in left)
    return RevertJob(call.id, call.request.kind, object_id, pool, keys, tables, command.dry_run)


def revert(state: ManagerState, store: Store, job: RevertJob, tables: Sequence[Reverted], now: datetime) -> str:
    """The tables hold the rows of before. Returns the message."""
    loaded = LoadedRows(store, job.runs)
    left = [run for run in map(state.changes.latest, loaded.rows.values()) if run.reverted_at is None]
    restored = _restored(state, store, left)
    for run in left:
        state.put(c.run_reverted(run, now, job.request_id, restored.get(run.key)))
    of_dags = matching(dag_id=sorted({run.dag_id for run in left}))
    for row in store.read(DagRun, [*of_dags, Condition("restored_run_id", "not_null")]) if left else ():
        before = (row.dag_id, row.restored_run_id or "")
        if before in loaded.rows:
            state.put(state.changes.latest(row).evolve(restored_run_id=restored.get(before)))
    _record(state, store, loaded.rows, tables, now)
    state.written.clear()  # read again by the next prefetch, as is the past of the runs after these
    for live in state.runs.values():
        if (live.row.dag_id, live.row.previous_run_id) in loaded.rows:
            live.past = None
    named = ", ".join(one.table for one in tables)
    what = job.object_id if len(job.runs) == 1 else f"{job.object_id}: {plural(len(job.runs), 'run')}"
    return f"{what} reverted; as before: {named}"


def readers(store: Store, tables: Sequence[Reverted], runs: Collection[RunKey]) -> list[dict[str, Any]]:
    """The runs that have read what is reverted, and were not reverted themselves: what they have made of it stays."""
    columns = (
        "dag_id", "run_id", "task_id", "access", "table_path", "version", "interval_start", "interval_end", "partition_key",
    )  # fmt: skip
    paths = sorted({one.path for one in tables})
    where = [Condition("access", "in", ("read", REVERT)), Condition("succeeded", "=", True)]
    where.append(Condition("table_path", "in", paths))
    found = without_reverted(store.read_arrow(TableAccess.TABLE, columns, where)).to_pylist()
    written, since = dict[str, WrittenIntervals](), dict[str, int]()
    for one in tables:
        written[one.path], since[one.path] = WrittenIntervals(), one.since
        for write in one.writes:
            start, end = (parse_instant(at) for at in write.interval) if write.interval else (None, None)
            written[one.path].add(start, end, write.partition)
    keys: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found:
        path, interval = row["table_path"], (row["interval_start"], row["interval_end"])
        if (row["dag_id"], row["run_id"]) in runs or row["version"] is None or row["version"] < since[path]:
            continue
        if written[path].may_meet(*interval, row["partition_key"]):
            table = next(one.table for one in tables if one.path == path)
            named = ("interval_start", "interval_end")
            keys[row["dag_id"], row["run_id"], row["task_id"], table] = {n: format_instant(row[n]) for n in named}
    names = ("dag_id", "run_id", "task_id", "table")
    return [{**dict(zip(names, key, strict=True)), **keys[key]} for key in sorted(keys)]


def _wrote_no_table(run: DagRun) -> bool:
    """Whether its rows are gone already, or were in a preview's clones alone: only runs that succeeded are promoted."""
    return run.state == s.OVERRIDDEN or (run.run_type == s.PREVIEW_RUN and run.state != s.SUCCESS)


def _run(store: Store, command: commands.RevertRun) -> DagRun:
    row = store.first(DagRun, matching(dag_id=command.dag_id, run_id=command.run_id))
    if row is None:
        raise NotFound(f"run of DAG {command.dag_id!r} with the id", command.run_id)
    if row.run_type == s.PREVIEW_RUN:
        raise errors.REVERT_PREVIEW(backfill_id=row.backfill_id)
    return row


def _backfill(state: ManagerState, store: Store, backfill_id: str) -> Backfill:
    row = store.first(Backfill, matching(backfill_id=backfill_id))
    if row is None:
        raise NotFound("backfill", backfill_id, state.backfills)
    if (live := state.backfills.get(backfill_id)) is not None:
        raise errors.REVERT_STILL_RUNS(what=f"Backfill {backfill_id}", state=live.row.state)
    if row.is_preview:
        raise errors.REVERT_PREVIEW(backfill_id=backfill_id)
    return row


def _refuse_active(state: ManagerState, runs: Iterable[DagRun], what: str) -> None:
    """A run that writes the same interval now would be mixed with the rows of before."""
    of_dag = defaultdict[str, list[DagRun]](list)
    for live in state.runs.values():
        if live.row.run_type != s.PREVIEW_RUN:
            of_dag[live.row.dag_id].append(live.row)
    for run in runs:
        wrote = run.evolve(interval_start=first_date(run)) if first_date(run) != run.logical_date else run
        for row in of_dag[run.dag_id]:
            if runs_meet(wrote, row):
                of_it = what[0].lower() + what[1:]
                raise errors.REVERT_MEETS_RUN(run_id=row.run_id, dag_id=row.dag_id, state=row.state, what=of_it)


def _tables(store: Store, runs: Sequence[DagRun]) -> tuple[WrittenTable, ...]:
    by_place = defaultdict[str, list[TableAccess]](list)
    for row in _accesses(store, runs):
        if row.access == "write" and row.table_path is not None:
            by_place[row.table_path].append(row)
    since = min((run.created_at for run in runs), default=None)
    tables = list[WrittenTable]()
    for path, rows in sorted(by_place.items()):
        versions = [row.version for row in rows]
        known = [version for version in versions if version is not None]
        name = next((row.table_name for row in rows if row.table_name is not None), path)
        assert since is not None, "there are runs"
        tables.append(WrittenTable(name, rows[0].table_id, min(known) if len(known) == len(versions) else None, since))
    return tuple(tables)


def _accesses(store: Store, runs: Iterable[DagRun]) -> list[TableAccess]:
    keys = {run.key: run.run_seq for run in runs}
    if not keys:
        return []
    of_dags = matching(dag_id=sorted({dag_id for dag_id, _ in keys}))
    rows = store.read(TableAccess, [*of_dags, *spanning("run_seq", keys.values())])
    return [row for row in rows if (row.dag_id, row.run_id) in keys]


def _restored(state: ManagerState, store: Store, runs: Sequence[DagRun]) -> dict[RunKey, str | None]:
    """The run before each of these, of its date, whose rows are back and which counts: it was whole, and had succeeded. It may
    be the batch that had done the date. Of a run that took several dates there is none: of some there may have been no run."""
    single = [run for run in runs if run.items == 1]
    places = {run.key: timeline_key(run.logical_date, run.partition_key) for run in single}
    overridden: dict[RunKey, DagRun] = {}  # by the run that overrode it, the last one
    for start in range(0, len(single), READ_BATCH):
        some = single[start : start + READ_BATCH]
        dag_ids, run_ids = sorted({run.dag_id for run in some}), sorted({run.run_id for run in some})
        of_them = matching(dag_id=dag_ids, overridden_by=run_ids)
        for row in store.read(DagRun, of_them, order_by=["run_seq"]):
            by, place = (row.dag_id, row.overridden_by or ""), timeline_key(row.logical_date, row.partition_key)
            if place == places.get(by):  # not one of a date that another run has now
                overridden[by] = state.changes.latest(row)
    before = dict(zip(overridden, with_partial_marked(list(overridden.values()), store), strict=True))
    loaded = LoadedRows(store, (row.key for row in before.values() if row.reverted_at is None))
    found: dict[RunKey, str | None] = {}
    for key, row in before.items():
        if row.reverted_at is not None:
            found[key] = row.restored_run_id
        elif not row.is_partial:
            load_version(state, store, row.dag_id, row.dag_version)
            outcome = outcome_of(existing_run(state, row, None, loaded.tasks[row.key]))
            found[key] = row.run_id if outcome == s.SUCCESS else None
    return found | _batches_around(store, [run for run in single if run.key not in found and run.key not in before])


def _batches_around(store: Store, runs: Collection[DagRun]) -> dict[RunKey, str | None]:
    """The current batch of which each of these runs had done a date again, if it counts; also where that was its first one."""
    placed = [(run, run.logical_date, run.interval_end) for run in runs]
    dated = [(run, start, end) for run, start, end in placed if start is not None and end is not None]
    if not dated:
        return {}
    of_dags = [*matching(dag_id=sorted({run.dag_id for run, _, _ in dated})), *CURRENT_RUNS]
    first, latest = min(start for _, start, _ in dated), max(start for _, start, _ in dated)
    ends = Condition("interval_end", ">=", min(end for _, _, end in dated))
    rows = store.read(DagRun, [*of_dags, ends, Condition("items", ">", 1)])
    for kind in (s.BACKFILL_RUN, s.SCHEDULED_RUN):  # batches of which one date is left
        named = Condition("run_id", "<", run_id_for(kind, timeline_key(latest, None), 1))
        of_one = [*matching(run_type=kind, items=1), Condition("logical_date", ">", first)]
        rows += [run for run in store.read(DagRun, [*of_dags, named, *of_one]) if first_date(run) != run.logical_date]
    batches = defaultdict[str, list[tuple[datetime, datetime, DagRun]]](list)  # with start and end
    themselves = {run.key for run in runs}
    for batch in with_partial_marked([row for row in rows if row.key not in themselves], store):
        if (begin := first_date(batch)) is not None and begin <= latest and batch.interval_end is not None:
            batches[batch.dag_id].append((begin, batch.interval_end, batch))
    for some in batches.values():
        some.sort(key=itemgetter(0, 1))
    reach = {dag_id: [*accumulate((last for _, last, _ in some), max)] for dag_id, some in batches.items()}
    found: dict[RunKey, str | None] = {}
    for run, start, end in dated:
        some = batches[run.dag_id]
        at = bisect_right(some, start, key=itemgetter(0)) - 1
        while at >= 0 and reach[run.dag_id][at] >= end:  # else neither this one nor one before it reaches so far
            _, last, batch = some[at]
            if last >= end:
                if batch.state == s.SUCCESS and not batch.is_partial and batch.reverted_at is None:
                    found[run.key] = batch.run_id
                break
            at -= 1
    return found


def _record(
    state: ManagerState, store: Store, runs: dict[RunKey, DagRun], tables: Sequence[Reverted], now: datetime
) -> None:  # fmt: skip
    """One row for each write that was reverted."""
    numbers = defaultdict[tuple[Any, ...], int](int)  # the highest of each try
    known = set[tuple[Any, ...]]()  # by an attempt that a crash has cut short
    for row in _accesses(store, runs.values()):
        numbers[row.key[:-1]] = max(numbers[row.key[:-1]], row.number)
        if row.access == REVERT:
            known.add((*row.key[:-1], row.table_path))
    for table in tables:
        for write in table.writes:
            run, of_try = runs.get(write.run), (*write.run, write.task_id, write.launch)
            if run is None or (*of_try, table.path) in known:
                continue
            known.add((*of_try, table.path))
            numbers[of_try] += 1
            column = None if write.replaced is None else write.replaced.column
            reverted = AccessedTable(
                "revert", table.name, table.path, table.version, table_id=table.table_id, interval_column=column
            )
            state.changes.put(access_row(run, of_try, numbers[of_try], reverted, now))
