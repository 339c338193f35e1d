"""Runs the bundles' parsers: by themselves when they are due, and when somebody asks.

What they find is handed to the tick, which puts it into the store. Each bundle has a thread of its own, so that a git
server that does not answer holds up no other bundle. DAG files are executed in processes (dags/loading/); the threads only
wait for them.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.clock import Clock
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import MOST_WORKERS, DagLoader, LoaderClosed
from backfill_manager.dags.parsers.bundle import Bundle
from backfill_manager.dags.parsers.parser import BundleParser, unreadable
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.store import DagStore
from backfill_manager.dags.submission import Submission
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.manager.instructions import ParseWanted
from backfill_manager.part_thread import PartFailed, PartThread
from backfill_manager.settings import BundleSettings, LimitSettings
from backfill_manager.telemetry import get_logger

log = get_logger("bundles")

LEAST_WAIT_S = 1.0  # between two looks, also for a parser that is always due


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
        on_failure: PartFailed | None = None,
    ) -> None:
        # One core is left to the ticks: with all of them busy parsing, niceness or not, an answer takes twice as long.
        self._on_event, self._loader = on_event, DagLoader(workers=max(1, min(MOST_WORKERS, (os.cpu_count() or 1) - 1)))
        self._watches = {
            settings.name: _Watch(
                Bundle(settings, snapshots=snapshots, limits=limits),
                self._loader,
                dags,
                clock,
                on_event,
                self._looked,
                on_failure,
            )
            for settings in bundles
        }
        self._not_looked_at = set(self._watches)
        self._lock = threading.Lock()

    def start(self) -> None:
        if not self._watches:
            self._on_event(ParsedAll())
        for watch in self._watches.values():
            watch.start()

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._loader.close()

    def ask(self, wanted: ParseWanted) -> None:
        """Parse a path of a bundle as soon as may be; what comes of it is an event."""
        if wanted.bundle in self._watches:
            self._watches[wanted.bundle].ask(wanted)
        else:
            self._on_event(Parsed(None, wanted, str(NotFound("bundle", wanted.bundle, list(self._watches)))))

    def run_once(self) -> float | None:
        """Let every parser look that is due; returns the seconds until the next one is."""
        waits = [wait for watch in self._watches.values() if (wait := watch.run_once()) is not None]
        return min(waits, default=None)

    def _looked(self, name: str) -> None:
        with self._lock:
            self._not_looked_at.discard(name)
            if self._not_looked_at:
                return
        self._on_event(ParsedAll())


class _Watch:
    """One bundle, its parser, and the thread that they have to themselves."""

    def __init__(
        self,
        bundle: Bundle,
        loader: DagLoader,
        dags: DagStore,
        clock: Clock,
        on_event: Callable[[Parsed], None],
        looked: Callable[[str], None],
        on_failure: PartFailed | None,
    ) -> None:
        self._bundle, self._loader, self._dags, self._clock = bundle, loader, dags, clock
        self._on_event, self._looked = on_event, looked
        self._made_by = ""  # the parser's name
        self._made: BundleParser | None = None
        self._told: set[FailedFile] = set()  # errors that the log has
        self._asked: queue.SimpleQueue[ParseWanted | None] = queue.SimpleQueue()  # None: come to your end
        self._thread = PartThread(f"bundle {bundle.name}", self._loop, on_failure=on_failure)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._asked.put(None)

    def ask(self, wanted: ParseWanted) -> None:
        self._asked.put(wanted)

    def run_once(self) -> float | None:
        """Let the parser look if it is due; seconds until it is again. One that breaks, be it one from a package, is an
        error of its bundle and is tried again later."""
        try:
            parser = self._parser()
            due = parser.due_in()
            if due is not None and due <= 0:
                for submission in parser.findings():
                    self._found(submission)
                due = parser.due_in()
        except LoaderClosed:
            return None  # the manager stops
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            told = f"bundle {self._bundle.name!r}: {self._said(error)}"
            self._found(unreadable(self._bundle, self._bundle.parser, told))
            due = self._bundle.settings.fetch_interval
        return due if due is None else max(due, LEAST_WAIT_S)

    def _parser(self) -> BundleParser:
        """Made when it is first needed, and when the bundle's manifest has come to name another one."""
        if self._made is None or self._made_by != self._bundle.parser:
            self._made = parser_for(self._bundle, self._loader, self._dags, self._clock)
            self._made_by = self._bundle.parser
        return self._made

    def _found(self, submission: Submission) -> None:
        for failure in set(submission.failed) - self._told:
            log.warning(
                "import error", bundle=submission.bundle, file=failure.file, line=failure.line, message=failure.message
            )
        self._told = set(submission.failed)
        self._on_event(Parsed(submission))

    def _parse(self, wanted: ParseWanted) -> None:
        try:
            found = self._parser().parse(wanted.subpath, deactivate_removed=wanted.deactivate_removed)
        except LoaderClosed:
            return  # the manager stops; the next one finds the request
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            self._on_event(Parsed(None, wanted, self._said(error)))
        else:
            self._on_event(Parsed(found, wanted))

    def _said(self, error: Exception) -> str:
        """In one line; what no parser should raise goes to the log with its traceback."""
        if isinstance(error, BackfillManagerError | OSError):
            return str(error)
        log.exception("bundle parser failed", bundle=self._bundle.name, parser=self._bundle.parser)
        return f"its parser {self._bundle.parser!r} failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"

    def _loop(self) -> None:
        wait = self.run_once()
        self._looked(self._bundle.name)
        while True:
            try:
                wanted = self._asked.get(timeout=wait)
            except queue.Empty:
                wait = self.run_once()
                continue
            if wanted is None:
                return
            self._parse(wanted)
            wait = self.run_once()
