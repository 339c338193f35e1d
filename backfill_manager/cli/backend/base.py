"""What both backends share. A backend is where a command reads and submits: the state tables (`LocalBackend`), or a server
in front of them (`RemoteBackend`).

Commands use `context.backend` and print the documents it gives: the same fields and the same errors either way. Ids may be
an unambiguous prefix or `latest`; dates are text as typed. Lists are newest first; `limit=None`: all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backfill_manager.errors import NotFound
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.request_kinds import REFUSED

if TYPE_CHECKING:
    from backfill_manager.model.records import Response

Document = dict[str, Any]  # with the fields that `--output json` shows
Log = tuple[list[Document], str, bool]  # a task's lines, its state, and whether nothing will be added any more


def accepted(response: Response) -> Response:
    """The response, unless it is `Refused`. That there is no such thing, which for bundles only an active manager knows (its
    configuration may be another one than ours), ends with the same exit code as elsewhere."""
    if response.outcome == REFUSED:
        error = refusal(response)
        if error.code == "not_found":
            error.exit_code = NotFound.exit_code
        raise error
    return response
