"""Tasks that are mapped over the result of another, in runs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.messages import Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.testing import InMemoryManager, dag_spec, days


def files(*, callbacks: Sequence[str] = (), **of_load: Any) -> DagSpec:
    return dag_spec(
        "d", "find", "load", "report", upstream={"load": ["find"], "report": ["load"]},
        each={"load": {"over_result_of": "find", **of_load}}, callbacks=callbacks,
        max_active_tasks=100,
    )  # fmt: skip


class Script:
    """`find` returns `found`, `load` its value; the tasks named in `fail` fail."""

    def __init__(self, found: Any) -> None:
        self.found, self.fail = found, set[str]()
        self.launches: list[TaskLaunch] = []

    def __call__(self, launch: TaskLaunch) -> Outcome | None:
        self.launches.append(launch)
        if launch.ti.task_id in self.fail:
            return Failed("boom")
        of_task = self.found if launch.ti.task_id == "find" else launch.task.mapped_value
        return Succeeded(None if of_task is None else json.dumps(of_task))

    @property
    def ran(self) -> list[str]:
        return [launch.ti.task_id for launch in self.launches]


def states(manager: InMemoryManager) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in manager.tasks("d")}


def begun(
    script: Callable[[TaskLaunch], Outcome | None], spec: DagSpec | None = None, **options: Any
) -> InMemoryManager:
    manager = InMemoryManager(spec or files(), script=script)
    manager.backfill("d", days("2024-01-01", 1), **options)
    manager.drain()
    return manager


def clear(manager: InMemoryManager, **options: Any) -> None:
    manager.ask(request_kinds.TASKS_CLEAR, ask=ClearTasks(dag_id="d", **options).to_payload())
    manager.drain()


def test_each_value_of_the_result_is_a_task_and_what_comes_after_gets_all_results() -> None:
    script = Script({"a": 1, "b": {"rows": 2}})
    manager = begun(script)
    assert script.ran == ["find", "load.a", "load.b", "report"]
    assert script.launches[-1].results["load"] == {"a": 1, "b": {"rows": 2}}
    assert states(manager) == dict.fromkeys(("find", "load", "load.a", "load.b", "report"), s.SUCCESS)
    (load,) = manager.tasks("d", "load")
    assert json.loads(load.result_json or "") == {"a": 1, "b": {"rows": 2}}
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_an_empty_result_skips_it_and_what_comes_after_as_its_rule_says() -> None:
    script = Script([])
    manager = begun(script)
    assert states(manager) == {"find": s.SUCCESS, "load": s.SKIPPED, "report": s.SKIPPED}
    (load,) = manager.tasks("d", "load")
    assert load.error == "the result of find is empty"


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ("a", "it is mapped over the result of 'find', which must be text or integers that name each task"),
        (None, "it is mapped over the result of 'find', which has none in this run"),
    ],
)
def test_another_result_fails_it_in_one_line(found: Any, error: str) -> None:
    manager = begun(Script(found))
    assert states(manager) == {"find": s.SUCCESS, "load": s.FAILED, "report": s.UPSTREAM_FAILED}
    (load,) = manager.tasks("d", "load")
    assert load.error is not None and load.error.startswith(error)
    assert [run.reason for run in manager.runs("d")] == ["failed: load"]


def over_mapped(**of_check: Any) -> DagSpec:
    return dag_spec(
        "d", "find", "load", "check", upstream={"load": ["find"], "check": ["load"]},
        each={"load": {"over_result_of": "find"}, "check": {"over_result_of": "load", **of_check}}, max_active_tasks=100,
    )  # fmt: skip


def test_over_a_mapped_task_it_is_mapped_over_the_results_of_those_by_their_keys() -> None:
    script = Script({"a": 1, "b": {"rows": 2}})
    manager = begun(script, over_mapped())
    assert script.ran == ["find", "load.a", "load.b", "check.a", "check.b"]
    assert [launch.task.mapped_value for launch in script.launches[-2:]] == [1, {"rows": 2}]
    assert script.launches[-1].results == {
        "find": script.found, "load": script.found, "load.a": 1, "load.b": {"rows": 2},
    }  # fmt: skip
    script.found, script.launches = {"b": 5, "c": 6}, []
    clear(manager, tasks="^find$", downstream=True)
    assert script.ran == ["find", "load.b", "load.c", "check.b", "check.c"]
    assert {one.task_id for one in manager.tasks("d") if one.state == s.REMOVED} == {"load.a", "check.a"}


def test_over_a_mapped_task_it_waits_for_all_of_those_and_takes_what_succeeded() -> None:
    script = Script(["a", "b"])
    script.fail = {"load.b"}
    assert states(begun(script, over_mapped()))["check"] == s.UPSTREAM_FAILED
    manager = begun(script, over_mapped(trigger_rule="all_done"))
    assert states(manager) == {
        "find": s.SUCCESS, "load": s.SUCCESS, "load.a": s.SUCCESS, "load.b": s.FAILED, "check": s.SUCCESS, "check.a": s.SUCCESS,
    }  # fmt: skip


def test_over_tasks_whose_results_are_too_large_together_it_fails_in_one_line() -> None:
    def script(launch: TaskLaunch) -> Outcome:
        found: Any = [str(n) for n in range(5)] if launch.ti.task_id == "find" else "x" * 250_000
        return Succeeded(json.dumps(found))

    (check,) = begun(script, over_mapped()).tasks("d", "check")
    assert check.state == s.FAILED
    assert check.error == (
        "the results of 'load' have 1,250,010 characters of JSON together; a task is mapped over 1,000,000 at most"
    )


def test_a_backfill_sets_what_one_mapped_task_does() -> None:
    script = Script(["a", "b"])
    script.fail = {"load.a", "load.b"}
    manager = begun(script, overrides_json='{"load.a.retries": 2, "load.a.retry_delay": 0}')
    assert [launch.ti.task_id for launch in script.launches].count("load.a") == 3
    assert [launch.ti.task_id for launch in script.launches].count("load.b") == 1
    assert states(manager)["load.a"] == s.FAILED


def test_one_that_failed_is_cleared_alone() -> None:
    script = Script(["a", "b"])
    script.fail = {"load.b"}
    manager = begun(script)
    assert states(manager) == {
        "find": s.SUCCESS, "load": s.SUCCESS, "load.a": s.SUCCESS, "load.b": s.FAILED, "report": s.UPSTREAM_FAILED,
    }  # fmt: skip
    script.fail, script.launches = set(), []
    clear(manager, tasks="^load.b$", downstream=True)
    assert script.ran == ["load.b", "report"]
    assert set(states(manager).values()) == {s.SUCCESS}
    assert script.launches[-1].results["load"] == {"a": "a", "b": "b"}


@pytest.mark.parametrize("crash", [False, True])
def test_another_result_after_a_clear_has_other_tasks(crash: bool) -> None:
    script = Script(["a", "b"])
    manager = begun(script)
    script.found, script.launches = ["b", "c"], []
    manager.ask(request_kinds.TASKS_CLEAR, ask=ClearTasks(dag_id="d", tasks="^find$", downstream=True).to_payload())
    manager.tick()
    if crash:
        manager.crash()
    manager.drain()
    assert script.ran[-4:] == ["find", "load.b", "load.c", "report"]
    assert states(manager) == {
        **dict.fromkeys(("find", "load", "load.b", "load.c", "report"), s.SUCCESS), "load.a": s.REMOVED,
    }  # fmt: skip
    assert script.launches[-1].results["load"] == {"b": "b", "c": "c"}


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ended", [Failed("boom"), Skipped("nothing there")])
@pytest.mark.parametrize("how", [{"tasks": "^find$", "downstream": True}, {"tasks": "^(find|load|report)$"}])
def test_those_that_could_not_start_run_when_it_is_mapped_again_in_a_run_that_goes_on(
    how: dict[str, Any], ended: Outcome, crash: bool
) -> None:
    outcome: Outcome | None = None
    ran: list[str] = []

    def script(launch: TaskLaunch) -> Outcome | None:
        ran.append(launch.ti.task_id)
        if launch.ti.task_id == "goes_on":
            return None
        return outcome if outcome is not None and launch.ti.task_id == "find" else Succeeded('["a", "b"]')

    spec = files(callbacks=("load.on_success",))
    spec = dataclasses.replace(spec, tasks=(*spec.tasks, TaskSpec("goes_on")))
    manager = begun(script, spec)
    outcome = ended
    clear(manager, tasks="^find$", downstream=True)
    assert {states(manager)[one] for one in ("load", "load.a", "report")} <= {s.UPSTREAM_FAILED, s.SKIPPED}
    if crash:
        manager.crash()
    outcome, ran[:] = None, []
    clear(manager, **how)
    assert {"find", "load.a", "load.b", "report", "load.a.on_success", "load.b.on_success"} == set(ran) - {"goes_on"}
    assert [one for one, state in states(manager).items() if state != s.SUCCESS] == ["goes_on", "load.on_success"]


def test_a_manager_that_takes_over_goes_on_with_the_mapped_tasks() -> None:
    script = Script(["a", "b"])
    manager = InMemoryManager(files(), script=lambda launch: None if "." in launch.ti.task_id else script(launch))
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    assert {key[2] for key in manager.running} == {"load.a", "load.b"}
    manager.crash()
    manager.drain()
    assert {key[2] for key in manager.running} == {"load.a", "load.b"}
    for key in list(manager.running):
        manager.finish(key, Succeeded('"again"'))
    manager.drain()
    assert set(states(manager).values()) == {s.SUCCESS}
    assert script.launches[-1].results["load"] == {"a": "again", "b": "again"}


def test_max_active_tis_counts_them_together() -> None:
    script = Script([f"k{n}" for n in range(5)])
    spec = files(max_active_tis=2)
    manager = InMemoryManager(spec, script=lambda launch: None if "." in launch.ti.task_id else script(launch))
    manager.backfill("d", days("2024-01-01", 2), max_active_runs=2)
    manager.drain()
    assert len(manager.running) == 2


def test_settings_of_a_backfill_for_it_are_for_all_of_them() -> None:
    script = Script(["a", "b"])
    script.fail = {"load.a"}
    manager = begun(script, overrides_json='{"load.retries": 2, "retry_delay": 0}')
    assert script.ran.count("load.a") == 3 and script.ran.count("load.b") == 1
    assert states(manager)["load.a"] == s.FAILED


def test_callbacks_are_of_each_mapped_task() -> None:
    spec = files(callbacks=("load.on_failure", "load.on_success"))
    script = Script(["a", "b"])
    script.fail = {"load.b"}
    manager = begun(script, spec)
    assert script.ran[:3] == ["find", "load.a", "load.b"]
    assert set(script.ran[3:]) == {"load.a.on_success", "load.b.on_failure"}
    called = next(one for one in script.launches if one.ti.task_id == "load.b.on_failure")
    assert (
        called.ended is not None and called.ended.task_id == "load.b" and called.task.mapped_from == "load.on_failure"
    )
    assert states(manager)["load.on_success"] == s.SKIPPED


def test_a_selection_of_it_is_of_all_of_them() -> None:
    script = Script(["a"])
    manager = begun(script, tasks="^load$", with_upstream=True)
    assert script.ran == ["find", "load.a"]
    assert states(manager)["report"] == s.SKIPPED


def test_many_tasks_that_are_mapped_in_one_tick_are_linear_work() -> None:
    """Counted in calls of functions, which grew with the square: each of them looked at every task of the run."""

    def calls(n: int) -> int:
        names, counted = [f"load{k}" for k in range(n)], 0
        spec = dag_spec(
            "d", "find", *names, "report", upstream={**{name: ["find"] for name in names}, "report": names},
            each={name: {"over_result_of": "find"} for name in names},
        )  # fmt: skip
        manager = InMemoryManager(
            spec, script=lambda launch: Succeeded('["a", "b"]') if launch.ti.task_id == "find" else None
        )
        manager.backfill("d", days("2024-01-01", 1))
        manager.tick()

        def count(frame: Any, event: str, arg: Any) -> None:
            nonlocal counted
            counted += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            manager.tick()
        finally:
            sys.setprofile(before)
        assert len(manager.tasks("d")) == 2 + 3 * n, "they are all mapped in this tick"
        return counted

    assert calls(80) < 3 * calls(40)


@pytest.mark.parametrize("last", ["report", "load"])
def test_what_was_mapped_before_counts_for_nothing_if_it_can_not_be_mapped_again(last: str) -> None:
    """`load.de` and `load.fr` are not cleared, and stay as they are: a success of what `find` had returned before."""
    script = Script(["de", "fr"])
    two = dag_spec("d", "find", "load", upstream={"load": ["find"]}, each={"load": {"over_result_of": "find"}})
    manager = begun(script, files() if last == "report" else two)
    again = {"tasks": "^(find|load|report)$", "downstream": False}
    script.fail, known = {"find"}, len(script.ran)
    clear(manager, **again)
    (run,), of_tasks = manager.runs("d"), states(manager)
    assert (run.state, script.ran[known:]) == (s.FAILED, ["find"])
    assert (of_tasks["load.de"], of_tasks["load"]) == (s.SUCCESS, s.UPSTREAM_FAILED)
    assert of_tasks[last] == s.UPSTREAM_FAILED
    script.fail, known = set(), len(script.ran)
    clear(manager, **again)
    assert manager.runs("d")[0].state == s.SUCCESS
    assert script.ran[known:] == ["find", "load.de", "load.fr", *(["report"] if last == "report" else [])]
