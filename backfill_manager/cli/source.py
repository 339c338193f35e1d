"""Where a command reads and asks: the tables of the state, or a server that stands before them.

A command calls `call.source` and prints what comes back, the same documents either way (those of `views`), and the same
errors. What is asked comes back as the `Request` that was made of it, and is refused before that where the state says no.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from backfill_manager.cli.creating import Wish
    from backfill_manager.model.records import Request, Response
    from backfill_manager.requests.clearing import ClearAsk

Thing = dict[str, Any]  # a document with the fields that `--output json` shows
Steering = Literal["pause", "unpause", "cancel", "retry"]
RunMark = Literal["success", "failed"]
TaskMark = Literal["success", "failed", "skipped"]


@dataclass(frozen=True)
class Log:
    """Lines of a task's log; `is_whole`: nothing will be added any more. `seen` goes on behind the last line."""

    lines: list[Thing]
    state: str
    is_whole: bool

    @property
    def seen(self) -> tuple[int, int] | None:
        return (self.lines[-1]["launch"], self.lines[-1]["line"]) if self.lines else None


class Source(Protocol):
    def close(self) -> None: ...

    # -- what there is ------------------------------------------------------------------------------------------------
    def somebody_leads(self) -> bool: ...

    def manager(self) -> Thing: ...

    def backfills(self, *, dag_id: str | None, in_states: Sequence[str], limit: int | None) -> list[Thing]: ...

    def backfill(self, wanted: str, *, time_left: bool = False) -> Thing:
        """`time_left`: with `time_left_s` and `finishes_at`, which costs a look at its runs."""

    def items(
        self, backfill_id: str, *, in_states: Sequence[str] = (), limit: int | None = None, offset: int = 0
    ) -> list[Thing]: ...

    def running_tasks(self, backfill: Thing) -> list[Thing]:
        """Its task instances that run now, longest first, with `for_s` seconds."""

    def dags(self, *, active: bool | None = True) -> list[Thing]:
        """None: with those that are not active any more."""

    def dag(self, dag_id: str) -> Thing: ...

    def next_intervals(self, dag_id: str, n: int) -> list[Thing]: ...

    def import_errors(self) -> list[Thing]: ...

    def versions(self, dag_id: str) -> list[Thing]: ...

    def version_diff(self, dag_id: str, before: int, after: int) -> Thing: ...

    def timeline(self, dag_id: str, limit: int | None) -> list[Thing]: ...

    def runs(
        self, *, dag_id: str | None, backfill: str | None, in_states: Sequence[str], limit: int | None
    ) -> list[Thing]: ...

    def run(self, wanted: str, dag_id: str | None) -> Thing: ...

    def tasks_of(self, run: Thing) -> Thing:
        """`{"tasks": [...], "tries": [...]}` of a run."""

    def log(self, run: Thing, task_id: str, *, try_number: int | None, after: tuple[int, int] | None) -> Log: ...

    def pools(self) -> list[Thing]: ...

    def bundles(self) -> list[Thing]: ...

    def requests(self, limit: int | None) -> list[Thing]: ...

    def request(self, wanted: str) -> Thing: ...

    # -- what can be asked --------------------------------------------------------------------------------------------
    def answer_to(self, request: Request, patience_s: float) -> Response | None:
        """The manager's answer, or None when it has not come within so many seconds."""

    def create_backfill(self, wish: Wish, request_id: str | None) -> Request: ...

    def plan_backfill(self, wish: Wish) -> Thing: ...

    def steer_backfill(self, wanted: str, how: Steering, **more: Any) -> Request: ...

    def change_backfill(self, backfill: Thing, changes: Thing) -> Request: ...

    def steer_dag(self, dag_id: str, how: Literal["pause", "unpause", "deactivate"]) -> Request: ...

    def parse_bundle(self, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> Request: ...

    def parse_here(self, bundle: str, subpath: str, *, deactivate_removed: bool) -> Thing:
        """The dry run when no manager leads: what parsing would change, read by this process."""

    def deactivate_in_bundle(self, bundle: str, subpath: str) -> Request: ...

    def trigger(self, dag_id: str, logical_date: str | None, conf: Thing, *, allow_future: bool) -> Request: ...

    def cancel_run(self, run: Thing) -> Request: ...

    def mark_run(self, run: Thing, state: RunMark) -> Request: ...

    def mark_task(self, run: Thing, task_id: str, state: TaskMark) -> Request: ...

    def plan_clear(self, ask: ClearAsk) -> Thing: ...

    def clear(self, ask: ClearAsk) -> Request: ...

    def set_pool(self, name: str, slots: int, weight: int | None, min_share: int | None) -> Request: ...
