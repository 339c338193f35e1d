"""Plans backfills in a thread of its own: planning is a Spark job, and no decision may wait for a Spark slot.

Runs in the pool `control`, which comes before every other; is warmed once at the start, so that the first backfill does
not pay for Spark's first time. A plan that fails because Spark is gone is no answer: the request waits for the next manager.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_manager.clock import EPOCH, UTC, Clock, SystemClock
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.errors import BackfillManagerError
from backfill_manager.execution.error_format import spark_gone_reason
from backfill_manager.execution.input_statistics import input_files
from backfill_manager.execution.session import CONTROL_POOL
from backfill_manager.execution.spark_properties import ignore_stopped_context
from backfill_manager.logging import get_logger
from backfill_manager.manager.instructions import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.backfill_plan import BackfillPlan, existing_runs, plan_backfill
from backfill_manager.planning.downstream_plan import Dags, plan_as_asked
from backfill_manager.planning.estimates import with_estimates
from backfill_manager.planning.reruns import with_reruns
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.requests.command_types import BACKFILL_DRY_RUN
from backfill_manager.service import ServiceFailed, ServiceThread
from backfill_manager.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("planner")

TAG = "bfm/planning"


@dataclass(frozen=True)
class PlanResult:
    wanted: PlanRequest
    dag_version: int
    spec: DagSpec
    plan: BackfillPlan | None
    refusal: str = ""


@dataclass(frozen=True)
class _Asked:
    wanted: PlanRequest
    spec: DagSpec
    dag_version: int
    others: Dags


class Planner:
    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        on_planned: Callable[[PlanResult], None],
        clock: Clock | None = None,
        *,
        on_spark_gone: Callable[[str], None] = lambda why: None,
        on_failure: ServiceFailed | None = None,
    ) -> None:
        self._spark, self._store, self._on_planned = spark, store, on_planned
        self._clock, self._on_spark_gone = clock or SystemClock(), on_spark_gone
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread = ServiceThread("planner", self._loop, on_failure=on_failure)
        self._stopping = False

    def start(self) -> None:
        self._thread.start()

    def plan(self, wanted: PlanRequest, spec: DagSpec, dag_version: int, others: Dags) -> None:
        """Soon `on_planned` is called, from the planner's thread. `others`: the active DAGs, for a request with
        `downstream`."""
        self._asked.put(_Asked(wanted, spec, dag_version, others))

    def stop(self) -> None:
        """A plan that is being made is given up: nobody would take it in."""
        self._stopping = True
        self._asked.put(None)
        with ignore_stopped_context():
            self._spark.sparkContext.cancelJobsWithTag(TAG)
        self._thread.join()

    def _loop(self) -> None:
        session = self._spark.newSession()
        self._spark.sparkContext.addJobTag(TAG)
        session.conf.set("spark.scheduler.pool", CONTROL_POOL)
        session.conf.set("spark.sql.shuffle.partitions", "1")
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", CONTROL_POOL)
        self._spark.sparkContext.setJobDescription("planning")
        self._answer(session, None)
        while (asked := self._asked.get()) is not None:
            self._answer(session, asked)

    def _answer(self, session: SparkSession, asked: _Asked | None) -> None:
        try:
            if asked is None:
                self._warm_up(session)
                return
            now = self._clock.now()
            plan = plan_as_asked(
                session, self._store, asked.wanted.ask, asked.spec, asked.dag_version, asked.others, now
            )
            if asked.wanted.kind == BACKFILL_DRY_RUN:  # a real one is made without waiting for its figures
                plan = with_estimates(with_reruns(plan, self._store), self._store, input_files(session), now)
        except Exception as error:  # a plan that breaks is answered and logged; the manager goes on
            if self._stopping:
                return
            if why := spark_gone_reason(self._spark):  # not answered: the next manager plans it
                self._on_spark_gone(why)
                return
            said = str(error)
            if not isinstance(error, BackfillManagerError):
                log.exception("planning failed", backfill=asked.wanted.backfill_id if asked else "warm-up")
                said = f"Planning failed: {type(error).__name__}: {said.strip().partition(chr(10))[0]}"
            if asked is not None:
                self._on_planned(PlanResult(asked.wanted, asked.dag_version, asked.spec, None, said))
        else:
            self._on_planned(PlanResult(asked.wanted, asked.dag_version, asked.spec, plan))

    def _warm_up(self, session: SparkSession) -> None:
        spec = DagSpec(dag_id="warm-up", tasks=(TaskSpec("none"),), schedule="0 0 * * *", timezone="Europe/Amsterdam")
        ask = CreateBackfill(
            dag_id=spec.dag_id, start_date=datetime(2024, 3, 1, tzinfo=UTC), end_date=datetime(2024, 4, 1, tzinfo=UTC)
        )  # fmt: skip
        now = self._clock.now()
        nothing = existing_runs(self._store, ask, spec)
        one = DagRun(
            dag_id=spec.dag_id, run_id="warm-up", run_type=s.BACKFILL_RUN, state=s.SUCCESS, dag_version=1, run_seq=0,
            created_at=EPOCH, logical_date=ask.start_date, is_partial=False,
        )  # fmt: skip
        something = pa.table({name: [getattr(one, name)] for name in nothing.column_names}, schema=nothing.schema)
        for runs in (nothing, something, nothing):  # the second time of each meets compiled code
            if not self._stopping:
                plan_backfill(session, ask, spec, 1, runs, now)
