"""A state is exported and imported, whatever the engine; what differs from its manifest is refused."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.recorded_state import go_on, recorded_state, rows_of

from backfill_manager.clock import SystemClock
from backfill_manager.errors import InvalidInput, StateError
from backfill_manager.manager.maintenance.short_leadership import adopt_state
from backfill_manager.manager.maintenance.state_transfer import export_state, import_state
from backfill_manager.model.records import SCHEMA_VERSION, TABLES, BackfillItem, TaskInstance
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.memory import MemoryStore
from backfill_manager.store.whole_tables import BATCH_ROWS, batch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS, CODE = "tables/dag_run.parquet", "snapshots/abc/dag.py"
NOW = datetime(2024, 3, 1, tzinfo=timezone.utc)


def quiet(_: str) -> None:
    """Nobody reads how far it is."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shown") / "state"
    recorded_state(made)
    (made / "snapshots" / "abc").mkdir(parents=True)
    (made / "snapshots" / "abc" / "dag.py").write_text("# the code")
    return made


@pytest.fixture(scope="module")
def exported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "first"
    export_state(DeltaRsStore(str(root)), folder, root / "snapshots", NOW, quiet)
    return folder


@pytest.fixture
def export(exported: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(exported, tmp_path / "export"))


def rows_in(store: Store) -> dict[str, set[Any]]:
    return {name: set(store.read(record)) for name, record in TABLES.items() if name != "manager"}


@pytest.mark.parametrize("name", ["back-up", "back-up.tar"])
def test_what_was_exported_is_imported_and_a_manager_goes_on(root: Path, tmp_path: Path, name: str) -> None:
    shown: list[str] = []
    manifest = export_state(DeltaRsStore(str(root)), tmp_path / name, root / "snapshots", NOW, shown.append)
    assert manifest["schema_version"] == SCHEMA_VERSION and manifest["state_id"]
    assert manifest["tables"]["backfill_item"]["rows"] == 7
    assert "backfill_item: 7 rows" in shown

    new = tmp_path / "new"
    import_state(DeltaRsStore(str(new)), tmp_path / name, new / "snapshots", quiet)

    assert rows_of(new) == rows_of(root)
    assert (new / "snapshots" / "abc" / "dag.py").read_text() == "# the code"
    assert all(finding.ok for finding in DeltaRsStore(str(new)).check())


@pytest.mark.parametrize("name", ["back-up", "back-up.tar"])
def test_an_export_is_readable_for_its_owner_only_and_so_is_what_is_made_of_it(
    root: Path, tmp_path: Path, name: str
) -> None:
    (root / "snapshots").chmod(0o755)  # as where another user's executors read them
    before = os.umask(0o022)
    try:
        export_state(DeltaRsStore(str(root)), tmp_path / name, root / "snapshots", NOW, quiet)
        import_state(DeltaRsStore(str(tmp_path / "new")), tmp_path / name, tmp_path / "code", quiet)
        import_state(DeltaRsStore(str(tmp_path / "usual")), tmp_path / name, tmp_path / "usual" / "snapshots", quiet)
        (tmp_path / "shared").mkdir(mode=0o750)
        import_state(DeltaRsStore(str(tmp_path / "other")), tmp_path / name, tmp_path / "shared", quiet)
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_mode & 0o077 == 0
    for made in ("code", "new", "usual", "usual/snapshots"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o750  # one that was there keeps its mode
    assert (tmp_path / "shared" / "abc" / "dag.py").read_text() == "# the code"


def test_a_copy_never_has_the_id_of_the_original_also_when_its_import_is_killed(
    root: Path, export: Path, tmp_path: Path
) -> None:
    """Its lease and its own id are one commit, the last one."""
    new, was = tmp_path / "new", DeltaRsStore(str(root)).lease()
    import_state(DeltaRsStore(str(new)), export, new / "snapshots", quiet, as_copy=SystemClock())
    lease = DeltaRsStore(str(new)).lease()
    assert was is not None and lease is not None
    assert (lease.term, lease.state, lease.state_root) == (was.term + 1, "stopped", str(new))
    assert lease.state_id not in (None, was.state_id) and lease.ticks is None
    log = DeltaTable(str(new / "manager")).history()
    assert [entry["operation"] for entry in log] == ["WRITE", "CREATE TABLE"]
    manager = go_on(new)
    assert manager.leader.term == was.term + 2 and manager.leader.row.state_id == lease.state_id


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.TGZ"])
def test_an_archive_of_another_kind_is_refused(root: Path, tmp_path: Path, name: str) -> None:
    """It would be a folder of that name."""
    with pytest.raises(InvalidInput, match=rf"{name}: an export is a folder, or a file that ends with \.tar"):
        export_state(DeltaRsStore(str(root)), tmp_path / name, root / "snapshots", NOW, quiet)
    assert list(tmp_path.iterdir()) == []


def test_snapshots_that_are_there_stay_as_they_are_and_half_a_copy_of_one_is_none(
    root: Path, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of snapshots can't be written by their owner, so whoever is not root could not import a second time."""
    shared = tmp_path / "shared"
    copytree = shutil.copytree

    def killed(source: Path, target: Path) -> Path:
        Path(target).mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "copytree", killed)
        import_state(DeltaRsStore(str(tmp_path / "new")), export, shared, quiet)
    assert shutil.copytree is copytree and not (shared / "abc").exists()
    import_state(DeltaRsStore(str(tmp_path / "new")), export, shared, quiet)
    there = (shared / "abc" / "dag.py").stat()
    import_state(DeltaRsStore(str(tmp_path / "other")), export, shared, quiet)
    now = (shared / "abc" / "dag.py").stat()
    assert (now.st_mtime_ns, now.st_ctime_ns) == (there.st_mtime_ns, there.st_ctime_ns), "it was not written"


def test_snapshots_that_can_not_be_written_are_one_line(export: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"The snapshots can't be copied to .*file/below: Not a directory\."):
        import_state(DeltaRsStore(str(tmp_path / "new")), export, tmp_path / "file" / "below", quiet)
    assert not (tmp_path / "new").exists()


def test_it_goes_on_where_it_was(root: Path, export: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    import_state(DeltaRsStore(str(new)), export, new / "snapshots", quiet)
    root.rename(root.with_name("away"))
    try:
        manager = go_on(new)
        manager.ask("backfill.unpause", backfill_id=next(iter(manager.state.backfills)))
        manager.drain()
        assert {item.state for item in manager.store.read(BackfillItem)} == {"success", "failed"}
    finally:
        root.with_name("away").rename(root)


def test_a_snapshot_that_is_being_made_is_left_out_and_one_that_is_gone_is_named(root: Path, tmp_path: Path) -> None:
    snapshots = tmp_path / "snapshots"
    (snapshots / ".making-abc").mkdir(parents=True)
    (snapshots / "abc").mkdir()
    export_state(DeltaRsStore(str(root)), tmp_path / "export", snapshots, NOW, quiet)
    assert [one.name for one in (tmp_path / "export" / "snapshots").iterdir()] == ["abc"]
    (snapshots / "abc" / "dag.py").symlink_to("deleted.py")  # as a file that is gone between listing and copying
    with pytest.raises(StateError, match=r"abc/dag.py can't be copied .*If it was deleted meanwhile, export again"):
        export_state(DeltaRsStore(str(root)), tmp_path / "again", snapshots, NOW, quiet)
    assert not (tmp_path / "again").exists()


def test_an_export_moves_between_engines(root: Path, export: Path, tmp_path: Path) -> None:
    memory, back = MemoryStore(), DeltaRsStore(str(tmp_path / "back"))
    import_state(memory, export, tmp_path / "snapshots", quiet)
    assert rows_in(memory) == rows_in(DeltaRsStore(str(root)))

    export_state(memory, tmp_path / "again", tmp_path / "snapshots", NOW, quiet)
    import_state(back, tmp_path / "again", tmp_path / "snapshots2", quiet)
    assert rows_in(back) == rows_in(memory)


def test_it_moves_into_a_catalog_and_back(spark: SparkSession, root: Path, export: Path, tmp_path: Path) -> None:
    from backfill_manager.store.delta_spark.store import DeltaSparkStore

    catalog, back = DeltaSparkStore("spark_catalog.imported_state", spark), DeltaRsStore(str(tmp_path / "back"))
    import_state(catalog, export, tmp_path / "snapshots", quiet)
    assert rows_in(catalog) == rows_in(DeltaRsStore(str(root)))
    assert not catalog.tables.is_half_imported()

    export_state(catalog, tmp_path / "again", tmp_path / "snapshots", NOW, quiet)
    import_state(back, tmp_path / "again", tmp_path / "snapshots2", quiet)
    assert rows_in(back) == rows_in(catalog)


def test_tables_are_plain_parquet_files(export: Path) -> None:
    assert pq.read_table(export / "tables" / "backfill_item.parquet").num_rows == 7


def test_a_state_that_is_not_empty_is_left_alone(root: Path, export: Path) -> None:
    before = rows_of(root)
    with pytest.raises(StateError, match=r"There is a state at .* already"):
        import_state(DeltaRsStore(str(root)), export, root / "snapshots", quiet)
    assert rows_of(root) == before


def change_manifest(export: Path, **values: Any) -> None:
    manifest = json.loads((export / "manifest.json").read_text())
    (export / "manifest.json").write_text(json.dumps({**manifest, **values}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: change_manifest(folder, schema_version=SCHEMA_VERSION + 1), f"of state version {SCHEMA_VERSION + 1}"),
        (lambda folder: (folder / RUNS).write_bytes(b"PAR1"), f"the checksum of {RUNS} differs"),
        (lambda folder: (folder / RUNS).unlink(), f"{RUNS} is missing"),
        (lambda folder: (folder / CODE).write_text("# other"), f"the checksum of {CODE} differs"),
        (lambda folder: (folder / "snapshots" / "more.py").write_text(""), "snapshots/more.py is new"),
        (lambda folder: (folder / "snapshots" / "l.py").symlink_to("/etc/passwd"), "snapshots/l.py is a link or no file"),
        (lambda folder: (folder / "snapshots" / "abd").symlink_to("/etc"), "snapshots/abd is a link or no file"),
        (lambda folder: os.mkfifo(folder / "snapshots" / "abc" / "pipe"), "snapshots/abc/pipe is a link or no file"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "its manifest.json is missing or damaged"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_was_written_is_refused_before_anything_is_made(
    export: Path, tmp_path: Path, damage: Any, message: str
) -> None:
    damage(export)
    with pytest.raises(InvalidInput, match=re.escape(message)):
        import_state(DeltaRsStore(str(tmp_path / "new")), export, tmp_path / "new" / "snapshots", quiet)
    assert not (tmp_path / "new").exists()


def test_a_truncated_archive_is_refused(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.tar"
    export_state(DeltaRsStore(str(root)), file, root / "snapshots", NOW, quiet)
    packed = tmp_path / "state.tar.gz"
    packed.write_bytes(gzip.compress(file.read_bytes())[:5000])
    file.write_bytes(file.read_bytes()[:5000])
    for one in (file, packed):
        with pytest.raises(InvalidInput, match=r"state\.tar"):
            import_state(DeltaRsStore(str(tmp_path / "new")), one, tmp_path / "new" / "snapshots", quiet)


def test_an_import_that_breaks_off_leaves_no_state_that_can_be_led(export: Path, tmp_path: Path) -> None:
    class BreaksOff(DeltaRsStore):
        def fill(self, batches_of: Any) -> None:
            def broken(table: str) -> Iterator[pa.RecordBatch]:
                if table == "dag_run":
                    raise OSError("the export is on a disk that is gone")
                yield from batches_of(table)

            super().fill(broken)

    with pytest.raises(StateError, match="dag_run"):
        import_state(BreaksOff(str(tmp_path / "new")), export, tmp_path / "new" / "snapshots", quiet)

    store = DeltaRsStore(str(tmp_path / "new"))
    with pytest.raises(StateError, match="Table manager of the state is missing"):
        store.init()
    before = {
        name: DeltaTable(path).version() for name, path in store.locations().items() if DeltaTable.is_deltatable(path)
    }
    # Its rows would be there twice.
    with pytest.raises(StateError, match="is a part of a state: an import broke off there"):
        import_state(DeltaRsStore(str(tmp_path / "new")), export, tmp_path / "new" / "snapshots", quiet)
    assert before and before == {name: DeltaTable(store.locations()[name]).version() for name in before}


class BrokenOff(Exception):
    """As a kill in the middle of an import."""


def broken_off(table: str, batches_of: Any) -> Any:
    """Gives what comes before this table."""

    def broken(name: str) -> Iterator[pa.RecordBatch]:
        if name == table:
            raise BrokenOff
        yield from batches_of(name)

    return broken


def refuses_to_be_led(store: Store) -> None:
    with pytest.raises(StateError, match="is a part of a state: an import broke off there, or is going on"):
        adopt_state(store, Settings(), SystemClock(), "copy")
    assert store.lease() is None


@pytest.mark.parametrize("table", ["dag_run", "manager"])
def test_an_import_into_empty_tables_that_breaks_off_leaves_no_state_that_can_be_led(
    export: Path, tmp_path: Path, table: str
) -> None:
    class BreaksOff(DeltaRsStore):
        def fill(self, batches_of: Any) -> None:
            super().fill(broken_off(table, batches_of))

    store = BreaksOff(str(tmp_path / "new"))
    store.init()
    with pytest.raises(StateError, match=f"Table {table} at .* can't be written"):
        import_state(store, export, tmp_path / "new" / "snapshots", quiet)
    refuses_to_be_led(store)


def test_an_import_into_a_catalog_that_breaks_off_leaves_no_state_that_can_be_led(
    spark: SparkSession, export: Path, tmp_path: Path
) -> None:
    from backfill_manager.store.delta_spark.store import DeltaSparkStore

    class BreaksOff(DeltaSparkStore):
        def fill(self, batches_of: Any) -> None:
            super().fill(broken_off("dag_run", batches_of))

    store = BreaksOff("spark_catalog.half_imported_state", spark)
    with pytest.raises(BrokenOff):
        import_state(store, export, tmp_path / "snapshots", quiet)
    refuses_to_be_led(store)


def test_a_state_that_was_never_led_can_be_led_where_it_is_imported(tmp_path: Path) -> None:
    store, new = DeltaRsStore(str(tmp_path / "state")), DeltaRsStore(str(tmp_path / "new"))
    store.init()
    export_state(store, tmp_path / "export", tmp_path / "none", NOW, quiet)
    import_state(new, tmp_path / "export", tmp_path / "none", quiet, as_copy=SystemClock())
    adopt_state(new, Settings(), SystemClock(), "copy")
    lease = new.lease()
    assert lease is not None and lease.term == 1


def test_tables_that_are_written_meanwhile_are_of_one_moment(tmp_path: Path) -> None:
    """What is committed after the moment is not in the export, of no table."""
    manager = recorded_state(tmp_path / "state")
    before = rows_of(tmp_path / "state")
    pinned = DeltaRsStore(str(tmp_path / "state")).pin()
    later = go_on(tmp_path / "state")
    later.ask("backfill.unpause", backfill_id=next(iter(later.state.backfills)))
    later.drain()

    class Pinned(MemoryStore):
        def pin(self) -> Any:
            return pinned

    source = Pinned()
    source.init()
    export_state(source, tmp_path / "export", tmp_path / "none", NOW, quiet)
    new = tmp_path / "new"
    import_state(DeltaRsStore(str(new)), tmp_path / "export", new / "snapshots", quiet)
    assert rows_of(new) == before != rows_of(tmp_path / "state")
    assert manager is not later


@pytest.mark.slow
def test_a_million_task_instances_need_bounded_memory(tmp_path: Path) -> None:
    rows, store = 1_000_000, DeltaRsStore(str(tmp_path / "large"))

    def batches_of(table: str) -> Iterator[pa.RecordBatch]:
        if table == "task_instance":
            for begin in range(0, rows, BATCH_ROWS):
                yield batch_of(table, [
                    TaskInstance(dag_id="d", run_id=f"backfill__{n}", task_id="t", state="success", run_seq=n)
                    for n in range(begin, begin + BATCH_ROWS)
                ])  # fmt: skip

    store.fill(batches_of)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    export_state(store, tmp_path / "export", tmp_path / "none", NOW, quiet)
    import_state(DeltaRsStore(str(tmp_path / "new")), tmp_path / "export", tmp_path / "none", quiet)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert DeltaRsStore(str(tmp_path / "new")).count("task_instance", [])[()] == rows
    assert grown_mb < 600, f"{grown_mb:.0f} MB"


def test_an_archive_is_unpacked_where_the_state_will_be_and_nothing_is_left_of_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for temporary files may be in memory, and small."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    file, place = tmp_path / "state.tar", tmp_path / "place"
    export_state(DeltaRsStore(str(root)), file, root / "snapshots", NOW, quiet)
    place.mkdir()
    seen = list[tuple[str, int]]()

    def look(_: str) -> None:
        seen.extend((one.name[:12], one.stat().st_mode & 0o777) for one in place.iterdir() if one.name != "new")

    import_state(DeltaRsStore(str(place / "new")), file, place / "new" / "snapshots", look)
    assert set(seen) == {(".bfm-import-", 0o700)}
    assert [one.name for one in place.iterdir()] == ["new"]

    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InvalidInput, match="can't be read as an export"):
        import_state(DeltaRsStore(str(place / "more")), file, place / "more" / "snapshots", quiet)
    assert [one.name for one in place.iterdir()] == ["new"]


KILLED = """
import sys
from datetime import datetime, timezone
from pathlib import Path
from backfill_manager.manager.maintenance.state_transfer import export_state, import_state
from backfill_manager.store.delta_rs.store import DeltaRsStore

def wait(_):
    print("begun", flush=True)
    sys.stdin.read()

what, state, file = sys.argv[1:]
if what == "export":
    export_state(DeltaRsStore(state), Path(file), Path(state) / "snapshots", datetime.now(timezone.utc), wait)
else:
    import_state(DeltaRsStore(state), Path(file), Path(state) / "snapshots", wait)
"""


def test_what_a_killed_export_or_import_leaves_is_removed_by_the_next_one(root: Path, tmp_path: Path) -> None:
    """And what another one that is alive is filling is not."""
    out, file, place = tmp_path / "out", tmp_path / "state.tar", tmp_path / "place"
    export_state(DeltaRsStore(str(root)), file, root / "snapshots", NOW, quiet)
    place.mkdir()

    @contextlib.contextmanager
    def begun(*args: object) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", KILLED, *map(str, args)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            try:
                yield process
            finally:
                process.kill()

    def left(folder: Path) -> int:
        return sum(one.name.startswith(".bfm-") for one in folder.iterdir())

    with begun("export", root, out / "1.tar"), begun("export", root, out / "2.tar"):
        assert left(out) == 2, "both go on"
    assert (left(out), (out / "1.tar").exists()) == (2, False)
    export_state(DeltaRsStore(str(root)), out / "3.tar", root / "snapshots", NOW, quiet)
    assert left(out) == 0

    with begun("import", place / "one", file):
        pass
    assert left(place) == 1
    import_state(DeltaRsStore(str(place / "two")), file, place / "two" / "snapshots", quiet)
    assert left(place) == 0


def test_files_of_an_archive_stay_in_its_folder(tmp_path: Path) -> None:
    """An archive from elsewhere can't write beside it."""
    outside = tmp_path / "outside.txt"
    outside.write_text("x")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(outside, arcname="../escaped.txt")
    with pytest.raises(InvalidInput):
        import_state(DeltaRsStore(str(tmp_path / "new")), tmp_path / "bad.tar", tmp_path / "s", quiet)


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "back-it-up.md"


@pytest.mark.parametrize("leads_since", ["before", "after"])
def test_the_state_goes_back_by_deltas_time_travel_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads_since: str
) -> None:
    """Who takes over writes into every table; who has led before the moment has not changed all of them since."""
    root = tmp_path / "state"
    recorded_state(root)
    later = go_on(root) if leads_since == "before" else None
    before, moment = rows_of(root), datetime.now(timezone.utc)
    later = later or go_on(root)
    later.ask("backfill.unpause", backfill_id=next(iter(later.state.backfills)))
    later.drain()
    later.leader.resign(moment)
    assert rows_of(root) != before

    (code,) = re.findall(r"```python\n(.+?)```", PAGE.read_text(), re.DOTALL)
    code, replaced = re.subn(
        r"moment = datetime\(.+\)", f"moment = datetime.fromisoformat({moment.isoformat()!r})", code
    )
    assert replaced == 1
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    store = DeltaRsStore(str(root))
    adopt_state(store, Settings(), SystemClock(), "copy")

    assert rows_of(root) == before
    assert all(finding.ok for finding in store.check())
    manager = go_on(root)
    manager.ask("backfill.unpause", backfill_id=next(iter(manager.state.backfills)))
    manager.drain()
    assert {item.state for item in manager.store.read(BackfillItem)} == {"success", "failed"}
