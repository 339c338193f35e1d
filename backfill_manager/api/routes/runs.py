"""`/runs`: a run by its id, where only one DAG has it or `dag_id` names the DAG; and `/dags/{dag_id}/runs/{run_id}`, the
address that always means one run: links and `Location` headers have this form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from backfill_manager.api.backfill_cache import known_backfill
from backfill_manager.api.bodies import MarkRun, Note, Revert
from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import CHANGE, PREFIX, reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import IN_STATES, Id, OfDag, OfType, RunId, RunIdOfDag, RunState
from backfill_manager.api.submit import ApiSubmit, Payload, submits
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRun
from backfill_manager.model.states import RUN_FINISHED
from backfill_manager.queries import runs as queries
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.tasks import (
    find_task_instance,
    list_check_results,
    list_log_lines,
    list_task_instances,
    list_tries,
)
from backfill_manager.requests import checked_payloads
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas import resources as r
from backfill_manager.store.base import Store

router = APIRouter(prefix="/runs", tags=["runs"])
of_dag_router = APIRouter(prefix="/dags/{dag_id}/runs", tags=["runs"])

RunPaging = Annotated[
    Paging, paged("-created_at", "created_at", "-logical_date", "logical_date", "state", "-state", limit=50)
]
RUN_TABLES: Final = ("dag_run", "dag")  # a run may be named by its date, in the zone of its DAG
MAX_LOG_LINES: Final = 10_000
InDag = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        description="Id of the DAG, if the id of the run is ambiguous. The run may then also be given by its date.",
    ),
]
TaskId = Annotated[
    str | None,
    Query(min_length=1, max_length=200, description="Only this task. Its result is included, whatever its size."),
]
TryNumber = Annotated[int | None, Query(alias="try", ge=1, le=2**31, description="Only this try.")]
After = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$", description="`after` of the last response. Only newer lines are returned."
    ),
]


def _by_id(request: Request, run_id: RunId, dag_id: InDag = None) -> None:
    request.state.run_of = lambda store: find_run(store, run_id, dag_id=dag_id)


def _of_dag(request: Request, dag_id: Id, run_id: RunIdOfDag) -> None:
    request.state.run_of = lambda store: find_run(store, run_id, dag_id=dag_id)


def _run_of(request: Request) -> Any:
    # FastAPI solves all dependencies before it reports the invalid parameters of one.
    return getattr(request.state, "run_of", None)


# Each handler below has two addresses; the dependency of a route reads from its address which run it is about.
BY_ID: Final = [Depends(_by_id)]
OF_DAG: Final = [Depends(_of_dag)]
RunOf = Annotated[Callable[[Store], DagRun], Depends(_run_of)]


def address_of(dag_id: str, run_id: str) -> str:
    """The address of a run that no other run has."""
    return f"{PREFIX}/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def page_of_runs(reader: Reader, paging: Paging, **filters: Any) -> dict[str, Any]:
    order = paging.order("run_seq", created_at="run_seq")
    after = paging.after(DagRun, order)
    return paging.page(*queries.list_runs(reader.store, order=order, limit=paging.limit, after=after, **filters))


@router.get("", operation_id="list_runs", **reads(r.Page[r.Run]))
@read_from("dag_run", "backfill", "request", "response")
def list_runs(
    reader: Reader, paging: RunPaging, dag_id: OfDag = None,
    backfill_id: Annotated[str | None, Query(max_length=200, description="Only runs of this backfill.")] = None,
    state: Annotated[list[RunState] | None, IN_STATES] = None, run_type: OfType = None,
) -> Any:  # fmt: skip
    """Returns the runs of all DAGs, newest first."""
    known = None if backfill_id is None else known_backfill(reader.context, backfill_id)["backfill_id"]
    return page_of_runs(reader, paging, dag_id=dag_id, backfill_id=known, in_states=state or (), run_type=run_type)


@router.get("/{run_id}", operation_id="get_run", dependencies=BY_ID, **reads(r.RunDetails))
@of_dag_router.get("/{run_id}", operation_id="get_run_of_dag", dependencies=OF_DAG, **reads(r.RunDetails))
@read_from(*RUN_TABLES)
def get_run(run_of: RunOf, reader: Reader) -> Any:
    """Returns a run with its parameters (`conf`), which lists leave out."""
    return queries.run_details(run_of(reader.store))


@router.post("/{run_id}/cancel", operation_id="cancel_run", dependencies=BY_ID, **CHANGE)
@of_dag_router.post("/{run_id}/cancel", operation_id="cancel_run_of_dag", dependencies=OF_DAG, **CHANGE)
@submits(request_kinds.RUN_CANCEL)
def cancel(run_of: RunOf, submitter: ApiSubmit) -> Payload:
    """Cancels a run. Running tasks and their Spark jobs are stopped; other tasks never start."""
    return checked_payloads.cancelled_run(run_of(submitter.store))


@router.post("/{run_id}/mark", operation_id="mark_run", dependencies=BY_ID, **CHANGE)
@of_dag_router.post("/{run_id}/mark", operation_id="mark_run_of_dag", dependencies=OF_DAG, **CHANGE)
async def mark(run_of: RunOf, body: MarkRun, submitter: ApiSubmit) -> Response:
    """Sets a run, or one of its tasks (`task_id`), to a state, whatever its current state. Running tasks are stopped."""

    def payload(_: str) -> Payload:
        run = run_of(submitter.store)
        if body.task_id is None:
            return checked_payloads.marked_run(run, body.state)
        return checked_payloads.marked_task(submitter.store, run, body.task_id, body.state)

    return await submitter(request_kinds.RUN_MARK if body.task_id is None else request_kinds.TASK_MARK, payload)


@router.post("/{run_id}/revert", operation_id="revert_run", dependencies=BY_ID, **CHANGE)
@of_dag_router.post("/{run_id}/revert", operation_id="revert_run_of_dag", dependencies=OF_DAG, **CHANGE)
@submits(request_kinds.RUN_REVERT)
def revert(run_of: RunOf, submitter: ApiSubmit, body: Revert | None = None) -> Payload:
    """Reverts a run: restores the intervals that it has written to what they were before, in all its tables. `result` of the
    request lists the intervals, and the runs that have read them since (`read_by`)."""
    return checked_payloads.reverted_run(run_of(submitter.store), dry_run=(body or Revert()).dry_run)


@router.patch("/{run_id}/note", operation_id="note_run", dependencies=BY_ID, **CHANGE)
@of_dag_router.patch("/{run_id}/note", operation_id="note_run_of_dag", dependencies=OF_DAG, **CHANGE)
@submits(request_kinds.RUN_NOTE)
def note(run_of: RunOf, body: Note, submitter: ApiSubmit) -> Payload:
    """Sets the note of a run in any state. It replaces the existing note; an empty `text` removes it. With `was`, a note that
    somebody else has written in the meantime is not overwritten."""
    return checked_payloads.noted_run(run_of(submitter.store), body.text, body.was)


@router.get("/{run_id}/tasks", operation_id="list_tasks_of_run", dependencies=BY_ID, **reads(r.RunTasks))
@of_dag_router.get("/{run_id}/tasks", operation_id="list_tasks_of_run_of_dag", dependencies=OF_DAG, **reads(r.RunTasks))
@read_from(*RUN_TABLES, "task_instance", "task_try")
def list_tasks(run_of: RunOf, reader: Reader, task_id: TaskId = None) -> Any:
    """Returns the task instances of a run, in the order in which they started, and all finished tries. Results of more than
    65,536 characters are included for a single task only (`task_id`)."""
    run = run_of(reader.store)
    if task_id is not None:
        find_task_instance(reader.store, run, task_id)  # raises when there is none
    tasks, tries = list_task_instances(reader.store, run, task_id), list_tries(reader.store, run, task_id)
    return {"items": tasks, "next_cursor": None, "tries": tries}


@router.get("/{run_id}/checks", operation_id="list_checks_of_run", dependencies=BY_ID, **reads(r.Page[r.CheckResult]))
@of_dag_router.get(
    "/{run_id}/checks", operation_id="list_checks_of_run_of_dag", dependencies=OF_DAG, **reads(r.Page[r.CheckResult])
)
@read_from(*RUN_TABLES, "task_instance", "check_result")
def list_checks(
    run_of: RunOf, reader: Reader,
    task_id: Annotated[str | None, Query(min_length=1, max_length=200, description="Only checks of this task.")] = None,
) -> Any:  # fmt: skip
    """Returns the results of the checks of a run, by task and try, on one page. Checks apply to rows that a task is about to
    publish."""
    run = run_of(reader.store)
    if task_id is not None:
        find_task_instance(reader.store, run, task_id)
    return {"items": list_check_results(reader.store, run, task_id), "next_cursor": None}


@router.get("/{run_id}/tasks/{task_id}/logs", operation_id="get_log", dependencies=BY_ID, **reads(r.Log))
@of_dag_router.get(
    "/{run_id}/tasks/{task_id}/logs", operation_id="get_log_of_run_of_dag", dependencies=OF_DAG, **reads(r.Log)
)
@read_from(*RUN_TABLES, "task_instance", "task_log")
def get_log(
    run_of: RunOf, task_id: Id, reader: Reader, try_number: TryNumber = None, after: After = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LOG_LINES, description="Maximum number of lines.")] = MAX_LOG_LINES,
) -> Any:  # fmt: skip
    """Returns the log of a task, oldest line first. To follow the log, repeat the request with `after` until `is_whole`."""
    launch, line = (int(part) for part in after.split(".")) if after else (0, -1)
    if after and not launch:
        raise InvalidInput("after: launches count from 1; use `after` of the last response")
    # A tick commits a task's end before its log, and its run's end after both: an ended run has its whole log.
    run = run_of(reader.store)
    state = find_task_instance(reader.store, run, task_id).state
    lines = list_log_lines(reader.store, run, task_id, try_number=try_number, after=(launch, line), limit=limit + 1)
    more, lines = len(lines) > limit, lines[:limit]
    last = f"{lines[-1]['launch']}.{lines[-1]['line']}" if lines else after
    return {"state": state, "is_whole": run.state in RUN_FINISHED and not more, "lines": lines, "after": last}
