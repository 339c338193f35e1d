"""*One DAG*: its versions, what differs between two of them, and their code."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.queries.versions import code_of, diff_versions, list_versions
from backfill_manager.web import paths
from backfill_manager.web.page import PageContextOf, page_router
from backfill_manager.web.pages.dag import dag_page
from backfill_manager.web.paging import PageNumber, cut

router: Final = page_router()
ON_A_PAGE: Final = 50
Number = Annotated[int | None, Query(ge=1, le=2**31)]


@router.get("/dags/{dag_id}/versions")
def versions(
    visit: PageContextOf, dag_id: str, before: Number = None, after: Number = None, page: PageNumber = 1
) -> Response:
    """Without numbers, the last change."""
    dag_id = paths.from_segment(dag_id)
    found = list_versions(visit.store, dag_id)
    numbers = [one["version"] for one in found]
    new = after or (numbers[0] if numbers else None)
    old = before or next((one for one in numbers if new is not None and one < new), None)
    diff = diff_versions(visit.store, dag_id, old, new) if old is not None and new is not None else None
    older = {one: numbers[n + 1] for n, one in enumerate(numbers[:-1])}
    rows = [{**one, "older": older.get(one["version"])} for one in found]
    paged = cut(rows, page, ON_A_PAGE, "dags", dag_id, "versions", before=before, after=after)
    return dag_page(visit, dag_id, "versions", versions=found, diff=diff, before=old, after=new, paged=paged)


@router.get("/dags/{dag_id}/code")
def code(visit: PageContextOf, dag_id: str, version: Number = None) -> Response:
    dag_id = paths.from_segment(dag_id)
    found = list_versions(visit.store, dag_id)
    current = next((one["version"] for one in found if one["is_current"]), None)
    wanted = version or current
    shown = code_of(visit.store, dag_id, wanted) if wanted is not None else None
    return dag_page(visit, dag_id, "code", versions=found, shown=shown, version=wanted)
