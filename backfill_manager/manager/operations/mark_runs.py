"""Cancels runs, and sets runs and tasks to a state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from backfill_manager.errors import NotFound, Refused
from backfill_manager.humanise import name_list, plural
from backfill_manager.manager.decisions.callbacks import outcome_of
from backfill_manager.manager.decisions.create_run import selected_of
from backfill_manager.manager.decisions.item_outcomes import MARKED_FAILED, was_marked_failed
from backfill_manager.manager.decisions.runs import cancel_tasks
from backfill_manager.manager.operations.found_runs import (
    FoundRun,
    FoundRuns,
    check_no_date_is_live,
    clear_tasks,
    may_reopen,
    upstream_failed,
)
from backfill_manager.manager.state import ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, RunKey
from backfill_manager.planning.runs.mark_plan import MarkPlan, plan_mark
from backfill_manager.schemas import commands, errors
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store, matching


@dataclass
class _Marking:
    """A mark of several runs under way."""

    plan: MarkPlan
    runs: list[RunKey]  # that are still to be marked


class MarkRuns:
    def __init__(self, state: ManagerState, store: Store, runs: FoundRuns) -> None:
        self._state, self._store, self._runs = state, store, runs
        self._marking: dict[str, _Marking] = {}  # by request, while something is being stopped
        self.handlers: dict[type[Command], Handler] = {
            commands.CancelRun: self._cancel_run, commands.MarkRun: self._mark_run, commands.MarkRuns: self._mark_runs,
            commands.MarkTask: self._mark_task,
        }  # fmt: skip

    def _cancel_run(self, command: commands.CancelRun, call: Call) -> Answer | None:
        found = self._runs.find((command.dag_id, command.run_id))
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
        if not self._mark(self._runs.find((command.dag_id, command.run_id)), command.state, call):
            return None
        return command.run_id, f"run {command.run_id} is marked {command.state}"

    def _mark_runs(self, command: commands.MarkRuns, call: Call) -> Answer | None:
        if call.id not in self._marking:
            planned = plan_mark(self._store, command, self._state.catalog.dags)
            keys = [run.key for run in (*planned.runs, *self._half_marked(planned.unchanged))]
            self._marking[call.id] = _Marking(planned, keys)
        marking = self._marking[call.id]
        loaded = self._runs.load(marking.runs)
        found = [self._runs.find(key, loaded) for key in marking.runs]
        # In the meantime another run may have taken the place of one, or it was reverted.
        left = [one for one in found if may_reopen(one.row) and not self._mark(one, command.state, call)]
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
        loaded = self._runs.load(run.key for run in runs)
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

    def _mark(self, found: FoundRun, state: str, call: Call) -> bool:
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
        run = self._runs.active(found, is_marked=True)
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
            leaves = set(run.spec.leaves_of(run.selected))
            for task_id in [one for one in own if one in leaves] or own:
                self._state.put(c.marked(run.tasks[task_id], s.FAILED, call.now, reason))
        return True

    def _mark_task(self, command: commands.MarkTask, call: Call) -> Answer | None:
        found = self._runs.find((command.dag_id, command.run_id))
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
            again = upstream_failed(tasks, spec.all_downstream([task_id]))
        if again:
            check_no_date_is_live(self._state, [found.row])
        again |= spec.callbacks_of(again) & set(tasks)
        if call.tick.cancel([tasks[stopped] for stopped in sorted(again | {task_id})], reason):
            return None
        was_marked = found.row.reason if was_marked_failed(found.row) else None
        run = self._runs.active(found, is_marked=True)
        self._state.put(c.marked(run.tasks[task_id], command.state, call.now, reason))
        run.selected = selected_of(run.row, run.spec, run.tasks.values())  # with one that the backfill's tasks left out
        self._skip_callbacks(run, spec.callbacks_of([task_id]), call, reason)
        clear_tasks(self._state, run, again, call.id)
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
