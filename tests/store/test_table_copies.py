"""A command over an object store reads copies: the same rows, in a few round trips, and never old ones."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import obstore
import pytest
from obstore.exceptions import GenericError
from support.page_client import browser_of
from support.s3_server import BUCKET, s3_in_environ
from support.sample_state import StandingClock
from support.state_changes import changes, request, run, takes_over, task, unique
from support.store_proxy import StoreProxy, store_proxy

from backfill_manager.errors import StateError, StateNotInitialised
from backfill_manager.model.records import TABLES, DagRun, Request, TaskInstance
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_rs import copies
from backfill_manager.store.delta_rs import tables as delta_tables
from backfill_manager.store.delta_rs.copies import can_copy
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.refresh_once import refresh_once


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_in_environ() as address:
        yield address


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[StoreProxy]:
    with store_proxy(s3) as made:
        yield made


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state with three runs, each of a commit of its own."""
    folder = tmp_path_factory.mktemp("three") / "state"
    store = DeltaRsStore(str(folder))
    store.init()
    made = takes_over(store)
    for n in (1, 2, 3):
        made.commit(changes(run("d", n), task("d", n)))
    return folder


@pytest.fixture
def empty(proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where no state is yet."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", 60.0)  # a busy machine may take long to look
    proxy.plan()
    return f"s3://{BUCKET}/{unique('state')} of 'two words'"


@pytest.fixture
def root(empty: str, s3: str, three_runs: Path) -> str:
    """The same in the object store."""
    place = quote(empty.removeprefix("s3://"))
    for file in three_runs.rglob("*"):
        if file.is_file():
            name = file.relative_to(three_runs)
            httpx.put(f"{s3}/{place}/{name}", content=file.read_bytes()).raise_for_status()
    return empty


@pytest.fixture
def leader(root: str) -> Leader:
    return takes_over(DeltaRsStore(root))


@pytest.fixture
def command(root: str) -> Iterator[DeltaRsStore]:
    """The store of a command."""
    store = DeltaRsStore(root)
    store.read_copies()
    with refresh_once():
        yield store


def runs(store: DeltaRsStore) -> list[str]:
    return [row.run_id for row in store.read(DagRun, order_by=["run_seq"])]


def asked(proxy: StoreProxy) -> Counter[str]:
    """Paths of the requests since the last time."""
    found = Counter(path for _, path, _, _ in proxy.seen())
    proxy.plan()
    return found


def test_each_table_is_listed_once_and_each_object_fetched_once(proxy: StoreProxy, command: DeltaRsStore) -> None:
    proxy.plan()
    assert command.exists() and runs(command) == ["run1", "run2", "run3"]
    seen = asked(proxy)
    assert sum("list-type" in path for path in seen) == len(TABLES)
    assert set(seen.values()) == {1}
    assert {path.split("/")[3] for path in seen if "list-type" not in path} == {"dag_run"}, "and no other table"
    plain = DeltaRsStore(command.tables.root)
    for table in TABLES:
        assert command.version(table) == plain.version(table)
        assert command.count(table, []) == plain.count(table, [])
    assert command.read(TaskInstance) == plain.read(TaskInstance)
    assert command.query("SELECT count(*) AS n FROM task_instance WHERE run_seq > 1") == (["n"], [(2,)])
    asked(proxy)
    assert command.count("dag_run", []) == {(): 3} and command.lease() is not None
    assert not asked(proxy), "what is here is not asked for again"


def test_what_was_committed_is_seen_by_the_next_look(
    proxy: StoreProxy, leader: Leader, command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(command) == ["run1", "run2", "run3"]
    leader.commit(changes(run("d", 4)))
    assert runs(command) == ["run1", "run2", "run3"], "one look"
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", -1.0)
    asked(proxy)
    assert runs(command) == ["run1", "run2", "run3", "run4"]
    seen = asked(proxy)
    assert len(seen) == 3 and any("list-type" in path for path in seen), "the log, its new entry, and the new file"
    command.append_request(request("mine"))
    assert [row.request_id for row in command.unanswered()] == ["mine"]


def test_a_compacted_table_is_read_from_its_checkpoint_and_what_it_has_no_more_is_deleted(
    leader: Leader, command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "UNUSED_FOR_S", 0.0)
    assert runs(command) == ["run1", "run2", "run3"]
    leader.compact(everywhere=True)
    leader.commit(changes(run("d", 4)))
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", -1.0)
    assert runs(command) == ["run1", "run2", "run3", "run4"]
    kept = command.tables._copies
    assert kept is not None
    (folder,) = kept.folder.glob("*/dag_run")
    files = {Path(uri).name for uri in command.tables.open("dag_run").file_uris()}
    assert {file.name for file in folder.glob("*.parquet")} == files
    names = sorted(file.name for file in (folder / "_delta_log").iterdir())
    assert "checkpoint" in names[0] or "checkpoint" in names[1], names
    assert len({name[:20] for name in names}) < 4, "and none of the entries before it"


def test_copies_that_a_cleaner_of_tmp_deleted_are_made_again_for_this_user_only(
    command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs(command) == ["run1", "run2", "run3"]
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", -1.0)
    monkeypatch.setattr(delta_tables, "NO_COPIES_FOR_S", 0.0)
    kept = command.tables._copies
    assert kept is not None
    shutil.rmtree(kept.folder)
    assert command.count(TaskInstance.TABLE, []) == {(): 3}, "of the table itself"
    assert runs(command) == ["run1", "run2", "run3"]
    assert {place.stat().st_mode & 0o777 for place in (kept.folder, *kept.folder.iterdir())} == {0o700}
    assert list(kept.folder.glob("*/dag_run")), "copied again"


@pytest.mark.parametrize("compacted", [False, True])
def test_a_state_that_was_made_anew_is_copied_anew(
    compacted: bool, root: str, command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose log has no version in common with what was copied; then nothing was read in between."""
    if compacted:
        elsewhere(lambda: takes_over(DeltaRsStore(root)).compact(everywhere=True))
    assert runs(command) == ["run1", "run2", "run3"]
    objects: Any = obstore.store.from_url(f"s3://{BUCKET}")
    place = root.removeprefix(f"s3://{BUCKET}/")
    obstore.delete(objects, [one["path"] for some in obstore.list(objects, prefix=place) for one in some])
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", -1.0)
    if not compacted:
        with pytest.raises(StateNotInitialised):
            runs(command)

    def make_anew() -> None:
        again = DeltaRsStore(root)
        again.init()
        takes_over(again).commit(changes(run("d", 7), task("d", 7)))

    elsewhere(make_anew)
    assert runs(command) == ["run7"]
    assert command.tables._copied("dag_run", with_files=True) is not None


def elsewhere(act: Callable[[], Any]) -> None:
    """As another process does it: a take-over ends the look of its own."""
    copy_context().run(act)


@pytest.mark.parametrize("most", [0, copies.MAX_BYTES])
def test_a_large_table_is_copied_when_it_is_read_and_a_larger_one_is_not(
    most: int, proxy: StoreProxy, command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "SMALL_BYTES", 0)
    monkeypatch.setattr(copies, "MAX_BYTES", most)
    proxy.plan()
    assert command.version("dag_run")
    assert not any(".parquet" in path for path in asked(proxy))
    assert runs(command) == ["run1", "run2", "run3"]
    assert command.count("dag_run", [], [Condition("run_seq", "=", 2)]) == {(): 1}
    files = {path: times for path, times in asked(proxy).items() if ".parquet" in path}
    assert all("/dag_run/" in path for path in files)
    assert (set(files.values()) == {1}) is (most > 0), "elsewhere each statement reads it where it is"


def test_a_page_fetches_each_object_once_and_asks_one_request_for_each_table_from_then_on(
    proxy: StoreProxy, root: str
) -> None:
    store = DeltaRsStore(root)
    store.read_copies()
    browser = browser_of(store, StandingClock())
    proxy.plan()
    assert browser.get("/backfills").status_code == 200
    first = asked(proxy)
    assert set(first.values()) == {1}
    assert browser.get("/backfills").status_code == 200
    again = asked(proxy)
    assert len(again) < len(TABLES) and all("list-type" in path for path in again)
    store.close()


def test_the_first_page_of_a_server_that_has_prefetched_asks_one_request_for_each_table(
    proxy: StoreProxy, root: str, leader: Leader
) -> None:
    store = DeltaRsStore(root)
    store.read_copies()
    asked(proxy)
    store.prepare_reads(lambda: False)
    fetched = asked(proxy)
    assert set(fetched.values()) == {1}
    leader.commit(changes(run("d", 4)))
    browser = browser_of(store, StandingClock())
    asked(proxy)
    assert "run4" in browser.get("/runs").text
    seen = asked(proxy)
    fetched_now = [path for path in seen if "list-type" not in path]
    assert len(seen) - len(fetched_now) == len(TABLES)
    assert len(fetched_now) == 2 and all("/dag_run/" in path for path in fetched_now), "what has been committed since"
    store.close()


def test_a_prefetch_that_fails_is_met_again_by_who_reads(proxy: StoreProxy, root: str, empty: str) -> None:
    store = DeltaRsStore(root)
    store.read_copies()
    proxy.plan(faults={"fail": 1.0})
    store.prepare_reads(lambda: False)
    proxy.plan()
    with refresh_once():
        assert runs(store) == ["run1", "run2", "run3"]
    store.close()


def test_what_cannot_be_copied_is_read_where_it_is(
    proxy: StoreProxy, command: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise GenericError("no such luck")

    with monkeypatch.context() as broken:
        broken.setattr(copies.obstore, "get", fails)
        assert command.exists() and runs(command) == ["run1", "run2", "run3"]
    assert (command.tables._copied("dag_run", with_files=True)) is None, "not at once"
    command.tables._copied_from = 0.0  # a minute later
    asked(proxy)
    assert command.count("dag_run", []) == {(): 3}
    assert any(".parquet" in path for path in asked(proxy)), "a copy again"
    assert command.tables._copied("dag_run", with_files=True) is not None


def test_a_store_that_is_away_is_reported_as_without_copies(proxy: StoreProxy, empty: str) -> None:
    store = DeltaRsStore(empty)
    store.read_copies()
    with refresh_once(), pytest.raises(StateNotInitialised):
        store.read(Request)
    proxy.plan(faults={"fail": 1.0})
    with refresh_once(), pytest.raises(StateError, match="Table request at s3://"):
        store.read(Request)


def test_the_copies_are_this_users_alone_and_end_with_the_store(command: DeltaRsStore) -> None:
    assert runs(command)
    kept = command.tables._copies
    assert kept is not None
    folder = kept.folder
    assert folder.stat().st_mode & 0o777 == 0o700 and list(folder.rglob("*.parquet"))
    command.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("location", "environ", "has_profiles", "can"),
    [
        ("s3://b/s", {"AWS_ACCESS_KEY_ID": "a"}, True, True), ("s3://b/s", {}, True, False), ("s3://b/s", {}, False, True),
        ("s3a://b/s", {"AWS_PROFILE": "p"}, False, False), ("s3://b/s", {"AWS_WEB_IDENTITY_TOKEN_FILE": "t"}, True, True),
        ("az://c/s", {}, True, True), ("gs://b/s", {}, False, True), ("/a/folder", {}, False, False),
    ],
)  # fmt: skip
def test_aws_profiles_are_for_delta_rs_alone(
    location: str, environ: dict[str, str], has_profiles: bool, can: bool, tmp_path: Path
) -> None:
    if has_profiles:
        (tmp_path / ".aws").mkdir()
    assert can_copy(location, environ, tmp_path) is can
