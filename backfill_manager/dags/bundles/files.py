"""Reads what a bundle's folder holds, as far as a run can see it: code, SQL and small data files, by content.

This is what is hashed, what is copied into a snapshot, and so all that a DAG may read from beside itself. Left out:
hidden files and folders, `__pycache__`, data files above a megabyte, and folders that are something else altogether
(virtual environments, Delta tables, the snapshots themselves), so that a bundle may be a whole repository.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Final

from backfill_manager.clock import Clock, SystemClock, micros
from backfill_manager.errors import InvalidInput

CODE: Final = frozenset({".py", ".sql"})
DATA: Final = frozenset({".yaml", ".yml", ".json", ".txt", ".csv"})
YAML_DAGS: Final = (".dag.yaml", ".dag.yml")
MAX_DATA_FILE_SIZE: Final = 1 << 20  # bytes; a larger one is left out
MAX_FILE_SIZE: Final = 64 << 20  # bytes; a larger one of code is an error: the manager reads it, and a version keeps it
VENV_MARK: Final = "pyvenv.cfg"
RACY_NS: Final = 2_000_000_000  # as coarse as a file system's times may be
_IMPORT_WORDS: Final = (b"dag", b"backfill_manager")

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
    """A cheap test before a process is spent on it: a `.py` file that holds both words, or a `.dag.yaml`; `_private` ones
    make none."""
    name = file.rpartition("/")[2]
    if name.startswith("_"):
        return False
    return name.endswith(YAML_DAGS) or (name.endswith(".py") and all(word in content for word in _IMPORT_WORDS))


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
ALL_FILES: Final = DagFiles(
    ("*",), lambda file, content: False
)  # of a snapshot: what it holds was chosen when it was taken


def hash_of(files: Mapping[str, str]) -> str:
    digest_of_all = hashlib.sha256()
    for file, digest in sorted(files.items()):
        digest_of_all.update(f"{file}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return digest_of_all.hexdigest()


def stamp_of(about: os.stat_result) -> Stamp:
    return about.st_mtime_ns, about.st_size, about.st_ino, about.st_ctime_ns


@dataclass(frozen=True)
class Fingerprint:
    """A file as it was read: its stamp, its content's hash, and whether it may make DAGs."""

    stamp: Stamp
    sha256: str
    may_make_dags: bool


class FileFingerprints:
    """Remembers what was read of one bundle, so that a file whose stamp (times, size, inode) is the same is not read again.

    A file that was changed in the last two seconds before it was read is read once more the next time: the file
    system's times may be so coarse that a second change leaves the stamp as it was (git calls this racily clean).
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._root: Path | None = None
        self._by_file: dict[str, Fingerprint] = {}

    def of(self, root: Path) -> Mapping[str, Fingerprint]:
        """By path within the bundle; nothing when it was another folder that was read last."""
        return self._by_file if root == self._root else {}

    def remember(self, root: Path, entries: Mapping[str, Fingerprint], *, began_ns: int) -> None:
        """`entries` is all that there is; other files are forgotten."""
        self._root = root
        self._by_file = {
            file: entry for file, entry in entries.items() if max(entry.stamp[0], entry.stamp[3]) < began_ns - RACY_NS
        }

    def now_ns(self) -> int:
        return micros(self._clock.now()) * 1000


def read_bundle(
    root: Path,
    *,
    without: Path | None = None,
    fingerprints: FileFingerprints | None = None,
    dag_files: DagFiles = PYTHON_AND_YAML,
) -> BundleContent:
    """The folder's content now; `without` is a folder that is none of it. `fingerprints` must be of the same `dag_files`.
    `InvalidInput` when it can't be read."""
    fingerprints = fingerprints or FileFingerprints()
    known, began_ns = fingerprints.of(root), fingerprints.now_ns()
    entries: dict[str, Fingerprint] = {}
    for file, stamp in _entries(root, without, dag_files):
        before = known.get(file)
        entry = before if before and before.stamp == stamp else _fingerprint(root / file, file, stamp, dag_files)
        if entry is not None:
            entries[file] = entry
    fingerprints.remember(root, entries, began_ns=began_ns)
    return BundleContent(
        {file: entry.sha256 for file, entry in entries.items()},
        tuple(file for file, entry in entries.items() if entry.may_make_dags),
    )


def _fingerprint(path: Path, file: str, stamp: Stamp, dag_files: DagFiles) -> Fingerprint | None:
    content = read(path, file, dag_files)
    if content is None:
        return None
    return Fingerprint(stamp, hashlib.sha256(content).hexdigest(), dag_files.may_be(file, content))


def belongs(file: str, size: int, dag_files: DagFiles = PYTHON_AND_YAML) -> bool:
    """Whether a path within a bundle, of `size` bytes, may be part of its content, or marks its folder as no part of it:
    nothing else need be unpacked of an archive or a repository."""
    *folders, name = file.split("/")
    is_content = _is_content(file, dag_files) and (size <= MAX_DATA_FILE_SIZE or _is_code(name) or dag_files.fits(file))
    return all(map(_is_folder_name, folders)) and (is_content or name == VENV_MARK)


def _is_content(file: str, dag_files: DagFiles) -> bool:
    name = file.rpartition("/")[2]
    return not name.startswith(".") and (os.path.splitext(name)[1] in CODE | DATA or dag_files.fits(file))


def _is_folder_name(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name != "__pycache__"


def _is_code(name: str) -> bool:
    """Read whatever its size: a DAG that grew must not seem to be gone."""
    return os.path.splitext(name)[1] in CODE or name.endswith(YAML_DAGS)


def _entries(root: Path, without: Path | None, dag_files: DagFiles) -> Iterator[tuple[str, Stamp]]:
    """Paths within the bundle, a folder's files before its folders, in order. Links to files are followed; links to
    folders are not (they may go round). Too large files, and what is neither file nor folder, are left out."""
    if not root.is_dir():
        raise InvalidInput(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")
    try:
        excluded = without.stat().st_ino if without else None
    except OSError:
        excluded = None
    folders = [""]
    while folders:
        folder = folders.pop()
        inner = []
        for entry in _listed(root, folder):
            if entry.is_dir(follow_symlinks=False):
                if not _is_folder_name(entry.name) or (
                    without is not None and entry.inode() == excluded and os.path.samefile(entry.path, without)
                ):
                    continue
                inner.append(f"{folder}{entry.name}/")
            elif _is_content(file := f"{folder}{entry.name}", dag_files):
                stamp = _stamp(entry, file, dag_files)
                if stamp is not None:
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
    try:
        about = entry.stat()
    except OSError as error:
        if _is_not_there(error):
            return None
        raise InvalidInput(f"{entry.path} can't be read: {error.strerror}") from None
    return stamp_of(about) if _is_read(file, about, dag_files) else None


def _is_read(file: str, about: os.stat_result, dag_files: DagFiles) -> bool:
    name = file.rpartition("/")[2]
    if not stat.S_ISREG(about.st_mode):
        return False
    is_taken = about.st_size <= MAX_DATA_FILE_SIZE or _is_code(name) or dag_files.fits(file)
    if is_taken and about.st_size > MAX_FILE_SIZE:
        raise InvalidInput(f"{file} has {about.st_size >> 20} MB; a file of a bundle may have {MAX_FILE_SIZE >> 20}")
    return is_taken


def read(path: Path, file: str = "", dag_files: DagFiles = PYTHON_AND_YAML) -> bytes | None:
    """The bytes of a file of the bundle, whose path there is `file` (by default its name); None for what
    vanished meanwhile, is no plain file, or is too large."""
    try:
        return path.read_bytes() if _is_read(file or path.name, path.stat(), dag_files) else None
    except OSError as error:
        if _is_not_there(error):
            return None
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from None


def _is_not_there(error: OSError) -> bool:
    """It vanished meanwhile, or is a link that leads nowhere or goes round."""
    return error.errno in (errno.ENOENT, errno.ELOOP)
