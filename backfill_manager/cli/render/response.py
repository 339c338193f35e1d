"""What became of a request: the manager's answer if one leads and is quick, else a word that it waits."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.cli.context import CliContext
from backfill_manager.model.records import Request, Response
from backfill_manager.queries.managers import START_ONE
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import REFUSED

PATIENCE_S: Final = 5.0
NO_ACTIVE_MANAGER: Final = f"No manager is leading; the request waits for one: {START_ONE}."


def answered(call: CliContext, request: Request, patience_s: float = PATIENCE_S) -> Response | None:
    """The manager's answer; None (and a remark) when none leads, or it takes longer. `Refused` with its reason."""
    if not call.source.has_active_manager():
        call.out.remark(NO_ACTIVE_MANAGER)
        return None
    answer = call.source.response_to(request, patience_s)
    if answer is None:
        call.out.remark(
            f"The manager has not answered within {patience_s:g} s; see `bfm requests show {request.request_id}`."
        )
    elif answer.outcome == REFUSED:
        raise refusal(answer)
    return answer


def what_of(request: Request) -> dict[str, Any]:
    """What was asked, as the request tells it."""
    said: dict[str, Any] = json.loads(request.payload_json)
    return said


def print_response(call: CliContext, request: Request, what: str, **about: Any) -> None:
    """Print how it went; `Refused` with the manager's reason. `what` is said when the manager says nothing itself."""
    answer = answered(call, request)
    told = {
        "request_id": request.request_id,
        "kind": request.kind,
        **about,
        "outcome": answer.outcome if answer else "waiting",
        "message": answer.message if answer else None,
    }
    if not call.out.is_table:
        call.out.document(told)
    elif answer is not None:
        call.out.line(answer.message or f"{what}: done.")
    else:
        call.out.line(f"{what}: asked for (request {request.request_id}).")
