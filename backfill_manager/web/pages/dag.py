"""*One DAG*, a tab for each way to look at it: grid, graph, timeline, calendar. `dag_versions` and `dag_asks` have the others."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from starlette.responses import Response

from backfill_manager.clock import parse_instant
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.calendar import calendar, rows_by_day, runs_of_day, years
from backfill_manager.queries.dags import known_dag, next_intervals_of, show_dag, spec_of_run
from backfill_manager.queries.grid import MAX_RUNS, grid
from backfill_manager.queries.runs import find_run, timeline
from backfill_manager.queries.tasks import list_task_instances
from backfill_manager.web import paths
from backfill_manager.web.page import PageContext, PageContextOf, page_router, redirect
from backfill_manager.web.paging import PageNumber, cut
from backfill_manager.web.svg.calendar import year_of_days
from backfill_manager.web.svg.graph import layered

router: Final = page_router()
TABS: Final = (
    ("grid", "Grid"), ("graph", "Graph"), ("timeline", "Timeline"), ("calendar", "Calendar"), ("versions", "Versions"),
    ("code", "Code"), ("clear", "Clear"), ("trigger", "Trigger"),
)  # fmt: skip
ON_A_PAGE: Final = 100  # runs of a day
ROWS: Final = 100  # tasks of a grid
Runs = Annotated[int, Query(ge=1, le=MAX_RUNS)]


def dag_page(visit: PageContext, dag_id: str, tab: str, *, status: int = 200, **values: Any) -> Response:
    """A tab, under the head that all of them have."""
    minute = int(visit.now.timestamp()) // 60
    versions = (*visit.house.versions(("dag", "dag_version", "dag_run")), minute)
    dag = visit.house.at_versions(versions, f"ui:dag:{dag_id}", lambda: show_dag(visit.store, dag_id, visit.now))
    tabs = [(name, paths.to("dags", dag_id, *([] if name == "grid" else [name])), word) for name, word in TABS]
    if not (visit.person and visit.person.may_change):
        tabs = [one for one in tabs if one[0] not in ("clear", "trigger")]
    if not dag["is_active"]:
        tabs = [one for one in tabs if one[0] != "trigger"]
    return visit.page(f"dag_{tab}.html", status=status, dag=dag, tab=tab, tabs=tabs, **values)


@router.get("/dags/{dag_id}")
def the_grid(
    visit: PageContextOf,
    dag_id: str,
    order: Literal["date", "made"] = "date",
    before: str = "",
    n: Runs = 30,
    rows: PageNumber = 1,
) -> Response:
    dag_id = paths.from_segment(dag_id)
    _, spec = known_dag(visit.store, dag_id)
    found = grid(visit.store, spec, order=order, limit=n, **_cursor(order, before))
    if order == "date" and not found["runs"] and not before:  # its runs may have no date at all
        found = grid(visit.store, spec, order="made", limit=n)
    older = next(iter(found["older"].values())) if found["older"] else None
    given = {"order": "made" if order == "made" else None, "before": before, "n": n if n != 30 else None}
    tasks = cut(found["tasks"], rows, ROWS, "dags", dag_id, name="rows", **given)
    return dag_page(visit, dag_id, "grid", grid=found, tasks=tasks, older=older, before=before, n=n)


def _cursor(order: str, before: str) -> dict[str, Any]:
    if not before:
        return {}
    try:
        return {"before_date": _instant(before)} if order == "date" else {"before_seq": int(before)}
    except ValueError:
        raise InvalidInput(f"before={before!r} is no place in the list of runs.") from None


def _instant(text: str) -> datetime:
    at = parse_instant(text)
    if "T" not in text:
        raise ValueError(text)
    return at


@router.get("/dags/{dag_id}/graph")
def graph(visit: PageContextOf, dag_id: str, run: str = "") -> Response:
    """Of the current version; with a run, of the version that the run has, with its tasks' states in the picture."""
    dag_id = paths.from_segment(dag_id)
    row, spec = known_dag(visit.store, dag_id)
    picked = find_run(visit.store, run, dag_id=dag_id) if run else None
    shown = {one["task_id"]: one["state"] for one in list_task_instances(visit.store, picked)} if picked else {}
    of_run = spec_of_run(visit.store, picked) if picked else spec
    tasks = of_run.by_id if of_run else {}
    upstream = {task.task_id: task.upstream for task in of_run.in_order} if of_run else {}
    return dag_page(
        visit, dag_id, "graph", drawn=layered(upstream | {task_id: () for task_id in shown if task_id not in tasks}),
        states=shown, run_id=picked.run_id if picked else None, specs=tasks, is_known=of_run is not None,
        version=picked.dag_version if picked else row.current_version,
    )  # fmt: skip


@router.get("/dags/{dag_id}/runs")
def its_runs(visit: PageContextOf, dag_id: str) -> Response:
    """What is left of a run's address without the run: all of them are in the grid."""
    return redirect(paths.to("dags", paths.from_segment(dag_id), order="made"))


@router.get("/dags/{dag_id}/timeline")
def the_timeline(
    visit: PageContextOf, dag_id: str, n: Annotated[int, Query(ge=1, le=1000)] = 60, before: str = ""
) -> Response:
    """`before`: the runs of the dates before this one, which an address of the page of newer ones has given."""
    dag_id = paths.from_segment(dag_id)
    found = timeline(visit.store, dag_id, n + 1, before=_cursor("date", before).get("before_date"))
    older = found[-n]["logical_date"] if len(found) > n else None
    found = found[-n:]
    row_next = next_intervals_of(visit.store, dag_id, visit.now, 3)
    return dag_page(visit, dag_id, "timeline", runs=found[::-1], upcoming=row_next, before=before, older=older)


@router.get("/dags/{dag_id}/calendar")
def the_calendar(
    visit: PageContextOf,
    dag_id: str,
    year: Annotated[int | None, Query(ge=100, le=9998)] = None,
    show: Literal["state", "duration", "rows"] = "state",
) -> Response:
    dag_id = paths.from_segment(dag_id)
    _, spec = known_dag(visit.store, dag_id)

    def compute() -> tuple[list[int], int, dict[str, dict[str, Any]]]:
        there = years(visit.store, dag_id, spec.timezone)
        chosen = year or (there[0] if there else visit.now.year)
        found = calendar(visit.store, dag_id, spec.timezone, chosen)
        rows = rows_by_day(visit.store, dag_id, spec.timezone, chosen) if show == "rows" else {}
        return there, chosen, {day: {**figures, "rows": rows.get(day)} for day, figures in found.items()}

    tables = ["dag_run", "task_instance"] if show == "rows" else ["dag_run"]
    key = f"ui:calendar:{dag_id}:{year}:{show == 'rows'}"
    there, chosen, days = visit.house.cached_by_version(tables, key, compute)
    drawn = year_of_days(chosen, days, "rows" if show == "rows" else "duration_s")
    return dag_page(visit, dag_id, "calendar", years=there, year=chosen, show=show, drawn=drawn, days=days)


@router.get("/dags/{dag_id}/day/{day}")
def the_day(visit: PageContextOf, dag_id: str, day: str, page: PageNumber = 1) -> Response:
    dag_id = paths.from_segment(dag_id)
    _, spec = known_dag(visit.store, dag_id)
    begin = parse_date(day, spec.timezone, name="The day")
    found = runs_of_day(visit.store, dag_id, spec.timezone, begin)
    paged = cut(found, page, ON_A_PAGE, "dags", dag_id, "day", day)
    return dag_page(visit, dag_id, "day", day=day, runs=paged.rows, paged=paged)
