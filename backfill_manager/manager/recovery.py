"""Restores the state of a new leader from the tables: what had finished stays finished, what was running runs again.

Tasks that were running under a leader that did not give its lease back have lost a start (`manager.crash_loops`). A leader that
gave it back had committed the outcomes of its tasks before; what it could not commit (storage was away) is put back and not
counted.

    crash between ...                                     is repaired by
    task instances and their tries                        deriving the missing tries from the task instances
    task instances and their run                          `runs`, which derives a run from its tasks
    a new run and its item                                adopting the run (`backfill_runs._adopt`)
    a finished run and its items                          ending the items as the run ended
    a cleared task or run and what it belongs to          reopening run, item and backfill (`_reopen_cleared`)
    items behind a deadlock and their backfill            giving it the reason that they have (`_note_deadlock`)
    failed tasks of a run that a backfill runs again,
    and the run that becomes the backfill's               taking the run over (`_taken_over`)
    items and their backfill                              `backfill_runs`
    anything and its response                             `request_handler`, which answers again

Rows whose parents were never committed were deleted when the lease was taken (`Store.lead`).
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.dags.mapping import is_damaged
from backfill_manager.logging import get_logger
from backfill_manager.manager.decisions.callbacks import outcome_of
from backfill_manager.manager.decisions.crash_loops import after_loss
from backfill_manager.manager.decisions.create_run import existing_run, new_task, selected_of
from backfill_manager.manager.decisions.item_outcomes import end_items
from backfill_manager.manager.decisions.notification_rules import DEADLOCK
from backfill_manager.manager.decisions.reopen import (
    LoadedRows,
    load_backfill,
    load_version,
    reopen_backfill_of,
    reopen_run,
)
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import records
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, RunKey, TaskInstance
from backfill_manager.model.stored_json import is_readable
from backfill_manager.store.base import Condition, Store, matching

MAX_TRIES_MADE: Final = 1000  # of one task

log = get_logger("recovery")


def restore_state(store: Store, *, term: int, now: datetime, tries_kept_s: float | None = None) -> ManagerState:
    """The state as the tables have it, with the changes that repair what a crash left (`ManagerState.changes`). `tries_kept_s`:
    the age at which retention deletes tries."""
    state = ManagerState()
    state.catalog.dags = {row.dag_id: row for row in store.read(records.DagRow)}
    state.pools = {row.name: row for row in store.read(records.Pool)}
    state.catalog.bundles = {row.name: row for row in store.read(records.BundleRow)}
    standing = store.read(records.ImportProblem, matching(is_current=True))
    state.catalog.problems = {(row.bundle, row.file): row for row in standing}
    unsent = store.read(records.Notification, matching(state="waiting"), order_by=["created_at"])
    state.notifications = {(row.notification_id, row.target): row for row in unsent}
    # Those that could start tasks: they wrote how many ticks they made, which short leaderships for one job do not.
    managers = store.read(records.Manager, [Condition("term", "<", term), Condition("ticks", "not_null")], ["-term"])
    before = managers[0] if managers else None
    # One that has given its lease back without a tick (Spark could not be started) has looked at no deadline.
    ticked = (row.heartbeat_at for row in managers if row.ticks or row.state != s.STOPPED)
    state.not_led_since = next(ticked, None)
    if state.not_led_since is not None:  # a manager that was killed has announced what passed after its last heartbeat
        late = [*matching(event="late"), Condition("created_at", ">=", state.not_led_since)]
        state.announced = {row.notification_id for row in store.read(records.Notification, late)}
    runs = store.read(DagRun, matching(state=sorted(s.RUN_LIVE)))
    backfills = store.read(Backfill, matching(state=(s.QUEUED, s.RUNNING, s.PAUSED)))
    _load_versions(state, store, runs, backfills)
    for row in backfills:
        live = state.backfills[row.backfill_id] = load_backfill(state, store, row)
        _note_deadlock(state, store, live)
        refill(live, store)
    _load_runs(state, store, runs)
    for live in state.backfills.values():
        _match_items(state, store, live)
    _reopen_cleared(state, store)
    _complete_tries(state, store, term, None if tries_kept_s is None else now - timedelta(seconds=tries_kept_s))
    _restart_tasks(state, term, now, was_given_back=before is not None and before.state == s.STOPPED)
    _remove_unknown(state, now)
    return state


def _remove_unknown(state: ManagerState, now: datetime) -> None:
    """Tasks of a version that the run was not moved to, and those that were mapped from a task which is to be mapped again."""
    for live in state.runs.values():
        for ti in list(live.tasks.values()):
            if ti.task_id not in live.spec.by_id and ti.state not in s.TASK_FINISHED:
                state.put(c.removed(ti, now))


def _restart_tasks(state: ManagerState, term: int, now: datetime, *, was_given_back: bool) -> None:
    """Puts back the tasks that had been started and have not ended."""
    started = [ti for _, ti in state.tasks() if ti.state in s.TASK_STARTED]
    for ti in started:
        if was_given_back:
            gone = c.put_back(ti, now, "the manager stopped while it ran", now)
        else:
            gone = after_loss(ti, now, alone=len(started) == 1)
        state.put(gone)
        try_state = s.FAILED if gone.state == s.FAILED else "lost"
        state.changes.put(c.try_of(gone.evolve(try_number=ti.try_number), term, try_state))


def _load_versions(state: ManagerState, store: Store, runs: list[DagRun], backfills: list[Backfill]) -> None:
    needed = {(row.dag_id, row.current_version) for row in state.catalog.dags.values()}
    needed |= {(run.dag_id, run.dag_version) for run in runs} | {(b.dag_id, b.dag_version) for b in backfills}
    dag_ids, versions = sorted({dag_id for dag_id, _ in needed}), sorted({version for _, version in needed})
    rows = store.read(records.DagVersion, matching(dag_id=dag_ids, version=versions)) if needed else []
    state.catalog.versions = {(row.dag_id, row.version): row for row in rows if (row.dag_id, row.version) in needed}


def _load_runs(state: ManagerState, store: Store, runs: list[DagRun]) -> None:
    if not runs:
        return
    where = [Condition("run_seq", ">=", min(run.run_seq for run in runs))]
    where += matching(run_id=sorted({run.run_id for run in runs}))
    tasks: defaultdict[RunKey, dict[str, TaskInstance]] = defaultdict(dict)
    for ti in store.read(TaskInstance, where):
        tasks[ti.dag_id, ti.run_id][ti.task_id] = ti
    for run in runs:
        owner, mine = state.owner_of(run), tasks[run.key]
        for ti in [ti for ti in mine.values() if ti.state not in s.TASK_STATES]:
            reason = f"the state of the task was {ti.state!r}, which is none"
            log.error("a task fails", dag=ti.dag_id, run=ti.run_id, task=ti.task_id, reason=reason)
            mine[ti.task_id] = ti.evolve(state=s.FAILED, error=reason)
            state.changes.put(mine[ti.task_id])
        if not is_readable("conf_json", run.conf_json):
            log.error("a run fails: its conf_json can't be read", dag=run.dag_id, run=run.run_id)
        for task_id in state.spec_of_run(run, owner.row if owner else None, {}).mapped_over_results:
            # What it was mapped to follows from the result of the other one.
            if task_id in mine and is_damaged(mine[task_id]):
                what = "a task is mapped again: its result can't be read"
                log.error(what, dag=run.dag_id, run=run.run_id, task=task_id)
                mine[task_id] = c.cleared(mine[task_id], mine[task_id].cleared_by)
                state.changes.put(mine[task_id])
        state.runs[run.key] = existing_run(state, run, owner, mine)
    _fail_missing_tasks(state, store)


def _fail_missing_tasks(state: ManagerState, store: Store) -> None:
    """Tasks are committed before their run, so no crash leaves one out. Without its row it would count as one that is not to
    run. What it has written isn't known, so it doesn't start by itself; cleared, it is a newer one than any of its starts."""
    runs = [run for run in state.runs.values() if run.row.run_type != s.EXTERNAL_RUN]
    missing = [(run, task) for run in runs for task in run.spec.work if task.task_id not in run.tasks]
    if not missing:
        return
    where = [Condition("run_seq", ">=", min(run.row.run_seq for run, _ in missing))]
    where += matching(run_id=sorted({run.row.run_id for run, _ in missing}))
    launches = defaultdict[tuple[str, str, str], int](int)
    for tried in store.read(records.TaskTry, where):
        key = (tried.dag_id, tried.run_id, tried.task_id)
        launches[key] = max(launches[key], tried.launch)
    for run, task in missing:
        key = (run.row.dag_id, run.row.run_id, task.task_id)
        owner = state.owner_of(run.row)
        ti = new_task(run.row, task, owner).evolve(launch=launches[key], generation=launches[key])
        if owner is not None and task.task_id not in owner.selected:
            ti = c.skipped(ti, run.row.created_at, c.NOT_SELECTED)
        else:
            reason = "another program has deleted its row in task_instance; clear the task to run it again"
            log.error("a task fails", dag=ti.dag_id, run=ti.run_id, task=ti.task_id, reason=reason)
            ti = ti.evolve(state=s.FAILED, failures=1, error=reason)
        run.tasks[ti.task_id] = ti
        state.changes.put(ti)
    for run in {run.key: run for run, _ in missing}.values():
        run.selected = selected_of(run.row, run.spec, run.tasks.values())


def _note_deadlock(state: ManagerState, store: Store, live: ActiveBackfill) -> None:
    """Not of items that had failed before it was resumed or retried."""
    if live.row.reason is None and live.counts[s.FAILED] > live.row.failed_when_resumed:
        last = store.first(BackfillItem, matching(backfill_id=live.row.backfill_id, state=s.FAILED), ["-ordinal"])
        if last is not None and (last.reason or "").startswith(DEADLOCK):
            state.put(live.row.evolve(reason=last.reason))


def _match_items(state: ManagerState, store: Store, live: ActiveBackfill) -> None:
    """Assigns running items to their runs; one whose run has finished ends as the run did."""
    where = matching(backfill_id=live.row.backfill_id, state=s.RUNNING)
    taken: dict[RunKey, list[BackfillItem]] = {}
    for item in store.read(BackfillItem, where, order_by=["ordinal"]):
        taken.setdefault((live.row.dag_id, item.run_id or ""), []).append(item)
    finished = LoadedRows(store, (key for key in taken if key not in state.runs))
    for key, items in taken.items():
        if key in state.runs:
            live.running[key] = items
        elif key in finished.rows:
            row = finished.rows[key]
            if row.state == s.OVERRIDDEN:  # in the very tick in which it ended: it has its outcome from its tasks
                load_version(state, store, row.dag_id, row.dag_version)
                row = row.evolve(state=outcome_of(existing_run(state, row, live, finished.tasks[key])))
            end_items(state, live, items, row)
        else:  # no crash leaves it so: a new run of its date could find the writes of the one that is gone
            again = f"`bfm backfill create {live.row.dag_id} --kind missing` runs what is missing"
            reason = f"another program has deleted its run; {again}"
            of = {"backfill": live.row.backfill_id, "dag": key[0], "run": key[1]}
            log.error("items fail: their run is gone", items=len(items), **of)
            for item in items:
                state.put_item(live, item, c.item_ended(item, s.FAILED, reason))


def _reopen_cleared(state: ManagerState, store: Store) -> None:
    """Reopens finished runs with tasks that are to run, and items and backfills of active runs: they were cleared."""
    active = LoadedRows(store, (run.key for run in state.runs.values() if run.row.backfill_id))
    for run in list(state.runs.values()):
        owner = reopen_backfill_of(state, run.row, active)
        # With its settings, though it had ended.
        run.spec = state.spec_of_run(run.row, owner.row if owner else None, run.tasks)
    unfinished = sorted(set(s.TASK_STATES) - s.TASK_FINISHED)
    cleared = store.read(TaskInstance, [Condition("cleared_by", "not_null"), *matching(state=unfinished)])
    finished = LoadedRows(store, {(ti.dag_id, ti.run_id) for ti in cleared} - set(state.runs))
    by = {(ti.dag_id, ti.run_id): ti.cleared_by for ti in cleared}
    for row in finished.rows.values():
        if row.state in s.RUN_FINISHED - {s.OVERRIDDEN} and row.reverted_at is None:
            reopen_run(state, _taken_over(state, store, row, by[row.key]), finished)


def _taken_over(state: ManagerState, store: Store, row: DagRun, cleared_by: str | None) -> DagRun:
    """The run as that of the backfill which had cleared its failed tasks when the crash came."""
    for live in state.backfills.values():
        if not live.reruns_failed_tasks or (live.row.request_id, live.row.dag_id) != (cleared_by, row.dag_id):
            continue
        where = matching(backfill_id=live.row.backfill_id, state=s.PENDING)
        if row.logical_date is None:
            where.append(Condition("partition_key", "=", row.partition_key))
        elif row.items == 1:
            where += matching(logical_date=row.logical_date)
        else:
            where += [
                Condition("logical_date", ">=", row.logical_date),
                Condition("logical_date", "<", row.interval_end),
            ]
        if (item := store.first(BackfillItem, where, ["ordinal"])) is not None:
            return row.evolve(backfill_id=live.row.backfill_id, ordinal=item.ordinal)
    return row


def _complete_tries(state: ManagerState, store: Store, term: int, deleted_before: datetime | None) -> None:
    """Adds the missing tries of starts that have ended. The outcome is unknown when the task was cleared, or started again,
    in the tick that the crash interrupted: then the try is lost. But of a run from before `deleted_before` retention may have
    deleted tries: a crash can have taken the newest ones only."""
    started = [ti for _, ti in state.tasks() if ti.launch]
    if not started:
        return
    where = [Condition("run_seq", ">=", min(ti.run_seq for ti in started))]
    where += matching(run_id=sorted({ti.run_id for ti in started}))  # one may be old: not all rows since then
    existing = defaultdict[tuple[str, str, str], set[int]](set)
    for row in store.read(records.TaskTry, where):
        existing[row.dag_id, row.run_id, row.task_id].add(row.launch)
    for ti in started:
        there, deleted_up_to = existing[ti.key], 0
        if deleted_before is not None and state.runs[ti.dag_id, ti.run_id].row.created_at < deleted_before:
            deleted_up_to = max(there, default=ti.launch)
        ended = ti.launch - 1 if ti.state in s.TASK_STARTED else ti.launch
        for launch in range(max(1, ended + 1 - MAX_TRIES_MADE), ended + 1):
            if launch in there:
                continue
            if launch == ti.launch and ti.state not in (s.NONE, s.SCHEDULED):
                tried = c.try_of(ti, term)
            elif launch <= deleted_up_to:
                continue
            else:
                gone = ti.evolve(launch=launch, started_at=None, ended_at=None, duration_s=None, error="unknown")
                tried = c.try_of(gone, term, state="lost")
            state.changes.put(tried)
