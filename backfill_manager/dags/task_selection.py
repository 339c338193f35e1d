"""Which tasks of a DAG a backfill runs."""

from __future__ import annotations

from backfill_manager.dags.definition import DagSpec
from backfill_manager.model.records import Backfill
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.regex import searcher


def selected_tasks(
    pattern: str | None, dag: DagSpec, *, upstream: bool = False, downstream: bool = False
) -> tuple[str, ...]:
    """The ids of the tasks in whose id the expression is found (None: all), with those upstream or downstream of them if so
    chosen. Callbacks go with their tasks, and can't be selected by themselves."""
    is_named = searcher(pattern or "")
    named = {task.task_id for task in dag.work if is_named(task.task_id)}
    before = dag.all_upstream(named) if upstream else frozenset()
    after = dag.all_downstream(named) if downstream else frozenset()
    selected = [task.task_id for task in dag.work if task.task_id in named | before | after]
    callbacks = dag.callbacks_of(selected)
    return (*selected, *(task.task_id for task in dag.callbacks if task.task_id in callbacks))


def selected_of_backfill(row: Backfill, dag: DagSpec) -> tuple[str, ...]:
    return selected_tasks(row.tasks, dag, upstream=bool(row.with_upstream), downstream=bool(row.with_downstream))


def is_whole(command: CreateBackfill, dag: DagSpec) -> bool:
    selected = selected_tasks(command.tasks, dag, upstream=command.with_upstream, downstream=command.with_downstream)
    return set(selected) >= {task.task_id for task in dag.work}
