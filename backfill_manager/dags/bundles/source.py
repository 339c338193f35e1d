"""The base of bundle sources (a local folder, a git repository at a ref, an archive), and the cache for what they fetch.

What comes from elsewhere lies in the cache, in a folder that is named for its content and made beside its place and
renamed; it is never changed afterwards. Only what a bundle may hold (`files.belongs`) is written there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.clock import SystemClock, micros
from backfill_manager.errors import InvalidInput

BEING_MADE: Final = ".making-"  # how folders begin that are being filled
MAX_BUNDLE_SIZE: Final = 512 << 20  # bytes
MAX_FILES: Final = 20_000
_MAX_KEPT: Final = 3  # contents of one bundle; its DAG versions have their snapshots
_UNUSED_AFTER_US: Final = 3_600_000_000  # a fetched content may be in use for an hour


@dataclass(frozen=True)
class FetchedFiles:
    """A folder with the bundle's files; of a git repository, the id of the commit that they are from."""

    root: Path
    commit_id: str | None = None


class BundleSource(ABC):
    @abstractmethod
    def fetch(self) -> FetchedFiles:
        """Fetches the files if they changed. `InvalidInput` says in one line what failed, and what would help."""


class FolderSource(BundleSource):
    def __init__(self, root: Path) -> None:
        self._root = root

    def fetch(self) -> FetchedFiles:
        if self._root.is_dir():
            return FetchedFiles(Path(os.path.realpath(self._root)))  # where a link leads may change at any time
        if self._root.exists():
            raise InvalidInput(f"{self._root} is not a folder (nor a .zip or .whl)")
        raise InvalidInput(f"the folder {self._root} does not exist")


def create_atomically(place: Path, fill: Callable[[Path], None]) -> Path:
    """The folder `place`, filled if it does not exist yet; older ones beside it, which are not in use any more, are removed."""
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(place.parent) as scratch:
            fill(Path(scratch))
            rename_unless_there(Path(scratch), place)
        _remove_old(place)
    os.utime(place)  # in use
    return place


def scratch_folder(beside: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder to be filled and renamed, so that readers see all of it or nothing. What is left of it is removed."""
    return tempfile.TemporaryDirectory(prefix=BEING_MADE, dir=beside, ignore_cleanup_errors=True)


def rename_unless_there(scratch: Path, place: Path) -> None:
    try:
        scratch.rename(place)
    except OSError:
        if not place.is_dir():  # else another process was quicker, with the same content
            raise


def _remove_old(place: Path) -> None:
    others = []
    for other in place.parent.iterdir():
        if other != place:
            with suppress(FileNotFoundError):  # another process removes it
                others.append((other.stat().st_mtime_ns // 1000, other))
    unused_since = micros(SystemClock().now()) - _UNUSED_AFTER_US
    for used_at, other in sorted(others)[: 1 - _MAX_KEPT]:
        if used_at < unused_since:
            with suppress(OSError):  # another process removes it
                away = other if other.name.startswith(BEING_MADE) else _away(other)
                shutil.rmtree(away, ignore_errors=True)


def _away(place: Path) -> Path:
    """Under another name: whatever ends its removal, no half of it is there under its own."""
    return place.rename(place.with_name(f"{BEING_MADE}{place.name}"))
