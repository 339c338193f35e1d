"""Tracks which files and folders of the bundle a DAG file reads while it is imported: what its DAGs depend on.

Seen through Python's audit events, so whatever opens a file (`open`, pathlib, an import, `sql("x", "q.sql")`) is seen,
and DAG authors need not declare anything. What `import` looks up on its own (which files a folder holds) is not counted. A hook
can't be taken out again: only for a process that ends with the file.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_LISTING: Final = frozenset({"os.listdir", "os.scandir"})  # `glob`, `os.walk` and pathlib come down to these
_IMPORT_SYSTEM: Final = "<frozen importlib._bootstrap_external>"


@dataclass(frozen=True)
class Accesses:
    """Paths within the bundle, with `/`, sorted; a folder `""` is the bundle's root. A file that was looked for and is
    not there counts as its folder: what the file does depends on which files that folder holds."""

    read: list[str]
    listed: list[str]


@dataclass
class FileAccessTracker:
    root: Path
    _opened: set[str] = field(default_factory=set)
    _listed: set[str] = field(default_factory=set)

    def begin(self) -> None:
        sys.addaudithook(self._see)

    def seen(self) -> Accesses:
        """Up to now."""
        opened, listed = self._inside(self._opened), self._inside(self._listed)
        read = {name for name in opened if (self.root / name).is_file()}
        listed |= {self._nearest_folder(name) for name in opened - read}
        return Accesses(sorted(read), sorted(listed))

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _note(self._opened, args[0])
        elif event in _LISTING and sys._getframe(1).f_code.co_filename != _IMPORT_SYSTEM:
            _note(self._listed, args[0])

    def _inside(self, paths: set[str]) -> set[str]:
        roots = {str(self.root), os.path.realpath(self.root)}
        inside = set()
        for path in list(paths):  # threads of the file may still be at it
            for root in roots:
                if path == root or path.startswith(root + os.sep):
                    inside.add(Path(path).relative_to(root).as_posix() if path != root else "")
        return inside

    def _nearest_folder(self, name: str) -> str:
        path = self.root / name
        while not path.is_dir() and path != self.root:
            path = path.parent
        return "" if path == self.root else path.relative_to(self.root).as_posix()


def _note(paths: set[str], path: Any) -> None:
    """`path` as it is meant now: the file may change its folder later. A descriptor (int) has been opened before."""
    if isinstance(path, int):
        return
    try:
        paths.add(os.path.abspath(os.fsdecode("." if path is None else path)))
    except (OSError, TypeError, ValueError):
        return  # no path, or none that means anything here; the call itself will fail
