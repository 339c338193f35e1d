"""A DAG's newest runs with the state of each of their tasks: the grid of a page. Bounded: one page of runs at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.planning.runs.timeline import timeline_of
from backfill_manager.queries.documents import document
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.schemas import resources
from backfill_manager.store.base import Condition, Store, matching

Order = Literal["date", "made"]
MAX_RUNS: Final = 200


def grid(
    store: Store, spec: DagSpec, *, order: Order = "date", limit: int = 30, before_date: datetime | None = None,
    before_seq: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`runs` oldest first, each a run as everywhere with `cells`: task id -> state, tries, times. `tasks` are the rows:
    those of the current definition in its order, each followed by those that are mapped from it in these runs
    (`mapped_from`), then those that only older runs had (not `is_current`). `older` says where the next page begins
    (`before_date` or `before_seq`), or is None; `numbers` are the runs' `run_seq` by id.

    By `date`: the runs in the timeline, newest dates. `made`: all runs, the last made (also overridden ones,
    and those by partition key).
    """
    limit = max(1, min(limit, MAX_RUNS))
    by_date = order == "date"
    column, last = ("logical_date", before_date) if by_date else ("run_seq", before_seq)
    where = timeline_of(spec.dag_id) if by_date else matching(dag_id=spec.dag_id)
    if last is not None:
        where.append(Condition(column, "<", last))
    newest = store.read(DagRun, where, order_by=(f"-{column}",), limit=limit + 1, without=NOT_LISTED)
    more, shown = len(newest) > limit, newest[:limit][::-1]
    cells = _cells(store, spec.dag_id, shown)
    current = [task.task_id for task in spec.in_order]
    others = sorted({task_id for of_run in cells.values() for task_id in of_run} - set(current))
    mapped: dict[str, list[str]] = {}
    for task_id in others:
        mapped.setdefault(_mapped_from(task_id, spec), []).append(task_id)
    rows = [
        *((each, one if each != one else None) for one in current for each in (one, *mapped.get(one, ()))),
        *((one, None) for one in mapped.get("", ())),
    ]
    return {
        "order": order,
        "runs": [{**run_view(run), "cells": cells.get(run.run_id, {})} for run in shown],
        "tasks": [
            {"task_id": one, "is_current": of is not None or one in current, "mapped_from": of} for one, of in rows
        ],
        "older": _cursor(shown[0], by_date) if more else None,
        "numbers": {run.run_id: run.run_seq for run in shown},
    }


def _mapped_from(task_id: str, spec: DagSpec) -> str:
    """Of a task, or a callback of one, that was mapped in its run: what it is declared as; else empty."""
    in_runs = spec.mapped_over_results
    if (declared := task_id.rpartition(".")[0]) in in_runs:
        return declared
    of_key, _, callback = task_id.rpartition(".")
    declared = of_key.rpartition(".")[0]
    return f"{declared}.{callback}" if declared in in_runs and f"{declared}.{callback}" in spec.by_id else ""


def _cursor(oldest: DagRun, by_date: bool) -> dict[str, Any]:
    return {"before_date": format_instant(oldest.logical_date)} if by_date else {"before_seq": oldest.run_seq}


def _cells(store: Store, dag_id: str, runs: Sequence[DagRun]) -> dict[str, dict[str, dict[str, Any]]]:
    """`run_seq` names the files; the runs of a page may lie far apart, so the ids are named as well."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    where = matching(run_seq=[run.run_seq for run in runs], dag_id=dag_id, run_id=[run.run_id for run in runs])
    for ti in store.read(TaskInstance, where) if runs else ():
        found.setdefault(ti.run_id, {})[ti.task_id] = document(resources.Cell.model_fields, ti)
    return found
