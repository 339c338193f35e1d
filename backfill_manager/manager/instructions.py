"""What decisions ask to be done, as values: carried out after the commit that says so, never before."""

from __future__ import annotations

from dataclasses import dataclass, field

from backfill_manager.execution.messages import LaunchKey, TaskLaunch
from backfill_manager.requests.backfills import CreateBackfill


@dataclass(frozen=True)
class CancelTry:
    key: LaunchKey
    reason: str


@dataclass(frozen=True)
class MoveItems:
    """All items of a backfill whose state `was` take this state: one statement, however many they are. Done as part of
    the commit, before the rows of the tick."""

    backfill_id: str
    was: str
    state: str
    reason: str


@dataclass(frozen=True)
class PlanRequest:
    request_id: str
    kind: str
    backfill_id: str
    ask: CreateBackfill
    requested_by: str


@dataclass(frozen=True)
class ParseRequest:
    request_id: str
    bundle: str
    subpath: str  # within the bundle; "" is all of it
    dry_run: bool
    deactivate_removed: bool


@dataclass
class Instructions:
    launches: list[TaskLaunch] = field(default_factory=list)
    cancels: list[CancelTry] = field(default_factory=list)
    moves: list[MoveItems] = field(default_factory=list)
    plans: list[PlanRequest] = field(default_factory=list)
    parses: list[ParseRequest] = field(default_factory=list)
    compactions: list[str] = field(default_factory=list)  # requests to tidy up the whole state
    slots: dict[str, int] = field(default_factory=dict)  # pools whose slots have changed
    stop: bool = False
    drain: bool = True
