"""Retention deletes what has ended and is old enough, and nothing on which a later decision depends."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.random_history import Calm
from support.scenarios import accepted, never, timeline

from backfill_manager.dags.bundles.snapshot import take
from backfill_manager.dags.bundles.source import BEING_MADE
from backfill_manager.errors import StateError
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.manager.maintenance import retention
from backfill_manager.manager.maintenance.pruner import Pruner
from backfill_manager.manager.maintenance.retention import Sweep
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.tick import MAX_SLEEP_S
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    CheckResult,
    DagRun,
    DagVersion,
    ImportProblem,
    Request,
    Response,
    TableAccess,
    TaskInstance,
    TaskLog,
    TaskTry,
)
from backfill_manager.planning.runs.timeline import is_current
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.base import Leader
from backfill_manager.testing import InMemoryManager, dag_spec, days

HOUR = 3600.0
ALL = RetentionSettings(runs=HOUR, tries=HOUR, logs=HOUR, requests=HOUR, snapshots=HOUR, import_errors=HOUR)
REQUESTS = RetentionSettings(requests=HOUR)
SPEC = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, schedule="0 0 * * *")


def prune(
    manager: InMemoryManager, settings: RetentionSettings = ALL, *, later: float = 2 * HOUR, **how: Any
) -> dict[str, int]:
    """What is deleted so many seconds later. The next decisions know what the tables still have, and nothing else."""
    now = manager.clock.now() + timedelta(seconds=later)
    gone = Sweep(manager.store, settings, now, leader=manager.leader, **how).run()
    manager.crash()
    return {what: number for what, number in gone.items() if number}


def would_go(manager: InMemoryManager, settings: RetentionSettings = ALL) -> dict[str, int]:
    now = manager.clock.now() + timedelta(hours=2)
    return {what: number for what, number in Sweep(manager.store, settings, now).run().items() if number}


def log_line(run: DagRun, at: datetime) -> TaskLog:
    return TaskLog(run.dag_id, run.run_id, "load", 1, 1, 1, at, "INFO", "said", run.run_seq)


def done_twice(manager: InMemoryManager) -> list[DagRun]:
    """Three days, each done again by a second backfill; the runs that were overridden."""
    for _ in range(2):
        manager.backfill("d", days("2024-01-01", 3), reprocess="completed")
        manager.drain()
    return [run for run in manager.runs("d") if run.state == s.OVERRIDDEN]


def test_overridden_runs_go_with_all_that_belongs_to_them_and_current_ones_stay_with_their_tasks() -> None:
    manager = InMemoryManager(SPEC)
    overridden = done_twice(manager)
    assert len(overridden) == 3
    now = manager.clock.now()
    manager.store.write([log_line(run, now) for run in manager.runs("d")])
    manager.store.write(
        [TableAccess("d", run.run_id, "load", 1, 1, "write", run.run_seq, now, True, 1) for run in manager.runs("d")]
    )
    manager.store.write(
        [
            CheckResult("d", run.run_id, "load", 1, 1, 1, "t", "rows > 0", "passed", run.run_seq, now, 1)
            for run in manager.runs("d")
        ]
    )
    only_runs = RetentionSettings(runs=HOUR)
    assert prune(manager, only_runs, later=HOUR / 2) == {}, "nothing of it is an hour old"
    assert would_go(manager, only_runs) == {"runs": 3, "backfills": 1}
    assert len(manager.runs("d")) == 6, "who only asks deletes nothing"

    assert prune(manager, only_runs) == {"runs": 3, "backfills": 1}
    left = {run.run_id for run in manager.runs("d")}
    assert len(left) == 3 and all(is_current(run) for run in manager.runs("d"))
    for record in (TaskInstance, TaskTry, TaskLog, TableAccess, CheckResult):
        assert {row.run_id for row in manager.store.read(record)} == left  # type: ignore[attr-defined]
    assert prune(manager, only_runs) == {}


def test_the_run_that_a_revert_goes_back_to_stays_while_the_one_that_overrode_it_is_young() -> None:
    manager = InMemoryManager(SPEC)
    for _ in range(3):
        manager.clock.advance(seconds=3 * HOUR)
        manager.backfill("d", days("2024-01-01", 1), reprocess="completed")
        manager.drain()
    first, second, third = (run.run_id for run in manager.runs("d"))
    only_runs = RetentionSettings(runs=HOUR)
    assert prune(manager, only_runs, later=HOUR / 2)["runs"] == 1
    assert {run.run_id for run in manager.runs("d")} == {second, third}
    assert prune(manager, only_runs)["runs"] == 1
    assert {run.run_id for run in manager.runs("d")} == {third}, first


def one_done_and_one_live() -> tuple[InMemoryManager, DagRun, DagRun]:
    """Two runs of a DAG."""
    manager = InMemoryManager(SPEC)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.script = never
    manager.backfill("d", days("2024-01-02", 1))
    manager.drain()
    done, live = manager.runs("d")
    return manager, done, live


def test_tries_and_logs_go_by_their_own_ages_and_those_of_a_live_run_stay() -> None:
    manager, done, live = one_done_and_one_live()
    manager.store.write([log_line(run, manager.clock.now()) for run in (done, live)])
    manager.store.write(
        [TaskTry("d", live.run_id, "load", 9, 1, "failed", live.run_seq, 1, ended_at=manager.clock.now())]
    )

    assert prune(manager, RetentionSettings(logs=HOUR)) == {"logs": 1}
    assert [line.run_id for line in manager.store.read(TaskLog)] == [live.run_id]
    assert prune(manager, RetentionSettings(tries=HOUR)) == {"tries": 2}
    assert {row.run_id for row in manager.store.read(TaskTry)} == {live.run_id}
    assert len(manager.tasks("d")) == 4


def test_many_rows_go_in_steps_and_many_live_runs_are_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS", 2)
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "MAX_NAMED", 1)
    manager = InMemoryManager(SPEC)
    done_twice(manager)
    manager.script = never
    manager.backfill("d", days("2024-02-01", 2))
    manager.drain()
    manager.store.write([log_line(run, manager.clock.now()) for run in manager.runs("d")])
    sweep = Sweep(manager.store, ALL, manager.clock.now() + timedelta(hours=2), leader=manager.leader)
    steps = 0
    while sweep.step():
        steps += 1
    assert steps >= 6
    assert (sweep.gone["runs"], sweep.gone["logs"]) == (3, 3)
    assert {line.run_id for line in manager.store.read(TaskLog)} == {
        run.run_id for run in manager.runs("d") if run.state in s.RUN_LIVE
    }


def test_an_active_backfill_stays_with_its_items_its_runs_and_those_it_waits_for() -> None:
    manager = InMemoryManager(SPEC)
    parent = manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    paused = manager.backfill(
        "d", days("2024-01-05", 2), is_paused=True, state=s.PAUSED, parents_json=json.dumps([parent])
    )
    manager.backfill("d", days("2024-03-01", 1))
    manager.drain()
    assert prune(manager) == {"tries": 4}
    assert {row.backfill_id for row in manager.store.read(Backfill)} >= {parent, paused}
    assert len(manager.items(paused)) == 2


@pytest.mark.parametrize(
    "settings", [{"overrides_json": '{"retries": 3}'}, {"mark_success": True}, {"pool": "scheduled"}], ids=str
)
def test_a_backfill_whose_settings_a_cleared_run_needs_stays_until_its_runs_have_gone(settings: dict[str, Any]) -> None:
    manager = InMemoryManager(SPEC)
    special = manager.backfill("d", days("2024-01-01", 1), **settings)
    manager.drain()
    manager.backfill("d", days("2024-01-01", 1), reprocess="none")
    manager.drain()
    only_runs = RetentionSettings(runs=HOUR)
    assert prune(manager, only_runs) == {}
    manager.backfill("d", days("2024-01-01", 1), reprocess="completed")
    manager.drain()
    assert prune(manager, only_runs) == {"runs": 1, "backfills": 2}
    assert not manager.store.read(BackfillItem, []) or special not in {
        row.backfill_id for row in manager.store.read(Backfill)
    }


def test_a_run_whose_backfill_has_gone_can_be_cleared() -> None:
    manager = InMemoryManager(SPEC)
    for first in ("2024-01-01", "2024-01-02"):
        manager.backfill("d", days(first, 1))
        manager.drain()
    assert prune(manager)["backfills"] == 1
    accepted(manager, "tasks.clear", ask={"dag_id": "d", "run_ids": ["backfill__2024-01-01T00:00:00Z"]})
    run = manager.runs("d")[0]
    assert (run.state, [ti.generation for ti in manager.tasks("d")[:2]]) == (s.SUCCESS, [1, 1])


def test_dates_of_a_batch_are_numbered_on_after_their_own_runs_were_overridden() -> None:
    """An id that was used again would make exactly-once output leave out what the new run writes."""
    spec = dag_spec("d", "load", batchable=True)
    manager = InMemoryManager(spec)
    manager.backfill("d", days("2024-01-01", 3))
    manager.drain()
    manager.backfill("d", days("2024-01-01", 3), batch=3, reprocess="completed")
    manager.drain()
    before = {run.run_id for run in manager.runs("d")}
    prune(manager)
    manager.backfill("d", days("2024-01-02", 1), reprocess="completed")
    manager.drain()
    new = {run.run_id for run in manager.runs("d")} - before
    assert new == {"backfill__2024-01-02T00:00:00Z__2"}


def test_the_numbers_of_a_date_go_on_when_the_rest_of_a_batch_has_an_id_of_an_earlier_one() -> None:
    manager = InMemoryManager(SPEC)
    for first, n in (2, 1), (2, 1), (1, 2), (1, 2), (1, 2), (1, 1):
        manager.backfill("d", days(f"2024-01-0{first}", n), batch=2, reprocess="completed")
        manager.drain()
    assert [(run.run_id[10:20], run.run_id[31:], run.logical_date.day) for run in timeline(manager, "d")] == [  # type: ignore[union-attr]
        ("2024-01-01", "_4", 1), ("2024-01-01", "_3", 2),
    ]  # fmt: skip
    prune(manager)
    manager.backfill("d", days("2024-01-02", 1), reprocess="completed")
    manager.drain()
    assert [run.run_id[10:] for run in timeline(manager, "d")] == ["2024-01-01T00:00:00Z__4", "2024-01-02T00:00:00Z__3"]


def test_a_request_goes_with_its_response_and_an_unanswered_one_is_never_lost() -> None:
    manager = InMemoryManager(SPEC)
    accepted(manager, "dag.unpause", dag_id="d")
    accepted(manager, "dag.pause", dag_id="d")
    manager.ask("dag.unpause", dag_id="d")
    (waiting,) = manager.store.unanswered()
    assert would_go(manager, REQUESTS) == {"requests": 2}
    assert prune(manager, REQUESTS) == {"requests": 2}
    assert [row.request_id for row in manager.store.read(Request)] == [waiting.request_id]
    assert manager.store.unanswered() == [waiting] and manager.store.read(Response) == []


def test_a_response_stays_while_its_request_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that writes at this moment is quicker: a request without its response would be carried out again."""
    manager = InMemoryManager(SPEC)
    accepted(manager, "dag.unpause", dag_id="d")
    delete: Any = type(manager.leader).delete
    monkeypatch.setattr(
        type(manager.leader),
        "delete",
        lambda self, table, where: None if table == "request" else delete(self, table, where),
    )
    assert prune(manager, REQUESTS) == {}
    assert len(manager.store.read(Response)) == 1 and manager.store.unanswered() == []


def test_the_request_of_an_active_backfill_stays() -> None:
    manager = InMemoryManager(SPEC)
    manager.backfill("d", days("2024-01-05", 2), is_paused=True, state=s.PAUSED)
    (row,) = manager.store.read(Backfill)
    accepted(manager, "backfill.set", backfill_id=row.backfill_id, changes={"priority": 3})
    assert prune(manager) == {}
    assert len(manager.store.read(Request)) == 1


def test_versions_that_a_run_names_stay_and_replaced_ones_go_with_their_files(tmp_path: Path) -> None:
    manager = InMemoryManager(SPEC)
    folders = {}
    for number in range(1, 5):
        if number > 1:
            manager.add_dag(SPEC)
            manager.commit()
        folders[number] = tmp_path / (f"{number}" * 64)
        folders[number].mkdir()
        stored = tmp_path / "files" / "aa" / str(number)
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text("x")
        os.link(stored, folders[number] / "dag.py")
        if number == 2:
            manager.backfill("d", days("2024-01-01", 1))
            manager.drain()
    rows = [row.evolve(snapshot=str(folders[row.version])) for row in manager.store.read(DagVersion)]
    manager.store.write(rows)
    other = tmp_path / "not-a-snapshot"
    other.mkdir()
    at = (manager.clock.now() - timedelta(hours=1)).timestamp()
    for folder in (*folders.values(), other):
        os.utime(folder, (at, at))

    only = RetentionSettings(snapshots=HOUR)
    assert prune(manager, only, later=HOUR / 2, snapshots=tmp_path) == {}
    gone = Sweep(manager.store, only, manager.clock.now() + timedelta(hours=2), snapshots=tmp_path).run()
    assert dict(gone) == {"versions": 2, "snapshots": 2} and folders[1].is_dir()
    assert prune(manager, only, snapshots=tmp_path) == {"versions": 2, "snapshots": 2}
    assert [row.version for row in manager.store.read(DagVersion)] == [2, 4], "a run names one, the DAG the other"
    assert [number for number, folder in folders.items() if folder.is_dir()] == [2, 4]
    assert sorted(file.name for file in tmp_path.glob("files/aa/*")) == ["2", "4"]
    assert other.is_dir()


def test_a_snapshot_that_can_not_be_deleted_keeps_nothing_else_from_it(tmp_path: Path) -> None:
    manager = InMemoryManager(SPEC)
    at = manager.clock.now()
    manager.store.write([ImportProblem("b", "old.py", 1, "wrong", "", False, at, at)])
    kept, stuck, gone = tmp_path / "kept", tmp_path / ("1" * 64), tmp_path / ("2" * 64)
    kept.mkdir()
    stuck.symlink_to(kept)  # `shutil.rmtree` refuses it, whoever runs this test
    gone.mkdir()
    for folder in (kept, gone):
        os.utime(folder, (at.timestamp(), at.timestamp()))
    assert prune(manager, snapshots=tmp_path) == {"snapshots": 1, "import_errors": 1}
    assert kept.is_dir() and not gone.exists()
    assert not stuck.exists(), "half of one is not taken for a snapshot"
    assert (tmp_path / f"{BEING_MADE}{stuck.name}").is_dir(), "it is tried again by the next sweep"


def test_what_a_kill_has_left_of_a_snapshot_goes(tmp_path: Path) -> None:
    """Of one that was being made, or deleted."""
    manager = InMemoryManager(SPEC)
    old, young = tmp_path / f"{BEING_MADE}old", tmp_path / f"{BEING_MADE}young"
    for folder, age_s in ((old, 0), (young, -2 * HOUR)):
        folder.mkdir()
        (folder / "dag.py").write_text("x")
        at = manager.clock.now().timestamp() - age_s
        os.utime(folder, (at, at))
    assert prune(manager, RetentionSettings(snapshots=HOUR), snapshots=tmp_path) == {}
    assert not old.exists() and young.is_dir()


def test_files_whose_snapshot_was_deleted_right_before_a_kill_go(tmp_path: Path) -> None:
    stored = tmp_path / "files" / "aa"
    stored.mkdir(parents=True)
    for name in ("left", "used"):
        (stored / name).write_text("x")
    os.link(stored / "used", tmp_path / "dag.py")
    manager = InMemoryManager(SPEC)
    assert prune(manager, RetentionSettings(snapshots=HOUR), snapshots=tmp_path) == {}
    assert [file.name for file in stored.iterdir()] == ["used"]


def test_a_snapshot_that_is_half_deleted_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager is killed in the middle, and the bundle goes back to what it was."""
    bundle, snapshots, manager = tmp_path / "bundle", tmp_path / "snapshots", InMemoryManager(SPEC)
    bundle.mkdir()
    for name in ("a.py", "b.py"):
        (bundle / name).write_text(f"# {name}")
    place = take(bundle, snapshots).path
    at = manager.clock.now().timestamp()
    os.utime(place, (at, at))

    def killed(folder: Path) -> None:
        next(folder.iterdir()).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", killed)
        prune(manager, RetentionSettings(snapshots=HOUR), snapshots=snapshots)
    assert take(bundle, snapshots).path == place
    assert sorted(file.name for file in place.iterdir()) == ["a.py", "b.py"]


def test_a_snapshot_that_is_taken_into_use_while_it_is_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the leader that has followed this one, or by the thread that reads bundles."""
    bundle, snapshots, manager = tmp_path / "bundle", tmp_path / "snapshots", InMemoryManager(SPEC)
    bundle.mkdir()
    (bundle / "a.py").write_text("# code")
    place = take(bundle, snapshots).path
    at = manager.clock.now().timestamp()
    os.utime(place, (at, at))
    rename = Path.rename

    def taken_before(self: Path, target: Path) -> Path:
        if self == place:
            assert take(bundle, snapshots).path == place
            os.utime(place, (at + 2 * HOUR, at + 2 * HOUR))  # by the clock of this test
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", taken_before)
    assert prune(manager, RetentionSettings(snapshots=HOUR), snapshots=snapshots) == {}
    assert (place / "a.py").read_text() == "# code"


def test_tries_that_a_crash_has_lost_go_with_the_end_of_their_run() -> None:
    """They have no end of their own."""
    manager, done, live = one_done_and_one_live()
    manager.store.write([TaskTry("d", run.run_id, "load", 9, 1, "lost", run.run_seq, 1) for run in (done, live)])
    only = RetentionSettings(tries=HOUR)
    assert prune(manager, only, later=HOUR / 2) == {}
    assert would_go(manager, only) == {"tries": 3}
    assert prune(manager, only) == {"tries": 3}
    assert {row.run_id for row in manager.store.read(TaskTry)} == {live.run_id}


def test_import_errors_go_when_the_file_was_read_again_and_current_ones_stay() -> None:
    manager = InMemoryManager(SPEC)
    at = manager.clock.now()
    row = ImportProblem("b", "old.py", 1, "wrong", "", False, at - timedelta(days=9), at)
    manager.store.write([row, row.evolve(file="now.py", is_current=True)])
    only = RetentionSettings(import_errors=HOUR)
    assert prune(manager, only, later=HOUR / 2) == {}
    assert would_go(manager, only) == {"import_errors": 1}
    assert prune(manager, only) == {"import_errors": 1}
    assert [problem.file for problem in manager.store.read(ImportProblem)] == ["now.py"]
    assert prune(manager, only) == {}


def test_tries_that_were_deleted_do_not_come_back_as_lost_when_their_run_is_cleared() -> None:
    """A manager that starts while the run is live takes missing tries for those that a crash has taken."""
    failing = iter([Failed("no"), Succeeded()])
    manager = InMemoryManager(
        dag_spec("d", "load", each={"load": {"retries": 1, "retry_delay": 5.0}}), script=lambda _: next(failing)
    )
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.clock.advance(seconds=60)
    manager.drain()
    assert [row.launch for row in manager.store.read(TaskTry)] == [1, 2]
    manager.clock.advance(seconds=2 * HOUR)
    assert prune(manager, RetentionSettings(tries=HOUR), later=0) == {"tries": 2}
    manager.script = never
    accepted(manager, "tasks.clear", ask={"dag_id": "d", "run_ids": [manager.runs("d")[0].run_id]})

    def made_again(tries_kept_s: float | None) -> list[tuple[int, str]]:
        state = restore_state(
            manager.store, term=manager.leader.term, now=manager.clock.now(), tries_kept_s=tries_kept_s
        )
        return [(row.launch, row.state) for row in state.changes.rows(TaskTry)]

    assert [ti.launch for ti in manager.tasks("d")] == [3]
    assert made_again(HOUR) == [(3, "lost")]
    assert made_again(1000 * HOUR) == [(1, "lost"), (2, "lost"), (3, "lost")], "none of so young a run was deleted"


class Compared(Calm):
    """A random history that is compared with its twin, of which something is deleted again and again."""

    prunes = False

    def settle(self) -> None:
        super().settle()
        if self.prunes:
            now = self.manager.clock.now() + timedelta(days=400)
            settings = RetentionSettings(runs=HOUR, logs=HOUR, tries=HOUR)  # the harness reads requests
            sweep = Sweep(self.manager.store, settings, now, leader=self.manager.leader)
            sweep._needed_backfills = lambda rows: {row.backfill_id for row in rows}  # type: ignore[method-assign]  # they are retried
            sweep.run()
        self.manager.crash()  # what is decided from now on is decided by the tables

    def compare(self) -> None:
        self.model.fire_schedules(self.manager.clock.now())
        self.settle()

    def check_rest(self) -> None:
        return


@pytest.mark.parametrize("seed", range(8))
def test_what_is_planned_made_and_run_is_the_same_with_and_without_retention(seed: int) -> None:
    whole, pruned = Compared(seed, fragile=0.0), Compared(seed, fragile=0.0)
    pruned.prunes = True
    for history in (whole, pruned):
        history.run(45)
    assert [launch.key for launch in pruned.manager.launched] == [launch.key for launch in whole.manager.launched]
    rows = [[run for run in history.manager.store.read(DagRun) if is_current(run)] for history in (whole, pruned)]
    assert rows[0] == rows[1]
    assert len(pruned.manager.store.read(DagRun)) <= len(whole.manager.store.read(DagRun))


def test_the_twins_of_that_test_do_differ_in_what_is_stored() -> None:
    whole, pruned = Compared(1, fragile=0.0), Compared(1, fragile=0.0)
    pruned.prunes = True
    for history in (whole, pruned):
        history.run(45)
    for record in (DagRun, TaskTry):
        assert len(pruned.manager.store.read(record)) < len(whole.manager.store.read(record)) - 20


def with_ages(settings: RetentionSettings) -> InMemoryManager:
    """A manager with these ages, whose own loop runs."""
    manager = InMemoryManager(SPEC)
    loop = manager._loop
    loop._pruner = Pruner(manager.store, manager.leader, manager._decisions.requests, settings, None, manager.clock)
    loop.has_parsed_all = True
    return manager


def run_until_idle(manager: InMemoryManager) -> float | None:
    """The seconds until the next turn is due."""
    resting = 0
    for _ in range(100):
        manager.events.wake_for_requests()
        seconds = manager._loop.run_once()
        resting = 0 if seconds == 0.0 else resting + 1
        if resting == 2:
            return seconds
    raise AssertionError("it never comes to rest")


def test_the_manager_sweeps_at_its_start_and_every_hour() -> None:
    manager = with_ages(RetentionSettings(runs=HOUR))
    done_twice(manager)
    assert run_until_idle(manager) == MAX_SLEEP_S, "nothing is old yet"
    assert len(manager.runs("d")) == 6
    manager.clock.advance(seconds=HOUR + 1)
    assert not manager._loop.is_idle, "--until-idle waits for it"
    assert run_until_idle(manager) == MAX_SLEEP_S and manager._loop.is_idle
    assert len(manager.runs("d")) == 3 and len(manager.store.read(Backfill)) == 1


def test_a_clock_that_is_set_back_does_not_put_the_next_sweep_off() -> None:
    manager = with_ages(RetentionSettings(runs=HOUR))
    run_until_idle(manager)
    manager.clock.advance(seconds=-24 * HOUR)
    done_twice(manager)
    assert run_until_idle(manager) == MAX_SLEEP_S
    manager.clock.advance(seconds=HOUR + 1)
    run_until_idle(manager)
    assert len(manager.runs("d")) == 3


def test_a_request_has_it_done_at_once_and_is_answered_with_what_went() -> None:
    manager = with_ages(RetentionSettings(runs=HOUR))
    done_twice(manager)
    run_until_idle(manager)
    manager.clock.advance(seconds=HOUR - 1)
    manager.ask("state.prune")
    run_until_idle(manager)
    manager.clock.advance(seconds=1.5)
    manager.ask("state.prune")
    run_until_idle(manager)
    first, second = (row for row in manager.store.read(Response) if row.kind == "state.prune")
    assert (first.message, first.outcome) == ("nothing is old enough to be deleted", "accepted")
    assert second.message == "deleted: 3 runs, 1 backfill"
    assert json.loads(second.payload_json or "") == {"pruned": {"runs": 3, "backfills": 1, "notifications": 0}}


def test_without_ages_nothing_is_due_and_a_request_is_refused() -> None:
    manager = with_ages(RetentionSettings())
    assert run_until_idle(manager) is None
    manager.ask("state.prune")
    run_until_idle(manager)
    (answer,) = manager.store.read(Response)
    assert (answer.outcome, answer.error_code) == ("refused", "no_retention") and "No age is set" in answer.message


def test_a_sweep_that_fails_is_answered_and_the_manager_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = with_ages(RetentionSettings(runs=HOUR))
    done_twice(manager)

    def fails(self: Leader, table: str, where: object) -> None:
        raise StateError("Table task_log at /x can't be written: no space left.")

    monkeypatch.setattr(type(manager.leader), "delete", fails)
    manager.clock.advance(seconds=2 * HOUR)
    manager.ask("state.prune")
    assert run_until_idle(manager) == MAX_SLEEP_S
    (answer,) = (row for row in manager.store.read(Response) if row.kind == "state.prune")
    assert (answer.outcome, answer.message) == ("refused", "Table task_log at /x can't be written: no space left.")
    assert len(manager.runs("d")) == 6
