"""Plans the mark of several runs: which of those that are chosen get the state, one value that is shown before it is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.errors import NotFound
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.planning.runs.chosen_runs import (
    check_batches,
    described_dates,
    read_chosen_runs,
    read_cut_batches,
)
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import MarkRuns
from backfill_manager.store.base import Store


@dataclass(frozen=True)
class MarkPlan:
    """`runs` get the state; `unchanged` are those of the chosen ones that have it already."""

    state: str
    runs: tuple[DagRun, ...]
    unchanged: tuple[DagRun, ...]
    batches_left_out: tuple[str, ...] = ()  # as in `clear_plan.ClearPlan`

    @property
    def summary(self) -> dict[str, Any]:
        """`by_state`: the states that the runs have now; `running`: how many of them are stopped first."""
        by_state = Counter(run.state for run in self.runs)
        running = sum(by_state[state] for state in s.RUN_LIVE)
        return {
            "runs": len(self.runs), "unchanged": len(self.unchanged), "running": running, "by_state": dict(by_state),
        }  # fmt: skip

    def to_json_document(self) -> dict[str, Any]:
        runs = [
            {
                "dag_id": run.dag_id, "run_id": run.run_id, "run_type": run.run_type, "state": run.state,
                "logical_date": format_instant(run.logical_date), "partition_key": run.partition_key,
            }
            for run in self.runs
        ]  # fmt: skip
        left_out = list(self.batches_left_out)
        return {"state": self.state, "runs": runs, "summary": self.summary, "batches_left_out": left_out}


def plan_mark(store: Store, command: MarkRuns, dags: Mapping[str, DagRow]) -> MarkPlan:
    """`dags` are all there are or ever were. `NotFound` for a DAG that does not exist; `InvalidInput` where no run is
    chosen."""
    command.check()
    if command.dag_id not in dags:
        raise NotFound("DAG", command.dag_id, dags, hint="see_dags")
    chosen = [dags[command.dag_id]]
    runs = read_chosen_runs(store, command, chosen)
    for run_id in command.run_ids:
        if not any(run.run_id == run_id for run in runs):
            raise NotFound(f"current run of DAG {command.dag_id!r} with the id", run_id, hint="see_runs")
    if not runs:
        check_batches(store, command, chosen, "mark")
        raise errors.NO_RUN_TO_MARK(dag_id=command.dag_id, between=described_dates(command))
    has_state, others = (tuple(run for run in runs if (run.state == command.state) is it) for it in (True, False))
    cut = tuple(run.run_id for run in read_cut_batches(store, command, chosen))
    return MarkPlan(command.state, others, has_state, cut)
