"""*Backfills*, and one backfill: its progress, its items as a map and as a list, and its actions.

What is read is cached until its tables change (`api.backfill_cache`); the map and the list of items are of the same version.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Form, Query
from starlette.responses import Response

from backfill_manager import humanise
from backfill_manager.api.backfill_cache import ROW_TABLES, TABLES, known_backfill, reverted_runs, with_time_left
from backfill_manager.api.context import Versions
from backfill_manager.api.paging import Paging
from backfill_manager.dags.stored_definition import definition_or_why
from backfill_manager.errors import InvalidInput
from backfill_manager.masking import mask_values
from backfill_manager.model.records import Backfill, DagRow, DagRun, DagVersion
from backfill_manager.model.records import Response as Answer
from backfill_manager.model.states import BACKFILL_FINISHED, BACKFILL_STATES, ITEM_STATES
from backfill_manager.queries.backfill_items import find_item, list_items
from backfill_manager.queries.backfill_settings import children_of_each, parents_of
from backfill_manager.queries.backfills import (
    NEWEST_FIRST,
    BackfillFilter,
    check_states,
    find_backfill,
    list_backfills,
    waiting_backfills,
)
from backfill_manager.queries.eta import items_per_minute
from backfill_manager.queries.failures import MAX_ITEMS, group_errors
from backfill_manager.queries.item_map import ItemMap, Label, MapCell, read_items_seen, wider_ranges
from backfill_manager.queries.requests import waiting_for
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.requests.checked_payloads import (
    check_not_ended,
    previewed_backfill,
    retried_backfill,
)
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_columns import AUTO
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.web.filters import plain_day
from backfill_manager.web.links import PathId, to, to_run
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.form_fields import FORM_FIELDS

router: Final = page_router()

BACKFILLS_PER_PAGE: Final = 25
ITEMS_PER_PAGE: Final = 25
MAX_TABLE_ROWS: Final = 24  # of the map as a table
_States = Annotated[list[str] | None, Query(max_length=len(ITEM_STATES))]
_Ordinal = Annotated[int | None, Query(ge=1, le=2**53)]
_Back = Annotated[str | None, Form()]


@router.get("/backfills")
def backfills(
    context: ViewerContext,
    dag: Annotated[str, Query(max_length=250)] = "",
    state: _States = None,
    after: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    in_states = check_states("backfill", dict.fromkeys(state or ()), BACKFILL_STATES)
    cached = context.app.cached_by_version
    page = cached(TABLES, ("ui:backfills", dag, in_states, after), lambda: _list(context.store, dag, in_states, after))
    counts = cached(ROW_TABLES, "ui:backfills:counts", lambda: _counts(context.store))
    by_state = {
        one: sum(n for (dag_id, in_state), n in counts.items() if in_state == one and dag in ("", dag_id))
        for one in BACKFILL_STATES
    }
    return context.page(
        "backfills/list.html", backfills=[backfill_details(context, row) for row in page["items"]],
        dags=sorted({dag_id for dag_id, _ in counts} | ({dag} - {""})), dag=dag, states=in_states, by_state=by_state,
        after=after, following=page["next_cursor"], is_filtered=bool(dag or in_states), rate=rate,
    )  # fmt: skip


def _list(store: Store, dag: str, in_states: tuple[str, ...], after: str | None) -> dict[str, Any]:
    """One page, newest first; requests that wait for the manager come first."""
    paging = Paging(BACKFILLS_PER_PAGE, after, "-created_at")
    place = paging.after(Backfill, NEWEST_FIRST, marks=True)
    chosen = BackfillFilter(dag or None, in_states)
    return paging.page(*list_backfills(store, chosen, limit=BACKFILLS_PER_PAGE, after=place))


def backfill_details(context: PageContext, counted: Mapping[str, Any]) -> dict[str, Any]:
    """The backfill, whose items are counted, with all that pages show of it."""
    one = with_time_left(context.app, dict(counted))
    zone, dag = _zone_of(context, one["dag_id"]), _dags(context).get(one["dag_id"])
    return {
        **one, "zone": zone, "dag_zone": dag.timezone if dag else "UTC", "what": _what(one["config"], zone),
        "per_minute": items_per_minute(one),
        "is_dag_active": dag is not None and bool(dag.is_active), "current_version": dag and dag.current_version,
        "counts": {state: one[state] for state in ITEM_STATES},
        "done": sum(one[state] for state in ITEM_STATES) - one["pending"] - one["running"],
        "has_ended": one["state"] in BACKFILL_FINISHED,
        "is_waiting": one["dag_version"] is None,  # submitted, not planned yet
    }  # fmt: skip


def _counts(store: Store) -> Counter[tuple[Any, ...]]:
    """Number of backfills by DAG and state, with those that wait for the manager."""
    counts: Counter[tuple[Any, ...]] = Counter((one["dag_id"], one["state"]) for one in waiting_backfills(store))
    counts.update(store.count("backfill", ("dag_id", "state"), [Condition("hidden_at", "is_null")]))
    return counts


def _dags(context: PageContext) -> dict[str, DagRow]:
    store = context.store
    return context.app.cached_by_version(
        ["dag"], "ui:dag-rows", lambda: {row.dag_id: row for row in store.read(DagRow)}
    )


def _zone_of(context: PageContext, dag_id: str) -> str:
    """In which times of a backfill of this DAG are shown."""
    dag = _dags(context).get(dag_id)
    return context.chosen_zone or (dag.timezone if dag else "UTC")


@router.get("/backfills/{backfill_id}")
def backfill(
    context: ViewerContext, backfill_id: PathId, state: _States = None,
    first: Annotated[int | None, Query(alias="from", ge=1, le=2**53)] = None,
    last: Annotated[int | None, Query(alias="to", ge=1, le=2**53)] = None, after: _Ordinal = None,
    before: _Ordinal = None,
) -> Response:  # fmt: skip
    row = known_backfill(context.app, backfill_id)
    if row["backfill_id"] != backfill_id:  # a prefix, or `latest`
        return redirect(to("backfills", row["backfill_id"]))
    planned = row["planned"]
    in_states = check_states("backfill's item", dict.fromkeys(state or ()), ITEM_STATES)
    begins, ends = _range(first, last, planned)
    of_items = context.app.versions(["backfill_item"])  # read once, so that map and list agree
    shown = _items_shown(context, of_items, row, _zone_of(context, row["dag_id"]), begins, ends) if planned else None
    details = backfill_details(context, {**row, **(shown["by_state"] if shown else dict.fromkeys(ITEM_STATES, 0))})
    children = context.app.cached_by_version(["backfill"], "ui:children", lambda: children_of_each(context.store))
    page: dict[str, Any] = {"first": begins, "last": ends, "in_states": in_states, "after": after, "before": before}
    items = context.app.at_versions(
        (*of_items, *context.app.versions(["response"])), ("ui:items", backfill_id, *page.values()),
        lambda: list_items(
            context.store, backfill_id, **page, limit=ITEMS_PER_PAGE,
            reverted=lambda: reverted_runs(context.app, backfill_id),
        ),
    )  # fmt: skip
    width = ends - begins + 1
    beside = {  # the ranges of the same width before and after this one
        "before": _range_link(row, max(1, begins - width), begins - 1) if begins > 1 else None,
        "after": _range_link(row, ends + 1, min(ends + width, planned)) if ends < planned else None,
    }
    largest = None
    if row["batch"] == AUTO:
        largest = context.app.cached_by_version(
            ["dag_run"], f"ui:largest-batch:{backfill_id}",
            lambda: context.store.first(DagRun, matching(backfill_id=backfill_id), ("-items",), NOT_LISTED),
        )  # fmt: skip
    ending = context.app.cached_by_version(
        ["request", "response"], f"ui:preview-ends:{backfill_id}",
        lambda: waiting_for(
            context.store, backfill_id, request_kinds.BACKFILL_PROMOTE, request_kinds.BACKFILL_DISCARD
        ),
    ) if row["preview_id"] and row["preview_outcome"] is None else []  # fmt: skip
    errors = context.app.at_versions(
        of_items, ("ui:errors", backfill_id), lambda: group_errors(context.store, row["dag_id"], backfill_id)
    ) if details["failed"] else []  # fmt: skip
    return context.page(
        "backfills/one.html", b=details, first=begins, last=ends, is_part=(begins, ends) != (1, planned),
        states=in_states, item_states=ITEM_STATES, settings=FORM_FIELDS,
        parents=parents_of(context.store, row), children=children.get(backfill_id, []),
        map=shown["map"] if shown else None,
        ranges=[_range_link(row, *wider) for wider in wider_ranges(begins, ends, planned)], beside=beside,
        reasons=shown["reasons"] if shown else [], errors=errors, items_read=MAX_ITEMS, items=items, cell_label=cell_label,
        rate=rate,
        ending=ending[0] if ending else None, largest_batch=largest.items if largest else None, params=_params(context, row),
    )  # fmt: skip


def _params(context: PageContext, row: Mapping[str, Any]) -> dict[str, Any]:
    """The run parameters: its own before the defaults of its version of the DAG."""
    dag_id, dag = row["dag_id"], _dags(context).get(row["dag_id"])
    version = row["dag_version"] or (dag.current_version if dag else 0)
    found = context.app.cached_by_version(
        ["dag_version"], f"ui:params:{dag_id}:{version}",
        lambda: context.store.first(DagVersion, matching(dag_id=dag_id, version=version)),
    )  # fmt: skip
    defaults = definition_or_why(found).params if found else {}
    return {**mask_values(defaults), **row["conf"]}


@router.get("/backfills/{backfill_id}/items/{ordinal}")
def item(context: ViewerContext, backfill_id: PathId, ordinal: int) -> Response:
    """The target of a map cell of one item: its run, or the item in the list while it has none."""
    row = known_backfill(context.app, backfill_id)
    run_id = find_item(context.store, row["backfill_id"], ordinal)["run_id"]
    if run_id is not None:
        return redirect(to_run(row["dag_id"], run_id))
    return redirect(to("backfills", row["backfill_id"], **{"from": ordinal, "to": ordinal}) + "#items")


def find(context: PageContext, backfill_id: str) -> dict[str, Any]:
    """The backfill of this id, its items not counted, with its range as text (`what`). Errors as of `find_backfill`."""
    row = known_backfill(context.app, backfill_id)
    return {**row, "what": _what(row["config"], _zone_of(context, row["dag_id"]))}


def _what(config: Mapping[str, Any], zone: str) -> str:
    return humanise.backfill_config(config, lambda at: plain_day(at, zone))


def _range(first: int | None, last: int | None, planned: int) -> tuple[int, int]:
    begins, ends = first or 1, min(last or planned, planned)
    if planned and begins > ends:
        raise InvalidInput(
            f"There are no items from {begins:,} to {last or planned:,}; this backfill has 1 to {planned:,}."
        )
    return begins, ends


def _range_link(row: Mapping[str, Any], first: int, last: int) -> dict[str, str]:
    if (first, last) == (1, row["planned"]):
        return {"label": f"all {last:,}", "href": to("backfills", row["backfill_id"])}
    label = f"{first:,} to {last:,}" if last > first else f"{first:,}"
    return {"label": label, "href": to("backfills", row["backfill_id"], **{"from": first, "to": last})}


def _items_shown(
    context: PageContext, of_items: Versions, row: Mapping[str, Any], zone: str, first: int, last: int
) -> dict[str, Any]:
    """`by_state` and `reasons` of all items, and the `map` of a range: `json` for the script, `rows` for the table, `counts` of
    the range."""
    label: Label = "partition_key" if row["config"]["type"] == "partitions" else "logical_date"

    def compute() -> dict[str, Any]:
        read = read_items_seen(context.store, row["backfill_id"], first, last, label)
        address = to("backfills", row["backfill_id"])
        href = f"{address}/items/{{first}}" if read.map.per == 1 else f"{address}?from={{first}}&to={{last}}"
        shown = {
            "json": map_json(read.map, zone, href), "rows": read.map.coarser(MAX_TABLE_ROWS),
            "counts": read.map.by_state, "per": read.map.per, "label": label,
        }  # fmt: skip
        return {"by_state": read.by_state, "reasons": read.reasons, "map": shown}

    return context.app.at_versions(of_items, ("ui:items-shown", row["backfill_id"], zone, first, last), compute)


def map_json(read: ItemMap, zone: str, href: str = "") -> str:
    """Compact JSON for `item_map.js`: counts by state and labels of each cell. `href` may hold `{first}` and `{last}`."""
    document = {
        "first": read.first, "last": read.last, "per": read.per, "states": ITEM_STATES, "href": href,
        "cells": [cell.counts for cell in read.cells],
        "begins": [_label(cell.begins, zone, read.label) for cell in read.cells],
        "ends": [] if read.per == 1 else [_label(cell.ends, zone, read.label) for cell in read.cells],
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _label(text: str | None, zone: str, label: Label) -> str:
    return plain_day(text, zone) if text and label == "logical_date" else text or ""


def cell_label(cell: MapCell, zone: str, label: Label) -> str:
    """`2013-01-01 to 2013-01-31`: the range of a cell."""
    begins, ends = _label(cell.begins, zone, label), _label(cell.ends, zone, label)
    return begins if begins == ends else f"{begins} to {ends}"


@router.post("/backfills/{backfill_id}/pause")
async def pause(context: OperatorContext, backfill_id: PathId, back: _Back = None) -> Response:
    return await _act(
        context, backfill_id, request_kinds.BACKFILL_PAUSE, lambda row: check_not_ended(row, "pause"), back
    )


@router.post("/backfills/{backfill_id}/unpause")
async def unpause(context: OperatorContext, backfill_id: PathId, back: _Back = None) -> Response:
    return await _act(
        context, backfill_id, request_kinds.BACKFILL_UNPAUSE, lambda row: check_not_ended(row, "unpause"), back
    )


@router.post("/backfills/{backfill_id}/cancel")
async def cancel(
    context: OperatorContext, backfill_id: PathId, running: Annotated[str, Form(pattern="stop|finish")] = "stop",
    back: _Back = None,
) -> Response:  # fmt: skip
    def payload(row: dict[str, Any]) -> dict[str, Any]:
        return check_not_ended(row, "cancel") | {"let_running_finish": running == "finish"}

    return await _act(context, backfill_id, request_kinds.BACKFILL_CANCEL, payload, back)


@router.post("/backfills/{backfill_id}/retry")
async def retry(
    context: OperatorContext, backfill_id: PathId, latest_version: Annotated[bool, Form()] = False,
    downstream: Annotated[bool, Form()] = False, items: Annotated[str, Form(max_length=200_000)] = "",
    back: _Back = None,
) -> Response:  # fmt: skip
    """`items`: `1-5,9`; empty: all that failed."""

    def payload(row: dict[str, Any]) -> dict[str, Any]:
        how = {"latest_version": latest_version, "downstream": downstream}
        chosen = [part for part in items.split(",") if part]
        return retried_backfill(row, latest_version=latest_version, items=chosen) | how

    return await _act(context, backfill_id, request_kinds.BACKFILL_RETRY, payload, back)


@router.get("/backfills/{backfill_id}/diff")
def compared(context: ViewerContext, backfill_id: PathId) -> Response:
    """How the tables would change, by the last comparison of this preview."""
    row = known_backfill(context.app, backfill_id)
    where = matching(kind=request_kinds.BACKFILL_DIFF, object_id=row["backfill_id"], outcome=request_kinds.ACCEPTED)
    answer = context.store.first(Answer, where, ["-answered_at"])
    tables = json.loads(answer.payload_json or "{}").get("tables", []) if answer else []
    return context.page(
        "backfills/diff.html", backfill_id=row["backfill_id"], answer=answer, tables=tables, zone=row["timezone"],
        key=", ".join(tables[0]["key"]) if tables else "", is_over=row["preview_outcome"] is not None or not row["preview_id"],
    )  # fmt: skip


@router.post("/backfills/{backfill_id}/diff")
async def compare(
    context: OperatorContext, backfill_id: PathId, key: Annotated[str, Form(max_length=2000)] = ""
) -> Response:
    def payload(row: dict[str, Any]) -> dict[str, Any]:
        columns = [part.strip() for part in key.split(",") if part.strip()]
        return previewed_backfill(row) | {"key": columns, "table": None}

    return await _act(context, backfill_id, request_kinds.BACKFILL_DIFF, payload, to("backfills", backfill_id, "diff"))


@router.post("/backfills/{backfill_id}/promote")
async def promote(
    context: OperatorContext, backfill_id: PathId, partial: Annotated[bool, Form()] = False,
    rebase: Annotated[bool, Form()] = False, back: _Back = None,
) -> Response:  # fmt: skip
    def payload(row: dict[str, Any]) -> dict[str, Any]:
        return previewed_backfill(row) | {"partial": partial, "rebase": rebase}

    return await _act(context, backfill_id, request_kinds.BACKFILL_PROMOTE, payload, back)


@router.post("/backfills/{backfill_id}/discard")
async def discard(context: OperatorContext, backfill_id: PathId, back: _Back = None) -> Response:
    return await _act(context, backfill_id, request_kinds.BACKFILL_DISCARD, previewed_backfill, back)


async def _act(context: PageContext, backfill_id: str, kind: str, payload: Any, back: str | None) -> Response:
    back = back if back is not None else to("backfills", backfill_id)
    return await context.submit(kind, lambda _: payload(find_backfill(context.store, backfill_id)), back=back)


def rate(per_minute: float | None) -> str:
    """`12 per minute`, `3.4 per second`, `5 per hour`."""
    if not per_minute:
        return ""
    for factor, unit in ((60, "second"), (1, "minute"), (1 / 60, "hour")):
        if per_minute >= factor * 0.95:
            return f"{humanise.number(per_minute / factor)} per {unit}"
    return f"one in {humanise.duration(60 / per_minute)}"
