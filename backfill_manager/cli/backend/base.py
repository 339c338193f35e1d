"""What both backends share. A backend is where a command reads and submits: the state tables (`LocalBackend`), or a server
in front of them (`RemoteBackend`).

Commands use `context.backend` and print the documents it gives: the same fields and the same errors either way. Ids may be
an unambiguous prefix or `latest`; dates are text as typed. Lists are newest first; `limit=None`: all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import REFUSED

if TYPE_CHECKING:
    from backfill_manager.model.records import Response

Document = dict[str, Any]  # with the fields that `--output json` shows


class Log(NamedTuple):
    """Lines of a task's log, and the task's state; `is_whole`: nothing will be added any more."""

    lines: list[Document]
    state: str
    is_whole: bool


def accepted(response: Response) -> Response:
    """The response, unless it is `Refused`."""
    if response.outcome == REFUSED:
        raise refusal(response)
    return response
