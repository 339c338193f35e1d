"""*One DAG*: the forms that trigger it and that clear its runs. A clear is shown before it is asked for: the preview is an
address with the form's values, and the very plan that the manager makes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Form, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound
from backfill_manager.planning.clear_plan import plan_clear
from backfill_manager.queries.dags import all_dags, current_dag, spec_reader
from backfill_manager.requests.clearing import ClearTasks
from backfill_manager.requests.command_types import DAG_TRIGGER, TASKS_CLEAR
from backfill_manager.requests.json_input import parse_conf
from backfill_manager.requests.validation import triggered_dag, with_whole_run_ids
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router
from backfill_manager.web.pages.dag import dag_page

router: Final = page_router()
SHOWN: Final = 100  # runs of a preview
Line = Annotated[str, Form(max_length=500)]
Asked = Annotated[str, Query(max_length=500)]


# -- trigger ----------------------------------------------------------------------------------------------------------


@router.get("/dags/{dag_id}/trigger")
def trigger_form(context: ViewerContext, dag_id: str) -> Response:
    given = {"logical_date": "", "conf": "", "allow_future": ""}
    current_dag(context.store, links.from_segment(dag_id))  # nothing is offered that would be refused
    return dag_page(context, links.from_segment(dag_id), "trigger", wrong=None, given=given)


@router.post("/dags/{dag_id}/trigger")
async def trigger(
    context: OperatorContext, dag_id: str, logical_date: Line = "", conf: Annotated[str, Form(max_length=100_000)] = "",
    allow_future: Line = "",
) -> Response:  # fmt: skip
    dag_id = links.from_segment(dag_id)

    def payload(_: str) -> dict[str, Any]:
        at, given = logical_date.strip() or None, parse_conf(conf.strip() or None)
        return triggered_dag(context.store, dag_id, at, given, context.app.clock.now(), allow_future=allow_future == "on")

    try:
        return await context.ask(DAG_TRIGGER, payload, back=links.to("dags", dag_id, order="made"))
    except InvalidInput as error:  # the form as it was filled in, with what is wrong
        wrong = in_words_of_page(error)
        given = {"logical_date": logical_date, "conf": conf, "allow_future": allow_future}
        return await run_in_threadpool(lambda: dag_page(context, dag_id, "trigger", status=422, wrong=wrong, given=given))


# -- clear ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClearForm:
    """The fields as a person left them."""

    start: str = ""
    end: str = ""
    tasks: str = ""
    run: str = ""
    upstream: bool = False
    downstream: bool = True
    only: str = ""  # failed, running
    latest_version: bool = False

    def ask(self, dag_id: str) -> ClearTasks:
        ask = ClearTasks(
            dag=dag_id, start=self.start.strip() or None, end=self.end.strip() or None, tasks=self.tasks.strip() or None,
            run_ids=(self.run.strip(),) if self.run.strip() else (), upstream=self.upstream, downstream=self.downstream,
            only_failed=self.only == "failed", only_running=self.only == "running", latest_version=self.latest_version,
        )  # fmt: skip
        ask.check()
        return ask


@router.get("/dags/{dag_id}/clear")
def clear_form(
    context: ViewerContext, dag_id: str,
    start: Asked = "", end: Asked = "", tasks: Asked = "", run: Annotated[str, Query(max_length=4000)] = "",
    upstream: bool = False, downstream: bool | None = None, only: Asked = "", latest_version: bool = False,
    preview: bool = False,
) -> Response:  # fmt: skip
    if (
        downstream is None
    ):  # a form that was sent says nothing of a box that is not ticked; one that is opened begins ticked
        downstream = not preview
    form = ClearForm(start, end, tasks, run, upstream, downstream, only, latest_version)
    return _clear_page(context, links.from_segment(dag_id), form, preview=preview)


@router.post("/dags/{dag_id}/clear")
async def clear(
    context: OperatorContext, dag_id: str,
    start: Line = "", end: Line = "", tasks: Line = "", run: Annotated[str, Form(max_length=4000)] = "",
    upstream: Annotated[bool, Form()] = False, downstream: Annotated[bool, Form()] = False, only: Line = "",
    latest_version: Annotated[bool, Form()] = False, back: Annotated[str, Form()] = "",
) -> Response:  # fmt: skip
    dag_id = links.from_segment(dag_id)
    form = ClearForm(start, end, tasks, run, upstream, downstream, only, latest_version)

    def payload(_: str) -> dict[str, Any]:
        ask = with_whole_run_ids(context.store, form.ask(dag_id))
        plan_clear(context.store, ask, all_dags(context.store), spec_reader(context.store))  # says no at once, if it must
        return {"ask": ask.to_payload()}

    try:
        return await context.ask(TASKS_CLEAR, payload, back=back or links.to("dags", dag_id))
    except (InvalidInput, NotFound) as error:
        wrong = in_words_of_page(error)
        return await run_in_threadpool(lambda: _clear_page(context, dag_id, form, wrong=wrong, status=422))


def _clear_page(
    context: PageContext,
    dag_id: str,
    form: ClearForm,
    *,
    preview: bool = False,
    wrong: str | None = None,
    status: int = 200,
) -> Response:
    plan = None
    if preview:
        try:
            ask = with_whole_run_ids(context.store, form.ask(dag_id))
            plan = plan_clear(context.store, ask, all_dags(context.store), spec_reader(context.store)).to_json_document()
        except (InvalidInput, NotFound) as error:
            wrong = in_words_of_page(error)  # nothing was asked for yet: the page is in order
    return dag_page(context, dag_id, "clear", status=status, form=form, plan=plan, shown=SHOWN, wrong=wrong)


_OPTIONS: Final = {
    "--logical-date": "Logical date", "--only-failed": "“failed”", "--only-running": "“running”", "--tasks": "Tasks",
    "--latest-version": "The current version", "--conf": "Parameters", "--start-date": "From", "--end-date": "To",
    "add --allow-future": "tick “Take a date in the future”",
}  # fmt: skip


def in_words_of_page(error: BackfillManagerError) -> str:
    """What the command line calls an option is a field here."""
    told = str(error)
    for option, field in _OPTIONS.items():
        told = told.replace(option, field)
    return told
