"""What is done with selected items, days or runs: retry, clear, mark, a new backfill. Each first shows what it would do.

A page posts its selection as numbers in ranges (`selected=1-5,9`): ordinals of the items of a backfill, days of the calendar
(`date.toordinal`), or `run_seq` of the runs of the grid. So a selection of a hundred thousand items is short.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import PlainTextResponse, Response

from backfill_manager.api.backfill_cache import known_backfill
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import parse_end, parse_start, timetable_of
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.model.states import BACKFILL_FINISHED, FAILED, ITEM_STATES
from backfill_manager.number_ranges import Ranges, range_texts, read_ranges
from backfill_manager.queries.backfills import check_states
from backfill_manager.queries.dags import current_dag, known_dag
from backfill_manager.queries.selected_dates import SelectedDates, dates_of_items, dates_of_runs, ranges_in_states
from backfill_manager.requests.checked_payloads import marked_runs
from backfill_manager.schemas.backfill_options import BackfillSettings
from backfill_manager.schemas.commands import MarkRuns
from backfill_manager.schemas.field_types import MAX_RANGES
from backfill_manager.schemas.request_kinds import RUNS_MARK
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.web.links import PathId, to
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages import form_fields as f
from backfill_manager.web.pages.backfill_forms import new_backfill_page
from backfill_manager.web.pages.chosen_runs import Chosen, LongText
from backfill_manager.web.pages.dag import RUNS_SHOWN, ClearForm, clear_page

router: Final = page_router()

MAX_LISTED: Final = 10_000  # dates or partitions that a form lists
Action = Annotated[Literal["retry", "clear", "mark_success", "mark_failed", "create"], Form()]
Selected = Annotated[str, Form(max_length=200_000)]


def read_selected(text: str) -> Ranges:
    """`1-5,9`; `InvalidInput` for nothing, too much, or what a page does not send."""
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidInput("Nothing is selected: select something first.")
    if len(parts) > MAX_RANGES:
        raise InvalidInput(_too_many(len(parts)))
    try:
        return read_ranges(parts)
    except ValueError as error:
        raise InvalidInput(f"The selection {error}") from None


def _too_many(ranges: int) -> str:
    return (
        f"The selection is scattered over {ranges:,} ranges; at most {MAX_RANGES:,} are possible. "
        "Select fewer, or ranges that are longer."
    )


# -- items of a backfill ----------------------------------------------------------------------------------------------
@router.get("/backfills/{backfill_id}/selected")
def backfill_again(context: ViewerContext, backfill_id: PathId) -> Response:
    """A reload of what was posted."""
    return redirect(to("backfills", backfill_id))


@router.post("/backfills/{backfill_id}/selected")
def selected_items(context: OperatorContext, backfill_id: PathId, do: Action, selected: Selected = "") -> Response:
    row, ordinals = known_backfill(context.app, backfill_id), read_selected(selected)
    if do == "retry":
        return _retry_page(context, row, ordinals)
    chosen = {"backfill": row["backfill_id"], "items": ",".join(range_texts(ordinals))}
    if do == "create":
        _, dag = current_dag(context.store, row["dag_id"])
        return _create_page(context, dag, dates_of_items(context.store, row["backfill_id"], ordinals, dag))
    return _clear_or_mark(context, row["dag_id"], do, chosen)


@router.get("/backfills/{backfill_id}/matching")
def matching_items(
    context: ViewerContext, backfill_id: PathId,
    state: Annotated[list[str] | None, Query(max_length=len(ITEM_STATES))] = None,
    first: Annotated[int, Query(alias="from", ge=1, le=2**53)] = 1,
    last: Annotated[int | None, Query(alias="to", ge=1, le=2**53)] = None,
) -> Response:  # fmt: skip
    """The numbers of all items that match the filter of the list, as ranges: of any number of pages."""
    row = known_backfill(context.app, backfill_id)
    in_states = check_states("backfill's item", dict.fromkeys(state or ()), ITEM_STATES)
    end = min(last or row["planned"], row["planned"])
    ranges = ranges_in_states(context.store, row["backfill_id"], in_states, first, end)
    if len(ranges) > MAX_RANGES:
        return PlainTextResponse(_too_many(len(ranges)), 422)
    return PlainTextResponse(",".join(range_texts(ranges)), headers={"Cache-Control": "no-store"})


def _retry_page(context: PageContext, row: dict[str, Any], ordinals: Ranges) -> Response:
    """What a retry of these items would do; the form goes to the retry of the backfill."""
    of_items = [*matching(backfill_id=row["backfill_id"]), Condition("ordinal", "in_ranges", ordinals)]
    found = context.store.count(BackfillItem.TABLE, ["state"], of_items)
    counts = {str(state): n for (state,), n in found.items()}
    dag, _ = known_dag(context.store, row["dag_id"])
    return context.page(
        "backfills/retry_selected.html", b=row, counts=counts, failed=counts.get(FAILED, 0),
        total=sum(counts.values()), items=",".join(range_texts(ordinals)), version=dag.current_version if dag.is_active else None,
        has_ended=row["state"] in BACKFILL_FINISHED,
    )  # fmt: skip


# -- days and runs of a DAG -------------------------------------------------------------------------------------------
@router.get("/dags/{dag_id}/selected")
def dag_again(context: ViewerContext, dag_id: PathId) -> Response:
    return redirect(to("dags", dag_id))


@router.post("/dags/{dag_id}/selected")
def selected_of_dag(
    context: OperatorContext, dag_id: PathId, do: Action, of: Annotated[Literal["days", "runs"], Form()],
    selected: Selected = "",
) -> Response:  # fmt: skip
    numbers = read_selected(selected)
    if do == "create":
        _, dag = current_dag(context.store, dag_id)
        return _create_page(context, dag, _dates_of(context.store, dag, of, numbers))
    if of == "days":
        chosen = {"dates": ",".join("/".join(dict.fromkeys(map(str, ends))) for ends in _days(numbers))}
    else:
        chosen = {"runs": "\n".join(run.run_id for run in _runs(context.store, dag_id, numbers))}
    return _clear_or_mark(context, dag_id, do, chosen)


def _days(numbers: Ranges) -> list[tuple[date, date]]:
    if numbers[-1][1] > date.max.toordinal() or numbers[0][0] < 1:
        raise InvalidInput("The selection holds what is no day of the calendar.")
    return [(date.fromordinal(first), date.fromordinal(last)) for first, last in numbers]


def _runs(store: Store, dag_id: str, numbers: Ranges) -> list[DagRun]:
    where = [*matching(dag_id=dag_id), Condition("run_seq", "in_ranges", numbers)]
    runs = store.read(DagRun, where, order_by=("run_seq",), limit=MAX_LISTED + 1)
    if not runs:
        raise InvalidInput("The selected runs are gone.")
    if len(runs) > MAX_LISTED:
        raise InvalidInput(f"More than {MAX_LISTED:,} runs are selected; select fewer.")
    return runs


def _dates_of(store: Store, dag: DagSpec, of: str, numbers: Ranges) -> SelectedDates:
    """`of` days: the intervals of the schedule that begin on them; without a schedule, the days."""
    if of == "runs":
        runs = _runs(store, dag.dag_id, numbers)
        first = min((run.interval_start for run in runs if run.interval_start is not None), default=None)
        return dates_of_runs(runs, timetable_of(dag, first))
    ends = [
        (parse_start(first, dag.timezone, name="day"), parse_end(last, dag.timezone, name="day"))
        for first, last in _days(numbers)
    ]
    timetable = timetable_of(dag, ends[0][0])
    if not timetable.repeats:
        days = [date.fromordinal(n) for first, last in numbers for n in range(first, last + 1)]
        return SelectedDates(dates=tuple(parse_start(day, dag.timezone, name="day") for day in days))
    if len(ends) == 1:
        start, end = timetable.first_at_or_after(ends[0][0]), timetable.last_at_or_before(ends[0][1])
        if start is not None and end is not None and start <= end:
            return SelectedDates(range=(start, end))
    if sum(timetable.estimate_count(*span) for span in ends) > 2 * MAX_LISTED:
        raise InvalidInput(_too_many_dates())
    dates = tuple(begin for span in ends for begin, _ in timetable.intervals(*span))
    if not dates:
        raise InvalidInput(f"No interval of the schedule of {dag.dag_id} begins on the selected days.")
    return SelectedDates(dates=dates)


# -- what both have ---------------------------------------------------------------------------------------------------
def _clear_or_mark(context: PageContext, dag_id: str, do: str, chosen: dict[str, str]) -> Response:
    """A retry of runs clears what failed, and what is downstream of it."""
    if do in ("retry", "clear"):
        form = ClearForm.model_validate({**chosen, "downstream": True, "only": "failed" if do == "retry" else ""})
        return clear_page(context, dag_id, form, dry_run=True)
    state: Literal["success", "failed"] = "success" if do == "mark_success" else "failed"
    return _mark_page(context, dag_id, MarkForm(**chosen, state=state))


def _create_page(context: PageContext, dag: DagSpec, selected: SelectedDates) -> Response:
    """The form *New backfill* with these dates; those that have run are done again, as they were selected."""
    if max(len(selected.dates), len(selected.partitions)) > MAX_LISTED:
        raise InvalidInput(_too_many_dates())
    settings = BackfillSettings().model_dump()
    zone = context.field_zone(dag.timezone)
    typed = f.typed_of_copy({**selected.options(), "reprocess": "completed"}, settings, dag, zone)
    return new_backfill_page(context, dag, typed | {"ignore_first_depends_on_past": "on"})


def _too_many_dates() -> str:
    return f"More than {MAX_LISTED:,} separate dates are selected; select a range without gaps, or fewer dates."


class MarkForm(Chosen):
    state: Literal["success", "failed"]
    back: LongText = ""


def _mark_page(context: PageContext, dag_id: str, form: MarkForm) -> Response:
    command = MarkRuns.parse({"dag_id": dag_id, "state": form.state, **form.values()})
    _, plan = marked_runs(context.store, command)
    home = to("backfills", form.backfill) if form.backfill else to("dags", dag_id)
    document = plan.to_json_document()
    return context.page(
        "mark_runs.html", dag_id=dag_id, form=form, plan=document, runs_shown=RUNS_SHOWN, home=home,
        chosen=form.described(),
    )  # fmt: skip


@router.post("/dags/{dag_id}/mark")
async def mark(context: OperatorContext, dag_id: PathId, form: Annotated[MarkForm, Form()]) -> Response:
    command = MarkRuns.parse({"dag_id": dag_id, "state": form.state, **form.values()})

    def payload(_: str) -> dict[str, Any]:
        return marked_runs(context.store, command)[0].to_payload()

    return await context.submit(RUNS_MARK, payload, back=form.back or to("dags", dag_id))
