"""One tick of the manager: gather what happened, decide, commit once, and only then act.

    plans, parse results, outcomes, requests ─► decisions over ManagerState ─► one group commit ─► launches, cancels, plans

Ticks are woken by events, never by the clock alone. After idleness a tick runs at once; under load ticks keep a distance of a
few times the last commit's duration, so that bookkeeping takes a small share of the machine and events are batched. The pause
is cut short when a client waits for a response, and when a pool has finished half of what it was given: no slot waits for a tick.

A commit that fails for any reason ends the manager: the next leader goes on from the tables (crash-only). Running out of file
descriptors is known beforehand: a tick waits until there are enough for its commit, before it reads or decides anything. (The
lease is kept meanwhile, if there are enough for its heartbeat; else it runs out.)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from backfill_manager import descriptors
from backfill_manager.clock import Clock
from backfill_manager.dags.catalog import SubmissionResult
from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import LaunchKey, TaskLaunch
from backfill_manager.logging import get_logger
from backfill_manager.manager.bundle_watcher import AllBundlesParsed, ParseResult
from backfill_manager.manager.create_backfill import create_backfills
from backfill_manager.manager.decisions import Decisions
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.instructions import Instructions, ParseRequest, PlanRequest
from backfill_manager.manager.metrics import TickMetrics
from backfill_manager.manager.planner import PlanResult
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Request
from backfill_manager.planning.downstream_plan import Dags
from backfill_manager.schemas import kinds
from backfill_manager.store.base import Leader, Store

log = get_logger("tick")

PAUSE_PER_COMMIT: Final = 8.0  # under load: so many times the last commit's duration, or once if a pool needs work
MAX_PAUSE_S: Final = 1.0
MAX_SLEEP_S: Final = 3600.0  # the machine's clock may be set meanwhile
DESCRIPTORS_POLL_INTERVAL_S: Final = 0.5


class TaskRunner(Protocol):
    """What a tick needs of `execution.executor.Executor`."""

    def launch(self, launch: TaskLaunch) -> None: ...
    def cancel(self, key: LaunchKey, reason: str) -> bool: ...
    def set_slots(self, pool: str, slots: int) -> None: ...
    def free(self, pool: str) -> int: ...
    def load(self) -> Counter[str]: ...


class BackfillPlanner(Protocol):
    def plan(self, request: PlanRequest, spec: DagSpec, dag_version: int, others: Dags) -> None: ...


class BundleParsers(Protocol):
    def parse(self, request: ParseRequest) -> None: ...


class TickLoop:
    """Runs in the manager's own thread. `planner` and `bundles` may be missing where no request asks for them;
    `on_stop(drain)` is called when a client has sent `manager.stop`."""

    def __init__(
        self,
        state: ManagerState,
        store: Store,
        leader: Leader,
        *,
        clock: Clock,
        executor: TaskRunner,
        events: EventQueue,
        planner: BackfillPlanner | None = None,
        bundles: BundleParsers | None = None,
        metrics: TickMetrics | None = None,
        on_stop: Callable[[bool], None] = lambda drain: None,
    ) -> None:
        self.state, self.decisions = state, Decisions(state, store, leader)
        self._store, self._clock, self._executor, self._events = store, clock, executor, events
        self._planner, self._bundles, self._on_stop = planner, bundles, on_stop
        self._metrics = metrics or TickMetrics()
        self._requests, self._dags = self.decisions.requests, state.catalog
        self._commit_s: float | None = None  # duration of the last tick's commit; None: there was nothing to commit
        self.has_parsed_all = False  # every bundle, and committed what was found
        self.draining = False

    def run_until(self, done: Callable[[], bool]) -> None:
        """Tick until `done()`, which is called after every tick."""
        while True:
            self._wait_for_descriptors(done)
            seconds = self.run_once()
            if done():
                return
            self._events.sleep(seconds)

    def run_once(self) -> float | None:
        """One tick and the pause after it. Returns the seconds after which the next is due even if nothing happens; None: none
        is."""
        began, now = self._clock.monotonic(), self._clock.now()
        self.tick()
        self._metrics.record_tick(self._clock.monotonic() - began, self._commit_s)
        if self._commit_s is None:
            return self._seconds_until_due(now)
        self.decisions.leader.compact()  # checks first whether anything is due; then a few hundred milliseconds
        self._pause(self._commit_s, now)
        return 0.0  # what was committed may allow for more

    def tick(self) -> bool:
        """Gather, decide, commit, act; True if anything was committed."""
        events, now, todo = self._events.take(), self._clock.now(), Instructions()
        self._take_plans([event for event in events if isinstance(event, PlanResult)], now)
        self.decisions.prefetch(now)
        for event in events:
            if isinstance(event, ParseResult):
                self._take_parse_result(event, now)
        self.decisions.decide(
            [event for event in events if not isinstance(event, PlanResult | ParseResult | AllBundlesParsed)],
            self._unanswered(),
            {name: self._executor.free(name) for name in self.state.pools},
            now,
            todo,
            draining=self.draining,
        )
        began = self._clock.monotonic()
        has_changed = self.decisions.commit(todo)
        self._commit_s = self._clock.monotonic() - began if has_changed else None
        self._act(todo)
        self.has_parsed_all |= any(isinstance(event, AllBundlesParsed) for event in events)
        return has_changed

    @property
    def is_idle(self) -> bool:
        """Nothing runs, nothing is to be run, and nothing waits for the next tick."""
        return (
            self.state.is_idle
            and self._commit_s is None
            and self.has_parsed_all
            and not self._requests.is_planning
            and not self._requests.is_waiting
            and self._events.is_empty
        )

    # -- gather -------------------------------------------------------------------------------------------------------
    def _unanswered(self) -> list[Request]:
        """Requests without a response; those that wait for something are handled again in every tick."""
        if not self._events.has_requests and not self._requests.is_waiting:
            return []
        self._events.has_requests = False
        return self._store.unanswered()

    def _take_plans(self, results: list[PlanResult], now: datetime) -> None:
        for result in results:
            self._events.has_requests = True  # one for the same backfill may have waited for this plan
            request = result.request
            if result.plan is None:
                self._requests.refuse(request.request_id, request.kind, result.refusal, now)
            elif request.kind == kinds.BACKFILL_DRY_RUN:
                document = json.dumps(result.plan.to_json_document())
                self._requests.planned(request, None, "planned, not created", document, now)
            else:
                self._create_backfill(result, now)

    def _create_backfill(self, result: PlanResult, now: datetime) -> None:
        leader = self.decisions.leader
        root, *others = create_backfills(self.state, self._store, leader, result, self._clock.new_id, now)
        for live in (root, *others):
            pending, skipped = live.counts[s.PENDING], live.counts[s.SKIPPED]
            log.info(
                "backfill planned", backfill=live.row.backfill_id, dag=live.row.dag_id, pending=pending, skipped=skipped
            )
        pending, skipped = root.counts[s.PENDING], root.counts[s.SKIPPED]
        message = f"backfill {root.row.backfill_id}: {pending} items to run, {skipped} skipped"
        if skipped and result.plan is not None:
            message += f" ({', '.join(f'{n} {reason}' for reason, n in result.plan.summary['skipped'].items())})"
        if others:
            message += f"; downstream: {', '.join(f'{live.row.dag_id} ({live.row.backfill_id})' for live in others)}"
        self._requests.planned(result.request, root.row.backfill_id, message, None, now)

    def _take_parse_result(self, event: ParseResult, now: datetime) -> None:
        request = event.request
        if event.submission is None:
            assert request is not None
            self._requests.refuse(request.request_id, kinds.BUNDLE_PARSE, event.refusal, now)
            return
        dry_run = request is not None and request.dry_run
        result = (self._dags.preview if dry_run else self._dags.submit)(event.submission, now)
        if request is not None:
            message, document = _parse_message(result, dry_run), json.dumps(result.to_json_document())
            self._requests.parsed(request, message, document, now)
        read_whole = event.submission.covers == ("",)  # else it may be a few files that are read again all the time
        if event.submission.readable and not dry_run and (read_whole or request or result.changes):
            log.info(
                "bundle parsed",
                bundle=result.bundle,
                dags=result.dags,
                changed=len(result.changes),
                errors=len(result.errors),
            )

    # -- act ----------------------------------------------------------------------------------------------------------
    def _act(self, todo: Instructions) -> None:
        for pool, slots in todo.slots.items():
            self._executor.set_slots(pool, slots)
        for launch in todo.launches:
            self._executor.launch(launch)
        for cancel in todo.cancels:
            self._executor.cancel(cancel.key, cancel.reason)
        for plan in todo.plans:
            assert self._planner is not None
            dag = self.state.catalog.dags[plan.command.dag_id]
            others = {
                row.dag_id: (self.state.current_spec(row.dag_id), row.current_version)
                for row in self.state.catalog.dags.values()
                if row.is_active and plan.command.downstream
            }
            self._planner.plan(plan, self.state.current_spec(dag.dag_id), dag.current_version, others)
        for parse in todo.parses:
            assert self._bundles is not None
            self._bundles.parse(parse)
        for request_id in todo.compactions:
            self.decisions.compact_state(request_id, self._clock.now())
            self._events.wake()  # the next tick commits the response
        if todo.stop:
            self._on_stop(todo.drain)

    # -- wait ---------------------------------------------------------------------------------------------------------
    def _wait_for_descriptors(self, done: Callable[[], bool]) -> None:
        is_logged = False
        while not descriptors.are_free():
            if not is_logged:
                log.warning("no tick: too few file descriptors are free", limit=descriptors.limit())
            is_logged = True
            self._events.wait(DESCRIPTORS_POLL_INTERVAL_S)
            if done():
                return

    def _seconds_until_due(self, now: datetime) -> float | None:
        due = self.decisions.next_due(now)
        return None if due is None else min(max(0.0, (due - now).total_seconds()), MAX_SLEEP_S)

    def _pause(self, commit_s: float, now: datetime) -> None:
        """Let events gather after a commit."""
        due = self._seconds_until_due(now)
        longest = MAX_PAUSE_S if due is None else min(due, MAX_PAUSE_S)
        given = self._executor.load()

        def needs_work() -> bool:
            left = self._executor.load()
            return not left or any(left[pool] <= tasks // 2 for pool, tasks in given.items())

        self._events.pause(min(commit_s, longest), min(commit_s * PAUSE_PER_COMMIT, longest), needs_work)


def _parse_message(result: SubmissionResult, dry_run: bool) -> str:
    """One line in answer to `bundle.parse`."""
    by_kind = Counter(change.change for change in result.changes)
    changes = ", ".join(f"{number} {what}" for what, number in sorted(by_kind.items())) or "nothing changed"
    files = "1 file" if len(result.errors) == 1 else f"{len(result.errors)} files"
    errors = f"; {files} could not be read" if result.errors else ""
    return f"bundle {result.bundle}: {'would be: ' if dry_run else ''}{changes}{errors}"
