"""`bfm tasks run`: one task by hand, by the manager that leads or by one of this process, and how it ended."""

from __future__ import annotations

from typing import Final

from backfill_manager.cli.commands.tasks import print_log
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.response import answered
from backfill_manager.clock import format_instant
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, Request, Response
from backfill_manager.queries.dags import current_dag
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.queries.runs import run_view
from backfill_manager.queries.tasks import find_task_instance, task_view
from backfill_manager.requests import submit
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import REFUSED, TASK_RUN
from backfill_manager.store.base import Condition

PATIENCE_S: Final = 60.0


def run_one_task(call: CliContext, dag_id: str, task_id: str, logical_date: str) -> int:
    call.needs_tables(
        f"have it run again in a run that there is: `bfm tasks clear {dag_id} --run RUN -t '^{task_id}$'`"
    )
    _, spec = current_dag(call.store, dag_id)
    ids = [task.task_id for task in spec.work]
    if task_id not in ids:
        why = " is a callback and tells how something ended" if spec.is_callback(task_id) else ""
        hint = f"; {task_id}{why}: clear it to have it told again." if why else f"; it has {', '.join(ids)}."
        raise NotFound(f"task of {dag_id!r}", task_id, () if why else ids, hint=hint)
    at = parse_date(logical_date, spec.timezone, name="T")
    payload = {"dag_id": dag_id, "task_id": task_id, "logical_date": format_instant(at)}
    is_led = has_active_manager(call.store, call.clock.now())
    request = submit.submit(call.store, call.clock, TASK_RUN, payload)
    answer = answered(call, request, PATIENCE_S) if is_led else _answered_here(call, request)
    if answer is None:
        raise BackfillManagerError(
            f"The manager has not begun it within {PATIENCE_S:g} s; it goes on: `bfm requests show {request.request_id}`."
        )
    run = _run_of(call, dag_id, answer)
    if call.out.is_table:
        call.out.remark(f"{task_id} of {dag_id} runs as {run.run_id}.")
    lines, state = print_log(call, run_view(run), task_id, follow=is_led)
    told = task_view(find_task_instance(call.store, run, task_id))
    why = f": {told['error']}" if told["error"] else ""
    call.out.told({**told, "logs": lines}, f"{task_id} of {dag_id} for {format_instant(at)}: {state}{why}")
    return 0 if state in (states.SUCCESS, states.SKIPPED) else 1


def _answered_here(call: CliContext, request: Request) -> Response:
    """By a manager of this process, which stays until nothing is left to do."""
    from backfill_manager.manager.manager import run_manager

    if call.out.is_table:
        call.out.remark("No manager is leading: one is started here, which starts Spark and takes some seconds.")
    run_manager(call.settings, state=call.settings.state, until_idle=True)
    answer = submit.response_to(call.store, request.request_id)
    if answer is None:
        raise BackfillManagerError(
            f"The manager ended without an answer; see `bfm requests show {request.request_id}`."
        )
    if answer.outcome == REFUSED:
        raise refusal(answer)
    return answer


def _run_of(call: CliContext, dag_id: str, answer: Response) -> DagRun:
    where = [Condition("dag_id", "=", dag_id), Condition("run_id", "=", answer.object_id)]
    found = call.store.read(DagRun, where, limit=1)
    if not found:
        raise NotFound(
            f"run of DAG {dag_id!r} with the id", str(answer.object_id), hint=f"; the manager said: {answer.message}"
        )
    return found[0]
