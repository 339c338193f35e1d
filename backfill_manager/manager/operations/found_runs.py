"""Runs that a command concerns, active or as the tables have them, and how they become active again."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks
from backfill_manager.errors import NotFound
from backfill_manager.manager.decisions.reopen import LoadedRows, reopen_run, version_spec
from backfill_manager.manager.state import ActiveRun, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import DagRun, RunKey, TaskInstance
from backfill_manager.planning.runs.clear_plan import check_dates
from backfill_manager.planning.runs.timeline import is_current
from backfill_manager.store.base import Store


@dataclass
class FoundRun:
    """A run that a command concerns: `live`, or finished and as the tables have it."""

    row: DagRun
    tasks: dict[str, TaskInstance]
    spec: DagSpec
    live: ActiveRun | None
    loaded: LoadedRows


class FoundRuns:
    def __init__(self, state: ManagerState, store: Store) -> None:
        self._state, self._store = state, store

    def load(self, keys: Iterable[RunKey]) -> LoadedRows:
        """Those of the runs that have finished."""
        return LoadedRows(self._store, (key for key in keys if key not in self._state.runs))

    def find(self, key: RunKey, loaded: LoadedRows | None = None) -> FoundRun:
        """`loaded` holds the run if it has finished; without it, the run is read. `NotFound` if there is none."""
        live, loaded = self._state.runs.get(key), loaded or self.load([key])
        if live is not None:
            return FoundRun(live.row, live.tasks, live.spec, live, loaded)
        row = loaded.rows.get(key)
        if row is None:
            raise NotFound(f"run of DAG {key[0]!r} with the id", key[1])
        tasks = loaded.tasks[key]
        spec = spec_with_tasks(version_spec(self._state, self._store, row.dag_id, row.dag_version), tasks)
        return FoundRun(row, tasks, spec, None, loaded)

    def active(self, found: FoundRun, *, is_marked: bool = False) -> ActiveRun:
        return found.live or reopen_run(self._state, found.row, found.loaded, is_marked=is_marked)


def check_no_date_is_live(state: ManagerState, runs: Iterable[DagRun]) -> None:
    """`Refused` where one of these runs, which would run again, has dates of a run that is active."""
    live = (run.row for run in state.runs.values() if is_current(run.row))
    check_dates((run for run in runs if run.key not in state.runs), live)


def may_reopen(run: DagRun) -> bool:
    return run.state != s.OVERRIDDEN and run.reverted_at is None


def clear_tasks(state: ManagerState, run: ActiveRun, task_ids: Collection[str], request_id: str) -> None:
    """What the run's backfill leaves out stays skipped; what its version does not have (any more) is `removed`."""
    run.marked_failed = None
    for task_id in sorted(set(task_ids) & set(run.tasks) & run.selected):
        if run.tasks[task_id].state != s.NONE:
            state.put(c.cleared(run.tasks[task_id], request_id))


def upstream_failed(tasks: dict[str, TaskInstance], task_ids: Iterable[str]) -> set[str]:
    """Those of the tasks that could not start because of others."""
    return {task_id for task_id in task_ids if task_id in tasks and tasks[task_id].state == s.UPSTREAM_FAILED}
