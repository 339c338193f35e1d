"""Where a command reads and asks: the tables of the state, or a server that stands before them.

A command calls `call.source` and prints what comes back, the same documents either way (those of `views`), and the same
errors. What is asked comes back as the `Request` that was made of it, and is refused before that where the state says no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from backfill_manager.cli.commands.creating import Wish
    from backfill_manager.model.records import Request, Response
    from backfill_manager.schemas.commands import ClearTasks

Document = dict[str, Any]  # a document with the fields that `--output json` shows
BackfillAction = Literal["pause", "unpause", "cancel", "retry"]
RunMark = Literal["success", "failed"]
TaskMark = Literal["success", "failed", "skipped"]


@dataclass(frozen=True)
class Log:
    """Lines of a task's log; `is_whole`: nothing will be added any more. `seen` goes on behind the last line."""

    lines: list[Document]
    state: str
    is_whole: bool

    @property
    def seen(self) -> tuple[int, int] | None:
        return (self.lines[-1]["launch"], self.lines[-1]["line"]) if self.lines else None


class Backend(Protocol):
    def close(self) -> None: ...

    # -- what there is ------------------------------------------------------------------------------------------------
    def has_active_manager(self) -> bool: ...

    def manager(self) -> Document: ...

    def backfills(self, *, dag_id: str | None, in_states: Sequence[str], limit: int | None) -> list[Document]: ...

    def backfill(self, wanted: str, *, time_left: bool = False) -> Document:
        """`time_left`: with `time_left_s` and `finishes_at`, which costs a look at its runs."""

    def items(
        self, backfill_id: str, *, in_states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Document]: ...

    def running_tasks(self, backfill: Document) -> list[Document]:
        """Its task instances that run now, longest first, with `for_s` seconds."""

    def dags(self, *, active: bool | None = True) -> list[Document]:
        """None: with those that are not active any more."""

    def dag(self, dag_id: str) -> Document: ...

    def next_intervals(self, dag_id: str, n: int) -> list[Document]: ...

    def import_errors(self) -> list[Document]: ...

    def versions(self, dag_id: str) -> list[Document]: ...

    def version_diff(self, dag_id: str, before: int, after: int) -> Document: ...

    def timeline(self, dag_id: str, limit: int | None) -> list[Document]: ...

    def runs(
        self, *, dag_id: str | None, backfill: str | None, in_states: Sequence[str], limit: int | None
    ) -> list[Document]: ...

    def run(self, wanted: str, dag_id: str | None) -> Document: ...

    def tasks_of(self, run: Document) -> Document:
        """`{"tasks": [...], "tries": [...]}` of a run."""

    def log(self, run: Document, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log: ...

    def pools(self) -> list[Document]: ...

    def bundles(self) -> list[Document]: ...

    def requests(self, limit: int | None) -> list[Document]: ...

    def request(self, wanted: str) -> Document: ...

    # -- what can be asked --------------------------------------------------------------------------------------------
    def response_to(self, request: Request, patience_s: float) -> Response | None:
        """The manager's answer, or None when it has not come within so many seconds."""

    def create_backfill(self, wish: Wish, request_id: str | None) -> Request: ...

    def plan_backfill(self, wish: Wish) -> Document: ...

    def steer_backfill(self, wanted: str, how: BackfillAction, **more: Any) -> Request: ...

    def change_backfill(self, backfill: Document, changes: Document) -> Request: ...

    def steer_dag(self, dag_id: str, how: Literal["pause", "unpause", "deactivate"]) -> Request: ...

    def parse_bundle(self, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> Request: ...

    def parse_here(self, bundle: str, subpath: str, *, deactivate_removed: bool) -> Document:
        """The dry run when no manager leads: what parsing would change, read by this process."""

    def deactivate_in_bundle(self, bundle: str, subpath: str) -> Request: ...

    def trigger(self, dag_id: str, logical_date: str | None, conf: Document, *, allow_future: bool) -> Request: ...

    def cancel_run(self, run: Document) -> Request: ...

    def mark_run(self, run: Document, state: RunMark) -> Request: ...

    def mark_task(self, run: Document, task_id: str, state: TaskMark) -> Request: ...

    def plan_clear(self, ask: ClearTasks) -> Document: ...

    def clear(self, ask: ClearTasks) -> Request: ...

    def set_pool(self, name: str, slots: int, weight: int | None, min_share: int | None) -> Request: ...
