"""One pass over the bundle, and that was it: for DAGs that come with a release and don't change until the next.

The manager makes the pass when it starts. A release that is rolled out beside a running one ends with
`bfm bundles parse BUNDLE --deactivate-removed`, whose exit code says whether every file could be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar

from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.submission import Submission


class SinglePassBundleParser(BundleParser):
    name: ClassVar[str] = "single_pass"

    _is_done = False

    def next_scan(self, last: datetime | None) -> datetime | None:
        """Each manager makes its own pass, whenever the last one was."""
        return None if self._is_done else self.clock.now()

    def scan(self) -> Iterator[Submission]:
        self._is_done = True
        yield self.submission(self.bundle.fetch())
