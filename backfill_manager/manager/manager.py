"""The composition root: every part of a manager is built here.

    run_manager ─► LeaderElector (lease) ─► Term (heartbeat, events, shutdown) ─► Manager (state, Spark, executor, services, loop)
                                                                 └─► run until it is stopped, or idle ─► drain ─► resign

SIGTERM and SIGINT drain: no new task starts, running ones may finish for `DRAIN_S`, the rest is put back for the next leader. A
manager without Spark, or with a failed service, ends by itself (shutdown.py). However it ends, short of being killed, it gives
its lease back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.errors import LostLease, StateError, StateLost
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.output.table_turns import PROCESS_TURNS
from backfill_manager.execution.secrets import Secrets
from backfill_manager.execution.spark.catalog import register_tables
from backfill_manager.execution.spark.session import SparkProvider, lower_jvm_thread_priority
from backfill_manager.execution.spark.spark_status import SparkStatus
from backfill_manager.file_descriptors import raise_limit
from backfill_manager.logging import get_logger
from backfill_manager.manager.decisions.notification_rules import new_notifications
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.services.bundle_watcher import BundleWatcher
from backfill_manager.manager.services.exit_watchdog import ExitWatchdog
from backfill_manager.manager.services.long_passes import LongPasses
from backfill_manager.manager.services.notification_sender import AppriseChannel, Channel, NotificationSender, flush
from backfill_manager.manager.services.notification_settings import Target, targets_of
from backfill_manager.manager.services.planner import Planner, PlanResult
from backfill_manager.manager.services.request_poller import RequestPoller
from backfill_manager.manager.services.spark_monitor import spark_monitors
from backfill_manager.manager.services.table_jobs import TableJobs
from backfill_manager.manager.services.turn_monitor import TurnMonitor
from backfill_manager.manager.services.wait_checker import WaitCheckers
from backfill_manager.manager.shutdown import RESTART_HINT, Shutdown
from backfill_manager.manager.snapshots import own_snapshots, snapshots_folder
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.state_identity import identity_of
from backfill_manager.manager.steady_clock import doubt_of
from backfill_manager.manager.telemetry.logged_changes import logged_changes
from backfill_manager.manager.telemetry.openlineage_sender import Client, OpenLineageSender, make_client
from backfill_manager.manager.telemetry.trace_sender import Exporter, TraceSender, make_exporter
from backfill_manager.manager.telemetry.trace_spans import TraceIds, TraceSpans
from backfill_manager.manager.tick import LONG_TICK_S, TickLoop, TickMetrics
from backfill_manager.manager.tick_decisions import log_lines
from backfill_manager.model.pools import too_many_slots
from backfill_manager.model.records import Backfill, DagRun, Pool, Request, RunKey
from backfill_manager.model.transitions import Changes
from backfill_manager.processes.core_affinity import CoreAffinity
from backfill_manager.processes.fork_server_client import ForkServers
from backfill_manager.processes.memory_cgroup import remove_leftovers
from backfill_manager.queries.failures import failures_of
from backfill_manager.queries.tables import rows_before
from backfill_manager.service import Pass, Service
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Leader, Store, matching
from backfill_manager.store.uri import is_catalog_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("manager")

Beside = Callable[[Store], AbstractContextManager[Callable[[], None]]]

DRAIN_S: Final = 30.0
BUNDLES_S: Final = 10.0  # for which the first tick waits for the bundles; then it goes by the state's versions


def run_manager(
    settings: Settings, *, state: str, until_idle: bool = False, ready: threading.Event | None = None,
    stop: threading.Event | None = None, spark: SparkSession | None = None, clock: Clock | None = None,
    beside: Beside | None = None,
) -> int:  # fmt: skip
    """Lead the state at `state` until stopped (or until nothing is left to do). Returns the exit code; raises `SparkGone`,
    `StateLost` or `ServiceFailed` when it could not go on, with the lease given back.

    `ready` is set when requests are being answered and every bundle has been parsed. `spark` is a session to use and leave
    running; without one, a session is built and stopped again. `beside(store)` is entered for as long as the state is open
    (the web pages), also while this manager stands by; what it gives is called when this manager begins to lead.
    """
    clock, stop, session = clock or SystemClock(), stop or threading.Event(), SparkProvider(settings, spark)
    lineage = None if settings.openlineage is None else make_client(settings.openlineage)
    exporter = None if settings.opentelemetry is None else make_exporter(settings.opentelemetry)
    channels = {target: AppriseChannel(target) for target in targets_of(settings.notifications)}
    is_own_process = threading.current_thread() is threading.main_thread()
    watchdog = ExitWatchdog(is_on=is_own_process)
    raise_limit()
    remove_leftovers()
    store = open_store(state, spark=session.get() if is_catalog_schema(state) else None)
    with _stop_on_signals(stop, watchdog):
        try:
            if any(changed := store.init()):
                log.info("state made ready", root=state, created=len(changed.created), upgraded=len(changed.upgraded))
            with beside(store) if beside else nullcontext() as on_leading:
                lease_s = settings.lease.seconds
                elector = LeaderElector(store, clock, lease_s=lease_s, spark_gone_reason=session.gone_reason)
                leader = elector.wait(stop)
                if leader is None:
                    return 0
                log.info("leading", term=leader.term, state=state, state_id=leader.row.state_id)
                if on_leading is not None:
                    on_leading()
                return Term(settings, store, leader, session, clock, stop, lineage, channels, exporter, watchdog).lead(
                    ready or threading.Event(), until_idle
                )
        finally:
            watchdog.arm()  # it is idle
            session.stop()
            store.close()
            watchdog.disarm()


class Term:
    """What there is from the first moment of a leadership: the queue that all report to, why it ends, and the heartbeat."""

    def __init__(
        self, settings: Settings, store: Store, leader: Leader, session: SparkProvider, clock: Clock, stop: threading.Event,
        lineage: Client | None = None, channels: Mapping[Target, Channel] | None = None, exporter: Exporter | None = None,
        watchdog: ExitWatchdog | None = None,
    ) -> None:  # fmt: skip
        self.lineage, self.channels, self.exporter = lineage, channels or {}, exporter
        self.settings, self.store, self.leader, self.session, self.clock = settings, store, leader, session, clock
        self.events, self.metrics = EventQueue(), TickMetrics()
        self.shutdown = Shutdown(
            stop, wake=self.events.wake, spark_gone_reason=session.gone_reason,
            watchdog=watchdog or ExitWatchdog(is_on=False),
        )  # fmt: skip
        self.passes = LongPasses(clock, self.shutdown.loop_hangs)
        self.heartbeat = Heartbeat(
            leader, clock, lease_s=settings.lease.seconds, on_lost=self.shutdown.lease_lost,
            payload=session.lease_columns, figures=lambda: {**self.metrics.columns(), **self.passes.columns()},
        )  # fmt: skip

    def lead(self, ready: threading.Event, until_idle: bool) -> int:
        """Until it is to end; returns the exit code."""
        try:
            # Before the state is read and Spark started, which may take longer than a lease.
            with self.heartbeat.holding(self.shutdown.service_failed):
                self._run(Manager(self), ready, until_idle)
        except LostLease as error:
            log.error("stopping: the lease is lost", reason=str(error))
            return 1
        except Exception as error:
            problem = self.shutdown.problem or self.shutdown.spark_gone_beneath()
            if problem is None or problem is error:
                raise
            raise problem from error
        log.info("stopped", term=self.leader.term)
        return 0

    def _run(self, manager: Manager, ready: threading.Event, until_idle: bool) -> None:
        """A state that could be read is no wrong input, whatever becomes of it: a supervisor does not start a manager again that
        ended by one."""
        try:
            manager.run(ready, until_idle=until_idle)
        except StateError as error:
            if not self.heartbeat.is_leader():
                raise LostLease(f"The lease ran out, and then the state could not be used: {error}") from error
            raise StateLost(f"{str(error).rstrip('.')}. {RESTART_HINT}", hint=error.hint, **error.params) from error


class Manager:
    """A leading manager: built from the tables, run once."""

    def __init__(self, term: Term) -> None:
        settings, store, leader, clock = term.settings, term.store, term.leader, term.clock
        self._events, self._shutdown = events, shutdown = term.events, term.shutdown
        now = clock.now()
        self._state = state = restore_state(store, term=leader.term, now=now, tries_kept_s=settings.retention.tries)
        state.batch_target_s = settings.limits.batch_target
        state.targets = tuple(term.channels)
        add_configured_pools(state, settings)
        _give_up_unknown_targets(state, clock.now())
        state.catalog.keep_bundles([bundle.name for bundle in settings.bundles], clock.now())
        changes = state.take_changes()
        leader.commit(changes)
        log_lines(logged_changes(changes, now))  # a task that has ended manager after manager fails here
        snapshots = snapshots_folder(settings, store.root)
        bundles = BundleWatcher(
            settings.bundles, dags=state.catalog, snapshots=snapshots, limits=settings.limits, clock=clock, on_event=events.put
        )  # fmt: skip
        with ExitStack() as started:
            started.callback(bundles.stop)
            bundles.start(shutdown.service_failed)  # they are parsed while Spark starts
            self._passes = term.passes
            self._passes.watch(*bundles.passes, term.heartbeat.current_pass)
            started.callback(self._passes.stop)
            self._passes.start(shutdown.service_failed)
            self._build(term, snapshots, bundles, now)
            self._send(changes)
            self._started = started.pop_all()

    def _build(self, term: Term, snapshots: Path, bundles: BundleWatcher, now: datetime) -> None:
        """`now`: when this manager began to lead."""
        settings, store, leader, clock = term.settings, term.store, term.leader, term.clock
        state, events, shutdown = self._state, self._events, self._shutdown
        doubt = doubt_of(store, now, term=leader.term)
        spark_start = Pass("start of Spark", LONG_TICK_S)
        self._passes.watch(spark_start)
        with spark_start.at_work():
            spark = term.session.get(state.pools.values())
        lower_jvm_thread_priority(spark)
        if (warning := too_many_slots(state.pools.values())) is not None:
            log.warning(warning)
        register_tables(spark)
        term.heartbeat.wake()  # with the Spark application

        self._servers, self._traces = ForkServers(), _traces_of(term, spark, now)
        executor = self._executor = Executor(
            spark, servers=self._servers, on_event=events.put, clock=clock, term=leader.term, snapshots=snapshots,
            is_leader=term.heartbeat.is_leader, state=identity_of(store, leader.row),
            slots={pool.name: pool.slots for pool in state.pools.values()},
            on_spark_gone=shutdown.spark_gone, on_failure=shutdown.service_failed, rows_before=partial(rows_before, store),
            with_columns=term.lineage is not None,
            find_secret=Secrets(settings.secrets, lambda: spark).find, traces=self._traces,
        )  # fmt: skip
        planner = Planner(
            spark, store, clock, batch_target_s=settings.limits.batch_target, on_planned=self._has_planned,
            on_spark_gone=executor.report_spark_gone,
        )  # fmt: skip
        table_jobs = TableJobs(
            spark, store, clock, state_id=identity_of(store, leader.row).state_id, keep_s=settings.retention.previews,
            on_event=events.put, on_spark_gone=executor.report_spark_gone, is_leader=term.heartbeat.is_leader, doubt=doubt,
        )  # fmt: skip
        wait_checkers = WaitCheckers(
            spark, clock, settings.limits.wait_interval, on_seen=events.put, on_spark_gone=executor.report_spark_gone
        )
        poller = RequestPoller(store, on_requests=events.wake_for_requests)
        monitors = spark_monitors(term.session, executor.report_spark_gone, clock)
        of_spark: list[Service] = [planner, table_jobs, *wait_checkers.services, *monitors]
        self._services: list[Service] = [*of_spark, poller, TurnMonitor(PROCESS_TURNS), CoreAffinity()]
        self._lineage: OpenLineageSender | None = None
        if term.lineage is not None and settings.openlineage is not None:
            from backfill_manager.manager.telemetry.openlineage_events import LineageEvents  # of an extra

            of, state_id = settings.openlineage.namespace, str(leader.row.state_id)
            self._lineage = OpenLineageSender(term.lineage, LineageEvents(of, state_id, str(spark.version), now))
            self._services.append(self._lineage)
        if self._traces is not None:
            self._services.append(self._traces)
        self._senders = [
            NotificationSender(
                target, channel, clock, on_sent=events.put, details=partial(failures_of, store),
                public_url=settings.api.public_url,
            )
            for target, channel in term.channels.items()
        ]  # fmt: skip
        for sender in self._senders:
            sender.put(state.notifications.values())
        self._services += self._senders
        self._loop = TickLoop(
            state, store, leader, clock=clock, executor=executor, events=events, plan=planner.plan, parse=bundles.parse,
            table_jobs=table_jobs, check_waits=wait_checkers.want,
            metrics=term.metrics, on_stop=shutdown.request, retention=settings.retention,
            snapshots=own_snapshots(settings, store.root), on_commit=self._has_committed, doubt=doubt,
        )  # fmt: skip

    def _has_planned(self, result: PlanResult) -> None:
        if self._traces is not None:
            request, refusal = result.request, str(result.refusal) or None
            self._traces.put_plan(request.request_id, request.command.dag_id, result.began_at, result.ended_at, refusal)
        self._events.put(result)

    def _has_committed(self, changes: Changes) -> None:
        if made := new_notifications(changes):
            for sender in self._senders:
                sender.put(made)
        self._send(changes)

    def _send(self, changes: Changes) -> None:
        """What a lineage server and a collector of traces get of a commit."""
        if self._lineage is not None:
            self._lineage.put(changes, self._run_of)
        if self._traces is not None:
            self._traces.put(changes, self._run_of, self._backfill_of)

    def _run_of(self, key: RunKey) -> DagRun | None:
        return run.row if (run := self._state.runs.get(key)) else None

    def _backfill_of(self, backfill_id: str) -> Backfill | None:
        return live.row if (live := self._state.backfills.get(backfill_id)) else None

    def run(self, ready: threading.Event, *, until_idle: bool) -> None:
        """Until it is to end; raises why, unless it was stopped."""
        with self._started as started:
            self._passes.watch(self._loop.current_pass, *self._executor.passes)
            for service in self._services:
                self._passes.watch(service.current_pass)
                service.start(self._shutdown.service_failed)
                started.callback(service.stop)
            threading.Thread(target=self._shutdown.wait, name="stop", daemon=True).start()
            self._executor.prepare()
            try:
                self._events.wait_for_bundles(BUNDLES_S, lambda: self._shutdown.is_due)
                self._loop.run_until(lambda: self._is_done(ready, until_idle))
                self._loop.decisions.draining = True
                if self._shutdown.has_lost_parent:
                    self._executor.report_spark_gone("the JVM that ran this driver has ended")
                if self._shutdown.problem is None:
                    self._drain(DRAIN_S if self._shutdown.drains else 0.0)
            finally:
                self._executor.close(0.0)
                self._servers.close()
            if self._shutdown.is_lease_lost:
                raise LostLease("Another manager has taken the lease; this one has stopped and changes nothing more.")
            self._loop.run_once()  # the last outcomes
            flush(self._senders)
            self._loop.run_once()
            if self._shutdown.problem is not None:
                raise self._shutdown.problem

    def _is_done(self, ready: threading.Event, until_idle: bool) -> bool:
        if self._loop.has_parsed_all:
            ready.set()
        return self._shutdown.is_due or (until_idle and self._loop.is_idle and not self._executor.running())

    def _drain(self, seconds: float) -> None:
        """Commit what ends meanwhile; put the rest back."""
        running = self._executor.running()
        if not running or self._shutdown.is_lease_lost:
            return
        log.info("draining", tasks=len(running), seconds=seconds)
        self._loop.run_while(lambda: self._executor.close(seconds), lambda: self._shutdown.is_lease_lost)


def _traces_of(term: Term, spark: SparkSession, since: datetime) -> TraceSender | None:
    if term.exporter is None or term.settings.opentelemetry is None:
        return None
    store, status = term.store, SparkStatus(spark.sparkContext)
    state_id = str(term.leader.row.state_id)
    ids = TraceIds(state_id)
    spans = TraceSpans(ids, since, with_spark_jobs=term.settings.opentelemetry.spark_jobs)
    return TraceSender(
        term.exporter, ids, spans, state_id=state_id, find_job=status.job,
        find_request=lambda request_id: store.first(Request, matching(request_id=request_id)),
    )  # fmt: skip


def add_configured_pools(state: ManagerState, settings: Settings) -> None:
    """Add the pools of the configuration that the state does not have yet; existing ones keep what `pools set` made of them."""
    for pool in settings.pools:
        if pool.name not in state.pools:
            of_processes = {"memory_mb": pool.memory, "nice": pool.nice}
            state.put(Pool(pool.name, pool.slots, pool.weight, pool.min_share, **of_processes))


def _give_up_unknown_targets(state: ManagerState, now: datetime) -> None:
    known = {target.name for target in state.targets}
    for row in list(state.notifications.values()):
        if row.target not in known:
            state.put(row.evolve(state="failed", ended_at=now, error="the configuration has no such target any more"))


@contextmanager
def _stop_on_signals(stop: threading.Event, watchdog: ExitWatchdog) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; a second one ends the process as it always would."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: object) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        stop.set()
        watchdog.arm()  # it may still wait for Spark to start
        restore()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()
