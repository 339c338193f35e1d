"""*Backfills*, and one of them: its progress, its items as a map and as a list, and what can be done with it.

What is read is kept until its tables change (`api.backfill_cache` says what of a backfill changes how often), the items'
part anew with every tick of a manager at work; so that is one reading for all that is told of them, and one for the page.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Form, Query
from starlette.responses import Response

from backfill_manager.api.backfill_cache import OF_ROW, TABLES, known_backfill, with_time_left
from backfill_manager.api.context import Versions
from backfill_manager.api.paging import from_cursor, to_cursor
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Backfill, DagRow
from backfill_manager.model.states import BACKFILL_FINISHED, BACKFILL_STATES, ITEM_STATES
from backfill_manager.queries.backfill_items import ItemPage, find_item, page_of_items
from backfill_manager.queries.backfill_settings import children_of_each, parents_of
from backfill_manager.queries.backfills import (
    Chosen,
    check_states,
    find_backfill,
    page_of_backfills,
    waiting_backfills,
)
from backfill_manager.queries.item_map import Cell, ItemMap, Label, read_items_seen, wider_ranges
from backfill_manager.queries.paging import Order
from backfill_manager.queries.rate import items_per_minute
from backfill_manager.requests import command_types
from backfill_manager.requests.validation import going_on, retried_backfill
from backfill_manager.store.base import Condition, Store
from backfill_manager.web import links
from backfill_manager.web.filters import duration, number, plain_day
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.form_fields import SETTINGS

router: Final = page_router()

ON_A_PAGE: Final = 25
ITEMS_ON_A_PAGE: Final = 25
ROWS_OF_MAP: Final = 24  # of the map told as a table
NEWEST: Final = Order("created_at", "backfill_id", descending=True)
_States = Annotated[list[str] | None, Query(max_length=len(ITEM_STATES))]
_Ordinal = Annotated[int | None, Query(ge=1, le=2**53)]


# -- all of them ------------------------------------------------------------------------------------------------------


@router.get("/backfills")
def backfills(
    context: ViewerContext,
    dag: Annotated[str, Query(max_length=250)] = "",
    state: _States = None,
    after: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    in_states = check_states("backfill", dict.fromkeys(state or ()), BACKFILL_STATES)
    rows, following = context.app.cached_by_version(
        TABLES, ("ui:backfills", dag, in_states, after), lambda: _list(context.store, dag, in_states, after)
    )
    there: dict[tuple[str, str], int] = context.app.cached_by_version(
        OF_ROW, "ui:backfills:there", lambda: _there(context.store)
    )
    by_state = {
        one: sum(n for (of, is_), n in there.items() if is_ == one and dag in ("", of)) for one in BACKFILL_STATES
    }
    zones = _zones(context)
    return context.page(
        "backfills/list.html", backfills=[_told(context, row, zones) for row in rows],
        dags=sorted({dag_id for dag_id, _ in there} | ({dag} - {""})), dag=dag, states=in_states, by_state=by_state,
        after=after, following=following, is_filtered=bool(dag or in_states), rate=rate_in_words,
    )  # fmt: skip


def _list(
    store: Store, dag: str, in_states: tuple[str, ...], after: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """One page, newest first, and the cursor of the next; what waits for the manager leads the first page."""
    chosen = Chosen(dag or None, in_states)
    place = from_cursor(after, "-created_at", Backfill, NEWEST)
    rows, last = page_of_backfills(
        store, chosen, NEWEST, ON_A_PAGE, None if place is None else (place.value, place.tie)
    )
    waiting = waiting_backfills(store, chosen) if after is None else []
    return [*waiting, *rows], None if last is None else to_cursor("-created_at", *last)


def _told(context: PageContext, counted: Mapping[str, Any], zones: Mapping[str, str]) -> dict[str, Any]:
    """The backfill, whose items are counted, with all that pages tell of it."""
    one = with_time_left(context.app, dict(counted))
    zone = zones.get(one["dag_id"], "UTC")
    return {
        **one,
        "zone": zone,
        "is_dag_active": one["dag_id"] in _active_dags(context),
        "per_minute": items_per_minute(one),
        "what": config_in_words(one["config"], zone),
        "counts": {state: one[state] for state in ITEM_STATES},
        "done": sum(one[state] for state in ITEM_STATES) - one["pending"] - one["running"],
        "has_ended": one["state"] in BACKFILL_FINISHED,
        "waits": one["dag_version"] is None,  # asked for, not made yet
    }


def _there(store: Store) -> dict[tuple[str, str], int]:
    """How many there are by DAG and state, with those that wait for the manager."""
    counts = store.count("backfill", ("dag_id", "state"), [Condition("hidden_at", "is_null")])
    waiting = Counter((one["dag_id"], one["state"]) for one in waiting_backfills(store, Chosen()))
    return waiting + Counter({(dag_id, state): n for (dag_id, state), n in counts.items()})


def _zones(context: PageContext) -> dict[str, str]:
    """The time zone of each DAG."""
    return context.app.cached_by_version(
        ["dag"], "ui:zones", lambda: {row.dag_id: row.timezone for row in context.store.read(DagRow)}
    )


def _active_dags(context: PageContext) -> frozenset[str]:
    return context.app.cached_by_version(
        ["dag"],
        "ui:active-dags",
        lambda: frozenset(row.dag_id for row in context.store.read(DagRow, [Condition("is_active", "=", True)])),
    )


def config_in_words(config: Mapping[str, Any], zone: str) -> str:
    """`every interval from 2013-01-01 to 2013-01-31`, `3 dates`."""
    kind = config["type"]
    backwards = ", newest first" if config.get("run_backwards") else ""
    future = ", also what has not ended" if config.get("allow_future") else ""
    if kind in ("dates", "partitions"):
        many = config.get("total", len(config[kind]))
        return f"{many:,} {kind if many != 1 else kind[:-1]}{backwards}{future}"
    whole = {
        "schedule": "every interval", "missing": "what is missing", "stale": "what is stale", "single": "one run",
    }.get(kind, kind)  # fmt: skip
    ends = [plain_day(config.get(name), zone) for name in ("start_date", "end_date")]
    return f"{whole} from {ends[0] or '…'} to {ends[1] or 'the last complete interval'}{backwards}{future}"


# -- one of them ------------------------------------------------------------------------------------------------------


@router.get("/backfills/{wanted}")
def backfill(
    context: ViewerContext,
    wanted: str,
    state: _States = None,
    first: Annotated[int | None, Query(alias="from", ge=1, le=2**53)] = None,
    last: Annotated[int | None, Query(alias="to", ge=1, le=2**53)] = None,
    after: _Ordinal = None,
    before: _Ordinal = None,
) -> Response:
    known = known_backfill(context.app, links.from_segment(wanted))
    backfill_id, planned = known["backfill_id"], known["planned"]
    if backfill_id != links.from_segment(wanted):
        return redirect(links.to("backfills", backfill_id))
    in_states = check_states("backfill's item", dict.fromkeys(state or ()), ITEM_STATES)
    begins, ends = _range(first, last, planned)
    zones = _zones(context)
    of_items = context.app.versions(["backfill_item"])  # once, so that map and list tell the same
    seen = _seen(context, of_items, known, zones.get(known["dag_id"], "UTC"), begins, ends) if planned else None
    found = _told(context, {**known, **(seen["by_state"] if seen else dict.fromkeys(ITEM_STATES, 0))}, zones)
    parents, children = _family(context, known)
    items: ItemPage = context.app.at_versions(
        of_items,
        ("ui:items", backfill_id, begins, ends, in_states, after, before),
        lambda: page_of_items(
            context.store,
            backfill_id,
            begins,
            ends,
            in_states=in_states,
            after=after,
            before=before,
            limit=ITEMS_ON_A_PAGE,
        ),
    )
    return context.page(
        "backfills/one.html", b=found, first=begins, last=ends, is_part=(begins, ends) != (1, planned),
        states=in_states, item_states=ITEM_STATES, settings=SETTINGS, parents=parents, children=children,
        map=seen["map"] if seen else None,
        ranges=_ranges(found, begins, ends), beside=_beside(found, begins, ends),
        reasons=seen["reasons"] if seen else [], items=items, cell_text=cell_text, rate=rate_in_words,
    )  # fmt: skip


@router.get("/backfills/{wanted}/items/{ordinal}")
def item(context: ViewerContext, wanted: str, ordinal: int) -> Response:
    """A cell of one item leads here: on to its run, or to the item in the list while it has none."""
    found = known_backfill(context.app, links.from_segment(wanted))
    one = find_item(context.store, found["backfill_id"], ordinal)
    if one["run_id"] is not None:
        return redirect(links.to_run(found["dag_id"], one["run_id"]))
    return redirect(links.to("backfills", found["backfill_id"], **{"from": ordinal, "to": ordinal}) + "#items")


def find(context: PageContext, wanted: str) -> dict[str, Any]:
    """The backfill of this id, its items not counted, with `what` it does in words. `NotFound`, `Ambiguous`, `Refused` as of
    `find_backfill`."""
    known = known_backfill(context.app, links.from_segment(wanted))
    return {**known, "what": config_in_words(known["config"], _zones(context).get(known["dag_id"], "UTC"))}


def _family(context: PageContext, known: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The backfills of its cascade that it waits for, and those that wait for it."""
    children: dict[str, list[dict[str, Any]]] = context.app.cached_by_version(
        ["backfill"], "ui:children", lambda: children_of_each(context.store)
    )
    return parents_of(context.store, known), children.get(known["backfill_id"], [])


def _range(first: int | None, last: int | None, planned: int) -> tuple[int, int]:
    begins, ends = first or 1, min(last or planned, planned)
    if planned and begins > ends:
        raise InvalidInput(
            f"There are no items from {begins:,} to {last or planned:,}; this backfill has 1 to {planned:,}."
        )
    return begins, ends


def _ranges(found: Mapping[str, Any], first: int, last: int) -> list[dict[str, str]]:
    """The ranges that lead to this one, as links."""
    planned = found["planned"]
    return [_range_link(found, a, b) for a, b in wider_ranges(first, last, planned)]


def _beside(found: Mapping[str, Any], first: int, last: int) -> dict[str, dict[str, str] | None]:
    """The ranges of the same width before and after this one."""
    width, planned = last - first + 1, found["planned"]
    return {
        "before": _range_link(found, max(1, first - width), first - 1) if first > 1 else None,
        "after": _range_link(found, last + 1, min(last + width, planned)) if last < planned else None,
    }


def _range_link(found: Mapping[str, Any], first: int, last: int) -> dict[str, str]:
    if (first, last) == (1, found["planned"]):
        return {"word": f"all {last:,}", "href": links.to("backfills", found["backfill_id"])}
    word = f"{first:,} to {last:,}" if last > first else f"{first:,}"
    return {"word": word, "href": links.to("backfills", found["backfill_id"], **{"from": first, "to": last})}


def _seen(
    context: PageContext, of_items: Versions, known: Mapping[str, Any], zone: str, first: int, last: int
) -> dict[str, Any]:
    """`by_state` and `reasons` of all items, and the `map` of a range that the page draws: `json` for the script, `rows`
    for reading, `counts` of the range."""
    label: Label = "partition_key" if known["config"]["type"] == "partitions" else "logical_date"

    def compute() -> dict[str, Any]:
        read = read_items_seen(context.store, known["backfill_id"], first, last, label)
        address = links.to("backfills", known["backfill_id"])
        href = f"{address}/items/{{first}}" if read.map.per == 1 else f"{address}?from={{first}}&to={{last}}"
        drawn = {
            "json": drawn_map(read.map, zone, href),
            "rows": read.map.coarser(ROWS_OF_MAP),
            "counts": read.map.by_state,
            "per": read.map.per,
            "label": label,
        }
        return {"by_state": read.by_state, "reasons": read.reasons, "map": drawn}

    return context.app.at_versions(of_items, ("ui:seen", known["backfill_id"], zone, first, last), compute)


def drawn_map(read: ItemMap, zone: str, href: str = "") -> str:
    """Compact JSON for `item_map.js`: counts by state and label of each cell. `{first}` and `{last}` in `href` are put in
    there."""
    document = {
        "first": read.first, "last": read.last, "per": read.per, "states": ITEM_STATES, "href": href,
        "cells": [cell.counts for cell in read.cells],
        "begins": [_label(cell.begins, zone, read.label) for cell in read.cells],
        "ends": [] if read.per == 1 else [_label(cell.ends, zone, read.label) for cell in read.cells],
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _label(text: str | None, zone: str, label: Label) -> str:
    return plain_day(text, zone) if text and label == "logical_date" else text or ""


def cell_text(cell: Cell, zone: str, label: Label) -> str:
    """`2013-01-01 to 2013-01-31`: what a row of the map stands for."""
    begins, ends = _label(cell.begins, zone, label), _label(cell.ends, zone, label)
    return begins if begins == ends else f"{begins} to {ends}"


# -- what can be done with it -----------------------------------------------------------------------------------------


@router.post("/backfills/{wanted}/pause")
async def pause(context: OperatorContext, wanted: str, back: Annotated[str | None, Form()] = None) -> Response:
    return await _steer(context, wanted, command_types.BACKFILL_PAUSE, lambda found: going_on(found, "pause"), back)


@router.post("/backfills/{wanted}/unpause")
async def unpause(context: OperatorContext, wanted: str, back: Annotated[str | None, Form()] = None) -> Response:
    return await _steer(context, wanted, command_types.BACKFILL_UNPAUSE, lambda found: going_on(found, "resume"), back)


@router.post("/backfills/{wanted}/cancel")
async def cancel(
    context: OperatorContext,
    wanted: str,
    running: Annotated[str, Form(pattern="stop|finish")] = "stop",
    back: Annotated[str | None, Form()] = None,
) -> Response:
    finish = {"let_running_finish": running == "finish"}
    return await _steer(
        context, wanted, command_types.BACKFILL_CANCEL, lambda found: going_on(found, "cancel") | finish, back
    )


@router.post("/backfills/{wanted}/retry")
async def retry(context: OperatorContext, wanted: str, back: Annotated[str | None, Form()] = None) -> Response:
    return await _steer(context, wanted, command_types.BACKFILL_RETRY, retried_backfill, back)


async def _steer(context: PageContext, wanted: str, kind: str, payload: Any, back: str | None) -> Response:
    backfill_id = links.from_segment(wanted)
    asked = back if back is not None else links.to("backfills", backfill_id)
    return await context.ask(kind, lambda _: payload(find_backfill(context.store, backfill_id)), back=asked)


# -- words ------------------------------------------------------------------------------------------------------------


def rate_in_words(per_minute: float | None) -> str:
    """`12 a minute`, `3.4 a second`, `5 an hour`."""
    if not per_minute:
        return ""
    for size, unit in ((60, "a second"), (1, "a minute"), (1 / 60, "an hour")):
        if per_minute >= size * 0.95:
            return f"{number(per_minute / size)} {unit}"
    return f"one in {duration(60 / per_minute)}"
