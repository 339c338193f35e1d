"""What stories of clear, mark, trigger, retry and change share."""

from __future__ import annotations

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import TaskInstance
from backfill_manager.testing import InMemoryManager, dag_spec, days
from support.scenarios import (
    accepted,
)  # fmt: skip

THREE = dag_spec("d", "a", "b", "c", upstream={"b": ["a"], "c": ["b"]})


JANUARY = days("2013-01-01", 5)


FIRST = "backfill__2013-01-01T00:00:00Z"


SECOND = "backfill__2013-01-02T00:00:00Z"


def fails(*parts: str) -> object:
    """A script: what has one of these texts in `task run` fails."""

    def script(launch: TaskLaunch) -> Outcome | None:
        return (
            Failed("boom")
            if any(part in f"{launch.task.task_id} {launch.run.run_id}" for part in parts)
            else Succeeded()
        )

    return script


def done(manager: InMemoryManager, n: int = 1, **fields: object) -> str:
    backfill = manager.backfill("d", JANUARY[:n], **fields)
    manager.drain()
    return backfill


def states_of(manager: InMemoryManager, run_id: str) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in manager.store.read(TaskInstance) if ti.run_id == run_id}


def change(manager: InMemoryManager, backfill: str, **changes: object) -> None:
    accepted(manager, "backfill.set", backfill_id=backfill, changes=changes)
