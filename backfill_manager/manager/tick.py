"""One tick of the manager: gather what happened, decide, commit once, and only then act.

    plans, parse results, outcomes, requests ─► decisions over ManagerState ─► one group commit ─► launches, cancels, plans

Ticks are woken by events, never by the clock alone. After idleness a tick runs at once; under load ticks keep a distance of a
few times the last commit's duration, so that bookkeeping takes a small share of the machine and events are batched. The pause
is cut short when a client waits for a response, and when a pool has finished half of what it was given: no slot waits for a tick.
Once every try has ended there is nothing to wait for, and no pause.

A commit that fails for any reason ends the manager: the next leader goes on from the tables (crash-only). Running out of file
descriptors or of disk space is known beforehand: a tick waits until there are enough for its commit, before it reads or decides
anything. (The lease is kept meanwhile, if there are enough for its heartbeat; else it runs out.)
"""

from __future__ import annotations

import statistics
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from backfill_manager.clock import Clock
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import nearest
from backfill_manager.execution.messages import LaunchKey, TaskEnded, TaskLaunch, TaskLogged, TaskStarted
from backfill_manager.humanise import name_list, parse_outcome, plural, unknown_pools
from backfill_manager.logging import get_logger
from backfill_manager.manager.commit_preconditions import why_no_commit
from backfill_manager.manager.decisions import notification_rules
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.maintenance.pruner import Pruner
from backfill_manager.manager.operations import previews, reverts
from backfill_manager.manager.operations.create_backfill import create_backfills
from backfill_manager.manager.services.bundle_watcher import AllBundlesParsed, ParseResult
from backfill_manager.manager.services.notification_sender import NotificationsSent
from backfill_manager.manager.services.planner import PlanResult
from backfill_manager.manager.services.table_jobs import PreviewsExpired, TableJobResult
from backfill_manager.manager.services.wait_checker import WaitsChecked
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.steady_clock import Doubt
from backfill_manager.manager.tick_context import ParseRequest, PlanRequest, PreviewJob, RevertJob, Tick
from backfill_manager.manager.tick_decisions import Decisions
from backfill_manager.model import states as s
from backfill_manager.model.pools import too_many_slots
from backfill_manager.model.records import Request
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.downstream_plan import Dags
from backfill_manager.planning.data.wait_conditions import WaitCheck
from backfill_manager.schemas import request_kinds
from backfill_manager.service import Pass
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.base import Leader, Store

log = get_logger("tick")

TICKS_PER_COMMIT: Final = 2.0  # a tick takes no longer than so many times its usual commit, with few exceptions
MAX_WAIT_FOR_DUE_S: Final = 0.25
PAUSE_PER_COMMIT: Final = 8.0  # waited after a commit, in its durations, while events gather; 1 when a pool needs work
MAX_PAUSE_S: Final = 1.0
MAX_SLEEP_S: Final = 60.0  # the clock may be set meanwhile, or the machine sleep, which no timer counts
SPACE_POLL_INTERVAL_S: Final = 0.5
LONG_TICK_S: Final = 120.0  # nothing is decided or started meanwhile
MAX_TICK_S: Final = 7200.0  # longer than the retries of any store take, or `state compact` of a large state
WINDOW: Final = 100  # ticks and commits that medians are computed of


class TickMetrics:
    """Counters of the manager: written by the tick, sent to the lease row with the heartbeat, from another thread."""

    def __init__(self) -> None:
        self._ticks = self._commits = 0
        self._tick_s: deque[float] = deque(maxlen=WINDOW)
        self._commit_s: deque[float] = deque(maxlen=WINDOW)

    def record_tick(self, seconds: float, commit_seconds: float | None) -> None:
        """One tick; `commit_seconds` is None when there was nothing to commit."""
        self._ticks += 1
        self._tick_s.append(seconds)
        if commit_seconds is not None:
            self._commits += 1
            self._commit_s.append(commit_seconds)

    @property
    def usual_commit_s(self) -> float:
        return statistics.median(self._commit_s) if self._commit_s else 0.0

    def columns(self) -> dict[str, Any]:
        """Columns of `Manager`."""
        tick_ms, commit_ms = (
            round(statistics.median(list(seconds)) * 1000, 1) if seconds else None
            for seconds in (self._tick_s, self._commit_s)
        )
        return {"ticks": self._ticks, "commits": self._commits, "tick_ms": tick_ms, "commit_ms": commit_ms}


class TaskRunner(Protocol):
    """What a tick needs of `execution.executor.Executor`."""

    def launch(self, launch: TaskLaunch) -> None: ...
    def cancel(self, key: LaunchKey, reason: str) -> bool: ...
    def set_slots(self, pool: str, slots: int) -> None: ...
    def free(self, pool: str) -> int: ...
    def load(self) -> Counter[str]: ...


class TableJobRunner(Protocol):
    """What a tick needs of `table_jobs.TableJobs`."""

    def work(self, job: PreviewJob | RevertJob) -> None: ...
    def delete(self, preview_id: str) -> None: ...


class TickLoop:
    """Runs in the manager's own thread. `plan` and `parse` take requests, `check_waits` all that
    tasks wait for; `on_stop(drain)` is called for `manager.stop`.
    `snapshots`: the folder of snapshots if it is this state's alone, where `retention` applies to it."""

    def __init__(
        self, state: ManagerState, store: Store, leader: Leader, *, clock: Clock, executor: TaskRunner, events: EventQueue,
        plan: Callable[[PlanRequest, DagSpec, int, Dags], None] = lambda *_: None,
        parse: Callable[[ParseRequest], None] = lambda _: None, table_jobs: TableJobRunner | None = None,
        check_waits: Callable[[Collection[WaitCheck]], None] = lambda _: None,
        on_stop: Callable[[bool], None] = lambda drain: None, metrics: TickMetrics | None = None,
        retention: RetentionSettings | None = None, snapshots: Path | None = None,
        on_commit: Callable[[Changes], None] = lambda _: None, doubt: Doubt | None = None,
    ) -> None:  # fmt: skip
        self.state, self.decisions = state, Decisions(state, store, leader, on_commit)
        self._store, self._clock, self._executor, self._events = store, clock, executor, events
        self._table_jobs, self._check_waits = table_jobs, check_waits
        self._plan, self._parse, self._on_stop, self._metrics = plan, parse, on_stop, metrics or TickMetrics()
        self._requests, self._dags = self.decisions.requests, state.catalog
        retention = retention or RetentionSettings()
        self._pruner = Pruner(store, leader, self._requests, retention, snapshots, clock, doubt)
        self._commit_s: float | None = None  # duration of the last tick's commit; None: there was nothing to commit
        self._due: tuple[datetime | None] | None = None  # the next decision, since the last tick; None: not computed
        self.current_pass = Pass("tick", LONG_TICK_S, MAX_TICK_S)
        self.has_parsed_all = False  # every bundle, and committed what was found

    def run_until(self, done: Callable[[], bool]) -> None:
        """Tick until `done()`, which is called after every tick."""
        while True:
            self._wait_for_space(done)
            self._wait_for_due()
            with self.current_pass.at_work():
                seconds = self.run_once()
            if done():
                return
            self._events.sleep(seconds)

    def run_while(self, work: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Tick until `work()`, which runs in a thread of its own, has ended, or `is_over()`; then wait for its end."""
        # Set before the wake: that the thread lives no more would come after it, unnoticed.
        has_ended = threading.Event()

        def do() -> None:
            try:
                work()
            finally:
                has_ended.set()
                self._events.wake()

        thread = threading.Thread(target=do, name="drain")
        thread.start()
        self.run_until(lambda: has_ended.is_set() or is_over())
        thread.join()

    def run_once(self) -> float | None:
        """One tick and the pause after it. Returns the seconds until the next is due even if nothing happens, if one is."""
        began, now = self._clock.monotonic(), self._clock.now()
        self.tick()
        self._metrics.record_tick(self._clock.monotonic() - began, self._commit_s)
        is_pruning = self._may_prune(now)
        if is_pruning:
            self._pruner.step(now)
        elif self._commit_s is None:
            return self._seconds_until_due()
        self.decisions.leader.compact()  # checks first whether anything is due; then a few hundred milliseconds
        if not is_pruning and self._commit_s is not None:
            self._pause(self._commit_s)
        return 0.0  # what was committed may allow for more; there may be another step of pruning, or a response

    def tick(self) -> bool:
        """Gather, decide, commit, act; True if anything was committed."""
        self._due, events, now = None, self._events.take(), self._clock.now()
        self._take_plans([event for event in events if isinstance(event, PlanResult)], now)
        # Before the first change: what a revert makes out of date is read when it is committed.
        self.decisions.prefetch(now)
        ended = self._take_table_jobs([one for one in events if isinstance(one, TableJobResult | PreviewsExpired)], now)
        for event in events:
            if isinstance(event, ParseResult):
                self._take_parse_result(event, now)
            elif isinstance(event, WaitsChecked):
                self.state.wait_checks_seen |= event.seen
            elif isinstance(event, NotificationsSent):
                for row in event.rows:
                    self.state.put(row)
        of_tasks = [event for event in events if isinstance(event, TaskStarted | TaskEnded | TaskLogged)]
        free = {name: self._executor.free(name) for name in self.state.pools}
        tick = self.decisions.decide(of_tasks, self._unanswered(), free, now)
        began = self._clock.monotonic()
        has_changed = self.decisions.commit(tick)
        self._commit_s = self._clock.monotonic() - began if has_changed else None
        tick.discarded += ended
        self._act(tick)
        self.has_parsed_all |= any(isinstance(event, AllBundlesParsed) for event in events)
        return has_changed

    @property
    def is_idle(self) -> bool:
        """Nothing runs, nothing is to be run, and nothing waits for the next tick."""
        is_asked = self._requests.has_unanswered or self._requests.is_waiting or not self._events.is_empty
        is_pruning = self._may_prune(self._clock.now())
        return self.state.is_idle and self._commit_s is None and self.has_parsed_all and not is_asked and not is_pruning

    def _may_prune(self, now: datetime) -> bool:
        """What people wait for goes first: the bundles are read before."""
        return self._prunes and self._pruner.is_due(now)

    @property
    def _prunes(self) -> bool:
        return self.has_parsed_all and not self.decisions.draining

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
            request, plan = result.request, result.plan
            if plan is None:
                self._requests.refuse(request.request_id, request.kind, now, result.refusal)
            elif request.kind == request_kinds.BACKFILL_DRY_RUN:
                document, message = plan.to_json_document(), "planned, not created"
                self._requests.accept(request.request_id, request.kind, now, None, message, document)
            else:
                message = self._create_backfill(request, plan, now)
                self._requests.accept(request.request_id, request.kind, now, request.backfill_id, message)

    def _take_table_jobs(self, results: list[TableJobResult | PreviewsExpired], now: datetime) -> list[str]:
        """Returns the previews whose clones can go when this is committed. One result in a tick: what the next one changes
        depends on rows that are read, and this one's are not committed yet."""
        ended: list[str] = []
        for later in results[1:]:
            self._events.put(later)
        for result in results[:1]:
            if isinstance(result, PreviewsExpired):
                for preview_id in result.preview_ids:
                    if self._requests.is_under_way(preview_id) or not previews.is_open(self._store, preview_id):
                        continue  # somebody has gone on with it since it was found
                    previews.end(self.state, self._store, preview_id, s.EXPIRED)
                    log.info("preview expired", backfill=preview_id)
                    ended.append(preview_id)
                continue
            job, self._events.has_requests = result.job, True  # one for the same backfill may have waited for it
            if result.refusal:
                self._requests.refuse(job.request_id, job.kind, now, result.refusal)
                continue
            if isinstance(job, RevertJob):
                message = f"{job.object_id}: nothing was changed"
                if not job.dry_run:
                    message = reverts.revert(self.state, self._store, job, result.reverted, now)
                self._requests.accept(job.request_id, job.kind, now, job.object_id, message, result.document)
                continue
            message = f"preview {job.preview_id}: compared"
            if job.kind == request_kinds.BACKFILL_PROMOTE:
                of = (job.preview_id, result.promoted, now, job.request_id)
                message = previews.promote(self.state, self._store, *of)
                ended.append(job.preview_id)
            self._requests.accept(job.request_id, job.kind, now, job.preview_id, message, result.document)
        return ended

    def _create_backfill(self, request: PlanRequest, plan: BackfillPlan, now: datetime) -> str:
        leader, new_id = self.decisions.leader, self._clock.new_id
        root, *others = create_backfills(self.state, self._store, leader, request, plan, new_id, now)
        for live in (root, *others):
            row, pending, skipped = live.row, live.counts[s.PENDING], live.counts[s.SKIPPED]
            log.info("backfill planned", backfill=row.backfill_id, dag=row.dag_id, pending=pending, skipped=skipped)
        pending, skipped = root.counts[s.PENDING], root.counts[s.SKIPPED]
        message = f"backfill {root.row.backfill_id}: {plural(pending, 'item')} to run, {skipped} skipped"
        if skipped:
            message += f" ({', '.join(f'{n} {reason}' for reason, n in plan.skipped.items())})"
        if plan.existing_not_succeeded:
            message += f"; {plan.existing_not_succeeded} of those that exist already did not succeed"
        plans, pools = (plan, *plan.downstream), self.state.pools
        message += unknown_pools(pool for one in plans for pool in one.pools_not_in(pools))
        if others:
            message += f"; downstream: {', '.join(f'{live.row.dag_id} ({live.row.backfill_id})' for live in others)}"
        if plan.left_out:
            message += f"; not downstream: {', '.join(f'{dag_id} ({why})' for dag_id, why in plan.left_out.items())}"
        if plan.no_downstream:
            message += f"; nothing is downstream: {plan.no_downstream}"
        return message

    def _take_parse_result(self, event: ParseResult, now: datetime) -> None:
        request = event.request
        if event.submission is None:
            assert request is not None
            self._requests.refuse(request.request_id, request_kinds.BUNDLE_PARSE, now, event.refusal)
            return
        dry_run = request is not None and request.dry_run
        result = (self._dags.dry_run if dry_run else self._dags.submit)(event.submission, now, self.state.pools)
        for one in () if dry_run else result.unknown_pools:
            hint = nearest(one.pool, self.state.pools, n=1).removeprefix("; ")
            more = {"hint": hint} if hint else {}
            log.warning("unknown pool", dag=one.dag_id, pool=one.pool, tasks=name_list(one.tasks), **more)
        for change in () if dry_run else (one for one in result.changes if one.change != "deactivated"):
            notification_rules.warn_of_unknown(self.state, change.dag_id, self.state.current_spec(change.dag_id).notify)
        if request is not None:
            document, kind = result.to_json_document(), request_kinds.BUNDLE_PARSE
            message = parse_outcome(document, dry_run=dry_run)
            self._requests.accept(request.request_id, kind, now, request.bundle, message, document)
        read_whole = event.submission.covers == ("",)  # else it may be a few files that are read again all the time
        if event.submission.readable and not dry_run and (read_whole or request or result.changes):
            changed, errors = len(result.changes), len(result.errors)
            log.info("bundle parsed", bundle=result.bundle, dags=result.dags, changed=changed, errors=errors)

    # -- act ----------------------------------------------------------------------------------------------------------
    def _act(self, tick: Tick) -> None:
        for pool, slots in tick.slots.items():
            self._executor.set_slots(pool, slots)
        if tick.slots and (warning := too_many_slots(self.state.pools.values())) is not None:
            log.warning(warning)
        for launch in tick.launches:
            self._executor.launch(launch)
        for key, reason in tick.cancels:
            self._executor.cancel(key, reason)
        for plan in tick.plans:
            dags = self.state.catalog.dags
            wanted = list(dags.values()) if plan.command.downstream else []
            active = [row for row in wanted if row.is_active and self.state.has_definition(row)]
            others = {row.dag_id: (self.state.current_spec(row.dag_id), row.current_version) for row in active}
            dag_id = plan.command.dag_id
            self._plan(plan, self.state.current_spec(dag_id), dags[dag_id].current_version, others)
        if self._table_jobs is not None:
            for job in tick.table_jobs:
                self._table_jobs.work(job)
            for preview_id in tick.discarded:
                self._table_jobs.delete(preview_id)
        for parse in tick.parses:
            self._parse(parse)
        self._check_waits(self.state.open_wait_checks)
        for request_id in tick.compactions:
            self.decisions.compact_state(request_id, self._clock.now())
            self._events.wake()  # the next tick commits the response
        for request_id in tick.prunes:
            self._pruner.ask(request_id, self._clock.now())
            self._events.wake()
        if tick.stop:
            self._on_stop(tick.drain)

    # -- wait ---------------------------------------------------------------------------------------------------------
    def _wait_for_space(self, done: Callable[[], bool]) -> None:
        last_reason: str | None = None
        while reason := why_no_commit(self._store.root):
            if reason != last_reason:
                log.warning(f"no tick: {reason}")
            last_reason = reason
            self._events.wait(SPACE_POLL_INTERVAL_S)
            if done():
                return
        if last_reason:
            log.info("ticks go on")

    def _wait_for_due(self) -> None:
        """What comes due while a tick is at work has to wait for the next one, so a tick begins no earlier than what will be due
        before its end."""
        seconds = self._seconds_until_due()
        if seconds is not None and seconds <= min(TICKS_PER_COMMIT * self._metrics.usual_commit_s, MAX_WAIT_FOR_DUE_S):
            self._events.pause(seconds, seconds, lambda: False, tries=0)

    def _seconds_until_due(self) -> float | None:
        now = self._clock.now()
        if self._due is None:
            self._due = (self.decisions.next_due(now),)
        dues = [*self._due, self._pruner.due_at(now) if self._prunes else None]
        due = min((at for at in dues if at is not None), default=None)
        return None if due is None else min(max(0.0, (due - now).total_seconds()), MAX_SLEEP_S)

    def _pause(self, commit_s: float) -> None:
        """Let events gather after a commit."""
        due = self._seconds_until_due()
        longest = MAX_PAUSE_S if due is None else min(due, MAX_PAUSE_S)
        given = self._executor.load()

        def needs_work() -> bool:
            left = self._executor.load()
            return not left or any(left[pool] <= tasks // 2 for pool, tasks in given.items())

        tries = sum(ti.state in s.TASK_STARTED for _, ti in self.state.tasks())
        self._events.pause(min(commit_s, longest), min(commit_s * PAUSE_PER_COMMIT, longest), needs_work, tries)
