"""The names under which an output is written: whose it is (a state's), and which write of which task.

Delta takes each version of an application transaction once, so the id must be the same in every try of a write, and must
not be anybody else's. It names the state, because run ids repeat: two states over one warehouse, a state that was lost and
made anew, and each `bfm dags test` run the same DAG for the same dates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.model.records import DagRun


@dataclass(frozen=True)
class StateIdentity:
    """Which state this is; `manager.state_identity` makes it and keeps it in the state."""

    state_id: str
    upgraded_at: datetime | None = None  # when a state of an older release was given its id; None: it was made with one

    def is_part_of_ids(self, run: DagRun) -> bool:
        """False for runs that were made before their state had an id. They keep the ids of then for all their writes: a try
        before the upgrade may have committed under one, or may still do so late, and only the same id makes Delta refuse
        the second write."""
        return self.upgraded_at is None or run.created_at >= self.upgraded_at


def transaction_id(state: StateIdentity, launch: TaskLaunch, nth: int | str) -> str:
    """Of the `nth` write of this task into a table, or of a statement of its SQL."""
    ti = launch.ti
    whose = f"{state.state_id}/" if state.is_part_of_ids(launch.run) else ""
    return f"bfm/{whose}{ti.dag_id}/{ti.task_id}/{ti.run_id}/{nth}"


def user_metadata(state: StateIdentity, launch: TaskLaunch, **more: Any) -> str:
    """For the commit: who wrote it, as JSON."""
    about: dict[str, Any] = {
        "state": state.state_id, "dag": launch.ti.dag_id, "run": launch.ti.run_id, "task": launch.ti.task_id,
        "version": launch.version.version, "try": launch.ti.try_number, "launch": launch.ti.launch,
        "generation": launch.ti.generation, **more,
    }  # fmt: skip
    if launch.interval is not None:
        about["interval"] = [format_instant(at) for at in launch.interval]
    if launch.run.partition_key is not None:
        about["partition"] = launch.run.partition_key
    return json.dumps(about, ensure_ascii=False)
