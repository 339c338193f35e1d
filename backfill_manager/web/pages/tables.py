"""*Tables* that tasks have read and written, and of one of them its lineage and its intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.queries import tables as queries
from backfill_manager.queries.dags import all_dags
from backfill_manager.web.links import PageNumber, paginate, to
from backfill_manager.web.page import ViewerContext, page_router
from backfill_manager.web.svg.graph import Graph, layered

router: Final = page_router()
READ_FROM: Final = ("table_access",)
PER_PAGE: Final = 100


@router.get("/tables")
def tables(context: ViewerContext, page: PageNumber = 1) -> Response:
    rows = context.app.cached_by_version(READ_FROM, "ui:tables", lambda: queries.list_tables(context.store))
    return context.page("tables.html", paged=paginate(rows, page, PER_PAGE, "tables"))


@router.get("/tables/one")
def table(
    context: ViewerContext, table: Annotated[str, Query(min_length=1, max_length=1000)], page: PageNumber = 1
) -> Response:
    def compute() -> tuple[dict[str, Any], dict[str, Any], queries.LastWrites]:
        found = queries.find_table(context.store, table)
        name = found["table"]
        return found, queries.lineage(context.store, table=name), queries.list_table_intervals(context.store, name)

    def zones_of_dags() -> dict[str, str]:
        return {dag_id: dag.timezone for dag_id, dag in all_dags(context.store).items()}

    found, lineage, intervals = context.app.cached_by_version(READ_FROM, ("ui:table", table), compute)
    return context.page(
        "table.html", table=found, drawn=_drawn(lineage["edges"]), links=_links(lineage["edges"]),
        zones=context.app.cached_by_version(["dag"], "ui:table:zones", zones_of_dags),
        paged=paginate(intervals, page, PER_PAGE, "tables", "one", table=found["table"]),
    )  # fmt: skip


def _drawn(edges: Sequence[Mapping[str, str]]) -> Graph | None:
    """Tables and tasks from left to right; None where they go in a circle (a task that reads what comes of it)."""
    upstream: dict[str, set[str]] = {}
    for edge in edges:
        before, after = (edge["table"], edge["task"]) if edge["access"] == "read" else (edge["task"], edge["table"])
        upstream.setdefault(before, set())
        upstream.setdefault(after, set()).add(before)
    try:
        return layered({node: sorted(near) for node, near in sorted(upstream.items())})
    except CycleError:
        return None


def _links(edges: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Node -> the address of its page."""
    tasks = {edge["task"]: to("dags", edge["dag_id"]) for edge in edges}
    return {**tasks, **{edge["table"]: to("tables", "one", table=edge["table"]) for edge in edges}}
