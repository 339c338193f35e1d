"""`Backend`: where a command reads and submits, which is the state tables (`local`) or a server in front of them (`remote`).

Commands use `context.backend` and print the documents it gives: the same fields and the same errors either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.kinds import REFUSED

if TYPE_CHECKING:
    from backfill_manager.model.records import Request, Response

Document = dict[str, Any]  # with the fields that `--output json` shows


@dataclass(frozen=True)
class Log:
    """Lines of a task's log; `is_whole`: nothing will be added any more. `last` is where the next read continues."""

    lines: list[Document]
    state: str
    is_whole: bool

    @property
    def last(self) -> tuple[int, int] | None:
        return (self.lines[-1]["launch"], self.lines[-1]["line"]) if self.lines else None


def accepted(response: Response) -> Response:
    """The response, unless it is `Refused`."""
    if response.outcome == REFUSED:
        raise refusal(response)
    return response


class Backend(Protocol):
    """Ids may be an unambiguous prefix or `latest`; dates are text as typed. Lists are newest first; `limit=None`: all."""

    def close(self) -> None: ...

    # -- read ---------------------------------------------------------------------------------------------------------
    def has_active_manager(self) -> bool: ...

    def manager(self) -> Document: ...

    def backfills(self, *, dag_id: str | None, states: Sequence[str], limit: int | None) -> list[Document]: ...

    def backfill(self, backfill_id: str, *, with_eta: bool = False) -> Document:
        """`with_eta`: with `time_left_s` and `finishes_at`, for which its runs must be read."""

    def items(
        self, backfill_id: str, *, states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Document]: ...

    def running_tasks(self, backfill: Document) -> list[Document]:
        """Its task instances that run now, longest first, with `for_s` seconds."""

    def dags(self, *, active: bool | None = True) -> list[Document]:
        """None: also those that are not active any more."""

    def dag(self, dag_id: str) -> Document: ...

    def next_intervals(self, dag_id: str, n: int) -> list[Document]: ...

    def import_errors(self) -> list[Document]: ...

    def versions(self, dag_id: str) -> list[Document]: ...

    def version_diff(self, dag_id: str, before: int, after: int) -> Document: ...

    def timeline(self, dag_id: str, limit: int | None) -> list[Document]: ...

    def runs(
        self, *, dag_id: str | None, backfill_id: str | None, states: Sequence[str], limit: int | None
    ) -> list[Document]: ...

    def run(self, run_id: str, dag_id: str | None) -> Document: ...

    def run_tasks(self, run: Document) -> Document:
        """`{"tasks": [...], "tries": [...]}` of a run."""

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log: ...

    def pools(self) -> list[Document]: ...

    def bundles(self) -> list[Document]: ...

    def requests(self, limit: int | None) -> list[Document]: ...

    def request(self, request_id: str) -> Document: ...

    # -- submit -------------------------------------------------------------------------------------------------------
    def submit(self, kind: str, values: Mapping[str, Any], request_id: str | None = None) -> Request:
        """Submits a command (`kind` as in the request table) with its fields as typed. What can be refused without the
        manager is refused here."""

    def preview(self, kind: str, values: Mapping[str, Any]) -> Document:
        """What a `backfill.create`, `tasks.clear` or `bundle.parse` would do."""

    def wait(self, request: Request, timeout_s: float) -> Response | None:
        """The manager's response, or None when it has not come within so many seconds."""
