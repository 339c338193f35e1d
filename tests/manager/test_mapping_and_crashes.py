"""Tasks that are mapped over the result of another, beside crashes, clears, marks and batches."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from support.scenarios import Killed, Mortal, accepted, clear, refused

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskTry
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days


def spec_over(**of_load: Any) -> DagSpec:
    each = {"load": {"over_result_of": "find", **of_load}}
    return dag_spec("d", "find", "load", "sum", upstream={"load": ["find"], "sum": ["load"]}, each=each)


class Script:
    """What `find` returns, and which tasks fail."""

    def __init__(self, values: Any, *failing: str) -> None:
        self.values, self.failing, self.launched = values, set(failing), list[TaskLaunch]()

    def __call__(self, launch: TaskLaunch) -> Outcome:
        self.launched.append(launch)
        task_id = launch.ti.task_id
        if task_id in self.failing:
            return Failed("boom")
        return Succeeded(json.dumps(self.values if task_id == "find" else f"{launch.task.mapped_value}!"))

    @property
    def ids(self) -> list[str]:
        return [launch.ti.task_id for launch in self.launched]


def manager(script: Script, **of_load: Any) -> InMemoryManager:
    in_memory = InMemoryManager(spec_over(**of_load), script=script)
    in_memory.backfill("d", days("2024-01-01", 1))
    return in_memory


def states(in_memory: InMemoryManager) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in in_memory.tasks("d")}


def test_each_run_has_its_own_and_a_batch_of_items_has_those_of_its_one_run() -> None:
    def script(launch: TaskLaunch) -> Outcome:
        day = launch.run.logical_date.day  # type: ignore[union-attr]
        return Succeeded(json.dumps([f"day{day}"]))

    in_memory = InMemoryManager(spec_over(), script=script)
    in_memory.backfill("d", days("2024-01-01", 2))
    in_memory.drain()
    assert sorted(ti.task_id for ti in in_memory.tasks("d") if "." in ti.task_id) == ["load.day1", "load.day2"]
    in_memory.backfill("d", days("2024-01-05", 2), batch=2)
    in_memory.drain()
    assert sorted(ti.task_id for ti in in_memory.tasks("d") if "." in ti.task_id)[2:] == ["load.day5"]


def test_a_run_without_the_task_that_has_the_values_fails_it() -> None:
    in_memory = InMemoryManager(spec_over(), script=Script(["de"]))
    in_memory.backfill("d", days("2024-01-01", 1), tasks="load|sum", with_upstream=False)
    in_memory.drain()
    assert states(in_memory)["load"] == s.FAILED
    assert "which has none in this run" in (in_memory.tasks("d", "load")[0].error or "")


@pytest.mark.parametrize("killed_before", ["find", "load.de", "load.fr", "sum"])
def test_a_new_leader_derives_them_from_the_stored_result(killed_before: str) -> None:
    script = Script(["de", "fr"])
    waits = [killed_before]
    in_memory = InMemoryManager(
        spec_over(), script=lambda launch: None if launch.ti.task_id in waits else script(launch), slots=1
    )
    in_memory.backfill("d", days("2024-01-01", 1))
    in_memory.drain()
    assert [key[2] for key in in_memory.running] == [killed_before]
    waits.clear()
    in_memory.crash()
    in_memory.clock.advance(minutes=5)
    in_memory.drain()
    assert states(in_memory) == dict.fromkeys(("find", "load", "load.de", "load.fr", "sum"), s.SUCCESS)
    assert sorted(script.ids) == ["find", "load.de", "load.fr", "sum"], "what had finished does not run again"


@pytest.mark.parametrize("tables", range(0, 20, 2))
def test_a_kill_between_any_two_tables_of_a_commit_leaves_each_mapped_task_once(tables: int) -> None:
    script = Script(["de", "fr"])
    in_memory = manager(script)
    in_memory.leader = Mortal(in_memory.leader, tables)  # type: ignore[assignment]
    with contextlib.suppress(Killed):
        in_memory.drain()
    in_memory.crash()
    in_memory.clock.advance(minutes=5)
    script.values = ["fr", "it"]  # of a `find` that had not been committed
    in_memory.drain()
    keys = json.loads(in_memory.tasks("d", "load")[0].result_json or "")
    assert states(in_memory) == dict.fromkeys(("find", "load", *(f"load.{key}" for key in keys), "sum"), s.SUCCESS)
    assert script.launched[-1].results["load"].keys() == keys.keys()
    tries = [(one.task_id, one.launch) for one in in_memory.store.read(TaskTry)]
    assert len(tries) == len(set(tries))


@pytest.mark.parametrize("crashes", [False, True])
def test_one_mapped_task_is_cleared_alone(crashes: bool) -> None:
    script = Script(["de", "fr"], "load.de")
    in_memory = manager(script)
    in_memory.drain()
    if crashes:
        in_memory.crash()
    script.failing.clear()
    accepted(in_memory, request_kinds.TASKS_CLEAR, **clear("d", tasks=r"^load\.de$", downstream=True))
    in_memory.drain()
    assert script.ids[3:] == ["load.de", "sum"]
    assert script.launched[-1].results["load"] == {"de": "de!", "fr": "fr!"}
    assert in_memory.runs("d")[0].state == s.SUCCESS


@pytest.mark.parametrize("crashes", [False, True])
def test_another_result_removes_what_it_no_longer_names_and_keeps_its_tries(crashes: bool) -> None:
    script = Script(["de", "fr"])
    in_memory = manager(script)
    in_memory.drain()
    script.values = ["fr", "it"]
    in_memory.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    if crashes:
        in_memory.tick()
        in_memory.crash()
    in_memory.drain()
    assert states(in_memory) == {
        **dict.fromkeys(("find", "load", "load.fr", "load.it", "sum"), s.SUCCESS), "load.de": s.REMOVED,
    }  # fmt: skip
    assert script.launched[-1].results["load"] == {"fr": "fr!", "it": "it!"}
    (fr,) = in_memory.tasks("d", "load.fr")
    assert (fr.try_number, fr.generation > 0) == (2, True)
    assert in_memory.tasks("d", "load.de")[0].try_number == 1
    mark = {"dag_id": "d", "run_id": in_memory.runs("d")[0].run_id, "task_id": "load.de", "state": "failed"}
    assert refused(in_memory, request_kinds.TASK_MARK, **mark) == (
        f"Task 'load.de' of run {mark['run_id']} was removed: the run's version, or the result over "
        "which it was mapped, no longer contains it. It can't be marked."
    )
    script.values = ["de"]
    in_memory.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks="^find$", downstream=True))
    in_memory.drain()
    assert states(in_memory)["load.de"] == s.SUCCESS
    assert in_memory.runs("d")[0].state == s.SUCCESS


def test_a_mapped_task_is_marked_and_the_one_that_is_mapped_is_not() -> None:
    in_memory = manager(Script(["de", "fr"], "load.de"))
    in_memory.drain()
    run_id = in_memory.runs("d")[0].run_id
    ask = {"dag_id": "d", "run_id": run_id, "state": "success"}
    message = refused(in_memory, request_kinds.TASK_MARK, **ask, task_id="load")
    assert message == "Task 'load' has been mapped in this run; mark its mapped tasks: load.de, load.fr."
    accepted(in_memory, request_kinds.TASK_MARK, **ask, task_id="load.de")
    in_memory.drain()
    assert states(in_memory)["sum"] == s.SUCCESS


def test_a_backfill_runs_the_failed_mapped_tasks_of_a_run_again() -> None:
    script = Script(["de", "fr"], "load.de")
    in_memory = manager(script)
    in_memory.drain()
    script.failing.clear()
    in_memory.backfill("d", days("2024-01-01", 1), reprocess="failed_tasks")
    in_memory.drain()
    assert script.ids[3:] == ["load.de", "sum"]


def test_a_backfill_that_runs_the_failed_task_again_maps_anew_and_what_is_mapped_runs_again() -> None:
    """Its tasks had succeeded when that of which they are mapped failed."""
    script = Script(["de", "fr"])
    in_memory = manager(script)
    in_memory.drain()
    script.failing = {"find", "sum"}
    in_memory.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks="^(find|load|sum)$", downstream=False))
    in_memory.drain()
    assert (states(in_memory)["load"], states(in_memory)["load.fr"]) == (s.UPSTREAM_FAILED, s.SUCCESS)
    script.failing, script.values, known = set(), ["fr", "it"], len(script.launched)
    in_memory.backfill("d", days("2024-01-01", 1), reprocess="failed_tasks")
    in_memory.drain()
    assert script.ids[known:] == ["find", "load.fr", "load.it", "sum"]
    assert states(in_memory) == {
        **dict.fromkeys(("find", "load", "load.fr", "load.it", "sum"), s.SUCCESS), "load.de": s.REMOVED,
    }  # fmt: skip
