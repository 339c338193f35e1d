"""Values between the parts of a tick: what its decisions are made with, and what they have done after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from backfill_manager.execution.messages import LaunchKey, TaskLaunch
from backfill_manager.execution.promote_revert.revert import WrittenTable
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Record, Request, RunKey, TaskInstance
from backfill_manager.number_ranges import Ranges
from backfill_manager.schemas.backfill_options import CreateBackfill


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


@dataclass(frozen=True)
class PreviewJob:
    """What is done with the clones of a preview, outside of the tick."""

    request_id: str
    kind: str
    preview_id: str
    pool: str
    rebase: bool = False  # of promote
    key: tuple[str, ...] = ()  # of diff, as is the next
    table: str | None = None


@dataclass(frozen=True)
class RevertJob:
    """What is done with the tables that some runs have written, outside of the tick."""

    request_id: str
    kind: str
    object_id: str  # the run or the backfill
    pool: str
    runs: tuple[RunKey, ...]
    tables: tuple[WrittenTable, ...]
    dry_run: bool


class MoveItems(NamedTuple):
    """All items of a backfill in the state `was` (of these ordinals) get this state: one statement, however many they are.
    Done as part of the commit, before the rows of the tick."""

    backfill_id: str
    was: str
    state: str
    reason: str
    ordinals: Ranges | None = None


@dataclass
class Tick:
    """What every decision of one tick is given. The lists are carried out after the commit that says so, never before."""

    state: ManagerState
    now: datetime
    next_seq: Callable[[int], int]  # reserves so many numbers of `run_seq`; returns the first
    launches: list[TaskLaunch] = field(default_factory=list)
    cancels: list[tuple[LaunchKey, str]] = field(default_factory=list)  # with the reason
    moves: list[MoveItems] = field(default_factory=list)
    plans: list[PlanRequest] = field(default_factory=list)
    parses: list[ParseRequest] = field(default_factory=list)
    table_jobs: list[PreviewJob | RevertJob] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)  # previews whose clones are to be deleted
    compactions: list[str] = field(default_factory=list)  # ids of requests to compact the whole state
    prunes: list[str] = field(default_factory=list)  # ... to delete what is older than its age now
    halted: list[ActiveBackfill] = field(default_factory=list)  # that have ended or paused themselves, for the log
    slots: dict[str, int] = field(default_factory=dict)  # pools whose slots have changed
    stop: bool = False
    drain: bool = True

    def put(self, row: Record) -> None:
        self.state.put(row)

    def cancel(self, tasks: Iterable[TaskInstance], reason: str) -> bool:
        """Has those that are queued or running stopped; True if any is."""
        started = [ti for ti in tasks if ti.state in s.TASK_STARTED]
        self.cancels += [((ti.dag_id, ti.run_id, ti.task_id, ti.launch), reason) for ti in started]
        return bool(started)


@dataclass(frozen=True)
class Call:
    """A request while it is handled."""

    request: Request
    tick: Tick

    @property
    def id(self) -> str:
        return self.request.request_id

    @property
    def by(self) -> str:
        return self.request.requested_by

    @property
    def now(self) -> datetime:
        return self.tick.now


Answer = tuple[str | None, str]  # id of the object, message
Handler = Callable[[Any, Call], Answer | None]  # of one kind of command; None: the answer comes later
