"""The parsers that come with the package: standard, single pass, event."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from math import floor, inf
from typing import Any, ClassVar, Final

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.parsers.bundle_state import Fetched
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.versions import Submission, paths_to
from backfill_manager.settings import DirectorySettings

REST = ""  # of the bundle: what lies in no folder with times of its own
FAILED_RETRY_INTERVAL_S: Final = 300.0


class StandardBundleParser(BundleParser):
    """The default: scans every `fetch_interval`, and parses what has changed.

    A folder of the bundle may have intervals of its own: `scan_interval` between two scans of it, and
    `min_file_parse_interval` between two readings of one of its files, for files that something rewrites all the time. What
    is not scanned, or postponed, stays as it is.

    With `max_file_parse_interval`, of the bundle or of a folder, a file is parsed again at the latest after that time although
    nothing has changed: for files that make their DAGs from something outside of the bundle. The instants are spread over the
    interval, each file has its own. The files are parsed as they were last fetched. A file that failed is tried again every
    `FAILED_RETRY_INTERVAL_S` anyway, as the reason may lie outside, too (a database, a package, a busy machine).
    """

    name: ClassVar[str] = "standard"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._next_fetch: float | None = None  # monotonic seconds, as all times here
        self._next_reading: float | None = None  # of a file whose time will be up
        self._scanned_at: dict[str, float] = {}  # by folder with times of its own, and REST
        self._seen: object = None  # of the last scan
        self._fetched: Fetched | None = None

    def next_scan(self, last: datetime | None) -> datetime | None:
        """A new manager scans at once: it compares with what it has parsed itself."""
        if self._next_fetch is None:
            return self.clock.now()
        at = self._next_fetch if self._next_reading is None else min(self._next_fetch, self._next_reading)
        return self.clock.now() + timedelta(seconds=at - self.clock.monotonic())

    def scan(self) -> Iterator[Submission]:
        now = self.clock.monotonic()
        is_time_to_reparse = self._next_reading is not None and self._next_reading <= now
        is_time_to_fetch = self._next_fetch is None or self._next_fetch <= now
        # A subclass may scan at any time: that is for changes.
        if self._fetched is None or is_time_to_fetch or not is_time_to_reparse:
            yield from self._scan_for_changes(now)
        if self._fetched is not None:
            passed = tuple(file for file, at in self._reparse_times(self._fetched).items() if at <= now)
            if passed:
                yield self.submission(self._fetched, covers=passed, again=True)
            self._next_reading = min(self._reparse_times(self._fetched).values(), default=None)

    def _scan_for_changes(self, now: float) -> Iterator[Submission]:
        self._next_fetch = now + self.bundle.settings.fetch_interval
        seen_before, self._seen = self._seen, None  # so that whatever goes wrong now is tried again
        self._fetched = self._next_reading = None
        fetched = self.bundle.fetch()
        self._next_fetch = now + fetched.settings.fetch_interval
        directories = {directory.path: directory for directory in fetched.settings.directories}
        due = self._due(directories, now)
        postponed = self._postponed(fetched.content, directories, due, now)
        seen = (fetched.content.hash, fetched.commit_id, fetched.settings, due, postponed, self.bundle.missing_folder)
        if seen != seen_before or self.has_released_ids():
            others = tuple(path for path in (REST, *directories) if path not in due)
            yield self.submission(fetched, covers=due, leaves_out=(*others, *postponed))
        self._seen, self._fetched = seen, fetched
        self._scanned_at.update(dict.fromkeys(due, now))

    def _due(self, directories: Mapping[str, DirectorySettings], now: float) -> tuple[str, ...]:
        """Folders whose interval has passed. The first scan covers everything."""
        intervals = {REST: None, **{path: directory.scan_interval for path, directory in directories.items()}}
        return tuple(
            path for path, interval in intervals.items() if now - self._scanned_at.get(path, -inf) >= (interval or 0)
        )

    def _postponed(
        self, content: BundleContent, directories: Mapping[str, DirectorySettings], due: tuple[str, ...], now: float
    ) -> tuple[str, ...]:
        """Changed files that were read too short a while ago."""
        slow: dict[str, float] = {}
        for file in content.candidates:
            folder = _folder_of(file, directories)
            if folder is not None and folder.path in due and folder.min_file_parse_interval:
                slow[file] = folder.min_file_parse_interval
        read = (file for file in self.stale(slow, content) if file in self.records)
        return tuple(file for file in read if now - self.records[file].at < slow[file])

    def _reparse_times(self, fetched: Fetched) -> dict[str, float]:
        """When, of the files that are read again at all."""
        folders = {directory.path: directory for directory in fetched.settings.directories}
        due_at: dict[str, float] = {}
        for file in self.records.keys() & self.dag_files(fetched.content):
            last, folder = self.records[file], _folder_of(file, folders)
            maximum = (folder.max_file_parse_interval if folder else None) or fetched.settings.max_file_parse_interval
            if isinstance(last.result, FailedFile):
                maximum = min(maximum or FAILED_RETRY_INTERVAL_S, FAILED_RETRY_INTERVAL_S)
            if maximum is not None:
                minimum = (folder.min_file_parse_interval if folder else None) or 0.0
                due_at[file] = max(_instant_after(last.at, file, maximum), last.at + minimum)
        return due_at


class SinglePassBundleParser(BundleParser):
    """Scans once, when the manager starts: for DAGs that come with a release and don't change until the next. A release that
    is rolled out beside a running one ends with parsing the bundle on request, with removed DAGs deactivated."""

    name: ClassVar[str] = "single_pass"

    _is_done = False

    def next_scan(self, last: datetime | None) -> datetime | None:
        """Each manager makes its own pass, whenever the last one was."""
        return None if self._is_done else self.clock.now()

    def scan(self) -> Iterator[Submission]:
        self._is_done = True
        yield self.submission(self.bundle.fetch())


class EventBundleParser(BundleParser):
    """Parses on request only, of CLI or API: for those who push their changes, and know when."""

    name: ClassVar[str] = "event"

    def next_scan(self, last: datetime | None) -> datetime | None:
        return None

    def scan(self) -> tuple[Submission, ...]:
        return ()


def _folder_of(file: str, folders: Mapping[str, DirectorySettings]) -> DirectorySettings | None:
    """The innermost that has times of its own."""
    return next((folders[path] for path in paths_to(file) if path in folders), None)


def _instant_after(read_at: float, file: str, interval: float) -> float:
    """The next instant of a file: they are `interval` seconds apart, and those of different files are spread over it."""
    offset = zlib.crc32(file.encode("utf-8", "surrogateescape")) / 2**32 * interval
    passed = floor((read_at - offset) / interval + 1e-9)
    return (passed + 1) * interval + offset
