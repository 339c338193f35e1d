"""Reopens finished runs whose tasks were cleared or marked, with the items they had taken and their backfill.

States are derived: the run is `queued`, its items and its backfill `running`, and they end again by the usual rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import Refused
from backfill_manager.logging import get_logger
from backfill_manager.manager.decisions.create_run import existing_run, remove_unmapped
from backfill_manager.manager.decisions.item_outcomes import forget_dependencies
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, DagVersion, RunKey, TaskInstance
from backfill_manager.schemas import errors
from backfill_manager.store.base import Condition, Store, matching, spanning

log = get_logger("reopen")

READ_BATCH: Final = 500  # runs per query


class LoadedRows:
    """Rows of some runs, with their tasks and items: each kind is read when it is first needed, and for all of the runs
    together, as a clear may name a hundred thousand."""

    def __init__(self, store: Store, keys: Iterable[RunKey]) -> None:
        self.store, unique = store, sorted(set(keys))
        self._parts = [unique[start : start + READ_BATCH] for start in range(0, len(unique), READ_BATCH)]

    @cached_property
    def rows(self) -> dict[RunKey, DagRun]:
        rows = (row for part in self._parts for row in self.store.read(DagRun, _of_runs(part)))
        keys = {key for part in self._parts for key in part}
        return {row.key: row for row in rows if row.key in keys}

    @cached_property
    def tasks(self) -> defaultdict[tuple[Any, ...], dict[str, TaskInstance]]:
        """The task instances by run, then by task id."""
        tasks: defaultdict[tuple[Any, ...], dict[str, TaskInstance]] = defaultdict(dict)
        for part in self._parts:
            made = [self.rows[key].run_seq for key in part if key in self.rows]
            if made:
                for ti in self.store.read(TaskInstance, [*spanning("run_seq", made), *_of_runs(part)]):
                    tasks[ti.dag_id, ti.run_id][ti.task_id] = ti
        return tasks

    @cached_property
    def items(self) -> defaultdict[tuple[str, str], list[BackfillItem]]:
        """The items by backfill and id of their run, in order; of a batch not those of dates that another run has done since
        (`TimelineWindow.rest_of`)."""
        items: defaultdict[tuple[str, str], list[BackfillItem]] = defaultdict(list)
        for part in self._parts:
            rows = [self.rows[key] for key in part if key in self.rows]
            begins = {(row.backfill_id, row.run_id): row.logical_date for row in rows}
            backfills = sorted({row.backfill_id for row in rows if row.backfill_id})
            if backfills:
                taken = matching(backfill_id=backfills, run_id=sorted({row.run_id for row in rows}))
                for item in self.store.read(BackfillItem, taken, order_by=["ordinal"]):
                    of_run = (item.backfill_id, item.run_id or "")
                    begin = begins.get(of_run)
                    if begin is None or item.logical_date is None or item.logical_date >= begin:
                        items[of_run].append(item)
        return items


def _of_runs(keys: Sequence[RunKey]) -> list[Condition]:
    """Matches more than these runs: any of the DAGs with any of the ids."""
    dag_ids, run_ids = (sorted(set(ids)) for ids in zip(*keys, strict=True))
    return matching(dag_id=dag_ids, run_id=run_ids)


def reopen_run(state: ManagerState, row: DagRun, loaded: LoadedRows, *, is_marked: bool = False) -> ActiveRun:
    """Makes a finished run active again. `Refused` if it was overridden, so that another run has its place, or
    reverted."""
    if row.run_type == s.PREVIEW_RUN:
        for of in loaded.store.read(Backfill, matching(backfill_id=row.backfill_id)):
            refuse_ended_preview(state.changes.latest(of))
    if row.state not in s.RUN_STATES:  # somebody else wrote it; nothing of the run is active
        row = row.evolve(state=s.FAILED)
    if row.state == s.OVERRIDDEN:
        raise Refused(f"Run {row.run_id} was overridden by {row.overridden_by}; use that one.")
    if row.reverted_at is not None:
        raise errors.RUN_REVERTED(run_id=row.run_id)
    load_version(state, loaded.store, row.dag_id, row.dag_version)
    owner = reopen_backfill_of(state, row, loaded, is_marked=is_marked)
    run = existing_run(state, row, owner, loaded.tasks[row.key])
    run.ended_as = row.state if is_marked else None
    state.runs[run.key] = run
    remove_unmapped(state, run)
    state.put(c.run_reopened(row, is_marked=is_marked))
    return run


def refuse_ended_preview(row: Backfill) -> None:
    """Its clones are gone: what ran now would begin with new ones."""
    if row.is_preview and row.preview_outcome is not None:
        raise errors.PREVIEW_IS_OVER(backfill_id=row.preview_id, outcome=row.preview_outcome)


def reopen_backfill_of(
    state: ManagerState, row: DagRun, loaded: LoadedRows, *, is_marked: bool = False
) -> ActiveBackfill | None:
    """Makes the backfill of this run active, with the run's items running."""
    if row.backfill_id is None:
        return None
    live = state.backfills.get(row.backfill_id)
    if live is None:
        rows = loaded.store.read(Backfill, matching(backfill_id=row.backfill_id))
        if not rows:
            return None
        row_now = rows[0]
        # Somebody else wrote it; that a run of it is active tells what it is.
        if row_now.state not in s.BACKFILL_STATES:
            log.error("a backfill has an unknown state", backfill=row.backfill_id, dag=row.dag_id, state=row_now.state)
            row_now = row_now.evolve(state=s.FAILED)
        live = load_backfill(state, loaded.store, row_now)
        live.ended_as = live.row.state if is_marked else None
        state.backfills[row.backfill_id] = live
        state.put(c.backfill_reopened(live.row))
    running: list[BackfillItem] = []
    for stored in loaded.items[row.backfill_id, row.run_id]:
        item = state.changes.latest(stored)
        if item.state in (s.SUCCESS, s.FAILED, s.CANCELLED):
            was, item = item, c.item_reopened(item)
            state.put_item(live, was, item)
        elif item.state == s.PENDING:  # of a batch that was to be retried in halves, or of a retry: this run does it
            was, item = item, c.item_started(item, row.run_id).evolve(reason=None)
            state.put_item(live, was, item)
            live.pending.clear()  # read again
        if item.state == s.RUNNING:  # a crash may have come between it and its backfill
            running.append(item)
    if running:
        live.running[row.dag_id, row.run_id] = running
        forget_dependencies(state, row.backfill_id)
    return live


def load_backfill(state: ManagerState, store: Store, row: Backfill) -> ActiveBackfill:
    """An active backfill with its counts, without its items: the next prefetch reads them."""
    load_version(state, store, row.dag_id, row.dag_version)
    live = ActiveBackfill(row=row, spec=state.spec_of_backfill(row))
    counted = store.count(BackfillItem.TABLE, ["state"], matching(backfill_id=row.backfill_id))
    live.counts = Counter({str(key): n for (key,), n in counted.items()})
    return live


def version_spec(state: ManagerState, store: Store, dag_id: str, version: int) -> DagSpec:
    """The definition of any version, also one that memory does not hold."""
    load_version(state, store, dag_id, version)
    return state.spec(dag_id, version)


def load_version(state: ManagerState, store: Store, dag_id: str, version: int) -> None:
    """Has memory hold this version, if there is one."""
    if (dag_id, version) not in state.catalog.versions:
        for row in store.read(DagVersion, matching(dag_id=dag_id, version=version)):
            state.catalog.versions[dag_id, version] = row
