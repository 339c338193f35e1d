"""Dag runs: lists of them, one with its details, the timeline.

Lists tell all of a run but its parameters, which every run of a backfill has alike and which may be large: `run_view`,
without them, is for lists, `run_details` for one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backfill_manager.masking import mask_text, mask_values
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, DagRun, Request
from backfill_manager.model.stored_json import shown_column
from backfill_manager.planning.runs.timeline import timeline_of
from backfill_manager.queries.documents import document, rounded, seconds_between
from backfill_manager.queries.paging import MAX_LISTED_IDS, Order, Page, Place, Slice
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
