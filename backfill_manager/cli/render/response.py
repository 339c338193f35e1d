"""What became of a request: the manager's response if one is active and quick, else a note that the request waits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from backfill_manager.cli.backend.base import Document, accepted
from backfill_manager.cli.backend.watched import watched_response
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.cli.render.printer import Output
from backfill_manager.errors import BackfillManagerError, InvalidInput, NoActiveManager
from backfill_manager.masking import mask_values
from backfill_manager.model.records import Request, Response

RESPONSE_TIMEOUT_S: Final = 5.0
RESULT_TIMEOUT_S: Final = 3600.0  # of what takes Spark jobs
NO_ACTIVE_MANAGER: Final = f"No manager is running; the request waits for one: {HINTS['start_manager']}."


def wait_for_response(context: CliContext, request: Request, timeout_s: float = RESPONSE_TIMEOUT_S) -> Response | None:
    """The manager's response; None (and a note) when none is active, or it takes longer. `Refused` with its reason."""
    if not context.backend.has_active_manager():
        context.out.note(NO_ACTIVE_MANAGER)
        return None
    response = watched_response(context, request, timeout_s)
    if response is None:
        context.out.note(
            f"The manager has not answered within {timeout_s:g} s; see `bfm requests show {request.request_id}`."
        )
        return None
    return accepted(response)


def payload_of(request: Request) -> dict[str, Any]:
    """What was asked, to be printed: without secrets."""
    payload: dict[str, Any] = mask_values(json.loads(request.payload_json))
    return payload


def submit(
    context: CliContext, kind: str, values: Mapping[str, Any], action: str, *names: str, timeout_s: float = RESPONSE_TIMEOUT_S
) -> None:  # fmt: skip
    """Submits a command and prints what became of it. `action` is filled with the payload; the document has its fields of
    these `names` (none: all)."""
    request = context.backend.submit(kind, values)
    payload = payload_of(request)
    fields = {name: payload[name] for name in names or payload}
    print_response(context, request, action.format(**payload), fields, timeout_s)


def print_response(
    context: CliContext, request: Request, action: str, fields: Mapping[str, Any], timeout_s: float = RESPONSE_TIMEOUT_S
) -> None:  # fmt: skip
    """Prints the outcome; `Refused` with the manager's reason. `action` is printed when the manager says nothing itself."""
    response = wait_for_response(context, request, timeout_s)
    text = f"{action}: submitted (request {request.request_id})."
    if response is not None:
        text = response.message or f"{action}: done."
    context.out.print_result(outcome_of(request, response, **fields), text)


def result_of(context: CliContext, kind: str, values: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What the manager answers; `NoActiveManager` without one, which `what` says for what it is needed."""
    if not context.backend.has_active_manager():
        context.backend.manager()  # without a state, that is what is wrong
        raise NoActiveManager(f"A manager {what}, and none is running.", hint="start_manager")
    request = context.backend.submit(kind, values)
    response = watched_response(context, request, RESULT_TIMEOUT_S, to="answer")
    if response is None:
        raise BackfillManagerError(f"No answer yet; it will be in `bfm requests show {request.request_id}`.")
    result: dict[str, Any] = json.loads(accepted(response).payload_json or "{}")
    return result


def print_planned(
    out: Output, plan: Document, print_plan: Callable[[Output, Document], None], *, dry_run: bool
) -> None:
    """What would be done, before it is confirmed or for a dry run. JSON is one document: the plan only in a dry run."""
    if out.is_table:
        print_plan(out, plan)
    elif dry_run:
        out.print_document(plan)


def carry_out_plan(
    context: CliContext, kind: str, values: Mapping[str, Any], print_plan: Callable[[Output, Any], None],
    action_of: Callable[[dict[str, Any]], str], *, dry_run: bool, yes: bool,
) -> int:  # fmt: skip
    """Prints what a command would do, asks, and has it done. `action_of` the plan: `Mark 2 runs success`."""
    plan: dict[str, Any] = context.backend.dry_run(kind, values)
    print_planned(context.out, plan, print_plan, dry_run=dry_run)
    if dry_run:
        return 0
    summary, action = plan["summary"], action_of(plan)
    verb = action.partition(" ")[0].lower()
    if not summary["runs"]:
        nothing = f"Nothing is to be {verb}ed."
        context.out.note(nothing)
        if not context.out.is_table:
            asked = {"request_id": None, "kind": kind, "summary": summary}
            context.out.print_document({**asked, "outcome": None, "message": nothing})
    elif yes or is_confirmed(context, f"{action}?", f"{verb}s", f"{verb}ed"):
        print_response(context, context.backend.submit(kind, values), action, {"summary": summary})
    return 0


def is_confirmed(context: CliContext, question: str, does: str, done: str) -> bool:
    """Asks on the terminal. `does`, `done`: what -y does without asking, and what was not done where the answer is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        raise InvalidInput(f"Nothing was {done}, as there was no answer; -y {does} without asking.")
    if answer.strip().lower() not in ("y", "yes"):
        context.out.note(f"Nothing was {done}.")
        return False
    return True


def outcome_of(request: Request, response: Response | None, **fields: Any) -> dict[str, Any]:
    outcome, message = (response.outcome, response.message) if response else ("waiting", None)
    return {"request_id": request.request_id, "kind": request.kind, **fields, "outcome": outcome, "message": message}
