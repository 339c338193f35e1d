"""Clears tasks of runs: they run again, as `planning/runs/clear_plan.py` has chosen them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.dags.task_selection import selected_of_backfill
from backfill_manager.errors import InvalidInput, StateError
from backfill_manager.humanise import plural
from backfill_manager.manager.decisions.create_run import fit_tasks
from backfill_manager.manager.decisions.reopen import LoadedRows, reopen_run, version_spec
from backfill_manager.manager.operations.found_runs import (
    FoundRuns,
    check_no_date_is_live,
    clear_tasks,
    may_reopen,
    upstream_failed,
)
from backfill_manager.manager.state import ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Answer, Call, Handler
from backfill_manager.model.records import TaskInstance
from backfill_manager.planning.runs.clear_plan import ClearedRun, plan_clear
from backfill_manager.schemas import commands
from backfill_manager.schemas.command import Command
from backfill_manager.store.base import Store, matching


@dataclass
class _Clearing:
    """A clear under way, as it was planned: after tasks were stopped the plan would not be the same."""

    summary: dict[str, int]
    runs: list[ClearedRun]  # that are still to be cleared


class ClearRuns:
    def __init__(self, state: ManagerState, store: Store, runs: FoundRuns) -> None:
        self._state, self._store, self._runs = state, store, runs
        self._clearing: dict[str, _Clearing] = {}  # by request, while something is being stopped
        self.handlers: dict[type[Command], Handler] = {commands.ClearTasksPayload: self._clear}

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
            if not self._cleared_by(call.id):  # else it was accepted before a crash
                check_no_date_is_live(self._state, (cleared.run for cleared in plan.runs))
            self._clearing[call.id] = _Clearing(plan.summary, list(plan.runs))
        clearing = self._clearing[call.id]
        loaded = self._runs.load(cleared.run.key for cleared in clearing.runs)
        clearing.runs = [cleared for cleared in clearing.runs if not self._clear_run(cleared, loaded, call)]
        if clearing.runs:
            return None
        del self._clearing[call.id]
        tasks, runs, stay = (clearing.summary[what] for what in ("tasks", "runs", "stay_upstream_failed"))
        left = f"; {stay} task{'s' * (stay != 1)} after them stay{'s' * (stay == 1)} upstream_failed" if stay else ""
        return command.dag_id, f"cleared {tasks} task{'s' * (tasks != 1)} in {runs} run{'s' * (runs != 1)}{left}"

    def _clear_run(self, cleared: ClearedRun, loaded: LoadedRows, call: Call) -> bool:
        """Clear what is planned of one run as soon as none of it runs; False while it is being stopped."""
        found = self._runs.find(cleared.run.key, loaded)
        row, tasks = found.row, found.tasks
        if self._state.is_held(row.key):
            return False
        chosen = {ti.task_id for ti in (*cleared.tasks, *cleared.running)}
        chosen |= found.spec.callbacks_of(chosen)  # of them, those that have started since the clear was planned
        if any(ti.cleared_by == call.id for ti in tasks.values()) or not may_reopen(row):
            return True  # done, in an earlier tick; or another run has taken its place meanwhile, or it was reverted
        version = cleared.to_version if row.dag_version != cleared.to_version else None
        gone = set[str]()  # what the new version does not have
        if version is not None:
            spec = spec_with_tasks(version_spec(self._state, self._store, row.dag_id, version), tasks)
            gone = set(tasks) - set(spec.by_id)
        stopped_first = [ti for task_id, ti in sorted(tasks.items()) if task_id in chosen | gone]
        if call.tick.cancel(stopped_first, f"stopped to be cleared by {call.by}"):
            return False
        run = self._runs.active(found)
        for ti in cleared.running:  # what failed to start only because this was stopped
            chosen |= upstream_failed(run.tasks, run.spec.all_downstream([ti.task_id]))
        before = dict(run.tasks)
        clear_tasks(self._state, run, chosen | run.spec.callbacks_of(chosen), call.id)
        if version is not None:
            self._move_to(run, version, call, before)
        return True

    def _cleared_by(self, request_id: str) -> list[TaskInstance]:
        return self._store.read(TaskInstance, matching(cleared_by=request_id))

    def _derive_again(self, call: Call, *, latest_version: bool) -> None:
        """A crash may have come between the tasks that this request cleared and their runs, and the tasks may have ended at once
        (behind one that failed): the states of these runs are derived again. They may not have moved to the version yet."""
        keys = {(ti.dag_id, ti.run_id) for ti in self._cleared_by(call.id)}
        loaded = self._runs.load(keys)
        for row in loaded.rows.values():
            if may_reopen(row):
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
