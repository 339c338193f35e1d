"""*DAGs*: what can run, how it went lately, when it runs next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Form
from starlette.responses import Response

from backfill_manager.requests.kinds import DAG_PAUSE, DAG_UNPAUSE
from backfill_manager.ui import paths
from backfill_manager.ui.site import OperatorVisit, Visit, VisitOf, page_router
from backfill_manager.views.dags import current_dag, list_dags
from backfill_manager.views.recent_runs import recent_runs

router: Final = page_router()
TABLES: Final = ("dag", "dag_version", "dag_run")


@router.get("/dags")
def dags(visit: VisitOf, q: str = "", tag: str = "") -> Response:
    known, recent = known_dags(visit), recent_of(visit)
    shown = [one for one in known if (not tag or tag in one["tags"]) and _fits(one, q)]
    tags = sorted({one for dag in known for one in dag["tags"]})
    return visit.page("dags.html", dags=shown, known=len(known), recent=recent, q=q, tag=tag, tags=tags)


@router.post("/dags/{dag_id}/pause")
async def pause(visit: OperatorVisit, dag_id: str, back: Annotated[str, Form()] = "/dags") -> Response:
    return await visit.ask(DAG_PAUSE, lambda _: _active(visit, dag_id), back=back)


@router.post("/dags/{dag_id}/unpause")
async def unpause(visit: OperatorVisit, dag_id: str, back: Annotated[str, Form()] = "/dags") -> Response:
    return await visit.ask(DAG_UNPAUSE, lambda _: _active(visit, dag_id), back=back)


def _active(visit: Visit, dag_id: str) -> dict[str, Any]:
    return {"dag_id": current_dag(visit.store, paths.from_segment(dag_id))[0].dag_id}


def known_dags(visit: Visit) -> list[dict[str, Any]]:
    """Of this minute: when a DAG runs next depends on the time, too."""
    minute = int(visit.now.timestamp()) // 60
    return visit.house.at_versions(
        (*visit.house.versions(TABLES), minute), "ui:dags", lambda: list_dags(visit.store, visit.now)
    )


def recent_of(visit: Visit) -> dict[str, list[dict[str, Any]]]:
    return visit.house.once_per_version(["dag_run"], "ui:recent-runs", lambda: recent_runs(visit.store))


def _fits(dag: Mapping[str, Any], q: str) -> bool:
    """Every word is somewhere in what is said of it."""
    told = " ".join((dag["dag_id"], dag["description"] or "", dag["owner"] or "", *dag["tags"])).lower()
    return all(word in told for word in q.lower().split())
