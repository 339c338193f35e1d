"""What a bundle's folder holds, as far as a run can see it: code, SQL and small data files, by content.

This is what is hashed, what is copied into a snapshot, and so all that a DAG may read from beside itself. Left out:
hidden files and folders, `__pycache__`, data files above a megabyte, and folders that are something else altogether
(virtual environments, Delta tables, the snapshots themselves), so that a bundle may be a whole repository.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.errors import InvalidInput

CODE: Final = frozenset({".py", ".sql"})
DATA: Final = frozenset({".yaml", ".yml", ".json", ".txt", ".csv"})
LARGEST_DATA_FILE: Final = 1 << 20
_WORDS: Final = (b"dag", b"backfill_manager")


@dataclass(frozen=True)
class BundleContent:
    """`files`: path within the bundle (with `/`) -> SHA-256 of its bytes. `candidates`: those that may make DAGs."""

    files: Mapping[str, str]
    candidates: tuple[str, ...]

    @property
    def hash(self) -> str:
        return hash_of(self.files)


def hash_of(files: Mapping[str, str]) -> str:
    told = hashlib.sha256()
    for file, digest in sorted(files.items()):
        told.update(f"{file}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return told.hexdigest()


def read_bundle(root: Path, *, without: Path | None = None) -> BundleContent:
    """The folder's content now; `without` is a folder that is none of it. `InvalidInput` when it can't be read."""
    files: dict[str, str] = {}
    candidates = []
    for file in walk(root, without=without):
        content = read(root / file)
        if content is None:
            continue
        files[file] = hashlib.sha256(content).hexdigest()
        if may_make_dags(file, content):
            candidates.append(file)
    return BundleContent(files, tuple(candidates))


def may_make_dags(file: str, content: bytes) -> bool:
    """A cheap look before a process is spent on it: a `.py` file, not `_private.py`, that holds both words."""
    name = file.rpartition("/")[2]
    return name.endswith(".py") and not name.startswith("_") and all(word in content for word in _WORDS)


def walk(root: Path, *, without: Path | None = None) -> Iterator[str]:
    """Paths within the bundle, in order. Links to files are followed; links to folders are not (they may go round)."""
    if not root.is_dir():
        raise InvalidInput(f"{root} is not a folder" if root.exists() else f"the folder {root} does not exist")
    excluded = without.resolve() if without else None

    def unreadable(error: OSError) -> None:
        raise InvalidInput(f"{error.filename} can't be read: {error.strerror}")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        here = Path(folder)
        if here != root and (here.resolve() == excluded or "_delta_log" in folders or "pyvenv.cfg" in names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if not name.startswith(".") and Path(name).suffix in CODE | DATA:
                yield (here / name).relative_to(root).as_posix()


def read(path: Path) -> bytes | None:
    """The bytes of a file of the bundle; None for what vanished meanwhile, is no plain file, or is too large."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or (path.suffix in DATA and about.st_size > LARGEST_DATA_FILE):
            return None
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from None
