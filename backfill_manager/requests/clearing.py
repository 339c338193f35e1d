"""Asking to clear: which finished task instances shall run again.

Dates are text as a person wrote them: one expression may choose DAGs in several time zones, and a date without an offset
means each DAG's own. What they come to is decided by `planning.clear_plan`, for the preview and for the deed alike.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from backfill_manager.errors import InvalidInput
from backfill_manager.requests.regex_safety import check_expression


@dataclass(frozen=True)
class ClearTasks:
    dag: str  # a DAG's id, or an expression that is found somewhere in the id
    is_regex: bool = False
    start: str | None = None  # logical dates from here on (inclusive) ...
    end: str | None = None  # ... to here (inclusive; a date alone: all of that day); None: no limit
    run_ids: tuple[str, ...] = ()  # only these runs; none: every run in the dates
    tasks: str | None = None  # an expression that is found somewhere in the task's id; None: all
    upstream: bool = False  # and every task before them
    downstream: bool = False  # and every task after them
    only_failed: bool = False
    only_running: bool = False  # they are stopped first
    latest_version: bool = False  # they run with the DAG's current version

    def to_payload(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "run_ids": list(self.run_ids)}

    @classmethod
    def from_payload(cls, plain: dict[str, Any]) -> ClearTasks:
        """`InvalidInput` or `TypeError` for what can't be one."""
        ask = cls(**{**plain, "run_ids": tuple(plain.get("run_ids", ()))})
        ask.check()
        return ask

    def check(self) -> None:
        """`InvalidInput` for whatever is wrong whichever DAGs there are."""
        for name in ("is_regex", "upstream", "downstream", "only_failed", "only_running", "latest_version"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be true or false, not {getattr(self, name)!r}")
        texts = (self.dag, *self.run_ids, *(text for text in (self.start, self.end, self.tasks) if text is not None))
        if not all(isinstance(text, str) and text for text in texts):
            raise InvalidInput("dag, start, end, tasks and run_ids must be texts that are not empty")
        if self.only_failed and self.only_running:
            raise InvalidInput("--only-failed and --only-running leave nothing together; use one of them")
        expressions = [("--dag-regex", self.dag)] if self.is_regex else []
        expressions += [("--tasks", self.tasks)] if self.tasks is not None else []
        for option, text in expressions:
            check_expression(option, text)
