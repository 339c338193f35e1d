"""The default: looks every `fetch_interval`, and reads what has changed.

A folder of the bundle may have a pace of its own: `scan_interval` between two looks at it, and `min_file_parse_interval`
between two readings of one of its files, for files that something rewrites all the time. What is not looked at, or put
off, stays as it is; the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.submission import Submission, paths_to
from backfill_manager.settings import DirectorySettings

REST = ""  # of the bundle: what lies in no folder with a pace of its own


class StandardBundleParser(BundleParser):
    name: ClassVar[str] = "standard"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._next_look: float | None = None  # monotonic seconds, as all times here
        self._looked_at: dict[str, float] = {}  # by folder with a pace of its own, and REST
        self._seen: object = None  # what the last look found

    def due_in(self) -> float | None:
        return 0.0 if self._next_look is None else self._next_look - self.clock.monotonic()

    def look(self) -> Iterator[Submission]:
        now = self.clock.monotonic()
        self._next_look = now + self.bundle.settings.fetch_interval
        seen_before, self._seen = self._seen, None  # so that whatever goes wrong now is tried again
        fetched = self.bundle.fetch()
        self._next_look = now + fetched.settings.fetch_interval
        paces = {directory.path: directory for directory in fetched.settings.directories}
        due = self._due(paces, now)
        put_off = self._put_off(fetched.content, paces, due, now)
        seen = (fetched.content.hash, fetched.commit_id, fetched.settings, due, put_off)
        if seen != seen_before or self.may_be_taken():
            others = tuple(path for path in (REST, *paces) if path not in due)
            yield self.submission(fetched, covers=due, leaves_out=(*others, *put_off))
        self._seen = seen
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
            folder = next((path for path in paths_to(file) if path in paces), None)
            return paces[folder].min_file_parse_interval if folder in due and folder is not None else None

        slow = {file: wait for file in content.candidates if (wait := least(file))}
        return tuple(
            file
            for file in self.stale(slow, content)
            if (at := self.read_at(file)) is not None and now - at < slow[file]
        )
