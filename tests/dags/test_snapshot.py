"""A bundle's files are kept as they were, by content."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_folder import BundleFolder

from backfill_manager.dags.bundles.files import LARGEST_DATA_FILE, read_bundle
from backfill_manager.dags.bundles.snapshot import take


def kept(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_code_queries_and_small_data_are_kept_and_nothing_else(bundle: BundleFolder) -> None:
    for file in ("f.py", "sub/q.sql", "a.yaml", "b.yml", "c.json", "d.txt", "e.csv"):
        bundle.write(file, file)
    bundle.write("big.csv", "x" * (LARGEST_DATA_FILE + 1))
    bundle.write("image.png", "x")
    bundle.write(".git/config.txt", "x")
    bundle.write("__pycache__/f.py", "x")
    snapshot = take(bundle.root, bundle.snapshots)
    files = ("f.py", "sub/q.sql", "a.yaml", "b.yml", "c.json", "d.txt", "e.csv")
    assert kept(snapshot.path) == {file: file for file in files}
    assert snapshot.path == bundle.snapshots / snapshot.content.hash


def test_the_same_content_is_kept_once_and_an_edit_makes_another(bundle: BundleFolder) -> None:
    bundle.write("f.py", "1")
    first = take(bundle.root, bundle.snapshots)
    assert take(bundle.root, bundle.snapshots) == first
    bundle.write("f.py", "2")
    second = take(bundle.root, bundle.snapshots)
    assert (kept(first.path), kept(second.path)) == ({"f.py": "1"}, {"f.py": "2"})
    assert sorted(path.name for path in bundle.snapshots.iterdir()) == sorted([first.path.name, second.path.name])


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
