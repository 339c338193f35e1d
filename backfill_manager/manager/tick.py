"""One turn of the manager: gather what happened, decide, commit once, and only then do.

    plans, scans, outcomes, requests ─► decisions over the working set ─► one group commit ─► launches, cancels, plans

Ticks are woken by events, never by the clock alone. Coming from idleness a tick runs at once; under load they keep a
distance of a few times the last commit's own cost, so that bookkeeping takes a small share of the machine and events are
folded. The distance is cut short when somebody asks for something, and when a pool has worked off half of what it was
given: no slot waits for a tick.

A commit that fails for any reason ends the manager: the next leader goes on from the tables (crash-only). A process that
has run out of file descriptors is not a reason to begin one: a tick waits until there are enough for its commit, before it
reads or decides anything. (The lease goes on meanwhile, if there are enough for its heartbeat; else it runs out.)
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime

from backfill_manager import descriptors
from backfill_manager.clock import Clock
from backfill_manager.dags.catalog import DagStore, SubmissionResult
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.messages import Event
from backfill_manager.logging import get_logger
from backfill_manager.manager.bundle_watcher import AllBundlesParsed, BundleWatcher, ParseResult
from backfill_manager.manager.create_backfill import make_backfills
from backfill_manager.manager.decisions import Decisions
from backfill_manager.manager.instructions import Instructions
from backfill_manager.manager.metrics import TickMetrics
from backfill_manager.manager.planner import Planner, PlanResult
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Request
from backfill_manager.requests import command_types
from backfill_manager.store.base import Leader, Store

log = get_logger("tick")

COMMIT_SHARE = 8.0  # under load a commit is followed by this many times its own duration, or once if a pool needs work
LONGEST_GAP_S = 1.0
WITHOUT_DESCRIPTORS_S = 0.5  # until the next look whether some are free
LONGEST_SLEEP_S = 3600.0  # the clock of the machine may be set meanwhile

Happening = Event | PlanResult | ParseResult | AllBundlesParsed


class TickLoop:
    def __init__(
        self,
        state: ManagerState,
        store: Store,
        leader: Leader,
        *,
        clock: Clock,
        executor: Executor,
        planner: Planner | None,
    ) -> None:
        self.state = state
        self._store, self._leader, self._clock = store, leader, clock
        self._executor, self._planner = executor, planner
        self._happened: queue.SimpleQueue[Happening] = queue.SimpleQueue()
        self._wake = threading.Condition()
        self._woken = True
        self._rung = True  # requests may be waiting
        self._settled = False  # the last tick changed nothing
        self._urgent = False  # someone waits for an answer: no pause
        self._decisions = Decisions(state, store, leader)
        self._inbox = self._decisions.inbox
        self._dags = DagStore(state.catalog)
        self.figures = TickMetrics()
        self.scanned = threading.Event()  # every bundle has been scanned and committed once
        self.watcher: BundleWatcher | None = None  # it needs the ticker, and the ticker it
        self.asked_to_stop: Instructions | None = None
        self.draining = False

    # -- from other threads -------------------------------------------------------------------------------------------
    def happened(self, what: Happening) -> None:
        self._happened.put(what)
        if isinstance(what, PlanResult) or (isinstance(what, ParseResult) and what.wanted is not None):
            self._urgent = True
        self.wake()

    def ring(self) -> None:
        """Someone has asked for something."""
        self._rung = self._urgent = True
        self.wake()

    def wake(self) -> None:
        with self._wake:
            self._woken = True
            self._wake.notify_all()

    # -- the manager's own thread -------------------------------------------------------------------------------------
    def run_until(self, done: Callable[[], bool]) -> None:
        """Tick until `done()`; it is asked after every tick."""
        while True:
            self._wait_for_descriptors(done)
            wait = self.run_once()
            if done():
                return
            self._sleep(wait)

    def run_once(self) -> float | None:
        """One tick. Returns the seconds after which the next is due even if nothing happens; None: nothing is."""
        ticking = self._clock.monotonic()
        happened = self._gather()
        now = self._clock.now()
        todo = Instructions()
        self._take_plans([h for h in happened if isinstance(h, PlanResult)], now)
        self._decisions.prefetch(now)
        for event in happened:
            if isinstance(event, ParseResult):
                self._take_parsed(event, now)
        self._decisions.decide(
            [h for h in happened if not isinstance(h, PlanResult | ParseResult | AllBundlesParsed)],
            self._requests(),
            {name: self._executor.free(name) for name in self.state.pools},
            now,
            todo,
            draining=self.draining,
        )
        began = self._clock.monotonic()
        changed = self._decisions.commit(todo)
        spent = self._clock.monotonic() - began
        self._do(todo)
        self.figures.record_tick(self._clock.monotonic() - ticking, spent if changed else None)
        self._settled = not changed
        if any(isinstance(event, AllBundlesParsed) for event in happened):
            self.scanned.set()
        if changed:
            self._leader.compact()  # looks first whether anything is due; then a few hundred milliseconds
            self._pause(spent, now)
            return 0.0  # what was committed may have opened the way for more
        return self._until_due(now)

    @property
    def is_idle(self) -> bool:
        """Nothing runs, nothing is to be run, nothing waits to be looked at."""
        return (
            self.state.is_idle
            and self._settled
            and self.scanned.is_set()
            and not self._inbox.is_planning
            and not self._inbox.is_waiting
            and self._happened.empty()
            and not self._rung
        )

    # -- gathering ----------------------------------------------------------------------------------------------------
    def _gather(self) -> list[Happening]:
        with self._wake:
            self._woken = False
        self._urgent = False
        happened: list[Happening] = []
        while not self._happened.empty():
            happened.append(self._happened.get_nowait())
        return happened

    def _requests(self) -> list[Request]:
        """What has been asked for and not answered; those that wait for something are looked at in every tick."""
        if not self._rung and not self._inbox.is_waiting:
            return []
        self._rung = False
        return self._store.unanswered()

    def _take_plans(self, plans: list[PlanResult], now: datetime) -> None:
        for planned in plans:
            self._rung = True  # a request for the same backfill may have waited for this one
            wanted = planned.wanted
            if planned.plan is None:
                self._inbox.refuse(wanted.request_id, wanted.kind, planned.refusal, now)
            elif wanted.kind == command_types.BACKFILL_DRY_RUN:
                document = json.dumps(planned.plan.to_json_document())
                self._inbox.planned(wanted, None, "planned, not made", document, now)
            else:
                self._begin_backfill(planned, now)

    def _begin_backfill(self, planned: PlanResult, now: datetime) -> None:
        root, *others = make_backfills(self.state, self._store, self._leader, planned, self._clock.new_id, now)
        for live in (root, *others):
            pending, skipped = live.counts[s.PENDING], live.counts[s.SKIPPED]
            log.info(
                "backfill planned", backfill=live.row.backfill_id, dag=live.row.dag_id, pending=pending, skipped=skipped
            )
        pending, skipped = root.counts[s.PENDING], root.counts[s.SKIPPED]
        message = f"backfill {root.row.backfill_id}: {pending} items to run, {skipped} left out"
        if skipped and planned.plan is not None:
            message += f" ({', '.join(f'{n} {reason}' for reason, n in planned.plan.summary['skipped'].items())})"
        if others:
            message += f"; downstream: {', '.join(f'{live.row.dag_id} ({live.row.backfill_id})' for live in others)}"
        self._inbox.planned(planned.wanted, root.row.backfill_id, message, None, now)

    def _take_parsed(self, event: ParseResult, now: datetime) -> None:
        wanted = event.wanted
        if event.submission is None:
            assert wanted is not None
            self._inbox.refuse(wanted.request_id, command_types.BUNDLE_PARSE, event.refusal, now)
            return
        look_only = wanted is not None and wanted.dry_run
        taken = (self._dags.preview if look_only else self._dags.submit)(event.submission, now)
        if wanted is not None:
            self._inbox.parsed(wanted, told(taken, look_only), json.dumps(taken.to_json_document()), now)
        read_whole = event.submission.covers == ("",)  # else it may be a few files that are read again all the time
        if event.submission.readable and not look_only and (read_whole or wanted or taken.changes):
            log.info(
                "bundle read",
                bundle=taken.bundle,
                dags=taken.dags,
                changed=len(taken.changes),
                errors=len(taken.errors),
            )

    # -- doing --------------------------------------------------------------------------------------------------------
    def _do(self, todo: Instructions) -> None:
        for pool, slots in todo.slots.items():
            self._executor.set_slots(pool, slots)
        for launch in todo.launches:
            self._executor.launch(launch)
        for cancel in todo.cancels:
            self._executor.cancel(cancel.key, cancel.reason)
        for wanted in todo.plans:
            assert self._planner is not None
            dag = self.state.catalog.dags[wanted.ask.dag_id]
            others = {
                row.dag_id: (self.state.current_spec(row.dag_id), row.current_version)
                for row in self.state.catalog.dags.values()
                if row.is_active and wanted.ask.downstream
            }
            self._planner.plan(wanted, self.state.current_spec(dag.dag_id), dag.current_version, others)
        for parse in todo.parses:
            assert self.watcher is not None
            self.watcher.ask(parse)
        for request_id in todo.compactions:
            self._decisions.compact_state(request_id, self._clock.now())
            self.wake()  # for the answer's tick
        if todo.stop:
            self.asked_to_stop = todo

    def _wait_for_descriptors(self, done: Callable[[], bool]) -> None:
        told = False
        while not descriptors.are_free():
            if not told:
                log.warning("no tick: too few file descriptors are free", limit=descriptors.limit())
            told = True
            with self._wake:
                self._wake.wait(WITHOUT_DESCRIPTORS_S)
            if done():
                return

    # -- waiting ------------------------------------------------------------------------------------------------------
    def _until_due(self, now: datetime) -> float | None:
        due = self._decisions.next_due(now)
        return None if due is None else min(max(0.0, (due - now).total_seconds()), LONGEST_SLEEP_S)

    def _pause(self, spent: float, now: datetime) -> None:
        """Let events gather after a commit that took `spent` seconds."""
        due = self._until_due(now)
        longest = LONGEST_GAP_S if due is None else min(due, LONGEST_GAP_S)
        given = self._executor.load()

        def needs_work() -> bool:
            left = self._executor.load()
            return not left or any(left[pool] <= tasks // 2 for pool, tasks in given.items())

        with self._wake:
            self._wake.wait_for(lambda: self._urgent, timeout=min(spent, longest))
            self._wake.wait_for(lambda: self._urgent or needs_work(), timeout=min(spent * COMMIT_SHARE, longest))

    def _sleep(self, seconds: float | None) -> None:
        with self._wake:
            self._wake.wait_for(lambda: self._woken, timeout=seconds)


def told(taken: SubmissionResult, look_only: bool) -> str:
    """One line for who asked for a bundle to be parsed."""
    by_kind = Counter(change.what for change in taken.changes)
    changes = ", ".join(f"{number} {what}" for what, number in sorted(by_kind.items())) or "nothing changed"
    files = "1 file" if len(taken.errors) == 1 else f"{len(taken.errors)} files"
    errors = f"; {files} could not be read" if taken.errors else ""
    return f"bundle {taken.bundle}: {'would be: ' if look_only else ''}{changes}{errors}"
