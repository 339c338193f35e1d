"""*DAGs*: what can run, how it went lately, when it runs next. Searched, filtered and put in order over all of them here;
a page shows some, and only of these the runs are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import Response

from backfill_manager.model.states import RUN_STATES
from backfill_manager.queries.backfills import check_states
from backfill_manager.queries.dags import current_dag, list_dags
from backfill_manager.queries.runs import Newest, newest_runs, recent_runs
from backfill_manager.schemas.kinds import DAG_PAUSE, DAG_UNPAUSE
from backfill_manager.web import paths
from backfill_manager.web.page import OperatorVisit, PageContext, PageContextOf, page_router
from backfill_manager.web.paging import Paged, PageNumber, cut

router: Final = page_router()
TABLES: Final = ("dag", "dag_version", "dag_run")
ON_A_PAGE: Final = 50
MOST_TAGS: Final = 30
Line = Annotated[str, Query(max_length=250)]
Show = Literal["", "unpaused", "paused", "inactive", "all"]
Sort = Literal["", "-name", "next", "last"]
SHOWN: Final[Mapping[str, str]] = {
    "": "All DAGs", "unpaused": "Not paused", "paused": "Paused", "inactive": "Not active (file gone)",
    "all": "With those not active",
}  # fmt: skip
SORTED: Final[Mapping[str, str]] = {"": "Name", "-name": "Name, Z to A", "next": "Next run", "last": "Last run"}


@router.get("/dags")
def dags(
    visit: PageContextOf, q: Line = "", tag: Line = "", show: Show = "", state: Line = "", sort: Sort = "",
    page: PageNumber = 1,
) -> Response:  # fmt: skip
    check_states("run", [state] if state else [], RUN_STATES)
    every, newest = _every_dag(visit), _newest(visit)
    known = [one for one in every if one["is_active"]]
    fitting = [
        one
        for one in every
        if _is_shown(one, show)
        and (not tag or tag in one["tags"])
        and (not state or (one["dag_id"] in newest and newest[one["dag_id"]].state == state))
        and _fits(one, q)
    ]
    chosen = {"q": q, "tag": tag, "show": show, "state": state, "sort": sort}
    paged = cut(_in_order(fitting, sort, newest), page, ON_A_PAGE, "dags", **chosen)
    tags = [name for name, _ in Counter(one for dag in known for one in dag["tags"]).most_common(MOST_TAGS)]
    return visit.page(
        "dags.html", paged=paged, known=len(known), gone=len(every) - len(known), recent=_recent(visit, newest, paged),
        tags=sorted({*tags, tag} - {""}), chosen=chosen, shown=SHOWN, sorted=SORTED, states=RUN_STATES,
        is_filtered=bool(q or tag or show or state),
    )  # fmt: skip


@router.post("/dags/{dag_id}/pause")
async def pause(visit: OperatorVisit, dag_id: str, back: Annotated[str, Form()] = "/dags") -> Response:
    return await visit.ask(DAG_PAUSE, lambda _: _active(visit, dag_id), back=back)


@router.post("/dags/{dag_id}/unpause")
async def unpause(visit: OperatorVisit, dag_id: str, back: Annotated[str, Form()] = "/dags") -> Response:
    return await visit.ask(DAG_UNPAUSE, lambda _: _active(visit, dag_id), back=back)


def _active(visit: PageContext, dag_id: str) -> dict[str, Any]:
    return {"dag_id": current_dag(visit.store, paths.from_segment(dag_id))[0].dag_id}


def _every_dag(visit: PageContext) -> list[dict[str, Any]]:
    """Of this minute: when a DAG runs next depends on the time, too."""
    minute = int(visit.now.timestamp()) // 60
    return visit.house.at_versions(
        (*visit.house.versions(TABLES), minute), "ui:dags", lambda: list_dags(visit.store, visit.now, active=None)
    )


def _newest(visit: PageContext) -> dict[str, Newest]:
    return visit.house.cached_by_version(["dag_run"], "ui:newest-runs", lambda: newest_runs(visit.store))


def _recent(visit: PageContext, newest: Mapping[str, Newest], paged: Paged) -> dict[str, list[dict[str, Any]]]:
    ids = tuple(one["dag_id"] for one in paged.rows)
    return visit.house.cached_by_version(
        ["dag_run"], ("ui:recent-runs", ids), lambda: recent_runs(visit.store, newest, ids)
    )


def _is_shown(dag: Mapping[str, Any], show: str) -> bool:
    if show in ("inactive", "all"):
        return show == "all" or not dag["is_active"]
    return dag["is_active"] and (not show or dag["is_paused"] == (show == "paused"))


def _in_order(found: Sequence[dict[str, Any]], sort: str, newest: Mapping[str, Newest]) -> list[dict[str, Any]]:
    """They come in the order of their names."""
    if sort == "-name":
        return list(reversed(found))
    if sort == "next":
        return sorted(found, key=lambda one: (one["is_paused"] or not one["next_due_at"], one["next_due_at"] or ""))
    if sort == "last":
        return sorted(found, key=lambda one: -newest[one["dag_id"]].seqs[-1] if one["dag_id"] in newest else 1)
    return list(found)


def _fits(dag: Mapping[str, Any], q: str) -> bool:
    """Every word is somewhere in what is said of it."""
    told = " ".join((dag["dag_id"], dag["description"] or "", dag["owner"] or "", *dag["tags"])).lower()
    return all(word in told for word in q.lower().split())
