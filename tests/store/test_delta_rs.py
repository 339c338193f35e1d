"""Errors of folders and files, each in one line; clients at once; and who else can read the tables."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from support.state_changes import AT, changes, request, run, takes_over, task

from backfill_manager.errors import StateError, StateNotInitialised
from backfill_manager.model.records import SCHEMA_VERSION, TABLES, DagRun, Pool, Request, TaskInstance, columns
from backfill_manager.store import Store, open_store
from backfill_manager.store.base import Condition
from backfill_manager.store.delta_rs import append_turn
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import ENGINE_PROPERTY, VERSION_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    return store


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def refusal(store: Store) -> str:
    """The one line with which reading `dag_run` is refused; the state is left as it was."""
    before = snapshot(Path(store.root))
    with pytest.raises(StateError) as refused:
        store.read(DagRun)
    assert snapshot(Path(store.root)) == before
    assert refused.value.exit_code == 2
    message = str(refused.value)
    assert "\n" not in message and "\x1b" not in message and len(message) < 500
    return message


@pytest.mark.parametrize("as_uri", [False, True])
def test_a_new_state_is_readable_for_its_owner_only(tmp_path: Path, as_uri: bool) -> None:
    folder = tmp_path / "some" / "state"
    DeltaRsStore(folder.as_uri() if as_uri else str(folder)).init()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_opened_to_others_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    DeltaRsStore(str(tmp_path)).init()
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_a_state_that_was_never_made_is_reported_with_the_command_that_makes_it(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "nothing"))
    assert not store.exists()
    for submitted in (store.unanswered, store.lease, store.requests_version, lambda: store.append_request(request())):
        with pytest.raises(StateNotInitialised, match="There is no state at"):
            submitted()
    assert not (tmp_path / "nothing").exists()
    assert [finding.ok for finding in store.check()] == [False] * len(TABLES)


def test_a_table_that_is_gone_is_reported_by_name_and_place_and_can_be_made_anew(state: DeltaRsStore) -> None:
    shutil.rmtree(state.tables.location("dag_run"))
    message = refusal(open_store(state.root))
    assert "dag_run" in message and state.tables.location("dag_run") in message and "is missing" in message
    assert [finding.table for finding in state.check() if not finding.ok] == ["dag_run"]
    with pytest.raises(StateError, match="dag_run of the state is missing"):
        state.init()
    assert state.init(recreate=True) == (["dag_run"], [])
    assert state.read(DagRun) == []


def test_a_garbled_log_is_reported_by_name_and_place(state: DeltaRsStore) -> None:
    log = Path(state.tables.location("dag_run"), "_delta_log", "00000000000000000000.json")
    log.write_text("{garbage\n")
    store = open_store(state.root)
    message = refusal(store)
    assert "dag_run" in message and state.tables.location("dag_run") in message
    assert [finding.table for finding in store.check() if not finding.ok] == ["dag_run"]
    with pytest.raises(StateError, match="dag_run"):
        store.init()


@pytest.fixture(params=["alone", "beside another thread"])
def another_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where there is one, rows are read in another way."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    if request.param != "alone":
        thread.start()
    yield
    over.set()


@pytest.mark.usefixtures("another_thread")
@pytest.mark.parametrize("harm", ["garbled", "gone"])
def test_a_harmed_file_is_reported_by_name_and_place(state: DeltaRsStore, harm: str) -> None:
    takes_over(state).commit(changes(run("d", 1)))
    (file,) = Path(state.tables.location("dag_run")).glob("*.parquet")
    file.write_bytes(b"garbage") if harm == "garbled" else file.unlink()
    store = open_store(state.root)
    message = refusal(store)
    assert "dag_run" in message and state.tables.location("dag_run") in message
    (found,) = (finding for finding in store.check() if not finding.ok)
    assert found.table == "dag_run" and "\n" not in found.message


def test_a_state_of_a_newer_version_is_left_alone(state: DeltaRsStore) -> None:
    table = DeltaTable(state.tables.location("dag_run"))
    newer = SCHEMA_VERSION + 1
    table.alter.set_table_properties({VERSION_PROPERTY: str(newer)}, raise_if_not_exists=False)
    store = open_store(state.root)
    assert f"version {newer}" in refusal(store) and "newer release" in refusal(store)
    with pytest.raises(StateError, match="newer release"):
        store.init()


def test_a_state_of_the_other_engine_is_left_alone(state: DeltaRsStore) -> None:
    table = DeltaTable(state.tables.location("dag_run"))
    table.alter.set_table_properties({ENGINE_PROPERTY: "delta-spark"}, raise_if_not_exists=False)
    assert "engine delta-spark" in refusal(open_store(state.root))


def test_someone_elses_table_is_left_alone(tmp_path: Path) -> None:
    DeltaTable.create(str(tmp_path / "dag_run"), schema=a_schema())
    store = open_store(str(tmp_path))
    assert "not made by backfill_manager" in refusal(store)
    with pytest.raises(StateError, match="not made by"):
        store.init()


def a_schema() -> object:
    import pyarrow as pa

    return pa.schema([("x", pa.int64())])


def test_a_table_with_other_columns_is_found_by_the_check(state: DeltaRsStore) -> None:
    from deltalake import Field

    DeltaTable(state.tables.location("pool")).alter.add_columns([Field("colour", "string")])
    (found,) = (finding for finding in state.check() if not finding.ok)
    assert found.table == "pool" and "colour" in found.message


def test_a_place_that_can_not_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("not a folder")
    for root in (tmp_path / "a_file" / "state", Path("/proc/nothing/state")):
        store = open_store(str(root))
        with pytest.raises(StateError, match="can't be") as refused:
            store.init()
        assert "\n" not in str(refused.value) and str(root) in str(refused.value)
    assert (tmp_path / "a_file").read_text() == "not a folder"


def test_a_path_that_the_engine_can_not_read_is_refused_before_it_is_tried(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="without"):
        open_store(str(tmp_path / "a[b]"))


def test_a_storage_that_nobody_knows_is_said_by_whoever_looks_first() -> None:
    store = open_store("s3x://bucket/state")
    for use in (store.exists, store.init, lambda: store.append_request(request())):
        with pytest.raises(StateError, match="No state can be kept at s3x://bucket/state: use a folder, s3://"):
            use()


def test_the_lock_that_is_none_any_more_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    with pytest.raises(StateError, match="AWS_S3_LOCKING_PROVIDER"):
        open_store(str(tmp_path))


def test_tables_carry_no_feature_and_both_retentions(state: DeltaRsStore) -> None:
    for name in state.locations():
        table = state.tables.open(name)
        assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
        assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 10 minutes"
        assert table.metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 10 minutes"
        assert table.metadata().configuration["delta.checkpointInterval"] == "20"
        with_statistics = int(table.metadata().configuration["delta.dataSkippingNumIndexedCols"])
        assert not {"run_seq", "state", "logical_date", *TABLES[name].KEY} & set(
            list(columns(TABLES[name]))[with_statistics:]
        )
        if name != "request":  # in which `init` has let two writers race
            assert table.version() == 0, "one commit made it, with all of this in it"


def test_a_task_instance_without_a_run_is_refused_by_its_table(state: DeltaRsStore) -> None:
    leader = takes_over(state)
    stray = TaskInstance("d", None, "t", "none", leader.next_seq())  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r"task_instance .* can't be written"):
        leader.commit(changes(stray))
    assert state.read(TaskInstance) == []


def test_a_state_made_anew_is_not_taken_for_the_old_one_though_it_has_come_as_far(state: DeltaRsStore) -> None:
    takes_over(state).commit(changes(run("d", 1)))
    assert state.count("dag_run", []) == {(): 1}
    before = state.version("dag_run")
    shutil.rmtree(state.root)
    again = DeltaRsStore(state.root)
    again.init()
    takes_over(again).commit(changes(run("d", 1), run("d", 2)))
    assert state.version("dag_run") != before  # or what was read of the old one would be kept
    assert state.count("dag_run", []) == {(): 2}


def test_a_reader_outlives_a_state_that_is_made_anew(state: DeltaRsStore) -> None:
    takes_over(state).commit(changes(run("d", 1)))
    assert state.count("dag_run", []) == {(): 1}
    shutil.rmtree(state.root)
    DeltaRsStore(state.root).init()
    assert state.read(DagRun) == []


def _ask_many(root: str, who: int, n: int) -> None:
    store = open_store(root)
    for k in range(n):
        store.append_request(request(f"{who}-{k}", requested_at=AT))


def test_many_processes_may_ask_at_once_and_none_is_lost(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    lead.commit(changes(Pool("backfill", 1, 1, 0)))
    context = multiprocessing.get_context("spawn")
    clients = [context.Process(target=_ask_many, args=(state.root, who, 25)) for who in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(300)
    assert [client.exitcode for client in clients] == [0, 0, 0, 0]
    expected = {f"{who}-{k}" for who in range(4) for k in range(25)}
    assert {one.request_id for one in state.unanswered()} == expected
    lead.commit(changes(Pool("backfill", 2, 1, 0)))  # and the leader was not disturbed
    assert lead.compact()["request"] == 1
    assert sorted(one.request_id for one in state.read(Request)) == sorted(expected)


@pytest.mark.parametrize("commits", [0, 3, 8], ids=["nothing", "less", "more"])
def test_a_client_that_goes_on_with_a_state_that_was_made_anew_asks_there(state: DeltaRsStore, commits: int) -> None:
    """It keeps a handle of the table it appends to, which must not write after the last entry of another log."""
    for n in range(5):
        state.append_request(request(f"before{n}"))
    shutil.rmtree(state.root)
    again = DeltaRsStore(state.root)
    again.init()
    log = Path(state.root, "request", "_delta_log")
    made = len(list(log.glob("*.json")))
    for n in range(commits):
        again.append_request(request(f"other{n}"))
    state.append_request(request("mine"))
    assert sorted(int(entry.stem) for entry in log.glob("*.json")) == list(range(made + commits + 1))
    assert {row.request_id for row in again.unanswered()} == {"mine", *(f"other{n}" for n in range(commits))}


def test_clients_in_turn_see_what_the_others_and_the_leader_have_written(state: DeltaRsStore) -> None:
    lead, clients = takes_over(state), [DeltaRsStore(state.root) for _ in range(3)]
    asked = []
    for n in range(45):
        asked.append(f"ask{n}")
        clients[n % 3].append_request(request(asked[-1]))
        if n % 20 == 10:
            lead.compact(everywhere=True)
            lead.delete("request", [Condition("request_id", "=", asked.pop(0))])
    assert sorted(row.request_id for row in DeltaRsStore(state.root).unanswered()) == sorted(asked)


def test_a_client_that_was_stopped_in_its_turn_holds_the_others_up_for_a_moment(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_turn, "MAX_WAIT_S", 0.2)
    with append_turn.turn_to_append(f"{state.root}/request"):
        state.append_request(request("mine"))
    with append_turn.turn_to_append("s3://bucket/state/request"):
        state.append_request(request("also mine"))
    assert {row.request_id for row in state.unanswered()} == {"mine", "also mine"}


def test_reading_and_asking_load_nothing_heavy(state: DeltaRsStore) -> None:
    takes_over(state).commit(changes(run("d", 1, logical_date=AT)))
    script = f"""
import sys
from backfill_manager.store import Condition, open_store
from backfill_manager.model.records import DagRun, Request
from datetime import datetime, timezone
store = open_store({state.root!r})
assert store.read(DagRun, [Condition("state", "=", "running")])[0].logical_date.year == 2024
store.append_request(Request("q", "k", "{{}}", "me", datetime.now(timezone.utc)))
assert len(store.unanswered()) == 1 and store.count("dag_run", ["state"]) and store.lease() and store.requests_version()
assert store.query("SELECT count(*) FROM dag_run")[1] == [(1,)]
heavy = {{"pyarrow", "pandas", "numpy", "pyspark", "py4j"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert (done.returncode, done.stderr) == (0, "")


def test_spark_reads_what_delta_rs_wrote(state: DeltaRsStore, spark: SparkSession) -> None:
    lead = takes_over(state)
    lead.commit(changes(*(task("d", n, started_at=AT) for n in range(1, 31)), *(run("d", n) for n in range(1, 31))))
    lead.commit(changes(*(task("d", n, state="success", started_at=AT) for n in range(1, 11))))
    frame = spark.read.format("delta").load(state.locations()["task_instance"])
    assert {row["state"]: row["count"] for row in frame.groupBy("state").count().collect()} == {
        "success": 10,
        "none": 20,
    }
    assert frame.selectExpr("unix_micros(min(started_at))").first()[0] == round(AT.timestamp() * 1_000_000)


@pytest.mark.parametrize("name", ["a%20b", "a[b", "a^b"])
def test_a_path_that_delta_rs_takes_for_another_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StateError, match="choose a path without"):
        DeltaRsStore(str(tmp_path / name)).init()
    for fine in ("50%", "50% of", "a b"):
        DeltaRsStore(str(tmp_path / fine)).init()
        assert DeltaRsStore(str(tmp_path / fine)).exists()
