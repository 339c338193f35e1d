"""Plans backfills in a thread of its own: planning is a Spark job, and no decision may wait for a Spark slot.

Its jobs run in the pool `control`, which comes before every other. While nothing is asked after the start it makes up to 24 plans
whose results are discarded, so that the first backfill does not wait until Spark's code is compiled; a request waits for one of
these plans at most. A plan that fails because Spark is gone is not answered: the request waits for the next manager. One that
fails because the state can't be read is tried again before that is the answer.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from backfill_manager.clock import EPOCH, UTC, Clock
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.errors import BackfillManagerError, StateError
from backfill_manager.execution.inputs.input_statistics import input_files
from backfill_manager.execution.inputs.interval_rows import rows_counter
from backfill_manager.execution.inputs.wait_checks import wait_checks_of_plan
from backfill_manager.execution.spark.session import CONTROL_POOL
from backfill_manager.execution.spark.spark_health import spark_gone_reason
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.logging import get_logger
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan, existing_runs, plan_backfill
from backfill_manager.planning.backfills.batch_forecast import with_batch_limits
from backfill_manager.planning.backfills.downstream_plan import Dags
from backfill_manager.planning.backfills.dry_run import with_dry_run
from backfill_manager.planning.backfills.make_plan import make_plan
from backfill_manager.queries.data_gaps import wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.request_kinds import BACKFILL_DRY_RUN
from backfill_manager.service import Service
from backfill_manager.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("planner")

ATTEMPTS: Final = 3  # to make a plan, while the state can't be read
RETRY_INTERVAL_S: Final = 2.0
# The JVM compiles what it has met often: the fourth plan takes less than half of the second, the twelfth half of that again.
WARM_UPS: Final = 24
WARM_UPS_AT_ONCE: Final = 8
WARM_UP_PAUSE_S: Final = 1.0  # before each of the others


@dataclass(frozen=True)
class PlanResult:
    request: PlanRequest
    plan: BackfillPlan | None
    refusal: BackfillManagerError | str = ""
    began_at: datetime = EPOCH
    ended_at: datetime = EPOCH


class Planner(Service):
    JOINED: ClassVar = False  # Spark analyses and compiles a plan for seconds in which no job is there to be cancelled

    def __init__(
        self, spark: SparkSession, store: Store, clock: Clock, *, batch_target_s: float, on_planned: Callable[[PlanResult], None],
        on_spark_gone: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__("planner")
        self._spark, self._store, self._clock, self._batch_target_s = spark, store, clock, batch_target_s
        self._on_planned, self._on_spark_gone = on_planned, on_spark_gone
        self._jobs: queue.SimpleQueue[tuple[PlanRequest, DagSpec, int, Dags]] = queue.SimpleQueue()
        self._group = SparkJobGroup(CONTROL_POOL, "bfm/planning", "planning")
        self._warm_ups = 0  # so far
        self._failed: Counter[str] = Counter()  # request -> attempts at which the state could not be read

    def plan(self, request: PlanRequest, spec: DagSpec, dag_version: int, others: Dags) -> None:
        """`on_planned` gets the result, in the planner's thread. `others`: the active DAGs, for a request with `downstream`."""
        self._jobs.put((request, spec, dag_version, others))
        self.wake()

    def stop(self) -> None:
        """A plan that is being made is given up: nobody would take it."""
        self._stopping.set()
        self._group.cancel_jobs(self._spark.sparkContext)
        super().stop()

    def set_up(self) -> None:
        self._session = self._spark.newSession()
        self._group.enter(self._session)
        self._session.conf.set("spark.sql.shuffle.partitions", "1")
        # One stage: nothing to adapt to, a fifth less to plan.
        self._session.conf.set("spark.sql.adaptive.enabled", "false")

    def run_once(self) -> float | None:
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return self._warm_up()
        self._warm_ups = WARM_UPS  # from now on tasks have the machine
        request, *_ = job
        began = self._clock.now()
        try:
            result = PlanResult(request, self._planned(*job))
        except StateError as error:
            self._failed[request.request_id] += 1
            if self._failed[request.request_id] < ATTEMPTS:
                log.warning("planning waits: the state can't be read", backfill=request.backfill_id, reason=str(error))
                self._jobs.put(job)
                return RETRY_INTERVAL_S
            result = PlanResult(request, None, error)
        except Exception as error:  # noqa: BLE001 - logged and answered; the manager goes on
            refusal = self._refusal(error, request.backfill_id)
            if refusal is None:
                return 0
            result = PlanResult(request, None, refusal)
        del self._failed[request.request_id]
        self._on_planned(replace(result, began_at=began, ended_at=self._clock.now()))
        return 0

    def _planned(self, request: PlanRequest, spec: DagSpec, dag_version: int, others: Dags) -> BackfillPlan:
        now = self._clock.now()
        command = request.command
        # Rows are counted in the backfill's own pool: it may take long, and only a decision goes before everything else.
        counting = self._spark.newSession()
        counting.conf.set("spark.scheduler.pool", command.pool)
        find_wanted = wanted_by_data(self._store, rows_counter(counting))
        plan = make_plan(self._session, self._store, command, spec, dag_version, others, now, find_wanted)
        plan = with_batch_limits(plan, self._store, self._batch_target_s)
        if request.kind != BACKFILL_DRY_RUN:
            return plan
        check_waits, files_of = wait_checks_of_plan(self._session), input_files(self._session)
        return with_dry_run(plan, self._store, now, check_waits=check_waits, files_of=files_of)

    def _refusal(self, error: Exception, backfill: str) -> BackfillManagerError | str | None:
        """The answer to a request whose plan failed; None for no answer: this manager is stopping, or Spark is gone."""
        if self._stopping.is_set():
            return None
        if reason := spark_gone_reason(self._spark):
            self._on_spark_gone(reason)
            return None
        if isinstance(error, BackfillManagerError):
            return error
        log.error("planning failed", backfill=backfill, exc_info=error)
        return f"Planning failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

    def _warm_up(self) -> float | None:
        """Plans once for nobody, with or without a run that is there; None when that was done often enough."""
        if self._warm_ups >= WARM_UPS:
            return None
        self._warm_ups += 1
        spec = DagSpec(dag_id="warm-up", tasks=(TaskSpec("none"),), schedule="0 0 * * *", timezone="Europe/Amsterdam")
        command = CreateBackfill(
            dag_id=spec.dag_id, start_date=datetime(2024, 3, 1, tzinfo=UTC), end_date=datetime(2024, 4, 1, tzinfo=UTC)
        )  # fmt: skip
        run = DagRun(
            dag_id=spec.dag_id, run_id="warm-up", run_type=s.BACKFILL_RUN, state=s.SUCCESS, dag_version=1, run_seq=0,
            created_at=EPOCH, logical_date=command.start_date, is_partial=False,
        )  # fmt: skip
        try:
            runs = existing_runs(self._store, command, spec)
            if self._warm_ups % 2 == 0:
                runs = pa.table({name: [getattr(run, name)] for name in runs.column_names}, schema=runs.schema)
            plan_backfill(self._session, command, spec, 1, runs, self._clock.now())
        except Exception as error:  # noqa: BLE001 - logged; the first plan is slower then
            self._refusal(error, "warm-up")
            self._warm_ups = WARM_UPS
        return 0 if self._warm_ups < WARM_UPS_AT_ONCE else WARM_UP_PAUSE_S
