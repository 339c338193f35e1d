"""*One DAG*: the forms that trigger a run and clear tasks. A clear is previewed first: the preview is an address with the form's
values, and shows the plan that the manager will make."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager.errors import InvalidInput, NotFound
from backfill_manager.planning.clear_plan import plan_clear
from backfill_manager.queries.dags import all_dags, current_dag, spec_reader
from backfill_manager.requests.json_input import parse_conf
from backfill_manager.requests.validation import triggered_dag, with_whole_run_ids
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.kinds import DAG_TRIGGER, TASKS_CLEAR
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, message_of, page_router
from backfill_manager.web.pages.dag import dag_page

router: Final = page_router()
RUNS_SHOWN: Final = 100  # of a preview
Line = Annotated[str, Field(max_length=500)]


class TriggerForm(BaseModel):
    logical_date: Line = ""
    conf: Annotated[str, Field(max_length=100_000)] = ""
    allow_future: bool = False


class ClearForm(BaseModel):
    start: Line = ""
    end: Line = ""
    tasks: Line = ""
    run: Annotated[str, Field(max_length=4000)] = ""
    upstream: bool = False
    downstream: bool = False
    only: Literal["", "failed", "running"] = ""
    latest_version: bool = False

    def command(self, dag_id: str) -> ClearTasks:
        run, start, end, tasks = (text.strip() for text in (self.run, self.start, self.end, self.tasks))
        command = ClearTasks.parse(
            {
                "dag_id": dag_id, "start_date": start or None, "end_date": end or None, "tasks": tasks or None,
                "run_ids": (run,) if run else (), "upstream": self.upstream, "downstream": self.downstream,
                "only_failed": self.only == "failed", "only_running": self.only == "running",
                "latest_version": self.latest_version,
            }
        )  # fmt: skip
        command.check()
        return command


class ClearQuery(ClearForm):
    preview: bool = False


# -- trigger ----------------------------------------------------------------------------------------------------------


@router.get("/dags/{dag_id}/trigger")
def trigger_form(context: ViewerContext, dag_id: str) -> Response:
    dag_id = links.from_segment(dag_id)
    current_dag(context.store, dag_id)  # an inactive DAG can't be triggered
    return dag_page(context, dag_id, "trigger", error=None, form=TriggerForm())


@router.post("/dags/{dag_id}/trigger")
async def trigger(context: OperatorContext, dag_id: str, form: Annotated[TriggerForm, Form()]) -> Response:
    dag_id = links.from_segment(dag_id)

    def payload(_: str) -> dict[str, Any]:
        logical_date, conf = form.logical_date.strip() or None, parse_conf(form.conf.strip() or None)
        now = context.app.clock.now()
        return triggered_dag(context.store, dag_id, logical_date, conf, now, allow_future=form.allow_future)

    try:
        return await context.submit(DAG_TRIGGER, payload, back=links.to("dags", dag_id, order="made"))
    except InvalidInput as error:  # shows the form as it was filled in
        message = message_of(error)
        return await run_in_threadpool(
            lambda: dag_page(context, dag_id, "trigger", status=422, error=message, form=form)
        )


# -- clear ------------------------------------------------------------------------------------------------------------


@router.get("/dags/{dag_id}/clear")
def clear_form(context: ViewerContext, dag_id: str, query: Annotated[ClearQuery, Query()]) -> Response:
    if "downstream" not in query.model_fields_set and not query.preview:  # checked when the form is opened
        query.downstream = True
    return _clear_page(context, links.from_segment(dag_id), query, preview=query.preview)


@router.post("/dags/{dag_id}/clear")
async def clear(context: OperatorContext, dag_id: str, form: Annotated[ClearForm, Form()]) -> Response:
    dag_id = links.from_segment(dag_id)

    def payload(_: str) -> dict[str, Any]:
        command = with_whole_run_ids(context.store, form.command(dag_id))
        plan_clear(context.store, command, all_dags(context.store), spec_reader(context.store))  # or refuses
        return {"ask": command.to_payload()}

    try:
        return await context.submit(TASKS_CLEAR, payload, back=links.to("dags", dag_id))
    except (InvalidInput, NotFound) as error:
        message = message_of(error)
        return await run_in_threadpool(lambda: _clear_page(context, dag_id, form, error=message, status=422))


def _clear_page(
    context: PageContext, dag_id: str, form: ClearForm, *, preview: bool = False, error: str | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    plan = None
    if preview:
        try:
            command = with_whole_run_ids(context.store, form.command(dag_id))
            dags, spec_of = all_dags(context.store), spec_reader(context.store)
            plan = plan_clear(context.store, command, dags, spec_of).to_json_document()
        except (InvalidInput, NotFound) as refusal:  # of the preview: nothing was submitted, so the status is 200
            error = message_of(refusal)
    return dag_page(context, dag_id, "clear", status=status, form=form, plan=plan, runs_shown=RUNS_SHOWN, error=error)
