"""What all resources share: the base model, pages of a list, and the types of instants and states."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from backfill_manager.clock import format_instant
from backfill_manager.model import states

Document = dict[str, Any]
Instant = Annotated[
    AwareDatetime, PlainSerializer(format_instant, return_type=str),
    Field(json_schema_extra={"format": "date-time"}, examples=["2013-01-01T05:00:00Z"]),
]  # fmt: skip
# Texts, so that a client reads a state that a newer server has; the schema lists those of this release.
RunState = Annotated[str, Field(json_schema_extra={"enum": list(states.RUN_STATES)})]
RunType = Annotated[str, Field(json_schema_extra={"enum": list(states.RUN_TYPES)})]
TaskState = Annotated[str, Field(json_schema_extra={"enum": list(states.TASK_STATES)})]
Note = Annotated[str | None, Field(description="Note that a person has added.")]
NoteBy = Annotated[str | None, Field(description="User who last changed the note.")]
NoteAt = Annotated[Instant | None, Field(description="When the note was last changed.")]
T = TypeVar("T")


class Resource(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", strict=False, defer_build=True, json_schema_serialization_defaults_required=True
    )

    def document(self) -> Document:
        """The JSON form."""
        return self.model_dump(mode="json")


class Page(Resource, Generic[T]):
    """One page of a list."""

    items: tuple[T, ...] = Field(description="Rows of this page.")
    next_cursor: str | None = Field(description="`cursor` of the next page. null on the last page.")
