"""For a dry run with `reprocess` failed_tasks: which item re-runs how many failed tasks of which run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from backfill_manager.model import states
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan, existing_runs
from backfill_manager.planning.runs.clear_plan import HAS_FAILED
from backfill_manager.planning.runs.timeline import timeline_key
from backfill_manager.store.base import Condition, Store

_MAX_NAMED: Final = 1000  # run ids in one condition; beyond, the failed tasks of all the DAG's runs are read


@dataclass(frozen=True)
class Rerun:
    """`failed_tasks` of the run `run_id` are run again; what depends on them is not counted."""

    run_id: str
    failed_tasks: int


def with_reruns(plan: BackfillPlan, store: Store) -> BackfillPlan:
    """The plan with its `reruns`, by ordinal."""
    if plan.command.effective_reprocess != "failed_tasks":
        return plan
    found = existing_runs(store, plan.command, plan.dag).to_pylist()
    failed = {
        one["run_id"] for one in found if one["state"] in (states.FAILED, states.CANCELLED) and not one["is_partial"]
    }
    if not failed:
        return plan
    own = {timeline_key(one["logical_date"], one["partition_key"]): one["run_id"] for one in found}
    items = plan.items.select(["ordinal", "logical_date", "partition_key", "state"]).to_pylist()
    pending = {
        item["ordinal"]: timeline_key(item["logical_date"], item["partition_key"])
        for item in items
        if item["state"] == states.PENDING
    }
    covering = _covering(sorted(date for date, _ in pending.values() if date is not None), found)
    current = {ordinal: own.get(key) or covering.get(key[0]) for ordinal, key in pending.items()}
    runs = {ordinal: run_id for ordinal, run_id in current.items() if run_id is not None and run_id in failed}
    failures = _failures(plan, store, set(runs.values()))
    reruns = {ordinal: Rerun(run_id, failures[run_id]) for ordinal, run_id in runs.items() if failures[run_id]}
    return dataclasses.replace(plan, reruns=reruns)


def _covering(dates: Iterable[datetime], runs: Iterable[Mapping[str, Any]]) -> dict[datetime | None, str]:
    """For each of the dates, which rise, the batch of an earlier one that stands for it too, as in `TimelineWindow.covering`: in
    one walk, as there may be many of both."""
    batches = sorted((one for one in runs if one["items"] > 1), key=lambda one: one["logical_date"], reverse=True)
    over: list[Mapping[str, Any]] = []
    found: dict[datetime | None, str] = {}
    for date in dates:
        while batches and batches[-1]["logical_date"] < date:
            over.append(batches.pop())
        over = [one for one in over if one["interval_end"] > date]
        if over:
            last = max(over, key=lambda one: (one["state"] in states.RUN_LIVE, one["logical_date"]))
            found[date] = last["run_id"]
    return found


def _failures(plan: BackfillPlan, store: Store, run_ids: set[str]) -> Counter[str]:
    """Tasks that failed, could not start or were cancelled, by run (also of other runs, where these are many); not callbacks."""
    where = [Condition("dag_id", "=", plan.dag.dag_id), Condition("state", "in", sorted(HAS_FAILED))]
    if len(run_ids) <= _MAX_NAMED:
        where.append(Condition("run_id", "in", sorted(run_ids)))
    counts: Counter[str] = Counter()
    for run_id, task_id in store.count("task_instance", ("run_id", "task_id"), where):
        if not plan.dag.is_callback(task_id):
            counts[run_id] += 1
    return counts
