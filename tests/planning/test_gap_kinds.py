"""Backfills whose items the data choose: `missing` by data, and `outdated`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backfill_manager.clock import UTC, micros
from backfill_manager.dags.definition import DagSpec, TableRead, TaskSpec
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRun, Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.make_plan import make_plan
from backfill_manager.planning.data.gap_kinds import Wanted
from backfill_manager.requests.backfill_checks import check_backfill
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
JANUARY = datetime(2013, 1, 1, tzinfo=UTC)
DAILY = DagSpec("flights", (TaskSpec("clean"),), schedule="@daily", writes=("silver",))
READER = DagSpec("report", (TaskSpec("sum"),), schedule="@daily", reads=(TableRead("silver", "at"),))
GO, LIVE = ("pending", None), ("skipped", "in flight")


def state_with(*runs: DagRun) -> MemoryStore:
    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "h", 1, "leading", JANUARY, JANUARY, 30, "1"))
    changes = Changes()
    for run in runs:
        changes.put(run)
    leader.commit(changes)
    return store


def run(day: int, state: str = "success", days: int = 1, **more: Any) -> DagRun:
    at = JANUARY + DAY * (day - 1)
    return DagRun(
        "flights", f"run of {day}", "backfill", state, 1, day, at, at, at, at + DAY * days, items=days, **more
    )


def wanting(*days: int) -> Callable[..., Wanted]:
    def find(command: CreateBackfill, dag: DagSpec) -> Wanted:
        assert command.start_date is not None and command.end_date is not None
        starts = np.arange(micros(command.start_date), micros(command.end_date) + 1, DAY // timedelta(microseconds=1))
        wanted = np.isin(np.arange(len(starts)) + 1, days)
        return Wanted(starts, starts + DAY // timedelta(microseconds=1), wanted)

    return find


def planned(spark: SparkSession, store: MemoryStore, *wanted: int, **kind: Any) -> BackfillPlan:
    command = CreateBackfill(dag_id="flights", start_date=JANUARY, end_date=JANUARY + 5 * DAY, **kind)
    check_backfill(command, DAILY, JANUARY + 30 * DAY)
    others = {"report": (READER, 1)} if kind.get("downstream") else {}
    return make_plan(spark, store, command, DAILY, 1, others, JANUARY + 30 * DAY, wanting(*wanted))


def items(plan: BackfillPlan) -> dict[int, tuple[str, str | None]]:
    rows = plan.items.select(["logical_date", "state", "reason"]).to_pylist()
    return {row["logical_date"].day: (row["state"], row["reason"]) for row in rows}


RUNS = (run(1), run(2), run(3, "failed"), run(4, "running"), run(5, days=2))


def test_missing_by_data_takes_what_the_data_lack_whatever_runs_there_were(spark: SparkSession) -> None:
    plan = planned(spark, state_with(*RUNS), 2, 3, 6, kind="missing", by="data")
    assert items(plan) == {2: GO, 3: GO, 4: LIVE, 6: GO}
    assert plan.command.effective_reprocess == "completed"
    assert plan.command.config()["by"] == "data"


def test_outdated_takes_what_the_data_say_and_carries_it_downstream(spark: SparkSession) -> None:
    plan = planned(spark, state_with(*RUNS), 2, 6, kind="outdated", downstream=True)
    assert items(plan) == {2: GO, 4: LIVE, 6: GO}
    (below,) = plan.downstream
    assert (below.dag.dag_id, items(below)) == ("report", {2: GO, 6: GO})


def test_nothing_is_wanted(spark: SparkSession) -> None:
    assert items(planned(spark, state_with(*RUNS[:3]), kind="outdated")) == {}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"kind": "schedule", "by": "data"}, "can be used with .* missing only, not with .* schedule"),
        ({"kind": "missing", "by": "data", "reprocess": "failed_tasks"}, "itself determines which dates run again"),
        ({"kind": "outdated", "reprocess": "failed"}, "itself determines which dates run again"),
    ],
)
def test_what_does_not_go_with_it_is_refused(kind: Any, message: str) -> None:
    command = CreateBackfill(dag_id="flights", start_date=JANUARY, end_date=JANUARY + DAY, **kind)
    with pytest.raises(InvalidInput, match=message):
        check_backfill(command, DAILY, JANUARY + 30 * DAY)
