"""A bundle in a folder: what is part of it, and how little of it is read twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.clock import SystemClock
from backfill_manager.dags.bundles import files
from backfill_manager.dags.bundles.files import MAX_DATA_FILE_SIZE, FileFingerprints, read_bundle
from backfill_manager.dags.parsers.bundle_state import BundleState, source_of
from backfill_manager.errors import InvalidInput
from backfill_manager.settings import BundleSettings
from backfill_manager.testing import FakeClock


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose bytes are read, as it happens."""
    names: list[str] = []
    read = files.read

    def noted(path: Path, *of: Any) -> bytes | None:
        names.append(path.name)
        return read(path, *of)

    monkeypatch.setattr(files, "read", noted)
    return names


@pytest.fixture
def later() -> FakeClock:
    """An hour after the files were written."""
    clock = FakeClock(SystemClock().now())
    clock.advance(hours=1)
    return clock


def time_goes_on(bundle: BundleFolder) -> None:
    """Until what is written gets a later time than what was written so far: many file systems' clocks tick all 4 or 10 ms."""
    beside = bundle.root.with_name("beside")
    beside.touch()
    before = beside.stat().st_ctime_ns
    while beside.stat().st_ctime_ns == before:
        beside.touch()


def test_a_folder_is_read_where_it_is(bundle: BundleFolder, tmp_path: Path) -> None:
    fetched = source_of(BundleSettings(name="b", path=str(bundle.root)), cache=tmp_path / "cache").fetch()
    assert (fetched.root, fetched.commit_id) == (bundle.root, None)
    assert not (tmp_path / "cache").exists()


def test_a_link_that_leads_elsewhere_meanwhile_mixes_no_contents(bundle: BundleFolder, tmp_path: Path) -> None:
    """As git-sync does it: a folder for each commit, and a link to the current one."""
    for commit in ("old", "new"):
        for name in ("a.py", "b.py"):
            bundle.write(f"{commit}/{name}", f"C = {commit!r}")
    link = tmp_path / "current"
    link.symlink_to(bundle.root / "old")
    state = BundleState(BundleSettings(name="b", path=str(link)), snapshots=bundle.snapshots)
    fetched = state.fetch()
    link.unlink()
    link.symlink_to(bundle.root / "new")
    taken = [(state.take_snapshot(one).path / "b.py").read_text() for one in (fetched, state.fetch())]
    assert taken == ["C = 'old'", "C = 'new'"]


def test_a_folder_that_is_removed_between_scan_and_copy_does_not_seem_empty(bundle: BundleFolder) -> None:
    bundle.write("a.py", "A = 1")
    bundle.write("teams/b.py", "B = 1")
    state = BundleState(bundle.settings(), snapshots=bundle.snapshots)
    fetched = state.fetch()
    shutil.rmtree(bundle.root / "teams")
    with pytest.raises(InvalidInput, match=r"the folder of teams/b.py is gone from .* since it was read"):
        state.take_snapshot(fetched)
    assert set(state.take_snapshot(state.fetch()).content.files) == {"a.py"}


@pytest.mark.parametrize(
    ("path", "message"),
    [("nothing", "the folder nothing does not exist"), ("a.py", r"a.py is not a folder \(nor a .zip or .whl\)")],
)
def test_a_folder_that_is_none_is_reported(
    path: str, message: str, bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write("a.py", "")
    monkeypatch.chdir(bundle.root)
    with pytest.raises(InvalidInput, match=f"^{message}$"):
        source_of(BundleSettings(name="b", path=path), cache=Path("cache")).fetch()


def test_an_unchanged_file_is_not_read_again(bundle: BundleFolder, reads: list[str], later: FakeClock) -> None:
    bundle.write_dag("a.py", "a")
    bundle.write("helpers/b.py", "B = 1")
    fingerprints = FileFingerprints(later)
    first = read_bundle(bundle.root, fingerprints=fingerprints)
    assert sorted(reads) == ["a.py", "b.py"]
    reads.clear()
    assert read_bundle(bundle.root, fingerprints=fingerprints) == first
    assert reads == []
    time_goes_on(bundle)
    bundle.write("helpers/b.py", "B = 2")
    second = read_bundle(bundle.root, fingerprints=fingerprints)
    assert reads == ["b.py"]
    assert (second.candidates, second.hash != first.hash) == (("a.py",), True)


def test_an_edit_that_keeps_size_and_time_is_seen(bundle: BundleFolder, later: FakeClock) -> None:
    path = bundle.write("a.py", "A = 1")
    fingerprints = FileFingerprints(later)
    first, about = read_bundle(bundle.root, fingerprints=fingerprints), path.stat()
    time_goes_on(bundle)
    path.write_text("A = 2")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert read_bundle(bundle.root, fingerprints=fingerprints).hash != first.hash


def test_a_dag_file_that_is_being_written_deactivates_nothing(bundle: BundleFolder, later: FakeClock) -> None:
    """Many programs empty a file before they write it."""
    path = bundle.write_dag("a.py", "a")
    bundle.write("helpers.py", "A = 1")
    fingerprints = FileFingerprints(later)
    first = read_bundle(bundle.root, fingerprints=fingerprints)
    text, fingerprints.clock = path.read_text(), FakeClock(SystemClock().now())
    time_goes_on(bundle)
    path.write_text("")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"^a\.py became empty just now; .* the next scan"):
            read_bundle(bundle.root, fingerprints=fingerprints)
    path.write_text(text)
    assert read_bundle(bundle.root, fingerprints=fingerprints) == first
    fingerprints.clock = later
    read_bundle(bundle.root, fingerprints=fingerprints)
    time_goes_on(bundle)
    path.write_text("")
    assert read_bundle(bundle.root, fingerprints=fingerprints).candidates == (), "it has been so for a while"


def test_another_file_put_in_its_place_is_seen(bundle: BundleFolder, later: FakeClock) -> None:
    bundle.write("a.py", "A = 1")
    fingerprints = FileFingerprints(later)
    first = read_bundle(bundle.root, fingerprints=fingerprints)
    bundle.write("new.py", "A = 2").rename(bundle.root / "a.py")
    assert read_bundle(bundle.root, fingerprints=fingerprints).hash != first.hash


def test_a_file_written_just_now_is_read_once_more(bundle: BundleFolder, reads: list[str]) -> None:
    clock = FakeClock(SystemClock().now())
    bundle.write("a.py", "A = 1")
    fingerprints = FileFingerprints(clock)
    read_bundle(bundle.root, fingerprints=fingerprints)
    clock.advance(hours=1)
    read_bundle(bundle.root, fingerprints=fingerprints)
    assert reads == ["a.py", "a.py"]
    read_bundle(bundle.root, fingerprints=fingerprints)
    assert reads == ["a.py", "a.py"]


def test_fingerprints_of_one_folder_are_not_used_for_another(bundle: BundleFolder, later: FakeClock) -> None:
    bundle.write("one/a.py", "1")
    bundle.write("two/a.py", "2")
    fingerprints = FileFingerprints(later)
    one, two = (read_bundle(bundle.root / name, fingerprints=fingerprints).hash for name in ("one", "two"))
    assert one != two
    assert read_bundle(bundle.root / "one", fingerprints=fingerprints).hash == one


def test_folders_that_are_something_else_are_no_part_of_it(bundle: BundleFolder) -> None:
    bundle.write("a.py", "")
    bundle.write("a/b.py", "")
    bundle.write(".hidden/c.py", "")
    bundle.write(".d.py", "")
    bundle.write("__pycache__/e.py", "")
    bundle.write("venv/pyvenv.cfg", "")
    bundle.write("venv/lib/f.py", "")
    bundle.write("table/_delta_log/0.json", "")
    bundle.write("snapshots/files/g.py", "")
    bundle.write("big.csv", "x" * (MAX_DATA_FILE_SIZE + 1))
    bundle.write("big.sql", "x" * (MAX_DATA_FILE_SIZE + 1))
    (bundle.root / "folder.py").mkdir()
    content = read_bundle(bundle.root, without=bundle.root / "snapshots")
    assert list(content.files) == ["a.py", "big.sql", "a/b.py"]


def test_settings_templates_and_schemas_are_part_of_it(bundle: BundleFolder) -> None:
    files = ["pyproject.toml", "setup.cfg", "a/log.ini", "a/mail.html", "a/query.sql.j2", "a/row.avsc"]
    for file in [*files, "README.md", "flights.parquet"]:
        bundle.write(file, "x")
    assert sorted(read_bundle(bundle.root).files) == sorted(files)


def test_a_dag_file_that_grew_large_is_still_there(bundle: BundleFolder) -> None:
    for file in ("d.dag.yaml", "d.dag.yml"):
        bundle.write(file, "x" * (MAX_DATA_FILE_SIZE + 1))
    assert read_bundle(bundle.root).candidates == ("d.dag.yaml", "d.dag.yml")


def test_links_that_lead_nowhere_or_go_round_are_left_out(bundle: BundleFolder) -> None:
    bundle.write("a.py", "")
    (bundle.root / "nowhere.py").symlink_to("gone.py")
    (bundle.root / "round.py").symlink_to("round.py")
    assert list(read_bundle(bundle.root).files) == ["a.py"]


def test_a_manifest_is_part_of_the_content(bundle: BundleFolder) -> None:
    before = read_bundle(bundle.root).hash
    bundle.write("manifest.yaml", "version: v1beta")
    assert read_bundle(bundle.root).hash != before


def test_a_file_that_would_fill_the_memory_of_the_manager_is_reported_and_not_read(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    with (bundle.root / "dump.sql").open("wb") as dump:
        dump.truncate(3 << 30)  # a hole: it takes no space on the disk
    with pytest.raises(InvalidInput, match=r"^dump.sql has 3072 MB; a file of a bundle may have 64$"):
        read_bundle(bundle.root)
