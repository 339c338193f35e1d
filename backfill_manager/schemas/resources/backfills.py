"""Backfills and their items."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic_core import core_schema

from backfill_manager.model import states
from backfill_manager.schemas.backfill_options import BackfillConfig, LargeUpdatableOptions, UpdatableOptions
from backfill_manager.schemas.resources.base import Document, Instant, Note, NoteAt, NoteBy, Resource

# Texts, as in `base`.
BackfillState = Annotated[str, Field(json_schema_extra={"enum": list(states.BACKFILL_STATES)})]
ItemState = Annotated[str, Field(json_schema_extra={"enum": list(states.ITEM_STATES)})]
Reprocess = Annotated[str, Field(json_schema_extra={"enum": ["none", "failed", "failed_tasks", "completed"]})]


class _AsDescribedBy:
    """Has a plain document's JSON schema be that of a model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # As an item of a list it is a reference: by itself it would be written out in every model that has it.
        reference: dict[str, Any] = handler(core_schema.list_schema(self._model.__pydantic_core_schema__))["items"]
        return reference


class Backfill(Resource, UpdatableOptions):
    """A backfill with its settings, and its number of items by state."""

    backfill_id: str = Field(description="Id of the backfill.")
    dag_id: str = Field(description="Id of the DAG.")
    state: BackfillState = Field(description="State of the backfill. `queued` until its first run starts.")
    config: Annotated[Document, _AsDescribedBy(BackfillConfig)] = Field(
        description="What was requested: `type`, dates or partitions, `run_backwards`, and `allow_future` if it was set. "
        "If there are many dates or partitions, lists contain the first ones, and `total`."
    )
    reprocess: Reprocess = Field(description="What happens to dates that already have a run.")
    is_paused: bool = Field(description="Whether the backfill is paused. It then starts no new runs.")
    created_at: Instant = Field(
        description="When the manager created it. While it waits for the manager: when it was requested."
    )
    started_at: Instant | None = Field(description="When its first run started.")
    completed_at: Instant | None = Field(description="When its last run ended.")
    planned: int = Field(description="Number of items, in any state.")
    pending: int = Field(description="Number of items that have no run yet.")
    running: int = Field(description="Number of items whose run has not ended.")
    success: int = Field(description="Number of items that succeeded.")
    failed: int = Field(description="Number of items that failed.")
    cancelled: int = Field(description="Number of items that were cancelled.")
    skipped: int = Field(description="Number of items that were planned but left out. Each has a reason.")
    reason: str | None = Field(description="Why it is in its state, if there is more to say.")
    is_cancelled: bool = Field(description="Whether it was cancelled. Nothing of it is started any more.")
    is_cancelling: bool = Field(
        description="Whether it was cancelled together with its running tasks, which are being stopped."
    )
    dag_version: int | None = Field(description="Version of the DAG that it runs. null until it is created.")
    ignore_first_depends_on_past: bool = Field(
        description="Whether its first item does not wait for the run before it."
    )
    parents: tuple[str, ...] = Field(description="Ids of the backfills that it waits for.")
    time_left_s: float | None = Field(
        description="Estimated seconds until it ends. null in lists, and if there is no estimate."
    )
    finishes_at: Instant | None = Field(description="Estimated time at which it ends.")
    timezone: str | None = Field(
        None, description="Time zone of the DAG, in which `window` is given. null if the DAG is not known."
    )
    waits_for: str | None = Field(description="What its pending items wait for until `waits_until`: its time window.")
    waits_until: Instant | None = Field(description="When its time window opens.")
    created_by: str = Field(description="User who requested it.")
    request_id: str = Field(description="Id of the request that created it.")
    hidden_at: Instant | None = Field(description="When it was deleted. Lists leave it out since then.")
    preview_id: str | None = Field(
        None,
        description="For a preview: id of the backfill that was created with `preview`. Downstream backfills share its "
        "clones.",
    )
    preview_outcome: str | None = Field(
        None, description="`promoted`, `discarded` or `expired`. null while its clones exist."
    )
    note: Note = None
    note_by: NoteBy = None
    note_at: NoteAt = None

    @property
    def has_ended(self) -> bool:
        return self.state in states.BACKFILL_FINISHED


class BackfillDetails(Backfill, LargeUpdatableOptions):
    """A backfill with the fields that lists leave out because they may be large."""


class PlannedItem(Resource):
    """An interval or partition of a backfill, before it is created."""

    ordinal: int = Field(description="Position in the order of creation, from 1.")
    logical_date: Instant | None = Field(description="Logical date of the item. null for a partition.")
    interval_start: Instant | None = Field(description="Start of its data interval.")
    interval_end: Instant | None = Field(description="End of its data interval (exclusive).")
    partition_key: str | None = Field(description="Partition key. null for a date.")
    state: ItemState = Field(description="State of the item. `skipped` if it will not run.")
    reason: str | None = Field(description="Why it is skipped, failed or cancelled.")


class Item(PlannedItem):
    """An interval or partition of a backfill, with its run."""

    run_id: str | None = Field(description="Id of the run that last processed the item.")
    batch: int | None = Field(description="Number of the batch. Items with the same number share a run.")
    reverted_at: Instant | None = Field(
        None, description="When its run was reverted. The rows that the run wrote no longer count."
    )
