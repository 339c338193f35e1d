"""Where everything is wired: read this to learn the system.

    run_manager ─► Candidate (lease) ─► wake (what is alive) ─► Spark, Executor, Planner, BundleWatcher, Doorbell, Heart
                └─► Ticker.run_until(told to stop, or idle) ─► drain ─► resign

Every part is built here by keyword, started in one list and stopped in its reverse. SIGTERM and SIGINT drain: no new task
starts, what runs may finish for `DRAIN_S`, the rest is put back for whoever leads next. A manager without Spark, or one of
whose parts has failed, ends by itself (`ending.py`). However it ends, short of being killed, it gives its lease back.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager import __version__
from backfill_manager.clock import Clock, SystemClock
from backfill_manager.dags.catalog import DagStore
from backfill_manager.dags.importing.code_cache import CodeCache
from backfill_manager.descriptors import raise_limit
from backfill_manager.errors import BackfillManagerError, LostLease
from backfill_manager.execution.catalog import register_tables
from backfill_manager.execution.error_format import spark_gone_reason
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.jars import cache_folder
from backfill_manager.execution.session import build_session, lower_jvm_thread_priority
from backfill_manager.execution.spark_properties import ignore_stopped_context
from backfill_manager.logging import get_logger
from backfill_manager.manager.bundle_watcher import BundleWatcher
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.manager.parent_watchdog import parent_has_ended
from backfill_manager.manager.planner import Planner
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.request_poller import RequestPoller
from backfill_manager.manager.shutdown import Shutdown
from backfill_manager.manager.spark_monitor import SparkMonitor
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.state_identity import identity_of
from backfill_manager.manager.tick import TickLoop
from backfill_manager.model.records import Pool
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Leader, Store
from backfill_manager.store.uri import is_catalog_schema, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("manager")

DRAIN_S = 30.0


def run_manager(
    settings: Settings,
    *,
    state: str,
    until_idle: bool = False,
    ready: threading.Event | None = None,
    stop: threading.Event | None = None,
    spark: SparkSession | None = None,
    clock: Clock | None = None,
    beside: Callable[[Store], AbstractContextManager[None]] | None = None,
) -> int:
    """Lead the state at `state` until told to stop (or until nothing is left to do). Returns the exit code; raises `SparkGone`
    or `ServiceFailed` when it could not go on, with the lease given back.

    `ready` is set when requests are being answered and every bundle has been scanned. `spark` is a session to use and
    leave running; without one, a session is built and stopped again. `beside(store)` is entered for as long as the state
    is there (the web pages), while this one stands by, too.
    """
    clock, stop = clock or SystemClock(), stop or threading.Event()
    raise_limit()
    own_spark = spark is None
    if is_catalog_schema(state) and spark is None:
        spark = _session(settings)
    store = open_store(state, spark=spark)
    with _stopping_on_signals(stop):
        try:
            made = store.init()
            if made:
                log.info("state made or brought up to date", root=state, tables=len(made))
            with beside(store) if beside else nullcontext():
                candidate = LeaderElector(store, clock, lease_s=settings.lease.seconds, version=__version__)
                leader = candidate.wait(stop)
                if leader is None:
                    return 0
                log.info("leading", term=leader.term, state=state, state_id=leader.row.state_id)
                return _lead(settings, store, leader, clock, stop, spark, ready=ready, until_idle=until_idle)
        finally:
            if own_spark:
                _stop_spark()
            store.close()


def _lead(
    settings: Settings,
    store: Store,
    leader: Leader,
    clock: Clock,
    stop: threading.Event,
    spark: SparkSession | None,
    *,
    ready: threading.Event | None,
    until_idle: bool,
) -> int:
    lost = threading.Event()
    leads = True
    bells: list[Any] = []  # who is to be woken; the ticker comes later than the heart

    def wake_all() -> None:
        for bell in bells:
            bell.wake()

    def lease_lost() -> None:
        lost.set()
        wake_all()

    def told_to_stop() -> bool:
        return (stop.is_set() and not parent_has_ended()) or (bool(bells) and bells[0].asked_to_stop is not None)

    def spark_gone(why: str) -> None:
        if told_to_stop():  # whoever stopped us stopped Spark, too: a signal to the whole process group does
            log.info("Spark is gone while the manager stops", why=why)
        else:
            ending.spark_gone(why)

    ending = Shutdown(wake_all, lambda: None if spark is None else spark_gone_reason(spark))
    heart = Heartbeat(
        leader, clock, lease_s=settings.lease.seconds, on_lost=lease_lost, on_failure=ending.service_failed
    )  # fmt: skip
    heart.start()
    parts: list[Any] = [heart]
    snapshots = snapshots_folder(settings, store.root)
    try:
        state = restore_state(store, term=leader.term, now=clock.now())
        add_configured_pools(state, settings)
        DagStore(state.catalog).keep_bundles([bundle.name for bundle in settings.bundles], clock.now())
        leader.commit(state.take_changes())
        spark = spark or _session(settings, state)
        lower_jvm_thread_priority(spark)
        register_tables(spark)

        executor = Executor(
            spark,
            library=CodeCache(snapshots),
            on_event=lambda event: ticker.happened(event),
            clock=clock,
            term=leader.term,
            leads=heart.leads,
            state=identity_of(store, leader.row),
            slots={pool.name: pool.slots for pool in state.pools.values()},
            on_spark_gone=spark_gone,
            on_failure=ending.service_failed,
        )
        planner = Planner(
            spark,
            store,
            on_planned=lambda planned: ticker.happened(planned),
            clock=clock,
            on_spark_gone=executor.report_spark_gone,
            on_failure=ending.service_failed,
        )
        ticker = TickLoop(state, store, leader, clock=clock, executor=executor, planner=planner)
        bells.append(ticker)
        of_spark = {"application_id": spark.sparkContext.applicationId, "spark_ui": spark.sparkContext.uiWebUrl}
        heart.knows = lambda: {**of_spark, **ticker.figures.columns()}
        heart.run_once()

        watcher = BundleWatcher(
            settings.bundles,
            dags=DagStore(state.catalog),
            snapshots=snapshots,
            limits=settings.limits,
            clock=clock,
            on_event=ticker.happened,
            on_failure=ending.service_failed,
        )
        ticker.watcher = watcher
        doorbell = RequestPoller(store, ticker.ring, on_failure=ending.service_failed)
        spark_watch = SparkMonitor(spark, executor.report_spark_gone, on_failure=ending.service_failed)

        def wake_to_stop() -> None:
            stop.wait()
            ticker.wake()

        stopping = threading.Thread(target=wake_to_stop, name="stop", daemon=True)
        for part in (planner, watcher, doorbell, spark_watch):
            part.start()
            parts.append(part)
        stopping.start()

        def done() -> bool:
            if ready is not None and not ready.is_set() and ticker.scanned.is_set():
                ready.set()
            asked = stop.is_set() or lost.is_set() or ticker.asked_to_stop is not None or ending.problem is not None
            return asked or (until_idle and ticker.is_idle and not executor.running())

        try:
            ticker.run_until(done)
            ticker.draining = True
            if stop.is_set() and not told_to_stop():  # the JVM has ended, and the kernel was quicker than our own look
                executor.report_spark_gone("the JVM that ran this driver has ended")
            drain = ticker.asked_to_stop.drain if ticker.asked_to_stop else True
            if ending.problem is None:
                _drain(ticker, executor, lost, DRAIN_S if drain else 0.0)
        finally:
            executor.close(0.0)
        if lost.is_set():
            raise LostLease("Another manager has taken the lease; this one has stopped and changes nothing any more.")
        ticker.run_once()  # the last outcomes
        if ending.problem is not None:
            raise ending.problem
        heart.stop()
        leader.resign(clock.now())
        leads = False
        log.info("stopped", term=leader.term)
        return 0
    except LostLease as error:
        leads = False
        log.error("stopping: the lease is lost", reason=str(error))
        return 1
    except Exception as error:
        problem = ending.problem or ending.spark_gone_beneath()
        if problem is None or problem is error:
            raise
        raise problem from error
    finally:
        for part in reversed(parts):
            part.stop()
        if leads:
            _give_back(leader, clock)


def _give_back(leader: Leader, clock: Clock) -> None:
    """As well as it can be done: what ends this manager may be what the lease is written with."""
    with ignore_stopped_context(), suppress(BackfillManagerError):
        leader.resign(clock.now())
        log.info("lease given back", term=leader.term)


def _drain(ticker: TickLoop, executor: Executor, lost: threading.Event, seconds: float) -> None:
    """Take in what ends meanwhile; put the rest back."""
    running = executor.running()
    if not running or lost.is_set():
        return
    log.info("draining", tasks=len(running), seconds=seconds)

    def close() -> None:
        executor.close(seconds)
        ticker.wake()

    closing = threading.Thread(target=close, name="drain")
    closing.start()
    ticker.run_until(lambda: not closing.is_alive() or lost.is_set())
    closing.join()


def add_configured_pools(state: ManagerState, settings: Settings) -> None:
    """Pools of the configuration that the state does not have yet; those it has keep what `pools set` made of them."""
    for pool in settings.pools:
        if pool.name not in state.pools:
            state.put(Pool(name=pool.name, slots=pool.slots, weight=pool.weight, min_share=pool.min_share))


def snapshots_folder(settings: Settings, root: str) -> Path:
    """Where the files of DAG versions are kept: as it is configured, else in the state itself when that is a folder,
    else in this user's cache."""
    if settings.snapshots:
        return Path(settings.snapshots)
    return Path(root) / "snapshots" if is_local(root) else cache_folder() / "snapshots"


def _session(settings: Settings, state: ManagerState | None = None) -> SparkSession:
    pools = list(state.pools.values()) if state else []
    return build_session(
        pools=pools
        or [Pool(name=p.name, slots=p.slots, weight=p.weight, min_share=p.min_share) for p in settings.pools],
        master=settings.spark.master,
        warehouse=str(Path(settings.warehouse).absolute()) if is_local(settings.warehouse) else settings.warehouse,
        conf=settings.spark.conf,
    )


def _stop_spark() -> None:
    from pyspark.sql import SparkSession

    with ignore_stopped_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # PySpark's word for a JVM that has ended already
        session = SparkSession.getActiveSession()
        if session is not None:
            session.stop()


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask to stop; a second one ends the process as it always would."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in wanted}

    def heard(number: int, _frame: object) -> None:
        log.info("stopping", signal=signal.Signals(number).name)
        stop.set()
        for each in wanted:
            signal.signal(each, before[each])

    for number in wanted:
        signal.signal(number, heard)
    try:
        yield
    finally:
        for number in wanted:
            signal.signal(number, before[number])
