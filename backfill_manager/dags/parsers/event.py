"""Reads nothing by itself: only what it is asked to, by CLI or API. For those who push their changes, and know when."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.submission import Submission


class EventBundleParser(BundleParser):
    name: ClassVar[str] = "event"

    def next_scan(self, last: datetime | None) -> datetime | None:
        return None

    def scan(self) -> tuple[Submission, ...]:
        return ()
