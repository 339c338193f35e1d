"""`/backfills`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response

from backfill_manager.api.backfill_cache import PACE_KEPT_S, TABLES, counted_backfill, known_backfill
from backfill_manager.api.conditional_get import ReadingOf
from backfill_manager.api.errors import NoActiveManager
from backfill_manager.api.models import (
    BackfillChanges,
    BackfillDetails,
    BackfillState,
    BackfillView,
    Cancel,
    ItemState,
    ItemView,
    Kind,
    NewBackfill,
    Page,
    PlanView,
    RequestView,
    RunningTask,
)
from backfill_manager.api.openapi import CHANGES, READS, TELLS
from backfill_manager.api.paging import Cursor, Limit, from_cursor, order_of, to_cursor
from backfill_manager.api.paths import Id
from backfill_manager.api.responses import PREFIX, AskingOf
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput, Refused
from backfill_manager.model.records import Backfill, BackfillItem
from backfill_manager.queries import backfills
from backfill_manager.queries.backfill_items import list_items as items_of
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.dags import current_dag
from backfill_manager.queries.managers import START_ONE, has_active_manager
from backfill_manager.queries.tasks import running_tasks
from backfill_manager.requests import command_types, validation
from backfill_manager.requests import submit as requests
from backfill_manager.requests.backfills import CreateBackfill, read_range

router = APIRouter(prefix="/backfills", tags=["backfills"])

PLAN_PATIENCE_S: Final = 60.0
BackfillOrder = Literal["-created_at", "created_at", "-priority", "priority", "dag_id", "-dag_id", "state", "-state"]
_COLUMNS: Final = {name: name for name in ("created_at", "priority", "dag_id", "state")}


@router.get("", operation_id="list_backfills", response_model=Page[BackfillView], responses=READS)
def list_backfills(
    reading: ReadingOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: BackfillOrder = "-created_at",
    dag_id: Annotated[str | None, Query(max_length=200)] = None,
    state: Annotated[list[BackfillState] | None, Query(max_length=10)] = None,
    kind: Kind | None = None,
) -> Response:
    """Every backfill, those that wait for the manager first. Hidden ones are left out."""
    chosen = backfills.BackfillFilter(dag_id, tuple(state or ()), kind)
    order = order_of(order_by, _COLUMNS, "run_seq")
    after = from_cursor(cursor, order_by, Backfill, order, marks=True)

    def page() -> dict[str, Any]:
        place = None if after is None else after.mark or after.of_row
        items, last = backfills.list_backfills(reading.store, chosen, order=order, limit=limit, after=place)
        if isinstance(last, str):
            return {"items": items, "next_cursor": to_cursor(order_by, mark=last)}
        return {"items": items, "next_cursor": None if last is None else to_cursor(order_by, *last)}

    return reading.of(TABLES, Page[BackfillView], page)


@router.post(
    "", status_code=202, operation_id="create_backfill", response_model=RequestView,
    responses={**CHANGES, 201: {"model": RequestView, "description": "Made.", "headers": CHANGES[202]["headers"]}},
)  # fmt: skip
async def create_backfill(body: NewBackfill, asking: AskingOf) -> Response:
    """Ask for a backfill. Its id is `payload.backfill_id` of the request, at once: it can be looked at before it is
    answered. With `wait` and the manager's word it is `201`."""

    def payload(request_id: str) -> dict[str, Any]:
        ask = ask_of(body, current_dag(asking.store, body.dag_id)[1])
        now = asking.house.clock.now()
        return validation.new_backfill(asking.store, asking.house.settings, ask, requests.id_from(request_id), now)

    return await asking(command_types.BACKFILL_CREATE, payload, made_at=lambda id: f"{PREFIX}/backfills/{quote(id)}")


@router.post("/dry_run", operation_id="plan_backfill", response_model=PlanView, responses=TELLS)
async def plan_backfill(body: NewBackfill, asking: AskingOf) -> Response:
    """What a backfill would do, item by item: planned by the manager as it would plan it, and nothing is made."""

    def payload(request_id: str) -> dict[str, Any]:
        ask = ask_of(body, current_dag(asking.store, body.dag_id)[1])
        now = asking.house.clock.now()
        found = validation.new_backfill(asking.store, asking.house.settings, ask, requests.id_from(request_id), now)
        if not has_active_manager(asking.store, now):
            raise NoActiveManager(f"A manager plans a dry run, and none is leading now: {START_ONE}.")
        return found

    asked = await asking.ask(command_types.BACKFILL_DRY_RUN, payload, wait_s=PLAN_PATIENCE_S)
    if asked.answer is None:
        raise NoActiveManager(
            f"The manager has not planned it within {PLAN_PATIENCE_S:g} s; look at it at /api/v1/health."
        )
    if asked.answer.outcome == command_types.REFUSED:
        raise Refused(asked.answer.message)
    plan = PlanView.model_validate(json.loads(asked.answer.payload_json or '{"items": [], "summary": {}}'))
    return JSONResponse(plan.model_dump())


@router.get("/{backfill_id}", operation_id="get_backfill", response_model=BackfillDetails, responses=READS)
def get_backfill(backfill_id: Id, reading: ReadingOf) -> Response:
    """One backfill, by its id, a beginning of it that only one has, or `latest`."""

    return reading.of(
        TABLES,
        BackfillDetails,
        lambda: counted_backfill(reading.house, backfill_id),
        also=(reading.moment(PACE_KEPT_S),),
    )


@router.patch(
    "/{backfill_id}", status_code=202, operation_id="change_backfill", response_model=RequestView, responses=CHANGES
)
async def change_backfill(backfill_id: Id, body: BackfillChanges, asking: AskingOf) -> Response:
    """Change settings of a backfill that goes on; those that are named. `overrides` and `conf` replace what was there.
    With `was`, nothing that somebody else has changed meanwhile is overwritten unseen."""

    def payload(_: str) -> dict[str, Any]:
        found = find_backfill(asking.store, backfill_id)
        was = None if body.was is None else body.was.model_dump(exclude_unset=True)  # null: that there was none
        return validation.changed_backfill(asking.store, asking.house.settings, found, body.named(), was)

    return await asking(command_types.BACKFILL_SET, payload)


@router.delete(
    "/{backfill_id}", status_code=202, operation_id="delete_backfill", response_model=RequestView, responses=CHANGES
)
async def delete_backfill(backfill_id: Id, asking: AskingOf) -> Response:
    """Cancel a backfill if it goes on, and leave it out of lists. What it did stays; by its id it is still found."""
    return await asking(
        command_types.BACKFILL_HIDE, lambda _: {"backfill_id": find_backfill(asking.store, backfill_id)["backfill_id"]}
    )


@router.get("/{backfill_id}/items", operation_id="list_items", response_model=Page[ItemView], responses=READS)
def list_items(
    backfill_id: Id,
    reading: ReadingOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    order_by: Literal["ordinal", "-ordinal"] = "ordinal",
    state: Annotated[list[ItemState] | None, Query(max_length=10)] = None,
) -> Response:
    """Its intervals (or partitions) in the order of making, with the run that each became."""
    order = order_of(order_by, {"ordinal": "ordinal"}, "ordinal")
    after = from_cursor(cursor, order_by, BackfillItem, order)

    def page() -> dict[str, Any]:
        found = known_backfill(reading.house, backfill_id)["backfill_id"]
        place = after.tie if after is not None else 2**62 if order.descending else None  # behind all ordinals
        after_, before = (None, place) if order.descending else (place, None)
        page = items_of(reading.store, found, in_states=tuple(state or ()), after=after_, before=before, limit=limit)
        last = page.before if order.descending else page.after
        items = page.items[::-1] if order.descending else page.items
        return {"items": items, "next_cursor": None if last is None else to_cursor(order_by, last, last)}

    return reading.of(TABLES, Page[ItemView], page)


@router.get(
    "/{backfill_id}/running", operation_id="list_running_tasks", response_model=Page[RunningTask], responses=READS
)
def list_running(backfill_id: Id, reading: ReadingOf) -> Response:
    """Its task instances that run now, longest first, on one page."""

    def found() -> dict[str, Any]:
        running = running_tasks(reading.store, counted_backfill(reading.house, backfill_id), reading.now())
        return {"items": running, "next_cursor": None}

    return reading.of((*TABLES, "dag_run", "task_instance"), Page[RunningTask], found, also=(reading.moment(1),))


@router.post(
    "/{backfill_id}/pause", status_code=202, operation_id="pause_backfill", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def pause(backfill_id: Id, asking: AskingOf) -> Response:
    """No new run of it starts; what runs goes on."""
    return await asking(
        command_types.BACKFILL_PAUSE, lambda _: validation.going_on(find_backfill(asking.store, backfill_id), "pause")
    )


@router.post(
    "/{backfill_id}/unpause", status_code=202, operation_id="unpause_backfill", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def unpause(backfill_id: Id, asking: AskingOf) -> Response:
    """Let it go on."""
    return await asking(
        command_types.BACKFILL_UNPAUSE,
        lambda _: validation.going_on(find_backfill(asking.store, backfill_id), "unpause"),
    )


@router.post(
    "/{backfill_id}/cancel", status_code=202, operation_id="cancel_backfill", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def cancel(backfill_id: Id, asking: AskingOf, body: Cancel | None = None) -> Response:
    """What is pending never runs; what runs is stopped, or may finish."""

    def payload(_: str) -> dict[str, Any]:
        about = validation.going_on(find_backfill(asking.store, backfill_id), "cancel")
        return {**about, "let_running_finish": body is not None and body.let_running_finish}

    return await asking(command_types.BACKFILL_CANCEL, payload)


@router.post(
    "/{backfill_id}/retry", status_code=202, operation_id="retry_backfill", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def retry(backfill_id: Id, asking: AskingOf) -> Response:
    """Its failed items once more."""
    return await asking(
        command_types.BACKFILL_RETRY, lambda _: validation.retried_backfill(find_backfill(asking.store, backfill_id))
    )


def ask_of(body: NewBackfill, dag: DagSpec) -> CreateBackfill:
    """The request as a value: dates read in the DAG's zone, the kind inferred. `InvalidInput` names the field."""
    if body.dates and body.partitions:
        raise InvalidInput("dates and partitions don't go together: a backfill is over dates or over partitions.")
    listed: Kind | None = "dates" if body.dates else "partitions" if body.partitions else None
    said = body.model_dump(exclude={"kind", "start_date", "end_date", "dates", "partitions"})
    kind: Kind = body.kind or listed or "schedule"
    return CreateBackfill(
        **said,
        **read_range(dag, kind, body.start_date, body.end_date, names=("start_date", "end_date")),  # type: ignore[arg-type]
        kind=kind,
        dates=tuple(parse_date(one, dag.timezone, name="dates") for one in body.dates),
        partitions=tuple(body.partitions),
    )
