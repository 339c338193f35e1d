"""*Runs* and *Task instances* of all DAGs, with filters, sort orders and addresses that can be shared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.responses import Response

from backfill_manager.api.paging import Paging
from backfill_manager.dags.schedule.timetable import parse_end, parse_start
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.model.states import RUN_STATES, RUN_TYPES, TASK_STATES
from backfill_manager.queries.backfills import check_states
from backfill_manager.queries.dags import all_dags
from backfill_manager.queries.paging import Order
from backfill_manager.queries.runs import creators_of, list_runs, people
from backfill_manager.queries.tasks import OF_NEWEST_RUNS, list_all_task_instances
from backfill_manager.web.dates import checked_zone, moved
from backfill_manager.web.page import PageContext, ViewerContext, page_router

router: Final = page_router()
PER_PAGE: Final = 50
MAX_WITHOUT_PAGES: Final = 200  # task instances; only by run they can be read page by page
Text = Annotated[str, Query(max_length=250)]
Day = Annotated[str, Query(max_length=60)]
States = Annotated[list[str] | None, Query(max_length=20)]
Cursor = Annotated[str | None, Query(max_length=4000)]
RunType = Literal["", "scheduled", "backfill", "manual", "external", "preview"]
RunSort = Literal[
    "-created", "created", "-started", "started", "-date", "date", "dag", "-dag", "state", "-state",
]  # fmt: skip
TaskSort = Literal["-run", "run", "-started", "started", "-duration", "duration"]
_RUN_COLUMNS: Final = {
    "created": "run_seq", "started": "started_at", "date": "logical_date", "dag": "dag_id", "state": "state",
}  # fmt: skip
_TASK_ORDERS: Final[Mapping[str, Order]] = {
    "-run": OF_NEWEST_RUNS, "run": Order("run_seq", "task_id"),
    "-started": Order("started_at", "run_seq", descending=True), "started": Order("started_at", "run_seq"),
    "-duration": Order("duration_s", "run_seq", descending=True), "duration": Order("duration_s", "run_seq"),
}  # fmt: skip


@router.get("/runs")
def runs(
    context: ViewerContext, dag: Text = "", state: States = None, type: RunType = "", by: Text = "",
    first: Annotated[Day, Query(alias="from")] = "", last: Annotated[Day, Query(alias="to")] = "",
    sort: RunSort = "-created", after: Cursor = None, zone: Day = "",
) -> Response:  # fmt: skip
    app, store = context.app, context.store
    in_states = check_states("run", _given(state), RUN_STATES)
    first, last = _typed_here(context, first, last, zone)
    since, until = _between(context, first, last)
    paging = Paging(PER_PAGE, after, sort)
    order = paging.order("run_seq", **_RUN_COLUMNS)
    place = paging.after(DagRun, order)

    def read() -> dict[str, Any]:
        rows, behind = list_runs(
            store, dag_id=dag or None, run_type=type or None, in_states=in_states, since=since, until=until,
            created_by=by or None, order=order, limit=PER_PAGE, after=place,
        )  # fmt: skip
        return {"runs": rows, "creators": creators_of(store, rows), "following": paging.cursor_behind(behind)}

    key = ("ui:runs", dag, in_states, type, by, since, until, sort, after)
    found = app.cached_by_version(["dag_run", "backfill", "request"], key, read)
    chosen = {
        "dag": dag,
        "state": in_states,
        "type": type,
        "by": by,
        "from": first,
        "to": last,
        "sort": sort,
    }
    names = app.cached_by_version(["request", "backfill"], "ui:people", lambda: people(store))
    return context.page(
        "runs.html", **found, **_frame(context, chosen, "-created"), states=RUN_STATES, types=RUN_TYPES,
        people=sorted({*names, by} - {""}), after=after,
    )  # fmt: skip


@router.get("/tasks")
def tasks(
    context: ViewerContext, dag: Text = "", task: Text = "", state: States = None,
    first: Annotated[Day, Query(alias="from")] = "", last: Annotated[Day, Query(alias="to")] = "",
    sort: TaskSort = "-run", after: Cursor = None, zone: Day = "",
) -> Response:  # fmt: skip
    app, store = context.app, context.store
    in_states = check_states("task", _given(state), TASK_STATES)
    first, last = _typed_here(context, first, last, zone)
    since, until = _between(context, first, last)
    has_pages = sort in ("run", "-run")
    paging = Paging(PER_PAGE if has_pages else MAX_WITHOUT_PAGES, after if has_pages else None, sort)
    order = _TASK_ORDERS[sort]
    place = paging.after(TaskInstance, order)

    def read() -> dict[str, Any]:
        rows, behind = list_all_task_instances(
            store, dag_id=dag or None, task_id=task or None, in_states=in_states, since=since, until=until, order=order,
            limit=paging.limit, after=place,
        )  # fmt: skip
        following = paging.cursor_behind(behind) if has_pages else None
        return {"tasks": rows, "following": following, "is_cut": behind is not None and not has_pages}

    key = ("ui:tasks", dag, task, in_states, since, until, sort, after)
    found = app.cached_by_version(["task_instance"], key, read)
    chosen = {"dag": dag, "task": task, "state": in_states, "from": first, "to": last, "sort": sort}
    return context.page(
        "tasks.html", **found, **_frame(context, chosen, "-run"), states=TASK_STATES, after=after,
        most=MAX_WITHOUT_PAGES,
    )  # fmt: skip


def _given(state: list[str] | None) -> dict[str, None]:
    """The states of an address: `state=queued&state=running` of a link, or `state=queued,running` of the form."""
    return dict.fromkeys(name for one in state or () for name in one.split(",") if name)


def _typed_here(context: PageContext, first: str, last: str, zone: str) -> tuple[str, str]:
    """The days as they would be typed on this page; `zone` is that of the page that they come from."""
    here = context.field_zone()
    was = checked_zone(zone) if zone else here
    return moved(first, was, here, "start"), moved(last, was, here, "end")


def _between(context: PageContext, first: str, last: str) -> tuple[datetime | None, datetime | None]:
    """The days from and to which, in the zone of all times of the page."""
    zone = context.field_zone()
    return (
        parse_start(first, zone, name="from") if first else None,
        parse_end(last, zone, name="to") if last else None,
    )


def _frame(context: PageContext, chosen: dict[str, Any], default_sort: str) -> dict[str, Any]:
    """What both pages need: `chosen` (without the default order, as in their addresses), DAGs to choose from, zones."""
    store = context.store
    dags = context.app.cached_by_version(["dag"], "ui:run-lists:dags", lambda: all_dags(store))
    sort = chosen["sort"]
    zone = context.field_zone() if chosen["from"] or chosen["to"] else ""  # for links that keep the days
    return {
        "chosen": {**chosen, "sort": "" if sort == default_sort else sort, "zone": zone}, "sort": sort,
        "dags": sorted({*dags, chosen["dag"]} - {""}), "zones": {dag_id: one.timezone for dag_id, one in dags.items()},
        "is_filtered": any(value for name, value in chosen.items() if name != "sort"),
        "field_zone": context.field_zone(),
    }  # fmt: skip
