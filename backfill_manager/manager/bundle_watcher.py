"""Runs the bundles' parsers, in one thread: by themselves when they are due, and when somebody asks.

What they find is handed to the tick, which puts it into the store. DAG files are executed in processes of their own
(dags/loading/); this thread only waits for them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.clock import Clock
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import DagLoader, LoaderClosed
from backfill_manager.dags.parsers.bundle import Bundle
from backfill_manager.dags.parsers.parser import BundleParser
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.store import DagStore
from backfill_manager.dags.submission import Submission
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.manager.instructions import ParseWanted
from backfill_manager.settings import BundleSettings, LimitSettings
from backfill_manager.telemetry import get_logger

log = get_logger("bundles")


@dataclass(frozen=True)
class Parsed:
    """A parser found this by itself (`wanted` None), or because it was asked; `refusal` when it can't."""

    submission: Submission | None
    wanted: ParseWanted | None = None
    refusal: str = ""


@dataclass(frozen=True)
class ParsedAll:
    """Every bundle has been looked at once: what the state says of DAGs is up to date."""


class BundleWatcher:
    def __init__(
        self,
        bundles: Sequence[BundleSettings],
        *,
        dags: DagStore,
        snapshots: Path,
        limits: LimitSettings,
        clock: Clock,
        on_event: Callable[[Parsed | ParsedAll], None],
    ) -> None:
        self._clock, self._on_event = clock, on_event
        self._loader = DagLoader()
        self._dags = dags
        self._bundles = [Bundle(settings, snapshots=snapshots, limits=limits) for settings in bundles]
        self._parsers: dict[str, BundleParser] = {}  # by name of the bundle; the thread makes them
        self._told: dict[str, set[FailedFile]] = {}  # by bundle: errors that the log has
        self._asked: queue.SimpleQueue[ParseWanted | None] = queue.SimpleQueue()  # None: come to your end
        self._thread = threading.Thread(target=self._loop, name="bundle watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._asked.put(None)
        self._loader.close()

    def ask(self, wanted: ParseWanted) -> None:
        """Parse a path of a bundle as soon as may be; what comes of it is an event."""
        self._asked.put(wanted)

    def run_once(self) -> float | None:
        """Let every parser look that is due; returns the seconds until the next one is."""
        for bundle in self._bundles:
            if bundle.name not in self._parsers:
                self._parsers[bundle.name] = parser_for(bundle, self._loader, self._dags, self._clock)
        for parser in self._parsers.values():
            due = parser.due_in()
            if due is not None and due <= 0:
                self._look(parser)
        return min((due for parser in self._parsers.values() if (due := parser.due_in()) is not None), default=None)

    def _look(self, parser: BundleParser) -> None:
        try:
            for submission in parser.findings():
                for failure in set(submission.failed) - self._told.get(submission.bundle, set()):
                    log.warning(
                        "import error", bundle=submission.bundle, file=failure.file, line=failure.line,
                        message=failure.message,
                    )  # fmt: skip
                self._told[submission.bundle] = set(submission.failed)
                self._on_event(Parsed(submission))
        except LoaderClosed:
            return  # the manager stops
        except (BackfillManagerError, OSError) as error:
            log.error("bundle not read", bundle=parser.bundle.name, reason=str(error))

    def _parse(self, wanted: ParseWanted) -> None:
        try:
            if wanted.bundle not in self._parsers:
                raise NotFound("bundle", wanted.bundle, list(self._parsers))
            parser = self._parsers[wanted.bundle]
            found = parser.parse(wanted.subpath, deactivate_removed=wanted.deactivate_removed)
        except (BackfillManagerError, OSError) as error:
            self._on_event(Parsed(None, wanted, str(error)))
        else:
            self._on_event(Parsed(found, wanted))

    def _loop(self) -> None:
        wait = self.run_once()
        self._on_event(ParsedAll())
        while True:
            try:
                wanted = self._asked.get(timeout=None if wait is None else max(0.0, wait))
            except queue.Empty:
                wait = self.run_once()
                continue
            if wanted is None:
                return
            self._parse(wanted)
            wait = self.run_once()
