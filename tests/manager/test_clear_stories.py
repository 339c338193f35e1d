"""Clear, as docs/semantics.md ("Clear and re-run") tells it, without Spark, Delta or a JVM."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.run_operations import FIRST, JANUARY, SECOND, THREE, done, fails, states_of
from support.scenarios import (
    Stubborn,
    accepted,
    at,
    clear,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    play,
    refused,
    task_of,
)  # fmt: skip

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import Refused
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import Record, Response, TaskTry
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.runs.clear_plan import preview_clear
from backfill_manager.queries.dags import spec_reader
from backfill_manager.schemas.commands import ClearTasks
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import InMemoryManager, dag_spec, days


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


BATCH, DAY = FIRST, "manual__2013-01-02T00:00:00Z"


def a_batch_and_a_day_of_it() -> InMemoryManager:
    """Both have ended, the day in a run of its own, which failed."""
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True)
    manager = InMemoryManager(spec)
    manager.backfill("d", days("2013-01-01", 3), batch=3)
    manager.drain()
    manager.script = fails("a")
    accepted(manager, "dag.trigger", dag_id="d", logical_date="2013-01-02T00:00:00Z", conf={})
    manager.drain()
    manager.script = never
    return manager


@pytest.mark.parametrize(("live", "other"), [(BATCH, DAY), (DAY, BATCH)])
def test_a_run_is_not_cleared_beside_a_live_one_of_its_dates(live: str, other: str) -> None:
    manager = a_batch_and_a_day_of_it()
    accepted(manager, "tasks.clear", **clear("d", run_ids=[live]))
    before = manager.tasks("d")
    message = refused(manager, "tasks.clear", **clear("d", run_ids=[other]))
    why = f"Run {other} can't run again now: run {live}, which processes dates of it, is running; wait for its end, or cancel it"
    assert message == why
    assert manager.tasks("d") == before
    ask = ClearTasks(dag_id="d", run_ids=(other,))
    with pytest.raises(Refused, match=f"run {live}, which processes dates of it"):
        preview_clear(manager.store, ask, manager.state.catalog.dags, spec_reader(manager.store))
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, live), Succeeded())
    nothing_hangs(manager)
    accepted(manager, "tasks.clear", **clear("d", run_ids=[other]))
    nothing_hangs(manager)


def test_a_task_is_not_marked_where_others_would_start_beside_a_live_run_of_their_dates() -> None:
    manager = a_batch_and_a_day_of_it()
    accepted(manager, "tasks.clear", **clear("d", run_ids=[BATCH]))
    of_day = {"dag_id": "d", "run_id": DAY, "task_id": "a"}
    assert f"run {BATCH}, which processes dates of it" in refused(manager, "task.mark", **of_day, state="success")
    accepted(manager, "task.mark", **of_day, state="failed")
    accepted(manager, "run.mark", dag_id="d", run_id=DAY, state="success")


def test_a_clear_that_a_crash_has_cut_short_goes_on_though_a_run_of_it_is_live_now() -> None:
    for tables in range(1, 6):
        manager = a_batch_and_a_day_of_it()
        manager.ask("tasks.clear", **clear("d"))
        dies_after(manager, tables)
        manager.script = lambda _: Succeeded()
        nothing_hangs(manager)
        answer = manager.store.rows("response")[-1]
        assert isinstance(answer, Response) and answer.outcome == "accepted", answer
        assert {ti.generation for ti in manager.tasks("d")} == {1}
