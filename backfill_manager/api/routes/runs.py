"""`/runs`: a run by its id, where only one DAG has it or `dag_id` tells which; and `/dags/{dag_id}/runs/{run_id}`, which is
the address that always means one run: all that is given out (`Location`, links) is of this form."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import Response

from backfill_manager.api.backfill_cache import known_backfill
from backfill_manager.api.conditional_get import Reading, ReadingOf
from backfill_manager.api.models import (
    LogView,
    MarkRun,
    Page,
    RequestView,
    RunDetails,
    RunState,
    RunTasks,
    RunType,
    RunView,
)
from backfill_manager.api.openapi import CHANGES, READS
from backfill_manager.api.paging import Cursor, Limit, Place, from_cursor, order_of, to_cursor
from backfill_manager.api.paths import Id, RunId, RunOfDag
from backfill_manager.api.responses import PREFIX, Asking, AskingOf
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRun
from backfill_manager.model.states import RUN_FINISHED
from backfill_manager.queries.paging import Order
from backfill_manager.queries.runs import find_run, run_details
from backfill_manager.queries.runs import list_runs as runs_of
from backfill_manager.queries.tasks import find_task_instance, list_log_lines, list_task_instances, list_tries
from backfill_manager.requests import command_types, validation
from backfill_manager.store.base import Store

router = APIRouter(prefix="/runs", tags=["runs"])
of_dag_router = APIRouter(prefix="/dags/{dag_id}/runs", tags=["runs"])

RunOrder = Literal["-created_at", "created_at", "-logical_date", "logical_date", "state", "-state"]
FOUND_BY: Final = ("dag_run", "dag")  # tables: a run may be named by its date, in the zone of its DAG
RUN_COLUMNS: Final = {"created_at": "run_seq", "logical_date": "logical_date", "state": "state"}
OfDag = Annotated[
    str | None, Query(max_length=200, description="Its DAG, where the id alone does not tell; then a date will do too.")
]
MOST_LINES: Final = 10_000
OnlyTask = Annotated[
    str | None, Query(min_length=1, max_length=200, description="Only this task, with a result of any size.")
]
OnlyTry = Annotated[int | None, Query(alias="try", ge=1, le=2**31, description="Only this try.")]
Behind = Annotated[
    str | None,
    Query(pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$", description="`after` of the answer before: only what is newer."),
]
Lines = Annotated[int, Query(ge=1, le=MOST_LINES)]


def address_of(dag_id: str, run_id: str) -> str:
    """Where a run is found, whatever other DAGs have."""
    return f"{PREFIX}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def page_of(
    store: Store, order_by: str, order: Order, limit: int, after: Place | None, **chosen: Any
) -> dict[str, Any]:
    place = None if after is None else after.of_row
    runs, last = runs_of(store, order=order, limit=limit, after=place, **chosen)
    return {"items": runs, "next_cursor": None if last is None else to_cursor(order_by, *last)}


@router.get("", operation_id="list_runs", response_model=Page[RunView], responses=READS)
def list_runs(
    reading: ReadingOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: RunOrder = "-created_at",
    dag_id: Annotated[str | None, Query(max_length=200)] = None,
    backfill_id: Annotated[str | None, Query(max_length=200)] = None,
    state: Annotated[list[RunState] | None, Query(max_length=10)] = None,
    run_type: RunType | None = None,
) -> Response:
    """Runs of all DAGs, newest made first."""
    order = order_of(order_by, RUN_COLUMNS, "run_seq")
    after = from_cursor(cursor, order_by, DagRun, order)

    def page() -> dict[str, Any]:
        of_backfill = None if backfill_id is None else known_backfill(reading.house, backfill_id)["backfill_id"]
        return page_of(
            reading.store, order_by, order, limit, after,
            dag_id=dag_id, backfill_id=of_backfill, in_states=tuple(state or ()), run_type=run_type,
        )  # fmt: skip

    return reading.of(("dag_run", "backfill", "request", "response"), Page[RunView], page)


@router.get("/{run_id}", operation_id="get_run", response_model=RunDetails, responses=READS)
def get_run(run_id: RunId, reading: ReadingOf, dag_id: OfDag = None) -> Response:
    """One run, with its parameters (`conf`), which lists leave out."""
    return _run(reading, run_id, dag_id)


@of_dag_router.get("/{run_id}", operation_id="get_run_of_dag", response_model=RunDetails, responses=READS)
def get_run_of_dag(dag_id: Id, run_id: RunOfDag, reading: ReadingOf) -> Response:
    """One run of this DAG, with its parameters (`conf`), which lists leave out."""
    return _run(reading, run_id, dag_id)


def _run(reading: Reading, run_id: str, dag_id: str | None) -> Response:
    return reading.of(FOUND_BY, RunDetails, lambda: run_details(find_run(reading.store, run_id, dag_id=dag_id or None)))


@router.post(
    "/{run_id}/cancel", status_code=202, operation_id="cancel_run", response_model=RequestView, responses=CHANGES
)
async def cancel(run_id: RunId, asking: AskingOf, dag_id: OfDag = None) -> Response:
    """What runs of it is stopped (its Spark jobs are cancelled); what has not begun never will."""
    return await _cancel(asking, run_id, dag_id)


@of_dag_router.post(
    "/{run_id}/cancel", status_code=202, operation_id="cancel_run_of_dag", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def cancel_of_dag(dag_id: Id, run_id: RunOfDag, asking: AskingOf) -> Response:
    """What runs of it is stopped (its Spark jobs are cancelled); what has not begun never will."""
    return await _cancel(asking, run_id, dag_id)


async def _cancel(asking: Asking, run_id: str, dag_id: str | None) -> Response:
    return await asking(
        command_types.RUN_CANCEL,
        lambda _: validation.cancelled_run(find_run(asking.store, run_id, dag_id=dag_id or None)),
    )


@router.post("/{run_id}/mark", status_code=202, operation_id="mark_run", response_model=RequestView, responses=CHANGES)
async def mark(run_id: RunId, body: MarkRun, asking: AskingOf, dag_id: OfDag = None) -> Response:
    """Set a run, or one task of it (`task_id`), to a state whatever became of it; what runs of it is stopped."""
    return await _mark(asking, body, run_id, dag_id)


@of_dag_router.post(
    "/{run_id}/mark", status_code=202, operation_id="mark_run_of_dag", response_model=RequestView, responses=CHANGES
)
async def mark_of_dag(dag_id: Id, run_id: RunOfDag, body: MarkRun, asking: AskingOf) -> Response:
    """Set a run, or one task of it (`task_id`), to a state whatever became of it; what runs of it is stopped."""
    return await _mark(asking, body, run_id, dag_id)


async def _mark(asking: Asking, body: MarkRun, run_id: str, dag_id: str | None) -> Response:
    def payload(_: str) -> dict[str, Any]:
        run = find_run(asking.store, run_id, dag_id=dag_id or None)
        if body.task_id is None:
            return validation.marked_run(run, body.state)
        return validation.marked_task(asking.store, run, body.task_id, body.state)

    return await asking(command_types.RUN_MARK if body.task_id is None else command_types.TASK_MARK, payload)


@router.get("/{run_id}/tasks", operation_id="list_tasks_of_run", response_model=RunTasks, responses=READS)
def tasks_of(run_id: RunId, reading: ReadingOf, dag_id: OfDag = None, task_id: OnlyTask = None) -> Response:
    """Its tasks as they stand, in the order in which they started, and every try that has ended. A result of more than 65,536
    characters is told of a single task only (`task_id`)."""
    return _tasks(reading, run_id, dag_id, task_id)


@of_dag_router.get("/{run_id}/tasks", operation_id="list_tasks_of_run_of_dag", response_model=RunTasks, responses=READS)
def tasks_of_run_of_dag(dag_id: Id, run_id: RunOfDag, reading: ReadingOf, task_id: OnlyTask = None) -> Response:
    """Its tasks as they stand, in the order in which they started, and every try that has ended. A result of more than 65,536
    characters is told of a single task only (`task_id`)."""
    return _tasks(reading, run_id, dag_id, task_id)


def _tasks(reading: Reading, run_id: str, dag_id: str | None, task_id: str | None) -> Response:
    def found() -> dict[str, Any]:
        run = find_run(reading.store, run_id, dag_id=dag_id or None)
        if task_id is not None:
            find_task_instance(reading.store, run, task_id)  # or it is told that there is none
        tasks, tries = list_task_instances(reading.store, run, task_id), list_tries(reading.store, run, task_id)
        return {"items": tasks, "next_cursor": None, "tries": tries}

    return reading.of((*FOUND_BY, "task_instance", "task_try"), RunTasks, found)


@router.get("/{run_id}/tasks/{task_id}/logs", operation_id="get_log", response_model=LogView, responses=READS)
def get_log(
    run_id: RunId,
    task_id: Id,
    reading: ReadingOf,
    dag_id: OfDag = None,
    try_number: OnlyTry = None,
    after: Behind = None,
    limit: Lines = MOST_LINES,
) -> Response:
    """What a task logged, oldest first. To follow it, ask again with `after` until `is_whole`."""
    return _log(reading, run_id, dag_id, task_id, try_number, after, limit)


@of_dag_router.get(
    "/{run_id}/tasks/{task_id}/logs", operation_id="get_log_of_run_of_dag", response_model=LogView, responses=READS
)
def get_log_of_run_of_dag(
    dag_id: Id,
    run_id: RunOfDag,
    task_id: Id,
    reading: ReadingOf,
    try_number: OnlyTry = None,
    after: Behind = None,
    limit: Lines = MOST_LINES,
) -> Response:
    """What a task logged, oldest first. To follow it, ask again with `after` until `is_whole`."""
    return _log(reading, run_id, dag_id, task_id, try_number, after, limit)


def _log(
    reading: Reading,
    run_id: str,
    dag_id: str | None,
    task_id: str,
    try_number: int | None,
    after: str | None,
    limit: int,
) -> Response:
    behind = _position(after)

    def found() -> dict[str, Any]:
        # A tick commits a task's end before its log, and its run's end after both: a run that has ended has its whole log.
        run = find_run(reading.store, run_id, dag_id=dag_id or None)
        state = find_task_instance(reading.store, run, task_id).state
        lines = list_log_lines(
            reading.store, run, task_id, try_number=try_number, after=behind or (0, -1), limit=limit + 1
        )
        more, lines = len(lines) > limit, lines[:limit]
        last = f"{lines[-1]['launch']}.{lines[-1]['line']}" if lines else after
        return {"state": state, "is_whole": run.state in RUN_FINISHED and not more, "lines": lines, "after": last}

    return reading.of((*FOUND_BY, "task_instance", "task_log"), LogView, found)


def _position(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    launch, _, line = after.partition(".")
    if not int(launch):
        raise InvalidInput("after: launches count from 1; use `after` as an answer gave it")
    return int(launch), int(line)
