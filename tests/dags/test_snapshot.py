"""A bundle's files are kept as they were, by content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.bundles.files import MAX_DATA_FILE_SIZE, read_bundle
from backfill_manager.dags.bundles.snapshot import STORE, take


def kept(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_code_queries_and_small_data_are_kept_and_nothing_else(bundle: BundleFolder) -> None:
    for file in ("f.py", "sub/q.sql", "a.yaml", "b.yml", "c.json", "d.txt", "e.csv"):
        bundle.write(file, file)
    bundle.write("big.csv", "x" * (MAX_DATA_FILE_SIZE + 1))
    bundle.write("image.png", "x")
    bundle.write(".git/config.txt", "x")
    bundle.write("__pycache__/f.py", "x")
    snapshot = take(bundle.root, bundle.snapshots)
    files = ("f.py", "sub/q.sql", "a.yaml", "b.yml", "c.json", "d.txt", "e.csv")
    assert kept(snapshot.path) == {file: file for file in files}
    assert snapshot.path == bundle.snapshots / snapshot.content.hash


def test_snapshots_are_readable_for_their_owner_only_unless_somebody_opened_them(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    take(bundle.root, bundle.snapshots)
    assert bundle.snapshots.stat().st_mode & 0o777 == 0o700
    bundle.snapshots.chmod(0o755)
    bundle.write("f.py", "2")
    take(bundle.root, bundle.snapshots)
    assert bundle.snapshots.stat().st_mode & 0o777 == 0o755


def test_the_same_content_is_kept_once_and_an_edit_makes_another(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    first = take(bundle.root, bundle.snapshots)
    assert take(bundle.root, bundle.snapshots) == first
    bundle.write("f.py", "2")
    second = take(bundle.root, bundle.snapshots)
    assert (kept(first.path), kept(second.path)) == ({"f.py": "1"}, {"f.py": "2"})
    assert {path.name for path in bundle.snapshots.iterdir()} == {first.path.name, second.path.name, STORE}


def test_a_rename_is_another_content(bundle: BundleFolder) -> None:
    path = bundle.write("f.py", "1")
    before = read_bundle(bundle.root).hash
    path.rename(bundle.root / "g.py")
    assert read_bundle(bundle.root).hash != before


def test_a_bundle_may_hold_the_folder_of_its_own_snapshots(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    inside = bundle.root / "state" / "snapshots"
    first = take(bundle.root, inside)
    assert take(bundle.root, inside) == first
    assert kept(first.path) == {"f.py": "1"}


def test_links_to_files_are_followed_and_links_to_folders_are_not(bundle: BundleFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("1")
    (bundle.root / "f.py").symlink_to(tmp_path / "elsewhere.py")
    (bundle.root / "round").symlink_to(bundle.root)
    (bundle.root / "gone.py").symlink_to(tmp_path / "nothing.py")
    assert kept(take(bundle.root, bundle.snapshots).path) == {"f.py": "1"}


def test_a_copy_that_breaks_off_leaves_nothing_behind(bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.write("f.py", "1")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Exception, match=r"can't be written under .*: No space left on device"):
        take(bundle.root, bundle.snapshots)
    assert list(bundle.snapshots.iterdir()) == []


def inodes(folder: Path) -> set[int]:
    return {path.stat().st_ino for path in folder.rglob("*") if path.is_file()}


def test_an_edit_copies_one_file_and_links_the_others(bundle: BundleFolder) -> None:
    for n in range(50):
        bundle.write(f"f{n}.py", str(n))
    snapshots = []
    for n in range(10):
        bundle.write("f0.py", f"edit {n}")
        snapshots.append(take(bundle.root, bundle.snapshots).path)
    assert len(set(snapshots)) == 10
    assert len(inodes(bundle.snapshots)) == 49 + 10
    assert kept(snapshots[3]) == {"f0.py": "edit 3", **{f"f{n}.py": str(n) for n in range(1, 50)}}


def test_what_a_snapshot_holds_is_no_link_to_what_people_edit(bundle: BundleFolder) -> None:
    path = bundle.write("f.py", "1")
    snapshot = take(bundle.root, bundle.snapshots)
    with path.open("r+") as file:
        file.write("2")
    assert kept(snapshot.path) == {"f.py": "1"}


def test_files_of_a_snapshot_are_not_written_by_mistake(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    first = take(bundle.root, bundle.snapshots)
    bundle.write("g.py", "1")
    second = take(bundle.root, bundle.snapshots)
    files = [first.path / "f.py", second.path / "f.py", second.path / "g.py"]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o444] * 3


def test_a_file_of_a_snapshot_that_was_changed_by_force_is_not_handed_on(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    bundle.write("g.py", "1")
    first = take(bundle.root, bundle.snapshots)
    (first.path / "f.py").chmod(0o644)
    (first.path / "f.py").write_text("forged")
    bundle.write("g.py", "2")
    second = take(bundle.root, bundle.snapshots)
    bundle.write("g.py", "3")
    third = take(bundle.root, bundle.snapshots)
    assert (kept(second.path), kept(third.path)) == ({"f.py": "1", "g.py": "2"}, {"f.py": "1", "g.py": "3"})
    assert (second.path / "f.py").samefile(third.path / "f.py")


def test_where_links_do_not_work_files_are_copied(bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    bundle.write("f.py", "1")
    bundle.write("g.py", "1")
    take(bundle.root, bundle.snapshots)
    bundle.write("g.py", "2")
    second = take(bundle.root, bundle.snapshots)
    assert kept(second.path) == {"f.py": "1", "g.py": "2"}
    assert kept(bundle.snapshots / STORE) == {}


def test_a_file_that_was_edited_after_the_scan_is_kept_as_it_is_now(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "f")
    bundle.write("g.py", "1")
    bundle.write("gone.py", "1")
    looked = read_bundle(bundle.root)
    bundle.write("f.py", "no DAG any more")
    bundle.write_dag("g.py", "g")
    (bundle.root / "gone.py").unlink()
    snapshot = take(bundle.root, bundle.snapshots, content=looked)
    assert snapshot.content == read_bundle(bundle.root) == read_bundle(snapshot.path)
    assert snapshot.content.candidates == ("g.py",)
    assert snapshot.path.name == snapshot.content.hash != looked.hash


def test_an_unchanged_bundle_is_not_parsed_again(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    looked = read_bundle(bundle.root)
    first = take(bundle.root, bundle.snapshots, content=looked)
    assert first.content == looked
    assert take(bundle.root, bundle.snapshots, content=looked) == first
