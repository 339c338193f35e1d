"""Backfills and their items. Counts are counted from the items, so they can't disagree with them. Lists leave out what may be
large: `conf`, `overrides`, and of many dates or partitions all but the first.

A backfill whose request has no response yet is shown as `queued`; for one that was refused the refusal is raised.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from pydantic import ValidationError

from backfill_manager import humanise
from backfill_manager.errors import InvalidInput, NotFound, Refused, nearest
from backfill_manager.masking import mask_text, mask_values
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, DagRow, Request, Response
from backfill_manager.model.stored_json import shown_column
from backfill_manager.queries.documents import document
from backfill_manager.queries.paging import LATEST, Order, Page, Place, Slice, choose
from backfill_manager.schemas import resources
from backfill_manager.schemas.backfill_columns import STORED_OPTIONS, columns_of, option_of, options_of
from backfill_manager.schemas.backfill_options import BackfillConfig, CreateBackfill
from backfill_manager.schemas.payloads import parse_payload
from backfill_manager.schemas.request_kinds import BACKFILL_CREATE, REFUSED
from backfill_manager.store.base import Condition, Store, matching

WAITING = "waiting for the manager"
NOT_LISTED: Final = ("conf_json", "overrides_json")
MAX_LISTED: Final = 100  # dates or partitions of one backfill in a list
_FIELDS: Final = tuple(dict.fromkeys((
    "backfill_id", "dag_id", "state", "config", "reprocess", "max_active_runs", "priority", "pool", "is_paused",
    "created_at", "started_at", "completed_at", "planned", *states.ITEM_STATES, "reason",
    *resources.BackfillDetails.model_fields,
)))  # fmt: skip
MAX_LISTED_LENGTH: Final = 4000  # of all of them
NEWEST_FIRST: Final = Order("created_at", "run_seq", descending=True)


@dataclass(frozen=True)
class BackfillFilter:
    """Which backfills a list shows; `kind` is that of their dates (`schedule`, `dates`, ...). Hidden ones are left out."""

    dag_id: str | None = None
    in_states: Sequence[str] = ()
    kind: str | None = None

    def conditions(self) -> list[Condition]:
        where = [Condition("hidden_at", "is_null"), *matching(dag_id=self.dag_id, state=tuple(self.in_states))]
        if self.kind is not None:
            where.append(Condition("config_json", "starts_with", CreateBackfill.config_begins(self.kind)))
        return where

    def matches(self, one: Mapping[str, Any]) -> bool:
        return (
            self.dag_id in (None, one["dag_id"])
            and (not self.in_states or one["state"] in self.in_states)
            and self.kind in (None, one["config"]["type"])
        )


ALL: Final = BackfillFilter()


def list_backfills(
    store: Store, chosen: BackfillFilter = ALL, *, order: Order = NEWEST_FIRST, limit: int | None = None,
    after: Place | str | None = None,
) -> Page:  # fmt: skip
    """First those that wait for the manager, newest first, then in `order` those that it has created. The place of one that
    waits is a text."""
    waiting: list[dict[str, Any]] = []
    if after is None or isinstance(after, str):
        waiting = [one for one in waiting_backfills(store, chosen) if after is None or _mark(one) < after][:limit]
        if waiting and len(waiting) == limit:
            return Page(_with_zones(store, waiting), _mark(waiting[-1]))
    left = None if limit is None else limit - len(waiting)
    part = Slice(order, left, None if isinstance(after, str) else after)
    rows, last = part.read(store, Backfill, chosen.conditions(), NOT_LISTED)
    return Page(_with_zones(store, waiting + [_listed(one) for one in _with_counts(store, rows)]), last)


def _mark(waiting: Mapping[str, Any]) -> str:
    return f"{waiting['created_at']} {waiting['backfill_id']}"


def waiting_backfills(store: Store, chosen: BackfillFilter = ALL) -> list[dict[str, Any]]:
    """Those that were submitted and that the manager has not created yet, newest first."""
    found = [one for one in _views_of(store.unanswered()) if chosen.matches(one)]
    created = _created(store, [one["backfill_id"] for one in found])
    return sorted((_listed(one) for one in found if one["backfill_id"] not in created), key=_mark, reverse=True)


def find_backfill(store: Store, id_or_prefix: str) -> dict[str, Any]:
    """The backfill of this id, beginning of an id, or `latest`. `Refused` when the manager would not make it."""
    found = find_uncounted(store, id_or_prefix)
    return {**found, **count_by_state(store, found)}


def find_uncounted(store: Store, id_or_prefix: str) -> dict[str, Any]:
    """The same without the numbers of its items by state, which change more often than the rest."""
    [found] = _with_zones(store, [_find(store, id_or_prefix)])
    return found


def _find(store: Store, id_or_prefix: str) -> dict[str, Any]:
    if id_or_prefix == LATEST:
        return _latest(store)
    made = _made(store, id_or_prefix)
    if id_or_prefix in made:
        return _view(made[id_or_prefix], {})
    waiting_or_refused = _views_of([*store.unanswered(), *_refused_requests(store)])
    made = _made(store, id_or_prefix)  # again: what was answered between the two readings is here
    asked = {one["backfill_id"]: one for one in waiting_or_refused if one["backfill_id"] not in made}
    ids = [*sorted(asked, key=lambda one: str(asked[one]["created_at"]), reverse=True), *made]
    try:
        backfill_id = choose("backfill", id_or_prefix, ids)
    except NotFound:
        newest = store.read(Backfill, order_by=("-created_at",), limit=1000, without=NOT_LISTED)
        raise _no_backfill(id_or_prefix, [*ids, *(row.backfill_id for row in newest)]) from None
    if backfill_id in made:
        return _view(made[backfill_id], {})
    return _waiting_or_refused(store, asked[backfill_id])


def _made(store: Store, beginning: str) -> dict[str, Backfill]:
    where = [Condition("backfill_id", "starts_with", beginning)]
    return {row.backfill_id: row for row in store.read(Backfill, where, order_by=("-created_at",), limit=20)}


def _refused_requests(store: Store) -> list[Request]:
    refused = store.read(Response, matching(kind=BACKFILL_CREATE, outcome=REFUSED))
    ids = tuple(one.request_id for one in refused)
    return store.read(Request, [Condition("request_id", "in", ids)]) if ids else []


def _latest(store: Store) -> dict[str, Any]:
    """The newest that is not hidden, or one that was asked for since. Of a tree (`downstream`), that of the DAG named."""
    is_listed = Condition("hidden_at", "is_null")
    made = store.first(Backfill, [is_listed], ("-created_at",))
    if made and made.parents_json != "[]":
        made = store.first(Backfill, [is_listed, *matching(request_id=made.request_id, parents_json="[]")]) or made
    since: list[Condition] = []
    if made:  # by when each was asked for: one may be planned while the next one waits
        request = store.first(Request, matching(request_id=made.request_id))
        since = [Condition("requested_at", ">", request.requested_at if request else made.created_at)]
    asked = {one["backfill_id"]: one for one in _asked(store, since)}  # the newest comes last
    for backfill_id in _created(store, asked):  # those that were made are hidden
        del asked[backfill_id]
    if asked:
        return _waiting_or_refused(store, list(asked.values())[-1])
    if not made:
        raise _no_backfill(LATEST, ())
    return _view(made, {})


def _no_backfill(id_or_prefix: str, known: Sequence[str]) -> NotFound:
    if known:
        return NotFound("backfill", id_or_prefix, known, hint="see_backfills")
    return NotFound("backfill", id_or_prefix, hint="create_first_backfill", more="; there are no backfills yet.")


def count_by_state(store: Store, backfill: Mapping[str, Any]) -> dict[str, int]:
    """Its items, for every state of an item."""
    if not backfill["planned"]:
        return dict.fromkeys(states.ITEM_STATES, 0)
    counts = store.count("backfill_item", ("state",), [Condition("backfill_id", "=", backfill["backfill_id"])])
    return {state: counts.get((state,), 0) for state in states.ITEM_STATES}


def check_states(kind: str, names: Iterable[str], known: Sequence[str], hint: str = "") -> tuple[str, ...]:
    """`InvalidInput` for a state that things of this kind don't have."""
    chosen = tuple(names)
    for one in chosen:
        if one not in known:
            instead = nearest(one, known) or f"; one of {', '.join(known)}"
            raise InvalidInput(f"{one!r} is no state of a {kind}{instead}{hint}")
    return chosen


def _created(store: Store, ids: Collection[str]) -> set[str]:
    """Those of these backfills that the manager has created."""
    where = [Condition("backfill_id", "in", tuple(ids))]
    return {row.backfill_id for row in store.read(Backfill, where, without=NOT_LISTED)} if ids else set()


def _listed(one: dict[str, Any]) -> dict[str, Any]:
    """A backfill as lists show it."""
    short = {name: value for name, value in one.items() if name not in ("conf", "overrides")}
    return {**short, "config": _shortened(one["config"])}


def _shortened(config: dict[str, Any]) -> dict[str, Any]:
    """With the first of many dates or partitions, and how many there are in all."""
    kind = str(config.get("type"))
    listed = config.get(kind)
    if not isinstance(listed, list) or (len(listed) <= MAX_LISTED and len(json.dumps(listed)) <= MAX_LISTED_LENGTH):
        return config
    lengths = accumulate(len(str(one)) for one in listed[:MAX_LISTED])
    fit = sum(length <= MAX_LISTED_LENGTH for length in lengths)
    return {**config, kind: listed[: max(1, fit)], "total": len(listed)}


def _with_counts(store: Store, rows: Sequence[Backfill]) -> list[dict[str, Any]]:
    if not rows:
        return []
    where = [Condition("backfill_id", "in", tuple(row.backfill_id for row in rows))] if len(rows) <= 100 else []
    counts = store.count("backfill_item", ("backfill_id", "state"), where)
    return [
        _view(row, {state: counts.get((row.backfill_id, state), 0) for state in states.ITEM_STATES}) for row in rows
    ]


def _with_zones(store: Store, views: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the time zone of each one's DAG, which is also that of its time window."""
    rows = store.read(DagRow, matching(dag_id=sorted({one["dag_id"] for one in views}))) if views else []
    zones = {row.dag_id: row.timezone for row in rows}
    for one in views:
        one["timezone"] = zones.get(one["dag_id"])
        if one["waits_until"] is not None:
            one["waits_for"] = f"its time window, {humanise.window(one['window'], one['timezone'])}"
    return views


def _config(row: Backfill) -> dict[str, Any]:
    """Of one that can't be read nothing is known but that it is there."""
    config: dict[str, Any] = shown_column(row, "config_json") or {}
    first = {
        name: value[:1] if isinstance(value, list) else value for name, value in config.items()
    }  # of 100,000 dates
    try:
        BackfillConfig.model_validate(first)
    except ValidationError:
        return {"type": "dates", "dates": []}
    return config


def _view(row: Backfill, counts: Mapping[str, int], **changed: Any) -> dict[str, Any]:
    return document(
        _FIELDS, row,
        **{
            "config": _config(row),
            **options_of(row),
            "conf": mask_values(option_of(row, "conf")),
            "parents": shown_column(row, "parents_json") or [],
            "is_cancelling": row.is_cancelling and row.state not in states.BACKFILL_FINISHED,
            "time_left_s": None,  # see `queries.eta`
            "finishes_at": None,
            "timezone": None,  # see `_with_zones`
            "waits_for": None,
            "note": row.note and mask_text(row.note),
            **dict.fromkeys(states.ITEM_STATES, 0),
            **counts,
            **changed,
        },
    )  # fmt: skip


def requested_view(request: Request) -> dict[str, Any]:
    """A backfill that so far is only submitted, in the form of one that exists."""
    payload = parse_payload(request.kind, request.payload_json)
    command = CreateBackfill.from_payload(payload["ask"])
    options = {name: getattr(command, name) for name in STORED_OPTIONS}
    row = Backfill(
        **columns_of({**options, "max_active_runs": 0}), backfill_id=payload["backfill_id"], state=states.QUEUED,
        config_json=json.dumps(command.config()), is_paused=False, run_seq=0, created_at=request.requested_at,
        created_by=request.requested_by, request_id=request.request_id, reason=WAITING,
        preview_id=payload["backfill_id"] if command.preview else None,
    )  # fmt: skip
    asked = {"max_active_runs": command.max_active_runs, "batch": command.batch}
    return _view(row, {}, dag_version=None, **asked)


def _views_of(requests: Iterable[Request]) -> list[dict[str, Any]]:
    shown: dict[str, dict[str, Any]] = {}
    for request in requests:
        if request.kind == BACKFILL_CREATE:
            try:
                one = requested_view(request)
            except InvalidInput:  # by hand or by another version: the manager refuses it, `requests list` shows it
                continue
            shown.setdefault(one["backfill_id"], one)
    return list(shown.values())


def _asked(store: Store, where: Sequence[Condition] = ()) -> list[dict[str, Any]]:
    """Every backfill ever asked for, whatever became of it; the newest last."""
    of_kind = Condition("kind", "=", BACKFILL_CREATE)
    return _views_of(store.read(Request, [of_kind, *where], order_by=("requested_at",)))


def _waiting_or_refused(store: Store, one: dict[str, Any]) -> dict[str, Any]:
    answer = store.first(Response, matching(request_id=one["request_id"]))
    if answer and answer.outcome == REFUSED:
        raise Refused(f"Backfill {one['backfill_id']} of {one['dag_id']!r} was refused: {answer.message}")
    return one
