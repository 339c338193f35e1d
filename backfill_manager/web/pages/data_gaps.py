"""*Gaps* of a DAG by data: its tables and the intervals of a range as a matrix, and each finding in words. A cell leads to the
form that does its interval again."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.clock import format_instant, from_micros
from backfill_manager.errors import InvalidInput
from backfill_manager.requests.data_gaps import gap_report
from backfill_manager.schemas.findings import IN_WORDS
from backfill_manager.web.links import PageNumber, PathId, paginate, to
from backfill_manager.web.page import PageContext, ViewerContext, message_of, page_router
from backfill_manager.web.pages.dag import dag_page

router: Final = page_router()
READ_FROM: Final = ("dag", "dag_version", "dag_run", "table_access")
TTL_S: Final = 60  # tables change without the state
MAX_COLUMNS: Final = 60  # the newest intervals of the range, side by side
PER_PAGE: Final = 100
Typed = Annotated[str, Query(max_length=100)]


@router.get("/dags/{dag_id}/gaps")
def gaps_tab(
    context: ViewerContext, dag_id: PathId, start_date: Typed = "", end_date: Typed = "", page: PageNumber = 1
) -> Response:
    typed = {"start_date": start_date.strip(), "end_date": end_date.strip()}
    try:
        report = _report(context, dag_id, typed)
    except InvalidInput as error:
        return dag_page(context, dag_id, "gaps", typed=typed, error=message_of(error))
    paged = paginate(report["rows"], page, PER_PAGE, "dags", dag_id, "gaps", **typed)
    return dag_page(context, dag_id, "gaps", typed=typed, error=None, report=report, paged=paged, words=IN_WORDS)


def _report(context: PageContext, dag_id: str, typed: dict[str, str]) -> dict[str, Any]:
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


def _cell(dag_id: str, at: str | None, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What the matrix shows of an interval: its first finding, all of them in words; None where there is none."""
    if not rows:
        return None
    text = "; ".join(f"{row['finding']}: {row['because']}" for row in rows)
    again = to("backfills", "new", dag=dag_id, kind="dates", dates=at, reprocess="completed")
    return {"finding": rows[0]["finding"], "text": text, "again": again}
