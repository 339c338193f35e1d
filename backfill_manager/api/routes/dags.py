"""`/dags`, and what belongs to one: its runs, grid, timeline and versions; `/bundles` and `/import_errors`, their sources."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.bodies import Clear, DagChanges, Deactivate, MarkRuns, NewRun, Parse
from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import CHANGE, CREATE, change_or_plan, reads
from backfill_manager.api.paging import Bound, Cursor, Paging, instant_of, paged
from backfill_manager.api.parameters import IN_STATES, Id, OfType, RunState
from backfill_manager.api.routes.runs import RunPaging, address_of, page_of_runs
from backfill_manager.api.submit import ApiSubmit, Payload, Submitter, submits
from backfill_manager.model.records import DagRun
from backfill_manager.planning.runs.clear_plan import preview_clear
from backfill_manager.queries import dags as queries
from backfill_manager.queries.bundles import list_bundles
from backfill_manager.queries.grid import grid
from backfill_manager.queries.paging import Order
from backfill_manager.queries.runs import timeline
from backfill_manager.queries.versions import diff_versions, list_versions
from backfill_manager.requests import checked_payloads
from backfill_manager.requests.data_gaps import gap_report
from backfill_manager.requests.json_input import parse_conf
from backfill_manager.requests.rendering import rendered_run
from backfill_manager.schemas import commands, request_kinds
from backfill_manager.schemas import resources as r
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.resources.tables import gap_place

router = APIRouter(prefix="/dags", tags=["dags"])
bundles_router = APIRouter(tags=["dags"])

SPEC_TABLES: Final = ("dag", "dag_version")
TABLES: Final = (*SPEC_TABLES, "dag_run")
ACTIVE: Final = {"true": True, "false": False, "all": None}
VersionNumber = Annotated[int, Query(ge=1, le=2**31, description="Number of a version.")]
GAP_TABLES: Final = (*TABLES, "table_access")
GAPS_TTL_S: Final = 60
SCHEDULE_TTL_S: Final = 10  # of what depends on the time: the next run


@router.get("", operation_id="list_dags", **reads(r.Page[r.Dag]))
@read_from(*TABLES, "import_error", ttl_s=SCHEDULE_TTL_S)
def get_dags(
    reader: Reader, paging: Annotated[Paging, paged("dag_id", "-dag_id")],
    is_paused: Annotated[bool | None, Query(description="Only DAGs that are paused (`true`) or not paused (`false`).")] = None,
    tag: Annotated[str | None, Query(max_length=200, description="Only DAGs with this tag.")] = None,
    active: Annotated[
        Literal["true", "false", "all"],
        Query(description="`true`: active DAGs. `false`: DAGs that no file defines any more; their runs can still be read. "
        "`all`: both."),
    ] = "true",
) -> Any:  # fmt: skip
    """Returns the DAGs (the active ones, unless `active` says otherwise), with date and time of the next scheduled run."""
    rows = [
        row
        for row in queries.list_dags(reader.store, reader.now(), active=ACTIVE[active])
        if is_paused in (None, row["is_paused"]) and (tag is None or tag in row["tags"])
    ]
    return paging.short_page(rows, "dag_id")


@router.get("/{dag_id}", operation_id="get_dag", **reads(r.DagDetails))
@read_from(*TABLES, "pool", "import_error", ttl_s=SCHEDULE_TTL_S)
def get_dag(dag_id: Id, reader: Reader) -> Any:
    """Returns a DAG, active or not, with its schedule, its tasks and their dependencies, and its number of runs by state."""
    return queries.show_dag(reader.store, dag_id, reader.now())


@router.patch("/{dag_id}", operation_id="change_dag", **CHANGE)
async def change_dag(dag_id: Id, body: DagChanges, submitter: ApiSubmit) -> Response:
    """Pauses a DAG (no scheduled runs are created) or unpauses it. Its backfills are paused separately."""
    kind = request_kinds.DAG_PAUSE if body.is_paused else request_kinds.DAG_UNPAUSE
    return await submitter(kind, lambda _: {"dag_id": queries.current_dag(submitter.store, dag_id)[0].dag_id})


@router.post("/{dag_id}/deactivate", operation_id="deactivate_dag", **CHANGE)
@submits(request_kinds.DAG_DEACTIVATE)
def deactivate(dag_id: Id, submitter: ApiSubmit) -> Payload:
    """Deactivates a DAG. It gets no more runs until it has new content or its file is parsed on request."""
    return {"dag_id": queries.current_dag(submitter.store, dag_id)[0].dag_id}


@router.get("/{dag_id}/next", operation_id="next_intervals", **reads(list[r.Interval]))
@read_from(*TABLES, ttl_s=SCHEDULE_TTL_S)
def get_next_intervals(
    dag_id: Id,
    reader: Reader,
    n: Annotated[int, Query(ge=1, le=1000, description="Maximum number of intervals.")] = 1,
    after: Bound = None,
) -> Any:
    """Returns the next intervals that will be scheduled, and when each is due. To continue, set `after` to the `interval_end`
    of the last one."""
    return queries.next_intervals_of(reader.store, dag_id, reader.now(), n, after=instant_of(after, "after"))


@router.get("/{dag_id}/gaps", operation_id="list_gaps", **reads(r.Page[r.Gap]))
@read_from(*GAP_TABLES, ttl_s=GAPS_TTL_S)
def get_gaps(
    dag_id: Id, reader: Reader, paging: Annotated[Paging, paged("table", "-table")],
    start_date: Annotated[
        str | None, Query(max_length=100, description="The first interval starts at or after this date.")
    ] = None,
    end_date: Annotated[
        str | None, Query(max_length=100, description="The last interval starts at or before this date (inclusive).")
    ] = None,
) -> Any:  # fmt: skip
    """Returns gaps: intervals in which a table that the DAG writes does not contain what its runs say. They are found by the
    logs of the tables, and by the time column where intervals share a file. What cannot be determined is `unknown`. Because
    tables change independently of the state, the result may be a minute old."""
    rows = gap_report(reader.store, dag_id, start_date, end_date, reader.now()).to_json_document()
    return paging.short_page(rows, tie_of=gap_place)


@router.get("/{dag_id}/render", operation_id="render_run", **reads(r.RenderedRun))
@read_from(*TABLES, ttl_s=SCHEDULE_TTL_S)
def render_run(
    dag_id: Id, reader: Reader,
    logical_date: Annotated[
        str | None,
        Query(max_length=100, description="Logical date. In the DAG's time zone, unless it has an offset."),
    ] = None,
    task_id: Annotated[str | None, Query(max_length=200, description="Only this task.")] = None,
    partition_key: Annotated[str | None, Query(max_length=1000, description="Partition key, instead of a date.")] = None,
    conf: Annotated[str | None, Query(max_length=4000, description="Parameters of the run, as a JSON object.")] = None,
) -> Any:  # fmt: skip
    """Returns what the tasks of a manual run would see: SQL with its parameters, params and interval. Nothing is created."""
    return rendered_run(
        reader.store,
        dag_id,
        logical_date,
        reader.now(),
        task_id=task_id,
        partition_key=partition_key,
        conf=parse_conf(conf),
    )


@router.post("/{dag_id}/runs", operation_id="trigger_dag", **CREATE)
async def trigger(dag_id: Id, submitter: ApiSubmit, body: NewRun | None = None) -> Response:
    """Triggers a manual run: for the interval that starts at `logical_date`, for a partition (`partition_key`), or for the latest
    complete interval. The schedule is not affected. A date in the future is refused without `allow_future`."""
    run = (body or NewRun()).model_dump()

    def payload(_: str) -> Payload:
        return checked_payloads.triggered_dag(submitter.store, dag_id, now=submitter.context.clock.now(), **run)

    return await submitter(request_kinds.DAG_TRIGGER, payload, location=lambda run_id: address_of(dag_id, run_id))


@router.get("/{dag_id}/runs", operation_id="list_runs_of_dag", **reads(r.Page[r.Run]))
@read_from(*TABLES)
def list_runs(
    dag_id: Id, reader: Reader, paging: RunPaging, run_type: OfType = None,
    state: Annotated[list[RunState] | None, IN_STATES] = None,
) -> Any:  # fmt: skip
    """Returns the runs of a DAG, newest first."""
    _check_known(reader, dag_id)
    return page_of_runs(reader, paging, dag_id=dag_id, in_states=state or (), run_type=run_type)


@router.get("/{dag_id}/grid", operation_id="get_grid", **reads(r.Grid))
@read_from(*TABLES, "task_instance")
def get_grid(
    dag_id: Id, reader: Reader, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of runs.")] = 30,
    cursor: Cursor = None,
    order: Annotated[Literal["date", "made"], Query(description="`date`: by logical date. `made`: by creation.")] = "date",
) -> Any:  # fmt: skip
    """Returns the newest runs of a DAG with the state of each of their tasks. The next page has older runs."""
    paging = Paging(limit, cursor, order)
    by = Order("logical_date" if order == "date" else "run_seq", "run_seq", descending=True)
    date, seq = paging.after(DagRun, by) or (None, None)
    _, spec = queries.known_dag(reader.store, dag_id)
    document = grid(
        reader.store, spec, order=order, limit=limit, before_date=date if order == "date" else None,
        before_seq=seq if order == "made" else None,
    )  # fmt: skip
    last = older = document.pop("older")
    del document["numbers"]  # of pages
    if older is not None:
        seq = older.get("before_seq", 0)
        last = (older["before_date"] if order == "date" else seq, seq)
    return {**document, "next_cursor": paging.cursor_behind(last)}


@router.get("/{dag_id}/timeline", operation_id="get_timeline", **reads(r.Page[r.TimelineRun]))
@read_from(*TABLES)
def get_timeline(dag_id: Id, reader: Reader, paging: Annotated[Paging, paged("-logical_date", limit=50)]) -> Any:
    """Returns the current run of each date, newest date first, each with the runs that it has overridden."""
    _, before = paging.after(DagRun, paging.order("logical_date")) or (None, None)
    _check_known(reader, dag_id)
    runs = timeline(reader.store, dag_id, paging.limit + 1, before=before)[::-1]
    shown = runs[: paging.limit]
    return paging.page(shown, (shown[-1]["logical_date"],) * 2 if len(runs) > len(shown) else None)


@router.get("/{dag_id}/versions", operation_id="list_versions", **reads(r.Page[r.DagVersion]))
@read_from(*SPEC_TABLES)
def get_versions(dag_id: Id, reader: Reader, paging: Annotated[Paging, paged("-version", limit=100)]) -> Any:
    """Returns the versions of a DAG, newest first."""
    return paging.short_page(list_versions(reader.store, dag_id), "version")


@router.get("/{dag_id}/versions/diff", operation_id="diff_versions", **reads(r.VersionDiff))
@read_from(*SPEC_TABLES)
def get_version_diff(dag_id: Id, reader: Reader, before: VersionNumber, after: VersionNumber) -> Any:
    """Returns the differences between two versions of a DAG: settings, tasks and files."""
    return diff_versions(reader.store, dag_id, before, after)


@router.post("/{dag_id}/clear", operation_id="clear_tasks", **change_or_plan(r.ClearPlan, "cleared"))
async def clear(dag_id: Id, body: Clear, submitter: ApiSubmit) -> Response:
    """Clears finished tasks, so that they run again in the same runs. Running tasks are stopped first."""
    command = ClearTasks(dag_id=dag_id, **body.model_dump(exclude={"dry_run"}))
    store = submitter.store

    def planned() -> tuple[ClearTasks, dict[str, Any]]:
        command.check()
        known = checked_payloads.with_whole_ids(store, command)
        return known, preview_clear(
            store, known, queries.all_dags(store), queries.spec_reader(store)
        ).to_json_document()

    if body.dry_run:
        _, plan = await run_in_threadpool(planned)
        return JSONResponse(plan)
    return await submitter(request_kinds.TASKS_CLEAR, lambda _: {"ask": planned()[0].to_payload()})


@router.post("/{dag_id}/mark", operation_id="mark_runs", **change_or_plan(r.MarkPlan, "marked"))
async def mark(dag_id: Id, body: MarkRuns, submitter: ApiSubmit) -> Response:
    """Sets several runs to a state. Runs that already have the state are left as they are. Running tasks are stopped first."""
    command = commands.MarkRuns(dag_id=dag_id, **body.model_dump(exclude={"dry_run"}))
    if body.dry_run:
        _, plan = await run_in_threadpool(checked_payloads.marked_runs, submitter.store, command)
        return JSONResponse(plan.to_json_document())
    return await submitter(
        request_kinds.RUNS_MARK, lambda _: checked_payloads.marked_runs(submitter.store, command)[0].to_payload()
    )


def _check_known(reader: Reader, dag_id: str) -> None:
    """Raises `NotFound` for a DAG that never existed; the runs of a deleted one can still be read."""
    if dag_id not in queries.all_dags(reader.store):
        queries.known_dag(reader.store, dag_id)


@bundles_router.get("/bundles", operation_id="list_bundles", **reads(r.Page[r.BundleInfo]))
@read_from("bundle", "dag", "import_error")
def get_bundles(reader: Reader, paging: Annotated[Paging, paged("name", "-name")]) -> Any:
    """Returns the bundles, each with its number of active DAGs and of import errors."""
    return paging.short_page(list_bundles(reader.store, reader.context.settings.bundles), "name")


@bundles_router.post("/bundles/{name}/parse", operation_id="parse_bundle", **CHANGE)
@submits(request_kinds.BUNDLE_PARSE)
def parse(name: Id, submitter: ApiSubmit, body: Parse | None = None) -> Payload:
    """Parses files of a bundle now, changed or not. `result` of the request contains the outcome."""
    return {"bundle": _known_bundle(submitter, name), **(body or Parse()).model_dump()}


@bundles_router.post("/bundles/{name}/deactivate", operation_id="deactivate_in_bundle", summary="Deactivate", **CHANGE)
@submits(request_kinds.BUNDLE_DEACTIVATE)
def deactivate_in_bundle(name: Id, body: Deactivate, submitter: ApiSubmit) -> Payload:
    """Deactivates the DAGs of a file or folder until they have new content or are parsed on request."""
    return {"bundle": _known_bundle(submitter, name), "subpath": body.subpath}


def _known_bundle(submitter: Submitter, name: str) -> str:
    return checked_payloads.known_bundle(submitter.store, submitter.context.settings, name)


@bundles_router.get("/import_errors", operation_id="list_import_errors", **reads(r.Page[r.ImportProblem]))
@read_from("import_error")
def get_import_errors(
    reader: Reader,
    paging: Annotated[Paging, paged("bundle", "-bundle", "file", "-file", "last_seen_at", "-last_seen_at")],
    bundle: Annotated[str | None, Query(max_length=200, description="Only files of this bundle.")] = None,
) -> Any:
    """Returns files that could not be imported, each with its error. The last good version of their DAGs remains in use."""
    rows = [one for one in queries.list_import_errors(reader.store) if bundle in (None, one["bundle"])]
    return paging.short_page(rows, "bundle", "file")
