"""Clear, cancel, mark, trigger, tasks by hand, retry and change of a backfill, by docs/semantics.md ("Clear and re-run",
"Backfill", "Requests and failure") and issue 4 tell them, without Spark, Delta or a JVM."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from support.scenarios import (
    Stubborn,
    accepted,
    at,
    clear,
    dates,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    play,
    refused,
    response_to,
    task_of,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Record, Response, TaskInstance, TaskTry
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfill_plan import existing_runs
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import InMemoryManager, dag_spec, days

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


def done(ground: InMemoryManager, n: int = 1, **fields: object) -> str:
    backfill = ground.backfill("d", JANUARY[:n], **fields)
    ground.drain()
    return backfill


def states_of(ground: InMemoryManager, run_id: str) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in ground.store.read(TaskInstance) if ti.run_id == run_id}


# -- clear ------------------------------------------------------------------------------------------------------------


def test_clear_runs_a_finished_run_again_in_place_and_its_tries_go_on_counting() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    ground.script = never
    answer = accepted(ground, "tasks.clear", **clear("d"))
    assert "3 tasks" in answer.message
    (run,) = ground.runs("d")
    assert (run.run_id, run.state) == (FIRST, s.RUNNING)
    assert states_of(ground, FIRST) == {"a": s.RUNNING, "b": s.NONE, "c": s.NONE}
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, FIRST), Succeeded())
    nothing_hangs(ground)
    assert [(ti.state, ti.try_number, ti.generation, ti.failures) for ti in ground.tasks("d")] == [
        (s.SUCCESS, 2, 1, 0)
    ] * 3
    tries = [(t.task_id, t.try_number) for t in ground.store.read(TaskTry)]
    assert sorted(tries) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)], "earlier tries stay readable"


def test_to_clear_a_hundred_runs_takes_as_few_statements_as_to_clear_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [0], MemoryStore.read

    def counted(*args: Any, **named: Any) -> list[Any]:
        reads[0] += 1
        return read(*args, **named)

    monkeypatch.setattr(MemoryStore, "read", counted)
    needed = []
    for n in (10, 100):
        ground = InMemoryManager(THREE, script=never)
        ground.backfill("d", days("2013-01-01", n), max_active_runs=n)
        ground.script = lambda _: Succeeded()
        ground.drain()
        ground.script, before = never, reads[0]
        assert accepted(ground, "tasks.clear", **clear("d")).message == f"cleared {3 * n} tasks in {n} runs"
        needed.append(reads[0] - before)
    assert needed[0] == needed[1]


def test_a_cleared_task_has_all_its_retries_again() -> None:
    ground = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 2}}), script=fails("a"))
    done(ground)
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert (task_of(ground, FIRST, "a").try_number, task_of(ground, FIRST, "a").failures) == (6, 3)


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ({}, "b"),
        ({"upstream": True}, "ab"),
        ({"downstream": True}, "bc"),
        ({"upstream": True, "downstream": True}, "abc"),
    ],
)
def test_clear_of_one_task_takes_what_is_before_and_after_it_when_told(how: dict[str, bool], again: str) -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    ground.launched.clear()
    accepted(ground, "tasks.clear", **clear("d", tasks="^b$", **how))
    nothing_hangs(ground)
    assert "".join(launch.task.task_id for launch in ground.launched) == again


def test_clear_only_failed_begins_at_what_failed_and_goes_on_to_what_could_not_start() -> None:
    ground = InMemoryManager(THREE, script=fails("b backfill__2013-01-02"))
    backfill = done(ground, 3)
    assert ground.row(backfill).state == s.FAILED
    ground.launched.clear()
    ground.script = lambda _: Succeeded()
    accepted(ground, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(ground)
    assert [(launch.task.task_id, launch.run.run_id) for launch in ground.launched] == [("b", SECOND), ("c", SECOND)]


def test_a_cleared_run_of_a_finished_backfill_opens_item_and_backfill_again_and_they_end_again() -> None:
    ground = InMemoryManager(THREE, script=fails("2013-01-02"))
    backfill = done(ground, 3)
    assert ground.states(backfill) == {s.SUCCESS: 2, s.FAILED: 1}
    ground.script = never
    accepted(ground, "tasks.clear", **clear("d", only_failed=True))
    assert (ground.row(backfill).state, ground.row(backfill).completed_at) == (s.RUNNING, None)
    assert ground.states(backfill) == {s.SUCCESS: 2, s.RUNNING: 1}
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, SECOND), Succeeded())
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.SUCCESS: 3}
    assert (ground.row(backfill).state, ground.row(backfill).reason) == (s.SUCCESS, None)
    ground.script = fails("c ")  # type: ignore[assignment]
    accepted(ground, "tasks.clear", **clear("d", run_ids=[FIRST]))
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.FAILED, {s.SUCCESS: 2, s.FAILED: 1})


def test_a_run_cleared_while_its_backfill_still_runs_belongs_to_it() -> None:
    ground = InMemoryManager(THREE)
    backfill = ground.backfill("d", JANUARY[:3], max_active_runs=1)
    ground.script = lambda it: None if "01-02" in it.run.run_id else Succeeded()
    ground.drain()
    accepted(ground, "tasks.clear", **clear("d", run_ids=[FIRST]))
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, SECOND), Succeeded())
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 3})


def test_clear_works_on_runs_of_every_kind_whatever_made_them() -> None:
    ground = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01"), catchup=True), scheduled=True)
    done(ground)
    play(ground, "2024-01-02")
    accepted(ground, "dag.trigger", dag_id="d", logical_date="2020-01-01T00:00:00Z", conf={})
    external = accepted(ground, "task.run", dag_id="d", task_id="a", logical_date="2020-06-01T00:00:00Z").object_id
    kinds = {run.run_type for run in ground.runs("d")}
    assert kinds == {"backfill", "scheduled", "manual", "external"}
    ground.launched.clear()
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert [launch.run.run_type for launch in ground.launched].count("external") == 0, "only when it is named"
    accepted(ground, "tasks.clear", **clear("d", run_ids=[external]))
    nothing_hangs(ground)
    assert sorted(launch.run.run_type for launch in ground.launched) == ["backfill", "external", "manual", "scheduled"]
    assert {run.state for run in ground.runs("d")} == {s.SUCCESS}


def test_what_runs_is_stopped_first_and_then_cleared() -> None:
    ground = Stubborn(THREE, script=never)
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    ground.ask("tasks.clear", **clear("d"))
    ground.drain()
    assert not ground.store.read(Response), "no answer while it still runs"
    assert states_of(ground, FIRST)["a"] == s.RUNNING and ground.runs("d")[0].state == s.RUNNING
    ground.script = lambda _: Succeeded()
    ground.give_in(FIRST)
    nothing_hangs(ground)
    assert (task_of(ground, FIRST, "a").try_number, task_of(ground, FIRST, "a").generation) == (2, 1)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert [(t.launch, t.state) for t in ground.store.read(TaskTry) if t.task_id == "a"] == [
        (1, "cancelled"),
        (2, "success"),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_runs_that_stop_one_after_the_other_are_all_cleared(order: tuple[int, ...]) -> None:
    ground = Stubborn(THREE, script=never)
    backfill = ground.backfill("d", JANUARY[:3])
    ground.drain()
    ground.ask("tasks.clear", **clear("d", tasks="^a$"))
    ground.drain()
    ground.script = lambda _: Succeeded()
    for n in order:
        ground.give_in(f"2013-01-0{n + 1}")
        ground.drain()
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.SUCCESS: 3}
    assert [ti.state for ti in ground.tasks("d")] == [s.SUCCESS] * 9
    (answer,) = ground.store.read(Response)
    assert answer.message == "cleared 3 tasks in 3 runs"


def test_two_clears_that_wait_for_the_same_run_do_not_hang() -> None:
    ground = Stubborn(THREE, script=never)
    done(ground, 2)
    ground.script = lambda _: Succeeded()
    for how in ({"tasks": "a"}, {"tasks": "a|b"}, {}):
        ground.ask("tasks.clear", **clear("d", **how))
    ground.drain()
    ground.give_in("01-02")
    ground.drain()
    ground.give_in("01-01")
    nothing_hangs(ground)
    assert {ti.state for ti in ground.tasks("d")} == {s.SUCCESS}
    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"] * 3


def test_a_task_that_finishes_before_it_could_be_stopped_is_cleared_all_the_same() -> None:
    ground = Stubborn(dag_spec("d", "a"), script=never)
    done(ground, 2)
    ground.ask("tasks.clear", **clear("d"))
    ground.drain()
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    ground.finish(key_of(ground, "01-02"), Failed("boom"))
    nothing_hangs(ground)
    assert [(ti.state, ti.generation) for ti in ground.tasks("d")] == [(s.SUCCESS, 1)] * 2


def test_a_task_that_waits_for_its_retry_is_cleared_and_starts_at_once() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"retries": 1, "retry_delay": 86_400.0}})
    ground = InMemoryManager(spec, script=fails("a"))
    ground.backfill("d", JANUARY[:1])
    for _ in range(5):
        ground.tick()
    assert states_of(ground, FIRST)["a"] == s.UP_FOR_RETRY
    before, ground.script = ground.clock.now(), lambda _: Succeeded()
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert ground.clock.now() == before
    assert (task_of(ground, FIRST, "a").generation, task_of(ground, FIRST, "a").state) == (1, s.SUCCESS)


def test_what_never_ran_can_not_be_cleared_and_a_backfill_is_what_they_want() -> None:
    ground = InMemoryManager(THREE)
    assert "never run" in refused(ground, "tasks.clear", **clear("d"))
    assert "what never ran can't be cleared" in refused(ground, "tasks.clear", **clear("d", start="2013-01-01"))
    assert "There is no DAG 'e'" in refused(ground, "tasks.clear", **clear("e"))


def test_a_run_that_was_overridden_stays_as_it_was() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    done(ground, reprocess="completed")
    assert f"{FIRST}__2" in refused(ground, "tasks.clear", **clear("d", run_ids=[FIRST]))
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert {ti.generation for ti in ground.tasks("d") if ti.run_id == FIRST} == {0}


def test_a_cleared_run_keeps_its_version_of_the_dag() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    ground.add_dag(dag_spec("d", "a", "new"))
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert ground.runs("d")[0].dag_version == 1
    assert set(states_of(ground, FIRST)) == {"a", "b", "c"}


def test_old_versions_take_no_memory_and_a_run_that_is_cleared_brings_its_own_back() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    for edit in range(20):
        ground.add_dag(dag_spec("d", "a", f"edit_{edit}"))
        nothing_hangs(ground)
    assert len(ground.state.catalog.versions) <= 2
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert ground.runs("d")[0].dag_version == 1
    assert {launch.version.version for launch in ground.launched} == {1}


def test_latest_version_moves_the_run_drops_what_it_lost_and_begins_what_it_gained() -> None:
    ground = InMemoryManager(THREE)
    backfill = done(ground)
    ground.add_dag(dag_spec("d", "a", "c", "new", upstream={"c": ["a"], "new": ["c"]}))
    accepted(ground, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(ground)
    (run,) = ground.runs("d")
    assert (run.dag_version, run.state) == (2, s.SUCCESS)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED, "c": s.SUCCESS, "new": s.SUCCESS}
    assert ground.row(backfill).state == s.SUCCESS
    assert ground.launched[-1].version.version == 2


def test_a_live_task_that_the_new_version_dropped_is_stopped_and_removed() -> None:
    ground = Stubborn(dag_spec("d", "a", "b"), script=lambda it: Succeeded() if it.task.task_id == "a" else None)
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    ground.add_dag(dag_spec("d", "a", "new"))
    ground.ask("tasks.clear", **clear("d", tasks="^a$", latest_version=True))
    ground.drain()
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.RUNNING}
    ground.script = lambda _: Succeeded()
    ground.give_in(FIRST)
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED, "new": s.SUCCESS}


def test_a_task_that_came_back_with_a_later_version_runs_again() -> None:
    ground = InMemoryManager(dag_spec("d", "a", "b"))
    done(ground)
    for spec in (dag_spec("d", "a"), dag_spec("d", "a", "b")):
        ground.add_dag(spec)
        accepted(ground, "tasks.clear", **clear("d", latest_version=True))
        nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS}


def test_what_a_backfill_left_out_stays_left_out_when_its_run_is_cleared() -> None:
    ground = InMemoryManager(THREE)
    done(ground, tasks="^b$", with_upstream=False)
    ground.launched.clear()
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    ground.crash()
    nothing_hangs(ground)
    assert [launch.task.task_id for launch in ground.launched] == ["b"]
    assert states_of(ground, FIRST) == {"a": s.SKIPPED, "b": s.SUCCESS, "c": s.SKIPPED}


def test_a_task_gained_by_the_latest_version_is_left_out_if_the_backfill_did_not_choose_it() -> None:
    ground = InMemoryManager(THREE)
    done(ground, tasks="^b$", with_upstream=False)
    ground.add_dag(dag_spec("d", "a", "b", "new"))
    accepted(ground, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SKIPPED, "b": s.SUCCESS, "c": s.REMOVED, "new": s.SKIPPED}


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("tables", range(24))
def test_a_clear_with_a_crash_in_between_has_the_effect_of_once(tables: int, latest: bool) -> None:
    ground = InMemoryManager(THREE, script=fails("c backfill__2013-01-02"))
    backfill = done(ground, 3)
    ground.add_dag(dag_spec("d", "a", "b", "c", "new", upstream={"b": ["a"], "c": ["b"], "new": ["c"]}))
    ground.commit()
    ground.script = lambda _: Succeeded()
    ground.ask("tasks.clear", **clear("d", latest_version=latest))
    dies_after(ground, tables)
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.SUCCESS: 3}
    assert {ti.generation for ti in ground.tasks("d") if ti.task_id != "new"} == {1}
    assert {run.dag_version for run in ground.runs("d")} == {2 if latest else 1}
    assert {ti.state for ti in ground.tasks("d")} == {s.SUCCESS}
    assert len(ground.tasks("d", "new")) == (3 if latest else 0)
    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"]
    tries = [(t.run_id, t.task_id, t.launch) for t in ground.store.read(TaskTry)]
    assert len(tries) == len(set(tries))


def test_the_same_request_sent_twice_clears_once() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    ground.ask("tasks.clear", **clear("d"))
    ground.store.append_request(ground.store.rows("request")[-1])  # type: ignore[arg-type]
    nothing_hangs(ground)
    assert {ti.generation for ti in ground.tasks("d")} == {1}


def test_a_later_run_that_depends_on_a_cleared_one_waits_for_it() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    ground = InMemoryManager(spec)
    done(ground, 2)
    ground.launched.clear()
    accepted(ground, "tasks.clear", **clear("d"))
    nothing_hangs(ground)
    assert [launch.run.run_id for launch in ground.launched] == [FIRST, SECOND]


# -- cancel and mark --------------------------------------------------------------------------------------------------


def test_a_cancelled_run_is_stopped_and_the_others_go_on() -> None:
    ground = Stubborn(THREE, script=never)
    done(ground, 2)
    ground.ask("run.cancel", dag_id="d", run_id=FIRST)
    ground.drain()
    assert not ground.store.read(Response)
    ground.give_in(FIRST)
    ground.drain()
    assert [run.state for run in ground.runs("d")] == [s.CANCELLED, s.RUNNING]
    assert states_of(ground, FIRST) == {"a": s.CANCELLED, "b": s.CANCELLED, "c": s.CANCELLED}
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, SECOND), Succeeded())
    nothing_hangs(ground)
    assert ground.runs("d")[1].state == s.SUCCESS
    assert "success already" in refused(ground, "run.cancel", dag_id="d", run_id=SECOND)
    assert "There is no run" in refused(ground, "run.cancel", dag_id="d", run_id="nope")
    assert response_to(ground, "run.cancel", dag_id="d", run_id=FIRST).outcome == "accepted", "twice is once"


def test_a_run_that_ends_before_it_could_be_stopped_is_not_called_cancelled() -> None:
    ground = Stubborn(dag_spec("d", "a"), script=never)
    done(ground)
    ground.ask("run.cancel", dag_id="d", run_id=FIRST)
    ground.drain()
    ground.finish(key_of(ground, FIRST), Succeeded())
    nothing_hangs(ground)
    (answer,) = ground.store.read(Response)
    assert (answer.outcome, ground.runs("d")[0].state) == ("refused", s.SUCCESS)


def test_a_finished_run_marked_success_or_failed_counts_so_for_its_backfill() -> None:
    ground = InMemoryManager(THREE, script=fails("b "))
    backfill = done(ground)
    accepted(ground, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert (ground.runs("d")[0].state, ground.row(backfill).state) == (s.SUCCESS, s.SUCCESS)
    accepted(ground, "run.mark", dag_id="d", run_id=FIRST, state="failed")
    nothing_hangs(ground)
    assert (ground.runs("d")[0].state, ground.row(backfill).state) == (s.FAILED, s.FAILED)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.FAILED}


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_live_run_is_stopped_before_it_is_marked(state: str) -> None:
    ground = Stubborn(THREE, script=never)
    backfill = done(ground)
    ground.ask("run.mark", dag_id="d", run_id=FIRST, state=state)
    ground.drain()
    assert ground.runs("d")[0].state == s.RUNNING
    ground.give_in(FIRST)
    nothing_hangs(ground)
    assert set(states_of(ground, FIRST).values()) == {state}
    assert (ground.runs("d")[0].state, ground.row(backfill).state) == (state, state)
    assert len(ground.launched) == 1


def test_a_task_marked_success_lets_what_could_not_start_begin() -> None:
    ground = InMemoryManager(THREE, script=fails("a "))
    backfill = done(ground)
    assert states_of(ground, FIRST) == {"a": s.FAILED, "b": s.UPSTREAM_FAILED, "c": s.UPSTREAM_FAILED}
    accepted(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="success")
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert ground.row(backfill).state == s.SUCCESS


def test_a_task_marked_skipped_skips_what_follows_it() -> None:
    ground = InMemoryManager(THREE, script=fails("a "))
    done(ground)
    accepted(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="skipped")
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SKIPPED, "b": s.SKIPPED, "c": s.SKIPPED}
    assert ground.runs("d")[0].state == s.SUCCESS


def test_a_last_task_marked_failed_fails_its_run() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    accepted(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state="failed")
    nothing_hangs(ground)
    assert ground.runs("d")[0].state == s.FAILED


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_running_task_is_stopped_before_it_is_marked(state: str) -> None:
    ground = Stubborn(THREE, script=never)
    done(ground)
    ground.ask("task.mark", dag_id="d", run_id=FIRST, task_id="a", state=state)
    ground.drain()
    assert states_of(ground, FIRST)["a"] == s.RUNNING
    ground.script = lambda _: Succeeded()
    ground.give_in(FIRST)
    nothing_hangs(ground)
    then = {"success": s.SUCCESS, "failed": s.UPSTREAM_FAILED, "skipped": s.SKIPPED}[state]
    assert states_of(ground, FIRST) == {"a": state, "b": then, "c": then}


def test_mark_of_what_is_not_there_names_what_is_near() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    assert "There is no task" in refused(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="x", state="failed")
    done(ground, reprocess="completed")
    assert "overridden" in refused(ground, "run.mark", dag_id="d", run_id=FIRST, state="failed")


def test_marking_a_failed_past_ends_a_deadlock() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=fails("2013-01-01"))
    backfill = done(ground, 3, max_active_runs=1)
    assert ground.row(backfill).state == s.FAILED
    accepted(ground, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(ground)
    accepted(ground, "backfill.retry", backfill_id=backfill)
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 3})


ROLLING = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})


@pytest.mark.parametrize(("state", "then"), [("success", s.SUCCESS), ("skipped", s.SUCCESS), ("failed", s.FAILED)])
def test_one_task_of_the_past_that_is_marked_in_time_is_the_past_that_a_live_run_sees(state: str, then: str) -> None:
    ground = InMemoryManager(ROLLING, script=lambda it: None if it.task.task_id == "load" else Failed("boom"))
    backfill = done(ground, 2)
    ground.finish(key_of(ground, FIRST), Succeeded())
    ground.drain()
    assert states_of(ground, FIRST) == {"load": s.SUCCESS, "roll": s.FAILED}
    accepted(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="roll", state=state)
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, SECOND), Succeeded())
    nothing_hangs(ground)
    assert [run.state for run in ground.runs("d")] == [then] * 2
    assert (states_of(ground, FIRST)["roll"], ground.row(backfill).state) == (state, then)
    assert then == s.SUCCESS or "deadlock: task 'roll'" in (ground.runs("d")[1].reason or "")


@pytest.mark.parametrize("state", ["success", "skipped"])
def test_a_past_that_could_not_start_is_a_deadlock_until_one_task_of_it_is_marked(state: str) -> None:
    ground = InMemoryManager(ROLLING, script=fails("load backfill__2013-01-01"))
    backfill = done(ground, 2)
    assert states_of(ground, FIRST) == {"load": s.FAILED, "roll": s.UPSTREAM_FAILED}
    result = ground.runs("d")[1].reason or ""
    assert "deadlock: task 'roll'" in result and f"upstream_failed in the run before, {FIRST}" in result
    accepted(ground, "task.mark", dag_id="d", run_id=FIRST, task_id="load", state=state)
    assert states_of(ground, FIRST) == {"load": state, "roll": state}, "what follows it goes on, or is skipped with it"
    assert ground.runs("d")[1].state == s.FAILED, "a run that has ended stays so until a request"
    accepted(ground, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(ground)
    assert states_of(ground, SECOND) == {"load": s.SUCCESS, "roll": s.SUCCESS}
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 2})


@pytest.mark.parametrize("tables", range(10))
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("run.mark", {"run_id": FIRST, "state": "success"}),
        ("task.mark", {"run_id": FIRST, "task_id": "b", "state": "success"}),
        ("dag.trigger", {"logical_date": "2013-01-01T00:00:00Z", "conf": {"x": 1}}),
        ("task.run", {"task_id": "a", "logical_date": "2013-01-01T00:00:00Z"}),
    ],
)
def test_a_crash_in_the_middle_of_any_repair_leaves_it_done_once(
    kind: str, payload: dict[str, object], tables: int
) -> None:
    ground = InMemoryManager(THREE, script=fails("b backfill"))
    done(ground, 2)
    ground.script = lambda _: Succeeded()
    ground.ask(kind, dag_id="d", **payload)
    dies_after(ground, tables)
    nothing_hangs(ground)
    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"]
    standing = timeline(ground, "d")
    assert [run.state for run in standing] == [s.FAILED if kind == "task.run" else s.SUCCESS, s.FAILED]
    extra = {"dag.trigger": 1, "task.run": 1}.get(kind, 0)
    assert len(ground.runs("d")) == 2 + extra


# -- trigger and tasks by hand ----------------------------------------------------------------------------------------


def test_trigger_without_a_date_runs_the_latest_complete_interval() -> None:
    ground = InMemoryManager(THREE)
    ground.clock.advance(hours=30)
    answer = accepted(ground, "dag.trigger", dag_id="d", logical_date=None, conf={"full": True})
    (run,) = ground.runs("d")
    assert answer.object_id == run.run_id == "manual__2024-01-01T00:00:00Z"
    assert (run.interval_start, run.interval_end, run.state) == (at("2024-01-01"), at("2024-01-02"), s.SUCCESS)
    assert json.loads(run.conf_json) == {"full": True}
    assert ground.launched[0].params == {"full": True}
    assert ground.launched[0].pool == "scheduled"


def test_trigger_of_a_given_date_takes_its_place_in_the_timeline() -> None:
    ground = InMemoryManager(THREE)
    ground.backfill("d", [JANUARY[0], JANUARY[2]])
    ground.drain()
    accepted(ground, "dag.trigger", dag_id="d", logical_date="2013-01-02T06:00:00Z", conf={})
    nothing_hangs(ground)
    first, manual, last = timeline(ground, "d")
    assert (manual.logical_date, manual.interval_end) == (at("2013-01-02T06:00"), at("2013-01-03"))
    assert (manual.previous_run_id, last.previous_run_id) == (first.run_id, manual.run_id)


def test_trigger_of_a_partition_makes_a_run_without_a_date() -> None:
    ground = InMemoryManager(THREE)
    for again in ("", "__2"):
        answer = accepted(ground, "dag.trigger", dag_id="d", logical_date=None, conf={}, partition_key="north")
        nothing_hangs(ground)
        assert answer.object_id == f"manual__north{again}"
    old, new = ground.runs("d")
    assert (old.state, old.overridden_by, new.state) == (s.OVERRIDDEN, new.run_id, s.SUCCESS)
    assert (new.partition_key, new.logical_date, new.interval_start, new.interval_end) == ("north", None, None, None)
    both = {"logical_date": "2024-01-01T00:00:00Z", "partition_key": "north"}
    assert "don't go together" in refused(ground, "dag.trigger", dag_id="d", conf={}, **both)
    blank = {"logical_date": None, "partition_key": ""}
    assert "must be a text of" in refused(ground, "dag.trigger", dag_id="d", conf={}, **blank)


def test_the_manager_refuses_params_that_do_not_fit() -> None:
    spec = dag_spec("d", "a", params={"full": False}, declared_params={"full": ParamSpec("boolean")})
    ground = InMemoryManager(spec, script=never)
    message = refused(ground, "dag.trigger", dag_id="d", logical_date=None, conf={"fulll": True})
    assert "conf 'fulll' is no parameter of DAG 'd'; did you mean 'full'?" in message
    backfill = ground.backfill("d", [JANUARY[0]])
    ground.drain()
    change = {"backfill_id": backfill, "changes": {"conf": {"full": 1}}}
    assert "conf 'full' must be of type boolean, not 1" in refused(ground, "backfill.set", **change)


def test_trigger_of_a_finished_date_makes_a_new_run_and_overrides_the_old_one() -> None:
    ground = InMemoryManager(THREE)
    done(ground)
    answer = accepted(ground, "dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    nothing_hangs(ground)
    old, new = ground.runs("d")
    assert (old.state, old.overridden_by, new.run_id) == (s.OVERRIDDEN, new.run_id, "manual__2013-01-01T00:00:00Z__2")
    assert answer.object_id == new.run_id and old.run_id in answer.message
    assert set(states_of(ground, FIRST).values()) == {s.SUCCESS}


def test_trigger_of_a_live_date_is_refused_with_what_to_do() -> None:
    ground = InMemoryManager(THREE, script=never)
    done(ground)
    message = refused(ground, "dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    assert "or cancel it" in message and FIRST in message
    assert [run.state for run in ground.runs("d")] == [s.RUNNING], "a run that is queued or running is never overridden"


def test_trigger_of_a_dag_without_a_schedule_is_of_the_moment() -> None:
    ground = InMemoryManager(dag_spec("d", "a", schedule=None))
    for _ in range(2):
        accepted(ground, "dag.trigger", dag_id="d", logical_date=None, conf={})
        ground.clock.advance(minutes=1)
    nothing_hangs(ground)
    assert [(run.interval_start, run.interval_end, run.state) for run in timeline(ground, "d")] == [
        (at("2024-01-01"), at("2024-01-01"), s.SUCCESS), (at("2024-01-01T00:01"), at("2024-01-01T00:01"), s.SUCCESS),
    ]  # fmt: skip


def test_two_triggers_of_one_date_at_once_make_one_run() -> None:
    ground = InMemoryManager(THREE, script=never)
    for _ in range(2):
        ground.ask("dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    ground.drain()
    assert sorted(answer.outcome for answer in ground.store.read(Response)) == ["accepted", "refused"]
    assert len(ground.runs("d")) == 1


def test_a_trigger_of_a_dag_that_is_not_there_names_what_is_near() -> None:
    ground = InMemoryManager(dag_spec("flights", "a"))
    assert "'flights'" in refused(ground, "dag.trigger", dag_id="flight", logical_date=None, conf={})


def test_a_task_run_by_hand_stands_outside_the_timeline() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}}, start_date=at("2024-01-01"), catchup=True)
    ground = InMemoryManager(
        spec, scheduled=True, script=lambda it: Failed("x") if it.run.run_type == "external" else Succeeded()
    )
    play(ground, "2024-01-02")
    ground.clock.advance(seconds=7)
    answer = accepted(ground, "task.run", dag_id="d", task_id="a", logical_date="2024-01-02T00:00:00Z")
    play(ground, "2024-01-03")
    (external,) = [run for run in ground.runs("d") if run.run_type == "external"]
    assert answer.object_id == external.run_id == "external__2024-01-02T00:00:07Z"
    assert (external.state, external.previous_run_id, external.interval_end) == (s.FAILED, None, at("2024-01-03"))
    runs = timeline(ground, "d")
    assert [run.run_type for run in runs] == ["scheduled", "scheduled"]
    assert [run.state for run in runs] == [s.SUCCESS] * 2, "no task depends on it"
    range_of = CreateBackfill(dag_id="d", start_date=at("2024-01-01"), end_date=at("2024-01-05"))
    ids = existing_runs(ground.store, range_of, spec)["run_id"].to_pylist()
    assert external.run_id not in ids and len(ids) == 2


def test_a_trigger_is_answered_with_the_interval_in_the_zone_of_the_dag() -> None:
    ground = InMemoryManager(dag_spec("d", "a", timezone="Europe/Berlin"), dag_spec("by_hand", "a", schedule=None))
    made = accepted(ground, "dag.trigger", dag_id="d", logical_date="2013-01-01T23:00:00Z", conf={})
    assert made.message.endswith(" from 2013-01-02T00:00:00+01:00 to 2013-01-03T00:00:00+01:00")
    assert " from " not in accepted(ground, "dag.trigger", dag_id="by_hand", logical_date=None, conf={}).message


def test_a_task_run_by_hand_has_params_as_every_run() -> None:
    declared = {"days": ParamSpec("integer", is_required=True)}
    ground = InMemoryManager(dag_spec("d", "a", schedule=None, declared_params=declared))
    asked = {"dag_id": "d", "task_id": "a", "logical_date": "2013-01-01T00:00:00Z"}
    assert "'days'" in refused(ground, "task.run", **asked)
    assert "type integer" in refused(ground, "task.run", **asked, conf={"days": "3"})
    accepted(ground, "task.run", **asked, conf={"days": 3})
    assert [launch.params for launch in ground.launched] == [{"days": 3}]


def test_a_task_run_by_hand_runs_that_task_alone_even_next_to_a_live_run_of_its_date() -> None:
    ground = InMemoryManager(THREE, script=never)
    done(ground)
    ground.script = lambda _: Succeeded()
    external = accepted(ground, "task.run", dag_id="d", task_id="b", logical_date="2013-01-01T00:00:00Z").object_id
    assert external is not None and states_of(ground, external) == {"b": s.SUCCESS}
    ground.crash()
    nothing_hangs(ground)
    assert "There is no task" in refused(
        ground, "task.run", dag_id="d", task_id="z", logical_date="2013-01-01T00:00:00Z"
    )


def test_a_task_run_by_hand_survives_a_crash_as_itself() -> None:
    ground = InMemoryManager(THREE, script=never)
    ground.ask("task.run", dag_id="d", task_id="b", logical_date="2013-01-01T00:00:00Z")
    ground.drain()
    ground.crash()
    ground.script = lambda _: Succeeded()
    nothing_hangs(ground)
    (run,) = ground.store.read(DagRun)
    assert (run.state, states_of(ground, run.run_id)) == (s.SUCCESS, {"b": s.SUCCESS})


# -- retry of a backfill ----------------------------------------------------------------------------------------------


def test_retry_runs_the_failed_items_of_a_finished_backfill_again_as_part_of_it() -> None:
    ground = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(ground, 5)
    ground.script, answer = fails("01-04"), None  # type: ignore[assignment]
    answer = accepted(ground, "backfill.retry", backfill_id=backfill)
    assert "2 failed items" in answer.message
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.FAILED, {s.SUCCESS: 4, s.FAILED: 1})
    again = [run for run in ground.runs("d") if run.run_id.endswith("__2")]
    assert dates(again) == ["01-02", "01-04"] and {run.backfill_id for run in again} == {backfill}
    ground.script = lambda _: Succeeded()
    accepted(ground, "backfill.retry", backfill_id=backfill)
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.row(backfill).reason) == (s.SUCCESS, None)
    assert [run.state for run in timeline(ground, "d")] == [s.SUCCESS] * 5


def test_retry_is_refused_for_a_live_backfill_for_one_without_failures_and_for_none() -> None:
    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    assert "when it has ended" in refused(ground, "backfill.retry", backfill_id=backfill)
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, FIRST), Succeeded())
    nothing_hangs(ground)
    assert "no failed item" in refused(ground, "backfill.retry", backfill_id=backfill)
    assert "There is no backfill" in refused(ground, "backfill.retry", backfill_id="nope")


def test_retry_after_a_deadlock_goes_on_once_the_cause_is_mended() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=fails("01-02"))
    backfill = done(ground, 5)
    assert ground.states(backfill) == {s.SUCCESS: 1, s.FAILED: 4}
    ground.script = lambda _: Succeeded()
    accepted(ground, "backfill.retry", backfill_id=backfill)
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.SUCCESS: 5}
    assert [run.state for run in timeline(ground, "d")] == [s.SUCCESS] * 5


def test_retry_counts_stop_on_failure_anew() -> None:
    ground = InMemoryManager(THREE, script=fails("a "))
    backfill = done(ground, 5, max_active_runs=1, stop_on_failure=2)
    assert ground.row(backfill).state == s.PAUSED
    accepted(ground, "backfill.unpause", backfill_id=backfill)
    assert ground.row(backfill).state == s.PAUSED
    accepted(ground, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.FAILED, {s.FAILED: 5})
    accepted(ground, "backfill.retry", backfill_id=backfill)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.PAUSED, {s.FAILED: 2, s.PENDING: 3})


@pytest.mark.parametrize("tables", range(10))
def test_a_crash_in_the_middle_of_a_retry_leaves_it_done_once(tables: int) -> None:
    ground = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(ground, 5)
    ground.script = lambda _: Succeeded()
    ground.ask("backfill.retry", backfill_id=backfill)
    dies_after(ground, tables)
    nothing_hangs(ground)
    assert (ground.row(backfill).state, ground.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 5})
    assert len(ground.runs("d")) == 7


# -- changing a backfill ----------------------------------------------------------------------------------------------


def change(ground: InMemoryManager, backfill: str, **changes: object) -> None:
    accepted(ground, "backfill.set", backfill_id=backfill, changes=changes)


def running(ground: InMemoryManager) -> list[str]:
    return sorted(key[1][9 + 5 : 9 + 11].strip("_") for key in ground.running)


def test_max_active_runs_changes_while_it_runs_up_and_down() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(ground, 5, max_active_runs=1)
    change(ground, backfill, max_active_runs=3)
    assert len(ground.running) == 3
    change(ground, backfill, max_active_runs=1)
    for key in list(ground.running)[:2]:
        ground.finish(key, Succeeded())
    ground.drain()
    assert len(ground.running) == 1, "what runs goes on, and nothing new begins"


def test_priority_changes_for_tasks_that_wait_already_too() -> None:
    one_at_a_time = dag_spec("d", "a", each={"a": {"max_active_tis": 1}})
    ground = InMemoryManager(one_at_a_time, script=never)
    first = ground.backfill("d", JANUARY[:2])
    second = ground.backfill("d", days("2014-01-01", 2))
    ground.drain()
    change(ground, second, priority=7)
    ground.finish(key_of(ground, "2013-01-01"), Succeeded())
    ground.drain()
    assert key_of(ground, "2014-01-01")
    assert {ti.priority for ti in ground.tasks("d") if "2014" in ti.run_id} == {7}
    assert (ground.row(first).priority, ground.row(second).priority) == (0, 7)


def test_pool_changes_for_what_starts_from_now_on() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=never)
    from backfill_manager.model.records import Pool

    ground.state.put(Pool(name="nightly", slots=2, weight=1, min_share=0))
    backfill = done(ground, 2, max_active_runs=1)
    change(ground, backfill, pool="nightly")
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    assert [launch.pool for launch in ground.launched] == ["backfill", "nightly"]
    assert "There is no pool" in refused(ground, "backfill.set", backfill_id=backfill, changes={"pool": "nigthly"})
    assert "for scheduled runs" in refused(ground, "backfill.set", backfill_id=backfill, changes={"pool": "scheduled"})


def test_batch_changes_for_the_runs_that_are_still_to_be_made() -> None:
    ground = InMemoryManager(dag_spec("d", "a", batchable=True), script=never)
    backfill = done(ground, 5, max_active_runs=1)
    change(ground, backfill, batch=3)
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    nothing_hangs(ground)
    assert [run.items for run in ground.runs("d")] == [1, 3, 1]
    assert ground.states(backfill) == {s.SUCCESS: 5}


def test_stop_on_failure_set_while_it_fails_pauses_it() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=fails("01-01", "01-02"))
    ground.script = lambda it: Failed("boom") if it.run.run_id < "backfill__2013-01-03" else None
    backfill = done(ground, 5, max_active_runs=1)
    change(ground, backfill, stop_on_failure=2)
    assert (ground.row(backfill).state, ground.row(backfill).is_paused) == (s.PAUSED, True)
    assert "stop_on_failure=2" in (ground.row(backfill).reason or "")
    change(ground, backfill, stop_on_failure=None)
    accepted(ground, "backfill.unpause", backfill_id=backfill)
    ground.script = fails("a ")  # type: ignore[assignment]
    ground.finish(key_of(ground, "01-03"), Failed("boom"))
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.FAILED: 5}


def test_window_set_while_it_runs_holds_back_what_is_not_begun() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(ground, 3, max_active_runs=1)
    change(ground, backfill, window="20:00-06:00")
    ground.clock.advance(hours=12)
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    assert ground.states(backfill) == {s.SUCCESS: 1, s.PENDING: 2}
    change(ground, backfill, window=None)
    nothing_hangs(ground)
    assert ground.states(backfill) == {s.SUCCESS: 3}


def test_a_backfill_can_be_told_to_be_polite_while_it_runs() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(ground, 1)
    change(ground, backfill, is_polite=True)
    assert ground.row(backfill).is_polite


def test_tasks_mark_success_and_conf_change_for_the_runs_that_are_still_to_be_made() -> None:
    ground = InMemoryManager(THREE, script=lambda it: None if "01-01" in it.run.run_id else Succeeded())
    backfill = done(ground, 4, max_active_runs=1)
    change(ground, backfill, tasks="^b$", with_upstream=False, conf={"x": 1})
    ground.script = lambda it: None if "01-03" in it.run.run_id else Succeeded()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    change(ground, backfill, mark_success=True, tasks=None)
    ground.script = lambda _: Succeeded()
    ground.finish(key_of(ground, "01-03"), Succeeded())
    nothing_hangs(ground)
    assert [launch.task.task_id for launch in ground.launched] == ["a", "b", "c", "b", "b"]
    assert ground.launched[3].params == {"x": 1}
    assert ground.states(backfill) == {s.SUCCESS: 4}
    assert ground.runs("d")[3].reason == "marked success"


def test_overrides_set_while_it_runs_hold_for_its_live_runs_too() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(ground, 2, max_active_runs=1)
    change(ground, backfill, overrides={"retries": 1, "a.retry_delay": 1})
    ground.script = fails("a ")  # type: ignore[assignment]
    ground.finish(key_of(ground, "01-01"), Failed("boom"))
    nothing_hangs(ground)
    assert [(ti.state, ti.try_number) for ti in ground.tasks("d")] == [(s.FAILED, 2)] * 2
    assert ground.state.current_spec("d").task("a").retries == 0, "scoped to the backfill, and to nothing else"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "Nothing to set"),
        ({"run_backwards": True}, "can't be changed"),
        ({"max_active_run": 2}, "did you mean 'max_active_runs'"),
        ({"max_active_runs": 0}, "max_active_runs must be 1 or more, not 0"),
        ({"max_active_runs": None}, "max_active_runs must be a whole number, not null"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"batch": 2}, "batchable=True"),
        ({"window": "20-06"}, "must be a span of hours such as 20:00-06:00"),
        ({"tasks": "^z$"}, "matches no task"),
        ({"tasks": "("}, "not a regular expression"),
        ({"overrides": {"retrys": 1}}, "did you mean 'retries'"),
        ({"overrides": {"z.retries": 1}}, "has no task 'z'"),
        ({"conf": [1]}, "must be a JSON object"),
        ({"is_polite": "yes"}, "must be true or false"),
    ],
)
def test_a_change_that_can_not_be_made_is_refused_with_what_would_be_right(
    changes: dict[str, object], message: str
) -> None:
    from backfill_manager.clock import EPOCH
    from backfill_manager.model.records import Request

    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    before = ground.row(backfill)
    payload = json.dumps({"backfill_id": backfill, "changes": changes})
    ground.store.append_request(
        Request("r", "backfill.set", payload, "tests", EPOCH)
    )  # as an older client would, unchecked
    ground.drain()
    (answer,) = ground.store.read(Response)
    assert answer.outcome == "refused" and message in answer.message
    assert ground.row(backfill) == before


def test_to_clear_twice_as_many_runs_is_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, rows = [0], Changes.rows

    def counted(changes: Changes, table: str) -> list[Record]:
        found = rows(changes, table)
        looked_at[0] += len(found)
        return found

    monkeypatch.setattr(Changes, "rows", counted)
    needed = []
    for n in (40, 80):
        ground = InMemoryManager(THREE)
        ground.backfill("d", days("2013-01-01", n), max_active_runs=n)
        ground.drain()
        ground.script, before = never, looked_at[0]
        accepted(ground, "tasks.clear", **clear("d"))
        needed.append(looked_at[0] - before)
    assert needed[1] <= 2.2 * needed[0]


def test_who_takes_over_reads_the_tries_of_what_lives_and_not_all_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of long ago is at work again when the manager dies: what has ended since is none of its successor's business."""
    ground = InMemoryManager(THREE)
    ground.backfill("d", days("2013-01-01", 50))
    ground.drain()
    ground.script = never
    accepted(ground, "tasks.clear", **clear("d", end="2013-01-01"))
    ground.drain()
    read, tries = MemoryStore.read, list[TaskTry]()

    def kept(store: MemoryStore, record: type[Any], *args: Any, **named: Any) -> list[Any]:
        found = read(store, record, *args, **named)
        tries.extend(row for row in found if isinstance(row, TaskTry))
        return found

    monkeypatch.setattr(MemoryStore, "read", kept)
    ground.crash()
    assert {row.run_id for row in tries} == {FIRST}


def test_a_change_is_answered_in_words() -> None:
    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    changes = {"window": "20:00-06:00", "is_polite": True, "conf": {"token": "x"}, "pool": "backfill"}
    assert accepted(ground, "backfill.set", backfill_id=backfill, changes=changes).message == (
        f'backfill {backfill} is updated: conf: {{"token": "***"}}, is_polite: yes, pool: backfill, window: 20:00-06:00 UTC'
    )
    taken = {"window": None, "tasks": None, "with_upstream": True, "stop_on_failure": None}
    assert accepted(ground, "backfill.set", backfill_id=backfill, changes=taken).message == (
        f"backfill {backfill} is updated: stop_on_failure: none, tasks: none, window: none, with_upstream: yes"
    )


def test_a_change_of_what_somebody_has_changed_meanwhile_is_refused_and_says_what_it_is_now() -> None:
    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    first = {"changes": {"priority": 3, "conf": {"full": True}}, "was": {"priority": 0, "conf": {}}}
    accepted(ground, "backfill.set", backfill_id=backfill, **first)
    before = ground.row(backfill)

    second = {
        "changes": {"priority": 9, "conf": {}, "window": None},
        "was": {"priority": 0, "conf": {}, "window": None},
    }
    assert refused(ground, "backfill.set", backfill_id=backfill, **second) == (
        'conf is {"full": true} now, not {}; priority is 3 now, not 0: '
        "somebody has changed it since you looked. Look again, and ask once more."
    )
    assert ground.row(backfill) == before

    accepted(ground, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 3})
    accepted(
        ground, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 7}
    )  # it is 9 already
    accepted(ground, "backfill.set", backfill_id=backfill, changes={"batch": 1, "priority": 5})
    assert (ground.row(backfill).priority, json.loads(ground.row(backfill).conf_json)) == (5, {"full": True})


def test_of_two_changes_of_one_setting_at_once_the_second_is_refused() -> None:
    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    for priority in (3, 9):
        ground.ask("backfill.set", backfill_id=backfill, changes={"priority": priority}, was={"priority": 0})
    ground.drain()
    assert sorted(answer.outcome for answer in ground.store.read(Response)) == ["accepted", "refused"]
    assert ground.row(backfill).priority == 3


@pytest.mark.parametrize("tables", range(4))
def test_a_crash_in_the_middle_of_a_change_does_not_refuse_it_for_what_it_did_itself(tables: int) -> None:
    ground = InMemoryManager(THREE, script=never)
    backfill = done(ground)
    ground.ask(
        "backfill.set", backfill_id=backfill, changes={"priority": 3, "batch": 1}, was={"priority": 0, "batch": 1}
    )
    dies_after(ground, tables)
    ground.drain()
    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"]
    assert ground.row(backfill).priority == 3


def test_run_backwards_can_not_come_to_meet_depends_on_past_by_a_change() -> None:
    ground = InMemoryManager(THREE, script=never)
    config = json.dumps({"type": "schedule", "run_backwards": True})
    backfill = ground.backfill("d", JANUARY[:2][::-1], config_json=config)
    ground.drain()
    message = refused(ground, "backfill.set", backfill_id=backfill, changes={"overrides": {"depends_on_past": True}})
    assert "run_backwards" in message and "'a'" in message


def test_what_is_asked_of_a_backfill_that_is_being_planned_is_done_before_anything_of_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ground = InMemoryManager(THREE)
    ask = CreateBackfill(dag_id="d", start_date=JANUARY[0][0], end_date=JANUARY[-1][0])
    ground.ask("backfill.create", backfill_id="b", ask=ask.to_payload())
    ground.ask("backfill.set", backfill_id="b", changes={"priority": 7})
    ground.ask("backfill.cancel", backfill_id="b", let_running_finish=False)
    ground.drain()
    assert ground.store.read(Response) == []

    monkeypatch.setattr(ground.clock, "new_id", lambda: "b")
    ground.backfill("d", JANUARY)
    monkeypatch.undo()
    planned, now = ground.store.unanswered()[0].request_id, ground.clock.now()
    ground._decisions.requests.accept(planned, "backfill.create", now, "b", "5 items to run")
    ground.drain()

    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"] * 3
    assert (ground.row("b").state, ground.row("b").priority, ground.launched) == (s.CANCELLED, 7, [])


def test_a_backfill_that_has_ended_can_not_be_changed() -> None:
    ground = InMemoryManager(THREE)
    backfill = done(ground)
    assert "success already" in refused(ground, "backfill.set", backfill_id=backfill, changes={"priority": 1})


def test_a_clear_that_waited_while_the_run_moved_to_a_version_without_its_task_leaves_that_removed() -> None:
    ground = Stubborn(dag_spec("d", "a", "b"), script=never)
    done(ground)
    ground.finish((*key_of(ground, FIRST, "b"),), Succeeded())  # type: ignore[arg-type]
    ground.drain()
    ground.ask("tasks.clear", **clear("d"))
    ground.add_dag(dag_spec("d", "a"))
    ground.ask("tasks.clear", **clear("d", latest_version=True))
    ground.drain()
    ground.script = lambda _: Succeeded()
    ground.give_in(FIRST)
    nothing_hangs(ground)
    assert states_of(ground, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED}
    assert [answer.outcome for answer in ground.store.read(Response)] == ["accepted"] * 2
