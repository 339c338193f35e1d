"""What a preview's end changes in the state: promoted, its runs take their places in the timeline, as if they had run on the
tables; discarded or expired, nothing but its own rows.

The tables are changed before, outside of the tick (table_jobs.py). A crash between the two has the request handled again: the
tables are as they are to be, and the runs that have their places already keep them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from backfill_manager.errors import NotFound, Refused
from backfill_manager.execution.messages import AccessedTable, LaunchKey
from backfill_manager.execution.promote_revert.promote import Promoted
from backfill_manager.humanise import name_list, plural
from backfill_manager.manager.decisions.apply_outcomes import access_row
from backfill_manager.manager.decisions.create_run import put_in_timeline
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Call, PreviewJob
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, RunKey, TableAccess
from backfill_manager.planning.runs.timeline import TimelineWindow, runs_meet
from backfill_manager.schemas import commands, errors
from backfill_manager.store.base import Condition, Store, matching

PreviewCommand = commands.DiffBackfill | commands.PromoteBackfill | commands.DiscardBackfill


def tree_of(store: Store, preview_id: str) -> list[Backfill]:
    """The backfills of a preview."""
    return store.read(Backfill, matching(preview_id=preview_id), order_by=["run_seq"])


def successful_runs(store: Store, preview_id: str) -> list[DagRun]:
    """Its runs that succeeded, also those that have been promoted already."""
    ids = [row.backfill_id for row in tree_of(store, preview_id)]
    where = matching(backfill_id=ids, state=s.SUCCESS, run_type=(s.PREVIEW_RUN, s.BACKFILL_RUN))
    return store.read(DagRun, where) if ids else []


def job_of(state: ManagerState, store: Store, command: PreviewCommand, call: Call) -> PreviewJob:
    """`Refused` where the state says that it can't be done."""
    preview_id, kind = command.backfill_id, call.request.kind
    tree = [state.changes.latest(row) for row in tree_of(store, preview_id)]
    root = next((row for row in tree if row.backfill_id == preview_id), None)
    if root is None:
        raise _no_preview(state, store, preview_id)
    if root.preview_outcome is not None:
        raise errors.PREVIEW_IS_OVER(backfill_id=preview_id, outcome=root.preview_outcome)
    if isinstance(command, commands.DiffBackfill):
        return PreviewJob(call.id, kind, preview_id, root.pool, key=command.key, table=command.table)
    for row in tree:
        if row.state not in s.BACKFILL_FINISHED:
            action = "discarded" if isinstance(command, commands.DiscardBackfill) else "promoted"
            raise errors.PREVIEW_STILL_RUNS(backfill_id=row.backfill_id, state=row.state, action=action)
    rebase = False
    if isinstance(command, commands.PromoteBackfill):
        _check_promotion(state, store, tree, command)
        rebase = command.rebase
    return PreviewJob(call.id, kind, preview_id, root.pool, rebase=rebase)


def promote(
    state: ManagerState, store: Store, preview_id: str, tables: Sequence[Promoted], now: datetime, by: str
) -> str:
    """The tables have its rows: its runs count from now on. `by`: the request. Returns the message."""
    by_dag = defaultdict[str, list[DagRun]](list)
    for run in successful_runs(store, preview_id):
        by_dag[run.dag_id].append(run)
    left = [run_id for dag_id, runs in by_dag.items() for run_id in _take_places(state, store, dag_id, runs)]
    _record_accesses(state, store, {run.key: run for runs in by_dag.values() for run in runs}, tables, now)
    end(state, store, preview_id, s.PROMOTED, by)
    text = f"preview {preview_id} is promoted: {plural(len(tables), 'table')}, {plural(sum(map(len, by_dag.values())), 'run')}"
    return text + (f"; {name_list(left)}: active on a date of it, and not replaced there" if left else "")


def end(state: ManagerState, store: Store, preview_id: str, outcome: str, by: str | None = None) -> None:
    """`by`: the request."""
    for row in tree_of(store, preview_id):
        latest = state.changes.latest(row)
        if latest.preview_outcome is None:
            state.put(latest.evolve(preview_outcome=outcome, changed_by=by or latest.changed_by))


def is_open(store: Store, preview_id: str) -> bool:
    """Whether all of it has ended, and nobody has promoted or discarded it."""
    return all(row.state in s.BACKFILL_FINISHED and row.preview_outcome is None for row in tree_of(store, preview_id))


def expired(store: Store, before: datetime) -> list[str]:
    """Previews of which all backfills have ended before that, and that nobody has promoted or discarded."""
    ends = defaultdict[str, list[datetime | None]](list)  # None: it has not ended
    for row in store.read(Backfill, [Condition("preview_id", "not_null"), Condition("preview_outcome", "is_null")]):
        ends[row.preview_id or ""].append(row.completed_at)
    return [one for one, tree in sorted(ends.items()) if all(at is not None and at < before for at in tree)]


def _take_places(state: ManagerState, store: Store, dag_id: str, runs: Iterable[DagRun]) -> list[str]:
    """Oldest first, so that each finds its neighbour in its place. Returns the runs that are active on such a date: they stay."""
    new = [run for run in runs if run.run_type == s.PREVIEW_RUN]
    new.sort(key=lambda run: (run.logical_date is None, run.logical_date))
    dates = [at for run in new if run.logical_date for at in (run.logical_date, run.interval_end or run.logical_date)]
    keys = [run.partition_key for run in new if run.partition_key is not None]
    timeline = TimelineWindow.of(timeline_around(dag_id, dates, keys, store) if new else [])
    active = list[str]()
    for run in new:
        current = timeline.within(run)
        live = [one.run_id for one in current if one.state in s.RUN_LIVE or one.key in state.runs]
        if live:
            active += live
            continue
        placed = put_in_timeline(state, run.evolve(run_type=s.BACKFILL_RUN), timeline, current)
        timeline.put(placed)
        state.put(placed)
        for held in state.timelines(dag_id):
            held.put(placed)
    return active


def _record_accesses(
    state: ManagerState, store: Store, runs: dict[RunKey, DagRun], tables: Sequence[Promoted], now: datetime
) -> None:  # fmt: skip
    """Which tables each try has written by that, and with which version; and what it has read for it. A table whose clone it has
    read had these rows from the commit that promoted it on."""
    numbers = defaultdict[LaunchKey, int](int)
    promoted = {name: table for table in tables for name in (table.path, table.name) if name}
    read_by = defaultdict[LaunchKey, set[AccessedTable]](set)
    run_ids = sorted({run_id for _, run_id in runs})
    known = {row.key for row in store.read(TableAccess, matching(run_id=run_ids))} if runs else set()
    for table in tables:
        for write in table.writes:
            run = runs.get((write.dag_id, write.run_id))
            if run is None:
                continue
            whose = write.dag_id, write.run_id, write.task_id, write.launch
            column = None if write.replaced is None else write.replaced.column
            accesses = [replace(_access(table, "write"), interval_column=column)]
            for read in write.reads:
                if read not in read_by[whose]:
                    read_by[whose].add(read)
                    of = promoted.get(read.path or read.name or "") if read.version is None else None
                    accesses.append(read if of is None else _access(of, "read"))
            for access in accesses:
                numbers[whose] += 1
                row = access_row(run, whose, numbers[whose], access, now)
                if row.key not in known:  # by an attempt that a crash has cut short
                    state.changes.put(row)
                    if access.access == "write":
                        state.note_write(row)


def _access(table: Promoted, access: Literal["read", "write"]) -> AccessedTable:
    return AccessedTable(access, table.name, table.path, table.version, table_id=table.table_id)


def _check_promotion(
    state: ManagerState, store: Store, tree: Sequence[Backfill], command: commands.PromoteBackfill
) -> None:
    counts = store.count(BackfillItem.TABLE, ["state"], matching(backfill_id=[row.backfill_id for row in tree]))
    failed = sum(counts.get((one,), 0) for one in (s.FAILED, s.CANCELLED))
    if failed and not command.partial:
        raise errors.PREVIEW_HAS_FAILED(backfill_id=command.backfill_id, failed=plural(failed, "item"))
    runs = successful_runs(store, command.backfill_id)
    if not runs:
        raise Refused(f"Preview {command.backfill_id} has no successful run: there is nothing to promote.")
    for live in state.runs.values():
        row = live.row
        if row.run_type in s.TIMELINE_RUN_TYPES and any(
            run.dag_id == row.dag_id and runs_meet(run, row) for run in runs
        ):
            raise errors.PREVIEW_MEETS_RUN(run_id=row.run_id, dag_id=row.dag_id, state=row.state)


def _no_preview(state: ManagerState, store: Store, backfill_id: str) -> Exception:
    row = store.first(Backfill, matching(backfill_id=backfill_id))
    if row is None:
        return NotFound("backfill", backfill_id, state.backfills)
    if row.preview_id is None:
        return errors.NOT_A_PREVIEW(backfill_id=backfill_id)
    return errors.PREVIEW_BELOW(backfill_id=backfill_id, preview_id=row.preview_id)
