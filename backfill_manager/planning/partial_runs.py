"""Finds the runs that left tasks out by choice (`tasks` of a backfill), also those of releases that did not record it.

A run has `is_partial`. In one of an older release it is null: there the backfill has `tasks`, and the task instances that its
runs left out have an error of their own. Nothing is read for a DAG that has no such backfill.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.store.base import Condition, Store

RunKey = tuple[str, str]  # dag_id, run_id


def with_partial_marked(runs: Sequence[DagRun], store: Store) -> list[DagRun]:
    """The same runs, each partial one marked as such."""
    unmarked = {run.dag_id for run in runs if run.is_partial is None and run.backfill_id is not None}
    partial = partial_runs_of_older_releases(store, unmarked) if unmarked else frozenset()
    return [run.evolve(is_partial=True) if run.key in partial else run for run in runs]


def partial_runs_of_older_releases(store: Store, dag_ids: Collection[str]) -> frozenset[RunKey]:
    """Of these DAGs."""
    of_dags = Condition("dag_id", "in", sorted(dag_ids))
    chose_tasks = [of_dags, Condition("tasks", "not_null"), Condition("with_upstream", "is_null")]
    backfills = store.read(Backfill, chose_tasks)
    if not backfills:
        return frozenset()
    first = min(row.run_seq for row in backfills)  # a backfill's runs are made after it
    left_out = [
        Condition("run_seq", ">", first), Condition("dag_id", "in", sorted({row.dag_id for row in backfills})),
        Condition("state", "=", s.SKIPPED), Condition("error", "=", NOT_SELECTED),
    ]  # fmt: skip
    found = store.read_arrow("task_instance", ("dag_id", "run_id"), left_out)
    return frozenset(zip(found["dag_id"].to_pylist(), found["run_id"].to_pylist(), strict=True))
