"""The side panel of a DAG's grid: one task instance, or one run. The page of the grid holds it when its address names them
(`run`, `task`), and `grid/panel.js` fetches it alone (`/dags/DAG/panel`), so that it is refreshed without the grid."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query
from starlette.responses import Response

from backfill_manager.model.states import RUN_LIVE
from backfill_manager.queries.dags import known_dag, spec_of_run
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.runs import run_details, run_view
from backfill_manager.queries.tasks import (
    find_task_instance,
    list_task_instances,
    log_tail,
    mapped_tasks,
    task_view,
    worst_first,
)
from backfill_manager.web.links import PathId, to
from backfill_manager.web.page import PageContext, ViewerContext, page_router

router: Final = page_router()
LOG_LINES: Final = 30
Id = Annotated[str, Query(max_length=4000)]  # a run's holds its partition key, each percent sign as `%25`


@router.get("/dags/{dag_id}/panel")
def panel(context: ViewerContext, dag_id: PathId, run: Id = "", task: Id = "") -> Response:
    """The element alone; the rest of the address is that of the grid, to which its forms return."""
    return context.page("fragments/grid_panel.html", **panel_of(context, dag_id, run, task))


def panel_of(context: PageContext, dag_id: str, run: str, task: str) -> dict[str, Any]:
    """`panel` is None when no run is named: the element is empty then. `NotFound` for a run or a task that is not there."""
    _, spec = known_dag(context.store, dag_id)
    query = [(key, value) for key, value in context.request.query_params.multi_items() if key != "request_id"]
    shared = f"?{urlencode(query)}" if query else ""
    found: dict[str, Any] = {
        "panel_of": dag_id,
        "panel": None,
        "panel_src": None,
        "grid_address": to("dags", dag_id) + shared,
        "zone": spec.timezone,
    }
    if not run:
        return found
    row = find_run(context.store, run, dag_id=dag_id)
    shown: dict[str, Any] = {"run": run_view(row), "task": None, "mapped_counts": {}}
    if task:
        instance = find_task_instance(context.store, row, task)
        lines, more = log_tail(context.store, row, task, limit=LOG_LINES)
        of_run = spec_of_run(context.store, row)
        mapped = mapped_tasks(context.store, row, of_run, task) if of_run else []
        shown |= {
            "task": task_view(instance, row), "lines": lines, "more": more,
            "mapped_counts": worst_first(Counter(one["state"] for one in mapped)),
        }  # fmt: skip
    else:
        tasks = list_task_instances(context.store, row)
        shown |= {
            "run": run_details(row), "tasks": tasks, "counts": Counter(one["state"] for one in tasks),
            "is_live": row.state in RUN_LIVE,
        }  # fmt: skip
    return {**found, "panel": shown, "panel_src": to("dags", dag_id, "panel") + shared}
