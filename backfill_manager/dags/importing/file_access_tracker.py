"""Tracks which files and folders of the bundle a DAG file reads while it is imported: what its DAGs depend on.

Seen through Python's audit events, so whatever opens a file (`open`, pathlib, an import, `sql("x", "q.sql")`) is seen,
and DAG authors need not declare anything. What `import` looks up on its own (which files a folder holds) is not counted. A hook
can't be taken out again: only for a process that ends with the file.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_LISTING: Final = frozenset({"os.listdir", "os.scandir"})  # `glob`, `os.walk` and pathlib come down to these
_IMPORT_SYSTEM: Final = "<frozen importlib._bootstrap_external>"


class FileAccessTracker:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened: set[str] = set()
        self._listed: set[str] = set()
        sys.addaudithook(self._see)

    def accesses(self) -> tuple[list[str], list[str]]:
        """The files read and the folders listed up to now: paths within the bundle, with `/`, sorted; `""` is its root. A
        file that was looked for and is not there counts as its folder: what the file does depends on what that holds."""
        opened, listed = self._inside(self._opened), self._inside(self._listed)
        read = {name for name in opened if (self._root / name).is_file()}
        listed |= {self._nearest_folder(name) for name in opened - read}
        return sorted(read), sorted(listed)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _note(self._opened, args[0])
        elif event in _LISTING and sys._getframe(1).f_code.co_filename != _IMPORT_SYSTEM:
            _note(self._listed, args[0])

    def _inside(self, paths: set[str]) -> set[str]:
        roots = {str(self._root), os.path.realpath(self._root)}
        every = list(paths)  # threads of the file may still be at it
        return {path[len(root) + 1 :] for path in every for root in roots if f"{path}/".startswith(f"{root}/")}

    def _nearest_folder(self, name: str) -> str:
        while name and not (self._root / name).is_dir():
            name = os.path.dirname(name)
        return name


def _note(paths: set[str], path: Any) -> None:
    """`path` as it is meant now: the file may change its folder later. A descriptor (int) has been opened before."""
    if isinstance(path, int):
        return
    with suppress(
        OSError, TypeError, ValueError
    ):  # no path, or none that means anything here; the call itself will fail
        paths.add(os.path.abspath(os.fsdecode("." if path is None else path)))
