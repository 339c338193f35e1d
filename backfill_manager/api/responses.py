"""Answers to changes: `202` with the request; with `?wait=seconds` what the manager says of it, if it says it in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response

from backfill_manager.api.auth import Operator
from backfill_manager.api.context import HouseOf
from backfill_manager.api.errors import problem_response
from backfill_manager.api.models import RequestView
from backfill_manager.api.submit import Asked, Payload, submit_request
from backfill_manager.model import records
from backfill_manager.queries.requests import request_details
from backfill_manager.schemas.kinds import REFUSED

PREFIX: Final = "/api/v1"
LONGEST_WAIT_S: Final = 60
Wait = Annotated[
    float,
    Query(ge=0, le=LONGEST_WAIT_S, allow_inf_nan=False, description="Seconds to wait for the manager's answer."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1, max_length=200,
        description="Of your own choice: the same key with the same body makes one request, however often it is sent.",
    ),
]  # fmt: skip


def request_document(view: dict[str, Any]) -> dict[str, Any]:
    """`queries.requests.request_view` (or `request_details`) with `state` and the answer as one thing."""
    answered = view["outcome"] in ("accepted", "refused")
    answer = {name: view[name] for name in ("outcome", "object_id", "message", "answered_at")}
    return {**view, "state": view["outcome"], "answer": answer if answered else None}


def place_of(request: records.Request) -> str:
    return f"{PREFIX}/requests/{request.request_id}"


class Asking:
    """What a handler that changes something is given."""

    def __init__(
        self,
        request: Request,
        house: HouseOf,
        person: Operator,
        wait: Wait = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        self._request, self.house, self.person = request, house, person
        self._wait_s, self._key = wait, idempotency_key
        self.store = house.store

    async def ask(self, kind: str, payload: Callable[[str], Payload], *, wait_s: float | None = None) -> Asked:
        return await submit_request(
            self.house, self.person, self._request, kind, payload,
            wait_s=self._wait_s if wait_s is None else wait_s, idempotency_key=self._key,
        )  # fmt: skip

    async def __call__(
        self, kind: str, payload: Callable[[str], Payload], *, made_at: Callable[[str], str] | None = None
    ) -> Response:
        """`payload(request_id)` is called in a thread: it may read the state. `made_at` gives the address of the new
        thing by its id: then it is `201`."""
        return self.told(await self.ask(kind, payload), made_at=made_at)

    def told(self, asked: Asked, *, made_at: Callable[[str], str] | None = None) -> Response:
        answer, headers = asked.answer, {"Location": place_of(asked.request)}
        if answer is not None and answer.outcome == REFUSED:
            return problem_response(
                self._request.url.path, 409, answer.message, name="refused", title="Refused by the manager",
                headers=headers,
            )  # fmt: skip
        status = 202 if answer is None else 200
        if answer is not None and made_at is not None:
            status = 201
            if answer.object_id is not None:
                headers["Location"] = made_at(answer.object_id)
        view = RequestView.model_validate(request_document(request_details(asked.request, answer)))
        return JSONResponse(view.model_dump(), status, headers=headers)


AskingOf = Annotated[Asking, Depends(Asking)]
