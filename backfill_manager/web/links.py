"""Addresses of pages, and links to the pages of a long list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import Query
from pydantic import AfterValidator

from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.page_paths import from_segment, path_of

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PathId = Annotated[str, AfterValidator(from_segment)]  # an id in the path of a page


def to(*segments: str, **query: Any) -> str:
    """`to("dags", dag_id, "graph", run="latest")`; parameters that are None, empty or False are left out."""
    path = path_of(*segments)
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def to_run(dag_id: str, run_id: str, *more: str, **query: Any) -> str:
    """The page of a run, or with `"tasks", task_id` of one of its tasks. Run ids are unique within their DAG only."""
    return to("dags", dag_id, "runs", run_id, *more, **query)


def to_object(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """Address and label of the object that a request (of `queries.requests`) created or changed."""
    kind, names = request["kind"], request["about"]
    if "backfill_id" in names and kind != request_kinds.BACKFILL_DRY_RUN:  # one that was planned only is nowhere
        return to("backfills", names["backfill_id"]), f"backfill {names['backfill_id']}"
    if kind == request_kinds.POOL_SET:
        return "/pools", f"pool {names.get('name')}"
    if kind == request_kinds.MANAGER_STOP:
        return "/manager", "manager"
    dag_id = names.get("dag_id")
    run_id = (
        request["object_id"] if kind in (request_kinds.DAG_TRIGGER, request_kinds.TASK_RUN) else names.get("run_id")
    )
    if dag_id is None:
        return None
    return (to_run(dag_id, run_id), str(run_id)) if run_id else (to("dags", dag_id), dag_id)


def is_local(path: str | None) -> bool:
    """Whether a form may redirect there: to a path of this server, never to another host (`//evil`, `/\\evil`)."""
    return path is not None and re.fullmatch(r"/(?![/\\])[^\x00-\x20\\]*", path) is not None


class Page(NamedTuple):
    """One page of a list: its rows, the numbers of the first and last of them, the total, and links to its neighbours."""

    rows: Sequence[Any]
    first: int
    last: int
    total: int
    before: str | None
    after: str | None


def paginate(rows: Sequence[Any], page: int, size: int, *segments: str, name: str = "page", **query: Any) -> Page:
    """The page of this number, or the last one if there are fewer. For lists that are read whole; others use a cursor
    (`queries.paging`). The links keep `query`."""
    page = max(1, min(page, -(-len(rows) // size)))
    start = (page - 1) * size
    shown = rows[start : start + size]

    def link(number: int) -> str:
        return to(*segments, **query, **{name: number if number > 1 else None})

    return Page(
        shown, start + 1 if shown else 0, start + len(shown), len(rows), link(page - 1) if page > 1 else None,
        link(page + 1) if start + size < len(rows) else None,
    )  # fmt: skip
