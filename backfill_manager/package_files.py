"""Files that the package brings along. It may be imported from a zip (`--py-files`), so they need not have paths."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable


def package_files(package: str, folder: str) -> dict[str, bytes]:
    """The content of each file below a folder of a package, by name (`vendor/htmx.min.js`), hidden ones left out."""
    return dict(_walk(resources.files(package).joinpath(folder), ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            yield f"{prefix}{entry.name}", entry.read_bytes()
