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
from backfill_manager.dags.parsers.parser import BundleParser, unreadable
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.store import DagStore
from backfill_manager.dags.submission import Submission
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.manager.instructions import ParseWanted
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
    ) -> None:
        self._clock, self._on_event = clock, on_event
        self._loader = DagLoader()
        self._dags = dags
        self._bundles = [Bundle(settings, snapshots=snapshots, limits=limits) for settings in bundles]
        self._parsers: dict[str, tuple[str, BundleParser]] = {}  # by bundle, with the name they were made by
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
        nexts = [at for bundle in self._bundles if (at := self._look_if_due(bundle)) is not None]
        return max(0.0, min(nexts) - self._clock.monotonic()) if nexts else None

    def _look_if_due(self, bundle: Bundle) -> float | None:
        """When it is due next, in monotonic seconds. A bundle whose parser breaks, be it one from a package, holds up no
        other; it is tried again later."""
        try:
            parser = self._parser(bundle)
            due = parser.due_in()
            if due is not None and due <= 0:
                for submission in parser.findings():
                    self._found(submission)
                due = parser.due_in()
        except LoaderClosed:
            return None  # the manager stops
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            self._found(unreadable(bundle, bundle.parser, f"bundle {bundle.name!r}: {self._said(bundle, error)}"))
            due = bundle.settings.fetch_interval
        return due if due is None else self._clock.monotonic() + max(due, LEAST_WAIT_S)

    def _parser(self, bundle: Bundle) -> BundleParser:
        """Made when it is first needed, and when the bundle's manifest has come to name another one."""
        name, parser = self._parsers.get(bundle.name, ("", None))
        if parser is None or name != bundle.parser:
            parser = parser_for(bundle, self._loader, self._dags, self._clock)
            self._parsers[bundle.name] = (bundle.parser, parser)
        return parser

    def _found(self, submission: Submission) -> None:
        for failure in set(submission.failed) - self._told.get(submission.bundle, set()):
            log.warning(
                "import error", bundle=submission.bundle, file=failure.file, line=failure.line, message=failure.message
            )
        self._told[submission.bundle] = set(submission.failed)
        self._on_event(Parsed(submission))

    def _parse(self, wanted: ParseWanted) -> None:
        try:
            bundle = next((bundle for bundle in self._bundles if bundle.name == wanted.bundle), None)
            if bundle is None:
                raise NotFound("bundle", wanted.bundle, [bundle.name for bundle in self._bundles])
            found = self._parser(bundle).parse(wanted.subpath, deactivate_removed=wanted.deactivate_removed)
        except LoaderClosed:
            return  # the manager stops; the next one finds the request
        except Exception as error:  # noqa: BLE001 - a parser may be somebody else's
            self._on_event(Parsed(None, wanted, self._said(bundle, error)))
        else:
            self._on_event(Parsed(found, wanted))

    def _said(self, bundle: Bundle | None, error: Exception) -> str:
        """In one line; what no parser should raise goes to the log with its traceback."""
        if isinstance(error, BackfillManagerError | OSError):
            return str(error)
        parser = bundle.parser if bundle else ""
        log.exception("bundle parser failed", bundle=bundle.name if bundle else None, parser=parser)
        return f"its parser {parser!r} failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"

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
