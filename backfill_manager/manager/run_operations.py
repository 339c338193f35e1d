"""What a person does to single runs and tasks: trigger, run one task, cancel, mark, clear; and retry of a backfill.

These reach for what is finished, and so read the tables; they are carried out when nothing of runs or items is waiting
to be committed, so that tables and memory say the same. Nothing that runs is changed under its feet: it is stopped first,
and the request stays unanswered until it has stopped (`handle` gives None, and is called again in the next tick).
Doing the same request twice, after a crash before its answer, has the effect of once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.dags.versions import refuse_inactive
from backfill_manager.errors import InvalidInput, NotFound, Refused
from backfill_manager.manager.create_run import make_run, selected_of
from backfill_manager.manager.instructions import CancelTry, Instructions
from backfill_manager.manager.items import reopen_failed
from backfill_manager.manager.prefetch import timeline_around
from backfill_manager.manager.reopen import LoadedRows, load_backfill, reopen_run, version_spec
from backfill_manager.manager.runs import cancel_tasks
from backfill_manager.manager.state import ActiveRun, ManagerState, RunKey
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun, Request, TaskInstance
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.planning.clear_plan import ClearedRun, plan_clear
from backfill_manager.planning.next_run import latest_complete
from backfill_manager.planning.timeline import TimelineWindow, place_of, run_id_for
from backfill_manager.requests import command_types
from backfill_manager.requests.backfills import selected_of_backfill
from backfill_manager.requests.clearing import ClearTasks
from backfill_manager.requests.triggering import check_logical_date
from backfill_manager.store.base import Condition, Leader, Store

Said = tuple[str | None, str]  # the touched thing's id, and what is to be said


@dataclass
class _Clearing:
    """A clear under way, as it was planned: what has been stopped would not look the same again."""

    summary: dict[str, int]
    runs: list[ClearedRun]  # that are still to be cleared


class RunOperations:
    KINDS: ClassVar = frozenset(
        {
            command_types.DAG_TRIGGER, command_types.TASK_RUN, command_types.RUN_CANCEL, command_types.RUN_MARK, command_types.TASK_MARK, command_types.TASKS_CLEAR,
            command_types.BACKFILL_RETRY,
        }
    )  # fmt: skip

    def __init__(self, state: ManagerState, store: Store, leader: Leader) -> None:
        self._state, self._store, self._leader = state, store, leader
        self._clearing: dict[str, _Clearing] = {}  # by request, while something is being stopped

    def may_read(self) -> bool:
        """True when the tables say of runs and items what memory says."""
        changed = self._state.changes
        return not any(changed.rows(table) for table in (DagRun.TABLE, BackfillItem.TABLE, Backfill.TABLE))

    def handle(self, request: Request, payload: dict[str, Any], now: datetime, todo: Instructions) -> Said | None:
        """None: something is being stopped first; ask again in the next tick."""
        match request.kind:
            case command_types.DAG_TRIGGER:
                return self._trigger(request, payload, now)
            case command_types.TASK_RUN:
                return self._run_task(request, payload, now)
            case command_types.RUN_CANCEL:
                return self._cancel_run(request, payload, now, todo)
            case command_types.RUN_MARK:
                return self._mark_run(request, payload, now, todo)
            case command_types.TASK_MARK:
                return self._mark_task(request, payload, now, todo)
            case command_types.BACKFILL_RETRY:
                return self._retry(request, str(payload["backfill_id"]), todo)
            case _:
                return self._clear(request, ClearTasks.from_payload(payload["ask"]), now, todo)

    # -- new runs -----------------------------------------------------------------------------------------------------
    def _trigger(self, request: Request, payload: dict[str, Any], now: datetime) -> Said:
        dag, spec = self._dag(payload["dag_id"])
        asked = payload["logical_date"]
        at = parse_instant(asked) if asked else None
        start, end = _interval(spec, at, now)
        stretch = TimelineWindow.of(timeline_around(dag.dag_id, [start], [], self._store))
        place = place_of(start, None)
        standing = stretch.standing(place)
        if standing is not None and standing.request_id == request.request_id:
            return standing.run_id, f"run {standing.run_id} has been made already"
        check_logical_date(at, now, allow_future=bool(payload.get("allow_future")))
        if standing is not None and standing.state in s.RUN_LIVE:
            raise Refused(
                f"Run {standing.run_id} of that date is {standing.state}; wait for its end, or cancel it: "
                f"`bfm runs cancel {standing.run_id}`"
            )
        row = self._new_run(request, dag, s.MANUAL_RUN, stretch.next_run_id(s.MANUAL_RUN, place), now).evolve(
            logical_date=start, interval_start=start, interval_end=end, conf_json=json.dumps(payload["conf"])
        )
        make_run(self._state, row, spec, stretch=stretch, overrides=[standing] if standing else [], now=now)
        again = f"; it does {standing.run_id} over" if standing else ""
        early = "; its interval has not ended: the schedule does it over when it has" if end > max(start, now) else ""
        return row.run_id, f"run {row.run_id} from {format_instant(start)} to {format_instant(end)}{again}{early}"

    def _run_task(self, request: Request, payload: dict[str, Any], now: datetime) -> Said:
        dag, spec = self._dag(payload["dag_id"])
        task_id = str(payload["task_id"])
        if task_id not in spec.by_id:
            raise NotFound(f"task of DAG {dag.dag_id!r}", task_id, spec.by_id)
        if spec.is_callback(task_id):
            raise Refused(
                f"{task_id} is a callback: it tells how something ended, and by hand nothing has. To have a run tell again: "
                f"`bfm tasks clear {dag.dag_id} --run RUN -t {task_id}`"
            )
        run_id = run_id_for(s.EXTERNAL_RUN, place_of(request.requested_at, None))
        own_id = f"{run_id}__{request.request_id}"  # when somebody else asked in the same microsecond
        of_ids = [Condition("dag_id", "=", dag.dag_id), Condition("run_id", "in", (run_id, own_id))]
        there = self._store.read(DagRun, of_ids)
        for run in there:
            if run.request_id == request.request_id:
                return run.run_id, f"run {run.run_id} has been made already"
        run_id = own_id if there else run_id
        at = parse_instant(payload["logical_date"])
        start, end = _interval(spec, at, now)
        row = self._new_run(request, dag, s.EXTERNAL_RUN, run_id, now).evolve(
            logical_date=start, interval_start=start, interval_end=end
        )
        make_run(self._state, row, spec, stretch=None, selected=[task_id], now=now)
        return run_id, f"task {task_id} runs in {run_id}"

    def _new_run(self, request: Request, dag: DagRow, run_type: str, run_id: str, now: datetime) -> DagRun:
        return DagRun(
            dag_id=dag.dag_id, run_id=run_id, run_type=run_type, state=s.QUEUED, dag_version=dag.current_version,
            run_seq=self._leader.next_seq(1), created_at=now, request_id=request.request_id,
        )  # fmt: skip

    # -- a run that is there ------------------------------------------------------------------------------------------
    def _cancel_run(self, request: Request, payload: dict[str, Any], now: datetime, todo: Instructions) -> Said | None:
        row, _ = self._run_row(payload["dag_id"], payload["run_id"])
        live = self._state.runs.get((row.dag_id, row.run_id))
        if live is None:
            if row.state == s.CANCELLED:
                return row.run_id, f"run {row.run_id} is cancelled"
            raise Refused(
                f"Run {row.run_id} is {row.state} already; only one that is queued or running can be cancelled."
            )
        cancel_tasks(self._state, live, f"cancelled by {request.requested_by}", now, todo)
        if any(ti.state in s.TASK_STARTED for ti in live.tasks.values()):
            return None
        if any(ti.state == s.CANCELLED for ti in live.work):
            return row.run_id, f"run {row.run_id} is cancelled"
        if any(ti.state == s.CANCELLED for ti in live.tasks.values()):
            return row.run_id, f"run {row.run_id} had done its work; its callbacks are cancelled"
        raise Refused(f"Run {row.run_id} had finished when it was to be stopped.")

    def _mark_run(self, request: Request, payload: dict[str, Any], now: datetime, todo: Instructions) -> Said | None:
        row, loaded = self._run_row(payload["dag_id"], payload["run_id"])
        state = str(payload["state"])
        reason = f"marked {state} by {request.requested_by}"
        live = self._state.runs.get((row.dag_id, row.run_id))
        if live is not None and self._stop(live.tasks.values(), reason, todo):
            for ti in list(live.tasks.values()):
                if ti.state not in s.TASK_FINISHED | s.TASK_STARTED:  # so that nothing starts meanwhile
                    as_marked = s.SKIPPED if live.spec.is_callback(ti.task_id) else state
                    self._state.put(c.marked(ti, as_marked, now, reason))
            return None
        run = live or reopen_run(self._state, self._store, row, loaded)
        wrong = {s.SUCCESS: s.TASK_FINISHED - {s.SUCCESS, s.SKIPPED, s.REMOVED}, s.FAILED: frozenset({s.CANCELLED})}[
            state
        ]
        for ti in run.work:
            unfinished = ti.state not in s.TASK_FINISHED
            if unfinished or ti.state in wrong:
                self._state.put(c.marked(ti, state, now, reason))
        self._call_nobody(run, run.tasks, now, reason)
        if state == s.FAILED and not any(ti.state == s.FAILED for ti in run.work):
            for task_id in run.spec.leaves:
                if task_id in run.selected:
                    self._state.put(c.marked(run.tasks[task_id], s.FAILED, now, reason))
        return row.run_id, f"run {row.run_id} is marked {state}"

    def _mark_task(self, request: Request, payload: dict[str, Any], now: datetime, todo: Instructions) -> Said | None:
        row, loaded = self._run_row(payload["dag_id"], payload["run_id"])
        task_id, state = payload["task_id"], payload["state"]
        live = self._state.runs.get((row.dag_id, row.run_id))
        tasks = live.tasks if live else loaded.tasks(row)
        if task_id not in tasks:
            raise NotFound(f"task of run {row.run_id}", task_id, tasks)
        reason = f"marked {state} by {request.requested_by}"
        spec = live.spec if live else version_spec(self._state, self._store, row.dag_id, row.dag_version)
        again = set[str]()  # what could not start because of it may now
        if state != s.FAILED:
            again = {after for after in spec.all_downstream([task_id]) if _is(tasks.get(after), s.UPSTREAM_FAILED)}
        again |= spec.callbacks_of(again) & set(tasks)
        if self._stop([tasks[stopped] for stopped in sorted(again | {task_id})], reason, todo):
            return None
        run = live or reopen_run(self._state, self._store, row, loaded)
        self._state.put(c.marked(run.tasks[task_id], state, now, reason))
        self._call_nobody(run, spec.callbacks_of([task_id]), now, reason)
        for other in sorted(again & run.selected):
            if run.tasks[other].state != s.NONE:
                self._state.put(c.cleared(run.tasks[other], request.request_id))
        return row.run_id, f"task {task_id} of run {row.run_id} is marked {state}"

    def _call_nobody(self, run: ActiveRun, task_ids: Collection[str], now: datetime, reason: str) -> None:
        """Who marks knows: of these, the callbacks that have not started don't. Those of the whole run still tell of the
        tasks that are left."""
        is_over = all(ti.state in s.TASK_FINISHED for ti in run.work)
        for callback in run.spec.callbacks:
            ti = run.tasks.get(callback.task_id)
            if ti is None or ti.task_id not in task_ids or ti.state in s.TASK_FINISHED | s.TASK_STARTED:
                continue
            if callback.watches is not None or is_over:
                self._state.put(c.marked(ti, s.SKIPPED, now, reason))

    # -- clear --------------------------------------------------------------------------------------------------------
    def _clear(self, request: Request, ask: ClearTasks, now: datetime, todo: Instructions) -> Said | None:
        by = request.request_id
        if by not in self._clearing:
            self._derive_again(by)
            if ask.latest_version:
                self._finish_moves(by, now)
            try:
                plan = plan_clear(
                    self._store, ask, self._state.catalog.dags, partial(version_spec, self._state, self._store)
                )
            except InvalidInput:
                done = len(self._cleared_by(by))
                if not done:
                    raise
                return ask.dag, f"cleared {done} tasks"  # in the tick before a crash
            self._clearing[by] = _Clearing(plan.summary, list(plan.runs))
        clearing = self._clearing[by]
        loaded = self._at_hand(one.run.key for one in clearing.runs)
        clearing.runs = [one for one in clearing.runs if self._clear_run(one, loaded, request, now, todo)]
        if clearing.runs:
            return None
        del self._clearing[by]
        tasks, runs = (clearing.summary[what] for what in ("tasks", "runs"))
        stay = clearing.summary["stay_upstream_failed"]
        left = f"; {stay} task{'s' * (stay != 1)} after them stay{'s' * (stay == 1)} upstream_failed" if stay else ""
        return ask.dag, f"cleared {tasks} task{'s' * (tasks != 1)} in {runs} run{'s' * (runs != 1)}{left}"

    def _clear_run(
        self, one: ClearedRun, loaded: LoadedRows, request: Request, now: datetime, todo: Instructions
    ) -> bool:
        """Clear what is planned of one run as soon as nothing of it runs any more; True while that is awaited."""
        by = request.request_id
        live = self._state.runs.get((one.run.dag_id, one.run.run_id))
        row = live.row if live else loaded.rows[one.run.key]
        tasks = live.tasks if live else loaded.tasks(row)
        spec = live.spec if live else version_spec(self._state, self._store, row.dag_id, row.dag_version)
        chosen = {ti.task_id for ti in (*one.tasks, *one.running)}
        chosen |= spec.callbacks_of(chosen)  # of them, those that have begun since the clear was planned
        if any(ti.cleared_by == by for ti in tasks.values()) or row.state == s.OVERRIDDEN:
            return False  # done, in an earlier tick; or another run has taken its place meanwhile
        moves = one.to_version is not None and row.dag_version != one.to_version
        if moves and one.to_version is not None:  # what the new version does not have goes away
            kept = version_spec(self._state, self._store, row.dag_id, one.to_version).by_id
            stopped_first = {task_id for task_id in tasks if task_id in chosen or task_id not in kept}
        else:
            stopped_first = chosen
        reason = f"stopped to be cleared by {request.requested_by}"
        if self._stop([tasks[task_id] for task_id in sorted(stopped_first) if task_id in tasks], reason, todo):
            return True
        run = live or reopen_run(self._state, self._store, row, loaded)
        for ti in one.running:  # what failed to start only because this was stopped
            after = run.spec.all_downstream([ti.task_id])
            chosen |= {other for other in after if _is(run.tasks.get(other), s.UPSTREAM_FAILED)}
        chosen |= spec.callbacks_of(chosen)
        # What its backfill leaves out never ran, and stays so; what its version does not have (any more) is `removed`.
        for task_id in sorted(chosen & set(run.tasks) & run.selected):
            if run.tasks[task_id].state != s.NONE:
                self._state.put(c.cleared(run.tasks[task_id], by))
        if moves and one.to_version is not None:
            self._move_to(run, one.to_version, now)
        return False

    def _cleared_by(self, request_id: str) -> list[TaskInstance]:
        return self._store.read(TaskInstance, [Condition("cleared_by", "=", request_id)])

    def _derive_again(self, by: str) -> None:
        """A crash may have come between the tasks that this request cleared and their runs, and the tasks may have ended
        at once (behind one that failed): the runs end anew."""
        loaded = self._at_hand((ti.dag_id, ti.run_id) for ti in self._cleared_by(by))
        for row in loaded.rows.values():
            if row.state != s.OVERRIDDEN:
                reopen_run(self._state, self._store, row, loaded)

    def _finish_moves(self, by: str, now: datetime) -> None:
        """A crash may have come between the tasks that this request cleared and their runs: these have not moved to the
        latest version then."""
        for dag_id, run_id in sorted({(ti.dag_id, ti.run_id) for ti in self._cleared_by(by)}):
            run, version = self._state.runs.get((dag_id, run_id)), self._state.catalog.dags[dag_id].current_version
            if run is not None and run.row.dag_version != version:
                self._move_to(run, version, now)

    def _move_to(self, run: ActiveRun, version: int, now: datetime) -> None:
        """The run goes on with another version of its DAG: tasks it lost are `removed`, tasks it gained begin."""
        version_spec(self._state, self._store, run.row.dag_id, version)
        self._state.put(run.row.evolve(dag_version=version))
        owner = self._state.backfills.get(run.row.backfill_id or "")
        run.spec = self._state.spec_of_run(run.row, owner.row if owner else None)
        known = set(run.tasks)
        for ti in list(run.tasks.values()):
            if ti.task_id not in run.spec.by_id and ti.state != s.REMOVED:
                gone = c.cleared(ti, ti.cleared_by) if ti.state in s.TASK_FINISHED else ti
                self._state.put(c.removed(gone, now))
        for task in run.spec.tasks:
            if task.task_id in known:
                if run.tasks[task.task_id].state == s.REMOVED:
                    self._state.put(c.cleared(run.tasks[task.task_id], run.tasks[task.task_id].cleared_by))
            else:
                gained = TaskInstance(
                    dag_id=run.row.dag_id, run_id=run.row.run_id, task_id=task.task_id, state=s.NONE,
                    run_seq=run.row.run_seq, priority=task.priority + (owner.row.priority if owner else 0),
                )  # fmt: skip
                left_out = owner is not None and task.task_id not in selected_of_backfill(owner.row, run.spec)
                self._state.put(c.skipped(gained, now, NOT_SELECTED) if left_out else gained)
        run.selected = selected_of(run.row, run.spec, run.tasks.values())

    # -- retry of a backfill ------------------------------------------------------------------------------------------
    def _retry(self, request: Request, backfill_id: str, todo: Instructions) -> Said:
        live = self._state.backfills.get(backfill_id)
        if live is not None:
            if live.row.changed_by == request.request_id:
                return backfill_id, f"backfill {backfill_id} runs its failed items again"
            raise Refused(
                f"Backfill {backfill_id} is {live.row.state}; what failed can be tried again when it has ended."
            )
        rows = self._store.read(Backfill, [Condition("backfill_id", "=", backfill_id)])
        if not rows:
            raise NotFound("backfill", backfill_id, self._state.backfills)
        live = load_backfill(self._state, self._store, rows[0])
        if not live.counts[s.FAILED] and not live.counts[s.PENDING]:  # pending: a crash came in the middle of this
            raise Refused(f"Backfill {backfill_id} is {rows[0].state} and has no failed item to try again.")
        self._state.backfills[backfill_id] = live
        self._state.put(
            c.backfill_reopened(live.row).evolve(is_cancelled=False, reason=None, changed_by=request.request_id)
        )
        n = reopen_failed(self._state, live, todo)
        return backfill_id, f"backfill {backfill_id} runs {n} failed items again"

    # -- looking up ---------------------------------------------------------------------------------------------------
    def _stop(self, tasks: Iterable[TaskInstance], reason: str, todo: Instructions) -> bool:
        """Have those that are queued or running stopped; True if any is."""
        started = [ti for ti in tasks if ti.state in s.TASK_STARTED]
        for ti in started:
            todo.cancels.append(CancelTry((ti.dag_id, ti.run_id, ti.task_id, ti.launch), reason))
        return bool(started)

    def _dag(self, dag_id: Any) -> tuple[DagRow, DagSpec]:
        dag = self._state.catalog.dags.get(str(dag_id))
        if dag is None:
            raise NotFound(
                "DAG", str(dag_id), [row.dag_id for row in self._state.catalog.dags.values() if row.is_active]
            )
        refuse_inactive(dag)
        return dag, self._state.current_spec(dag.dag_id)

    def _at_hand(self, keys: Iterable[RunKey]) -> LoadedRows:
        """Those of the runs that have finished."""
        return LoadedRows(self._store, (key for key in keys if key not in self._state.runs))

    def _run_row(self, dag_id: Any, run_id: Any) -> tuple[DagRun, LoadedRows]:
        key = (str(dag_id), str(run_id))
        live, loaded = self._state.runs.get(key), self._at_hand([key])
        row = live.row if live else loaded.rows.get(key)
        if row is None:
            raise NotFound(f"run of DAG {dag_id!r} with the id", str(run_id))
        return row, loaded


def _interval(spec: DagSpec, asked: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """The interval of a run by hand: from the date asked for to the schedule's next firing; without a date the last one
    that is complete. A DAG without a schedule has no intervals: there it is the moment itself."""
    timetable = timetable_of(spec, asked)
    complete = latest_complete(timetable, now)
    if asked is None and complete is not None:
        return complete
    start = asked or now
    return start, (timetable.next_after(start) if timetable.repeats else None) or start


def _is(ti: TaskInstance | None, state: str) -> bool:
    return ti is not None and ti.state == state
