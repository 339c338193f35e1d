"""`state check`, `--repair`, `state export` and `state import` of a state in an object store: S3 (moto) and Azure (azurite)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs
from support.azure_server import CONTAINER, WHERE_TO_GET_IT, azure_in_environ, find_azurite
from support.bfm import Bfm
from support.recorded_state import go_on, recorded_state, rows_of
from support.s3_server import BUCKET, s3_in_environ
from support.state_changes import unique

from backfill_manager.store.delta_rs.store import DeltaRsStore


@pytest.fixture(scope="module", params=["s3", pytest.param("azure", marks=pytest.mark.slow)])
def box(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of an empty bucket or container."""
    if request.param == "s3":
        with s3_in_environ():
            yield f"s3://{BUCKET}"
    elif find_azurite() is None:
        pytest.skip(WHERE_TO_GET_IT)
    else:
        with azure_in_environ(tmp_path_factory.mktemp("azurite")):
            yield f"az://{CONTAINER}"


@pytest.fixture(scope="module")
def written(box: str) -> dict[str, bytes]:
    """The objects of a state, which is gone: what is made of them is no copy of one that is still there."""
    root = f"{box}/written"
    recorded_state(root)
    for table in ("task_instance", "manager"):
        DeltaTable(f"{root}/{table}").create_checkpoint()
    files = Files(root)
    objects = {path: files.read(path) for path in files.names()}
    for path in objects:
        files.system.delete_file(path)
    return objects


@pytest.fixture
def root(box: str, written: dict[str, bytes], bfm: Bfm) -> str:
    """A state that a test may damage."""
    new = f"{box}/{unique('state')}"
    files = Files(new)
    for path, content in written.items():
        files.write(path, content)
    return new


class Files:
    """Of a state, or of one table."""

    def __init__(self, root: str, table: str = "") -> None:
        self.place = f"{root}/{table}"
        handler = DeltaStorageHandler(self.place)
        self.system, self._raw = fs.PyFileSystem(handler), handler._handler

    def names(self, folder: str = "", ending: str = "") -> list[str]:
        found = self.system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        return sorted(info.path for info in found if info.type == fs.FileType.File and info.path.endswith(ending))

    def read(self, path: str) -> bytes:
        with self.system.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        stream = self._raw.open_output_stream(path, None)  # pyarrow's own stream gives it what it can't take
        stream.write(content)
        stream.close()

    def tear(self, path: str) -> None:
        content = self.read(path)
        self.write(path, content[: len(content) // 2])

    def data_file(self) -> str:
        """The one with most rows."""
        added = DeltaTable(self.place).get_add_actions(flatten=True)
        return str(max(zip(added["num_records"].to_pylist(), added["path"].to_pylist(), strict=True))[1])


def wrong(bfm: Bfm, root: str) -> list[tuple[str, str]]:
    checked = bfm("--state", root, "state", "check", "--output", "json")
    found = [(one["table"], one["file"]) for one in checked.document if one["outcome"] == "wrong"]
    assert checked.code == (1 if found else 0), checked.err
    return found


def repaired(bfm: Bfm, root: str) -> str:
    result = bfm("--state", root, "state", "check", "--repair")
    assert result.code == 0, result.out + result.err
    assert wrong(bfm, root) == []
    return " ".join(result.err.split())


@pytest.mark.slow
def test_a_truncated_checkpoint_is_made_again_from_the_log(bfm: Bfm, root: str) -> None:
    before, files = rows_of(root), Files(root, "task_instance")
    assert wrong(bfm, root) == []
    (checkpoint,) = files.names(ending=".checkpoint.parquet")
    files.tear(checkpoint)
    assert wrong(bfm, root) == [("task_instance", checkpoint)]
    assert f"Repaired: task_instance: {checkpoint}" in repaired(bfm, root)
    assert rows_of(root) == before
    assert files.names(ending=".damaged") == [f"{checkpoint}.damaged"]


@pytest.mark.parametrize("is_gone", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["truncated", "gone"])
def test_rows_of_a_lost_data_file_are_made_again(bfm: Bfm, root: str, is_gone: bool) -> None:
    before, files = rows_of(root), Files(root, "task_try")
    file = files.data_file()
    if is_gone:
        files.system.delete_file(file)
    else:
        files.tear(file)
    assert wrong(bfm, root) == [("task_try", file)]
    assert "Made again" in repaired(bfm, root)
    after = rows_of(root)
    assert {row.key for row in after["task_try"]} == {row.key for row in before["task_try"]}
    assert not go_on(root).store.unanswered()


@pytest.mark.slow
def test_a_damaged_last_log_entry_is_set_aside_and_a_manager_goes_on(bfm: Bfm, root: str) -> None:
    files = Files(root, "dag_run")
    last = files.names("_delta_log", ".json")[-1]
    files.tear(last)
    assert wrong(bfm, root) == [("dag_run", last)]
    assert "the commit is undone" in repaired(bfm, root)
    manager = go_on(root)
    manager.ask("backfill.unpause", backfill_id=next(iter(manager.state.backfills)))
    manager.drain()
    assert not manager.state.runs and not manager.state.backfills and not manager.store.unanswered()


@pytest.mark.slow
def test_a_table_that_is_gone_is_made_anew(bfm: Bfm, root: str) -> None:
    before, files = rows_of(root), Files(root, "task_try")
    for name in files.names():
        files.system.delete_file(name)
    assert [table for table, _ in wrong(bfm, root)] == ["task_try"]
    repaired(bfm, root)
    assert {row.key for row in rows_of(root)["task_try"]} == {row.key for row in before["task_try"]}


def test_it_is_exported_and_imported_elsewhere(bfm: Bfm, root: str) -> None:
    before, new = rows_of(root), f"{root}-new"
    assert (done := bfm("--state", root, "state", "export", "back-up.tar")).code == 0, done.err
    assert (done := bfm("--state", new, "state", "import", "back-up.tar", "--as-original")).code == 0, done.err
    assert rows_of(new) == before
    assert bfm("--state", new, "state", "import", "back-up.tar").code == 2, "it is not empty"
    lease, was = DeltaRsStore(new).lease(), DeltaRsStore(root).lease()
    assert lease is not None and was is not None and lease.state_id == was.state_id
