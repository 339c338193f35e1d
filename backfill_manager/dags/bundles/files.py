"""Reads what a bundle's folder holds, as far as a run can see it: code, SQL and small data files, by content.

This is what is hashed, what is copied into a snapshot, and so all that a DAG may read from beside itself. Left out:
hidden files and folders, `__pycache__`, data files above a megabyte, and folders that are something else altogether
(virtual environments, Delta tables, the snapshots themselves), so that a bundle may be a whole repository.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

from backfill_manager.clock import Clock, SystemClock, micros
from backfill_manager.errors import InvalidInput

CODE: Final = frozenset({".py", ".sql", ".sh"})
DATA: Final = frozenset({
    ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".properties", ".txt", ".csv", ".tsv", ".xml", ".html",
    ".j2", ".jinja", ".jinja2", ".tmpl", ".avsc", ".proto",
})  # fmt: skip
YAML_DAGS: Final = (".dag.yaml", ".dag.yml")
MAX_DATA_FILE_SIZE: Final = 1 << 20  # bytes; a larger one is left out
MAX_FILE_SIZE: Final = 64 << 20  # bytes; a larger one of code is an error: the manager reads it, and a version keeps it
VENV_MARK: Final = "pyvenv.cfg"
RACY_NS: Final = 2_000_000_000  # as coarse as a file system's times may be
_IMPORT_WORDS: Final = (b"dag", b"backfill_manager")
_IMPORTS_AIRFLOW: Final = re.compile(rb"^[ \t]*(?:from|import)[ \t]+airflow\b", re.MULTILINE)

Stamp = tuple[int, int, int, int]  # mtime in ns, size in bytes, inode, ctime in ns


@dataclass(frozen=True)
class BundleContent:
    """`files`: path within the bundle (with `/`) -> SHA-256 of its bytes. `candidates`: those that may make DAGs."""

    files: Mapping[str, str]
    candidates: tuple[str, ...]

    @cached_property
    def hash(self) -> str:
        return hash_of(self.files)


def may_make_dags(file: str, content: bytes) -> bool:
    """A cheap test before a process is spent on it: a `.py` that holds both words, or a `.dag.yaml`; no `_private` one."""
    name = file.rpartition("/")[2]
    if name.startswith("_"):
        return False
    text = content.replace(b"\0", b"")  # UTF-16, which Python refuses, is an import error and not overlooked
    return name.endswith(YAML_DAGS) or (name.endswith(".py") and all(word in text for word in _IMPORT_WORDS))


def is_of_airflow(file: str, content: bytes) -> bool:
    """Whether it is a Python file of Airflow that may make DAGs there, and is passed over here."""
    is_read_there = file.endswith(".py") and not file.rpartition("/")[2].startswith("_") and b"dag" in content.lower()
    return is_read_there and _IMPORTS_AIRFLOW.search(content) is not None


@dataclass(frozen=True)
class DagFiles:
    """The files that a parser reads DAGs from: those whose path within the bundle fits one of `patterns` (`*` matches `/`
    too), and for which `may_make_dags` is true, given the path and the content. A file that fits a pattern is part of the
    bundle, whatever its suffix and its size."""

    patterns: tuple[str, ...] = ("*.py", *(f"*{ending}" for ending in YAML_DAGS))
    may_make_dags: Callable[[str, bytes], bool] = may_make_dags

    def fits(self, file: str) -> bool:
        return any(fnmatchcase(file, pattern) for pattern in self.patterns)

    def may_be(self, file: str, content: bytes) -> bool:
        return self.fits(file) and bool(self.may_make_dags(file, content))

    @cached_property
    def key(self) -> str:
        """A name for these patterns that can be part of a path; empty for the usual ones."""
        if self.patterns == PYTHON_AND_YAML.patterns:
            return ""
        return "-" + hashlib.sha256("\0".join(self.patterns).encode()).hexdigest()[:8]


PYTHON_AND_YAML: Final = DagFiles()


def hash_of(files: Mapping[str, str]) -> str:
    text = "".join(f"{file}\0{digest}\n" for file, digest in sorted(files.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def stamp_of(about: os.stat_result) -> Stamp:
    return about.st_mtime_ns, about.st_size, about.st_ino, about.st_ctime_ns


@dataclass(frozen=True)
class Fingerprint:
    """A file as it was read: its stamp, its content's hash, and whether it may make DAGs."""

    stamp: Stamp
    sha256: str
    may_make_dags: bool


@dataclass
class FileFingerprints:
    """Remembers what was read of one bundle, so that a file whose stamp (times, size, inode) is the same is not read again.

    A file that was changed in the last two seconds before it was read is read once more the next time: the file
    system's times may be so coarse that a second change leaves the stamp as it was (git calls this racily clean).
    """

    clock: Clock = field(default_factory=SystemClock)
    dag_files: DagFiles = PYTHON_AND_YAML
    root: Path | None = None  # the folder that was read last
    by_file: dict[str, Fingerprint] = field(default_factory=dict)  # path within the bundle -> as it was read


def read_bundle(
    root: Path, *, without: Path | None = None, fingerprints: FileFingerprints | None = None
) -> BundleContent:
    """The folder's content now; `without` is a folder that is none of it. `InvalidInput` when it can't be read."""
    fingerprints = fingerprints or FileFingerprints()
    dag_files = fingerprints.dag_files
    known = fingerprints.by_file if fingerprints.root == root else {}
    settled_before_ns = micros(fingerprints.clock.now()) * 1000 - RACY_NS
    entries: dict[str, Fingerprint] = {}
    for file, stamp in _entries(root, without, dag_files):
        before = known.get(file)
        if before is not None and before.stamp == stamp:
            entries[file] = before
        elif (content := read(root / file, file, dag_files)) is not None:
            is_fresh = max(stamp[0], stamp[3]) >= settled_before_ns
            if is_fresh and not content and before is not None and before.may_make_dags:
                raise InvalidInput(
                    f"{file} became empty just now; if it is not being written, the next scan takes it so"
                )
            entries[file] = Fingerprint(stamp, hashlib.sha256(content).hexdigest(), dag_files.may_be(file, content))
    fingerprints.root = root
    fingerprints.by_file = {
        file: entry for file, entry in entries.items() if max(entry.stamp[0], entry.stamp[3]) < settled_before_ns
    }
    return BundleContent(
        {file: entry.sha256 for file, entry in entries.items()},
        tuple(file for file, entry in entries.items() if entry.may_make_dags),
    )


def read_snapshot(folder: Path) -> BundleContent:
    """All that a snapshot holds, which was chosen when it was taken."""
    return read_bundle(folder, fingerprints=FileFingerprints(dag_files=DagFiles(("*",), lambda *_: False)))


def belongs(file: str, size: int, dag_files: DagFiles = PYTHON_AND_YAML) -> bool:
    """Whether a path within a bundle, of `size` bytes, may be part of its content, or marks its folder as no part of it:
    nothing else need be unpacked of an archive or a repository."""
    *folders, name = file.split("/")
    is_content = _is_content(file, dag_files) and _is_taken(file, size, dag_files)
    return all(map(_is_folder_name, folders)) and (is_content or name == VENV_MARK)


def _is_content(file: str, dag_files: DagFiles) -> bool:
    name = file.rpartition("/")[2]
    return not name.startswith(".") and (os.path.splitext(name)[1] in CODE | DATA or dag_files.fits(file))


def _is_folder_name(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name != "__pycache__"


def _is_taken(file: str, size: int, dag_files: DagFiles) -> bool:
    """Code is, whatever its size: a DAG that grew must not seem to be gone."""
    is_code = os.path.splitext(file)[1] in CODE or file.endswith(YAML_DAGS)
    return size <= MAX_DATA_FILE_SIZE or is_code or dag_files.fits(file)


def _entries(root: Path, without: Path | None, dag_files: DagFiles) -> Iterator[tuple[str, Stamp]]:
    """Paths within the bundle, a folder's files before its folders, in order. Links to files are followed; links to
    folders are not (they may go round). Too large files, and what is neither file nor folder, are left out."""
    if not root.is_dir():
        raise InvalidInput(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")
    excluded = None
    with suppress(OSError):
        excluded = without.stat().st_ino if without else None
    folders = [""]
    while folders:
        folder = folders.pop()
        inner = []
        for entry in _listed(root, folder):
            file = f"{folder}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                is_excluded = without and entry.inode() == excluded and os.path.samefile(entry.path, without)
                if _is_folder_name(entry.name) and not is_excluded:
                    inner.append(f"{file}/")
            elif _is_content(file, dag_files) and (stamp := _stamp(entry, file, dag_files)) is not None:
                yield file, stamp
        folders += reversed(inner)


def _listed(root: Path, folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted; none when it is a virtual environment or a Delta table. A folder that vanishes
    meanwhile is an error: its DAGs would seem to be gone while it is only being replaced."""
    try:
        with os.scandir(root / folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        raise InvalidInput(f"{error.filename} can't be read: {error.strerror}") from None
    is_something_else = folder and any(entry.name in ("_delta_log", VENV_MARK) for entry in entries)
    return [] if is_something_else else entries


def _stamp(entry: os.DirEntry[str], file: str, dag_files: DagFiles) -> Stamp | None:
    with _may_vanish(entry.path):
        about = entry.stat()
        return stamp_of(about) if _is_read(file, about, dag_files) else None
    return None


def _is_read(file: str, about: os.stat_result, dag_files: DagFiles) -> bool:
    is_read = stat.S_ISREG(about.st_mode) and _is_taken(file, about.st_size, dag_files)
    if is_read and about.st_size > MAX_FILE_SIZE:
        raise InvalidInput(f"{file} has {about.st_size >> 20} MB; a file of a bundle may have {MAX_FILE_SIZE >> 20}")
    return is_read


def read(path: Path, file: str = "", dag_files: DagFiles = PYTHON_AND_YAML) -> bytes | None:
    """The bytes of a file of the bundle, whose path there is `file` (by default its name); None for what
    vanished meanwhile, is no plain file, or is too large."""
    with _may_vanish(path):
        return path.read_bytes() if _is_read(file or path.name, path.stat(), dag_files) else None
    return None


@contextmanager
def _may_vanish(path: str | Path) -> Iterator[None]:
    """Goes on without what vanished meanwhile, or is a link that leads nowhere or goes round."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise InvalidInput(f"{path} can't be read: {error.strerror}") from None
