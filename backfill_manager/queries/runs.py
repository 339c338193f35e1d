"""Dag runs. A run id is unique in its DAG only: `DAG/RUN` names one whatever other DAGs have.

Lists tell all of a run but its parameters, which every run of a backfill has alike and which may be large: `run_view`,
without them, is for lists, `run_details` for one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backfill_manager.errors import Ambiguous, InvalidInput, NotFound, RunOfSeveralDags
from backfill_manager.masking import mask_text, mask_values
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, DagRow, DagRun, Request
from backfill_manager.model.stored_json import shown_column
from backfill_manager.planning.runs.timeline import is_current, timeline_of
from backfill_manager.queries.documents import document, rounded, seconds_between
from backfill_manager.queries.paging import LATEST, MAX_LISTED_IDS, Order, Page, Place, Slice
from backfill_manager.schemas import resources
from backfill_manager.schemas.request_kinds import DAG_TRIGGER, TASK_RUN
from backfill_manager.store.base import Condition, Store, matching

NOT_LISTED: Final = ("conf_json",)
RUN_MAKING: Final = (DAG_TRIGGER, TASK_RUN)  # requests that make one run each
MAX_NESTED: Final = 20  # runs of one date within each other
NEWEST_FIRST: Final = Order("run_seq", "run_seq", descending=True)  # by creation


def list_runs(
    store: Store, *, dag_id: str | None = None, backfill_id: str | None = None, run_type: str | None = None,
    in_states: Sequence[str] = (), since: datetime | None = None, until: datetime | None = None,
    created_by: str | None = None, order: Order = NEWEST_FIRST, limit: int | None = None, after: Place | None = None,
) -> Page:  # fmt: skip
    """`since`, `until`: when they were created. `created_by`: the person who triggered them, or
    created the backfill that they belong to."""
    where = [
        *matching(dag_id=dag_id, backfill_id=backfill_id, run_type=run_type, state=tuple(in_states)),
        *within("created_at", since, until),
    ]
    part = Slice(order, limit, after)
    if created_by is None:
        return part.page(store, DagRun, where, run_view, NOT_LISTED)
    either = [[*where, *one] for one in _created_by(store, created_by)]
    rows, last = part.read_any(store, DagRun, either, NOT_LISTED)
    return Page([run_view(row) for row in rows], last)


def within(column: str, since: datetime | None, until: datetime | None) -> list[Condition]:
    """From `since` to `until`, where they are given."""
    return [
        *([] if since is None else [Condition(column, ">=", since)]),
        *([] if until is None else [Condition(column, "<=", until)]),
    ]


def _created_by(store: Store, person: str) -> Iterator[list[Condition]]:
    """Filters of a person's runs: by each request that makes one run, and each backfill; the newest thousand of either."""
    of_kinds = matching(requested_by=person, kind=RUN_MAKING)
    requests = store.read(Request, of_kinds, ("-requested_at",), MAX_LISTED_IDS, without=("payload_json",))
    yield [Condition("request_id", "in", [row.request_id for row in requests]), Condition("backfill_id", "is_null")]
    backfills = store.read(Backfill, matching(created_by=person), ("-created_at",), MAX_LISTED_IDS)
    yield [Condition("backfill_id", "in", [row.backfill_id for row in backfills])]


def creators_of(store: Store, runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Who made these runs (documents of a page of a list), by DAG and run id; of the schedule's, nobody."""
    backfill_ids = sorted({run["backfill_id"] for run in runs if run["backfill_id"]})
    backfills = store.read(Backfill, matching(backfill_id=backfill_ids)) if backfill_ids else []
    by_backfill = {row.backfill_id: row.created_by for row in backfills}
    requested = [run["run_id"] for run in runs if run["run_type"] in (states.MANUAL_RUN, states.EXTERNAL_RUN)]
    rows = store.read(DagRun, matching(run_id=requested), without=NOT_LISTED) if requested else []
    request_of = {(row.dag_id, row.run_id): row.request_id for row in rows if row.request_id}
    ids = sorted(set(request_of.values()))
    requests = store.read(Request, matching(request_id=ids), without=("payload_json",)) if ids else []
    by_request = {row.request_id: row.requested_by for row in requests}
    keys = {(run["dag_id"], run["run_id"]): run["backfill_id"] for run in runs}
    found = {
        key: by_backfill.get(backfill_id) or by_request.get(request_of.get(key, ""))
        for key, backfill_id in keys.items()
    }
    return {key: name for key, name in found.items() if name}


def people(store: Store) -> list[str]:
    """Everyone who has triggered a run or created a backfill."""
    triggered = store.count("request", ("requested_by",), matching(kind=RUN_MAKING))
    return sorted({name for (name,) in (*triggered, *store.count("backfill", ("created_by",))) if name})


def find_run(store: Store, id_or_prefix: str, *, dag_id: str | None = None) -> DagRun:
    """By id, partition key (of a DAG), beginning of an id, logical date, the day of one, or `latest`, each also as `DAG/RUN`; of
    `dag_id` or, without one, wherever it is unique. `NotFound`, which names the batch that a date is part of; `Ambiguous`, or
    `RunOfSeveralDags` with the names that tell them apart."""
    dag_id, id_or_prefix = _with_dag(store, id_or_prefix, dag_id)
    in_dag = matching(dag_id=dag_id)
    place = f"run of DAG {dag_id!r} with the id" if dag_id else "run"
    if id_or_prefix == LATEST:
        newest = store.first(DagRun, in_dag, ("-run_seq",))
        if newest is None:
            _check_dag(store, dag_id)
            raise NotFound(place, id_or_prefix, more="; nothing has run yet.")
        return newest
    found = _called(store, id_or_prefix, in_dag)
    if not found and dag_id and id_or_prefix:
        found = _standing_for(store, dag_id, partition_key=id_or_prefix)
    if not found and id_or_prefix:  # an empty text is the beginning of every id
        beginning = [*in_dag, Condition("run_id", "starts_with", id_or_prefix)]
        found = store.read(DagRun, beginning, order_by=("-run_seq",), limit=50, without=NOT_LISTED)
        if len(found) == 1:
            found = store.read(DagRun, beginning, limit=1)
    at, until = (None, None) if found else _instants(store, id_or_prefix, dag_id)
    if at is not None and dag_id:
        found = _standing_for(store, dag_id, logical_date=at)
        if not found:  # of a day that does not begin with an interval, as of `0 6 * * *`
            within = [Condition("logical_date", ">", at), Condition("logical_date", "<=", until)]
            found = store.read(DagRun, [*timeline_of(dag_id), *within], order_by=("-run_seq",), limit=50)
        if not any(is_current(row) for row in found) and (batch := _batch_around(store, at, dag_id)):
            part = f"; this date is part of run {batch.run_id}, which takes {batch.items} intervals together: name that run."
            raise NotFound(place, id_or_prefix, more=part)
    if not found:
        _check_dag(store, dag_id)
        if at is not None:  # ids that are spelled alike are those of other days
            more = "" if dag_id else f"; a date needs its DAG: DAG/{id_or_prefix}."
            raise NotFound(place, id_or_prefix, hint="see_runs" if dag_id else None, more=more)
        others = store.read(DagRun, in_dag, order_by=("-run_seq",), limit=500, without=NOT_LISTED)
        raise NotFound(place, id_or_prefix, [row.run_id for row in others], hint="see_runs")
    if len(found) > 1:
        if len({row.dag_id for row in found}) > 1:
            raise RunOfSeveralDags(id_or_prefix, sorted(row.key for row in found))
        raise Ambiguous("run", id_or_prefix, [row.run_id for row in found])
    return found[0]


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


def _instants(store: Store, text: str, dag_id: str | None) -> tuple[datetime | None, datetime | None]:
    """A date as people write it, in the DAG's zone, and the end of its day if it has no time; None for what is no date."""
    from backfill_manager.dags.schedule.timetable import parse_date, parse_end

    dag = store.first(DagRow, matching(dag_id=dag_id)) if dag_id else None
    zone = dag.timezone if dag else "UTC"
    try:
        return parse_date(text, zone, name="RUN"), parse_end(text, zone, name="RUN")
    except InvalidInput:
        return None, None


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


def run_view(row: DagRun) -> dict[str, Any]:
    duration_s = rounded(seconds_between(row.started_at, row.ended_at))
    return document(resources.Run.model_fields, row, duration_s=duration_s, note=row.note and mask_text(row.note))


def run_details(row: DagRun) -> dict[str, Any]:
    """With its parameters, whose secrets are masked."""
    return {**run_view(row), "conf": mask_values(shown_column(row, "conf_json") or {})}


# The number is put in by `int`; nothing from outside is.
_LAST_OF_EACH: Final = """
SELECT dag_id, run_seq, state
FROM (
    SELECT dag_id, run_seq, state, row_number() OVER (PARTITION BY dag_id ORDER BY run_seq DESC) AS place FROM dag_run
) AS placed
WHERE place <= {n}
ORDER BY run_seq
"""


@dataclass(frozen=True)
class Newest:
    """The last made runs of a DAG, oldest first, and the state of the very last."""

    seqs: tuple[int, ...]
    state: str


def newest_runs(store: Store, n: int = 14) -> dict[str, Newest]:
    """The last `n` made runs of each DAG that has any, by DAG."""
    _, found = store.query(_LAST_OF_EACH.format(n=int(n)))
    newest: dict[str, Newest] = {}
    for dag_id, seq, state in found:
        before = newest.get(dag_id)
        newest[dag_id] = Newest((*before.seqs, seq) if before else (seq,), state)
    return newest


def recent_runs(store: Store, newest: Mapping[str, Newest], dag_ids: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The runs that `newest` names, oldest first, of those of these DAGs that have any."""
    seqs = tuple(seq for dag_id in dag_ids if dag_id in newest for seq in newest[dag_id].seqs)
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in store.read(DagRun, matching(run_seq=seqs), ("run_seq",), without=NOT_LISTED) if seqs else ():
        runs.setdefault(row.dag_id, []).append(run_view(row))
    return runs


def timeline(
    store: Store, dag_id: str, limit: int | None = None, before: datetime | None = None
) -> list[dict[str, Any]]:
    """Oldest first; with a `limit`, the runs of the newest dates, or of those before the date `before`, of which each is
    one run's. `overridden` of a run holds the runs that it took the place of, newest first, each with its own; the last of
    `MAX_NESTED` within each other holds all that are left, none of which has its own."""
    where = [*timeline_of(dag_id), *([Condition("logical_date", "<", before)] if before is not None else [])]
    current = store.read(DagRun, where, order_by=("-logical_date",), limit=limit, without=NOT_LISTED)[::-1]
    if not current:
        return []
    since = Condition("logical_date", ">=", current[0].logical_date)
    where = [*matching(dag_id=dag_id, state=states.OVERRIDDEN), since]
    overridden = defaultdict[str | None, list[DagRun]](list)  # by the run that took their place
    for run in store.read(DagRun, where, order_by=("-run_seq",), without=NOT_LISTED):
        overridden[run.overridden_by].append(run)

    def nested(runs: Iterable[DagRun], depth: int) -> list[dict[str, Any]]:
        return [{**run_view(run), "overridden": below(run, depth)} for run in runs]

    def below(run: DagRun, depth: int) -> list[dict[str, Any]]:
        if depth < MAX_NESTED:
            return nested(overridden.get(run.run_id, ()), depth + 1)
        left, rest = [run], list[DagRun]()
        while left:
            rest += (found := overridden.get(left.pop().run_id, ()))
            left += found
        return [{**run_view(one), "overridden": []} for one in sorted(rest, key=lambda one: -one.run_seq)]

    return nested(current, 0)
