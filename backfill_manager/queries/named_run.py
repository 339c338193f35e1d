"""The run that somebody means. A run id is unique in its DAG only: `DAG/RUN` names one whatever other DAGs have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from backfill_manager.errors import Ambiguous, InvalidInput, NotFound, RunOfSeveralDags
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.planning.runs.timeline import is_current, timeline_of
from backfill_manager.queries.paging import LATEST
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.store.base import Condition, Store, matching


def find_run(store: Store, id_or_prefix: str, *, dag_id: str | None = None) -> DagRun:
    """By id, partition key (of a DAG), beginning of an id, logical date, the day of one, or `latest`, each also as `DAG/RUN`; of
    `dag_id` or, without one, wherever it is unique. `NotFound`, which names the batch that a date is part of; `Ambiguous`, or
    `RunOfSeveralDags` with the names that tell them apart."""
    dag_id, name = _with_dag(store, id_or_prefix, dag_id)
    if name == LATEST:
        return _newest(store, dag_id)
    found = _called(store, name, matching(dag_id=dag_id))
    if not found and dag_id and name:
        found = _standing_for(store, dag_id, partition_key=name)
    found = found or _beginning_with(store, name, dag_id)
    if not found and (date := _date(store, name, dag_id)) is not None:
        found = _of_date(store, date, name, dag_id)
    if not found:
        others = store.read(DagRun, matching(dag_id=dag_id), order_by=("-run_seq",), limit=500, without=NOT_LISTED)
        raise _not_found(store, name, dag_id, [row.run_id for row in others], hint="see_runs")
    if len({row.dag_id for row in found}) > 1:
        raise RunOfSeveralDags(name, sorted(row.key for row in found))
    if len(found) > 1:
        raise Ambiguous("run", name, [row.run_id for row in found])
    return found[0]


def _not_found(store: Store, name: str, dag_id: str | None, others: Sequence[str] = (), **more: Any) -> NotFound:
    """`NotFound` is raised for the DAG, if there is none of this id."""
    _check_dag(store, dag_id)
    return NotFound(f"run of DAG {dag_id!r} with the id" if dag_id else "run", name, others, **more)


def _newest(store: Store, dag_id: str | None) -> DagRun:
    newest = store.first(DagRun, matching(dag_id=dag_id), ("-run_seq",))
    if newest is None:
        raise _not_found(store, LATEST, dag_id, more="; nothing has run yet.")
    return newest


def _beginning_with(store: Store, name: str, dag_id: str | None) -> list[DagRun]:
    if not name:  # an empty text is the beginning of every id
        return []
    beginning = [*matching(dag_id=dag_id), Condition("run_id", "starts_with", name)]
    found = store.read(DagRun, beginning, order_by=("-run_seq",), limit=50, without=NOT_LISTED)
    return store.read(DagRun, beginning, limit=1) if len(found) == 1 else found


def _of_date(store: Store, date: tuple[datetime, datetime], name: str, dag_id: str | None) -> list[DagRun]:
    """Of this logical date, written as `name`, or of the day that it is. `NotFound` if there is none: ids that are spelled alike
    are those of other days."""
    if dag_id is None:
        raise _not_found(store, name, None, more=f"; a date needs its DAG: DAG/{name}.")
    at, until = date
    found = _standing_for(store, dag_id, logical_date=at)
    if not found:  # of a day that does not begin with an interval, as of `0 6 * * *`
        within = [Condition("logical_date", ">", at), Condition("logical_date", "<=", until)]
        found = store.read(DagRun, [*timeline_of(dag_id), *within], order_by=("-run_seq",), limit=50)
    if not any(is_current(row) for row in found) and (batch := _batch_around(store, at, dag_id)):
        part = (
            f"; this date is part of run {batch.run_id}, which takes {batch.items} intervals together: name that run."
        )
        raise _not_found(store, name, dag_id, more=part)
    if not found:
        raise _not_found(store, name, dag_id, hint="see_runs")
    return found


def _called(store: Store, run_id: str, in_dag: Sequence[Condition] = ()) -> list[DagRun]:
    """The runs with exactly this id: one in each DAG that has it."""
    return store.read(DagRun, [*in_dag, Condition("run_id", "=", run_id)], order_by=("-run_seq",), limit=50)


def _with_dag(store: Store, id_or_prefix: str, dag_id: str | None) -> tuple[str | None, str]:
    """`DAG/RUN` in its two parts. A partition's run id may hold a slash too: one that is there means itself."""
    first, slash, rest = id_or_prefix.partition("/")
    if not (slash and rest) or dag_id not in (None, first) or _called(store, id_or_prefix):
        return dag_id, id_or_prefix
    return (first, rest) if _is_dag(store, first) else (dag_id, id_or_prefix)


def _is_dag(store: Store, dag_id: str) -> bool:
    """It is, or ever was, one."""
    return bool(store.first(DagRow, matching(dag_id=dag_id)) or store.first(DagRun, matching(dag_id=dag_id)))


def _check_dag(store: Store, dag_id: str | None) -> None:
    if dag_id is not None and not _is_dag(store, dag_id):
        raise NotFound("DAG", dag_id, [row.dag_id for row in store.read(DagRow)], hint="see_dags")


def _date(store: Store, text: str, dag_id: str | None) -> tuple[datetime, datetime] | None:
    """A date as people write it, in the DAG's zone, and the end of its day if it has no time; None for what is no date."""
    from backfill_manager.dags.schedule.timetable import parse_date, parse_end

    dag = store.first(DagRow, matching(dag_id=dag_id)) if dag_id else None
    zone = dag.timezone if dag else "UTC"
    try:
        return parse_date(text, zone, name="RUN"), parse_end(text, zone, name="RUN")
    except InvalidInput:
        return None


def _standing_for(store: Store, dag_id: str, **what: Any) -> list[DagRun]:
    """Runs of a logical date or a partition; the one that stands in the timeline, if any does."""
    rows = store.read(DagRun, matching(dag_id=dag_id, **what), order_by=("-run_seq",))
    return [row for row in rows if is_current(row)] or rows


def _batch_around(store: Store, at: datetime, dag_id: str) -> DagRun | None:
    """The run of several intervals that stands in the timeline for this instant, though its logical date is another."""
    around = [
        Condition("items", ">", 1), Condition("interval_start", "<=", at), Condition("interval_end", ">", at),
    ]  # fmt: skip
    return store.first(DagRun, [*timeline_of(dag_id), *around], ("-run_seq",))
