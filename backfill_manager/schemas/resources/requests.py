"""Requests for a change, and the answers of the manager."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from backfill_manager.schemas.resources.base import Instant, Resource


class Response(Resource):
    """The manager's answer to a request."""

    outcome: Literal["accepted", "refused"] = Field(description="Whether the request was carried out.")
    object_id: str | None = Field(description="Id of the object that was created or changed.")
    message: str = Field(description="What was done, or why it was refused.")
    answered_at: Instant = Field(description="When the manager answered.")


class Request(Resource):
    """A request for a change: what was requested, by whom, from where, and the answer of the manager."""

    request_id: str = Field(description="Id of the request.")
    kind: str = Field(description="Kind of the request.", examples=["backfill.create"])
    state: Literal["waiting", "accepted", "refused"] = Field(description="`waiting` until the manager has answered.")
    about: dict[str, str] = Field(
        description="Ids and names of the objects that it is about.", examples=[{"dag_id": "flights"}]
    )
    requested_by: str = Field(description="Name of the token, or of the user of the command line.")
    requested_at: Instant = Field(description="When it was submitted.")
    source: str = Field(description="Interface that was used: `cli`, `api` or `ui`.", examples=["api"])
    requested_from: str | None = Field(description="Address of the client, for `api` and `ui`.")
    object_id: str | None = Field(description="Id of the object that was created or changed.")
    message: str | None = Field(description="What was done, or why it was refused. null while it waits.")
    answered_at: Instant | None = Field(description="When the manager answered.")
    answer: Response | None = Field(description="The answer as one object. null while it waits.")
    outcome: Literal["waiting", "accepted", "refused"] = Field(description="Same as `state`.")

    @property
    def is_answered(self) -> bool:
        return self.state != "waiting"


class RequestDetails(Request):
    """A request with its payload, which lists leave out because it may be large."""

    payload: Any = Field(description="Payload of the request. Its fields depend on `kind`.")
    result: Any = Field(default=None, description="Result of the request, if it has one besides the message.")
