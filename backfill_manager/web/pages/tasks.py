"""*One task* of a run: its tries, its log as it grows, and where Spark shows its work."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import RedirectResponse, Response

from backfill_manager.model import states
from backfill_manager.queries.dags import spec_of_run
from backfill_manager.queries.managers import spark_pages
from backfill_manager.queries.runs import run_view
from backfill_manager.queries.tasks import find_task_instance, list_log_lines, list_tries, log_tail, task_view
from backfill_manager.requests.validation import marked_task
from backfill_manager.schemas.kinds import TASK_MARK
from backfill_manager.web import paths
from backfill_manager.web.page import OperatorVisit, PageContextOf, page_router, redirect
from backfill_manager.web.pages.runs import run_of

router: Final = page_router()
LINES: Final = 1000  # of a log that are shown at first; and fetched at once
SPARK_JOBS: Final = 5  # of a try that are shown
Try = Annotated[int | None, Query(alias="try", ge=1, le=2**31)]


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}")
def task(
    visit: PageContextOf, dag_id: str, run_id: str, task_id: str, number: Try = None, all: bool = False
) -> Response:
    row, task_id = run_of(visit, dag_id, run_id), paths.from_segment(task_id)
    instance = find_task_instance(visit.store, row, task_id)
    if row.run_id != paths.from_segment(run_id):
        return redirect(paths.to_run(row.dag_id, row.run_id, "tasks", task_id))
    spec = spec_of_run(visit.store, row)
    lines, more = log_tail(visit.store, row, task_id, try_number=number, limit=LINES * (20 if all else 1))
    lease = visit.store.lease()
    return visit.page(
        "task.html", run=run_view(row), task=task_view(instance), zone=spec.timezone if spec else "UTC", number=number,
        tries=list_tries(visit.store, row, task_id), spec=spec.by_id.get(task_id) if spec else None, lines=lines,
        more=more, place=_place(lines), is_live=instance.state not in states.TASK_FINISHED | {states.NONE},
        lease=lease, spark=spark_pages(lease, visit.now), most_jobs=SPARK_JOBS, launch=instance.launch,
    )  # fmt: skip


@router.get("/runs/{dag_id}/{run_id}/{task_id}")
def old_address(visit: PageContextOf, dag_id: str, run_id: str, task_id: str) -> Response:
    """The address that a task of a run had before."""
    named = (paths.from_segment(one) for one in (dag_id, run_id))
    there = paths.to_run(*named, "tasks", paths.from_segment(task_id), **visit.request.query_params)
    return RedirectResponse(there, status_code=308)


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log")
def log(
    visit: PageContextOf,
    dag_id: str,
    run_id: str,
    task_id: str,
    after: Annotated[str, Query(pattern=r"^\d{1,9}\.-?\d{1,9}$")] = "0.-1",
    number: Try = None,
) -> Response:
    """The lines after a place (`launch.line`), and in `X-Log-Place` the place of the last one: what `log.js` follows by."""
    launch, _, line = after.partition(".")
    row, task_id = run_of(visit, dag_id, run_id), paths.from_segment(task_id)
    found = list_log_lines(
        visit.store, row, task_id, try_number=number, after=(int(launch), int(line)), limit=LINES
    )  # fmt: skip
    answer = visit.page("fragments/log_lines.html", lines=found, before=int(launch) or None)
    answer.headers["X-Log-Place"] = _place(found) if found else after
    return answer


@router.post("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/mark")
async def mark(
    visit: OperatorVisit,
    dag_id: str,
    run_id: str,
    task_id: str,
    state: Annotated[Literal["success", "failed", "skipped"], Form()],
    back: Annotated[str, Form()] = "/dags",
) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return marked_task(visit.store, run_of(visit, dag_id, run_id), paths.from_segment(task_id), state)

    return await visit.ask(TASK_MARK, payload, back=back)


def _place(lines: list[dict[str, Any]]) -> str:
    return f"{lines[-1]['launch']}.{lines[-1]['line']}" if lines else "0.-1"
