"""The default: looks every `fetch_interval`, and reads what has changed.

A folder of the bundle may have times of its own: `scan_interval` between two looks at it, and `min_file_parse_interval`
between two readings of one of its files, for files that something rewrites all the time. What is not looked at, or put
off, stays as it is; the rest goes on.

With `max_file_parse_interval`, of the bundle or of a folder, a file is read again at the latest after that time although
nothing has changed: for files that make their DAGs from something outside of the bundle. The readings are spread over the
interval, each file has an instant of its own in it. They are made from the files as they were last fetched: nobody is
asked for new ones. A file that could not be read is tried again every `FAILED_RETRY_INTERVAL_S` anyway, as the reason may lie
outside, too (a database, a package, a busy machine).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from math import floor
from typing import Any, ClassVar, Final

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.parsers.bundle_state import Fetched
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.submission import Submission, paths_to
from backfill_manager.settings import DirectorySettings

REST = ""  # of the bundle: what lies in no folder with times of its own
FAILED_RETRY_INTERVAL_S: Final = 300.0


class StandardBundleParser(BundleParser):
    name: ClassVar[str] = "standard"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._next_fetch: float | None = None  # monotonic seconds, as all times here
        self._next_reading: float | None = None  # of a file whose time will be up
        self._looked_at: dict[str, float] = {}  # by folder with times of its own, and REST
        self._seen: object = None  # what the last look found
        self._fetched: Fetched | None = None

    def next_scan(self, last: datetime | None) -> datetime | None:
        """A new manager looks at once: what it has to compare with is what it has read itself."""
        now = self.clock.now()
        if self._next_fetch is None:
            return now
        at = self._next_fetch if self._next_reading is None else min(self._next_fetch, self._next_reading)
        return now + timedelta(seconds=at - self.clock.monotonic())

    def scan(self) -> Iterator[Submission]:
        now = self.clock.monotonic()
        if self._fetched is None or not self._is_only_to_read_again(now):
            yield from self._look_for_changes(now)
        if self._fetched is not None:
            passed = tuple(file for file, at in self._to_be_read_again(self._fetched).items() if at <= now)
            if passed:
                yield self.submission(self._fetched, covers=passed, again=True)
            self._next_reading = min(self._to_be_read_again(self._fetched).values(), default=None)

    def _is_only_to_read_again(self, now: float) -> bool:
        """It is not time for changes yet. A subclass may look whenever it likes: that is for changes."""
        is_time_to_fetch = self._next_fetch is None or self._next_fetch <= now
        return not is_time_to_fetch and self._next_reading is not None and self._next_reading <= now

    # -- what has changed ---------------------------------------------------------------------------------------------
    def _look_for_changes(self, now: float) -> Iterator[Submission]:
        self._next_fetch = now + self.bundle.settings.fetch_interval
        seen_before, self._seen = self._seen, None  # so that whatever goes wrong now is tried again
        self._fetched = self._next_reading = None
        fetched = self.bundle.fetch()
        self._next_fetch = now + fetched.settings.fetch_interval
        paces = {directory.path: directory for directory in fetched.settings.directories}
        due = self._due(paces, now)
        put_off = self._put_off(fetched.content, paces, due, now)
        seen = (fetched.content.hash, fetched.commit_id, fetched.settings, due, put_off)
        if seen != seen_before or self.has_released_ids():
            others = tuple(path for path in (REST, *paces) if path not in due)
            yield self.submission(fetched, covers=due, leaves_out=(*others, *put_off))
        self._seen, self._fetched = seen, fetched
        self._looked_at.update(dict.fromkeys(due, now))

    def _due(self, paces: Mapping[str, DirectorySettings], now: float) -> tuple[str, ...]:
        """Folders whose time has come. The first look is at everything."""

        def is_due(path: str) -> bool:
            since = self._looked_at.get(path)
            wanted = paces[path].scan_interval if path in paces else None
            return since is None or wanted is None or now - since >= wanted

        return tuple(path for path in (REST, *paces) if is_due(path))

    def _put_off(
        self, content: BundleContent, paces: Mapping[str, DirectorySettings], due: tuple[str, ...], now: float
    ) -> tuple[str, ...]:
        """Changed files that were read too short a while ago."""

        def least(file: str) -> float | None:
            folder = _folder_of(file, paces)
            return folder.min_file_parse_interval if folder is not None and folder.path in due else None

        slow = {file: wait for file in content.candidates if (wait := least(file))}
        return tuple(
            file
            for file in self.stale(slow, content)
            if (at := self.read_at(file)) is not None and now - at < slow[file]
        )

    # -- what is read again although nothing has changed --------------------------------------------------------------
    def _to_be_read_again(self, fetched: Fetched) -> dict[str, float]:
        """When, of the files that are read again at all."""
        folders = {directory.path: directory for directory in fetched.settings.directories}
        found: dict[str, float] = {}
        for file in self.dag_files(fetched.content):
            read_at, folder = self.read_at(file), _folder_of(file, folders)
            most = (folder.max_file_parse_interval if folder else None) or fetched.settings.max_file_parse_interval
            if self.has_failed(file):
                most = min(most or FAILED_RETRY_INTERVAL_S, FAILED_RETRY_INTERVAL_S)
            if most is not None and read_at is not None:
                least = (folder.min_file_parse_interval if folder else None) or 0.0
                found[file] = max(_instant_after(read_at, file, most), read_at + least)
        return found


def _folder_of(file: str, folders: Mapping[str, DirectorySettings]) -> DirectorySettings | None:
    """The innermost that has times of its own."""
    return next((folders[path] for path in paths_to(file) if path in folders), None)


def _instant_after(read_at: float, file: str, interval: float) -> float:
    """The next instant of a file: they are `interval` seconds apart, and those of different files are spread over it."""
    offset = zlib.crc32(file.encode("utf-8", "surrogateescape")) / 2**32 * interval
    passed = floor((read_at - offset) / interval + 1e-9)
    return (passed + 1) * interval + offset
