"""What one tick decides, in its order: the one path through all decisions, for the manager and for tests in memory.

    prefetch ─► outcomes ─► requests ─► schedule ─► runs ─► batches that end early ─► backfills ─► new runs ─► late runs
      ─► dispatch

Nothing here runs a task or waits. Tables are read by `prefetch` and by handlers of requests, between commits, when they agree
with memory. Plans and parse results that have come are committed by the loop before (`tick`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from backfill_manager.errors import StateError
from backfill_manager.execution.messages import Event
from backfill_manager.humanise import plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.decisions import (
    apply_outcomes,
    backfill_runs,
    data_waits,
    end_batches_early,
    notification_rules,
    runs,
    schedule,
    task_slots,
)
from backfill_manager.manager.decisions.crash_loops import isolation_ends_at
from backfill_manager.manager.operations.request_handler import RequestHandler
from backfill_manager.manager.prefetch import prefetch
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.telemetry.logged_changes import Line, logged_changes
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.records import Request
from backfill_manager.model.transitions import Changes
from backfill_manager.schemas import request_kinds
from backfill_manager.store.base import Leader, Store

log = get_logger("tick")


class Decisions:
    def __init__(
        self, state: ManagerState, store: Store, leader: Leader, on_commit: Callable[[Changes], None] = lambda _: None
    ) -> None:
        """`on_commit` is called after each commit of rows, with them."""
        self.state, self._store, self.leader, self._on_commit = state, store, leader, on_commit
        self.requests = RequestHandler(state, store, leader.row)
        self.draining = False  # starts no task, and makes no scheduled run

    def decide(
        self, events: Iterable[Event], requests: Iterable[Request], free: Mapping[str, int], now: datetime
    ) -> Tick:
        """Changes the state, and returns what is to be done after the commit. `free`: unused slots by pool."""
        tick = Tick(self.state, now, self.leader.next_seq)
        self.state.wait_checks_wanted = {}
        apply_outcomes.apply_outcomes(self.state, events, self.leader.term)
        self.requests.handle(requests, tick)
        if not self.draining:
            schedule.fire_schedules(tick)
        runs.advance_runs(tick)
        end_batches_early.end_batches_early(tick)
        before = set(self.state.runs)
        backfill_runs.advance_backfills(tick)
        if set(self.state.runs) - before:
            runs.advance_runs(tick)  # new runs may start in this tick
        self.state.forget_looks()
        notification_rules.find_late_runs(tick)
        if not self.draining:
            task_slots.dispatch(tick, free)
        return tick

    def prefetch(self, now: datetime) -> None:
        """Reads the rows that the decisions need, before anything is decided in this tick."""
        prefetch(self.state, self._store, now)

    def commit(self, tick: Tick) -> bool:
        """The group commit of the tick; True if there was anything to commit."""
        changes = self.state.take_changes()
        for move in tick.moves:
            self.leader.move_items(*move)
        if len(changes):
            self.leader.commit(changes)
            self._on_commit(changes)
            log_lines(logged_changes(changes, tick.now, tick.halted))
        if not self.requests.has_unanswered:  # a plan may come for a version that is no longer current
            self.state.evict_versions()
        return bool(len(changes) or tick.moves)

    def compact_state(self, request_id: str, now: datetime) -> None:
        """Compacts the whole state for a request. A failure is the response: a manager that ended of it would handle the same
        request again at its next start."""
        try:
            files = self.leader.compact(everywhere=True)
        except StateError as error:
            self.requests.refuse(request_id, request_kinds.STATE_COMPACT, now, error)
        else:
            message = f"the tables have {plural(sum(files.values()), 'file')} now"
            self.requests.accept(request_id, request_kinds.STATE_COMPACT, now, None, message, {"files": files})

    def next_due(self, now: datetime) -> datetime | None:
        """When the next decision is due even if nothing happens: a retry, a scheduled run, a time window, the end of a
        wait for tables, the end of the time that a suspect task runs alone."""
        tasks = [ti for _, ti in self.state.tasks()]
        due = [ti.retry_at for run, ti in self.state.tasks() if ti.state == s.UP_FOR_RETRY and run.may_start]
        due += [backfill_runs.next_window_opening(self.state), data_waits.next_wait_end(self.state)]
        due += [notification_rules.next_deadline(self.state, now)]
        if not self.draining:
            due += [schedule.next_due(self.state, now), isolation_ends_at(tasks, now)]
        return min((at for at in due if at is not None), default=None)


def log_lines(lines: Iterable[Line]) -> None:
    for line in lines:
        (log.warning if line.is_warning else log.info)(line.event, **line.fields)
