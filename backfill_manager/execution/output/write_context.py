"""One try of a task, as its writes see it, and the names under which an output is written: whose it is (a state's), and which
write of which task.

Delta takes each version of an application transaction once, so the id must be the same in every try of a write, and must
not be anybody else's. It names the state, because run ids repeat: two states over one warehouse, a state that was lost and
made anew, and each `bfm dags test` run the same DAG for the same dates.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import format_instant
from backfill_manager.execution.lineage.table_access import TableAccesses
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.output.output_group_commit import Answer
from backfill_manager.execution.output.preview import Preview
from backfill_manager.execution.output.row_checks import CheckResults, RowsBefore
from backfill_manager.execution.output.staged_write import StagedWrite
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.secrets import no_secret
from backfill_manager.model.records import DagRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@dataclass(frozen=True)
class WriteContext:
    launch: TaskLaunch
    session: Callable[[], SparkSession]  # its own; a process gets it from the JVM at the first call
    log: logging.Logger
    refuse_if_abandoned: Callable[[], None]  # raises `AbandonedTry` or `LostLease` when nothing may be written any more
    state: StateIdentity
    turns: Turns
    # With the writes of others; raises as the above. None: each write is a commit of its own.
    commit_together: Callable[[StagedWrite], Answer] | None = None
    accesses: TableAccesses = field(default_factory=TableAccesses)
    check_results: CheckResults = field(default_factory=CheckResults)
    rows_before: RowsBefore = lambda table, number, unit: ()  # no runs before it are known
    find_secret: Callable[[str], str] = no_secret  # the value of a name; raises `InvalidInput` or `NoSecret`

    @property
    def spark(self) -> SparkSession:
        return self.session()

    @cached_property
    def preview(self) -> Preview | None:
        """That of its run, if it is a preview's."""
        preview_id = self.launch.preview_id
        return None if preview_id is None else Preview(self.session, preview_id, self.turns)

    def transaction_id(self, nth: int | str) -> str:
        """Of the `nth` write of this task into a table (see write_numbers.py), or of a statement of its SQL."""
        ti = self.launch.ti
        whose = f"{self.state.state_id}/" if self.state.is_part_of_ids(self.launch.run) else ""
        return f"bfm/{whose}{ti.dag_id}/{ti.task_id}/{ti.run_id}/{nth}"

    def user_metadata(self, **more: Any) -> str:
        """For the commit: who wrote it, as JSON."""
        launch, ti = self.launch, self.launch.ti
        about: dict[str, Any] = {
            "state": self.state.state_id, "dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id,
            "version": launch.version.version, "try": ti.try_number, "launch": ti.launch, "generation": ti.generation, **more,
        }  # fmt: skip
        if launch.interval is not None:
            about["interval"] = [format_instant(at) for at in launch.interval]
        if launch.run.partition_key is not None:
            about["partition"] = launch.run.partition_key
        if self.preview is not None:
            about["reads"] = [[one.name, one.path, one.version, one.table_id] for one in self.preview.reads]
        return json.dumps(about, ensure_ascii=False)
