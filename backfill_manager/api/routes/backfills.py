"""`/backfills`."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import Response

from backfill_manager.api.backfill_cache import PACE_TTL_S, TABLES, counted_backfill, known_backfill, reverted_runs
from backfill_manager.api.bodies import BackfillChanges, Cancel, Diff, NewBackfill, Note, Promote, Retry, Revert
from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import CHANGE, CREATE, PLANS, PREFIX, reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import IN_STATES, BackfillState, Id, ItemState, OfDag
from backfill_manager.api.submit import ApiSubmit, ApiSubmitter, Payload, submits
from backfill_manager.errors import NoActiveManager
from backfill_manager.model import records
from backfill_manager.queries import backfill_items, backfills
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.managers import has_active_manager
from backfill_manager.queries.tasks import running_tasks
from backfill_manager.requests import checked_payloads
from backfill_manager.requests.checked_payloads import (
    check_not_ended,
    previewed_backfill,
    retried_backfill,
    reverted_backfill,
)
from backfill_manager.requests.submit import id_from
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas import resources as r
from backfill_manager.schemas.backfill_options import Kind

router = APIRouter(prefix="/backfills", tags=["backfills"])
PLAN_TIMEOUT_S: Final = 60.0
BackfillPaging = Annotated[
    Paging,
    paged("-created_at", "created_at", "-priority", "priority", "dag_id", "-dag_id", "state", "-state", limit=50),
]


@router.get("", operation_id="list_backfills", **reads(r.Page[r.Backfill]))
@read_from(*TABLES)
def list_backfills(
    reader: Reader, paging: BackfillPaging, dag_id: OfDag = None,
    state: Annotated[list[BackfillState] | None, IN_STATES] = None,
    kind: Annotated[Kind | None, Query(description="Only backfills of this kind.")] = None,
) -> Any:  # fmt: skip
    """Returns backfills, starting with those that wait for the manager. Hidden ones are left out."""
    filter = backfills.BackfillFilter(dag_id, tuple(state or ()), kind)
    order = paging.order("run_seq")
    after = paging.after(records.Backfill, order, marks=True)
    found = backfills.list_backfills(reader.store, filter, order=order, limit=paging.limit, after=after)
    return paging.page(*found)


@router.post("", operation_id="create_backfill", **CREATE)
async def create_backfill(body: NewBackfill, submitter: ApiSubmit) -> Response:
    """Creates a backfill. Its id is `payload.backfill_id` of the request, and is known at once. With `wait`, the response is
    `201` when the manager has accepted it."""
    return await submitter(
        request_kinds.BACKFILL_CREATE,
        lambda request_id: _payload(body, submitter, request_id),
        location=lambda id: f"{PREFIX}/backfills/{quote(id)}",
    )


@router.post("/dry_run", operation_id="plan_backfill", response_model=r.Plan, responses=PLANS)
async def plan_backfill(body: NewBackfill, submitter: ApiSubmit) -> Response:
    """Returns what a backfill would do, item by item. The manager plans it, and creates nothing."""

    def payload(request_id: str) -> dict[str, Any]:
        checked = _payload(body, submitter, request_id)
        if not has_active_manager(submitter.store, submitter.context.clock.now()):
            raise NoActiveManager("A manager plans a dry run, and none is running.", hint="start_manager")
        return checked

    submitted = await submitter.submit(request_kinds.BACKFILL_DRY_RUN, payload, wait_s=PLAN_TIMEOUT_S)
    if submitted.answer is None:
        later = f"the plan will be in {PREFIX}/requests/{submitted.request.request_id}"
        raise NoActiveManager(
            f"The manager has not planned it within {PLAN_TIMEOUT_S:g} s; see {PREFIX}/health. Else {later}."
        )
    if submitted.refusal:
        raise submitted.refusal
    return Response(submitted.answer.payload_json or '{"items": [], "summary": {}}', media_type="application/json")


@router.get("/{backfill_id}", operation_id="get_backfill", **reads(r.BackfillDetails))
@read_from(*TABLES, ttl_s=PACE_TTL_S)
def get_backfill(backfill_id: Id, reader: Reader) -> Any:
    """Returns a backfill by its id, a unique prefix of it, or `latest`."""
    return counted_backfill(reader.context, backfill_id)


@router.patch("/{backfill_id}", operation_id="change_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_SET)
def change_backfill(backfill_id: Id, body: BackfillChanges, submitter: ApiSubmit) -> Payload:
    """Changes the given settings of an unfinished backfill. `overrides` and `conf` are replaced as a whole. With `was`, a change
    that somebody else has made in the meantime is not overwritten."""
    backfill = find_backfill(submitter.store, backfill_id)
    was = None if body.was is None else body.was.model_dump(exclude_unset=True)  # null: that there was none
    return checked_payloads.changed_backfill(submitter.store, submitter.context.settings, backfill, body.given(), was)


@router.delete("/{backfill_id}", operation_id="delete_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_HIDE)
def delete_backfill(backfill_id: Id, submitter: ApiSubmit) -> Payload:
    """Cancels an unfinished backfill and hides it from lists. Its runs are kept, and its id can still be used."""
    return {"backfill_id": find_backfill(submitter.store, backfill_id)["backfill_id"]}


@router.get("/{backfill_id}/items", operation_id="list_items", **reads(r.Page[r.Item]))
@read_from(*TABLES)
def list_items(
    backfill_id: Id, reader: Reader, paging: Annotated[Paging, paged("ordinal", "-ordinal", limit=100)],
    state: Annotated[list[ItemState] | None, IN_STATES] = None,
) -> Any:  # fmt: skip
    """Returns the items of a backfill (intervals or partitions) in the order in which they were planned, each with its run."""
    order = paging.order("ordinal")
    _, start = paging.after(records.BackfillItem, order) or (None, None)
    backfill = known_backfill(reader.context, backfill_id)
    if start is None and order.descending:
        start = backfill["planned"] + 1
    after, before = (None, start) if order.descending else (start, None)
    rows = backfill_items.list_items(
        reader.store, backfill["backfill_id"], in_states=state or (), after=after, before=before, limit=paging.limit,
        reverted=lambda: reverted_runs(reader.context, backfill["backfill_id"]),
    )  # fmt: skip
    items, last = (rows.items[::-1], rows.before) if order.descending else (rows.items, rows.after)
    return paging.page(items, None if last is None else (last, last))


@router.get("/{backfill_id}/running", operation_id="list_running_tasks", **reads(r.Page[r.RunningTask]))
@read_from(*TABLES, "dag_run", "task_instance", ttl_s=1)
def list_running(backfill_id: Id, reader: Reader) -> Any:
    """Returns the running task instances of a backfill, longest-running first, on one page."""
    running = running_tasks(reader.store, counted_backfill(reader.context, backfill_id), reader.now())
    return {"items": running, "next_cursor": None}


@router.post("/{backfill_id}/pause", operation_id="pause_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_PAUSE)
def pause(backfill_id: Id, submitter: ApiSubmit) -> Payload:
    """Pauses a backfill. No new runs are started; running ones continue."""
    return check_not_ended(find_backfill(submitter.store, backfill_id), "pause")


@router.post("/{backfill_id}/unpause", operation_id="unpause_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_UNPAUSE)
def unpause(backfill_id: Id, submitter: ApiSubmit) -> Payload:
    """Unpauses a backfill."""
    return check_not_ended(find_backfill(submitter.store, backfill_id), "unpause")


@router.post("/{backfill_id}/cancel", operation_id="cancel_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_CANCEL)
def cancel(backfill_id: Id, submitter: ApiSubmit, body: Cancel | None = None) -> Payload:
    """Cancels a backfill. Pending items never run. Running ones are stopped, or may finish with `let_running_finish`."""
    payload = check_not_ended(find_backfill(submitter.store, backfill_id), "cancel")
    return {**payload, **(body or Cancel()).model_dump()}


@router.post("/{backfill_id}/retry", operation_id="retry_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_RETRY)
def retry(backfill_id: Id, submitter: ApiSubmit, body: Retry | None = None) -> Payload:
    """Runs the failed items of a backfill again, all of them or those in `items`, with the DAG version of the backfill or with
    the current version."""
    how, row = body or Retry(), find_backfill(submitter.store, backfill_id)
    checked = retried_backfill(row, latest_version=how.latest_version, items=how.items)
    return {**how.model_dump(exclude={"items"}), **checked}


@router.post("/{backfill_id}/diff", operation_id="diff_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_DIFF)
def compare(backfill_id: Id, submitter: ApiSubmit, body: Diff | None = None) -> Payload:
    """Compares the rows that a preview has written with the current tables. `result` of the request contains the `tables`."""
    payload = previewed_backfill(find_backfill(submitter.store, backfill_id))
    return {**payload, **(body or Diff()).model_dump(mode="json")}


@router.post("/{backfill_id}/promote", operation_id="promote_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_PROMOTE)
def promote(backfill_id: Id, submitter: ApiSubmit, body: Promote | None = None) -> Payload:
    """Moves the rows that a preview has written into the tables, in one commit per table. `result` of the request contains the
    new table versions."""
    payload = previewed_backfill(find_backfill(submitter.store, backfill_id))
    return {**payload, **(body or Promote()).model_dump()}


@router.post("/{backfill_id}/discard", operation_id="discard_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_DISCARD)
def discard(backfill_id: Id, submitter: ApiSubmit) -> Payload:
    """Deletes the clones of a preview that has ended."""
    return previewed_backfill(find_backfill(submitter.store, backfill_id))


@router.post("/{backfill_id}/revert", operation_id="revert_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_REVERT)
def revert(backfill_id: Id, submitter: ApiSubmit, body: Revert | None = None) -> Payload:
    """Reverts a backfill: restores the intervals that its runs have written to what they were before, in all its tables.
    `result` of the request lists the intervals, and the runs that have read them since (`read_by`)."""
    return reverted_backfill(find_backfill(submitter.store, backfill_id), dry_run=(body or Revert()).dry_run)


@router.patch("/{backfill_id}/note", operation_id="note_backfill", **CHANGE)
@submits(request_kinds.BACKFILL_NOTE)
def note(backfill_id: Id, body: Note, submitter: ApiSubmit) -> Payload:
    """Sets the note of a backfill in any state. It replaces the existing note; an empty `text` removes it. With `was`, a note
    that somebody else has written in the meantime is not overwritten."""
    return checked_payloads.noted_backfill(find_backfill(submitter.store, backfill_id), body.text, body.was)


def _payload(body: NewBackfill, submitter: ApiSubmitter, request_id: str) -> dict[str, Any]:
    store, context = submitter.store, submitter.context
    id = id_from(request_id)
    return checked_payloads.typed_backfill(store, context.settings, body, id, context.clock.now())
