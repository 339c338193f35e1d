"""*One run*: its details, Gantt and tasks; and *one task* of it: its attempts, its growing log, and its Spark jobs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import RedirectResponse, Response, StreamingResponse

from backfill_manager.dags.definition import DagSpec
from backfill_manager.masking import mask_values
from backfill_manager.model import states
from backfill_manager.model.records import DagRun
from backfill_manager.model.stored_json import shown_column
from backfill_manager.planning.backfills.rendering import PlannedRun, render
from backfill_manager.queries.dags import spec_of_run
from backfill_manager.queries.gantt import spans_of_run
from backfill_manager.queries.managers import spark_pages
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.runs import run_details, run_view
from backfill_manager.queries.tasks import (
    find_task_instance,
    list_all_task_instances,
    list_check_results,
    list_log_lines,
    list_task_instances,
    list_tries,
    log_tail,
    mapped_tasks,
    task_ids_of,
    task_view,
    worst_first,
)
from backfill_manager.requests.checked_payloads import cancelled_run, marked_run, marked_task
from backfill_manager.schemas import request_kinds
from backfill_manager.store.base import Store
from backfill_manager.web.json_tree import json_tree
from backfill_manager.web.links import PageNumber, PathId, paginate, to_run
from backfill_manager.web.page import OperatorContext, ViewerContext, page_router, redirect
from backfill_manager.web.svg.durations import durations
from backfill_manager.web.svg.gantt import gantt

router: Final = page_router()
TASKS_PER_PAGE: Final = 200
LOG_LINES: Final = 1000  # shown at first, and fetched at once
MAX_DOWNLOAD: Final = 200_000  # lines; a try stores some ten thousand
MAX_ATTEMPTS: Final = 20  # to choose from; the newest
MAX_DURATIONS: Final = 30  # of the task's newest runs
MAX_SPARK_JOBS: Final = 5  # shown per attempt
MAX_MAPPED: Final = 100  # shown; those that failed are the first
MAX_CHECKS: Final = 100  # shown
Back = Annotated[str, Form()]
TryNumber = Annotated[int | None, Query(alias="try", ge=1, le=2**31)]


@router.get("/dags/{dag_id}/runs/{run_id}")
def run(context: ViewerContext, dag_id: PathId, run_id: PathId, page: PageNumber = 1) -> Response:
    row = find_run(context.store, run_id, dag_id=dag_id)
    if row.run_id != run_id:  # `latest`, a prefix or a date
        return redirect(to_run(row.dag_id, row.run_id))
    spec = spec_of_run(context.store, row)
    tasks = {task["task_id"]: task for task in list_task_instances(context.store, row)}
    order = [task.task_id for task in spec.in_order] if spec else []
    drawn = gantt(spans_of_run(context.store, row, spec, context.now))
    ordered = [tasks[task_id] for task_id in (*order, *sorted(set(tasks) - set(order))) if task_id in tasks]
    paged = paginate(ordered, page, TASKS_PER_PAGE, "dags", row.dag_id, "runs", row.run_id)
    shown = {task["task_id"] for task in paged.rows}
    return context.page(
        "run.html", run=run_details(row), zone=spec.timezone if spec else "UTC", drawn=drawn, paged=paged,
        bars=[bar for bar in drawn.rows if bar.task_id in shown],
        **_checks(list_check_results(context.store, row)),
    )  # fmt: skip


@router.get("/runs/{run_id}")
def run_by_id(context: ViewerContext, run_id: PathId) -> Response:
    """For an id without its DAG; if several DAGs have such a run, the error names them."""
    row = find_run(context.store, run_id)
    return redirect(to_run(row.dag_id, row.run_id))


@router.get("/runs/{dag_id}/{run_id}")
def old_run_address(context: ViewerContext, dag_id: PathId, run_id: PathId) -> Response:
    """The former address of a run, for bookmarks."""
    return RedirectResponse(to_run(dag_id, run_id), status_code=308)


@router.post("/dags/{dag_id}/runs/{run_id}/cancel")
async def cancel(context: OperatorContext, dag_id: PathId, run_id: PathId, back: Back = "") -> Response:
    def payload(_: str) -> dict[str, Any]:
        return cancelled_run(find_run(context.store, run_id, dag_id=dag_id))

    return await context.submit(request_kinds.RUN_CANCEL, payload, back=back or to_run(dag_id, run_id))


@router.post("/dags/{dag_id}/runs/{run_id}/mark")
async def mark(
    context: OperatorContext, dag_id: PathId, run_id: PathId, state: Annotated[Literal["success", "failed"], Form()],
    back: Back = "",
) -> Response:  # fmt: skip
    def payload(_: str) -> dict[str, Any]:
        return marked_run(find_run(context.store, run_id, dag_id=dag_id), state)

    return await context.submit(request_kinds.RUN_MARK, payload, back=back or to_run(dag_id, run_id))


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}")
def task(
    context: ViewerContext, dag_id: PathId, run_id: PathId, task_id: PathId, number: TryNumber = None, all: bool = False
) -> Response:
    row = find_run(context.store, run_id, dag_id=dag_id)
    instance = find_task_instance(context.store, row, task_id)
    if row.run_id != run_id:
        return redirect(to_run(row.dag_id, row.run_id, "tasks", task_id))
    spec = spec_of_run(context.store, row)
    lines, more = log_tail(context.store, row, task_id, try_number=number, limit=LOG_LINES * (20 if all else 1))
    lease, tries = context.store.lease(), list_tries(context.store, row, task_id)
    newest = list_all_task_instances(context.store, dag_id=row.dag_id, task_id=task_id, limit=MAX_DURATIONS).items
    attempts = max([instance.try_number, *(one["try_number"] for one in tries)])
    shown = task_view(instance, row)
    mapped = mapped_tasks(context.store, row, spec, task_id) if spec else []
    with_stages = [one for one in tries if one["spark_stages"] and number in (None, one["try_number"])]
    return context.page(
        "task.html", mapped=mapped[:MAX_MAPPED], mapped_counts=worst_first(Counter(one["state"] for one in mapped)),
        staged=with_stages[-1] if with_stages else None, run=run_view(row), task=shown,
        result=json_tree(mask_values(shown["result"])), number=number,
        rendered=_sql_of(row, spec, task_id), zone=spec.timezone if spec else "UTC", tries=tries, attempts=attempts,
        max_attempts=MAX_ATTEMPTS, all=all, lasted=durations(newest, context.now),
        spec=spec.by_id.get(task_id) if spec else None, in_run=task_ids_of(context.store, row),
        lines=lines, more=more, position=_position(lines),
        is_live=instance.state not in states.TASK_FINISHED | {states.NONE}, lease=lease,
        spark=spark_pages(lease, context.now), max_jobs=MAX_SPARK_JOBS, launch=instance.launch,
        **_checks(list_check_results(context.store, row, task_id)),
    )  # fmt: skip


@router.get("/runs/{dag_id}/{run_id}/{task_id}")
def old_task_address(context: ViewerContext, dag_id: PathId, run_id: PathId, task_id: PathId) -> Response:
    """The former address of a task of a run."""
    query = context.request.url.query
    return RedirectResponse(to_run(dag_id, run_id, "tasks", task_id) + (f"?{query}" if query else ""), status_code=308)


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log")
def log(
    context: ViewerContext, dag_id: PathId, run_id: PathId, task_id: PathId,
    after: Annotated[str, Query(pattern=r"^\d{1,9}\.-?\d{1,9}$")] = "0.-1", number: TryNumber = None,
) -> Response:  # fmt: skip
    """The lines after the position `after` (`launch.line`), with the position of the last one in `X-Log-Position`, for
    `log.js`."""
    launch, line = map(int, after.split("."))
    row = find_run(context.store, run_id, dag_id=dag_id)
    lines = list_log_lines(context.store, row, task_id, try_number=number, after=(launch, line), limit=LOG_LINES)
    spec = spec_of_run(context.store, row)
    response = context.page(
        "fragments/log_lines.html", lines=lines, before=launch or None, zone=spec.timezone if spec else "UTC"
    )
    response.headers["X-Log-Position"] = _position(lines) if lines else after
    return response


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log.txt")
def download_log(
    context: ViewerContext, dag_id: PathId, run_id: PathId, task_id: PathId, number: TryNumber = None
) -> Response:
    """The log as a text file; read, and sent, in pieces."""
    row = find_run(context.store, run_id, dag_id=dag_id)
    find_task_instance(context.store, row, task_id)  # raises when there is none
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{row.dag_id}-{row.run_id}-{task_id}")[:150]
    suffix = f"-try-{number}" if number else ""
    return StreamingResponse(
        _log_as_text(context.store, row, task_id, number), media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}{suffix}.log"', "Cache-Control": "no-store"},
    )  # fmt: skip


def _log_as_text(store: Store, run: DagRun, task_id: str, number: int | None) -> Iterator[str]:
    after, sent, attempt = (0, -1), 0, 0
    while lines := list_log_lines(store, run, task_id, try_number=number, after=after, limit=LOG_LINES):
        text = []
        for line in lines:
            if line["launch"] != attempt:
                attempt = line["launch"]
                text.append(f"--- attempt {line['try_number']}, start {attempt} ---\n")
            text.append(f"{line['at']} {line['level']:<8} {line['message']}\n")
        yield "".join(text)
        after, sent = (attempt, lines[-1]["line"]), sent + len(lines)
        if sent >= MAX_DOWNLOAD:
            yield f"--- cut after {sent:,} lines; download single attempts ---\n"
            return


@router.post("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/mark")
async def mark_task(
    context: OperatorContext, dag_id: PathId, run_id: PathId, task_id: PathId,
    state: Annotated[Literal["success", "failed", "skipped"], Form()], back: Back = "/dags",
) -> Response:  # fmt: skip
    def payload(_: str) -> dict[str, Any]:
        return marked_task(context.store, find_run(context.store, run_id, dag_id=dag_id), task_id, state)

    return await context.submit(request_kinds.TASK_MARK, payload, back=back)


def _checks(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest ones, those that passed last, and how many there are of each outcome."""
    first = sorted(results, key=lambda one: (one["outcome"] == "passed", -one["launch"]))
    newest = {one["task_id"]: one["launch"] for one in results}  # they come in the order of their starts
    warned = {
        one["task_id"] for one in results if one["outcome"] == "warned" and one["launch"] == newest[one["task_id"]]
    }
    counts = Counter(one["outcome"] for one in results)
    return {"checks": first[:MAX_CHECKS], "check_counts": counts, "with_warning": warned}


def _sql_of(run: DagRun, spec: DagSpec | None, task_id: str) -> dict[str, Any] | None:
    """What a SQL task of this run sees, by the version that the run has; None of other tasks."""
    if spec is None or task_id not in spec.by_id or spec.by_id[task_id].kind != "sql":
        return None
    interval = (run.interval_start, run.interval_end) if run.interval_start and run.interval_end else None
    planned = PlannedRun(run.run_id, interval, run.partition_key, shown_column(run, "conf_json") or {})
    return render(spec, planned, [task_id])


def _position(lines: list[dict[str, Any]]) -> str:
    return f"{lines[-1]['launch']}.{lines[-1]['line']}" if lines else "0.-1"
