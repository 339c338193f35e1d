"""A draft that our own loader has read, whose functions a test calls with a `ctx` of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from backfill_manager.dags.authoring import Dag
from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped
from backfill_manager.importers.draft import Draft


@dataclass
class FakeContext:
    """What the functions of drafts use of `ctx`, without Spark."""

    params: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    mapped_value: Any = None
    logical_date: datetime = datetime(2024, 5, 1, tzinfo=timezone.utc)
    run_type: str = "scheduled"
    run_id: str = "scheduled__1"
    dag_id: str = "example"
    task_id: str = ""
    try_number: int = 1
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("task"))

    @property
    def interval(self) -> SimpleNamespace:
        return SimpleNamespace(start=self.logical_date, end=self.logical_date + timedelta(days=1))

    def result(self, task_id: str) -> Any:
        return self.results.get(task_id)

    def skip(self, reason: str) -> None:
        raise TaskSkipped(reason)


@dataclass
class Drafted:
    """`dag`: the first one of the file."""

    draft: Draft
    text: str
    dags: list[Dag]

    @property
    def dag(self) -> Dag:
        return self.dags[0]

    @property
    def remarks(self) -> list[str]:
        return [remark.what for remark in self.draft.remarks]

    @property
    def order(self) -> dict[str, tuple[str, ...]]:
        return {task.task_id: task.upstream for task in self.dag.spec.tasks}

    def run(self, task_id: str, **context: Any) -> Any:
        return self.dag.functions[task_id](FakeContext(task_id=task_id, **context))


DraftOf = Callable[[str], Drafted]  # of the text of a file
