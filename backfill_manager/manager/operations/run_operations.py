"""What a person does to single runs and tasks: trigger, run one task, cancel, mark, clear; and retry of a backfill.

These commands concern finished rows and so read the tables; they are handled when no change of runs or items waits to be
committed, so that tables and memory agree. Nothing that runs is changed: it is stopped first, and the request stays unanswered
until it has stopped (the handler returns None, and is called again in the next tick). All are idempotent: a crash before the
response has them handled twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from backfill_manager.clock import in_zone
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.task_selection import selected_of_backfill
from backfill_manager.errors import InvalidInput, NotFound, Refused, StateError
from backfill_manager.humanise import name_list, plural
from backfill_manager.manager.decisions.callbacks import outcome_of
from backfill_manager.manager.decisions.create_run import fit_tasks, make_run, selected_of
from backfill_manager.manager.decisions.item_outcomes import MARKED_FAILED, was_marked_failed
from backfill_manager.manager.decisions.reopen import LoadedRows, reopen_run, version_spec
from backfill_manager.manager.decisions.runs import cancel_tasks
from backfill_manager.manager.operations.notes import answer_of, with_note
from backfill_manager.manager.operations.retry_backfill import retry_backfill
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.manager.state import ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Answer, Call
from backfill_manager.masking import secrets_in
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun, RunKey, TaskInstance
from backfill_manager.model.stored_json import read_column
from backfill_manager.planning.clear_plan import ClearedRun, plan_clear
from backfill_manager.planning.mark_plan import MarkPlan, plan_mark
from backfill_manager.planning.next_run import interval_from, manual_interval
from backfill_manager.planning.timeline import TimelineWindow, run_id_for, timeline_key
from backfill_manager.requests.checked_payloads import check_logical_date, check_place
from backfill_manager.schemas import commands, errors
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store, matching


@dataclass
class _Clearing:
    """A clear under way, as it was planned: after tasks were stopped the plan would not be the same."""

    summary: dict[str, int]
    runs: list[ClearedRun]  # that are still to be cleared


@dataclass
class _Marking:
    """A mark of several runs under way."""

    plan: MarkPlan
    runs: list[RunKey]  # that are still to be marked


@dataclass
class _FoundRun:
    """A run that a command concerns: `live`, or finished and as the tables have it."""

    row: DagRun
    tasks: dict[str, TaskInstance]
    spec: DagSpec
    live: ActiveRun | None
    loaded: LoadedRows


class RunOperations:
    def __init__(self, state: ManagerState, store: Store) -> None:
        self._state, self._store = state, store
        self._clearing: dict[str, _Clearing] = {}  # by request, while something is being stopped
        self._marking: dict[str, _Marking] = {}
        self.handlers: dict[type[Command], Callable[[Any, Call], Answer | None]] = {
            commands.TriggerDag: self._trigger, commands.RunTask: self._run_task, commands.CancelRun: self._cancel_run,
            commands.MarkRun: self._mark_run, commands.MarkRuns: self._mark_runs, commands.MarkTask: self._mark_task,
            commands.NoteRun: self._note_run,
            commands.ClearTasksPayload: self._clear, commands.RetryBackfill: partial(retry_backfill, state, store),
        }  # fmt: skip

    def may_read(self) -> bool:
        """Whether the tables agree with memory about runs and items."""
        return not any(map(self._state.changes.rows, (DagRun, BackfillItem, Backfill)))

    # -- new runs -----------------------------------------------------------------------------------------------------
    def _trigger(self, command: commands.TriggerDag, call: Call) -> Answer:
        dag, spec = self._state.active_dag(command.dag_id), self._state.current_spec(command.dag_id)
        check_place(command.logical_date, command.partition_key)
        partition = command.partition_key
        interval = None if partition is not None else manual_interval(spec, command.logical_date, call.now)
        dates, keys = ([interval[0]], []) if interval else ([], [partition or ""])
        timeline = TimelineWindow.of(timeline_around(dag.dag_id, dates, keys, self._store))
        key = timeline_key(interval[0] if interval else None, partition)
        current = timeline.current_at(key)
        if current is not None and current.request_id == call.id:
            return current.run_id, f"run {current.run_id} exists already"
        check_conf(command.conf, spec)
        check_logical_date(command.logical_date, call.now, allow_future=command.allow_future)
        if current is not None and current.state in s.RUN_LIVE:
            raise errors.RUN_IS_LIVE(run_id=current.run_id, state=current.state)
        batch = timeline.covering(key[0])
        if batch is not None and batch.state in s.RUN_LIVE:
            raise errors.BATCH_IS_LIVE(run_id=batch.run_id, items=batch.items, state=batch.state)
        run_id, conf = timeline.next_run_id(s.MANUAL_RUN, key), json.dumps(command.conf)
        row = _new_run(call, dag, s.MANUAL_RUN, run_id, interval).evolve(conf_json=conf, partition_key=partition)
        make_run(self._state, row, spec, timeline, [current] if current else [])
        text = f"run {row.run_id}"
        if interval and interval[0] != interval[1]:
            whole = interval_from(spec, interval[0], call.now)
            if whole[0] != interval[0]:
                text += f", of a part of an interval (the next whole one starts at {in_zone(whole[0], spec.timezone)}),"
            text += f" from {in_zone(interval[0], spec.timezone)} to {in_zone(interval[1], spec.timezone)}"
        if current:
            text += f"; it overrides {current.run_id}"
        if interval and interval[1] > max(interval[0], call.now):
            text += "; its interval has not ended: the schedule does it over when it has"
        return row.run_id, text

    def _run_task(self, command: commands.RunTask, call: Call) -> Answer:
        dag, spec = self._state.active_dag(command.dag_id), self._state.current_spec(command.dag_id)
        task_id = command.task_id
        if task_id not in spec.by_id:
            raise NotFound("task", task_id, spec.by_id, more=f" in DAG {dag.dag_id!r}; it has {', '.join(spec.by_id)}")
        if spec.is_callback(task_id):
            raise errors.CALLBACK_BY_HAND(task_id=task_id, dag_id=dag.dag_id)
        run_id = run_id_for(s.EXTERNAL_RUN, timeline_key(call.request.requested_at, None))
        own_id = f"{run_id}__{call.id}"  # when another request came in the same microsecond
        existing = self._store.read(DagRun, matching(dag_id=dag.dag_id, run_id=(run_id, own_id)))
        for run in existing:
            if run.request_id == call.id:
                return run.run_id, f"run {run.run_id} exists already"
        check_conf(command.conf, spec)
        interval = manual_interval(spec, command.logical_date, call.now)
        row = _new_run(call, dag, s.EXTERNAL_RUN, own_id if existing else run_id, interval)
        row = row.evolve(conf_json=json.dumps(command.conf))
        make_run(self._state, row, spec, TimelineWindow(), selected=[task_id])
        return row.run_id, f"task {task_id} runs in {row.run_id}"

    # -- existing runs ------------------------------------------------------------------------------------------------
    def _cancel_run(self, command: commands.CancelRun, call: Call) -> Answer | None:
        found = self._find((command.dag_id, command.run_id))
        run_id, live, items = found.row.run_id, found.live, found.row.items
        is_cancelled = f"run {run_id}{f', of {items} intervals,' if items > 1 else ''} is cancelled"
        if live is None:
            if (state := found.row.state) == s.CANCELLED:
                return run_id, is_cancelled
            raise Refused(f"Run {run_id} is {state} already; only one that is queued or running can be cancelled.")
        cancel_tasks(call.tick, live, f"cancelled by {call.by}")
        if any(ti.state in s.TASK_STARTED for ti in live.tasks.values()):
            return None
        if any(ti.state == s.CANCELLED for ti in live.own_tasks):
            return run_id, is_cancelled
        if any(ti.state == s.CANCELLED for ti in live.tasks.values()):
            return run_id, f"the tasks of run {run_id} had finished; its callbacks are cancelled"
        raise Refused(f"Run {run_id} had finished before it could be cancelled.")

    def _mark_run(self, command: commands.MarkRun, call: Call) -> Answer | None:
        if not self._mark(self._find((command.dag_id, command.run_id)), command.state, call):
            return None
        return command.run_id, f"run {command.run_id} is marked {command.state}"

    def _mark_runs(self, command: commands.MarkRuns, call: Call) -> Answer | None:
        if call.id not in self._marking:
            planned = plan_mark(self._store, command, self._state.catalog.dags)
            keys = [run.key for run in (*planned.runs, *self._half_marked(planned.unchanged))]
            self._marking[call.id] = _Marking(planned, keys)
        marking = self._marking[call.id]
        loaded = self._load(marking.runs)
        found = [self._find(key, loaded) for key in marking.runs]
        # In the meantime another run may have taken the place of one, or it was reverted.
        left = [one for one in found if _may_reopen(one.row) and not self._mark(one, command.state, call)]
        marking.runs = [one.row.key for one in left]
        if left:
            return None
        del self._marking[call.id]
        summary = marking.plan.summary
        before = f"; {plural(n, 'run')} had that state before" if (n := summary["unchanged"]) else ""
        marked = f"{plural(summary['runs'], 'run')} {'is' if summary['runs'] == 1 else 'are'}"
        return command.dag_id, f"{marked} marked {command.state}{before}"

    def _half_marked(self, runs: Sequence[DagRun]) -> Iterator[DagRun]:
        """Those of these marked runs from which the states of items or of the backfill are still to be derived: a crash may
        have come between them."""
        loaded = self._load(run.key for run in runs)
        of_backfill: dict[str, DagRun] = {}
        for run in runs:
            if run.backfill_id is not None:
                of_backfill.setdefault(run.backfill_id, run)
                if any(item.state != run.state for item in loaded.items[run.backfill_id, run.run_id]):
                    yield run
        for row in self._store.read(Backfill, matching(backfill_id=list(of_backfill))) if of_backfill else ():
            counts = self._store.count(BackfillItem.TABLE, ["state"], matching(backfill_id=row.backfill_id))
            ended_well = not counts.get((s.FAILED,)) and not counts.get((s.CANCELLED,))
            if row.state in (s.SUCCESS, s.FAILED) and ended_well != (row.state == s.SUCCESS):
                yield of_backfill[row.backfill_id]

    def _mark(self, found: _FoundRun, state: str, call: Call) -> bool:
        """Sets a run to `success` or `failed`; False while its tasks are being stopped, or its tables reverted or promoted."""
        reason = f"marked {state} by {call.by}"
        if self._state.is_held(found.row.key):
            return False
        if found.live and call.tick.cancel(found.tasks.values(), reason):
            for ti in list(found.tasks.values()):
                if ti.state not in s.TASK_FINISHED | s.TASK_STARTED:  # so that nothing starts meanwhile
                    new_state = s.SKIPPED if found.spec.is_callback(ti.task_id) else state
                    self._state.put(c.marked(ti, new_state, call.now, reason))
            return False
        run = self._active(found, is_marked=True)
        kept = s.TASK_FINISHED - {s.CANCELLED}
        if state == s.SUCCESS:
            kept = frozenset({s.SUCCESS, s.SKIPPED, s.REMOVED})
        for ti in run.own_tasks:
            if ti.state not in kept:
                self._state.put(c.marked(ti, state, call.now, reason))
        self._skip_callbacks(run, run.tasks, call, reason)
        if state == s.SUCCESS:
            return True
        run.marked_failed = f"{MARKED_FAILED}{call.by}"
        if outcome_of(run) != s.FAILED or not any(ti.state == s.FAILED for ti in run.own_tasks):
            own = [ti.task_id for ti in run.own_tasks if ti.task_id in run.selected and ti.state != s.REMOVED]
            leaves = set(run.spec.leaves)
            for task_id in [one for one in own if one in leaves] or own:
                self._state.put(c.marked(run.tasks[task_id], s.FAILED, call.now, reason))
        return True

    def _mark_task(self, command: commands.MarkTask, call: Call) -> Answer | None:
        found = self._find((command.dag_id, command.run_id))
        run_id, task_id, tasks, spec = command.run_id, command.task_id, found.tasks, found.spec
        if self._state.is_held(found.row.key):
            return None
        if task_id not in tasks:
            raise NotFound(f"task of run {run_id}", task_id, tasks)
        if spec.mapped.get(task_id) and task_id in spec.by_id:
            raise errors.MARK_OF_MAPPED(task_id=task_id, mapped=name_list(list(spec.mapped[task_id].values())))
        if tasks[task_id].state == s.REMOVED:
            raise errors.MARK_OF_REMOVED(task_id=task_id, run_id=run_id)
        reason = f"marked {command.state} by {call.by}"
        again = set[str]()  # what could not start because of this task may start now
        if command.state != s.FAILED:
            again = _upstream_failed(tasks, spec.all_downstream([task_id]))
        again |= spec.callbacks_of(again) & set(tasks)
        if call.tick.cancel([tasks[stopped] for stopped in sorted(again | {task_id})], reason):
            return None
        was_marked = found.row.reason if was_marked_failed(found.row) else None
        run = self._active(found, is_marked=True)
        self._state.put(c.marked(run.tasks[task_id], command.state, call.now, reason))
        run.selected = selected_of(run.row, run.spec, run.tasks.values())  # with one that the backfill's tasks left out
        self._skip_callbacks(run, spec.callbacks_of([task_id]), call, reason)
        self._clear_tasks(run, again, call.id)
        if command.state == s.FAILED and was_marked:  # what was said of the run stands
            run.marked_failed = was_marked
        return run_id, f"task {task_id} of run {run_id} is marked {command.state}"

    def _skip_callbacks(self, run: ActiveRun, task_ids: Collection[str], call: Call, reason: str) -> None:
        """Whoever marks needs no notice: of these, the callbacks that have not started do not run. Those of the whole run still
        report the tasks that are left."""
        is_over = all(ti.state in s.TASK_FINISHED for ti in run.own_tasks)
        for callback in run.spec.callbacks:
            ti = run.tasks.get(callback.task_id)
            if ti is None or ti.task_id not in task_ids or ti.state in s.TASK_FINISHED | s.TASK_STARTED:
                continue
            if callback.watches is not None or is_over:
                self._state.put(c.marked(ti, s.SKIPPED, call.now, reason))

    def _note_run(self, command: commands.NoteRun, call: Call) -> Answer:
        """Of a run that is not active only its row is read, and it stays as it is."""
        key = (command.dag_id, command.run_id)
        live = self._state.runs.get(key)
        row = live.row if live is not None else self._load([key]).rows.get(key)
        if row is None:
            raise NotFound(f"run of DAG {key[0]!r} with the id", key[1])
        noted = with_note(row, command, call, secrets_in(read_column(row, "conf_json")))
        if noted != row:
            self._state.put(noted)
        return row.run_id, answer_of(f"run {row.run_id}", noted)

    # -- clear --------------------------------------------------------------------------------------------------------
    def _clear(self, payload: commands.ClearTasksPayload, call: Call) -> Answer | None:
        command = payload.ask
        if call.id not in self._clearing:
            self._derive_again(call, latest_version=command.latest_version)
            spec_of = partial(version_spec, self._state, self._store)
            try:
                plan = plan_clear(self._store, command, self._state.catalog.dags, spec_of)
            except StateError:
                raise
            except InvalidInput:
                done = len(self._cleared_by(call.id))
                if not done:
                    raise
                return command.dag_id, f"cleared {plural(done, 'task')}"  # in the tick before a crash
            if any(self._state.is_held(cleared.run.key) for cleared in plan.runs):
                return None  # planned when it is known what has become of them
            self._clearing[call.id] = _Clearing(plan.summary, list(plan.runs))
        clearing = self._clearing[call.id]
        loaded = self._load(cleared.run.key for cleared in clearing.runs)
        clearing.runs = [cleared for cleared in clearing.runs if not self._clear_run(cleared, loaded, call)]
        if clearing.runs:
            return None
        del self._clearing[call.id]
        tasks, runs, stay = (clearing.summary[what] for what in ("tasks", "runs", "stay_upstream_failed"))
        left = f"; {stay} task{'s' * (stay != 1)} after them stay{'s' * (stay == 1)} upstream_failed" if stay else ""
        return command.dag_id, f"cleared {tasks} task{'s' * (tasks != 1)} in {runs} run{'s' * (runs != 1)}{left}"

    def _clear_run(self, cleared: ClearedRun, loaded: LoadedRows, call: Call) -> bool:
        """Clear what is planned of one run as soon as none of it runs; False while it is being stopped."""
        found = self._find(cleared.run.key, loaded)
        row, tasks = found.row, found.tasks
        if self._state.is_held(row.key):
            return False
        chosen = {ti.task_id for ti in (*cleared.tasks, *cleared.running)}
        chosen |= found.spec.callbacks_of(chosen)  # of them, those that have started since the clear was planned
        if any(ti.cleared_by == call.id for ti in tasks.values()) or not _may_reopen(row):
            return True  # done, in an earlier tick; or another run has taken its place meanwhile, or it was reverted
        version = cleared.to_version if row.dag_version != cleared.to_version else None
        gone = set[str]()  # what the new version does not have
        if version is not None:
            spec = spec_with_tasks(version_spec(self._state, self._store, row.dag_id, version), tasks)
            gone = set(tasks) - set(spec.by_id)
        stopped_first = [ti for task_id, ti in sorted(tasks.items()) if task_id in chosen | gone]
        if call.tick.cancel(stopped_first, f"stopped to be cleared by {call.by}"):
            return False
        run = self._active(found)
        for ti in cleared.running:  # what failed to start only because this was stopped
            chosen |= _upstream_failed(run.tasks, run.spec.all_downstream([ti.task_id]))
        before = dict(run.tasks)
        self._clear_tasks(run, chosen | run.spec.callbacks_of(chosen), call.id)
        if version is not None:
            self._move_to(run, version, call, before)
        return True

    def _clear_tasks(self, run: ActiveRun, task_ids: Collection[str], request_id: str) -> None:
        """What the run's backfill leaves out stays skipped; what its version does not have (any more) is `removed`."""
        run.marked_failed = None
        for task_id in sorted(set(task_ids) & set(run.tasks) & run.selected):
            if run.tasks[task_id].state != s.NONE:
                self._state.put(c.cleared(run.tasks[task_id], request_id))

    def _cleared_by(self, request_id: str) -> list[TaskInstance]:
        return self._store.read(TaskInstance, matching(cleared_by=request_id))

    def _derive_again(self, call: Call, *, latest_version: bool) -> None:
        """A crash may have come between the tasks that this request cleared and their runs, and the tasks may have ended at once
        (behind one that failed): the states of these runs are derived again. They may not have moved to the version yet."""
        keys = {(ti.dag_id, ti.run_id) for ti in self._cleared_by(call.id)}
        loaded = self._load(keys)
        for row in loaded.rows.values():
            if _may_reopen(row):
                reopen_run(self._state, row, loaded)
        for key in sorted(keys) if latest_version else ():
            run, version = self._state.runs.get(key), self._state.catalog.dags[key[0]].current_version
            if run is not None and run.row.dag_version != version:
                self._move_to(run, version, call)

    def _move_to(
        self, run: ActiveRun, version: int, call: Call, before: Mapping[str, TaskInstance] | None = None
    ) -> None:
        """The run continues with another version of its DAG: tasks that it lacks are `removed`, new ones are added. A run of a
        backfill stays with its own version where the other has none of the tasks that the backfill names: it would succeed
        without any work."""
        version_spec(self._state, self._store, run.row.dag_id, version)
        owner, moved = self._state.owner_of(run.row), run.row.evolve(dag_version=version)
        spec = self._state.spec_of_run(moved, owner.row if owner else None, run.tasks if before is None else before)
        selected = selected_of_backfill(owner.row, spec) if owner else spec.by_id
        if not selected:
            return
        self._state.put(moved)
        run.spec = spec
        fit_tasks(self._state, run, selected, call.now)

    # -- shared -------------------------------------------------------------------------------------------------------
    def _load(self, keys: Iterable[RunKey]) -> LoadedRows:
        """Those of the runs that have finished."""
        return LoadedRows(self._store, (key for key in keys if key not in self._state.runs))

    def _find(self, key: RunKey, loaded: LoadedRows | None = None) -> _FoundRun:
        """`loaded` holds the run if it has finished; without it, the run is read. `NotFound` if there is none."""
        live, loaded = self._state.runs.get(key), loaded or self._load([key])
        if live is not None:
            return _FoundRun(live.row, live.tasks, live.spec, live, loaded)
        row = loaded.rows.get(key)
        if row is None:
            raise NotFound(f"run of DAG {key[0]!r} with the id", key[1])
        tasks = loaded.tasks[key]
        spec = spec_with_tasks(version_spec(self._state, self._store, row.dag_id, row.dag_version), tasks)
        return _FoundRun(row, tasks, spec, None, loaded)

    def _active(self, found: _FoundRun, *, is_marked: bool = False) -> ActiveRun:
        return found.live or reopen_run(self._state, found.row, found.loaded, is_marked=is_marked)


def _new_run(
    call: Call, dag: DagRow, run_type: str, run_id: str, interval: tuple[datetime, datetime] | None
) -> DagRun:  # fmt: skip
    """`interval`: None for a run of a partition."""
    start, end = interval or (None, None)
    return DagRun(
        dag_id=dag.dag_id, run_id=run_id, run_type=run_type, state=s.QUEUED, dag_version=dag.current_version,
        run_seq=call.tick.next_seq(1), created_at=call.now, request_id=call.id, logical_date=start,
        interval_start=start, interval_end=end,
    )  # fmt: skip


def _may_reopen(run: DagRun) -> bool:
    return run.state != s.OVERRIDDEN and run.reverted_at is None


def _upstream_failed(tasks: dict[str, TaskInstance], task_ids: Iterable[str]) -> set[str]:
    """Those of the tasks that could not start because of others."""
    return {task_id for task_id in task_ids if task_id in tasks and tasks[task_id].state == s.UPSTREAM_FAILED}
