"""Backfills and their items. Counts are counted from the items, so they can't disagree with them. Lists leave out what may be
large: `conf`, `overrides`, and of many dates or partitions all but the first.

A backfill that was asked for and not yet answered is shown as `queued`; one that was refused is told as the refusal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.errors import InvalidInput, NotFound, Refused, nearest
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, BackfillItem, Request, Response
from backfill_manager.queries.id_lookup import LATEST, choose
from backfill_manager.queries.paging import Order, read_page
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.requests.command_types import BACKFILL_CREATE, REFUSED, parse_payload
from backfill_manager.store.base import Condition, Store

WAITING = "waiting for the manager"
NOT_LISTED: Final = ("conf_json", "overrides_json")
MOST_LISTED: Final = 100  # dates or partitions of one backfill in a list
MOST_LISTED_CHARS: Final = 4000  # of all of them
NONE_YET = "; there are no backfills yet: ask for one with `bfm backfill create DAG --from T --to T`."


def list_backfills(
    store: Store, *, dag_id: str | None = None, in_states: Sequence[str] = (), limit: int | None = None
) -> list[dict[str, Any]]:
    """Newest first, those that still wait for the manager included; hidden ones are left out."""
    where = [Condition("hidden_at", "is_null")]
    if dag_id:
        where.append(Condition("dag_id", "=", dag_id))
    if in_states:
        where.append(Condition("state", "in", tuple(in_states)))
    rows = store.read(Backfill, where, order_by=("-created_at",), limit=limit, without=NOT_LISTED)
    waiting = [] if in_states and states.QUEUED not in in_states else _waiting(store)
    shown = _with_counts(store, rows)
    known = {row["backfill_id"] for row in shown}
    if waiting and (in_states or dag_id or limit):  # answered just now, and filtered out above
        ids = tuple(one["backfill_id"] for one in waiting)
        known |= _made(store, ids)
    shown += [one for one in waiting if one["backfill_id"] not in known and dag_id in (None, one["dag_id"])]
    shown.sort(key=lambda one: one["created_at"], reverse=True)
    return [_listed(one) for one in shown[:limit]]


@dataclass(frozen=True)
class Chosen:
    """Which backfills a list shows; `kind` is that of their dates (`schedule`, `dates`, ...)."""

    dag_id: str | None = None
    in_states: tuple[str, ...] = ()
    kind: str | None = None

    def conditions(self) -> list[Condition]:
        where = [Condition("hidden_at", "is_null")]
        if self.dag_id is not None:
            where.append(Condition("dag_id", "=", self.dag_id))
        if self.in_states:
            where.append(Condition("state", "in", self.in_states))
        if self.kind is not None:  # `CreateBackfill.config` says it first
            where.append(Condition("config_json", "starts_with", json.dumps({"type": self.kind})[:-1]))
        return where

    def fits(self, one: dict[str, Any]) -> bool:
        return (
            self.dag_id in (None, one["dag_id"])
            and (not self.in_states or one["state"] in self.in_states)
            and self.kind in (None, one["config"]["type"])
        )


def page_of_backfills(
    store: Store, chosen: Chosen, order: Order, limit: int, after: tuple[Any, Any] | None
) -> tuple[list[dict[str, Any]], tuple[Any, Any] | None]:
    """Up to `limit` backfills behind the place `after`, and the place of the last if more follow."""
    rows = read_page(store, Backfill, chosen.conditions(), order, limit + 1, after, without=NOT_LISTED)
    more, rows = len(rows) > limit, rows[:limit]
    return [_listed(one) for one in _with_counts(store, rows)], order.place(rows[-1]) if more else None


def waiting_backfills(store: Store, chosen: Chosen) -> list[dict[str, Any]]:
    """Those that were asked for and not made yet, newest first."""
    found = [one for one in _waiting(store) if chosen.fits(one)]
    if not found:
        return []
    ids = tuple(one["backfill_id"] for one in found)
    made = _made(store, ids)
    found = [_listed(one) for one in found if one["backfill_id"] not in made]
    return sorted(found, key=lambda one: (one["created_at"], one["backfill_id"]), reverse=True)


def find_backfill(store: Store, wanted: str) -> dict[str, Any]:
    """The backfill of this id, beginning of an id, or `latest`. `Refused` when the manager would not make it."""
    found = find_uncounted(store, wanted)
    return {**found, **count_by_state(store, found)}


def find_uncounted(store: Store, wanted: str) -> dict[str, Any]:
    """The same without the numbers of its items by state, which change more often than the rest."""
    if wanted == LATEST:
        return _latest(store)
    rows = store.read(Backfill, [Condition("backfill_id", "starts_with", wanted)], order_by=("-created_at",), limit=20)
    exact = [row for row in rows if row.backfill_id == wanted]
    if exact:
        return _view(exact[0], {})
    made = {row.backfill_id: row for row in rows}
    asked = {one["backfill_id"]: one for one in _asked(store) if one["backfill_id"] not in made}
    ids = [*sorted(asked, key=lambda one: str(asked[one]["created_at"]), reverse=True), *made]
    try:
        backfill_id = choose("backfill", wanted, ids, hint="" if ids else NONE_YET)
    except NotFound:
        newest = store.read(Backfill, order_by=("-created_at",), limit=1000, without=NOT_LISTED)
        others = [row.backfill_id for row in newest]
        known = [*ids, *others]
        raise NotFound("backfill", wanted, known, hint="; see `bfm backfill list`." if known else NONE_YET) from None
    if backfill_id in made:
        return _view(made[backfill_id], {})
    return _waiting_or_refused(store, asked[backfill_id])


def _latest(store: Store) -> dict[str, Any]:
    """The newest that is not hidden, or one that was asked for since."""
    made = store.read(Backfill, [Condition("hidden_at", "is_null")], order_by=("-created_at",), limit=1)
    since = [Condition("requested_at", ">", made[0].created_at)] if made else []
    asked = {one["backfill_id"]: one for one in _asked(store, since)}  # the newest comes last
    if asked:  # those that were made are hidden
        for backfill_id in _made(store, tuple(asked)):
            del asked[backfill_id]
    if asked:
        return _waiting_or_refused(store, list(asked.values())[-1])
    if not made:
        raise NotFound("backfill", LATEST, hint=NONE_YET)
    return _view(made[0], {})


def count_by_state(store: Store, backfill: Mapping[str, Any]) -> dict[str, int]:
    """Its items, for every state of an item."""
    if not backfill["planned"]:
        return dict.fromkeys(states.ITEM_STATES, 0)
    counts = store.count("backfill_item", ("state",), [Condition("backfill_id", "=", backfill["backfill_id"])])
    return {state: counts.get((state,), 0) for state in states.ITEM_STATES}


def list_items(
    store: Store, backfill_id: str, *, in_states: Sequence[str] = (), limit: int | None = None, offset: int = 0
) -> list[dict[str, Any]]:
    """By ordinal. `offset` skips that many of those that match."""
    where = [Condition("backfill_id", "=", backfill_id)]
    if in_states:
        where.append(Condition("state", "in", tuple(in_states)))
        skip = offset
    else:  # ordinals count from 1 without a gap, so a page far down costs no more than the first
        where.append(Condition("ordinal", ">", offset))
        skip = 0
    rows = store.read(BackfillItem, where, order_by=("ordinal",), limit=None if limit is None else limit + skip)
    return [item_view(row) for row in rows[skip:]]


def page_of_items(
    store: Store, backfill_id: str, order: Order, limit: int, after: int | None, *, in_states: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], int | None]:
    """Up to `limit` items behind the one with the ordinal `after`, and the last one's ordinal if more follow."""
    where = [Condition("backfill_id", "=", backfill_id)]
    if in_states:
        where.append(Condition("state", "in", tuple(in_states)))
    elif not order.descending:  # ordinals have no gap, so the page's end is known, and other files are skipped
        where.append(Condition("ordinal", "<=", (after or 0) + limit + 1))
    rows = read_page(store, BackfillItem, where, order, limit + 1, None if after is None else (after, after))
    more, rows = len(rows) > limit, rows[:limit]
    return [item_view(row) for row in rows], rows[-1].ordinal if more else None


def count_items(store: Store, backfill_id: str, in_states: Sequence[str] = ()) -> int:
    where = [Condition("backfill_id", "=", backfill_id)]
    if in_states:
        where.append(Condition("state", "in", tuple(in_states)))
    return store.count("backfill_item", (), where).get((), 0)


def item_view(row: BackfillItem) -> dict[str, Any]:
    return {
        "ordinal": row.ordinal,
        "logical_date": format_instant(row.logical_date),
        "interval_start": format_instant(row.interval_start),
        "interval_end": format_instant(row.interval_end),
        "partition_key": row.partition_key,
        "state": row.state,
        "reason": row.reason,
        "run_id": row.run_id,
        "batch": row.batch,
    }


def check_states(kind: str, wanted: Iterable[str], known: Sequence[str], hint: str = "") -> tuple[str, ...]:
    """`InvalidInput` for a state that things of this kind don't have."""
    chosen = tuple(wanted)
    for one in chosen:
        if one not in known:
            raise InvalidInput(
                f"{one!r} is no state of a {kind}{nearest(one, known) or '; one of ' + ', '.join(known)}{hint}"
            )
    return chosen


def _made(store: Store, ids: tuple[str, ...]) -> set[str]:
    """Those of these backfills that the manager has made."""
    rows = store.read(Backfill, [Condition("backfill_id", "in", ids)], without=NOT_LISTED)
    return {row.backfill_id for row in rows}


def _listed(one: dict[str, Any]) -> dict[str, Any]:
    """A backfill as lists show it."""
    short = {name: value for name, value in one.items() if name not in ("conf", "overrides")}
    return {**short, "config": _shortened(one["config"])}


def _shortened(config: dict[str, Any]) -> dict[str, Any]:
    """With the first of many dates or partitions, and how many there are in all."""
    kind = config["type"]
    listed = config.get(kind)
    if not isinstance(listed, list) or (len(listed) <= MOST_LISTED and len(json.dumps(listed)) <= MOST_LISTED_CHARS):
        return config
    shown: list[Any] = []
    room = MOST_LISTED_CHARS
    for one in listed[:MOST_LISTED]:
        room -= len(str(one))
        if room < 0 and shown:
            break
        shown.append(one)
    return {**config, kind: shown, "total": len(listed)}


def _with_counts(store: Store, rows: Sequence[Backfill]) -> list[dict[str, Any]]:
    if not rows:
        return []
    where = [Condition("backfill_id", "in", tuple(row.backfill_id for row in rows))] if len(rows) <= 100 else []
    counts = store.count("backfill_item", ("backfill_id", "state"), where)
    return [
        _view(row, {state: counts.get((row.backfill_id, state), 0) for state in states.ITEM_STATES}) for row in rows
    ]


def _view(row: Backfill, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "backfill_id": row.backfill_id,
        "dag_id": row.dag_id,
        "state": row.state,
        "config": json.loads(row.config_json),
        "reprocess": row.reprocess,
        "max_active_runs": row.max_active_runs,
        "priority": row.priority,
        "pool": row.pool,
        "is_paused": row.is_paused,
        "created_at": format_instant(row.created_at),
        "started_at": format_instant(row.started_at),
        "completed_at": format_instant(row.completed_at),
        "planned": row.planned,
        **counts,
        "reason": row.reason,
        "is_cancelling": row.is_cancelling,
        "dag_version": row.dag_version,
        "batch": row.batch,
        "conf": json.loads(row.conf_json or "{}"),  # not read for lists, which leave it out
        "overrides": json.loads(row.overrides_json or "{}"),
        "tasks": row.tasks,
        "with_upstream": bool(row.with_upstream),
        "with_downstream": bool(row.with_downstream),
        "mark_success": row.mark_success,
        "stop_on_failure": row.stop_on_failure,
        "window": row.window,
        "is_polite": row.is_polite,
        "ignore_first_depends_on_past": bool(row.ignore_first_depends_on_past),
        "parents": json.loads(row.parents_json),
        "time_left_s": None,  # see views.time_left
        "finishes_at": None,
        "created_by": row.created_by,
        "request_id": row.request_id,
        "hidden_at": format_instant(row.hidden_at),
    }


def requested_view(request: Request) -> dict[str, Any]:
    """A backfill that so far is only asked for, in the form of one that exists."""
    payload = parse_payload(request.kind, request.payload_json)
    ask = CreateBackfill.from_payload(payload["ask"])
    return {
        "backfill_id": payload["backfill_id"],
        "dag_id": ask.dag_id,
        "state": states.QUEUED,
        "config": ask.config(),
        "reprocess": ask.reprocess,
        "max_active_runs": ask.max_active_runs,
        "priority": ask.priority,
        "pool": ask.pool,
        "is_paused": False,
        "created_at": format_instant(request.requested_at),
        "started_at": None,
        "completed_at": None,
        "planned": 0,
        **dict.fromkeys(states.ITEM_STATES, 0),
        "reason": WAITING,
        "is_cancelling": False,
        "dag_version": None,
        "batch": ask.batch,
        "conf": ask.conf,
        "overrides": ask.overrides,
        "tasks": ask.tasks,
        "with_upstream": ask.with_upstream,
        "with_downstream": ask.with_downstream,
        "mark_success": ask.mark_success,
        "stop_on_failure": ask.stop_on_failure,
        "window": ask.window,
        "is_polite": ask.is_polite,
        "ignore_first_depends_on_past": ask.ignore_first_depends_on_past,
        "parents": [],
        "time_left_s": None,
        "finishes_at": None,
        "created_by": request.requested_by,
        "request_id": request.request_id,
        "hidden_at": None,
    }


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


def _waiting(store: Store) -> list[dict[str, Any]]:
    return _views_of(store.unanswered())


def _asked(store: Store, where: Sequence[Condition] = ()) -> list[dict[str, Any]]:
    """Every backfill ever asked for, whatever became of it; the newest last."""
    of_kind = Condition("kind", "=", BACKFILL_CREATE)
    return _views_of(store.read(Request, [of_kind, *where], order_by=("requested_at",)))


def _waiting_or_refused(store: Store, one: dict[str, Any]) -> dict[str, Any]:
    answers = store.read(Response, [Condition("request_id", "=", one["request_id"])], limit=1)
    if answers and answers[0].outcome == REFUSED:
        raise Refused(f"Backfill {one['backfill_id']} of {one['dag_id']!r} was refused: {answers[0].message}")
    return one
