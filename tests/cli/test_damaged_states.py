"""Real tables are damaged for real: `state check` names what is damaged, `--repair` repairs what can be derived."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.bfm import Bfm
from support.page_client import browser_of
from support.recorded_state import SPEC, go_on, open_state, recorded_state, rows_of

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.manager.maintenance.pruner import Pruner
from backfill_manager.manager.maintenance.state_repair import repair_state
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRow,
    DagRun,
    DagVersion,
    Manager,
    Pool,
    Record,
    Request,
    Response,
    TaskInstance,
    TaskTry,
)
from backfill_manager.settings import RetentionSettings, Settings
from backfill_manager.store.base import Condition, matching
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.sql_text import arrow_table
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

AGES = RetentionSettings(**dict.fromkeys(("runs", "tries", "logs", "requests"), 86_400.0))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shown") / "state"
    recorded_state(root)
    for table in ("task_instance", "manager"):
        DeltaTable(str(root / table)).create_checkpoint()
    return root.rename(root.with_name("moved"))  # its copies are no copies of a state that is still there


@pytest.fixture
def root(shown: Path, tmp_path: Path) -> Path:
    shutil.copytree(shown, tmp_path / "state")
    return tmp_path / "state"


def log(root: Path, table: str) -> list[Path]:
    return sorted((root / table / "_delta_log").glob("*.json"))


def checkpoint(root: Path, table: str) -> Path:
    return next((root / table / "_delta_log").glob("*.checkpoint.parquet"))


def data_file(root: Path, table: str) -> Path:
    """The one with most rows."""
    handle = DeltaTable(str(root / table))
    added = handle.get_add_actions(flatten=True)
    _, path = max(zip(added["num_records"].to_pylist(), added["path"].to_pylist(), strict=True))
    return root / table / path


def tear(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def wrong(bfm: Bfm) -> list[tuple[str, str, str]]:
    checked = bfm("state", "check", "--output", "json")
    found = [(one["table"], one["file"], one["message"]) for one in checked.document if one["outcome"] == "wrong"]
    assert checked.code == (1 if found else 0)
    return found


def repaired(bfm: Bfm) -> str:
    """What the repair tells; afterwards the state is in order."""
    result = bfm("state", "check", "--repair")
    assert result.code == 0, result.out + result.err
    assert wrong(bfm) == []
    return " ".join(result.err.split())


def unusable_line(bfm: Bfm, *args: str) -> str:
    result = bfm(*args)
    assert result.code == 2
    assert "`bfm state check` tells more" in result.err
    return result.error


def test_a_state_that_is_in_order_is_left_as_it_is(bfm: Bfm, root: Path) -> None:
    before = rows_of(root)
    assert wrong(bfm) == []
    assert "There is nothing to repair." in repaired(bfm)
    assert rows_of(root) == before


def test_a_truncated_checkpoint_is_named_and_made_again_from_the_log(bfm: Bfm, root: Path) -> None:
    before = rows_of(root)
    file = tear(checkpoint(root, "task_instance"))

    unusable_line(bfm, "tasks", "states", "flights", "backfill__2024-01-01T00:00:00Z")
    [(table, named, message)] = wrong(bfm)
    assert (table, named) == ("task_instance", f"_delta_log/{file.name}")
    assert "can't be read" in message and "the repair writes it anew" in message

    assert f"Repaired: task_instance: _delta_log/{file.name}" in repaired(bfm)
    assert rows_of(root) == before
    assert file.with_name(f"{file.name}.damaged").exists()


@pytest.mark.parametrize("table", ["task_try", "task_instance", "dag_run"])
def test_an_export_and_a_sweep_name_the_file_that_is_missing_and_leave_the_rest(
    bfm: Bfm, root: Path, tmp_path: Path, table: str, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = go_on(root)
    for _ in range(9):
        manager.clock.new_id()  # those that the state has
    manager.backfill("flights", days("2024-01-01", 3), reprocess="completed")  # what it overrides goes
    manager.drain()
    before = len(manager.store.rows("dag_run"))
    lost = [root / table / file for file in DeltaTable(str(root / table)).file_uris()]
    for file in lost:
        file.rename(tmp_path / file.name)
    lines = [f"Table {table} at {root / table} can't be {{}}: its file {file.name} is missing" for file in lost]

    result = bfm("state", "export", str(tmp_path / "out"))
    assert (result.code, (tmp_path / "out").exists()) == (2, False)
    last = result.err.splitlines()[-1]
    assert last in [f"{line.format('read')}; `bfm state check` tells more." for line in lines]
    manager.clock.advance(days=9)
    pruner = Pruner(manager.store, manager.leader, manager._decisions.requests, AGES, None, manager.clock)
    for _ in range(3):  # each hour
        assert pruner.is_due(manager.clock.now())
        while pruner.is_due(manager.clock.now()):
            pruner.step(manager.clock.now())
        (line,) = (one for one in capfd.readouterr().err.splitlines() if "could not prune the state" in one)
        assert any(f"its file {file.name} is missing" in line for file in lost)
        manager.clock.advance(hours=1)
    for file in lost:
        (tmp_path / file.name).rename(file)
    assert len(manager.store.rows("dag_run")) == before, "it goes after what belongs to it"
    while pruner.is_due(manager.clock.now()):
        pruner.step(manager.clock.now())
    assert len(manager.store.rows("dag_run")) < before
    assert wrong(bfm) == []


def test_a_sweep_leaves_out_what_needs_a_damaged_table_and_does_the_rest(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = go_on(root)
    for file in DeltaTable(str(root / "task_try")).file_uris():
        (root / "task_try" / file).unlink()
    manager.clock.advance(days=9)
    pruner = Pruner(manager.store, manager.leader, manager._decisions.requests, AGES, None, manager.clock)
    while pruner.is_due(manager.clock.now()):
        pruner.step(manager.clock.now())
    lines = [one for one in capfd.readouterr().err.splitlines() if "component=retention" in one]
    done, left = lines
    assert "state pruned" in done and "backfills=1" in done, "`runs` come before tries, and nothing else needs them"
    assert "could not prune the state" in left and "Table task_try at" in left


def test_a_checkpoint_can_not_be_made_again_where_the_log_before_it_is_gone(bfm: Bfm, root: Path) -> None:
    tear(checkpoint(root, "task_instance"))
    log(root, "task_instance")[0].unlink()
    before = {file: file.read_bytes() for file in (root / "task_instance").rglob("*") if file.is_file()}

    assert any("restore it from a back-up" in message for _, _, message in wrong(bfm))
    result = bfm("state", "check", "--repair")

    assert result.code == 1
    assert "Not repaired: task_instance: _delta_log/00000000000000000000.json is missing" in " ".join(
        result.err.split()
    )
    assert {file: file.read_bytes() for file in (root / "task_instance").rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("lie", ['{"version":99,"size":3}', '{"vers'], ids=["another version", "truncated"])
def test_a_last_checkpoint_that_lies_is_removed(bfm: Bfm, root: Path, lie: str) -> None:
    before = rows_of(root)
    last = root / "task_instance" / "_delta_log" / "_last_checkpoint"
    last.write_text(lie)

    [(table, named, _)] = wrong(bfm)
    assert (table, named) == ("task_instance", "_delta_log/_last_checkpoint")

    repaired(bfm)
    assert not last.exists()
    assert rows_of(root) == before


@pytest.mark.parametrize("rest", [0.5, 0.0], ids=["truncated", "empty"])
def test_the_last_log_entry_is_set_aside_and_the_manager_goes_on(bfm: Bfm, root: Path, rest: float) -> None:
    file = log(root, "dag_run")[-1]
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * rest)])

    [(table, named, message)] = wrong(bfm)
    assert (table, named) == ("dag_run", f"_delta_log/{file.name}")
    assert "undoes this one commit" in message

    assert "the commit is undone" in repaired(bfm)
    finishes(root)


def test_a_log_entry_in_the_middle_is_refused(bfm: Bfm, root: Path) -> None:
    file = tear(log(root, "dag_run")[2])

    unusable_line(bfm, "runs", "list")
    [(table, named, message)] = wrong(bfm)
    assert (table, named) == ("dag_run", f"_delta_log/{file.name}")
    assert "later commits build on it; restore it from a back-up" in message
    assert bfm("state", "check", "--repair").code == 1
    assert not list(root.rglob("*.damaged"))


def finishes(root: Path) -> None:
    """A manager goes on, and every item of the backfill that was paused ends."""
    manager = go_on(root)
    manager.ask("backfill.unpause", backfill_id=next(iter(manager.state.backfills)))
    manager.drain()
    assert not manager.state.runs and not manager.state.backfills and not manager.store.unanswered()
    items = manager.store.read(BackfillItem)
    assert {item.state for item in items} <= {"success", "failed"} and len(items) == 7
    runs = {(run.dag_id, run.run_id) for run in manager.store.read(DagRun)}
    assert {(SPEC.dag_id, item.run_id) for item in items} <= runs
    manager.leader.resign(manager.clock.now())


@pytest.mark.parametrize("damage", [tear, Path.unlink], ids=["truncated", "gone"])
@pytest.mark.parametrize("table", ["task_try", "backfill_item", "response"])
def test_rows_of_a_lost_data_file_are_made_again_where_other_tables_tell_them(
    bfm: Bfm, root: Path, table: str, damage: Callable[[Path], Any]
) -> None:
    before = rows_of(root)
    file = data_file(root, table)
    damage(file)

    unusable_line(bfm, "state", "sql", f"SELECT * FROM {table}")
    [(named_table, named, message)] = wrong(bfm)
    assert (named_table, named) == (table, file.name)
    assert "it held" in message

    shown = repaired(bfm)
    assert f"Repaired: {table}: {file.name}" in shown and "Made again" in shown
    after = rows_of(root)
    keys = {name: {row.key for row in rows} for name, rows in after.items()}
    if table == "backfill_item":  # of those that had no run nothing else tells
        assert "Lost: 3 items of backfill" in shown or keys[table] == {row.key for row in before[table]}
        assert all(row in before[table] for row in after[table])
    else:
        assert keys[table] == {row.key for row in before[table]}
    assert {name: rows for name, rows in after.items() if name != table} == {
        name: rows for name, rows in before.items() if name != table
    }
    assert not go_on(root).store.unanswered(), "no request is carried out twice"


def test_a_lost_file_of_runs_is_named_with_its_runs(bfm: Bfm, root: Path) -> None:
    before = {run.run_id for run in DeltaRsStore(str(root)).read(DagRun) if run.state != "overridden"}
    data_file(root, "dag_run").unlink()

    shown = repaired(bfm)

    lost = before - {run.run_id for run in DeltaRsStore(str(root)).read(DagRun) if run.state != "overridden"}
    assert lost and all(f"flights/{run_id}" in shown for run_id in lost)


def test_a_run_that_is_made_in_the_place_of_a_lost_one_has_an_id_and_writes_of_its_own(bfm: Bfm, root: Path) -> None:
    """With the same id it would find in its output tables what the lost one had written, and write nothing."""
    store, days_lost = DeltaRsStore(str(root)), days("2024-01-01", 3)
    data_file(root, "dag_run").unlink()
    assert "Lost: 3 runs: flights/backfill__2024-01-01T00:00:00Z, " in repaired(bfm)
    lost = store.read(DagRun, matching(state="overridden"), ["run_seq"])
    assert [run.run_id for run in lost] == [f"backfill__2024-01-0{day}T00:00:00Z" for day in (1, 2, 3)]
    assert {run.reason for run in lost} == {"it was lost with a damaged file"}
    for record in (TaskInstance, TaskTry):
        assert not store.read(record, matching(run_id=[run.run_id for run in lost]))
    cleared = bfm("tasks", "clear", "flights", "--run", lost[0].run_id, "--yes")
    assert "was lost with a damaged file of the state; backfill its date again" in cleared.error

    manager = go_on(root)
    for _ in range(50):  # its clock gives ids from the first on
        manager.clock.new_id()
    manager.backfill("flights", days_lost)
    manager.drain()

    made = store.read(
        DagRun, [*matching(logical_date=[start for start, _ in days_lost]), Condition("state", "!=", "overridden")]
    )
    assert sorted(run.run_id for run in made) == [f"{run.run_id}__2" for run in lost]
    assert [run.state for run in sorted(made, key=lambda run: run.run_id)] == ["success", "failed", "success"]
    tasks = store.read(TaskInstance, matching(run_id=made[0].run_id), ["task_id"])
    assert [(ti.task_id, ti.run_seq) for ti in tasks] == [("clean", made[0].run_seq), ("delays", made[0].run_seq)]
    assert len(store.read(TaskTry, matching(run_id=made[0].run_id))) == 2
    for record in (TaskInstance, TaskTry):
        assert len({row.key for row in store.read(record)}) == len(store.read(record))


@pytest.mark.parametrize("left", [True, False])
def test_a_lost_run_that_only_its_item_names_does_not_give_its_id_away(bfm: Bfm, root: Path, left: bool) -> None:
    store = DeltaRsStore(str(root))
    before = store.read(DagRun, order_by=["run_seq"])
    for table in ("task_instance", "task_try", "dag_run", *(() if left else ("backfill_item",))):
        for file in DeltaTable(str(root / table)).file_uris():
            Path(file).unlink()

    shown = repaired(bfm)

    gone = store.read(DagRun, order_by=["run_seq"])
    assert [run.run_id for run in gone] == ([run.run_id for run in before] if left else [])
    assert {run.state for run in gone} <= {"overridden"}
    assert ("Lost: 4 runs that no other table names" in shown, "`bfm state adopt --as-copy`" in shown) == (
        not left,
        not left,
    )


def test_runs_by_partition_and_by_the_schedule_that_were_lost_do_not_give_their_ids_away(tmp_path: Path) -> None:
    root, clock = tmp_path / "state", FakeClock(datetime(2024, 1, 4, tzinfo=UTC))
    spec = dag_spec("d", "a", start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=True)
    manager = InMemoryManager(spec, clock=clock, store=open_state(root, clock), scheduled=True)  # type: ignore[arg-type]
    manager.drain()
    manager.backfill("d", keys=["eu__west", "50%", "2"])
    manager.drain()
    manager.leader.compact(everywhere=True)
    manager.leader.resign(clock.now())
    before = {run.run_id for run in manager.store.read(DagRun)}
    assert len(before) == 6
    data_file(root, "dag_run").unlink()
    list(repair_state(DeltaRsStore(str(root)), Settings(), SystemClock(), print))

    again = go_on(root, clock.now(), scheduled=True)
    for _ in range(50):  # its clock gives ids from the first on
        again.clock.new_id()
    again.drain()
    again.backfill("d", keys=["eu__west", "50%", "2"])
    again.drain()

    runs = {run.run_id for run in again.store.read(DagRun) if run.state != "overridden"}
    assert runs == {f"{run_id}__2" for run_id in before}


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_repair_that_is_killed_is_finished_by_the_next_one_and_nobody_leads_before(
    bfm: Bfm, root: Path, lines: int
) -> None:
    """Once the files are whole, nothing but its note tells what is still to be done."""
    shutil.copytree(root, root / ".." / "whole")
    for table in ("dag_run", "response"):
        data_file(root, table).unlink()
        data_file(root / ".." / "whole", table).unlink()
    killed = repair_state(DeltaRsStore(str(root)), Settings(), SystemClock(), print)
    for _ in range(lines):
        next(killed)
    killed.close()

    assert ("manager", "unfinished-repair.json") in {(table, file) for table, file, _ in wrong(bfm)}
    assert "A repair of the state at ./state broke off; `bfm state check` tells more." in bfm("state", "compact").err
    shown = repaired(bfm)

    assert "Made again: 1 response." in shown
    list(repair_state(DeltaRsStore(str(root / ".." / "whole")), Settings(), SystemClock(), print))
    at_once, later = (DeltaRsStore(str(place)) for place in (root / ".." / "whole", root))
    for record in (DagRun, TaskInstance, TaskTry, BackfillItem):
        runs = [{(row.key, getattr(row, "state", None)) for row in store.read(record)} for store in (at_once, later)]
        assert runs[0] == runs[1]
    assert bfm("state", "compact").code == 0


def test_task_instances_are_made_again_from_their_tries(bfm: Bfm, root: Path) -> None:
    before = {row.key: row for row in DeltaRsStore(str(root)).read(TaskInstance)}
    data_file(root, "task_instance").unlink()

    repaired(bfm)

    after = {row.key: row for row in DeltaRsStore(str(root)).read(TaskInstance)}
    assert {key for key, row in before.items() if row.launch} == {key for key, row in after.items() if row.launch}
    assert all((row.state, row.try_number) == (before[key].state, before[key].try_number) for key, row in after.items())


def test_a_task_that_is_made_again_and_cleared_has_a_generation_that_has_written_nothing(bfm: Bfm, root: Path) -> None:
    """Its write would be left out as one that had landed, and the task succeed."""
    manager = go_on(root)
    for _ in range(2):
        manager.ask("tasks.clear", ask={"dag_id": "flights", "run_ids": ["backfill__2024-01-01T00:00:00Z"]})
        manager.drain()
    manager.leader.compact(everywhere=True)
    manager.leader.resign(manager.clock.now())
    before = {row.key: row for row in DeltaRsStore(str(root)).read(TaskInstance)}
    assert {row.generation for row in before.values()} == {0, 2}
    data_file(root, "task_instance").unlink()

    repaired(bfm)

    after = {row.key: row for row in DeltaRsStore(str(root)).read(TaskInstance)}
    assert all(row.generation >= before[key].generation for key, row in after.items())
    assert len(after) > 1


# -- rows -------------------------------------------------------------------------------------------------------------


def append(root: Path, *rows: Record, **more: Any) -> None:
    """As another program may have done."""
    for row in rows:
        columns = pa.table(arrow_table(type(row), [row]))
        for name, value in more.items():
            columns = columns.append_column(name, pa.array([value]))
        write_deltalake(str(root / row.TABLE), columns, mode="append", schema_mode="merge")


@pytest.mark.parametrize("record", [DagRun, TaskInstance, TaskTry, BackfillItem, DagRow, Response, Manager])
def test_rows_that_are_there_twice_are_named_and_the_newest_is_kept(bfm: Bfm, root: Path, record: type[Record]) -> None:
    before = DeltaRsStore(str(root)).read(record)
    append(root, *before[:2])

    [(table, _, message)] = wrong(bfm)
    name = "/".join(map(str, before[0].key))
    assert (table, name in message, "the repair keeps the newest" in message) == (record.TABLE, True, True), message
    keys = len(before[:2])
    assert f"{keys} key{'s' * (keys > 1)} had several rows; the newest is kept, {keys} deleted." in repaired(bfm)
    after = DeltaRsStore(str(root)).read(record)
    assert sorted(row.key for row in after) == sorted(row.key for row in before)
    assert all(row in before for row in after if row.key in {one.key for one in before[:2]})


def test_of_two_rows_of_one_run_the_one_that_went_on_is_kept(bfm: Bfm, root: Path) -> None:
    [run] = [run for run in DeltaRsStore(str(root)).read(DagRun) if run.state == "failed"]
    append(root, run.evolve(state="running", ended_at=None))
    items = DeltaRsStore(str(root)).read(BackfillItem, matching(run_id=run.run_id))
    append(root, *(item.evolve(state="pending", run_id=None) for item in items))

    repaired(bfm)

    assert run in DeltaRsStore(str(root)).read(DagRun)
    assert DeltaRsStore(str(root)).read(BackfillItem, matching(run_id=run.run_id)) == items


def test_a_request_that_a_client_has_sent_twice_is_in_order(bfm: Bfm, root: Path) -> None:
    append(root, *DeltaRsStore(str(root)).read(Request))
    assert wrong(bfm) == []


def test_json_that_can_not_be_read_is_named_and_made_null_where_it_may_be(bfm: Bfm, root: Path) -> None:
    store = DeltaRsStore(str(root))
    tried, run = store.read(TaskTry)[0], store.read(DagRun)[0]
    append(root, tried.evolve(launch=9, spark_jobs_json="[1, 2"), run.evolve(run_id="other", conf_json="{'a': 1}"))

    named = {table: message for table, _, message in wrong(bfm)}
    assert "spark_jobs_json of 1 row is no JSON" in named["task_try"]
    assert "the repair makes it null" in named["task_try"]
    assert "conf_json of 1 row is no JSON object (flights/other): restore it from a back-up" in named["dag_run"]

    result = bfm("state", "check", "--repair")
    assert (result.code, [table for table, _, _ in wrong(bfm)]) == (1, ["dag_run"])
    assert "spark_jobs_json that was no JSON is null in 1 row" in " ".join(result.err.split())
    assert DeltaRsStore(str(root)).read(TaskTry, matching(launch=9)) == [tried.evolve(launch=9, spark_jobs_json=None)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1]", "definition_json of 1 row is no JSON object (flights/1): restore it from a back-up"),
        ('{"dag_id": "flights"}', "definition_json of 1 row is no DAG (flights/1): a manager that reads the bundle makes"),
        (None, "1 row that others name is missing (flights/1): a manager that reads the bundle makes"),
    ],
)  # fmt: skip
def test_a_definition_that_can_not_be_read_is_named_and_managers_go_on(
    bfm: Bfm, root: Path, text: str | None, what: str
) -> None:
    store = DeltaRsStore(str(root))
    (version,) = store.read(DagVersion)
    DeltaTable(str(root / "dag_version")).delete()
    if text is not None:
        append(root, version.evolve(definition_json=text))

    [(table, _, message)] = wrong(bfm)
    assert (table, message[: len(what)]) == ("dag_version", what)
    listed = bfm("dags", "list", "--output", "json")
    assert listed.code == 0, listed.err
    assert bfm("dags", "show", "flights").code == 2 or text is None
    manager = go_on(root)
    manager.drain()
    assert [live.row.state for live in manager.state.backfills.values()] == ["paused"]


def test_states_and_numbers_that_can_not_be_are_named(bfm: Bfm, root: Path) -> None:
    store = DeltaRsStore(str(root))
    append(root, store.read(DagRun)[0].evolve(run_id="other", state="foo", items=0))
    append(root, store.read(Pool)[0].evolve(name="third", slots=-1))
    backfill = store.read(Backfill, matching(state="paused"))[0]
    append(root, backfill.evolve(backfill_id="other", window="foo"))

    assert sorted((table, message.split(": restore")[0]) for table, _, message in wrong(bfm)) == [
        ("backfill", "window of backfill other can't be read"),
        ("dag_run", "items of 1 row is less than 1 (flights/other)"),
        ("dag_run", "state of 1 row is no state (flights/other)"),
        ("pool", "slots of 1 row is less than 1 (third)"),
    ]
    assert bfm("state", "check", "--repair").code == 1


def test_a_column_of_somebody_else_is_named_and_left_out_of_an_export(bfm: Bfm, root: Path, tmp_path: Path) -> None:
    store = DeltaRsStore(str(root))
    append(root, store.read(Pool)[0].evolve(name="third"), theirs="x")

    [(table, _, message)] = wrong(bfm)
    assert (table, "columns that don't belong there: theirs" in message) == ("pool", True)
    assert "`bfm state import --as-original` to another place" in message
    assert bfm("state", "check", "--repair").code == 1
    assert bfm("state", "export", str(tmp_path / "out")).code == 0
    restored = bfm("--state", str(tmp_path / "new"), "state", "import", str(tmp_path / "out"), "--as-original")
    assert restored.code == 0, restored.err
    assert bfm("--state", str(tmp_path / "new"), "state", "check").code == 0
    assert len(DeltaRsStore(str(tmp_path / "new")).read(Pool)) == 3


@pytest.mark.parametrize("table", ["task_try", "dag", "pool", "bundle"])
def test_a_table_that_is_gone_is_made_anew_where_its_rows_can_be_derived(bfm: Bfm, root: Path, table: str) -> None:
    before = rows_of(root)
    shutil.rmtree(root / table)

    assert unusable_line(bfm, "manager", "start").startswith(f"Table {table} of the state is missing")
    [(named, _, message)] = wrong(bfm)
    assert named == table and "the table is gone" in message.lower() and "makes it anew" in message

    repaired(bfm)
    after = rows_of(root)
    if table in ("task_try", "dag"):
        assert {row.key for row in after[table]} == {row.key for row in before[table]}
    finishes(root)


@pytest.mark.parametrize("table", ["dag_run", "backfill", "dag_version", "manager", "request"])
def test_another_table_that_is_gone_is_refused_in_a_clear_line(bfm: Bfm, root: Path, table: str) -> None:
    shutil.rmtree(root / table)

    assert f"Table {table} of the state is missing" in unusable_line(bfm, "manager", "start")
    result = bfm("state", "check", "--repair")

    assert result.code == 1
    assert f"Not repaired: {table}: the table is gone: restore it from a back-up" in " ".join(result.err.split())
    assert not (root / table).exists()


def test_nothing_is_repaired_while_a_manager_leads(bfm: Bfm, root: Path) -> None:
    store = DeltaRsStore(str(root))
    last = store.lease()
    assert last is not None
    leader = store.lead(last.evolve(term=last.term + 1, state="leading", manager_id="elsewhere", pid=1, lease_s=600))
    tear(checkpoint(root, "task_instance"))
    beats = _Beats(leader, store)

    result = beats.while_running(lambda: bfm("state", "check", "--repair"))

    assert result.code == 4
    assert "leads the state" in result.err
    assert not list(root.rglob("*.damaged"))


class _Beats:
    """A leader whose heartbeats go on beside."""

    def __init__(self, leader: Any, store: DeltaRsStore) -> None:
        self._leader, self._store = leader, store

    def while_running(self, work: Callable[[], Any]) -> Any:
        import threading

        done = threading.Event()

        def beat() -> None:
            while not done.wait(0.1):
                self._leader.heartbeat(self._leader.row.heartbeat_at)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            return work()
        finally:
            done.set()
            thread.join()


def test_requests_of_before_are_answered_and_not_carried_out_again(bfm: Bfm, root: Path) -> None:
    data_file(root, "response").unlink()

    repaired(bfm)

    store = DeltaRsStore(str(root))
    assert store.unanswered() == []
    assert ["its response was lost" in row.message for row in store.read(Response)] == [True]


def test_pages_over_a_damaged_state_name_the_command(root: Path) -> None:
    tear(checkpoint(root, "task_instance"))
    shutil.rmtree(root / "pool")
    browser = browser_of(DeltaRsStore(str(root)), SystemClock())

    for address, table in (("/dags/flights", "task_instance"), ("/pools", "pool"), ("/api/v1/pools", "pool")):
        shown = browser.get(address)
        assert shown.status_code == 503, shown.text
        assert f"Table {table}" in shown.text, address
        assert "bfm state check" in shown.text or address.startswith("/api"), address


def test_a_state_is_exported_and_restored_under_a_new_id(bfm: Bfm, root: Path, tmp_path: Path) -> None:
    before, lease = rows_of(root), DeltaRsStore(str(root)).lease()

    done = bfm("state", "export", "backups/monday.tar", "--output", "json")
    assert done.code == 0, done.err
    assert "task_instance: 8 rows" in done.err
    assert bfm("state", "export", "backups/monday.tar").error.startswith("backups/monday.tar exists already")
    restored = bfm("--state", "./restored", "state", "import", "backups/monday.tar")

    assert restored.code == 0, restored.err
    assert rows_of(tmp_path / "restored") == before
    now = DeltaRsStore(str(tmp_path / "restored")).lease()
    assert lease is not None and now is not None and now.state_id != lease.state_id and now.term == lease.term + 1
    assert bfm("--state", "./restored", "state", "import", "backups/monday.tar").code == 2
    moved = bfm("--state", "./moved", "state", "import", "backups/monday.tar", "--as-original")
    assert moved.code == 0, moved.err
    now = DeltaRsStore(str(tmp_path / "moved")).lease()
    assert now is not None and now.state_id == lease.state_id
