"""`bfm dags test`: one run of one DAG, here and now, with real Spark and a state that is thrown away.

The same tick, executor and exactly-once output as in the manager; only the state lives in memory. Output tables are real.
That state is a new one each time: what a test has written is written anew by the next one, and by the manager.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.dags.catalog import DagStore
from backfill_manager.dags.importing.code_cache import CodeCache
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.errors import InvalidInput, NotFound, SparkGone
from backfill_manager.execution.catalog import register_tables
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.session import build_session
from backfill_manager.execution.spark_properties import ignore_stopped_context
from backfill_manager.manager.create_run import make_run
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.manager import add_configured_pools
from backfill_manager.manager.state import ManagerState, RunKey
from backfill_manager.manager.state_identity import identity_of
from backfill_manager.manager.tick import TickLoop
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, ImportProblem, TaskInstance, TaskLog
from backfill_manager.planning.timeline import TimelineWindow, place_of, run_id_for
from backfill_manager.queries.runs import run_details
from backfill_manager.queries.tasks import task_view
from backfill_manager.settings import Settings
from backfill_manager.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TOLD: Final = 3  # files that could not be loaded


def _not_loaded(problems: Iterable[ImportProblem], dag_id: str) -> str:
    """One of them may be why the DAG is not there; those first whose names hold its id."""
    told = [
        f"{p.file}, line {p.line}: {p.message}" if p.line else f"{p.file}: {p.message}"
        for p in sorted(problems, key=lambda problem: dag_id not in problem.file)
    ]
    if not told:
        return ""
    more = f"; and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f". Files that could not be loaded: {'; '.join(told[:MOST_TOLD])}{more}"


def run_dag_once(
    settings: Settings, dag_id: str, logical_date: datetime | None, *, spark: SparkSession | None = None
) -> dict[str, Any]:
    """Run `dag_id` once for the interval that starts at `logical_date` (default: the DAG's first interval). Returns
    `{"run": ..., "tasks": [...], "logs": [...]}`; the run's state tells how it went. `spark` is left running; without
    one, a session is built and stopped again."""
    clock, store, state = SystemClock(), MemoryStore(), ManagerState()
    store.init()
    leader = LeaderElector(store, clock, lease_s=3600, version="test").run_once()
    assert leader is not None
    add_configured_pools(state, settings)
    with tempfile.TemporaryDirectory(prefix="bfm-test-") as scratch:
        dags = DagStore(state.catalog)
        for bundle in settings.bundles:
            dags.submit(parse_bundle(bundle, snapshots=Path(scratch), limits=settings.limits), clock.now())
        for row in list(state.catalog.dags.values()):
            state.put(row.evolve(is_paused=True))  # nothing else is to run
        if dag_id not in state.catalog.dags:
            raise NotFound("DAG", dag_id, state.catalog.dags, _not_loaded(state.catalog.problems.values(), dag_id))
        key = make_manual_run(state, dag_id, logical_date, clock.now(), leader.next_seq(1))
        own = spark is None
        spark = spark or build_session(
            pools=list(state.pools.values()),
            master=settings.spark.master,
            warehouse=str(Path(settings.warehouse).absolute()),
            conf=settings.spark.conf,
        )
        register_tables(spark)
        ended = threading.Event()
        gone: list[str] = []  # why there is no Spark any more

        def spark_gone(why: str) -> None:
            gone.append(why)
            ticker.wake()

        executor = Executor(
            spark,
            library=CodeCache(),
            on_event=lambda event: ticker.happened(event),
            clock=clock,
            term=leader.term,
            leads=lambda: not ended.is_set(),
            state=identity_of(store, leader.row),
            slots={pool.name: pool.slots for pool in state.pools.values()},
            on_spark_gone=spark_gone,
        )
        ticker = TickLoop(state, store, leader, clock=clock, executor=executor, planner=None)
        try:
            ticker.run_until(lambda: key not in state.runs or bool(gone))
        finally:
            executor.close(5.0)
            ended.set()
            if own:
                with ignore_stopped_context():
                    spark.stop()
        if key in state.runs:
            raise SparkGone(f"Spark is gone: {gone[0]}. The run has not finished; what it has written stays.")
    run = next(row for row in store.read(DagRun) if (row.dag_id, row.run_id) == key)
    lines = sorted(store.read(TaskLog), key=lambda line: (line.at, line.line))
    return {
        "run": run_details(run),
        "tasks": [task_view(ti) for ti in store.read(TaskInstance, order_by=["started_at"])],
        "logs": [f"{line.task_id}: {line.level} {line.message}" for line in lines],
    }


def make_manual_run(
    state: ManagerState, dag_id: str, logical_date: datetime | None, now: datetime, run_seq: int
) -> RunKey:
    """A run of type `manual` for one interval of the DAG's schedule, put into the working set."""
    spec = state.current_spec(dag_id)
    start = logical_date or spec.start_date
    if start is None:
        raise InvalidInput(f"DAG {dag_id!r} has no start_date: say which interval with --logical-date")
    timetable = timetable_of(spec, start)
    first = start if spec.schedule is None else timetable.first_at_or_after(start)
    end = None if first is None or spec.schedule is None else timetable.next_after(first)
    row = DagRun(
        dag_id=dag_id, run_id=run_id_for(s.MANUAL_RUN, place_of(first, None)), run_type=s.MANUAL_RUN,
        state=s.QUEUED, dag_version=state.catalog.dags[dag_id].current_version, run_seq=run_seq, created_at=now,
        logical_date=first, interval_start=first, interval_end=end or first,
    )  # fmt: skip
    return make_run(state, row, spec, stretch=TimelineWindow(), now=now).key
