"""*One DAG*, with a tab per view: grid, graph, timeline, calendar, versions, code; and the forms that trigger a run and clear
tasks. A clear begins with a dry run: it is an address with the form's values, and shows the plan that the manager will
make."""

from __future__ import annotations

import secrets
from collections import Counter
from datetime import MAXYEAR
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from typing_extensions import Self

from backfill_manager.clock import parse_instant
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound
from backfill_manager.model.records import Pool
from backfill_manager.model.states import REMOVED
from backfill_manager.planning.runs.clear_plan import ClearPlan, preview_clear
from backfill_manager.queries import dags as queries
from backfill_manager.queries.calendar import FIRST_YEAR, calendar, count_runs_of_day, rows_by_day, runs_of_day, years
from backfill_manager.queries.grid import MAX_RUNS, grid
from backfill_manager.queries.runs import timeline
from backfill_manager.queries.tasks import worst_first
from backfill_manager.queries.versions import code_of, diff_versions, list_versions
from backfill_manager.requests.checked_payloads import triggered_dag, with_whole_ids
from backfill_manager.requests.json_input import parse_conf
from backfill_manager.requests.rendering import rendered_run
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.params import example_conf, list_params
from backfill_manager.schemas.request_kinds import DAG_TRIGGER, TASKS_CLEAR
from backfill_manager.store.base import Store
from backfill_manager.web.dates import checked_zone, for_command, moved
from backfill_manager.web.links import PageNumber, PathId, paginate, to
from backfill_manager.web.page import (
    OperatorContext,
    PageContext,
    ViewerContext,
    message_of,
    once_key,
    page_router,
    redirect,
)
from backfill_manager.web.pages.chosen_runs import Chosen
from backfill_manager.web.pages.grid_panel import Id as PanelId
from backfill_manager.web.pages.grid_panel import panel_of
from backfill_manager.web.svg.calendar import year_of_days

router: Final = page_router()
TABS: Final = ("grid", "graph", "timeline", "calendar", "gaps", "versions", "code", "render", "clear", "trigger")
DAY_RUNS_PER_PAGE: Final = 100
GRID_TASKS_PER_PAGE: Final = 100
VERSIONS_PER_PAGE: Final = 50
RUNS_SHOWN: Final = 100  # of a dry run
Line = Annotated[str, Field(max_length=500)]
VersionNumber = Annotated[int | None, Query(ge=1, le=2**31)]


def dag_page(context: PageContext, dag_id: str, tab: str, *, status: int = 200, **values: Any) -> Response:
    """Renders a tab, under the head that all of them share."""
    tables = ("dag", "dag_version", "dag_run", "pool", "import_error")
    versions = (*context.app.versions(tables), int(context.now.timestamp()) // 60)
    dag = context.app.at_versions(
        versions, f"ui:dag:{dag_id}", lambda: queries.show_dag(context.store, dag_id, context.now)
    )
    hidden = {"clear", "trigger"} if not (context.user and context.user.may_change) else set()
    hidden |= {"trigger"} if not dag["is_active"] else set()
    shown = [name for name in TABS if name not in hidden]
    tabs = [(name, to("dags", dag_id, *([name] if name != "grid" else [])), name.capitalize()) for name in shown]
    params = list_params(dag["params"], dag["declared_params"])
    values.setdefault("field_zone", context.field_zone(dag["timezone"]))
    values["once"] = secrets.token_hex(8)
    values["example_conf"] = example_conf(dag["params"], dag["declared_params"])
    pools = [row.name for row in context.store.read(Pool)] if dag["unknown_pools"] else []
    return context.page(
        f"dag_{tab}.html", status=status, dag=dag, params=params, tab=tab, tabs=tabs, pools=pools, **values
    )


@router.get("/dags/{dag_id}")
def grid_tab(
    context: ViewerContext, dag_id: PathId, order: Literal["date", "made"] = "date", before: str = "",
    n: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 30, rows: PageNumber = 1, run: PanelId = "", task: PanelId = "",
) -> Response:  # fmt: skip
    _, spec = queries.known_dag(context.store, dag_id)
    shown = grid(context.store, spec, order=order, limit=n, **_cursor(order, before))
    if order == "date" and not shown["runs"] and not before:  # runs of partitions have no date
        shown = grid(context.store, spec, order="made", limit=n)
    older = next(iter(shown["older"].values())) if shown["older"] else None
    query = {"order": "made" if order == "made" else None, "before": before, "n": n if n != 30 else None}
    own = [one for one in shown["tasks"] if one["mapped_from"] is None]
    tasks = paginate(own, rows, GRID_TASKS_PER_PAGE, "dags", dag_id, name="rows", **query)
    panel = panel_of(context, dag_id, run, task)
    return dag_page(
        context,
        dag_id,
        "grid",
        grid=shown,
        mapped=_mapped(shown),
        tasks=tasks,
        older=older,
        before=before,
        n=n,
        **panel,
    )


def _mapped(shown: dict[str, Any]) -> dict[str, dict[str, dict[str, int]]]:
    """By run, and by the task that they are mapped from in it: how many mapped tasks are in which state, the worst first."""
    of = {one["task_id"]: one["mapped_from"] for one in shown["tasks"] if one["mapped_from"] is not None}
    found: dict[str, dict[str, Counter[str]]] = {}
    for run in shown["runs"]:
        for task_id, cell in run["cells"].items():
            if task_id in of and cell["state"] != REMOVED:
                found.setdefault(run["run_id"], {}).setdefault(of[task_id], Counter())[cell["state"]] += 1
    return {run: {task: worst_first(counts) for task, counts in of_run.items()} for run, of_run in found.items()}


def _cursor(order: str, before: str) -> dict[str, Any]:
    if not before:
        return {}
    try:
        if order == "date":
            at = parse_instant(before)
            if "T" in before:
                return {"before_date": at}
        elif abs(seq := int(before)) < 2**63:  # others fit no column
            return {"before_seq": seq}
    except ValueError:
        pass
    raise InvalidInput(f"before={before!r} is not a position in the list of runs.")


@router.get("/dags/{dag_id}/runs")
def runs_of_dag(context: ViewerContext, dag_id: PathId) -> Response:
    """The address of a run without its id: the grid has all runs."""
    return redirect(to("dags", dag_id, order="made"))


@router.get("/dags/{dag_id}/timeline")
def timeline_tab(
    context: ViewerContext, dag_id: PathId, n: Annotated[int, Query(ge=1, le=1000)] = 60, before: str = ""
) -> Response:
    """`before`: only runs before this date, for the link to older ones."""
    runs = timeline(context.store, dag_id, n + 1, before=_cursor("date", before).get("before_date"))
    older = runs[-n]["logical_date"] if len(runs) > n else None
    upcoming = queries.next_intervals_of(context.store, dag_id, context.now, 3)
    return dag_page(context, dag_id, "timeline", runs=runs[-n:][::-1], upcoming=upcoming, before=before, older=older)


@router.get("/dags/{dag_id}/calendar")
def calendar_tab(
    context: ViewerContext, dag_id: PathId, year: Annotated[int | None, Query(ge=FIRST_YEAR, le=MAXYEAR)] = None,
    show: Literal["state", "duration", "rows"] = "state",
) -> Response:  # fmt: skip
    _, spec = queries.known_dag(context.store, dag_id)

    def compute() -> tuple[list[int], int, dict[str, dict[str, Any]]]:
        with_runs = years(context.store, dag_id, spec.timezone)
        chosen = year or (with_runs[0] if with_runs else context.now.year)
        summaries = calendar(context.store, dag_id, spec.timezone, chosen)
        rows = rows_by_day(context.store, dag_id, spec.timezone, chosen) if show == "rows" else {}
        return with_runs, chosen, {day: {**summary, "rows": rows.get(day)} for day, summary in summaries.items()}

    tables = ["dag_run", "task_instance"] if show == "rows" else ["dag_run"]
    key = f"ui:calendar:{dag_id}:{year}:{show == 'rows'}"
    with_runs, chosen, days = context.app.cached_by_version(tables, key, compute)
    drawn = year_of_days(chosen, days, "rows" if show == "rows" else "duration_s")
    return dag_page(context, dag_id, "calendar", years=with_runs, year=chosen, show=show, drawn=drawn, days=days)


@router.get("/dags/{dag_id}/day/{day}")
def day_tab(context: ViewerContext, dag_id: PathId, day: str, page: PageNumber = 1) -> Response:
    _, spec = queries.known_dag(context.store, dag_id)
    begin = parse_date(day, spec.timezone, name="The day")
    of_day = (context.store, dag_id, spec.timezone, begin)
    paged = paginate(range(count_runs_of_day(*of_day)), page, DAY_RUNS_PER_PAGE, "dags", dag_id, "day", day)
    runs = runs_of_day(*of_day, first=max(paged.first - 1, 0), limit=DAY_RUNS_PER_PAGE)
    return dag_page(context, dag_id, "day", day=day, runs=runs, paged=paged)


@router.get("/dags/{dag_id}/versions")
def versions_tab(
    context: ViewerContext,
    dag_id: PathId,
    before: VersionNumber = None,
    after: VersionNumber = None,
    page: PageNumber = 1,
) -> Response:
    """All versions, and the changes between two of them (default: the two newest)."""
    versions = list_versions(context.store, dag_id)
    numbers = [version["version"] for version in versions]
    new = after or (numbers[0] if numbers else None)
    old = before or next((number for number in numbers if new is not None and number < new), None)
    diff = diff_versions(context.store, dag_id, old, new) if old is not None and new is not None else None
    older = dict(pairwise(numbers))
    rows = [{**version, "older": older.get(version["version"])} for version in versions]
    paged = paginate(rows, page, VERSIONS_PER_PAGE, "dags", dag_id, "versions", before=before, after=after)
    return dag_page(context, dag_id, "versions", versions=versions, diff=diff, before=old, after=new, paged=paged)


@router.get("/dags/{dag_id}/code")
def code_tab(context: ViewerContext, dag_id: PathId, version: VersionNumber = None) -> Response:
    versions = list_versions(context.store, dag_id)
    number = version or next((one["version"] for one in versions if one["is_current"]), None)
    shown = code_of(context.store, dag_id, number) if number is not None else None
    return dag_page(context, dag_id, "code", versions=versions, shown=shown, version=number)


def _zone_of(store: Store, dag_id: str) -> str:
    return queries.known_dag(store, dag_id)[1].timezone


class OneDate(BaseModel):
    """A form with the date of a run, which was typed in `zone`."""

    logical_date: Line = ""
    zone: Line = ""

    def shown_in(self, context: PageContext, own: str) -> Self:
        """As it would be typed on this page."""
        here = context.field_zone(own)
        was = checked_zone(self.zone) if self.zone else here
        return self.model_copy(update={"logical_date": moved(self.logical_date, was, here, "at"), "zone": here})

    def date_for(self, own: str) -> str | None:
        """For a command; after `shown_in`."""
        return for_command(self.logical_date, self.zone, own, "at", name="logical_date") or None


class TriggerForm(OneDate):
    partition_key: Annotated[str, Field(max_length=2000)] = ""
    conf: Annotated[str, Field(max_length=100_000)] = ""
    allow_future: bool = False
    once: Line = ""


class RenderQuery(OneDate):
    partition_key: Annotated[str, Field(max_length=2000)] = ""
    conf: Annotated[str, Field(max_length=100_000)] = ""


class ClearForm(Chosen):
    start: Line = ""
    end: Line = ""
    zone: Line = ""  # in which both were typed
    tasks: Line = ""
    run: Annotated[str, Field(max_length=4000)] = ""
    upstream: bool = False
    downstream: bool = False
    only: Literal["", "failed", "running"] = ""
    latest_version: bool = False
    once: Line = ""

    def shown_in(self, context: PageContext, dag_id: str) -> Self:
        """As it would be typed on this page."""
        here = context.field_zone(_zone_of(context.store, dag_id))
        was = checked_zone(self.zone) if self.zone else here
        start, end = moved(self.start, was, here, "start"), moved(self.end, was, here, "end")
        return self.model_copy(update={"start": start, "end": end, "zone": here})

    def plan(self, store: Store, dag_id: str) -> tuple[ClearTasks, ClearPlan]:
        """The command, with whole ids of runs, and what it would clear."""
        own = _zone_of(store, dag_id)
        run, tasks = self.run.strip(), self.tasks.strip()
        start = for_command(self.start, self.zone or own, own, "start", name="start_date")
        end = for_command(self.end, self.zone or own, own, "end", name="end_date")
        command = ClearTasks.parse(
            {
                **self.values(), "dag_id": dag_id, "start_date": start or None, "end_date": end or None,
                "tasks": tasks or None, **({"run_ids": (run,)} if run else {}), "upstream": self.upstream,
                "downstream": self.downstream,
                "only_failed": self.only == "failed", "only_running": self.only == "running",
                "latest_version": self.latest_version,
            }
        )  # fmt: skip
        command.check()
        command = with_whole_ids(store, command)
        return command, preview_clear(store, command, queries.all_dags(store), queries.spec_reader(store))


class ClearQuery(ClearForm):
    dry_run: bool = False


@router.get("/dags/{dag_id}/render")
def render_tab(context: ViewerContext, dag_id: PathId, query: Annotated[RenderQuery, Query()]) -> Response:
    """What the tasks of a run by hand would see: SQL with its parameters, params, interval."""
    rendered, error, partition = None, None, query.partition_key.strip() or None
    typed, own = query.model_fields_set - {"zone"}, _zone_of(context.store, dag_id)
    try:
        conf = parse_conf(query.conf.strip() or None)
        query = query.shown_in(context, own)
        rendered = rendered_run(
            context.store, dag_id, query.date_for(own), context.now, partition_key=partition, conf=conf
        )
    except InvalidInput as refusal:  # nothing was submitted, so the status is 200
        if typed or refusal.code != "missing_param":
            error = message_of(refusal)
    return dag_page(context, dag_id, "render", rendered=rendered, form=query, error=error)


@router.get("/dags/{dag_id}/trigger")
def trigger_form(context: ViewerContext, dag_id: PathId) -> Response:
    queries.current_dag(context.store, dag_id)  # an inactive DAG can't be triggered
    return dag_page(context, dag_id, "trigger", error=None, form=TriggerForm())


@router.post("/dags/{dag_id}/trigger")
async def trigger(context: OperatorContext, dag_id: PathId, form: Annotated[TriggerForm, Form()]) -> Response:
    def payload(_: str) -> dict[str, Any]:
        own = _zone_of(context.store, dag_id)
        logical_date = form.shown_in(context, own).date_for(own)
        conf = parse_conf(form.conf.strip() or None)
        now = context.app.clock.now()
        return triggered_dag(
            context.store, dag_id, logical_date, conf, now, partition_key=form.partition_key.strip() or None,
            allow_future=form.allow_future,
        )  # fmt: skip

    refused: BackfillManagerError
    try:
        key = once_key(form.once, form.model_dump())
        submitted = await context.request_change(DAG_TRIGGER, payload, idempotency_key=key)
        if submitted.refusal is None:
            return context.show_response(submitted, back=to("dags", dag_id, order="made"))
        status, refused = 409, submitted.refusal
    except InvalidInput as error:
        status, refused = 422, error
    form = _shown_again(context, dag_id, form)  # as it was filled in
    return await run_in_threadpool(
        dag_page, context, dag_id, "trigger", status=status, error=message_of(refused), form=form
    )


def _shown_again(context: PageContext, dag_id: str, form: TriggerForm) -> TriggerForm:
    try:
        return form.shown_in(context, _zone_of(context.store, dag_id))
    except InvalidInput:  # of the zone: the error of the form says it
        return form


@router.get("/dags/{dag_id}/clear")
def clear_form(context: ViewerContext, dag_id: PathId, query: Annotated[ClearQuery, Query()]) -> Response:
    if "downstream" not in query.model_fields_set and not query.dry_run:  # checked when the form is opened
        query.downstream = True
    return clear_page(context, dag_id, query, dry_run=query.dry_run)


@router.post("/dags/{dag_id}/clear")
async def clear(context: OperatorContext, dag_id: PathId, form: Annotated[ClearForm, Form()]) -> Response:
    def payload(_: str) -> dict[str, Any]:
        command, _plan = form.plan(context.store, dag_id)  # or refuses
        return {"ask": command.to_payload()}

    try:
        back = to("backfills", form.backfill) if form.backfill else to("dags", dag_id)
        key = once_key(form.once, form.model_dump())
        return await context.submit(TASKS_CLEAR, payload, back=back, idempotency_key=key)
    except (InvalidInput, NotFound) as error:
        return await run_in_threadpool(clear_page, context, dag_id, form, error=message_of(error), status=422)


@router.post("/dags/{dag_id}/clear/dry-run")
def clear_dry_run(context: OperatorContext, dag_id: PathId, form: Annotated[ClearForm, Form()]) -> Response:
    """The dry run of a clear of selected runs, which may be too many for an address."""
    return clear_page(context, dag_id, form, dry_run=True)


@router.get("/dags/{dag_id}/clear/dry-run")
def clear_again(context: ViewerContext, dag_id: PathId) -> Response:
    """A reload of what was posted."""
    return redirect(to("dags", dag_id, "clear"))


def clear_page(
    context: PageContext, dag_id: str, form: ClearForm, *, dry_run: bool = False, error: str | None = None,
    status: int = 200,
) -> Response:  # fmt: skip
    plan, chosen = None, ""
    try:
        form = form.shown_in(context, dag_id)
    except InvalidInput as refusal:  # of the zone
        error = message_of(refusal)
    if dry_run and error is None:
        try:
            chosen = form.described() if form.is_chosen else ""
            plan = form.plan(context.store, dag_id)[1].to_json_document()
        except (InvalidInput, NotFound) as refusal:  # of the dry run: nothing was submitted, so the status is 200
            error = message_of(refusal)
    return dag_page(
        context, dag_id, "clear", status=status, form=form, plan=plan, runs_shown=RUNS_SHOWN, error=error, chosen=chosen
    )
