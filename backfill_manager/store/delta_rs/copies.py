"""Copies of the tables of a state in an object store, for commands, which begin anew each time, and for a server's first page.

delta-rs asks for one object after another: to open a table with thirty log entries and to read its two files takes some twenty
round trips, and a command reads several tables. Here all tables are listed at once; when one is read, its log is fetched at once,
with its files if it is small, else its log names those that are fetched; delta-rs reads the copies. Objects of a Delta table
never change, so an object is fetched once. The copies lie in a folder that only this user can read, and are deleted when the
process ends.

What is too large to be copied, or can't be, is read where it is.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from deltalake import DeltaTable
from obstore.exceptions import BaseError

THREADS: Final = 64
SMALL_BYTES: Final = 1_000_000  # of all files of a table, also those that it has no more
MAX_BYTES: Final = 32_000_000  # of the files of a table that are not there yet
UNUSED_FOR_S: Final = 60.0  # until an object that its table has no more is deleted here, too: a query may be reading it
# Reading the tables themselves tries longer.
RETRIES: Final[Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
MAX_LISTED: Final = 1_000  # files of a small table
_IN_LOG: Final = re.compile(r"(\d{20})\.(json|checkpoint\.[\d.]*parquet)")
_FILE: Final = re.compile(r"[\w=-][\w.=-]*\.parquet")  # none that leads out of its table's folder


def can_copy(location: str, environ: Mapping[str, str] = os.environ, home: Path | None = None) -> bool:
    """Whether an object store is reached by what both libraries know. Of AWS only delta-rs knows profiles."""
    if location.partition("://")[0] not in ("s3", "s3a"):
        return "://" in location
    if "AWS_ACCESS_KEY_ID" in environ or "AWS_WEB_IDENTITY_TOKEN_FILE" in environ:
        return True
    aws = os.path.join(home or os.path.expanduser("~"), ".aws")  # there may be no home, or it is another user's
    has_profiles = os.path.exists(aws) or "AWS_CONFIG_FILE" in environ or "AWS_PROFILE" in environ
    return not has_profiles


@dataclass
class _Copy:
    """Of one table."""

    folder: Path
    log: dict[str, str] = field(default_factory=dict)  # at the last look: object -> tag
    entries: dict[str, str] = field(default_factory=dict)  # what is here of it
    small: frozenset[str] = frozenset()  # files that are fetched with it, before the log says which it has
    handle: DeltaTable | None = None
    files: set[str] = field(default_factory=set)  # that are here
    unused: dict[Path, float] = field(default_factory=dict)  # since when, by the monotonic clock


class TableCopies:
    """One thread at a time. `OSError` for what goes wrong."""

    def __init__(self, base: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="bfm-state-"))
        # also at the end of the process
        self.close = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._copies: dict[str, _Copy] = {}
        try:
            self._objects: Any = obstore.store.from_url(base, retry_config=RETRIES)
        except (BaseError, ValueError) as error:
            raise OSError(str(error)) from error

    def look(self, tables: Iterable[str]) -> None:
        """Lists the logs of these tables."""
        tables = list(tables)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="bfm-copies") as threads:
            for table, (log, files) in zip(tables, threads.map(self._listed, tables), strict=True):
                if (copy := self._copy(table, log)) is not None:
                    copy.log, copy.small = log, copy.small | files

    def has(self, table: str) -> bool:
        """Whether there was such a table at the last look."""
        return table in self._copies

    def handle(self, table: str) -> DeltaTable:
        """As it was at the last look. Its files may not be here: `fetch_files`."""
        copy = self._copies[table]
        if copy.entries != copy.log:
            names = [f"_delta_log/{name}" for name in copy.log if name not in copy.entries]
            self._fetch(table, copy, [*names, *(copy.small - copy.files)])
            copy.files |= copy.small
            self._leave(copy, [f"_delta_log/{name}" for name in copy.entries.keys() - copy.log.keys()])
            copy.entries, copy.small, copy.handle = copy.log, frozenset(), None
        if copy.handle is None:
            copy.handle = DeltaTable(copy.folder)
        return copy.handle

    def fetch_files(self, table: str) -> bool:
        """Has all files of the table; False where they are too large."""
        handle, copy = self.handle(table), self._copies[table]
        actions = handle.get_add_actions()
        sizes = dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))
        missing = {name: size for name, size in sizes.items() if name not in copy.files}
        if sum(missing.values()) > MAX_BYTES or not all(map(_FILE.fullmatch, missing)):
            return False
        self._fetch(table, copy, missing)
        self._leave(copy, copy.files - sizes.keys())
        copy.files = set(sizes)
        return True

    def forget(self) -> None:
        """All is copied anew."""
        for table in list(self._copies):
            self._drop(table)

    def _drop(self, table: str) -> None:
        """A query that is reading it fails."""
        if copy := self._copies.pop(table, None):
            shutil.rmtree(copy.folder.parent, ignore_errors=True)

    @staticmethod
    def _leave(copy: _Copy, names: Iterable[str]) -> None:
        now = time.monotonic()
        copy.unused |= dict.fromkeys((copy.folder / name for name in names), now)
        for place in [place for place, since in copy.unused.items() if now - since >= UNUSED_FOR_S]:
            place.unlink(missing_ok=True)
            del copy.unused[place]

    def _copy(self, table: str, log: Mapping[str, str]) -> _Copy | None:
        """Another one where the table was made anew: its log has no entry of before, or another one under a name."""
        copy = self._copies.get(table)
        if copy is not None and copy.entries:
            same = [name for name in copy.entries.keys() & log.keys() if copy.entries[name] == log[name]]
            if not same or len(same) < len(copy.entries.keys() & log.keys()):
                copy = None
        if copy is None or not log:
            self._drop(table)
        if not log:
            return None
        if copy is None:
            self.folder.mkdir(mode=0o700, exist_ok=True)  # a cleaner of /tmp may have deleted it
            folder = Path(tempfile.mkdtemp(dir=self.folder)) / table
            (folder / "_delta_log").mkdir(parents=True)
            copy = self._copies[table] = _Copy(folder)
        return copy

    def _listed(self, table: str) -> tuple[dict[str, str], frozenset[str]]:
        """What a reader needs of a table's log (the last checkpoint, and the entries since) with the tag of each; and the
        files of a small table that is not here yet."""
        log: dict[str, tuple[int, str]] = {}
        files: dict[str, int] = {}
        checkpoint, is_new = 0, table not in self._copies
        try:
            for one in self._objects_below(table if is_new else f"{table}/_delta_log"):
                folder, _, name = str(one["path"]).rpartition("/")
                if folder != table and (match := _IN_LOG.fullmatch(name)):
                    log[name] = int(match[1]), f"{one['e_tag']} {one['size']} {one['last_modified']}"
                    checkpoint = max(checkpoint, int(match[1]) if match[2] != "json" else 0)
                elif folder == table and _FILE.fullmatch(name):  # they are listed after the log
                    files[name] = int(one["size"])
                    if len(files) > MAX_LISTED:
                        break
        except BaseError as error:
            raise OSError(str(error)) from error
        is_small = len(files) <= MAX_LISTED and sum(files.values()) <= SMALL_BYTES
        entries = {name: tag for name, (version, tag) in log.items() if version >= checkpoint}
        return entries, frozenset(files if is_small else ())

    def _objects_below(self, prefix: str) -> Iterator[Mapping[str, Any]]:
        for some in obstore.list(self._objects, prefix=prefix, chunk_size=MAX_LISTED):
            yield from some

    def _fetch(self, table: str, copy: _Copy, names: Iterable[str]) -> None:
        def fetch(name: str) -> None:
            try:
                (copy.folder / name).write_bytes(obstore.get(self._objects, f"{table}/{name}").bytes())
            except BaseError as error:
                raise OSError(str(error)) from error

        if names := list(names):
            with ThreadPoolExecutor(min(THREADS, len(names)), thread_name_prefix="bfm-copies") as threads:
                for _ in threads.map(fetch, names):
                    pass
