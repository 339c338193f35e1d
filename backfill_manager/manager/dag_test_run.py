"""`bfm dags test`: one run of one DAG in this process, with real Spark and a state that is thrown away.

The tick, the executor and the exactly-once output are the manager's; only the state is in memory. Output tables are real. The
state is a new one each time, so what a test has written is written again by the next one, and by the manager.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import NotFound, SparkGone
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.secrets import Secrets
from backfill_manager.execution.spark.catalog import register_tables
from backfill_manager.execution.spark.session import SparkProvider
from backfill_manager.manager.decisions.create_run import make_run
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.manager import add_configured_pools
from backfill_manager.manager.services.spark_monitor import spark_monitors
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.state_identity import identity_of
from backfill_manager.manager.tick import TickLoop
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, ImportProblem, RunKey, TaskInstance, TaskLog
from backfill_manager.planning.runs.next_run import interval_from, manual_interval
from backfill_manager.planning.runs.timeline import TimelineWindow, run_id_for, timeline_key
from backfill_manager.processes.fork_server_client import ForkServers
from backfill_manager.queries.runs import run_details
from backfill_manager.queries.tasks import task_view
from backfill_manager.requests.checked_payloads import check_place
from backfill_manager.schemas.json_values import check_sizes
from backfill_manager.settings import Settings
from backfill_manager.store.base import Leader
from backfill_manager.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_PROBLEMS_SHOWN: Final = 3
CLOSE_TIMEOUT_S: Final = 5.0


def run_dag_once(
    settings: Settings, dag_id: str, logical_date: datetime | str | None, *, partition_key: str | None = None,
    conf: dict[str, Any] | None = None, spark: SparkSession | None = None, on_line: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Run `dag_id` once for a partition, or for the interval that starts at `logical_date` (a text is read in the DAG's zone;
    default: its first). Returns
    `{"run": ..., "tasks": [...], "logs": [...]}`; the run's state says how it went. `on_line` gets the log's lines as
    they come. `spark` is left running; without one, a session is built and stopped again."""
    clock, store, state = SystemClock(), MemoryStore(), ManagerState()
    store.init()
    leader = LeaderElector(store, clock, lease_s=3600).run_once()
    assert leader is not None
    add_configured_pools(state, settings)
    check_sizes(conf=conf or {})
    with tempfile.TemporaryDirectory(prefix="bfm-test-") as scratch:
        _load_dags(state, settings, Path(scratch), clock.now())
        key = _make_run(state, dag_id, logical_date, partition_key, conf or {}, leader.next_seq(1), clock.now())
        spark_gone = _run_until_it_ends(settings, state, store, leader, SparkProvider(settings, spark), key, on_line)
    if key in state.runs:
        raise SparkGone(f"Spark is gone: {spark_gone}. The run has not finished; what it has written stays.")
    (run,) = store.read(DagRun)
    lines = sorted(store.read(TaskLog), key=lambda line: (line.at, line.line))
    return {
        "run": run_details(run),
        "tasks": [task_view(ti, run) for ti in store.read(TaskInstance, order_by=["started_at"])],
        "logs": [_worded(line) for line in lines],
    }


def _make_run(
    state: ManagerState, dag_id: str, logical_date: datetime | str | None, partition_key: str | None, conf: dict[str, Any],
    run_seq: int, now: datetime,
) -> RunKey:  # fmt: skip
    if dag_id not in state.catalog.dags:
        problems = _import_problems(state.catalog.problems.values(), dag_id)
        raise NotFound("DAG", dag_id, state.catalog.dags, more=problems)
    spec = state.current_spec(dag_id)
    if isinstance(logical_date, str):
        logical_date = parse_date(logical_date, spec.timezone, name="--logical-date")
    check_place(logical_date, partition_key)
    check_conf(conf, spec)
    start, end = (None, None) if partition_key is not None else _interval(spec, logical_date, now)
    row = DagRun(
        dag_id=dag_id, run_id=run_id_for(s.MANUAL_RUN, timeline_key(start, partition_key)), run_type=s.MANUAL_RUN,
        state=s.QUEUED, dag_version=state.catalog.dags[dag_id].current_version, run_seq=run_seq,
        created_at=now, logical_date=start, interval_start=start, interval_end=end,
        partition_key=partition_key, conf_json=json.dumps(conf),
    )  # fmt: skip
    made = make_run(state, row, spec, TimelineWindow())
    # Its state is empty, so that no table would ever be written; and whoever tests does not want to wait for a retry.
    tasks = [dataclasses.replace(task, waits_for=(), retry_delay=0.0) for task in made.spec.tasks]
    made.spec = dataclasses.replace(made.spec, tasks=tuple(tasks))
    return made.key


def _run_until_it_ends(
    settings: Settings, state: ManagerState, store: MemoryStore, leader: Leader, session: SparkProvider, key: RunKey,
    on_line: Callable[[str], None],
) -> str | None:  # fmt: skip
    """Returns why Spark is gone, with which it ends as well."""
    clock, events, has_ended, gone = SystemClock(), EventQueue(), threading.Event(), list[str]()
    shown = 0

    def show_new_lines() -> None:
        nonlocal shown
        lines = store.read(TaskLog)[shown:]
        shown += len(lines)
        for line in lines:
            on_line(_worded(line))

    def may_end() -> bool:
        show_new_lines()
        return key not in state.runs or bool(gone)

    def on_spark_gone(reason: str) -> None:
        gone.append(reason)
        events.wake()

    servers = ForkServers()
    try:
        executor = Executor(
            session.get(state.pools.values()), servers=servers, on_event=events.put, clock=clock, term=leader.term,
            is_leader=lambda: not has_ended.is_set(), state=identity_of(store, leader.row),
            slots={pool.name: pool.slots for pool in state.pools.values()}, on_spark_gone=on_spark_gone,
            find_secret=Secrets(settings.secrets, session.get).find,
        )  # fmt: skip
        register_tables(session.get())
        loop = TickLoop(state, store, leader, clock=clock, executor=executor, events=events)
        monitors = spark_monitors(session, executor.report_spark_gone, clock)
        for monitor in monitors:
            monitor.start()
        try:
            loop.run_until(may_end)
        finally:
            executor.close(CLOSE_TIMEOUT_S)
            has_ended.set()
            for monitor in monitors:
                monitor.stop()
    finally:
        servers.close()
        session.stop()
    return gone[0] if gone else None


def _worded(line: TaskLog) -> str:
    which = f", try {line.try_number}" if line.try_number > 1 else ""
    return f"{line.task_id}{which}: {line.level} {line.message}"


def _load_dags(state: ManagerState, settings: Settings, snapshots: Path, now: datetime) -> None:
    """Every DAG of the configured bundles, paused: nothing but the one run is to be made."""
    for bundle in settings.bundles:
        state.catalog.submit(parse_bundle(bundle, snapshots=snapshots, limits=settings.limits), now)
    for row in list(state.catalog.dags.values()):
        state.put(row.evolve(is_paused=True))


def _import_problems(problems: Iterable[ImportProblem], dag_id: str) -> str:
    """Files that could not be imported, which may be why the DAG is missing; those whose names hold its id first."""
    shown = [
        f"{p.file}, line {p.line}: {p.message}" if p.line else f"{p.file}: {p.message}"
        for p in sorted(problems, key=lambda problem: dag_id not in problem.file)
    ]
    if not shown:
        return ""
    more = f"; and {len(shown) - MAX_PROBLEMS_SHOWN} more" if len(shown) > MAX_PROBLEMS_SHOWN else ""
    return f". Files that could not be loaded: {'; '.join(shown[:MAX_PROBLEMS_SHOWN])}{more}"


def _interval(spec: DagSpec, logical_date: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """Of the DAG's schedule, the one that begins at `logical_date` or next after it; without a date, the DAG's first, and where
    it has no `start_date` that of a run by hand."""
    at = logical_date or spec.start_date
    return manual_interval(spec, None, now) if at is None else interval_from(spec, at, now)
