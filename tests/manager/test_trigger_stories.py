"""Trigger, and tasks by hand, as docs/semantics.md tells them, without Spark, Delta or a JVM."""

from __future__ import annotations

import json

import pytest
from support.run_operations import FIRST, JANUARY, THREE, done, states_of
from support.scenarios import (
    accepted,
    at,
    clear,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    play,
    refused,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Response
from backfill_manager.planning.backfills.backfill_plan import existing_runs
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.testing import InMemoryManager, dag_spec, days


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


@pytest.mark.parametrize("tables", range(6))
def test_a_task_run_by_hand_runs_once_wherever_its_manager_is_killed(tables: int) -> None:
    manager = InMemoryManager(THREE)
    for task_id in ("b", "c"):  # at the same instant
        manager.ask("task.run", dag_id="d", task_id=task_id, logical_date="2013-01-01T00:00:00Z")
    dies_after(manager, tables)
    nothing_hangs(manager)
    runs = manager.runs("d")
    answers = {answer.object_id for answer in manager.store.read(Response) if answer.outcome == "accepted"}
    assert {run.run_id for run in runs} == answers and len(answers) == 2
    assert sorted(task for run in runs for task in states_of(manager, run.run_id).items()) == [
        ("b", s.SUCCESS),
        ("c", s.SUCCESS),
    ]


def test_a_date_of_two_batches_is_taken_while_the_one_that_began_earlier_runs_again() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True))
    first, second = days("2013-01-01", 3), days("2013-01-02", 3)
    for intervals in (first, second):
        manager.backfill("d", intervals, batch=3, reprocess="completed")
        manager.drain()
    batch, later = manager.runs("d")
    assert [run.items for run in (batch, later)] == [3, 3]
    trigger = {"dag_id": "d", "logical_date": "2013-01-03T00:00:00Z", "conf": {}}
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", run_ids=[batch.run_id]))
    assert f"{batch.run_id}, which processes 3 intervals together" in refused(manager, "dag.trigger", **trigger)
    manager.finish(key_of(manager, batch.run_id), Succeeded())
    manager.drain()
    accepted(manager, "dag.trigger", **trigger)
