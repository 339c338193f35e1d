"""`/dags`, with what depends on one: its runs, grid, timeline, versions; and `/import_errors`."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.conditional_get import ReadingOf
from backfill_manager.api.models import (
    Clear,
    ClearPlanView,
    DagChanges,
    DagDetails,
    DagView,
    GridView,
    ImportErrorView,
    Interval,
    NewRun,
    Page,
    RequestView,
    RunState,
    RunType,
    RunView,
    TimelineRun,
    VersionDiff,
    VersionView,
)
from backfill_manager.api.openapi import CHANGES, READS
from backfill_manager.api.paging import Bound, Cursor, Limit, from_cursor, instant_of, order_of, page_of_few, to_cursor
from backfill_manager.api.paths import Id
from backfill_manager.api.responses import AskingOf
from backfill_manager.api.routes.runs import RUN_COLUMNS, RunOrder, address_of, page_of
from backfill_manager.model.records import DagRow, DagRun, DagVersion
from backfill_manager.planning.clear_plan import plan_clear
from backfill_manager.queries.dags import (
    all_dags,
    current_dag,
    known_dag,
    list_dags,
    list_import_errors,
    next_intervals_of,
    show_dag,
    spec_reader,
)
from backfill_manager.queries.grid import grid
from backfill_manager.queries.paging import Order
from backfill_manager.queries.runs import timeline
from backfill_manager.queries.versions import diff_versions, list_versions
from backfill_manager.requests import command_types, validation
from backfill_manager.requests.clearing import ClearTasks

router = APIRouter(prefix="/dags", tags=["dags"])
errors_router = APIRouter(tags=["dags"])

DEFINED: Final = ("dag", "dag_version")
TABLES: Final = (*DEFINED, "dag_run")
ACTIVE: Final = {"true": True, "false": False, "all": None}


@router.get("", operation_id="list_dags", response_model=Page[DagView], responses=READS)
def list_all(
    reading: ReadingOf,
    limit: Limit = 200,
    cursor: Cursor = None,
    order_by: Literal["dag_id", "-dag_id"] = "dag_id",
    is_paused: bool | None = None,
    tag: Annotated[str | None, Query(max_length=200)] = None,
    active: Annotated[
        Literal["true", "false", "all"],
        Query(description="`false`: those that no file defines any more, whose runs can still be read."),
    ] = "true",
) -> Response:
    """The DAGs (the active ones, unless `active` says otherwise), with the date and time of the next scheduled run."""
    order = order_of(order_by, {"dag_id": "dag_id"}, "dag_id")
    after = from_cursor(cursor, order_by, DagRow, order)

    def page() -> dict[str, Any]:
        found = [
            one
            for one in list_dags(reading.store, reading.now(), active=ACTIVE[active])
            if is_paused in (None, one["is_paused"]) and (tag is None or tag in one["tags"])
        ]
        found.sort(key=lambda one: str(one["dag_id"]), reverse=order.descending)
        if after is not None:
            found = [
                one for one in found if (one["dag_id"] > after.tie) != order.descending and one["dag_id"] != after.tie
            ]
        last = found[limit - 1]["dag_id"] if len(found) > limit else None
        return {"items": found[:limit], "next_cursor": None if last is None else to_cursor(order_by, last, last)}

    return reading.of(TABLES, Page[DagView], page, also=(reading.moment(10),))


@router.get("/{dag_id}", operation_id="get_dag", response_model=DagDetails, responses=READS)
def get_dag(dag_id: Id, reading: ReadingOf) -> Response:
    """One DAG, active or not: its schedule, its tasks and what they wait for, how many runs it has by state."""
    return reading.of(
        TABLES, DagDetails, lambda: show_dag(reading.store, dag_id, reading.now()), also=(reading.moment(10),)
    )


@router.patch("/{dag_id}", status_code=202, operation_id="change_dag", response_model=RequestView, responses=CHANGES)
async def change_dag(dag_id: Id, body: DagChanges, asking: AskingOf) -> Response:
    """Pause it (no scheduled run is made) or let it go on. Its backfills have a pause of their own."""
    kind = command_types.DAG_PAUSE if body.is_paused else command_types.DAG_UNPAUSE
    return await asking(kind, lambda _: {"dag_id": current_dag(asking.store, dag_id)[0].dag_id})


@router.post(
    "/{dag_id}/deactivate", status_code=202, operation_id="deactivate_dag", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def deactivate(dag_id: Id, asking: AskingOf) -> Response:
    """Nothing more of it is scheduled or can be asked for, until it has new content or its file is parsed on request."""
    return await asking(command_types.DAG_DEACTIVATE, lambda _: {"dag_id": current_dag(asking.store, dag_id)[0].dag_id})


@router.get("/{dag_id}/next", operation_id="next_intervals", response_model=list[Interval], responses=READS)
def next_of(
    dag_id: Id, reading: ReadingOf, n: Annotated[int, Query(ge=1, le=1000)] = 1, after: Bound = None
) -> Response:
    """The next intervals that the scheduler makes runs of, and when each is due. `after` goes on behind the answer before:
    the `interval_end` of its last."""
    behind = instant_of(after, "after")

    def found() -> list[dict[str, Any]]:
        return next_intervals_of(reading.store, dag_id, reading.now(), n, after=behind)

    return reading.of(TABLES, list[Interval], found, also=(reading.moment(10),))


# -- its runs -----------------------------------------------------------------------------------------------------------


@router.post(
    "/{dag_id}/runs", status_code=202, operation_id="trigger_dag", response_model=RequestView,
    responses={**CHANGES, 201: {"model": RequestView, "description": "Made.", "headers": CHANGES[202]["headers"]}},
)  # fmt: skip
async def trigger(dag_id: Id, asking: AskingOf, body: NewRun | None = None) -> Response:
    """One run by hand: for the interval that starts at `logical_date`, or for the latest complete one. It moves the
    schedule nowhere. A date in the future is refused, unless `allow_future` says otherwise."""
    wanted = body or NewRun()
    return await asking(
        command_types.DAG_TRIGGER,
        lambda _: validation.triggered_dag(
            asking.store,
            dag_id,
            wanted.logical_date,
            wanted.conf,
            asking.house.clock.now(),
            allow_future=wanted.allow_future,
        ),
        made_at=lambda run_id: address_of(dag_id, run_id),
    )


@router.get("/{dag_id}/runs", operation_id="list_runs_of_dag", response_model=Page[RunView], responses=READS)
def runs_of(
    dag_id: Id,
    reading: ReadingOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: RunOrder = "-created_at",
    state: Annotated[list[RunState] | None, Query(max_length=10)] = None,
    run_type: RunType | None = None,
) -> Response:
    """Its runs, newest made first."""
    order = order_of(order_by, RUN_COLUMNS, "run_seq")
    after = from_cursor(cursor, order_by, DagRun, order)

    def page() -> dict[str, Any]:
        _known(reading, dag_id)
        return page_of(
            reading.store, order_by, order, limit, after,
            dag_id=dag_id, in_states=tuple(state or ()), run_type=run_type,
        )  # fmt: skip

    return reading.of(TABLES, Page[RunView], page)


@router.get("/{dag_id}/grid", operation_id="get_grid", response_model=GridView, responses=READS)
def get_grid(
    dag_id: Id,
    reading: ReadingOf,
    limit: Annotated[int, Query(ge=1, le=200)] = 30,
    cursor: Cursor = None,
    order: Annotated[Literal["date", "made"], Query(description="By logical date, or as they were made.")] = "date",
) -> Response:
    """Its newest runs with the state of each of their tasks; the next page has older ones."""
    by = Order("logical_date" if order == "date" else "run_seq", "run_seq", descending=True)
    after = from_cursor(cursor, order, DagRun, by)

    def found() -> dict[str, Any]:
        _, spec = known_dag(reading.store, dag_id)
        made = grid(
            reading.store, spec, order=order, limit=limit,
            before_date=after.value if after is not None and order == "date" else None,
            before_seq=after.tie if after is not None and order == "made" else None,
        )  # fmt: skip
        older = made.pop("older")
        cursor = None if older is None else to_cursor(order, older.get("before_date"), older.get("before_seq", 0))
        if older is not None and order == "made":
            cursor = to_cursor(order, older["before_seq"], older["before_seq"])
        return {**made, "next_cursor": cursor}

    return reading.of((*TABLES, "task_instance"), GridView, found)


@router.get("/{dag_id}/timeline", operation_id="get_timeline", response_model=Page[TimelineRun], responses=READS)
def get_timeline(
    dag_id: Id,
    reading: ReadingOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: Literal["-logical_date"] = "-logical_date",
) -> Response:
    """The runs that stand, those of the newest dates first, each with those that it took the place of."""
    order = order_of(order_by, {"logical_date": "logical_date"}, "logical_date")
    after = from_cursor(cursor, order_by, DagRun, order)

    def page() -> dict[str, Any]:
        _known(reading, dag_id)
        found = timeline(reading.store, dag_id, limit + 1, before=None if after is None else after.tie)[::-1]
        last = found[limit - 1]["logical_date"] if len(found) > limit else None
        return {"items": found[:limit], "next_cursor": None if last is None else to_cursor(order_by, last, last)}

    return reading.of(TABLES, Page[TimelineRun], page)


@router.get("/{dag_id}/versions", operation_id="list_versions", response_model=Page[VersionView], responses=READS)
def versions(
    dag_id: Id,
    reading: ReadingOf,
    limit: Limit = 100,
    cursor: Cursor = None,
    order_by: Literal["-version"] = "-version",
) -> Response:
    """Its versions, newest first."""
    order = order_of(order_by, {"version": "version"}, "version")
    after = from_cursor(cursor, order_by, DagVersion, order)

    def page() -> dict[str, Any]:
        found = list_versions(reading.store, dag_id)
        found = [one for one in found if after is None or one["version"] < after.tie]
        last = found[limit - 1]["version"] if len(found) > limit else None
        return {"items": found[:limit], "next_cursor": None if last is None else to_cursor(order_by, last, last)}

    return reading.of(DEFINED, Page[VersionView], page)


@router.get("/{dag_id}/versions/diff", operation_id="diff_versions", response_model=VersionDiff, responses=READS)
def versions_diff(
    dag_id: Id,
    reading: ReadingOf,
    before: Annotated[int, Query(ge=1, le=2**31)],
    after: Annotated[int, Query(ge=1, le=2**31)],
) -> Response:
    """What differs between two versions: settings, tasks and files."""
    return reading.of(DEFINED, VersionDiff, lambda: diff_versions(reading.store, dag_id, before, after))


@router.post(
    "/{dag_id}/clear", status_code=202, operation_id="clear_tasks", response_model=RequestView,
    responses={
        **CHANGES,
        200: {
            "model": ClearPlanView | RequestView,
            "description": "With `dry_run`: what would be cleared. Else: accepted by the manager.",
        },
    },
)  # fmt: skip
async def clear(dag_id: Id, body: Clear, asking: AskingOf) -> Response:
    """Have tasks that ran run again, in place. What runs is stopped first."""
    ask = ClearTasks(
        dag=dag_id, start=body.start_date, end=body.end_date, run_ids=tuple(body.run_ids), tasks=body.tasks,
        upstream=body.upstream, downstream=body.downstream, only_failed=body.only_failed,
        only_running=body.only_running, latest_version=body.latest_version,
    )  # fmt: skip

    def planned() -> tuple[ClearTasks, dict[str, Any]]:
        ask.check()
        known = validation.with_whole_run_ids(asking.store, ask)
        return known, plan_clear(
            asking.store, known, all_dags(asking.store), spec_reader(asking.store)
        ).to_json_document()

    if body.dry_run:
        _, plan = await run_in_threadpool(planned)
        return JSONResponse(ClearPlanView.model_validate(plan).model_dump())
    return await asking(command_types.TASKS_CLEAR, lambda _: {"ask": planned()[0].to_payload()})


def _known(reading: ReadingOf, dag_id: str) -> None:
    """A DAG that is, or ever was, there: what ran can be read after its DAG is gone."""
    if dag_id not in all_dags(reading.store):
        known_dag(reading.store, dag_id)  # which says that there is none


@errors_router.get(
    "/import_errors", operation_id="list_import_errors", response_model=Page[ImportErrorView], responses=READS
)
def import_errors(
    reading: ReadingOf,
    limit: Limit = 200,
    cursor: Cursor = None,
    order_by: Literal["bundle", "-bundle", "file", "-file", "last_seen_at", "-last_seen_at"] = "bundle",
    bundle: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Files that could not be read: where, and what is wrong. The last good version of their DAGs stays."""

    def page() -> dict[str, Any]:
        found = [one for one in list_import_errors(reading.store) if bundle in (None, one["bundle"])]
        return page_of_few(found, order_by, limit, cursor)

    return reading.of(("import_error",), Page[ImportErrorView], page)
