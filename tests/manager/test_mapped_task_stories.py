"""Mapped tasks in runs: each with a state of its own, limited together."""

from __future__ import annotations

import json
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days

KEYS = ("a", "b", "c")


def mapped_spec(**of_each: Any) -> DagSpec:
    ids = tuple(f"load.{key}" for key in KEYS)
    each = {f"load.{key}": {"mapped_from": "load", "mapped_json": json.dumps(key), **of_each} for key in KEYS}
    return dag_spec("d", *ids, "sum", upstream={"sum": ids}, each=each, max_active_tasks=100)


def test_each_mapped_task_has_its_own_tries_and_what_comes_after_gets_all_results() -> None:
    launched: list[TaskLaunch] = []

    def script(launch: TaskLaunch) -> Outcome:
        launched.append(launch)
        if launch.ti.task_id == "load.b" and launch.ti.try_number == 1:
            return Failed("boom")
        return Succeeded(json.dumps(f"{launch.task.mapped_value}{launch.ti.try_number}"))

    manager = InMemoryManager(mapped_spec(retries=1, retry_delay=0.0), script=script)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    assert [launch.ti.task_id for launch in launched] == ["load.a", "load.b", "load.c", "load.b", "sum"]
    results = launched[-1].results
    assert results["load"] == {"a": "a1", "b": "b2", "c": "c1"}
    assert results["load.b"] == "b2"


def test_one_that_fails_takes_no_other_along() -> None:
    def script(launch: TaskLaunch) -> Outcome:
        return Failed("boom") if launch.ti.task_id == "load.b" else Succeeded()

    manager = InMemoryManager(mapped_spec(), script=script)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    assert {ti.task_id: ti.state for ti in manager.tasks("d")} == {
        "load.a": s.SUCCESS, "load.b": s.FAILED, "load.c": s.SUCCESS, "sum": s.UPSTREAM_FAILED,
    }  # fmt: skip


def test_max_active_tis_counts_all_that_are_mapped_from_one_over_all_runs() -> None:
    manager = InMemoryManager(mapped_spec(max_active_tis=2), script=lambda _: None)
    manager.backfill("d", days("2024-01-01", 3), max_active_runs=3)
    done = 0
    manager.drain()
    while manager.running:
        loads = [key for key in manager.running if key[2].startswith("load.")]
        assert len(loads) == min(2, 9 - done)
        for key in loads[:1] or list(manager.running):
            done += bool(loads)
            manager.finish(key, Succeeded())
        manager.drain()
    assert done == 9
    apart = InMemoryManager(
        dag_spec("d", *KEYS, each={key: {"max_active_tis": 2} for key in KEYS}, max_active_tasks=100),
        script=lambda _: None,
    )
    apart.backfill("d", days("2024-01-01", 3), max_active_runs=3)
    apart.drain()
    assert len(apart.running) == 6, "tasks that are not mapped have the limit each"
