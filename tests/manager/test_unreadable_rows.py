"""Another program has written JSON that can't be read into rows of what is live: what needs it fails, and all else goes on."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from support.scenarios import accepted, clear, key_of, never, nothing_hangs, refused, response_to

from backfill_manager.clock import FIRST_INSTANT, UTC
from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.stored_definition import definition_of
from backfill_manager.dags.versions import Submission
from backfill_manager.execution import messages as m
from backfill_manager.manager.maintenance.retention import Sweep
from backfill_manager.model import states as s
from backfill_manager.model import transitions
from backfill_manager.model.records import DagRow, DagVersion, Pool, Record
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.process_info import is_process_alive
from backfill_manager.queries.backfills import list_backfills
from backfill_manager.queries.tasks import list_task_instances
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.base import matching
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

LAST_INSTANT = datetime.max.replace(tzinfo=UTC)
NO_JSON = "{'a': 1"


def damage(manager: InMemoryManager, row: Record, **columns: Any) -> None:
    """By somebody else, while no manager leads; the next one starts."""
    manager.store.write([row.evolve(**columns)])
    manager.crash()
    manager.drain()


@pytest.mark.parametrize("text", [NO_JSON, "[1]"])
def test_a_run_whose_parameters_can_not_be_read_fails_and_the_others_go_on(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = InMemoryManager(dag_spec("d", "x", "y", upstream={"y": ["x"]}, each={"x": {"retries": 3}}), script=never)
    first, second = manager.backfill("d", days("2024-01-01", 2)), manager.backfill("d", days("2024-01-05", 1))
    manager.drain()
    damaged = manager.runs("d")[0]
    damage(manager, damaged, conf_json=text)
    manager.drain()
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    assert [run.state for run in manager.runs("d")] == [s.FAILED, s.SUCCESS, s.SUCCESS]
    assert manager.states(first) == {s.FAILED: 1, s.SUCCESS: 1} and manager.states(second) == {s.SUCCESS: 1}
    x, _ = (ti for ti in manager.tasks("d") if ti.run_id == damaged.run_id)
    assert x.error == f"conf_json of dag_run d/{damaged.run_id} can't be read; `bfm state check` names all such rows"
    nothing_hangs(manager)
    assert capsys.readouterr().err.count("level=error") == 1


@pytest.mark.parametrize("text", [NO_JSON, "7", '[{"a": 1}]'])
@pytest.mark.parametrize("column", ["conf_json", "overrides_json", "parents_json"])
def test_a_backfill_whose_options_can_not_be_read_is_paused_and_starts_nothing(
    column: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = InMemoryManager(dag_spec("d", "x"), dag_spec("e", "x"), script=never)
    damaged, other = (
        manager.backfill("d", days("2024-01-01", 3), max_active_runs=1),
        manager.backfill("e", days("2024-01-01", 1)),
    )
    manager.drain()
    damage(manager, manager.row(damaged), **{column: text})
    row = manager.row(damaged)
    why = f"{column} of backfill {damaged} can't be read; `bfm state check` names all such rows"
    assert (row.state, row.reason, getattr(row, column)) == (s.PAUSED, why, text)
    assert capsys.readouterr().err.count("level=error") == 1
    assert manager.states(damaged) == {s.FAILED: 1, s.PENDING: 2}, "its run had other settings, or may have had"
    assert [key[0] for key in manager.running] == ["e"]
    assert {found["backfill_id"] for found in list_backfills(manager.store)[0]} == {damaged, other}
    (failed,) = manager.runs("d")
    assert [one["state"] for one in list_task_instances(manager.store, failed)] == [s.FAILED]
    Sweep(manager.store, RetentionSettings(runs=3600.0), manager.clock.now(), leader=manager.leader).run()
    manager.finish(next(iter(manager.running)), m.Succeeded())
    accepted(manager, "backfill.cancel", backfill_id=damaged, let_running_finish=False)
    assert (manager.row(damaged).state, manager.row(other).state) == (s.CANCELLED, s.SUCCESS)
    nothing_hangs(manager)


def test_who_reads_a_result_that_can_not_be_read_fails_and_runs_again_when_it_is_made_again() -> None:
    spec = dag_spec("d", "x", "y", upstream={"y": ["x"]})
    manager = InMemoryManager(spec, script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.finish(next(iter(manager.running)), m.Succeeded("7"))
    manager.drain()
    (x, _) = manager.tasks("d")
    damage(manager, x, result_json=NO_JSON)
    manager.drain()
    assert [ti.state for ti in manager.tasks("d")] == [s.SUCCESS, s.FAILED]
    assert (manager.tasks("d", "y")[0].error or "").startswith(
        f"result_json of task_instance d/{x.run_id}/x can't be read"
    )
    accepted(manager, "tasks.clear", **clear("d", run_ids=[x.run_id]))
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded("7"))
        manager.drain()
    assert [ti.state for ti in manager.tasks("d")] == [s.SUCCESS, s.SUCCESS]


def test_a_request_for_a_finished_run_that_can_not_be_read_is_refused() -> None:
    manager = InMemoryManager(dag_spec("d", "x"), script=lambda _: m.Succeeded())
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    (run,) = manager.runs("d")
    damage(manager, run, conf_json=NO_JSON)
    message = refused(manager, "run.note", run_id=run.run_id, dag_id="d", text="looked at")
    assert "`bfm state check`" in message
    assert response_to(manager, "tasks.clear", **clear("d", run_ids=[run.run_id])) is not None
    nothing_hangs(manager)


@pytest.mark.parametrize("text", [NO_JSON, "[1]", '"a"'])
def test_a_mapped_task_whose_result_can_not_be_read_is_mapped_again_and_what_was_done_stays(text: str) -> None:
    spec = dag_spec(
        "d", "find", "load", upstream={"load": ["find"]}, schedule="@daily", each={"load": {"over_result_of": "find"}}
    )
    manager = InMemoryManager(spec, script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.finish(next(iter(manager.running)), m.Succeeded('["a", "b"]'))
    manager.drain()
    manager.finish(key_of(manager, "", "load.a"), m.Succeeded())
    manager.drain()
    (load,) = manager.tasks("d", "load")
    damage(manager, load, result_json=text)
    manager.drain()
    assert [key[2] for key in manager.running] == ["load.b"]
    manager.finish(next(iter(manager.running)), m.Succeeded())
    manager.drain()
    assert {ti.task_id: (ti.state, ti.try_number) for ti in manager.tasks("d")} == {
        "find": (s.SUCCESS, 1), "load": (s.SUCCESS, 0), "load.a": (s.SUCCESS, 1), "load.b": (s.SUCCESS, 1),
    }  # fmt: skip


DEFINITIONS = [NO_JSON, "[1]", "{}", '{"dag_id": "d", "tasks": [{"task_id": 1}]}']


def damage_definition(manager: InMemoryManager, text: str | None) -> None:
    """Of the first version of `d`, by somebody else; None: its row is gone."""
    (row,) = manager.store.read(DagVersion, matching(dag_id="d", version=1))
    if text is None:
        manager.leader.delete(DagVersion.TABLE, matching(dag_id="d", version=1))
    else:
        manager.store.write([row.evolve(definition_json=text)])
    manager.crash()
    manager.drain()


def why_not_read(text: str | None) -> str:
    what = "definition_json of dag_version d/1 can't be read" if text else "dag_version d/1 is missing"
    return f"{what}; `bfm state check` names all such rows"


@pytest.mark.parametrize("text", [*DEFINITIONS, None])
def test_a_dag_whose_definition_can_not_be_read_does_not_run_and_the_others_go_on(
    text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FakeClock(datetime(2024, 1, 5, tzinfo=UTC))
    specs = [
        dag_spec(dag_id, "x", "y", upstream={"y": ["x"]}, start_date=datetime(2024, 1, 4, tzinfo=UTC))
        for dag_id in "de"
    ]
    manager = InMemoryManager(*specs, script=never, clock=clock, scheduled=True)
    manager.drain()
    damage_definition(manager, text)
    manager.drain()
    (failed,) = manager.runs("d")
    assert (failed.state, {ti.state for ti in manager.tasks("d")}) == (s.FAILED, {s.FAILED})
    assert {ti.error for ti in manager.tasks("d")} == {why_not_read(text)}
    assert [key[0] for key in manager.running] == ["e"]
    assert capsys.readouterr().err.count("a version of a DAG does not run") == 1
    clock.advance(days=1)
    manager.drain()
    assert (len(manager.runs("d")), len(manager.runs("e"))) == (1, 2)
    assert refused(manager, "dag.trigger", dag_id="d", logical_date=None, conf={}) == why_not_read(text)
    assert refused(manager, "tasks.clear", **clear("d", run_ids=[failed.run_id])) == why_not_read(text)
    accepted(manager, "dag.pause", dag_id="d")
    nothing_hangs(manager)


@pytest.mark.parametrize("text", [*DEFINITIONS, None])
def test_a_backfill_whose_version_can_not_be_read_is_paused_and_cancelled_on_request(text: str | None) -> None:
    manager = InMemoryManager(dag_spec("d", "x"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 3), max_active_runs=1)
    manager.drain()
    damage_definition(manager, text)
    for _ in range(2):
        row = manager.row(damaged)
        assert (row.state, row.reason, manager.states(damaged)) == (
            s.PAUSED, why_not_read(text), {s.FAILED: 1, s.PENDING: 2},
        )  # fmt: skip
        accepted(manager, "backfill.unpause", backfill_id=damaged)
        manager.drain()
    accepted(manager, "backfill.cancel", backfill_id=damaged, let_running_finish=False)
    assert manager.states(damaged) == {s.FAILED: 1, s.CANCELLED: 2}
    nothing_hangs(manager)


@pytest.mark.parametrize("text", [*DEFINITIONS, None])
def test_a_run_that_was_cleared_before_its_version_was_damaged_fails_again(text: str | None) -> None:
    """The crash came between the cleared tasks and their run."""
    manager = InMemoryManager(dag_spec("d", "x"))
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    (x,) = manager.tasks("d")
    manager.store.write([transitions.cleared(x, "request")])
    damage_definition(manager, text)
    assert [(ti.state, ti.error) for ti in manager.tasks("d")] == [(s.FAILED, why_not_read(text))]
    nothing_hangs(manager)


@pytest.mark.parametrize("text", [*DEFINITIONS, None])
def test_a_definition_that_can_not_be_read_is_supplied_anew_by_its_bundle(text: str | None) -> None:
    spec = dag_spec("d", "x", file="dag.py")
    manager = InMemoryManager()
    parsed = ParsedFile("dag.py", ("d",), (spec.to_json(),))
    submission = Submission(
        "tests", "/nowhere", "standard", BundleContent({"dag.py": "1"}, ("dag.py",)), parsed=(parsed,)
    )
    manager.state.catalog.submit(submission, manager.clock.now())
    manager.commit()
    damage_definition(manager, text)
    manager.state.catalog.submit(submission, manager.clock.now())
    manager.commit()
    assert manager.store.read(DagRow)[0].current_version == 2
    assert manager.state.current_spec("d") == spec
    manager.state.catalog.submit(submission, manager.clock.now())
    assert not len(manager.state.take_changes().rows(DagVersion))


@pytest.mark.parametrize(
    ("column", "value"), [("tasks", "("), ("window", "foo"), ("max_active_runs", 0), ("max_active_runs", -1)]
)
def test_a_backfill_with_a_setting_that_can_not_be_is_paused(column: str, value: Any) -> None:
    manager = InMemoryManager(dag_spec("d", "x"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 2), max_active_runs=1)
    damage(manager, manager.row(damaged), **{column: value})
    for _ in range(2):
        row = manager.row(damaged)
        assert (row.state, manager.states(damaged)) == (s.PAUSED, {s.PENDING: 2})
        assert row.reason == f"{column} of backfill {damaged} can't be read; `bfm state check` names all such rows"
        accepted(manager, "backfill.unpause", backfill_id=damaged)
    nothing_hangs(manager)


def test_a_task_in_an_unknown_state_fails_and_a_backfill_in_one_goes_on_while_a_run_of_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manager = InMemoryManager(dag_spec("d", "x", "y"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 2), max_active_runs=1)
    manager.drain()
    damage(manager, manager.row(damaged), state="foo")
    damage(manager, manager.tasks("d", "y")[0], state="foo")
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    assert manager.tasks("d", "y")[0].error == "the state of the task was 'foo', which is none"
    assert (manager.states(damaged), manager.row(damaged).state) == ({s.FAILED: 1, s.SUCCESS: 1}, s.FAILED)
    assert capsys.readouterr().err.count("level=error") == 2
    nothing_hangs(manager)


@pytest.mark.parametrize("columns", [{"run_id": "gone"}, {"run_id": None}])
def test_a_running_item_whose_run_is_gone_fails(columns: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    manager = InMemoryManager(dag_spec("d", "x"))
    damaged = manager.backfill("d", days("2024-01-01", 2))
    item, _ = manager.items(damaged)
    damage(manager, item, state=s.RUNNING, **columns)
    failed, done = manager.items(damaged)
    assert (failed.state, done.state) == (s.FAILED, s.SUCCESS)
    assert (
        failed.reason
        == "another program has deleted its run; `bfm backfill create d --kind missing` runs what is missing"
    )
    assert capsys.readouterr().err.count("level=error") == 1
    nothing_hangs(manager)


def test_an_item_whose_run_is_in_an_unknown_state_fails() -> None:
    manager = InMemoryManager(dag_spec("d", "x"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    (run,) = manager.runs("d")
    damage(manager, run, state="foo")
    assert [item.reason for item in manager.items(damaged)] == [f"its run {run.run_id} has the unknown state 'foo'"]
    nothing_hangs(manager)


@pytest.mark.parametrize(
    "columns",
    [
        {"logical_date": FIRST_INSTANT}, {"logical_date": LAST_INSTANT}, {"interval_end": LAST_INSTANT},
        {"partition_key": "eu"}, {"items": 0}, {"items": -1}, {"created_at": FIRST_INSTANT},
    ],
)  # fmt: skip
def test_a_run_with_impossible_values_ends_no_manager(columns: dict[str, Any]) -> None:
    clock = FakeClock(datetime(2024, 1, 5, tzinfo=UTC))
    spec = dag_spec("d", "x", start_date=datetime(2024, 1, 4, tzinfo=UTC), batchable=True)
    manager = InMemoryManager(spec, clock=clock, scheduled=True)
    manager.drain()
    damage(manager, manager.runs("d")[0], **columns)
    auto = manager.backfill("d", days("2023-01-01", 2), batch=0)
    clock.advance(days=2)
    manager.drain()
    assert manager.states(auto) == {s.SUCCESS: 2}


@pytest.mark.parametrize("slots", [0, -1])
def test_a_pool_without_slots_ends_no_manager(slots: int) -> None:
    manager = InMemoryManager(dag_spec("d", "x", batchable=True))
    damage(manager, manager.store.read(Pool, matching(name="backfill"))[0], slots=slots)
    auto = manager.backfill("d", days("2024-01-01", 2), batch=0)
    manager.drain()
    assert manager.states(auto) == {s.SUCCESS: 2}


@pytest.mark.parametrize("columns", [{"launch": 10**15}, {"losses": 10**15}])
def test_a_task_with_impossible_numbers_ends_no_manager(columns: dict[str, Any]) -> None:
    manager = InMemoryManager(dag_spec("d", "x", each={"x": {"retries": 1}}), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    damage(manager, manager.tasks("d")[0], **columns)
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    nothing_hangs(manager)


def test_items_that_end_with_the_calendar_wait_for_those_before_them() -> None:
    manager = InMemoryManager(dag_spec("d", "x"), dag_spec("e", "x"))
    first = manager.backfill("d", days("2024-01-01", 1))
    second = manager.backfill("e", days("2024-01-01", 1), parents_json=f'["{first}"]')
    damage(manager, manager.items(first)[0], interval_end=LAST_INSTANT)
    assert manager.states(first) == manager.states(second) == {s.SUCCESS: 1}


@pytest.mark.parametrize("gone", [{}, {"task_id": "y"}])
def test_a_task_whose_row_is_gone_fails_and_runs_again_when_it_is_cleared(
    gone: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its row it would count as one that is not to run, and its run succeed."""
    manager = InMemoryManager(dag_spec("d", "x", "y"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 2), max_active_runs=1)
    manager.drain()
    manager.leader.delete("task_instance", matching(**gone))
    manager.crash()
    manager.drain()
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    assert manager.states(damaged) == {s.FAILED: 1, s.SUCCESS: 1}
    assert capsys.readouterr().err.count("level=error") == (1 if gone else 2)
    (failed, *_) = manager.tasks("d", "y")
    assert failed.error == "another program has deleted its row in task_instance; clear the task to run it again"
    accepted(manager, "tasks.clear", **clear("d", run_ids=[failed.run_id]))
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    assert manager.states(damaged) == {s.SUCCESS: 2}
    nothing_hangs(manager)


def test_a_definition_with_params_of_many_levels_is_read() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    row = InMemoryManager(dag_spec("d", "x")).store.read(DagVersion)[0]
    definition = json.dumps({**json.loads(row.definition_json), "params": {"deep": deep}})
    assert definition_of(row.evolve(definition_json=definition)).params == {"deep": deep}


def test_a_task_whose_row_is_gone_runs_only_if_its_backfill_selected_it() -> None:
    manager = InMemoryManager(dag_spec("d", "x", "y"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 1), tasks="^x$", priority=12)
    manager.drain()
    manager.leader.delete("task_instance", matching(task_id="y"))
    manager.crash()
    manager.drain()
    manager.finish(next(iter(manager.running)), m.Succeeded())
    manager.drain()
    assert manager.states(damaged) == {s.SUCCESS: 1}
    (left_out,) = manager.tasks("d", "y")
    assert (left_out.state, left_out.error, left_out.priority) == (s.SKIPPED, NOT_SELECTED, 12)
    nothing_hangs(manager)


@pytest.mark.parametrize("state", [None, "foo"])
def test_a_backfill_whose_items_are_gone_does_not_succeed(state: str | None) -> None:
    manager = InMemoryManager(dag_spec("d", "x"), script=never)
    damaged = manager.backfill("d", days("2024-01-01", 3), max_active_runs=1)
    last = manager.items(damaged)[-1]
    manager.leader.delete("backfill_item", matching(ordinal=3))
    if state is not None:
        manager.store.write([last.evolve(state=state)])
    manager.crash()
    manager.drain()
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded())
        manager.drain()
    row = manager.row(damaged)
    assert (row.state, row.reason) == (s.FAILED, "1 gone or in an unknown state of 3 items")
    nothing_hangs(manager)


def test_a_lease_with_an_impossible_process_id_is_no_process() -> None:
    assert not is_process_alive(10**15)


def test_a_finished_run_in_an_unknown_state_runs_again_when_it_is_cleared() -> None:
    manager = InMemoryManager(dag_spec("d", "x"))
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    (run,) = manager.runs("d")
    damage(manager, run, state="foo")
    response_to(manager, "tasks.clear", **clear("d", run_ids=[run.run_id]))
    assert [(run.state, ti.try_number) for run, ti in zip(manager.runs("d"), manager.tasks("d"), strict=True)] == [
        (s.SUCCESS, 2)
    ]
    nothing_hangs(manager)
