"""A DAG's newest runs with the state of each of their tasks: the grid of a page. Bounded: one page of runs at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.planning.timeline import timeline_of
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.store.base import Condition, Store

Order = Literal["date", "made"]
MAX_RUNS: Final = 200


def grid(
    store: Store,
    spec: DagSpec,
    *,
    order: Order = "date",
    limit: int = 30,
    before_date: datetime | None = None,
    before_seq: int | None = None,
) -> dict[str, Any]:
    """`runs` oldest first, each a run as everywhere with `cells`: task id -> state, tries, times. `tasks` are the rows:
    those of the current definition in its order, then those that only older runs had. `older` says where the next page
    begins (`before_date` or `before_seq`), or is None.

    By `date`: the runs in the timeline, newest dates. `made`: all runs, the last made (also overridden ones,
    and those by partition key).
    """
    limit = max(1, min(limit, MAX_RUNS))
    where = _which(spec.dag_id, order, before_date, before_seq)
    by = "-logical_date" if order == "date" else "-run_seq"
    newest = store.read(DagRun, where, order_by=(by,), limit=limit + 1, without=NOT_LISTED)
    more, shown = len(newest) > limit, newest[:limit][::-1]
    cells = _cells(_instances(store, spec.dag_id, shown))
    return {
        "order": order,
        "runs": [{**run_view(run), "cells": cells.get(run.run_id, {})} for run in shown],
        "tasks": _tasks(spec, cells.values()),
        "older": _cursor(shown[0], order) if more else None,
    }


def _which(dag_id: str, order: Order, date: datetime | None, seq: int | None) -> list[Condition]:
    of_dag = [Condition("dag_id", "=", dag_id)]
    if order == "made":
        return of_dag if seq is None else [*of_dag, Condition("run_seq", "<", seq)]
    return timeline_of(dag_id) if date is None else [*timeline_of(dag_id), Condition("logical_date", "<", date)]


def _cursor(oldest: DagRun, order: Order) -> dict[str, Any]:
    return {"before_date": format_instant(oldest.logical_date)} if order == "date" else {"before_seq": oldest.run_seq}


def _instances(store: Store, dag_id: str, runs: Sequence[DagRun]) -> list[TaskInstance]:
    """`run_seq` names the files; the runs of a page may lie far apart, so the ids are named as well."""
    if not runs:
        return []
    where = [
        Condition("run_seq", "in", tuple(run.run_seq for run in runs)),
        Condition("dag_id", "=", dag_id),
        Condition("run_id", "in", tuple(run.run_id for run in runs)),
    ]
    return store.read(TaskInstance, where)


def _cells(instances: Iterable[TaskInstance]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for ti in instances:
        found.setdefault(ti.run_id, {})[ti.task_id] = {
            "state": ti.state,
            "try_number": ti.try_number,
            "started_at": format_instant(ti.started_at),
            "duration_s": ti.duration_s,
        }
    return found


def _tasks(spec: DagSpec, cells: Iterable[dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """`is_current` is false for a task that the current definition has no more."""
    current = [task.task_id for task in spec.in_order]
    gone = sorted({task_id for of_run in cells for task_id in of_run} - set(current))
    return [{"task_id": one, "is_current": True} for one in current] + [
        {"task_id": one, "is_current": False} for one in gone
    ]
