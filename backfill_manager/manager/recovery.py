"""A new leader goes on from the tables: what had finished stays finished, what was running runs again.

What was running under a leader that did not give its lease back has lost a start (`manager.losses`). One that gave it back had
committed what became of its tasks before; what it could not commit (storage was away) is put back and not counted.

    crash between ...                                     is mended here by
    task instances and their tries                        deriving the missing tries from the task instances
    task instances and their run                          the run keeper, which derives a run from its tasks
    a new run and its item                                adopting the run (run_keeper, `_adopt`)
    a finished run and its items                          ending the items as the run ended
    a cleared task or run and what it belongs to          bringing run, item and backfill back (`_bring_back`)
    failed tasks of a run that a backfill runs again,
    and the run that becomes the backfill's               taking the run over (`_taken_over`)
    items and their backfill                              the run keeper
    anything and its response                             the inbox, which answers again

Rows that were made but whose parents never came were swept away when the lease was taken (`Store.lead`).
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from backfill_manager.manager.callbacks import outcome_of
from backfill_manager.manager.create_run import selected_of
from backfill_manager.manager.items import end_items
from backfill_manager.manager.losses import after_loss
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.reopen import LoadedRows, reopen_backfill_of, reopen_run, version_spec
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState, RunKey
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    BundleRow,
    DagRow,
    DagRun,
    DagVersion,
    ImportProblem,
    Manager,
    Pool,
    TaskInstance,
    TaskTry,
)
from backfill_manager.store.base import Condition, Store


def restore_state(store: Store, *, term: int, now: datetime) -> ManagerState:
    """The working set as the tables tell it, with the changes that mend what a crash left (`ManagerState.changes`)."""
    state = ManagerState()
    state.catalog.dags = {row.dag_id: row for row in store.read(DagRow)}
    state.pools = {row.name: row for row in store.read(Pool)}
    state.catalog.bundles = {row.name: row for row in store.read(BundleRow)}
    standing = store.read(ImportProblem, [Condition("is_current", "=", True)])
    state.catalog.problems = {(row.bundle, row.file): row for row in standing}
    runs = store.read(DagRun, [Condition("state", "in", sorted(s.RUN_LIVE))])
    backfills = store.read(Backfill, [Condition("state", "in", (s.QUEUED, s.RUNNING, s.PAUSED))])
    _bring_versions(state, store, runs, backfills)
    for row in backfills:
        state.backfills[row.backfill_id] = _backfill(state, store, row)
    _bring_runs(state, store, runs, now)
    for live in state.backfills.values():
        _match_items(state, store, live)
    _bring_back(state, store)
    _mend_tries(state, store, term)
    _start_again(state, store, term, now)
    return state


def _start_again(state: ManagerState, store: Store, term: int, now: datetime) -> None:
    """What had been started and has not ended."""
    started = [ti for _, ti in state.tasks() if ti.state in s.TASK_STARTED]
    if not started:
        return
    before = store.read(Manager, [Condition("term", "=", term - 1)])
    was_given_back = bool(before) and before[0].state == s.STOPPED
    for ti in started:
        if was_given_back:
            gone = c.put_back(ti, now, "the manager stopped while it ran", now)
        else:
            gone = after_loss(ti, now, alone=len(started) == 1)
        state.put(gone)
        try_state = s.FAILED if gone.state == s.FAILED else "lost"
        state.changes.put(c.try_of(gone.evolve(try_number=ti.try_number), term, try_state))


def _bring_versions(state: ManagerState, store: Store, runs: list[DagRun], backfills: list[Backfill]) -> None:
    needed = {(row.dag_id, row.current_version) for row in state.catalog.dags.values()}
    needed |= {(run.dag_id, run.dag_version) for run in runs} | {(b.dag_id, b.dag_version) for b in backfills}
    where = [
        Condition("dag_id", "in", sorted({dag_id for dag_id, _ in needed})),
        Condition("version", "in", sorted({version for _, version in needed})),  # not all there have been
    ]
    for version in store.read(DagVersion, where):
        if (version.dag_id, version.version) in needed:
            state.catalog.versions[version.dag_id, version.version] = version


def _backfill(state: ManagerState, store: Store, row: Backfill) -> ActiveBackfill:
    live = ActiveBackfill(row=row, spec=state.spec_of_backfill(row))
    by_state = store.count("backfill_item", ["state"], [Condition("backfill_id", "=", row.backfill_id)])
    live.counts = Counter({str(key): n for (key,), n in by_state.items()})
    refill(live, store)
    return live


def _bring_runs(state: ManagerState, store: Store, runs: list[DagRun], now: datetime) -> None:
    if not runs:
        return
    for run in runs:
        owner = state.owner_of(run)
        spec = state.spec_of_run(run, owner.row if owner else None)
        live = ActiveRun(row=run, spec=spec, tasks={}, selected=frozenset())
        state.runs[live.key] = live
    where = [
        Condition("run_seq", ">=", min(run.run_seq for run in runs)),
        Condition("run_id", "in", sorted({run.run_id for run in runs})),
    ]
    for ti in store.read(TaskInstance, where):
        if live_run := state.runs.get((ti.dag_id, ti.run_id)):
            live_run.tasks[ti.task_id] = ti
    for live in state.runs.values():
        live.selected = selected_of(live.row, live.spec, live.tasks.values())
        for ti in list(live.tasks.values()):
            if ti.task_id not in live.spec.by_id and ti.state not in s.TASK_FINISHED | s.TASK_STARTED:
                state.put(c.removed(ti, now))  # of a version that the run was not moved to after all


def _match_items(state: ManagerState, store: Store, live: ActiveBackfill) -> None:
    """Running items find their runs; one whose run has finished ends as the run did."""
    where = [Condition("backfill_id", "=", live.row.backfill_id), Condition("state", "=", s.RUNNING)]
    taken: dict[RunKey, list[BackfillItem]] = {}
    for item in store.read(BackfillItem, where, order_by=["ordinal"]):
        taken.setdefault((live.row.dag_id, item.run_id or ""), []).append(item)
    finished = LoadedRows(store, (key for key in taken if key not in state.runs))
    for key, items in taken.items():
        if key in state.runs:
            live.running[key] = items
        elif key in finished.rows:
            end_items(state, live, items, _as_it_ended(state, store, live, finished.rows[key], finished))


def _as_it_ended(state: ManagerState, store: Store, live: ActiveBackfill, row: DagRun, loaded: LoadedRows) -> DagRun:
    """A run may have been overridden in the very tick in which it ended: its tasks tell how."""
    if row.state != s.OVERRIDDEN:
        return row
    version_spec(state, store, row.dag_id, row.dag_version)
    tasks, spec = loaded.tasks(row), state.spec_of_run(row, live.row)
    run = ActiveRun(row=row, spec=spec, tasks=tasks, selected=selected_of(row, spec, tasks.values()))
    ended: DagRun = row.evolve(state=outcome_of(run))
    return ended


def _bring_back(state: ManagerState, store: Store) -> None:
    """A finished run with tasks that are to run, and a live run whose items or backfill had ended: they were cleared."""
    living = LoadedRows(store, (run.key for run in state.runs.values() if run.row.backfill_id))
    for run in list(state.runs.values()):
        owner = reopen_backfill_of(state, store, run.row, living)
        run.spec = state.spec_of_run(run.row, owner.row if owner else None)  # with its settings, though it had ended
    unfinished = sorted(set(s.TASK_STATES) - s.TASK_FINISHED)
    cleared = store.read(TaskInstance, [Condition("cleared_by", "not_null"), Condition("state", "in", unfinished)])
    finished = LoadedRows(store, {(ti.dag_id, ti.run_id) for ti in cleared} - set(state.runs))
    by = {(ti.dag_id, ti.run_id): ti.cleared_by for ti in cleared}
    for row in finished.rows.values():
        if row.state in s.RUN_FINISHED - {s.OVERRIDDEN}:
            reopen_run(state, store, _taken_over(state, store, row, by[row.key]), finished)


def _taken_over(state: ManagerState, store: Store, row: DagRun, cleared_by: str | None) -> DagRun:
    """The run as the backfill's that had set its failed tasks back when the crash came."""
    for live in state.backfills.values():
        if not live.reruns_failed_tasks or (live.row.request_id, live.row.dag_id) != (cleared_by, row.dag_id):
            continue
        where = [Condition("backfill_id", "=", live.row.backfill_id), Condition("state", "=", s.PENDING)]
        if row.logical_date is None:
            where.append(Condition("partition_key", "=", row.partition_key))
        elif row.items == 1:
            where.append(Condition("logical_date", "=", row.logical_date))
        else:
            where.append(Condition("logical_date", ">=", row.logical_date))
            where.append(Condition("logical_date", "<", row.interval_end))
        for item in store.read(BackfillItem, where, order_by=["ordinal"], limit=1):
            taken: DagRun = row.evolve(backfill_id=live.row.backfill_id, ordinal=item.ordinal)
            return taken
    return row


def _mend_tries(state: ManagerState, store: Store, term: int) -> None:
    """Every start that has ended has its try. What one came to is not known any more when its task was cleared, or
    started again, in the tick that the crash broke off: then it is lost."""
    begun = [ti for _, ti in state.tasks() if ti.launch]
    if not begun:
        return
    where = [
        Condition("run_seq", ">=", min(ti.run_seq for ti in begun)),
        Condition("run_id", "in", sorted({ti.run_id for ti in begun})),  # one may be of long ago: not all since then
    ]
    told = {(t.dag_id, t.run_id, t.task_id, t.launch) for t in store.read(TaskTry, where)}
    for ti in begun:
        ended = ti.launch - 1 if ti.state in s.TASK_STARTED else ti.launch
        for launch in range(1, ended + 1):
            if (*ti.key, launch) in told:
                continue
            if launch == ti.launch and ti.state not in (s.NONE, s.SCHEDULED):
                tried = c.try_of(ti, term, state=s.FAILED if ti.state == s.UP_FOR_RETRY else ti.state)
            else:
                gone = ti.evolve(
                    launch=launch, started_at=None, ended_at=None, duration_s=None, error="not known any more"
                )
                tried = c.try_of(gone, term, state="lost")
            state.changes.put(tried)
