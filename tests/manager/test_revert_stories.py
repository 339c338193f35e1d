"""Reverted runs keep their place and count no more. Without Spark: what becomes of the tables is given."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from datetime import timedelta
from typing import Any

import pytest
from support.fake_tables import PATH, FakeTables
from support.scenarios import Killed, Mortal, accepted, clear, refused

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import AccessedTable, Failed, Succeeded, TaskLaunch
from backfill_manager.execution.promote_revert.preview_parts import WriteOfTry
from backfill_manager.execution.promote_revert.revert import Reverted, WrittenTable
from backfill_manager.manager.operations.reverts import readers
from backfill_manager.manager.tick_context import RevertJob
from backfill_manager.model.records import DagRun, Response, TableAccess
from backfill_manager.planning.backfills.backfill_plan import existing_runs
from backfill_manager.queries.runs import timeline
from backfill_manager.queries.tables import list_table_intervals, list_tables, rows_before
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.testing import InMemoryManager, dag_spec, days

SPEC = dag_spec("d", "a")
FIRST = "backfill__2023-01-01T00:00:00Z"
SECOND = "backfill__2023-01-02T00:00:00Z"
START, END = "2023-01-01T00:00:00Z", "2023-01-02T00:00:00Z"
READ = AccessedTable("read", "t", PATH, 9, table_id="id")


def a_ground(spec: DagSpec = SPEC) -> tuple[InMemoryManager, FakeTables]:
    """Each task writes the table `t`: each try a version of its own."""
    versions = itertools.count(1)

    def script(launch: TaskLaunch) -> None:
        table = AccessedTable("write", "t", PATH, next(versions), 24, 100, "id", "at")
        manager.finish(launch.key, Succeeded(), tables=[table] if launch.ti.task_id == "a" else [READ])

    manager = InMemoryManager(spec, script=script)
    return manager, FakeTables(manager)


def done(manager: InMemoryManager, n: int = 1, **fields: Any) -> str:
    backfill_id = manager.backfill("d", days("2023-01-01", n), **fields)
    manager.drain()
    return backfill_id


def revert(manager: InMemoryManager, run_id: str, **how: Any) -> Response:
    return accepted(manager, request_kinds.RUN_REVERT, dag_id="d", run_id=run_id, dry_run=False, **how)


def refusal(manager: InMemoryManager, run_id: str) -> str:
    return refused(manager, request_kinds.RUN_REVERT, dag_id="d", run_id=run_id, dry_run=False)


def planned_states(manager: InMemoryManager) -> list[tuple[str, str, int]]:
    """What a plan takes the existing runs for, without those that count as none."""
    found = existing_of_january(manager)
    return sorted((run["run_id"], run["state"], run["dag_version"]) for run in found if run["state"] is not None)


def existing_of_january(manager: InMemoryManager) -> list[dict[str, Any]]:
    start, end = days("2023-01-01", 9)[0][0], days("2023-01-09", 1)[0][1]
    command = CreateBackfill(dag_id="d", start_date=start, end_date=end)
    found: list[dict[str, Any]] = existing_runs(manager.store, command, manager.state.current_spec("d")).to_pylist()
    return found


def run_of(manager: InMemoryManager, run_id: str) -> DagRun:
    return next(run for run in manager.runs("d") if run.run_id == run_id)


def test_a_reverted_run_keeps_its_place_and_its_date_is_missing() -> None:
    manager, tables = a_ground()
    done(manager, 2)
    answer = revert(manager, FIRST)
    assert answer.message == f"{FIRST} reverted; as before: t" and answer.object_id == FIRST
    run = run_of(manager, FIRST)
    assert (run.state, run.reverted_at, run.reverted_by) == ("success", manager.clock.now(), answer.request_id)
    assert run.is_undone and run_of(manager, SECOND).previous_run_id == FIRST
    assert [(one["run_id"], one["reverted_at"] is not None) for one in timeline(manager.store, "d")] == [
        (FIRST, True),
        (SECOND, False),
    ]
    assert planned_states(manager) == [(SECOND, "success", 1)]
    ((written,),) = [job.tables for job in tables.jobs]
    assert (written.name, written.table_id, written.version) == ("t", "id", 1)
    assert refusal(manager, FIRST) == f"Run {FIRST} was reverted already at 2024-01-01T00:00:00Z."
    done(manager)
    assert (run_of(manager, FIRST).state, run_of(manager, f"{FIRST}__2").state) == ("overridden", "success"), (
        "done again"
    )


def test_the_run_before_counts_again_when_its_rows_are_back() -> None:
    manager, _ = a_ground()
    done(manager)
    manager.add_dag(SPEC)
    done(manager, reprocess="completed")
    again = f"{FIRST}__2"
    assert planned_states(manager) == [(again, "success", 2)]
    revert(manager, again)
    assert run_of(manager, again).restored_run_id == FIRST and not run_of(manager, again).is_undone
    assert planned_states(manager) == [(again, "success", 1)], "as the run before it: of the older version"
    done(manager)
    assert len(manager.runs("d")) == 2, "its date is done"
    revert(manager, FIRST)
    assert run_of(manager, again).is_undone and planned_states(manager) == []


def test_a_run_before_that_failed_does_not_count() -> None:
    manager, _ = a_ground()
    script, manager.script = manager.script, lambda _: Failed("boom")
    done(manager)
    manager.script = script
    done(manager, reprocess="failed")
    revert(manager, f"{FIRST}__2")
    assert run_of(manager, f"{FIRST}__2").is_undone


@pytest.mark.parametrize("again", ["in part", "and failed"])
def test_the_whole_run_before_counts_again_whatever_the_reverted_one_was(again: str) -> None:
    manager, _ = a_ground(dag_spec("d", "a", "b"))
    done(manager)
    if again == "in part":
        done(manager, reprocess="completed", tasks="a")
    else:
        write = manager.script
        manager.script = lambda launch: Failed("boom") if launch.ti.task_id == "b" else write(launch)
        done(manager, reprocess="completed")
    second = f"{FIRST}__2"
    assert run_of(manager, second).is_partial == (again == "in part")
    revert(manager, second)
    assert run_of(manager, second).restored_run_id == FIRST
    (planned,) = existing_of_january(manager)
    assert (planned["run_id"], planned["state"], planned["is_partial"]) == (second, "success", False)


def test_of_a_batch_every_date_is_missing() -> None:
    manager, _ = a_ground(dag_spec("d", "a", batchable=True))
    done(manager, 3)
    done(manager, 3, reprocess="completed", batch=3)
    revert(manager, f"{FIRST}__2")
    assert run_of(manager, f"{FIRST}__2").is_undone and planned_states(manager) == []


def test_the_batch_counts_again_whose_rows_are_back() -> None:
    manager, _ = a_ground(dag_spec("d", "a", batchable=True))
    done(manager, 3, batch=3)
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    revert(manager, SECOND)
    assert run_of(manager, SECOND).restored_run_id == FIRST
    assert planned_states(manager) == [(FIRST, "success", 1), (SECOND, "success", 1)]
    waiting = dag_spec("w", "c", each={"c": {"waits_for": ("t",)}})
    manager.add_dag(waiting)
    manager.backfill("w", days("2023-01-02", 1))
    manager.drain()
    assert manager.runs("w")[0].state == "success", "and to those who wait for the table"
    revert(manager, FIRST)
    assert run_of(manager, SECOND).is_undone and planned_states(manager) == []


@pytest.mark.parametrize("size", [2, 3])
def test_the_batch_counts_again_whose_first_date_is_as_the_batch_wrote_it(size: int) -> None:
    manager, _ = a_ground(dag_spec("d", "a", batchable=True))
    done(manager, size, batch=size)
    for _ in range(2):
        done(manager, reprocess="completed")
    second, third = f"{FIRST}__2", f"{FIRST}__3"
    revert(manager, third)
    assert run_of(manager, third).restored_run_id == second
    revert(manager, second)
    assert run_of(manager, third).restored_run_id == FIRST
    revert(manager, FIRST)
    assert run_of(manager, third).is_undone and planned_states(manager) == []


@pytest.mark.parametrize("batch", ["of chosen tasks", "that was marked failed", "that is reverted itself"])
def test_a_batch_does_not_count_again(batch: str) -> None:
    manager, _ = a_ground(dag_spec("d", "a", "b", batchable=True))
    done(manager, 3, batch=3, tasks="a" if batch == "of chosen tasks" else None)
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    if batch == "that was marked failed":
        accepted(manager, request_kinds.RUN_MARK, dag_id="d", run_id=FIRST, state="failed")
    if batch == "that is reverted itself":
        revert(manager, FIRST)
    revert(manager, SECOND)
    assert run_of(manager, SECOND).is_undone and not [
        state for run_id, state, _ in planned_states(manager) if run_id == SECOND
    ]


def test_the_tables_that_a_backfill_has_written_are_reverted_each_to_before_the_first_write() -> None:
    written = {
        "01-01": [("t", "file:/w/t", 5), ("u", "file:/w/u", 2), (None, "file:/w/unnamed", 1), ("files", None, None)],
        "01-02": [("t", "file:/w/t", 3), ("u", "file:/w/u", None)],
    }
    read = AccessedTable("read", "source", "file:/w/source", 1, table_id="source")

    def script(launch: TaskLaunch) -> None:
        (tables,) = (tables for day, tables in written.items() if day in launch.run.run_id)
        writes = [AccessedTable("write", name, path, version, table_id=path) for name, path, version in tables]
        manager.finish(launch.key, Succeeded(), tables=[read, *writes])

    manager = InMemoryManager(SPEC, script=script)
    tables = FakeTables(manager)
    began = manager.clock.now()
    backfill_id = manager.backfill("d", days("2023-01-01", 2), max_active_runs=1)
    manager.tick()
    manager.clock.advance(hours=1)
    manager.drain()
    assert [run.created_at - began for run in manager.runs("d")] == [timedelta(0), timedelta(hours=1)]
    accepted(manager, request_kinds.BACKFILL_REVERT, backfill_id=backfill_id, dry_run=False)
    ((*found,),) = [job.tables for job in tables.jobs if isinstance(job, RevertJob)]
    assert found == [
        WrittenTable("t", "file:/w/t", 3, began),
        WrittenTable("u", "file:/w/u", None, began),  # of one of its writes the version is not known
        WrittenTable("file:/w/unnamed", "file:/w/unnamed", 1, began),
    ]


def test_a_reverted_run_is_kept_as_it_was() -> None:
    manager, _ = a_ground()
    backfill_id = done(manager)
    revert(manager, FIRST)
    message = f"Run {FIRST} was reverted and is kept unchanged"
    assert message in refused(manager, request_kinds.RUN_MARK, dag_id="d", run_id=FIRST, state="failed")
    assert message in refused(manager, request_kinds.TASKS_CLEAR, **clear("d", run_ids=[FIRST]))
    assert refused(manager, request_kinds.BACKFILL_REVERT, backfill_id=backfill_id, dry_run=False).startswith(
        f"Backfill {backfill_id} was reverted already at "
    )


def test_what_depends_on_the_past_waits_for_its_date_to_be_run_again() -> None:
    manager, _ = a_ground(dag_spec("d", "a", each={"a": {"depends_on_past": True}}))
    done(manager)
    revert(manager, FIRST)
    manager.backfill("d", days("2023-01-02", 1), ignore_first_depends_on_past=False)
    manager.drain()
    run = run_of(manager, SECOND)
    assert run.state == "failed" and f"depends on the past, and is reverted in the run before, {FIRST}" in (
        run.reason or ""
    )


def test_a_backfill_is_reverted_but_for_what_was_overridden_or_reverted() -> None:
    manager, tables = a_ground()
    backfill_id = done(manager, 3)
    manager.backfill("d", days("2023-01-02", 1), reprocess="completed")
    manager.drain()
    revert(manager, FIRST)
    answer = accepted(manager, request_kinds.BACKFILL_REVERT, backfill_id=backfill_id, dry_run=False)
    third = "backfill__2023-01-03T00:00:00Z"
    assert answer.message == f"{backfill_id} reverted; as before: t"
    assert tables.jobs[-1].runs == (("d", third),)
    assert [run.run_id for run in manager.runs("d") if run.reverted_at] == [FIRST, third]


def test_what_failed_in_a_preview_was_not_promoted_and_is_not_reverted() -> None:
    manager, tables = a_ground()
    backfill_id = done(manager, 2)
    manager.state.put(manager.row(backfill_id).evolve(preview_id=backfill_id, preview_outcome="promoted"))
    manager.state.put(run_of(manager, SECOND).evolve(run_type="preview", state="failed"))
    manager.commit()
    answer = accepted(manager, request_kinds.BACKFILL_REVERT, backfill_id=backfill_id, dry_run=False)
    assert answer.message == f"{backfill_id} reverted; as before: t" and tables.jobs[-1].runs == (("d", FIRST),)
    assert run_of(manager, SECOND).reverted_at is None


def test_a_dry_run_changes_nothing() -> None:
    manager, _ = a_ground()
    done(manager)
    answer = accepted(manager, request_kinds.RUN_REVERT, dag_id="d", run_id=FIRST, dry_run=True)
    assert answer.message == f"{FIRST}: nothing was changed"
    (table,) = json.loads(answer.payload_json or "")["tables"]
    assert table == {
        "table": "t", "version": None, "back_to": [0], "intervals": None, "interval_start": None, "interval_end": None,
        "rows_now": 1, "rows_then": 0,
        "runs": [{"dag_id": "d", "run_id": FIRST}],
    }  # fmt: skip
    assert run_of(manager, FIRST).reverted_at is None and not [
        one for one in manager.store.read(TableAccess) if one.access == "revert"
    ]


def test_what_can_not_be_reverted() -> None:
    manager, tables = a_ground()
    script = manager.script
    assert "There is no run of DAG 'd' with the id 'nothing'" in refusal(manager, "nothing")
    manager.script = lambda _: Succeeded()
    done(manager)
    assert (
        refusal(manager, FIRST) == f"Run {FIRST} has written no Delta table that is known: there is nothing to revert."
    )
    manager.script = script
    done(manager, reprocess="completed")
    tables.refusal = "nothing was reverted: t was dropped since"
    assert refusal(manager, f"{FIRST}__2") == tables.refusal and not run_of(manager, f"{FIRST}__2").reverted_at
    manager.script = lambda _: None
    backfill_id = done(manager, reprocess="completed")
    active = f"{FIRST}__3"
    assert refusal(manager, active).startswith(
        f"Run {active} is running: what it has written can be reverted when it has ended"
    )
    assert f"Backfill {backfill_id} is running" in refused(
        manager, request_kinds.BACKFILL_REVERT, backfill_id=backfill_id, dry_run=False
    )
    assert refusal(manager, f"{FIRST}__2").startswith(
        f"Run {active} of DAG d is running on the same interval; revert run {FIRST}__2"
    )


def test_a_run_of_a_partition_is_not_reverted_beside_an_active_one_of_the_same_partition_only() -> None:
    manager, _ = a_ground()
    manager.backfill("d", keys=["north", "south"])
    manager.drain()
    north, south = sorted(run.run_id for run in manager.runs("d"))
    manager.script = lambda _: None
    manager.backfill("d", keys=["south"], reprocess="completed")
    manager.drain()
    assert f"Run {south}__2 of DAG d is running on the same interval" in refusal(manager, south)
    revert(manager, north)
    assert run_of(manager, north).reverted_at is not None


@pytest.mark.parametrize("commits", range(6))
def test_killed_after_any_table_of_the_commit_that_reverts(commits: int) -> None:
    manager, tables = a_ground()
    done(manager)
    done(manager, reprocess="completed")
    again = f"{FIRST}__2"
    manager.ask(request_kinds.RUN_REVERT, dag_id="d", run_id=again, dry_run=False)
    manager.tick()
    assert tables.jobs
    manager.leader = Mortal(manager.leader, commits)  # type: ignore[assignment]
    with contextlib.suppress(Killed):
        manager.drain()
    manager.crash()
    FakeTables(manager)
    manager.drain()
    assert run_of(manager, again).restored_run_id == FIRST
    reverts = [(one.run_id, one.version) for one in manager.store.read(TableAccess) if one.access == "revert"]
    assert reverts == [(again, 90)]
    (answer,) = [row for row in manager.store.read(Response) if row.kind == request_kinds.RUN_REVERT]
    assert answer.outcome == "accepted"


def test_the_records_say_what_each_interval_holds() -> None:
    manager, _ = a_ground()
    done(manager, 2)
    manager.clock.advance(hours=1)
    done(manager, reprocess="completed")
    again = f"{FIRST}__2"
    manager.clock.advance(hours=1)
    revert(manager, again)
    shown = [
        (one["run_id"], one["version"], one["rows_written"], one["reverted_run_id"])
        for one in list_table_intervals(manager.store, "t")
    ]
    assert shown == [(FIRST, 90, 24, again), (SECOND, 2, 24, None)]
    manager.clock.advance(hours=1)
    revert(manager, SECOND)
    assert list_table_intervals(manager.store, "t")[0] | {"at": None} == {
        "dag_id": "d", "run_id": SECOND, "task_id": "a", "interval_start": "2023-01-02T00:00:00Z",
        "interval_end": "2023-01-03T00:00:00Z", "partition_key": None, "dag_version": 1, "version": 90, "rows_written": None,
        "bytes_written": None, "at": None, "reverted_run_id": SECOND,
    }  # fmt: skip
    (table,) = list_tables(manager.store)
    assert (table["version"], table["written_by"]) == (90, ["d.a"])
    launch = next(one for one in manager.launched if one.run.run_id == SECOND)
    start, end = days("2023-01-03", 1)[0]
    later = dataclasses.replace(launch, run=launch.run.evolve(interval_start=start, interval_end=end))
    assert rows_before(manager.store, later, "t", 7, "intervals") == [24], "of the second day there are none"


def test_those_who_have_read_it_are_named() -> None:
    manager, _ = a_ground(dag_spec("d", "a", "b", upstream={"b": ["a"]}))
    done(manager, 2)
    accesses = manager.store.read(TableAccess)
    early, since = 3, 5  # a version that was read before the write, and that of the write
    for name, day, version in (("reader1", 1, 9), ("reader2", 2, 9), ("at_once", 1, since), ("early", 1, early)):
        read = AccessedTable("read", "t", PATH, version, table_id="id")
        spec = dag_spec(name, "r")
        manager.add_dag(spec)
        manager.script = lambda launch, read=read: manager.finish(launch.key, Succeeded(), tables=[read])
        manager.backfill(spec.dag_id, days(f"2023-01-0{day}", 1))
        manager.drain()
    writes = tuple(
        WriteOfTry(1, one.dag_id, one.run_id, one.task_id, one.launch, (START, END))
        for one in accesses
        if one.run_id == FIRST and one.access == "write"
    )
    table = Reverted("t", "t", PATH, "id", 90, since, (0,), (), 1, 0, writes)
    assert readers(manager.store, [table], {("d", FIRST)}) == [
        {
            "dag_id": dag_id, "run_id": FIRST, "task_id": "r", "table": "t", "interval_start": START, "interval_end": END,
        }
        for dag_id in ("at_once", "reader1")
    ]  # fmt: skip


def test_a_task_that_waits_for_the_table_waits_again() -> None:
    manager, _ = a_ground()
    done(manager)
    waiting = dag_spec("w", "c", each={"c": {"waits_for": ("t",)}})
    manager.add_dag(waiting)
    revert(manager, FIRST)
    manager.script = lambda _: Succeeded()
    manager.backfill("w", days("2023-01-01", 1))
    manager.drain()
    assert manager.runs("w")[0].reason == "waits for t"
    done(manager)
    assert manager.runs("w")[0].reason == "waits for t", "a run that wrote nothing"


def test_two_reverts_that_come_at_once_are_taken_one_after_the_other() -> None:
    manager, tables = a_ground()
    done(manager)
    done(manager, reprocess="completed")
    again = f"{FIRST}__2"
    put, results = manager.events.put, list[Any]()
    manager.events.put = results.append  # type: ignore[method-assign]
    for run_id in (again, FIRST):
        manager.ask(request_kinds.RUN_REVERT, dag_id="d", run_id=run_id, dry_run=False)
        manager.drain()
    manager.events.put = put  # type: ignore[method-assign]
    assert len(tables.jobs) == len(results) == 2
    for result in results:
        put(result)
    manager.drain()
    assert run_of(manager, again).is_undone, "the rows of the run before are gone, too"
    assert not manager.store.unanswered() and planned_states(manager) == []


@pytest.mark.parametrize("depends", ["on the table", "on the past"])
def test_a_run_that_waits_meanwhile_for_more_than_what_is_reverted_sees_it(depends: str) -> None:
    manager, _ = a_ground(dag_spec("d", "a", each={"a": {"waits_for": ("u",)}} if depends == "on the past" else {}))
    other = AccessedTable("write", "u", "file:/w/u", 1, table_id="of u")
    writes = manager.script

    def script(launch: TaskLaunch) -> None:
        if launch.ti.dag_id == "other":
            manager.finish(launch.key, Succeeded(), tables=[other])
        else:
            writes(launch)

    manager.script = script
    manager.add_dag(dag_spec("other", "o"))
    manager.backfill("other", days("2023-01-01", 1))
    done(manager)
    if depends == "on the past":
        manager.add_dag(dag_spec("d", "a", each={"a": {"waits_for": ("u",), "depends_on_past": True}}))
        dag_id, day = "d", days("2023-01-02", 1)
    else:
        manager.add_dag(dag_spec("reader", "c", each={"c": {"waits_for": ("t", "v")}}))
        dag_id, day, other = "reader", days("2023-01-01", 1), dataclasses.replace(other, name="v", path="file:/w/v")
    waiting = manager.backfill(dag_id, day, ignore_first_depends_on_past=False)
    manager.drain()
    assert manager.states(waiting) == {"running": 1}
    revert(manager, FIRST)
    manager.backfill("other", day, reprocess="completed")
    manager.drain()
    run = next(run for run in manager.runs(dag_id) if run.backfill_id == waiting)
    if depends == "on the past":
        assert run.state == "failed" and "is reverted in the run before" in (run.reason or "")
    else:
        assert (run.state, run.reason) == ("queued", "waits for t")


@pytest.mark.parametrize("how", ["clear", "mark", "mark a task"])
def test_a_run_that_is_being_reverted_is_not_run_or_marked_meanwhile(how: str) -> None:
    manager, tables = a_ground()
    done(manager, 1)
    jobs: list[Any] = []
    do, tables.work = tables.work, jobs.append  # type: ignore[method-assign]
    manager.ask(request_kinds.RUN_REVERT, dag_id="d", run_id=FIRST, dry_run=False)
    manager.drain()
    launched = len(manager.launched)
    if how == "clear":
        manager.ask("tasks.clear", **clear("d"))
    elif how == "mark":
        manager.ask("run.mark", dag_id="d", run_id=FIRST, state="failed")
    else:
        manager.ask("task.mark", dag_id="d", run_id=FIRST, task_id=manager.tasks("d")[0].task_id, state="failed")
    manager.drain()
    assert (len(manager.launched), run_of(manager, FIRST).state) == (launched, "success")
    do(jobs[0])
    manager.drain()
    assert run_of(manager, FIRST).is_undone and len(manager.launched) == launched
    assert not manager.store.unanswered() and not manager.state.held


def test_failed_tasks_of_a_run_do_not_run_again_while_it_is_reverted() -> None:
    manager, _ = a_ground(dag_spec("d", "a", "b", upstream={"b": ["a"]}))
    write_of, broken = manager.script, {"b"}

    def script(launch: TaskLaunch) -> Failed | None:
        return Failed("boom") if launch.ti.task_id in broken else write_of(launch)  # type: ignore[return-value]

    manager.script = script
    done(manager)
    broken.clear()
    tables = FakeTables(manager, is_slow=True)
    manager.ask(request_kinds.RUN_REVERT, dag_id="d", run_id=FIRST, dry_run=False)
    manager.drain()
    again = done(manager, reprocess="failed_tasks")
    assert manager.states(again) == {"pending": 1} and run_of(manager, FIRST).state == "failed"
    tables.end_all()
    manager.drain()
    assert run_of(manager, FIRST).state == "overridden" and run_of(manager, FIRST).reverted_at is not None
    assert run_of(manager, f"{FIRST}__2").state == "success", "a new run, as the date counts as missing"
    assert manager.states(again) == {"success": 1}
