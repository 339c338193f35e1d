"""*DAGs*: schedule, next run and recent runs of each; and *Import errors*.

Search, filters and sort order apply to all DAGs; runs are read only for the DAGs on the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import JSONResponse, Response

from backfill_manager.model.states import RUN_STATES
from backfill_manager.queries.backfills import check_states
from backfill_manager.queries.dags import all_dags, current_dag, list_dags, list_import_errors
from backfill_manager.queries.runs import Newest, newest_runs, recent_runs
from backfill_manager.schemas.request_kinds import DAG_PAUSE, DAG_UNPAUSE
from backfill_manager.store.base import Store
from backfill_manager.web.links import PageNumber, PathId, paginate, to
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router

router: Final = page_router()
TABLES: Final = ("dag", "dag_version", "dag_run", "import_error")
DAGS_PER_PAGE: Final = 50
ERRORS_PER_PAGE: Final = 50
MAX_TAGS: Final = 30
MAX_OWNERS: Final = 200
Back = Annotated[str, Form()]
Text = Annotated[str, Query(max_length=250)]
Show = Literal["", "favourites", "unpaused", "paused", "inactive", "all"]
Sort = Literal["", "-name", "next", "last"]
SHOW_OPTIONS: Final[Mapping[str, str]] = {
    "": "Active DAGs", "favourites": "Favourites", "unpaused": "Not paused", "paused": "Paused",
    "inactive": "Inactive (file removed)", "all": "Active and inactive",
}  # fmt: skip
SORT_OPTIONS: Final[Mapping[str, str]] = {"": "Name", "-name": "Name, Z to A", "next": "Next run", "last": "Last run"}


@router.get("/dags")
def dags(
    context: ViewerContext, q: Text = "", tag: Text = "", owner: Text = "", show: Show = "", state: Text = "",
    sort: Sort = "", page: PageNumber = 1,
) -> Response:  # fmt: skip
    check_states("run", [state] if state else [], RUN_STATES)
    app, store = context.app, context.store
    versions = (*app.versions(TABLES), int(context.now.timestamp()) // 60)  # the next run depends on the time, too
    every = app.at_versions(versions, "ui:dags", lambda: list_dags(store, context.now, active=None))
    newest = app.cached_by_version(["dag_run"], "ui:newest-runs", lambda: newest_runs(store))
    active = [dag for dag in every if dag["is_active"]]
    favourites = context.favourites
    matching = [
        dag for dag in every
        if _is_shown(dag, show, favourites) and tag in ("", *dag["tags"]) and owner in ("", dag["owner"]) and _matches(dag, q)
    ]  # fmt: skip
    if state:
        matching = [dag for dag in matching if dag["dag_id"] in newest and newest[dag["dag_id"]].state == state]
    chosen = {"q": q, "tag": tag, "owner": owner, "show": show, "state": state, "sort": sort}
    paged = paginate(_sorted(matching, sort, newest, favourites), page, DAGS_PER_PAGE, "dags", **chosen)
    ids = tuple(dag["dag_id"] for dag in paged.rows)
    recent = app.cached_by_version(["dag_run"], ("ui:recent-runs", ids), lambda: recent_runs(store, newest, ids))
    tags = [name for name, _ in Counter(tag for dag in active for tag in dag["tags"]).most_common(MAX_TAGS)]
    owners = [name for name, _ in Counter(dag["owner"] or "" for dag in active).most_common(MAX_OWNERS)]
    return context.page(
        "dags.html", paged=paged, active=len(active), inactive=len(every) - len(active), recent=recent,
        tags=sorted({*tags, tag} - {""}), owners=sorted({*owners, owner} - {""}), favourites=favourites, chosen=chosen,
        show_options=SHOW_OPTIONS, sort_options=SORT_OPTIONS,
        states=RUN_STATES, is_filtered=bool(q or tag or owner or show or state),
    )  # fmt: skip


@router.get("/fragments/palette")
def palette(context: ViewerContext) -> Response:
    """Active DAGs and their addresses, for the command palette (`keys.js`)."""
    found = context.app.cached_by_version(["dag"], "ui:palette", lambda: _names(context.store))
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


def _names(store: Store) -> list[tuple[str, str]]:
    return [(dag_id, to("dags", dag_id)) for dag_id, dag in all_dags(store).items() if dag.is_active]


@router.get("/import-errors")
def import_errors(context: ViewerContext, page: PageNumber = 1) -> Response:
    paged = paginate(list_import_errors(context.store), page, ERRORS_PER_PAGE, "import-errors")
    return context.page("import_errors.html", paged=paged)


@router.post("/dags/{dag_id}/pause")
async def pause(context: OperatorContext, dag_id: PathId, back: Back = "/dags") -> Response:
    return await _submit(context, DAG_PAUSE, dag_id, back)


@router.post("/dags/{dag_id}/unpause")
async def unpause(context: OperatorContext, dag_id: PathId, back: Back = "/dags") -> Response:
    return await _submit(context, DAG_UNPAUSE, dag_id, back)


async def _submit(context: PageContext, kind: str, dag_id: str, back: str) -> Response:
    return await context.submit(kind, lambda _: {"dag_id": current_dag(context.store, dag_id)[0].dag_id}, back=back)


def _is_shown(dag: Mapping[str, Any], show: str, favourites: Collection[str]) -> bool:
    if show == "favourites":
        return dag["dag_id"] in favourites
    if show in ("inactive", "all"):
        return show == "all" or not dag["is_active"]
    return dag["is_active"] and (not show or dag["is_paused"] == (show == "paused"))


def _sorted(
    dags: Sequence[dict[str, Any]], sort: str, newest: Mapping[str, Newest], favourites: Collection[str]
) -> list[dict[str, Any]]:
    """`dags` come ordered by name; in that order favourites are first."""
    if sort == "-name":
        return list(reversed(dags))
    if sort == "next":
        return sorted(dags, key=lambda dag: (dag["is_paused"] or not dag["next_due_at"], dag["next_due_at"] or ""))
    if sort == "last":
        return sorted(dags, key=lambda dag: -newest[dag["dag_id"]].seqs[-1] if dag["dag_id"] in newest else 1)
    return sorted(dags, key=lambda dag: dag["dag_id"] not in favourites)


def _matches(dag: Mapping[str, Any], q: str) -> bool:
    """Whether every word of `q` occurs in the DAG's id, description, owner or tags."""
    text = " ".join((dag["dag_id"], dag["description"] or "", dag["owner"] or "", *dag["tags"])).lower()
    return all(word in text for word in q.lower().split())
