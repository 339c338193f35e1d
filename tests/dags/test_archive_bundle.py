"""A bundle in a zip or wheel: unpacked once per content, and refused when it would harm its reader."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from backfill_manager.dags.bundles import source
from backfill_manager.dags.bundles.files import read_bundle
from backfill_manager.dags.bundles.source import BundleSource, FetchedFiles
from backfill_manager.dags.parsers.bundle_state import source_of
from backfill_manager.errors import InvalidInput
from backfill_manager.settings import BundleSettings


def packed(path: Path, *entries: tuple[str | zipfile.ZipInfo, str | bytes]) -> Path:
    """With the same content it has the same bytes, whenever it is made."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for entry, content in entries:
            info = entry if isinstance(entry, zipfile.ZipInfo) else zipfile.ZipInfo(entry)
            made.writestr(info, content, None if info is entry else zipfile.ZIP_DEFLATED)
    return path


def of(path: Path) -> BundleSource:
    return source_of(BundleSettings(name="b", path=str(path)), cache=path.parent / "cache")


def texts(fetched: FetchedFiles) -> dict[str, str]:
    return {file: (fetched.root / file).read_text() for file in read_bundle(fetched.root).files}


def test_a_zip_is_unpacked_and_unpacked_again_when_it_changes(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", ("a.py", "A = 1"), ("sub/", b""), ("sub/q.sql", "SELECT 1"), ("logo.png", b"x"))
    bundle = of(path)
    first = bundle.fetch()
    assert texts(first) == {"a.py": "A = 1", "sub/q.sql": "SELECT 1"}
    assert sorted(path.name for path in first.root.iterdir()) == ["a.py", "sub"]
    assert bundle.fetch() == first
    packed(path, ("a.py", "A = 2"))
    assert texts(bundle.fetch()) == {"a.py": "A = 2"}


def test_a_zip_whose_names_begin_with_the_current_folder_holds_the_same_files(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", ("./", b""), ("./a.py", "A = 1"), ("./sub//q.sql", "SELECT 1"))
    assert texts(of(path).fetch()) == {"a.py": "A = 1", "sub/q.sql": "SELECT 1"}


def test_a_zip_that_was_only_touched_is_not_unpacked_again(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", ("a.py", "A = 1"))
    bundle = of(path)
    first = bundle.fetch().root
    inode = (first / "a.py").stat().st_ino
    os.utime(path, (1, 1))
    assert (bundle.fetch().root, (first / "a.py").stat().st_ino) == (first, inode)


def test_the_metadata_of_a_wheel_is_left_out(tmp_path: Path) -> None:
    path = packed(
        tmp_path / "b-1-py3-none-any.whl",
        ("b/dags.py", ""),
        ("b-1.dist-info/top_level.txt", "b"),
        ("b-1.dist-info/a.py", ""),
    )
    assert texts(of(path).fetch()) == {"b/dags.py": ""}


def link(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("../a.py", r"its entry '../a.py' lies outside the archive"),
        ("sub/../../a.py", "lies outside the archive"),
        ("sub\\..\\..\\a.py", "lies outside the archive"),
        ("/etc/a.py", "lies outside the archive"),
        ("C:\\a.py", "lies outside the archive"),
        (link("a.py"), "its entry 'a.py' is a link; put the file itself there"),
    ],
    ids=str,
)
def test_an_entry_that_leads_out_of_the_archive_is_refused(
    tmp_path: Path, entry: str | zipfile.ZipInfo, message: str
) -> None:
    path = packed(tmp_path / "b.zip", ("ok.py", ""), (entry, "/etc/passwd"))
    refused(path, f"b.zip is refused: .*{message}")


def refused(path: Path, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        of(path).fetch()
    assert "\n" not in str(error.value)
    unpacked = [file for file in path.parent.rglob("*") if file.suffix == ".py"]
    assert unpacked == []


def test_an_entry_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = packed(tmp_path / "b.zip", ("a.py", "1"), ("a.py", "2"))
    refused(path, "its entry 'a.py' is there twice")


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", ("a.py", "A = 1"))
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flags of the entry itself
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path.write_bytes(content)
    refused(path, "its entry 'a.py' is encrypted")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BUNDLE_SIZE", 1 << 20)
    path = packed(tmp_path / "b.zip", ("a.py", b" " * (2 << 20)))
    refused(path, "b.zip unpacks to 2 MB; a bundle may have 1")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 2)
    refused(packed(tmp_path / "b.zip", *((f"{n}.py", "") for n in range(3))), "holds 3 entries; a bundle may have 2")


def test_an_entry_that_is_longer_than_it_says_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", ("a.py", "A" * 1000))
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(content)
    refused(path, "is damaged, or no zip file: Bad CRC-32")


def cut(path: Path) -> None:
    path.write_bytes(packed(path, ("a.py", "A = 1")).read_bytes()[:-5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("no zip"), "is damaged, or no zip file: File is not a zip file"),
        (cut, "is damaged, or no zip file"),
        (lambda path: path.mkdir(), "is a folder named like an archive; give it another name"),
        (lambda path: None, "the archive .*b.zip does not exist"),
    ],
)
def test_what_is_no_archive_is_reported(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "b.zip")
    refused(tmp_path / "b.zip", message)


def test_a_damaged_archive_that_is_put_right_is_read(tmp_path: Path) -> None:
    cut(tmp_path / "b.zip")
    bundle = of(tmp_path / "b.zip")
    with pytest.raises(InvalidInput):
        bundle.fetch()
    packed(tmp_path / "b.zip", ("a.py", "A = 1"))
    assert texts(bundle.fetch()) == {"a.py": "A = 1"}


def test_contents_that_are_not_in_use_any_more_are_removed(tmp_path: Path) -> None:
    bundle, roots = of(tmp_path / "b.zip"), list[Path]()
    for n in range(source._MAX_KEPT + 3):
        packed(tmp_path / "b.zip", ("a.py", f"A = {n}"))
        roots.append(bundle.fetch().root)
        os.utime(roots[-1], (n, n))  # last used in 1970
    assert sorted(roots[0].parent.iterdir()) == sorted(roots[-source._MAX_KEPT :])


def test_a_content_whose_removal_is_killed_is_whole_when_it_comes_back(tmp_path: Path) -> None:
    bundle, roots = of(tmp_path / "b.zip"), list[Path]()
    for n in range(source._MAX_KEPT + 1):
        packed(tmp_path / "b.zip", *((f"{name}.py", f"A = {n}") for name in "abc"))
        roots.append(bundle.fetch().root)
    for n, root in enumerate(roots):
        os.utime(root, (n, n))
    program = """
        import os, sys
        from pathlib import Path
        from backfill_manager.dags.bundles.source import create_atomically

        def kill(event, args):
            if event == "os.remove" and str(args[0]).endswith(".py"):
                removed.append(args[0])
                if len(removed) == 2:
                    os._exit(9)

        removed = []
        sys.addaudithook(kill)
        create_atomically(Path(sys.argv[1]), lambda into: None)
    """
    command = [sys.executable, "-c", dedent(program), str(roots[0].with_name("next"))]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == 9
    packed(tmp_path / "b.zip", *((f"{name}.py", "A = 0") for name in "abc"))
    fetched = of(tmp_path / "b.zip").fetch()
    assert (fetched.root, texts(fetched)) == (roots[0], dict.fromkeys(("a.py", "b.py", "c.py"), "A = 0"))


def test_a_content_that_somebody_may_still_read_is_kept(tmp_path: Path) -> None:
    bundle, roots = of(tmp_path / "b.zip"), list[Path]()
    for n in range(source._MAX_KEPT + 3):
        packed(tmp_path / "b.zip", ("a.py", f"A = {n}"))
        roots.append(bundle.fetch().root)
    assert sorted(roots[0].parent.iterdir()) == sorted(roots)
