"""Requests beside their answers. Lists tell what a request is about and not all that was asked (the dates of a backfill, run
parameters), nor what the manager answered beside words (a plan): `request_details` does."""

from __future__ import annotations

import json
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, Final

from backfill_manager.errors import InvalidInput
from backfill_manager.masking import mask_values
from backfill_manager.model.records import Request, Response
from backfill_manager.queries.documents import document
from backfill_manager.queries.paging import LATEST, MAX_LISTED_IDS, Order, Page, Place, Slice, choose
from backfill_manager.schemas.payloads import parse_payload
from backfill_manager.store.base import Condition, Store, matching

WAITING = "waiting"
_UNANSWERED: Final = SimpleNamespace(outcome=WAITING, object_id=None, message=None, answered_at=None)
_OF_REQUEST: Final = ("request_id", "kind", "about", "requested_by", "requested_at", "source", "requested_from")
NOT_LISTED: Final = ("payload_json",)  # of a request, and of an answer
NAMES: Final = ("dag_id", "run_id", "task_id", "backfill_id", "name", "bundle", "subpath", "host")
MAX_NAME_LENGTH: Final = 4000  # a run id of a partition is the longest
MAX_PARSED_LENGTH: Final = 100_000  # of a payload that a list reads for the names in it
NEWEST_FIRST: Final = Order("requested_at", "request_id", descending=True)


def list_requests(
    store: Store, *, kind: str | None = None, order: Order = NEWEST_FIRST, limit: int | None = None,
    after: Place | None = None,
) -> Page:  # fmt: skip
    """A request that was sent twice is one."""
    rows, last = Slice(order, limit, after).read(store, Request, matching(kind=kind), NOT_LISTED)
    once = {row.request_id: row for row in reversed(rows)}
    return Page(_listed(store, list(reversed(once.values()))), last)


def _listed(store: Store, rows: Collection[Request]) -> list[dict[str, Any]]:
    if not rows:
        return []
    where = matching(request_id=[row.request_id for row in rows]) if len(rows) <= MAX_LISTED_IDS else []
    answers = {row.request_id: row for row in store.read(Response, where, without=NOT_LISTED)}
    short = [*where, Condition("payload_json", "shorter_than", MAX_PARSED_LENGTH)]
    payloads = {row.request_id: row.payload_json for row in store.read(Request, short)}
    return [
        request_view(row.evolve(payload_json=payloads.get(row.request_id, "{}")), answers.get(row.request_id))
        for row in rows
    ]


def find_request(store: Store, id_or_prefix: str) -> dict[str, Any]:
    """By id, a beginning of it, or `latest`."""
    where = [] if id_or_prefix == LATEST else [Condition("request_id", "starts_with", id_or_prefix)]
    newest_first = ("-requested_at",)
    rows = store.read(Request, where, newest_first, limit=1 if id_or_prefix == LATEST else 20, without=NOT_LISTED)
    if not rows and id_or_prefix != LATEST:  # for a message that names the nearest
        rows = store.read(Request, (), newest_first, limit=1000, without=NOT_LISTED)
    by_id = {row.request_id: row for row in reversed(rows)}
    hint = "see_requests" if by_id else None
    of_it = matching(request_id=choose("request", id_or_prefix, list(reversed(by_id)), hint=hint))
    [row] = store.read(Request, of_it, order_by=("requested_at",), limit=1)
    return request_details(row, store.first(Response, of_it))


def waiting_for(store: Store, backfill_id: str, *kinds: str) -> list[Request]:
    """Requests of these kinds about a backfill that the manager has not answered yet, oldest first."""
    return [one for one in store.unanswered() if one.kind in kinds and _backfill_of(one) == backfill_id]


def _backfill_of(request: Request) -> str | None:
    try:
        return str(parse_payload(request.kind, request.payload_json)["backfill_id"])
    except InvalidInput:  # the manager refuses it
        return None


def request_details(row: Request, answer: Response | None) -> dict[str, Any]:
    """With all that was asked, its secrets masked, and what the manager answered beside words."""
    asked = {"request_id": row.request_id, "kind": row.kind, "payload": mask_values(_json(row.payload_json))}
    return {**asked, **request_view(row, answer), "result": result_of(answer)}


def request_view(row: Request, answer: Response | None) -> dict[str, Any]:
    about = _about(_json(row.payload_json or "{}"))  # not read where only the answer is of interest
    return {
        **document(_OF_REQUEST, row, about=about),
        **document(("outcome", "object_id", "message", "answered_at"), answer or _UNANSWERED),
    }


def result_of(answer: Response | None) -> Any:
    """What the manager answered beside its words: the plan of a dry run, what came of parsing a bundle."""
    return None if answer is None or answer.payload_json is None else mask_values(_json(answer.payload_json))


def _about(payload: Any) -> dict[str, str]:
    """The ids and names in a payload."""
    if not isinstance(payload, dict):
        return {}
    found = payload
    if isinstance(ask := payload.get("ask"), dict):
        dag = None if ask.get("is_regex") else ask.get("dag")
        found = {"dag_id": ask.get("dag_id") or dag, **payload}
    texts = ((name, found[name]) for name in NAMES if isinstance(found.get(name), str))
    return {name: text for name, text in texts if len(text) <= MAX_NAME_LENGTH}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # not written by `requests.submit`; show what is there
        return text


def list_responses(store: Store, limit: int = 20) -> list[dict[str, Any]]:
    """The last responses of managers, newest first."""
    names = ("request_id", "kind", "outcome", "object_id", "message", "answered_at", "term")
    return [document(names, row) for row in store.read(Response, order_by=("-answered_at",), limit=limit)]
