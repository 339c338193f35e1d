"""Values between the parts of a tick: a request that is being handled, and what decisions have done after the commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from backfill_manager.execution.messages import LaunchKey, TaskLaunch
from backfill_manager.model.records import Request
from backfill_manager.schemas.commands import CreateBackfill


@dataclass(frozen=True)
class CancelTry:
    key: LaunchKey
    reason: str


@dataclass(frozen=True)
class MoveItems:
    """All items of a backfill in the state `was` get this state: one statement, however many they are. Done as part of the
    commit, before the rows of the tick."""

    backfill_id: str
    was: str
    state: str
    reason: str


@dataclass(frozen=True)
class PlanRequest:
    request_id: str
    kind: str
    backfill_id: str
    command: CreateBackfill
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
    """Carried out after the commit that says so, never before."""

    launches: list[TaskLaunch] = field(default_factory=list)
    cancels: list[CancelTry] = field(default_factory=list)
    moves: list[MoveItems] = field(default_factory=list)
    plans: list[PlanRequest] = field(default_factory=list)
    parses: list[ParseRequest] = field(default_factory=list)
    compactions: list[str] = field(default_factory=list)  # ids of requests to compact the whole state
    slots: dict[str, int] = field(default_factory=dict)  # pools whose slots have changed
    stop: bool = False
    drain: bool = True


@dataclass(frozen=True)
class Call:
    """A request while it is handled."""

    request: Request
    now: datetime
    todo: Instructions

    @property
    def id(self) -> str:
        return self.request.request_id

    @property
    def by(self) -> str:
        return self.request.requested_by


Answer = tuple[str | None, str]  # id of the object, message
