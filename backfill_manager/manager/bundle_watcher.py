"""Runs the bundles' parsers: by themselves when they are due, and when somebody asks.

What they find is handed to the tick, which puts it into the store. Each bundle has a thread of its own, so that a git
server that does not answer holds up no other bundle. DAG files are executed in processes (dags/loading/); the threads only
wait for them.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backfill_manager.clock import Clock
from backfill_manager.dags.catalog import DagStore
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import MOST_WORKERS, DagLoader, LoaderClosed
from backfill_manager.dags.parsers.bundle_state import AnotherParser, BundleState
from backfill_manager.dags.parsers.parser import (
    BundleParser,
    check_submission,
    failure_of,
    unreadable,
    unreadable_for,
)
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.submission import Submission
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound
from backfill_manager.logging import get_logger
from backfill_manager.manager.instructions import ParseRequest
from backfill_manager.service import ServiceFailed, ServiceThread
from backfill_manager.settings import BundleSettings, LimitSettings

log = get_logger("bundles")

MIN_INTERVAL_S = 1.0  # between two looks, also for a parser that is always due
STUCK_TIMEOUT_S = 900.0  # after which it is said that a parser does not come back; git alone may take a third of it


@dataclass(frozen=True)
class ParseResult:
    """A parser found this by itself (`wanted` None), or because it was asked; `refusal` when it can't."""

    submission: Submission | None
    wanted: ParseRequest | None = None
    refusal: str = ""


@dataclass(frozen=True)
class AllBundlesParsed:
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
        on_event: Callable[[ParseResult | AllBundlesParsed], None],
        on_failure: ServiceFailed | None = None,
    ) -> None:
        # One core is left to the ticks: with all of them busy parsing, niceness or not, an answer takes twice as long.
        self._on_event, self._loader = on_event, DagLoader(workers=max(1, min(MOST_WORKERS, (os.cpu_count() or 1) - 1)))
        self._watches = {
            settings.name: _Watch(
                BundleState(settings, snapshots=snapshots, limits=limits),
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
            self._on_event(AllBundlesParsed())
        for watch in self._watches.values():
            watch.start()

    def stop(self) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._loader.close()

    def ask(self, wanted: ParseRequest) -> None:
        """Parse a path of a bundle as soon as may be; what comes of it is an event."""
        if wanted.bundle in self._watches:
            self._watches[wanted.bundle].ask(wanted)
        else:
            self._on_event(ParseResult(None, wanted, str(NotFound("bundle", wanted.bundle, list(self._watches)))))

    def run_once(self) -> float | None:
        """Let every parser look that is due; returns the seconds until the next one is."""
        waits = [wait for watch in self._watches.values() if (wait := watch.run_once()) is not None]
        return min(waits, default=None)

    def _looked(self, name: str) -> None:
        with self._lock:
            self._not_looked_at.discard(name)
            if self._not_looked_at:
                return
        self._on_event(AllBundlesParsed())


class _Watch:
    """One bundle, its parser, and the thread that they have to themselves."""

    def __init__(
        self,
        bundle: BundleState,
        loader: DagLoader,
        dags: DagStore,
        clock: Clock,
        on_event: Callable[[ParseResult], None],
        looked: Callable[[str], None],
        on_failure: ServiceFailed | None,
    ) -> None:
        self._bundle, self._loader, self._dags, self._clock = bundle, loader, dags, clock
        self._on_event, self._looked = on_event, looked
        self._made_by = ""  # the parser's name
        self._made: BundleParser | None = None
        self._told: set[FailedFile] = set()  # errors that the log has
        self._lock = threading.Lock()
        self._answering: ParseRequest | None = None  # the request that the parser is at
        self._is_stuck = False
        self._asked: queue.SimpleQueue[ParseRequest | None] = queue.SimpleQueue()  # None: come to your end
        self._thread = ServiceThread(f"bundle {bundle.name}", self._loop, on_failure=on_failure)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._asked.put(None)

    def ask(self, wanted: ParseRequest) -> None:
        with self._lock:
            if not self._is_stuck:
                self._asked.put(wanted)
                return
        self._on_event(ParseResult(None, wanted, self._stuck()))

    def run_once(self) -> float | None:
        """Let the parser look if it is due; seconds until it is again. One that breaks, be it one from a package, is an
        error of its bundle and is tried again later."""
        try:
            due = self._look_if_due()
        except LoaderClosed:
            return None  # the manager stops
        except InvalidInput as error:  # the bundle can't be had, or its parser
            self._found(unreadable_for(error, self._bundle, self._bundle.parser))
            due = self._bundle.settings.fetch_interval
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            told = f"bundle {self._bundle.name!r}: {self._said(error)}"
            self._found(unreadable(self._bundle, self._bundle.parser, told))
            due = self._bundle.settings.fetch_interval
        return due if due is None else max(due, MIN_INTERVAL_S)

    def _look_if_due(self) -> float | None:
        parser = self._parser()
        due = parser.due_in()
        if due is not None and due <= 0:
            for submission in parser.findings():
                self._found(submission)
        if self._made_by != self._bundle.parser:  # the manifest names another one
            return self._look_if_due()
        return parser.due_in()

    def _parser(self) -> BundleParser:
        """Made when it is first needed, and when the bundle's manifest has come to name another one."""
        if self._made is None or self._made_by != self._bundle.parser:
            self._made = None
            self._made = parser_for(self._bundle, self._loader, self._dags, self._clock)
            self._made_by = self._bundle.parser
        return self._made

    def _found(self, submission: Submission) -> None:
        for failure in set(submission.failed) - self._told:
            log.warning(
                "import error", bundle=submission.bundle, file=failure.file, line=failure.line, message=failure.message
            )
        self._told = set(submission.failed)
        self._on_event(ParseResult(submission))

    def _parse(self, wanted: ParseRequest) -> None:
        self._answering = wanted
        try:
            found = self._parsed(wanted)
        except LoaderClosed:
            return  # the manager stops; the next one finds the request
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            answer = ParseResult(None, wanted, self._said(error))
        else:
            answer = ParseResult(found, wanted)
        with self._lock:
            is_wanted, self._answering = self._answering is not None, None
        if is_wanted:  # else it has been refused, as it took so long
            self._on_event(answer)

    def _parsed(self, wanted: ParseRequest) -> Submission:
        parser = self._parser()
        try:
            found = parser.parse(wanted.subpath, deactivate_removed=wanted.deactivate_removed)
        except AnotherParser:  # the manifest names it
            return self._parsed(wanted)
        check_submission(found, parser)
        return found

    @contextmanager
    def _overseen(self) -> Iterator[None]:
        """What runs inside may be somebody else's parser, and may not come back: this thread can't be ended, but people
        are told."""
        timer = threading.Timer(STUCK_TIMEOUT_S, self._tell_that_it_is_stuck)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._is_stuck = False

    def _tell_that_it_is_stuck(self) -> None:
        with self._lock:
            self._is_stuck = True
            waiting = [self._answering] if self._answering else []
            self._answering = None
            while not self._asked.empty():
                if (wanted := self._asked.get()) is not None:
                    waiting.append(wanted)
        self._found(unreadable(self._bundle, self._bundle.parser, f"bundle {self._bundle.name!r}: {self._stuck()}"))
        for wanted in waiting:
            self._on_event(ParseResult(None, wanted, self._stuck()))
        self._looked(self._bundle.name)  # nobody is to wait for it

    def _stuck(self) -> str:
        return (
            f"its parser {self._bundle.parser!r} has not come back for {STUCK_TIMEOUT_S / 60:g} minutes; other bundles go on. If it "
            "hangs, mend it and start the manager again"
        )

    def _said(self, error: Exception) -> str:
        """In one line; what no parser should raise goes to the log with its traceback."""
        if isinstance(error, BackfillManagerError | OSError):
            return str(error)
        log.exception("bundle parser failed", bundle=self._bundle.name, parser=self._bundle.parser)
        return failure_of(error, self._bundle.parser)

    def _loop(self) -> None:
        with self._overseen():
            wait = self.run_once()
        self._looked(self._bundle.name)
        while True:
            try:
                wanted = self._asked.get(timeout=wait)
            except queue.Empty:
                wanted = None
            else:
                if wanted is None:
                    return
            with self._overseen():
                if wanted is not None:
                    self._parse(wanted)
                wait = self.run_once()
