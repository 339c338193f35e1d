"""A DAG's timeline as it stands: its runs by logical date, each with those that it overrode."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from backfill_manager.model import states
from backfill_manager.model.records import DagRun
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.store.base import Condition, Store


def timeline(
    store: Store, dag_id: str, limit: int | None = None, *, before: datetime | None = None
) -> list[dict[str, Any]]:
    """Oldest first; with a `limit`, the runs of the newest dates, or of those before the date `before`, of which each is
    one run's. `overridden` of a run holds the runs that it took the place of, newest first, each with its own."""
    older = [Condition("logical_date", "<", before)] if before is not None else []
    standing = store.read(
        DagRun, [*_in_timeline(dag_id), *older], order_by=("-logical_date",), limit=limit, without=NOT_LISTED
    )[::-1]
    if not standing:
        return []
    where = [
        Condition("dag_id", "=", dag_id),
        Condition("state", "=", states.OVERRIDDEN),
        Condition("logical_date", ">=", standing[0].logical_date),
    ]
    return _nested(standing, _by_successor(store.read(DagRun, where, order_by=("-run_seq",), without=NOT_LISTED)))


def _in_timeline(dag_id: str) -> list[Condition]:
    return [
        Condition("dag_id", "=", dag_id),
        Condition("logical_date", "not_null"),
        Condition("state", "!=", states.OVERRIDDEN),
        Condition("run_type", "!=", states.EXTERNAL_RUN),
    ]


def _by_successor(overridden: Iterable[DagRun]) -> dict[str, list[DagRun]]:
    found: dict[str, list[DagRun]] = {}
    for run in overridden:
        if run.overridden_by is not None:
            found.setdefault(run.overridden_by, []).append(run)
    return found


def _nested(runs: Iterable[DagRun], overridden: dict[str, list[DagRun]]) -> list[dict[str, Any]]:
    return [{**run_view(run), "overridden": _nested(overridden.get(run.run_id, ()), overridden)} for run in runs]
