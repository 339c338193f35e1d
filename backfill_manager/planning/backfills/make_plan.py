"""Makes the plan of a backfill: that of its DAG (`backfill_plan`), and of all downstream of it (`downstream_plan`).

The manager performs what `make_plan` gives, and every dry run prints it, so both are the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.overrides import with_overrides
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan, existing_runs, plan_backfill
from backfill_manager.planning.backfills.backfill_range import with_defaults
from backfill_manager.planning.backfills.downstream_plan import Dags, with_downstream
from backfill_manager.planning.backfills.stale import runs_for_stale
from backfill_manager.planning.data.gap_kinds import FindWanted, runs_implied_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.store.base import Store


def make_plan(
    spark: SparkSession, store: Store, command: CreateBackfill, dag: DagSpec, dag_version: int, others: Dags, now: datetime,
    find_wanted: FindWanted,
) -> BackfillPlan:  # fmt: skip
    """The plan of a command with its overrides and, if it says so, all that is downstream of it among the `others`. What has not
    ended by `now` is not complete, in all of them. `find_wanted` looks at the data of a plan that goes by them."""

    def plan_one(command: CreateBackfill, dag: DagSpec, dag_version: int) -> BackfillPlan:
        command = with_defaults(command, dag, now)
        existing = existing_runs(store, command, dag)
        if command.kind == "stale":
            existing = runs_for_stale(existing, store, dag, dag_version)
        if command.goes_by_data:
            existing = runs_implied_by_data(existing, find_wanted(command, dag), command, dag_version)
        return plan_backfill(spark, command, dag, dag_version, existing, now)

    plan = plan_one(command, with_overrides(dag, command.overrides), dag_version)
    return with_downstream(plan, others, plan_one) if command.downstream else plan
