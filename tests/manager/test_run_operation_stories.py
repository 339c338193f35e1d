"""Clear, cancel, mark, trigger, tasks by hand, retry and change of a backfill, by docs/semantics.md ("Clear and re-run",
"Backfill", "Requests and failure") and issue 4 tell them, without Spark, Delta or a JVM."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
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

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Record, Response, TaskInstance, TaskTry
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfill_plan import existing_runs
from backfill_manager.schemas.backfill_options import CreateBackfill
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


def done(manager: InMemoryManager, n: int = 1, **fields: object) -> str:
    backfill = manager.backfill("d", JANUARY[:n], **fields)
    manager.drain()
    return backfill


def states_of(manager: InMemoryManager, run_id: str) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in manager.store.read(TaskInstance) if ti.run_id == run_id}


# -- clear ------------------------------------------------------------------------------------------------------------


def test_clear_runs_a_finished_run_again_in_place_and_its_tries_go_on_counting() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    manager.script = never
    answer = accepted(manager, "tasks.clear", **clear("d"))
    assert "3 tasks" in answer.message
    (run,) = manager.runs("d")
    assert (run.run_id, run.state) == (FIRST, s.RUNNING)
    assert states_of(manager, FIRST) == {"a": s.RUNNING, "b": s.NONE, "c": s.NONE}
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    assert [(ti.state, ti.try_number, ti.generation, ti.failures) for ti in manager.tasks("d")] == [
        (s.SUCCESS, 2, 1, 0)
    ] * 3
    tries = [(t.task_id, t.try_number) for t in manager.store.read(TaskTry)]
    assert sorted(tries) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)], "earlier tries stay readable"


def test_to_clear_a_hundred_runs_takes_as_few_statements_as_to_clear_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, read = [0], MemoryStore.read

    def counted(*args: Any, **named: Any) -> list[Any]:
        reads[0] += 1
        return read(*args, **named)

    monkeypatch.setattr(MemoryStore, "read", counted)
    needed = []
    for n in (10, 100):
        manager = InMemoryManager(THREE, script=never)
        manager.backfill("d", days("2013-01-01", n), max_active_runs=n)
        manager.script = lambda _: Succeeded()
        manager.drain()
        manager.script, before = never, reads[0]
        assert accepted(manager, "tasks.clear", **clear("d")).message == f"cleared {3 * n} tasks in {n} runs"
        needed.append(reads[0] - before)
    assert needed[0] == needed[1]


def test_a_cleared_task_has_all_its_retries_again() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 2}}), script=fails("a"))
    done(manager)
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert (task_of(manager, FIRST, "a").try_number, task_of(manager, FIRST, "a").failures) == (6, 3)


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ({}, "b"),
        ({"upstream": True}, "ab"),
        ({"downstream": True}, "bc"),
        ({"upstream": True, "downstream": True}, "abc"),
    ],
)
def test_clear_of_one_task_takes_what_is_before_and_after_it_when_asked_to(how: dict[str, bool], again: str) -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d", tasks="^b$", **how))
    nothing_hangs(manager)
    assert "".join(launch.task.task_id for launch in manager.launched) == again


def test_clear_only_failed_begins_at_what_failed_and_goes_on_to_what_could_not_start() -> None:
    manager = InMemoryManager(THREE, script=fails("b backfill__2013-01-02"))
    backfill = done(manager, 3)
    assert manager.row(backfill).state == s.FAILED
    manager.launched.clear()
    manager.script = lambda _: Succeeded()
    accepted(manager, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(manager)
    assert [(launch.task.task_id, launch.run.run_id) for launch in manager.launched] == [("b", SECOND), ("c", SECOND)]


def test_a_cleared_run_of_a_finished_backfill_opens_item_and_backfill_again_and_they_end_again() -> None:
    manager = InMemoryManager(THREE, script=fails("2013-01-02"))
    backfill = done(manager, 3)
    assert manager.states(backfill) == {s.SUCCESS: 2, s.FAILED: 1}
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", only_failed=True))
    assert (manager.row(backfill).state, manager.row(backfill).completed_at) == (s.RUNNING, None)
    assert manager.states(backfill) == {s.SUCCESS: 2, s.RUNNING: 1}
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}
    assert (manager.row(backfill).state, manager.row(backfill).reason) == (s.SUCCESS, None)
    manager.script = fails("c ")  # type: ignore[assignment]
    accepted(manager, "tasks.clear", **clear("d", run_ids=[FIRST]))
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.SUCCESS: 2, s.FAILED: 1})


def test_a_run_cleared_while_its_backfill_still_runs_belongs_to_it() -> None:
    manager = InMemoryManager(THREE)
    backfill = manager.backfill("d", JANUARY[:3], max_active_runs=1)
    manager.script = lambda it: None if "01-02" in it.run.run_id else Succeeded()
    manager.drain()
    accepted(manager, "tasks.clear", **clear("d", run_ids=[FIRST]))
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 3})


def test_clear_works_on_runs_of_every_kind_whatever_made_them() -> None:
    manager = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01"), catchup=True), scheduled=True)
    done(manager)
    play(manager, "2024-01-02")
    accepted(manager, "dag.trigger", dag_id="d", logical_date="2020-01-01T00:00:00Z", conf={})
    external = accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2020-06-01T00:00:00Z").object_id
    kinds = {run.run_type for run in manager.runs("d")}
    assert kinds == {"backfill", "scheduled", "manual", "external"}
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert [launch.run.run_type for launch in manager.launched].count("external") == 0, "only when it is named"
    accepted(manager, "tasks.clear", **clear("d", run_ids=[external]))
    nothing_hangs(manager)
    assert sorted(launch.run.run_type for launch in manager.launched) == ["backfill", "external", "manual", "scheduled"]
    assert {run.state for run in manager.runs("d")} == {s.SUCCESS}


def test_what_runs_is_stopped_first_and_then_cleared() -> None:
    manager = Stubborn(THREE, script=never)
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    manager.ask("tasks.clear", **clear("d"))
    manager.drain()
    assert not manager.store.read(Response), "no answer while it still runs"
    assert states_of(manager, FIRST)["a"] == s.RUNNING and manager.runs("d")[0].state == s.RUNNING
    manager.script = lambda _: Succeeded()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert (task_of(manager, FIRST, "a").try_number, task_of(manager, FIRST, "a").generation) == (2, 1)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert [(t.launch, t.state) for t in manager.store.read(TaskTry) if t.task_id == "a"] == [
        (1, "cancelled"),
        (2, "success"),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_runs_that_stop_one_after_the_other_are_all_cleared(order: tuple[int, ...]) -> None:
    manager = Stubborn(THREE, script=never)
    backfill = manager.backfill("d", JANUARY[:3])
    manager.drain()
    manager.ask("tasks.clear", **clear("d", tasks="^a$"))
    manager.drain()
    manager.script = lambda _: Succeeded()
    for n in order:
        manager.give_in(f"2013-01-0{n + 1}")
        manager.drain()
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}
    assert [ti.state for ti in manager.tasks("d")] == [s.SUCCESS] * 9
    (answer,) = manager.store.read(Response)
    assert answer.message == "cleared 3 tasks in 3 runs"


def test_two_clears_that_wait_for_the_same_run_do_not_hang() -> None:
    manager = Stubborn(THREE, script=never)
    done(manager, 2)
    manager.script = lambda _: Succeeded()
    for how in ({"tasks": "a"}, {"tasks": "a|b"}, {}):
        manager.ask("tasks.clear", **clear("d", **how))
    manager.drain()
    manager.give_in("01-02")
    manager.drain()
    manager.give_in("01-01")
    nothing_hangs(manager)
    assert {ti.state for ti in manager.tasks("d")} == {s.SUCCESS}
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"] * 3


def test_a_task_that_finishes_before_it_could_be_stopped_is_cleared_all_the_same() -> None:
    manager = Stubborn(dag_spec("d", "a"), script=never)
    done(manager, 2)
    manager.ask("tasks.clear", **clear("d"))
    manager.drain()
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    manager.finish(key_of(manager, "01-02"), Failed("boom"))
    nothing_hangs(manager)
    assert [(ti.state, ti.generation) for ti in manager.tasks("d")] == [(s.SUCCESS, 1)] * 2


def test_a_task_that_waits_for_its_retry_is_cleared_and_starts_at_once() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"retries": 1, "retry_delay": 86_400.0}})
    manager = InMemoryManager(spec, script=fails("a"))
    manager.backfill("d", JANUARY[:1])
    for _ in range(5):
        manager.tick()
    assert states_of(manager, FIRST)["a"] == s.UP_FOR_RETRY
    before, manager.script = manager.clock.now(), lambda _: Succeeded()
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert manager.clock.now() == before
    assert (task_of(manager, FIRST, "a").generation, task_of(manager, FIRST, "a").state) == (1, s.SUCCESS)


def test_what_never_ran_can_not_be_cleared_and_a_backfill_is_what_they_want() -> None:
    manager = InMemoryManager(THREE)
    assert "never run" in refused(manager, "tasks.clear", **clear("d"))
    assert "what never ran can't be cleared" in refused(manager, "tasks.clear", **clear("d", start="2013-01-01"))
    assert "There is no DAG 'e'" in refused(manager, "tasks.clear", **clear("e"))


def test_a_run_that_was_overridden_stays_as_it_was() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    done(manager, reprocess="completed")
    assert f"{FIRST}__2" in refused(manager, "tasks.clear", **clear("d", run_ids=[FIRST]))
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert {ti.generation for ti in manager.tasks("d") if ti.run_id == FIRST} == {0}


def test_a_cleared_run_keeps_its_version_of_the_dag() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    manager.add_dag(dag_spec("d", "a", "new"))
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert manager.runs("d")[0].dag_version == 1
    assert set(states_of(manager, FIRST)) == {"a", "b", "c"}


def test_old_versions_take_no_memory_and_a_run_that_is_cleared_brings_its_own_back() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    for edit in range(20):
        manager.add_dag(dag_spec("d", "a", f"edit_{edit}"))
        nothing_hangs(manager)
    assert len(manager.state.catalog.versions) <= 2
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert manager.runs("d")[0].dag_version == 1
    assert {launch.version.version for launch in manager.launched} == {1}


def test_latest_version_moves_the_run_drops_what_it_lost_and_begins_what_it_gained() -> None:
    manager = InMemoryManager(THREE)
    backfill = done(manager)
    manager.add_dag(dag_spec("d", "a", "c", "new", upstream={"c": ["a"], "new": ["c"]}))
    accepted(manager, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(manager)
    (run,) = manager.runs("d")
    assert (run.dag_version, run.state) == (2, s.SUCCESS)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED, "c": s.SUCCESS, "new": s.SUCCESS}
    assert manager.row(backfill).state == s.SUCCESS
    assert manager.launched[-1].version.version == 2


def test_a_live_task_that_the_new_version_dropped_is_stopped_and_removed() -> None:
    manager = Stubborn(dag_spec("d", "a", "b"), script=lambda it: Succeeded() if it.task.task_id == "a" else None)
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    manager.add_dag(dag_spec("d", "a", "new"))
    manager.ask("tasks.clear", **clear("d", tasks="^a$", latest_version=True))
    manager.drain()
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.RUNNING}
    manager.script = lambda _: Succeeded()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED, "new": s.SUCCESS}


def test_a_task_that_came_back_with_a_later_version_runs_again() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b"))
    done(manager)
    for spec in (dag_spec("d", "a"), dag_spec("d", "a", "b")):
        manager.add_dag(spec)
        accepted(manager, "tasks.clear", **clear("d", latest_version=True))
        nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS}


def test_a_run_moves_to_no_version_that_does_not_take_its_params() -> None:
    def version(**declared: ParamSpec) -> DagSpec:
        defaults = {name: one.choices[0] for name, one in declared.items() if one.choices}
        return dag_spec("d", "a", schedule=None, params=defaults, declared_params=declared)

    manager = InMemoryManager(version(region=ParamSpec("string", ("eu", "us"))))
    done(manager, conf_json='{"region": "us"}')
    refusals = {
        "'region' must be one of": version(region=ParamSpec("string", ("eu", "de"))),
        "'region' is no parameter": version(full=ParamSpec("boolean", (False,))),
        "must set 'days'": version(
            region=ParamSpec("string", ("eu", "us")), days=ParamSpec("integer", is_required=True)
        ),
    }
    for problem, spec in refusals.items():
        manager.add_dag(spec)
        refusal = refused(manager, "tasks.clear", **clear("d", latest_version=True))
        assert problem in refusal and "without it, the run keeps version 1" in refusal
        (run,) = manager.runs("d")
        assert (run.dag_version, run.state) == (1, s.SUCCESS), "nothing has changed"
    manager.add_dag(version(region=ParamSpec("string", ("us", "de"))))
    accepted(manager, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(manager)
    assert [(run.dag_version, run.state) for run in manager.runs("d")] == [(5, s.SUCCESS)]


def test_what_a_backfill_left_out_stays_left_out_when_its_run_is_cleared() -> None:
    manager = InMemoryManager(THREE)
    done(manager, tasks="^b$", with_upstream=False)
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    manager.crash()
    nothing_hangs(manager)
    assert [launch.task.task_id for launch in manager.launched] == ["b"]
    assert states_of(manager, FIRST) == {"a": s.SKIPPED, "b": s.SUCCESS, "c": s.SKIPPED}


def test_a_task_gained_by_the_latest_version_is_left_out_if_the_backfill_did_not_choose_it() -> None:
    manager = InMemoryManager(THREE)
    done(manager, tasks="^b$", with_upstream=False)
    manager.add_dag(dag_spec("d", "a", "b", "new"))
    accepted(manager, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SKIPPED, "b": s.SUCCESS, "c": s.REMOVED, "new": s.SKIPPED}


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("tables", range(24))
def test_a_clear_with_a_crash_in_between_has_the_effect_of_once(tables: int, latest: bool) -> None:
    manager = InMemoryManager(THREE, script=fails("c backfill__2013-01-02"))
    backfill = done(manager, 3)
    manager.add_dag(dag_spec("d", "a", "b", "c", "new", upstream={"b": ["a"], "c": ["b"], "new": ["c"]}))
    manager.commit()
    manager.script = lambda _: Succeeded()
    manager.ask("tasks.clear", **clear("d", latest_version=latest))
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}
    assert {ti.generation for ti in manager.tasks("d") if ti.task_id != "new"} == {1}
    assert {run.dag_version for run in manager.runs("d")} == {2 if latest else 1}
    assert {ti.state for ti in manager.tasks("d")} == {s.SUCCESS}
    assert len(manager.tasks("d", "new")) == (3 if latest else 0)
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"]
    tries = [(t.run_id, t.task_id, t.launch) for t in manager.store.read(TaskTry)]
    assert len(tries) == len(set(tries))


def test_the_same_request_sent_twice_clears_once() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    manager.ask("tasks.clear", **clear("d"))
    manager.store.append_request(manager.store.rows("request")[-1])  # type: ignore[arg-type]
    nothing_hangs(manager)
    assert {ti.generation for ti in manager.tasks("d")} == {1}


def test_a_later_run_that_depends_on_a_cleared_one_waits_for_it() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec)
    done(manager, 2)
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d"))
    nothing_hangs(manager)
    assert [launch.run.run_id for launch in manager.launched] == [FIRST, SECOND]


# -- cancel and mark --------------------------------------------------------------------------------------------------


def test_a_cancelled_run_is_stopped_and_the_others_go_on() -> None:
    manager = Stubborn(THREE, script=never)
    done(manager, 2)
    manager.ask("run.cancel", dag_id="d", run_id=FIRST)
    manager.drain()
    assert not manager.store.read(Response)
    manager.give_in(FIRST)
    manager.drain()
    assert [run.state for run in manager.runs("d")] == [s.CANCELLED, s.RUNNING]
    assert states_of(manager, FIRST) == {"a": s.CANCELLED, "b": s.CANCELLED, "c": s.CANCELLED}
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert manager.runs("d")[1].state == s.SUCCESS
    assert "success already" in refused(manager, "run.cancel", dag_id="d", run_id=SECOND)
    assert "There is no run" in refused(manager, "run.cancel", dag_id="d", run_id="nope")
    assert response_to(manager, "run.cancel", dag_id="d", run_id=FIRST).outcome == "accepted", "twice is once"


def test_a_run_that_ends_before_it_could_be_stopped_is_not_called_cancelled() -> None:
    manager = Stubborn(dag_spec("d", "a"), script=never)
    done(manager)
    manager.ask("run.cancel", dag_id="d", run_id=FIRST)
    manager.drain()
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    (answer,) = manager.store.read(Response)
    assert (answer.outcome, manager.runs("d")[0].state) == ("refused", s.SUCCESS)


def test_a_finished_run_marked_success_or_failed_counts_so_for_its_backfill() -> None:
    manager = InMemoryManager(THREE, script=fails("b "))
    backfill = done(manager)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (s.SUCCESS, s.SUCCESS)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="failed")
    nothing_hangs(manager)
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (s.FAILED, s.FAILED)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.FAILED}


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_live_run_is_stopped_before_it_is_marked(state: str) -> None:
    manager = Stubborn(THREE, script=never)
    backfill = done(manager)
    manager.ask("run.mark", dag_id="d", run_id=FIRST, state=state)
    manager.drain()
    assert manager.runs("d")[0].state == s.RUNNING
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert set(states_of(manager, FIRST).values()) == {state}
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (state, state)
    assert len(manager.launched) == 1


def test_a_task_marked_success_lets_what_could_not_start_begin() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    backfill = done(manager)
    assert states_of(manager, FIRST) == {"a": s.FAILED, "b": s.UPSTREAM_FAILED, "c": s.UPSTREAM_FAILED}
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="success")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert manager.row(backfill).state == s.SUCCESS


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_task_of_an_ended_run_that_is_marked_keeps_its_start_end_and_duration(state: str) -> None:
    manager = InMemoryManager(THREE, script=never)
    done(manager)
    for task_id, outcome in (("a", Succeeded()), ("b", Succeeded()), ("c", Failed("boom"))):
        manager.clock.advance(seconds=40)
        manager.finish(key_of(manager, FIRST, task_id), outcome)
        manager.drain()
    before = task_of(manager, FIRST, "c")
    assert before.duration_s == 40
    manager.clock.advance(hours=1)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state=state)
    nothing_hangs(manager)
    after = task_of(manager, FIRST, "c")
    assert after.state == state
    assert (after.started_at, after.ended_at, after.duration_s) == (before.started_at, before.ended_at, 40)


@pytest.mark.parametrize(("marked", "failing"), [("run", "c "), ("task", "c "), ("run", "b ")])
def test_a_run_that_is_marked_keeps_its_start_and_its_end(marked: str, failing: str) -> None:
    manager = InMemoryManager(THREE, script=fails(failing))
    done(manager)
    (before,) = manager.runs("d")
    assert before.state == s.FAILED and before.started_at is not None
    manager.clock.advance(hours=1)
    which = {} if marked == "run" else {"task_id": "c"}
    accepted(manager, f"{marked}.mark", dag_id="d", run_id=FIRST, **which, state="success")
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after == before.evolve(state=s.SUCCESS, reason=None)


def test_a_cleared_run_of_which_nothing_starts_again_ends_when_it_fails_again() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    at = manager.clock.now()
    accepted(manager, "tasks.clear", **clear("d", tasks="^b$"))
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after.state == s.FAILED and after.ended_at is not None and after.ended_at >= at


def test_a_run_in_which_a_mark_lets_tasks_begin_starts_and_ends_with_them() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    at = manager.clock.now()
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="success")
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after.started_at is not None and after.ended_at is not None and at <= after.started_at <= after.ended_at


def test_a_task_that_never_began_and_is_marked_ends_at_its_mark() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="b", state="failed")
    nothing_hangs(manager)
    marked = task_of(manager, FIRST, "b")
    assert (marked.started_at, marked.duration_s) == (None, None)
    assert marked.ended_at is not None and task_of(manager, FIRST, "a").ended_at is not None
    assert marked.ended_at - task_of(manager, FIRST, "a").ended_at >= timedelta(hours=1)


def test_a_task_marked_skipped_skips_what_follows_it() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="skipped")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SKIPPED, "b": s.SKIPPED, "c": s.SKIPPED}
    assert manager.runs("d")[0].state == s.SUCCESS


def test_a_last_task_marked_failed_fails_its_run() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state="failed")
    nothing_hangs(manager)
    assert manager.runs("d")[0].state == s.FAILED


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_running_task_is_stopped_before_it_is_marked(state: str) -> None:
    manager = Stubborn(THREE, script=never)
    done(manager)
    manager.ask("task.mark", dag_id="d", run_id=FIRST, task_id="a", state=state)
    manager.drain()
    assert states_of(manager, FIRST)["a"] == s.RUNNING
    manager.script = lambda _: Succeeded()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    then = {"success": s.SUCCESS, "failed": s.UPSTREAM_FAILED, "skipped": s.SKIPPED}[state]
    assert states_of(manager, FIRST) == {"a": state, "b": then, "c": then}


def test_mark_of_what_is_not_there_names_what_is_near() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    assert "There is no task" in refused(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="x", state="failed")
    done(manager, reprocess="completed")
    assert "overridden" in refused(manager, "run.mark", dag_id="d", run_id=FIRST, state="failed")


def test_marking_a_failed_past_ends_a_deadlock() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=fails("2013-01-01"))
    backfill = done(manager, 3, max_active_runs=1)
    assert manager.row(backfill).state == s.FAILED
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(manager)
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 3})


ROLLING = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})


@pytest.mark.parametrize(("state", "then"), [("success", s.SUCCESS), ("skipped", s.SUCCESS), ("failed", s.FAILED)])
def test_one_task_of_the_past_that_is_marked_in_time_is_the_past_that_a_live_run_sees(state: str, then: str) -> None:
    manager = InMemoryManager(ROLLING, script=lambda it: None if it.task.task_id == "load" else Failed("boom"))
    backfill = done(manager, 2)
    manager.finish(key_of(manager, FIRST), Succeeded())
    manager.drain()
    assert states_of(manager, FIRST) == {"load": s.SUCCESS, "roll": s.FAILED}
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="roll", state=state)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert [run.state for run in manager.runs("d")] == [then] * 2
    assert (states_of(manager, FIRST)["roll"], manager.row(backfill).state) == (state, then)
    assert then == s.SUCCESS or "deadlock: task 'roll'" in (manager.runs("d")[1].reason or "")


@pytest.mark.parametrize("state", ["success", "skipped"])
def test_a_past_that_could_not_start_is_a_deadlock_until_one_task_of_it_is_marked(state: str) -> None:
    manager = InMemoryManager(ROLLING, script=fails("load backfill__2013-01-01"))
    backfill = done(manager, 2)
    assert states_of(manager, FIRST) == {"load": s.FAILED, "roll": s.UPSTREAM_FAILED}
    result = manager.runs("d")[1].reason or ""
    assert "deadlock: task 'roll'" in result and f"upstream_failed in the run before, {FIRST}" in result
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="load", state=state)
    assert states_of(manager, FIRST) == {"load": state, "roll": state}, "what follows it goes on, or is skipped with it"
    assert manager.runs("d")[1].state == s.FAILED, "a run that has ended stays so until a request"
    accepted(manager, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(manager)
    assert states_of(manager, SECOND) == {"load": s.SUCCESS, "roll": s.SUCCESS}
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 2})


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
    manager = InMemoryManager(THREE, script=fails("b backfill"))
    done(manager, 2)
    manager.script = lambda _: Succeeded()
    manager.ask(kind, dag_id="d", **payload)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"]
    standing = timeline(manager, "d")
    assert [run.state for run in standing] == [s.FAILED if kind == "task.run" else s.SUCCESS, s.FAILED]
    extra = {"dag.trigger": 1, "task.run": 1}.get(kind, 0)
    assert len(manager.runs("d")) == 2 + extra


# -- trigger and tasks by hand ----------------------------------------------------------------------------------------


def test_trigger_without_a_date_runs_the_latest_complete_interval() -> None:
    manager = InMemoryManager(THREE)
    manager.clock.advance(hours=30)
    answer = accepted(manager, "dag.trigger", dag_id="d", logical_date=None, conf={"full": True})
    (run,) = manager.runs("d")
    assert answer.object_id == run.run_id == "manual__2024-01-01T00:00:00Z"
    assert (run.interval_start, run.interval_end, run.state) == (at("2024-01-01"), at("2024-01-02"), s.SUCCESS)
    assert json.loads(run.conf_json) == {"full": True}
    assert manager.launched[0].params == {"full": True}
    assert manager.launched[0].pool == "scheduled"


def test_trigger_of_a_given_date_takes_its_place_in_the_timeline() -> None:
    manager = InMemoryManager(THREE)
    manager.backfill("d", [JANUARY[0], JANUARY[2]])
    manager.drain()
    answer = accepted(manager, "dag.trigger", dag_id="d", logical_date="2013-01-02T06:00:00Z", conf={})
    assert "of a part of an interval (the next whole one starts at 2013-01-03" in answer.message
    nothing_hangs(manager)
    first, manual, last = timeline(manager, "d")
    assert (manual.logical_date, manual.interval_end) == (at("2013-01-02T06:00"), at("2013-01-03"))
    assert (manual.previous_run_id, last.previous_run_id) == (first.run_id, manual.run_id)


def test_trigger_of_a_partition_makes_a_run_without_a_date() -> None:
    manager = InMemoryManager(THREE)
    for again in ("", "__2"):
        answer = accepted(manager, "dag.trigger", dag_id="d", logical_date=None, conf={}, partition_key="north")
        nothing_hangs(manager)
        assert answer.object_id == f"manual__north{again}"
    old, new = manager.runs("d")
    assert (old.state, old.overridden_by, new.state) == (s.OVERRIDDEN, new.run_id, s.SUCCESS)
    assert (new.partition_key, new.logical_date, new.interval_start, new.interval_end) == ("north", None, None, None)
    both = {"logical_date": "2024-01-01T00:00:00Z", "partition_key": "north"}
    assert "don't go together" in refused(manager, "dag.trigger", dag_id="d", conf={}, **both)
    blank = {"logical_date": None, "partition_key": ""}
    assert "must be a text of" in refused(manager, "dag.trigger", dag_id="d", conf={}, **blank)


def test_the_manager_refuses_params_that_do_not_fit() -> None:
    spec = dag_spec("d", "a", params={"full": False}, declared_params={"full": ParamSpec("boolean")})
    manager = InMemoryManager(spec, script=never)
    message = refused(manager, "dag.trigger", dag_id="d", logical_date=None, conf={"fulll": True})
    assert "conf 'fulll' is no parameter of DAG 'd'; did you mean 'full'?" in message
    backfill = manager.backfill("d", [JANUARY[0]])
    manager.drain()
    change = {"backfill_id": backfill, "changes": {"conf": {"full": 1}}}
    assert "conf 'full' must be of type boolean, not 1" in refused(manager, "backfill.set", **change)


def test_trigger_of_a_finished_date_makes_a_new_run_and_overrides_the_old_one() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    answer = accepted(manager, "dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    nothing_hangs(manager)
    old, new = manager.runs("d")
    assert (old.state, old.overridden_by, new.run_id) == (s.OVERRIDDEN, new.run_id, "manual__2013-01-01T00:00:00Z__2")
    assert answer.object_id == new.run_id and old.run_id in answer.message
    assert set(states_of(manager, FIRST).values()) == {s.SUCCESS}


def test_trigger_of_a_date_that_a_live_batch_takes_is_refused_and_when_it_has_ended_is_taken() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), script=never)
    manager.backfill("d", days("2013-01-01", 3), batch=3)
    manager.drain()
    (batch,) = manager.runs("d")
    trigger = {"dag_id": "d", "logical_date": "2013-01-02T00:00:00Z", "conf": {}}
    message = refused(manager, "dag.trigger", **trigger)
    assert f"{batch.run_id}, which processes 3 intervals together, including this date, is running" in message
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    answer = accepted(manager, "dag.trigger", **trigger)
    assert "part of an interval" not in answer.message
    assert [run.run_id for run in manager.runs("d")] == [batch.run_id, answer.object_id]


def test_trigger_of_a_live_date_is_refused_with_what_to_do() -> None:
    manager = InMemoryManager(THREE, script=never)
    done(manager)
    message = refused(manager, "dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    assert "or cancel it" in message and FIRST in message
    assert [run.state for run in manager.runs("d")] == [s.RUNNING], (
        "a run that is queued or running is never overridden"
    )


def test_trigger_of_a_dag_without_a_schedule_is_of_the_moment() -> None:
    manager = InMemoryManager(dag_spec("d", "a", schedule=None))
    for _ in range(2):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=None, conf={})
        manager.clock.advance(minutes=1)
    nothing_hangs(manager)
    assert [(run.interval_start, run.interval_end, run.state) for run in timeline(manager, "d")] == [
        (at("2024-01-01"), at("2024-01-01"), s.SUCCESS), (at("2024-01-01T00:01"), at("2024-01-01T00:01"), s.SUCCESS),
    ]  # fmt: skip


def test_two_triggers_of_one_date_at_once_make_one_run() -> None:
    manager = InMemoryManager(THREE, script=never)
    for _ in range(2):
        manager.ask("dag.trigger", dag_id="d", logical_date="2013-01-01T00:00:00Z", conf={})
    manager.drain()
    assert sorted(answer.outcome for answer in manager.store.read(Response)) == ["accepted", "refused"]
    assert len(manager.runs("d")) == 1


def test_a_trigger_of_a_dag_that_is_not_there_names_what_is_near() -> None:
    manager = InMemoryManager(dag_spec("flights", "a"))
    assert "'flights'" in refused(manager, "dag.trigger", dag_id="flight", logical_date=None, conf={})


def test_a_task_run_by_hand_stands_outside_the_timeline() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}}, start_date=at("2024-01-01"), catchup=True)
    manager = InMemoryManager(
        spec, scheduled=True, script=lambda it: Failed("x") if it.run.run_type == "external" else Succeeded()
    )
    play(manager, "2024-01-02")
    manager.clock.advance(seconds=7)
    answer = accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2024-01-02T00:00:00Z")
    play(manager, "2024-01-03")
    (external,) = [run for run in manager.runs("d") if run.run_type == "external"]
    assert answer.object_id == external.run_id == "external__2024-01-02T00:00:07Z"
    assert (external.state, external.previous_run_id, external.interval_end) == (s.FAILED, None, at("2024-01-03"))
    runs = timeline(manager, "d")
    assert [run.run_type for run in runs] == ["scheduled", "scheduled"]
    assert [run.state for run in runs] == [s.SUCCESS] * 2, "no task depends on it"
    range_of = CreateBackfill(dag_id="d", start_date=at("2024-01-01"), end_date=at("2024-01-05"))
    ids = existing_runs(manager.store, range_of, spec)["run_id"].to_pylist()
    assert external.run_id not in ids and len(ids) == 2


def test_a_trigger_is_answered_with_the_interval_in_the_zone_of_the_dag() -> None:
    manager = InMemoryManager(dag_spec("d", "a", timezone="Europe/Berlin"), dag_spec("by_hand", "a", schedule=None))
    made = accepted(manager, "dag.trigger", dag_id="d", logical_date="2013-01-01T23:00:00Z", conf={})
    assert made.message.endswith(" from 2013-01-02T00:00:00+01:00 to 2013-01-03T00:00:00+01:00")
    assert " from " not in accepted(manager, "dag.trigger", dag_id="by_hand", logical_date=None, conf={}).message


def test_a_task_run_by_hand_has_params_as_every_run() -> None:
    declared = {"days": ParamSpec("integer", is_required=True)}
    manager = InMemoryManager(dag_spec("d", "a", schedule=None, declared_params=declared))
    asked = {"dag_id": "d", "task_id": "a", "logical_date": "2013-01-01T00:00:00Z"}
    assert "'days'" in refused(manager, "task.run", **asked)
    assert "type integer" in refused(manager, "task.run", **asked, conf={"days": "3"})
    accepted(manager, "task.run", **asked, conf={"days": 3})
    assert [launch.params for launch in manager.launched] == [{"days": 3}]


def test_a_task_run_by_hand_runs_that_task_alone_even_next_to_a_live_run_of_its_date() -> None:
    manager = InMemoryManager(THREE, script=never)
    done(manager)
    manager.script = lambda _: Succeeded()
    external = accepted(manager, "task.run", dag_id="d", task_id="b", logical_date="2013-01-01T00:00:00Z").object_id
    assert external is not None and states_of(manager, external) == {"b": s.SUCCESS}
    manager.crash()
    nothing_hangs(manager)
    assert "There is no task" in refused(
        manager, "task.run", dag_id="d", task_id="z", logical_date="2013-01-01T00:00:00Z"
    )


def test_a_task_run_by_hand_survives_a_crash_as_itself() -> None:
    manager = InMemoryManager(THREE, script=never)
    manager.ask("task.run", dag_id="d", task_id="b", logical_date="2013-01-01T00:00:00Z")
    manager.drain()
    manager.crash()
    manager.script = lambda _: Succeeded()
    nothing_hangs(manager)
    (run,) = manager.store.read(DagRun)
    assert (run.state, states_of(manager, run.run_id)) == (s.SUCCESS, {"b": s.SUCCESS})


# -- retry of a backfill ----------------------------------------------------------------------------------------------


def test_retry_runs_the_failed_items_of_a_finished_backfill_again_as_part_of_it() -> None:
    manager = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(manager, 5)
    manager.script, answer = fails("01-04"), None  # type: ignore[assignment]
    answer = accepted(manager, "backfill.retry", backfill_id=backfill)
    assert "2 failed items" in answer.message
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.SUCCESS: 4, s.FAILED: 1})
    again = [run for run in manager.runs("d") if run.run_id.endswith("__2")]
    assert dates(again) == ["01-02", "01-04"] and {run.backfill_id for run in again} == {backfill}
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.row(backfill).reason) == (s.SUCCESS, None)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 5


def test_retry_is_refused_for_a_live_backfill_for_one_without_failures_and_for_none() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    assert "when it has ended" in refused(manager, "backfill.retry", backfill_id=backfill)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    assert "no failed item" in refused(manager, "backfill.retry", backfill_id=backfill)
    assert "There is no backfill" in refused(manager, "backfill.retry", backfill_id="nope")


def test_retry_after_a_deadlock_goes_on_once_the_cause_is_mended() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=fails("01-02"))
    backfill = done(manager, 5)
    assert manager.states(backfill) == {s.SUCCESS: 1, s.FAILED: 4}
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 5}
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 5


def test_retry_counts_stop_on_failure_anew() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    backfill = done(manager, 5, max_active_runs=1, stop_on_failure=2)
    assert manager.row(backfill).state == s.PAUSED
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert manager.row(backfill).state == s.PAUSED
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.FAILED: 5})
    accepted(manager, "backfill.retry", backfill_id=backfill)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.PAUSED, {s.FAILED: 2, s.PENDING: 3})


@pytest.mark.parametrize("tables", range(10))
def test_a_crash_in_the_middle_of_a_retry_leaves_it_done_once(tables: int) -> None:
    manager = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(manager, 5)
    manager.script = lambda _: Succeeded()
    manager.ask("backfill.retry", backfill_id=backfill)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 5})
    assert len(manager.runs("d")) == 7


# -- changing a backfill ----------------------------------------------------------------------------------------------


def change(manager: InMemoryManager, backfill: str, **changes: object) -> None:
    accepted(manager, "backfill.set", backfill_id=backfill, changes=changes)


def running(manager: InMemoryManager) -> list[str]:
    return sorted(key[1][9 + 5 : 9 + 11].strip("_") for key in manager.running)


def test_max_active_runs_changes_while_it_runs_up_and_down() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, max_active_runs=3)
    assert len(manager.running) == 3
    change(manager, backfill, max_active_runs=1)
    for key in list(manager.running)[:2]:
        manager.finish(key, Succeeded())
    manager.drain()
    assert len(manager.running) == 1, "what runs goes on, and nothing new begins"


def test_priority_changes_for_tasks_that_wait_already_too() -> None:
    one_at_a_time = dag_spec("d", "a", each={"a": {"max_active_tis": 1}})
    manager = InMemoryManager(one_at_a_time, script=never)
    first = manager.backfill("d", JANUARY[:2])
    second = manager.backfill("d", days("2014-01-01", 2))
    manager.drain()
    change(manager, second, priority=7)
    manager.finish(key_of(manager, "2013-01-01"), Succeeded())
    manager.drain()
    assert key_of(manager, "2014-01-01")
    assert {ti.priority for ti in manager.tasks("d") if "2014" in ti.run_id} == {7}
    assert (manager.row(first).priority, manager.row(second).priority) == (0, 7)


def test_pool_changes_for_what_starts_from_now_on() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    from backfill_manager.model.records import Pool

    manager.state.put(Pool(name="nightly", slots=2, weight=1, min_share=0))
    backfill = done(manager, 2, max_active_runs=1)
    change(manager, backfill, pool="nightly")
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert [launch.pool for launch in manager.launched] == ["backfill", "nightly"]
    assert "There is no pool" in refused(manager, "backfill.set", backfill_id=backfill, changes={"pool": "nigthly"})
    assert "for scheduled runs" in refused(manager, "backfill.set", backfill_id=backfill, changes={"pool": "scheduled"})


def test_batch_changes_for_the_runs_that_are_still_to_be_made() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), script=never)
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, batch=3)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    nothing_hangs(manager)
    assert [run.items for run in manager.runs("d")] == [1, 3, 1]
    assert manager.states(backfill) == {s.SUCCESS: 5}


def test_stop_on_failure_set_while_it_fails_pauses_it() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=fails("01-01", "01-02"))
    manager.script = lambda it: Failed("boom") if it.run.run_id < "backfill__2013-01-03" else None
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, stop_on_failure=2)
    assert (manager.row(backfill).state, manager.row(backfill).is_paused) == (s.PAUSED, True)
    assert "stop_on_failure=2" in (manager.row(backfill).reason or "")
    change(manager, backfill, stop_on_failure=None)
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    manager.script = fails("a ")  # type: ignore[assignment]
    manager.finish(key_of(manager, "01-03"), Failed("boom"))
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 5}


def test_window_set_while_it_runs_holds_back_what_is_not_begun() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 3, max_active_runs=1)
    change(manager, backfill, window="20:00-06:00")
    manager.clock.advance(hours=12)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 1, s.PENDING: 2}
    change(manager, backfill, window=None)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}


def test_a_backfill_can_be_told_to_be_polite_while_it_runs() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 1)
    change(manager, backfill, is_polite=True)
    assert manager.row(backfill).is_polite


def test_tasks_mark_success_and_conf_change_for_the_runs_that_are_still_to_be_made() -> None:
    manager = InMemoryManager(THREE, script=lambda it: None if "01-01" in it.run.run_id else Succeeded())
    backfill = done(manager, 4, max_active_runs=1)
    change(manager, backfill, tasks="^b$", with_upstream=False, conf={"x": 1})
    manager.script = lambda it: None if "01-03" in it.run.run_id else Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    change(manager, backfill, mark_success=True, tasks=None)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-03"), Succeeded())
    nothing_hangs(manager)
    assert [launch.task.task_id for launch in manager.launched] == ["a", "b", "c", "b", "b"]
    assert manager.launched[3].params == {"x": 1}
    assert manager.states(backfill) == {s.SUCCESS: 4}
    assert manager.runs("d")[3].reason == "marked success"


def test_overrides_set_while_it_runs_hold_for_its_live_runs_too() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 2, max_active_runs=1)
    change(manager, backfill, overrides={"retries": 1, "a.retry_delay": 1})
    manager.script = fails("a ")  # type: ignore[assignment]
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    nothing_hangs(manager)
    assert [(ti.state, ti.try_number) for ti in manager.tasks("d")] == [(s.FAILED, 2)] * 2
    assert manager.state.current_spec("d").task("a").retries == 0, "scoped to the backfill, and to nothing else"


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

    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    before = manager.row(backfill)
    payload = json.dumps({"backfill_id": backfill, "changes": changes})
    # As an older client would, unchecked.
    manager.store.append_request(Request("r", "backfill.set", payload, "tests", EPOCH))
    manager.drain()
    (answer,) = manager.store.read(Response)
    assert answer.outcome == "refused" and message in answer.message
    assert manager.row(backfill) == before


def test_to_clear_twice_as_many_runs_is_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, rows = [0], Changes.rows

    def counted(changes: Changes, table: str) -> list[Record]:
        found = rows(changes, table)
        looked_at[0] += len(found)
        return found

    monkeypatch.setattr(Changes, "rows", counted)
    needed = []
    for n in (40, 80):
        manager = InMemoryManager(THREE)
        manager.backfill("d", days("2013-01-01", n), max_active_runs=n)
        manager.drain()
        manager.script, before = never, looked_at[0]
        accepted(manager, "tasks.clear", **clear("d"))
        needed.append(looked_at[0] - before)
    assert needed[1] <= 2.2 * needed[0]


def test_who_takes_over_reads_the_tries_of_what_lives_and_not_all_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of long ago is at work again when the manager dies: what has ended since is none of its successor's business."""
    manager = InMemoryManager(THREE)
    manager.backfill("d", days("2013-01-01", 50))
    manager.drain()
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", end="2013-01-01"))
    manager.drain()
    read, tries = MemoryStore.read, list[TaskTry]()

    def kept(store: MemoryStore, record: type[Any], *args: Any, **named: Any) -> list[Any]:
        found = read(store, record, *args, **named)
        tries.extend(row for row in found if isinstance(row, TaskTry))
        return found

    monkeypatch.setattr(MemoryStore, "read", kept)
    manager.crash()
    assert {row.run_id for row in tries} == {FIRST}


def test_a_change_is_answered_in_words() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    changes = {"window": "20:00-06:00", "is_polite": True, "conf": {"token": "x"}, "pool": "backfill"}
    assert accepted(manager, "backfill.set", backfill_id=backfill, changes=changes).message == (
        f'backfill {backfill} is updated: conf: {{"token": "***"}}, is_polite: yes, pool: backfill, window: 20:00-06:00 UTC'
    )
    taken = {"window": None, "tasks": None, "with_upstream": True, "stop_on_failure": None}
    assert accepted(manager, "backfill.set", backfill_id=backfill, changes=taken).message == (
        f"backfill {backfill} is updated: stop_on_failure: none, tasks: none, window: none, with_upstream: yes"
    )


def test_a_change_of_what_somebody_has_changed_meanwhile_is_refused_and_says_what_it_is_now() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    first = {"changes": {"priority": 3, "conf": {"full": True}}, "was": {"priority": 0, "conf": {}}}
    accepted(manager, "backfill.set", backfill_id=backfill, **first)
    before = manager.row(backfill)

    second = {
        "changes": {"priority": 9, "conf": {}, "window": None},
        "was": {"priority": 0, "conf": {}, "window": None},
    }
    assert refused(manager, "backfill.set", backfill_id=backfill, **second) == (
        'conf is {"full": true} now, not {}; priority is 3 now, not 0: '
        "somebody has changed it in the meantime. Check it, and repeat the request."
    )
    assert manager.row(backfill) == before

    accepted(manager, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 3})
    # It is 9 already.
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 7})
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"batch": 1, "priority": 5})
    assert (manager.row(backfill).priority, json.loads(manager.row(backfill).conf_json)) == (5, {"full": True})


def test_of_two_changes_of_one_setting_at_once_the_second_is_refused() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    for priority in (3, 9):
        manager.ask("backfill.set", backfill_id=backfill, changes={"priority": priority}, was={"priority": 0})
    manager.drain()
    assert sorted(answer.outcome for answer in manager.store.read(Response)) == ["accepted", "refused"]
    assert manager.row(backfill).priority == 3


@pytest.mark.parametrize("tables", range(4))
def test_a_crash_in_the_middle_of_a_change_does_not_refuse_it_for_what_it_did_itself(tables: int) -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    manager.ask(
        "backfill.set", backfill_id=backfill, changes={"priority": 3, "batch": 1}, was={"priority": 0, "batch": 1}
    )
    dies_after(manager, tables)
    manager.drain()
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"]
    assert manager.row(backfill).priority == 3


def test_run_backwards_can_not_come_to_meet_depends_on_past_by_a_change() -> None:
    manager = InMemoryManager(THREE, script=never)
    config = json.dumps({"type": "schedule", "run_backwards": True})
    backfill = manager.backfill("d", JANUARY[:2][::-1], config_json=config)
    manager.drain()
    message = refused(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {"depends_on_past": True}})
    assert "run_backwards" in message and "'a'" in message


def test_what_is_asked_of_a_backfill_that_is_being_planned_is_done_before_anything_of_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = InMemoryManager(THREE)
    ask = CreateBackfill(dag_id="d", start_date=JANUARY[0][0], end_date=JANUARY[-1][0])
    manager.ask("backfill.create", backfill_id="b", ask=ask.to_payload())
    manager.ask("backfill.set", backfill_id="b", changes={"priority": 7})
    manager.ask("backfill.cancel", backfill_id="b", let_running_finish=False)
    manager.drain()
    assert manager.store.read(Response) == []

    monkeypatch.setattr(manager.clock, "new_id", lambda: "b")
    manager.backfill("d", JANUARY)
    monkeypatch.undo()
    planned, now = manager.store.unanswered()[0].request_id, manager.clock.now()
    manager._decisions.requests.accept(planned, "backfill.create", now, "b", "5 items to run")
    manager.drain()

    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"] * 3
    assert (manager.row("b").state, manager.row("b").priority, manager.launched) == (s.CANCELLED, 7, [])


def test_a_backfill_that_has_ended_can_not_be_changed() -> None:
    manager = InMemoryManager(THREE)
    backfill = done(manager)
    assert "success already" in refused(manager, "backfill.set", backfill_id=backfill, changes={"priority": 1})


def test_a_clear_that_waited_while_the_run_moved_to_a_version_without_its_task_leaves_that_removed() -> None:
    manager = Stubborn(dag_spec("d", "a", "b"), script=never)
    done(manager)
    manager.finish((*key_of(manager, FIRST, "b"),), Succeeded())  # type: ignore[arg-type]
    manager.drain()
    manager.ask("tasks.clear", **clear("d"))
    manager.add_dag(dag_spec("d", "a"))
    manager.ask("tasks.clear", **clear("d", latest_version=True))
    manager.drain()
    manager.script = lambda _: Succeeded()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.REMOVED}
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"] * 2


@pytest.mark.parametrize("how", ["partial", "all_done"])
def test_a_run_that_is_marked_failed_is_failed_whatever_its_leaves_are(how: str) -> None:
    each = {"b": {"trigger_rule": "all_done"}} if how == "all_done" else {}
    script = (lambda launch: Failed("x") if launch.task.task_id == "a" else Succeeded()) if each else None
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}, each=each), script=script)
    manager.backfill("d", days("2013-01-01", 1), **({} if each else {"tasks": "a", "with_upstream": True}))
    nothing_hangs(manager)
    (run,) = manager.runs("d")
    assert run.state == s.SUCCESS
    accepted(manager, "run.mark", dag_id="d", run_id=run.run_id, state="failed")
    nothing_hangs(manager)
    assert [one.state for one in manager.runs("d")] == [s.FAILED]


def test_a_run_stays_with_its_version_where_the_latest_has_none_of_its_tasks() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}), script=lambda _: Failed("x"))
    manager.backfill("d", days("2013-01-01", 1), tasks="^a$", with_upstream=True)
    nothing_hangs(manager)
    manager.add_dag(dag_spec("d", "z", "b", upstream={"b": ["z"]}))
    manager.commit()
    accepted(manager, "tasks.clear", ask={"dag": "d", "latest_version": True})
    nothing_hangs(manager)
    (run,) = manager.runs("d")
    assert (run.state, run.dag_version) == (s.FAILED, 1)
    assert [launch.task.task_id for launch in manager.launched] == ["a", "a"]
