"""*Gaps* by data. Of a DAG: its tables and the intervals of a range as a matrix, and each finding in words; a cell leads to the
form that does its interval again. Of all DAGs: DAGs and days, of which a selection leads there."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.clock import format_instant, from_micros
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.dags import known_dag
from backfill_manager.queries.data_gaps import dags_with_tables
from backfill_manager.requests.data_gaps import DagDays, backfill_of_days, gap_days, gap_report
from backfill_manager.schemas.findings import IN_WORDS
from backfill_manager.web.dates import checked_zone, for_command, moved
from backfill_manager.web.links import PageNumber, PathId, paginate, to
from backfill_manager.web.page import PageContext, ViewerContext, message_of, page_router, redirect
from backfill_manager.web.pages.dag import dag_page

router: Final = page_router()
READ_FROM: Final = ("dag", "dag_version", "dag_run", "table_access")
TTL_S: Final = 60  # tables change without the state
MAX_COLUMNS: Final = 60  # the newest intervals of the range, side by side
PER_PAGE: Final = 100
DAGS_PER_PAGE: Final = 20
DAYS_BY_DEFAULT: Final = 30
MAX_SELECTED: Final = MAX_COLUMNS * DAGS_PER_PAGE
Typed = Annotated[str, Query(max_length=100)]
Dates = dict[str, Any]  # `start_date` and `end_date`, text or None


@router.get("/dags/{dag_id}/gaps")
def gaps_tab(
    context: ViewerContext, dag_id: PathId, start_date: Typed = "", end_date: Typed = "", zone: Typed = "",
    page: PageNumber = 1,
) -> Response:  # fmt: skip
    own = known_dag(context.store, dag_id)[1].timezone
    typed: Dates = {"start_date": start_date.strip(), "end_date": end_date.strip()}
    try:
        here = context.field_zone(own)
        typed = _typed_here(typed, zone, here)
        report = _report(context, dag_id, _for_commands(typed, here, own))
    except InvalidInput as error:
        return dag_page(context, dag_id, "gaps", typed=typed, error=message_of(error))
    paged = paginate(report["rows"], page, PER_PAGE, "dags", dag_id, "gaps", **typed, zone=here)
    return dag_page(context, dag_id, "gaps", typed=typed, error=None, report=report, paged=paged, words=IN_WORDS)


def _typed_here(typed: Dates, zone: str, here: str) -> Dates:
    """The range as it would be typed on this page; `zone` is that of the page that it comes from."""
    was = checked_zone(zone) if zone else here
    return {
        "start_date": moved(typed["start_date"] or "", was, here, "start"),
        "end_date": moved(typed["end_date"] or "", was, here, "end"),
    }


def _for_commands(typed: Dates, here: str, own: str) -> Dates:
    return {
        "start_date": for_command(typed["start_date"] or "", here, own, "start", name="start_date") or None,
        "end_date": for_command(typed["end_date"] or "", here, own, "end", name="end_date") or None,
    }


def _report(context: PageContext, dag_id: str, typed: Dates) -> dict[str, Any]:
    def compute() -> dict[str, Any]:
        start, end = (text or None for text in typed.values())
        report = gap_report(context.store, dag_id, start, end, context.now)
        rows = report.to_json_document()
        columns = [format_instant(from_micros(at)) for at in report.starts[-MAX_COLUMNS:].tolist()]
        cells: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        for row in rows:
            cells.setdefault((row["table"], row["interval_start"]), []).append(row)
        tables = [
            {
                "table": one.table, "column": one.column, "problem": one.problem,
                "cells": [_cell(dag_id, at, cells.get((one.table, at), [])) for at in columns],
            }
            for one in report.tables
        ]  # fmt: skip
        return {
            "rows": rows, "columns": columns, "tables": tables, "counted": len(report.starts),
            "found": {row["finding"] for row in rows}, "begins": columns[0] if columns else None,
        }  # fmt: skip

    versions = (*context.app.versions(READ_FROM), int(context.now.timestamp()) // TTL_S)
    found: dict[str, Any] = context.app.at_versions(versions, ("ui:gaps", dag_id, *typed.values()), compute)
    return found


@router.get("/gaps")
def gaps_of_dags(
    context: ViewerContext, start_date: Typed = "", end_date: Typed = "", zone: Typed = "", q: Typed = "",
    page: PageNumber = 1,
) -> Response:  # fmt: skip
    """Of the DAGs that write tables by interval, and whose id has `q` in it."""
    typed: Dates = {"start_date": start_date.strip(), "end_date": end_date.strip()}
    here, error = context.chosen_zone, ""
    first = (context.now.date() - timedelta(days=DAYS_BY_DEFAULT - 1)).isoformat()
    read: Dates = {"start_date": first, "end_date": None}
    try:
        typed = _typed_here(typed, zone, here) if here else typed
        read |= {name: text for name, text in typed.items() if text}
        read = _for_commands(read, here, "") if here else read  # instants, or days of each DAG's zone
        for name, text in typed.items():
            if text:
                parse_date(text, here or "UTC", name=name)
    except InvalidInput as problem:
        error = message_of(problem)
    every = context.app.cached_by_version(READ_FROM, "ui:gap-dags", lambda: dags_with_tables(context.store))
    paged = paginate(
        [dag_id for dag_id in every if q.strip().casefold() in dag_id.casefold()], page, DAGS_PER_PAGE, "gaps", **typed, q=q,
        zone=here,
    )  # fmt: skip
    dags = [] if error else [_days(context, dag_id, read["start_date"], read["end_date"]) for dag_id in paged.rows]
    days = sorted({day for dag in dags for day in dag.days})
    found = {day.worst for dag in dags for day in dag.days.values()}
    return context.page(
        "gaps.html", paged=paged, dags=dags, days=days[-MAX_COLUMNS:], counted=len(days), typed=typed, q=q.strip(),
        words=IN_WORDS, found=found, field_zone=here, shown_start=typed["start_date"] or first, has_any=bool(every), error=error,
    )  # fmt: skip


@router.get("/gaps/selected")
def selected(context: ViewerContext, cell: Annotated[list[str], Query(max_length=MAX_SELECTED)] = []) -> Response:  # noqa: B006
    """The form of a backfill for the days that were chosen; a page of links to several where they are of several DAGs."""
    chosen: dict[str, set[date]] = {}
    for text in cell:
        dag_id, _, day = text.rpartition("/")
        try:
            chosen.setdefault(dag_id, set()).add(date.fromisoformat(day))
        except ValueError:
            raise InvalidInput(f"{text!r} is not a DAG and a day, such as flights/2013-01-01") from None
    links: list[dict[str, Any]] = []
    problems: list[str] = []
    for dag_id, days in sorted(chosen.items()):
        try:
            typed_in = {"zone": known_dag(context.store, dag_id)[1].timezone} if context.chosen_zone else {}
            address = to("backfills", "new", **backfill_of_days(context.store, dag_id, days), **typed_in)
        except InvalidInput as error:
            problems.append(str(error))
        else:
            links.append({"dag_id": dag_id, "address": address, "days": sorted(days)})
    if len(links) == 1 and not problems:
        return redirect(links[0]["address"])
    return context.page("gaps_selected.html", links=links, problems=problems)


def _days(context: PageContext, dag_id: str, start: str | None, end: str | None) -> DagDays:
    versions = (*context.app.versions(READ_FROM), int(context.now.timestamp()) // TTL_S)
    key = ("ui:gap-days", dag_id, start, end)
    found: DagDays = context.app.at_versions(
        versions, key, lambda: gap_days(context.store, dag_id, start, end, context.now)
    )
    return found


def _cell(dag_id: str, at: str | None, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What the matrix shows of an interval: its first finding, all of them in words; None where there is none."""
    if not rows:
        return None
    text = "; ".join(f"{row['finding']}: {row['because']}" for row in rows)
    again = to("backfills", "new", dag=dag_id, kind="dates", dates=at, reprocess="completed")
    return {"finding": rows[0]["finding"], "text": text, "again": again}
