"""Runs the bundles' parsers: when they are due, and when a client requests it.

What they find is handed to the tick, which puts it into the catalog. Each bundle has a thread of its own, so that a git
server that does not answer holds up no other bundle. DAG files are executed in processes (dags/importing/); the threads only
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
from typing import ClassVar, Final

from backfill_manager.clock import Clock
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import MAX_WORKERS, DagLoader, LoaderClosed
from backfill_manager.dags.parsers import parser as parsers
from backfill_manager.dags.parsers.bundle_state import BundleState, ParserChanged
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.versions import Submission
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound
from backfill_manager.logging import get_logger
from backfill_manager.manager.tick_context import ParseRequest
from backfill_manager.service import FailureHandler, Pass, Service
from backfill_manager.settings import BundleSettings, LimitSettings

log = get_logger("bundles")

MIN_INTERVAL_S: Final = 1.0  # between two passes, also for a parser that is always due
STUCK_TIMEOUT_S: Final = 900.0  # after which a parser counts as stuck; git alone may take a third of it


@dataclass(frozen=True)
class ParseResult:
    """What a parser found by itself (`request` None) or for a request; `refusal` when it could not."""

    submission: Submission | None
    request: ParseRequest | None = None
    refusal: BackfillManagerError | str = ""


@dataclass(frozen=True)
class AllBundlesParsed:
    """Every bundle has been parsed once: the state's DAGs are up to date."""


class BundleWatcher:
    """A service for each bundle."""

    def __init__(
        self, bundles: Sequence[BundleSettings], *, dags: DagCatalog, snapshots: Path, limits: LimitSettings, clock: Clock,
        on_event: Callable[[ParseResult | AllBundlesParsed], None],
    ) -> None:  # fmt: skip
        # One core is left to the ticks: with all of them busy parsing, niceness or not, an answer takes twice as long.
        self.loader = DagLoader(workers=max(1, min(MAX_WORKERS, (os.cpu_count() or 1) - 1)))
        self.dags, self.clock, self.on_event = dags, clock, on_event
        states = [BundleState(settings, snapshots=snapshots, limits=limits) for settings in bundles]
        self._services = {bundle.name: BundleService(bundle, self) for bundle in states}
        self._not_parsed = set(self._services)
        self._lock = threading.Lock()

    def start(self, on_failure: FailureHandler | None = None) -> None:
        if not self._services:
            self.on_event(AllBundlesParsed())
        for service in self._services.values():
            service.start(on_failure)

    @property
    def passes(self) -> list[Pass]:
        return [service.current_pass for service in self._services.values()]

    def stop(self) -> None:
        for service in self._services.values():
            service.stop()
        self.loader.close()

    def parse(self, request: ParseRequest) -> None:
        """Parse a path of a bundle as soon as possible; the result is an event."""
        if request.bundle in self._services:
            self._services[request.bundle].parse(request)
        else:
            error = NotFound("bundle", request.bundle, list(self._services))
            self.on_event(ParseResult(None, request, error))

    def parsed_once(self, name: str) -> None:
        with self._lock:
            self._not_parsed.discard(name)
            if self._not_parsed:
                return
        self.on_event(AllBundlesParsed())


class BundleService(Service):
    JOINED: ClassVar = False  # the parser may be third-party code that hangs

    def __init__(self, bundle: BundleState, watcher: BundleWatcher) -> None:
        super().__init__(f"bundle {bundle.name}")
        self._bundle, self._watcher, self._on_event = bundle, watcher, watcher.on_event
        self._parser_name = ""
        self._parser: parsers.BundleParser | None = None
        self._logged: set[FailedFile] = set()
        self._is_first_pass = True
        self._lock = threading.Lock()
        self._current: ParseRequest | None = None  # the request that is being parsed
        self._is_stuck = False
        self._requests: queue.SimpleQueue[ParseRequest] = queue.SimpleQueue()

    def parse(self, request: ParseRequest) -> None:
        with self._lock:
            if not self._is_stuck:
                self._requests.put(request)
                self.wake()
                return
        self._on_event(ParseResult(None, request, self._stuck_message()))

    def run_once(self) -> float | None:
        with self._watchdog():
            if not self._is_first_pass and not self._requests.empty():
                self._answer(self._requests.get())
            wait = self.parse_if_due()
        if self._is_first_pass:
            self._is_first_pass = False
            self._watcher.parsed_once(self._bundle.name)
        return wait if self._requests.empty() else 0

    def parse_if_due(self) -> float | None:
        """Run the parser if it is due; returns the seconds until it is again. An error of the parser, be it one from another
        package, is an error of its bundle, and it is tried again later."""
        try:
            due = self._run_if_due()
        except LoaderClosed:
            return None  # the manager stops
        except InvalidInput as error:  # the bundle can't be fetched, or there is no such parser
            self._submit(parsers.unreadable_because(error, self._bundle))
            due = self._bundle.settings.fetch_interval
        except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party parsers raise anything
            self._submit_unreadable(self._refusal(error))
            due = self._bundle.settings.fetch_interval
        return due if due is None else max(due, MIN_INTERVAL_S)

    def _run_if_due(self) -> float | None:
        parser = self._current_parser()
        due = parser.due_in()
        if due is not None and due <= 0:
            for submission in parser.scan_results():
                self._submit(submission)
        if self._parser_name != self._bundle.parser:  # the manifest names another one
            return self._run_if_due()
        return parser.due_in()

    def _current_parser(self) -> parsers.BundleParser:
        """Made when it is first needed, and again when the bundle's manifest names another one."""
        if self._parser is None or self._parser_name != self._bundle.parser:
            self._parser = None  # should the next line fail
            self._parser = parser_for(self._bundle, self._watcher.loader, self._watcher.dags, self._watcher.clock)
            self._parser_name = self._bundle.parser
            if self._parser.due_in() is None:  # else its next scan says what is wrong still
                for submission in self._parser.without_errors_of_bundle():
                    self._submit(submission)
        return self._parser

    def _submit(self, submission: Submission) -> None:
        for one in set(submission.failed) - self._logged:
            log.warning("import error", bundle=submission.bundle, file=one.file, line=one.line, message=one.message)
        self._logged = {one for one in self._logged if not submission.covers_file(one.file)} | set(submission.failed)
        self._on_event(ParseResult(submission))

    def _submit_unreadable(self, why: object) -> None:
        self._submit(parsers.unreadable(self._bundle, f"bundle {self._bundle.name!r}: {why}"))

    def _answer(self, request: ParseRequest) -> None:
        self._current = request
        try:
            submission = self._parse_subpath(request)
        except LoaderClosed:
            return  # the manager stops; the next one finds the request
        except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party parsers raise anything
            result = ParseResult(None, request, self._refusal(error))
        else:
            result = ParseResult(submission, request)
        with self._lock:
            is_current, self._current = self._current is not None, None
        if is_current:  # else it was refused because it took so long
            self._on_event(result)

    def _parse_subpath(self, request: ParseRequest) -> Submission:
        parser = self._current_parser()
        try:
            submission = parser.parse(request.subpath, deactivate_removed=request.deactivate_removed)
        except ParserChanged:  # the manifest names it
            return self._parse_subpath(request)
        parsers.check_submission(submission, parser)
        return submission

    @contextmanager
    def _watchdog(self) -> Iterator[None]:
        """Reports a parser that does not return: its thread can't be ended, but clients are answered."""
        timer = threading.Timer(STUCK_TIMEOUT_S, self._report_stuck)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._is_stuck = False

    def _report_stuck(self) -> None:
        with self._lock:
            self._is_stuck = True
            waiting = [self._current] if self._current else []
            self._current = None
            while not self._requests.empty():
                waiting.append(self._requests.get())
        self._submit_unreadable(self._stuck_message())
        for request in waiting:
            self._on_event(ParseResult(None, request, self._stuck_message()))
        self._watcher.parsed_once(self._bundle.name)  # nothing else may wait for it

    def _stuck_message(self) -> str:
        return (
            f"its parser {self._bundle.parser!r} has not come back for {STUCK_TIMEOUT_S / 60:g} minutes; other bundles are "
            "parsed as usual. If it hangs, fix it and restart the manager"
        )

    def _refusal(self, error: BaseException) -> BackfillManagerError | str:
        """One line; what no parser should raise goes to the log with its traceback."""
        if isinstance(error, BackfillManagerError):
            return error
        if isinstance(error, OSError):
            return str(error)
        log.error("bundle parser failed", bundle=self._bundle.name, parser=self._bundle.parser, exc_info=error)
        return parsers.parser_failure(error, self._bundle.parser)
