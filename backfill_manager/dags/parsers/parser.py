"""The contract of a bundle's parser: a bundle, a loader and the catalog in; submissions out.

A parser defines three things, each with a default:

- when: `next_scan(last)`, the instant of its next scan of the bundle, given the one of its last;
- which files: the patterns in `files`, and `may_make_dags(file, content)`;
- how a file becomes DAGs: `read(file, options)`, a class method that is called in a process of its own.

It may also define what it submits of a scan (`scan`), and its options (`Options`). The manager calls `scan_results` whenever
`due_in` says so, from a thread of the bundle, and hands the submissions to the catalog. Every parser can also parse a path on
request (`parse`). A third-party parser is a subclass that a package names in the entry-point group
`backfill_manager.bundle_parsers`; `docs/bundles.md` is the guide.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from backfill_manager.clock import Clock
from backfill_manager.dags.bundles.environment import interpreter_of
from backfill_manager.dags.bundles.files import (
    PYTHON_AND_YAML,
    BundleContent,
    DagFiles,
    is_of_airflow,
    may_make_dags,
    read,
)
from backfill_manager.dags.bundles.manifest import MANIFEST
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.dag_file import DagFile
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile
from backfill_manager.dags.parsers.bundle_state import BundleState, Fetched, ParserChanged, ParserOptions
from backfill_manager.dags.versions import Submission, paths_to
from backfill_manager.errors import InvalidConfig, InvalidInput, error_message
from backfill_manager.schemas.field_types import path_within_bundle


@dataclass(frozen=True)
class ParseRecord:
    """The last result of a file, and what it depended on."""

    result: ParsedFile | FailedFile
    dependencies: tuple[object, ...]
    at: float  # monotonic seconds


@dataclass(frozen=True)
class Changes:
    """Files of a bundle that differ from what it held when its files were last read; paths within the bundle."""

    added: tuple[str, ...]
    edited: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.edited or self.removed)


class BundleParser(ABC):
    name: ClassVar[str]
    files: ClassVar[tuple[str, ...]] = PYTHON_AND_YAML.patterns  # `*` matches `/` too; these belong to the bundle
    Options: ClassVar[type[ParserOptions]] = ParserOptions  # what `options` of a bundle may hold

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Parsers of packages made for releases before 0.2 define `next_look` and `look`: the same methods by older names."""
        super().__init_subclass__(**keywords)
        for name, older in (("next_scan", "next_look"), ("scan", "look")):
            if older in cls.__dict__ and name not in cls.__dict__:
                setattr(cls, name, cls.__dict__[older])
            setattr(cls, older, getattr(cls, name))

    def __init__(self, bundle: BundleState, loader: DagLoader, catalog: DagCatalog, clock: Clock) -> None:
        self.bundle, self.loader, self.catalog, self.clock = bundle, loader, catalog, clock
        self._dag_files = DagFiles(self.files, self.may_make_dags)
        bundle.use_parser(self._dag_files, self.Options)
        self.records: dict[str, ParseRecord] = {}
        self._last_scan: datetime | None = None
        self._scan_failed = False
        self._last_parse: datetime | None = None  # by this object
        self._content_parsed: BundleContent | None = None
        self._python: str | None = None  # the interpreter that files are read with; None: the manager's

    @abstractmethod
    def next_scan(self, last: datetime | None) -> datetime | None:
        """The instant (with a time zone) from which `scan` is to be called; a past one means now, None never. `last` is the
        last scan: of this process, else the last parse of the manager before it; None: there was none. A scan that fails is
        repeated after `fetch_interval` in any case."""

    def scan(self) -> Iterable[Submission]:
        """The submissions of a scan. By default one for all of the bundle, in which files are parsed that have changed, or that
        read something that has. `InvalidInput` when the bundle can't be fetched, `InvalidConfig` when its manifest is wrong."""
        yield self.submission(self.bundle.fetch())

    @classmethod
    def may_make_dags(cls, file: str, content: bytes) -> bool:
        """Whether a file that fits `files` is worth reading: a cheap test of its path within the bundle and its bytes. By
        default a `.py` file that holds the words `dag` and `backfill_manager`, and every other kind of file, unless its name
        begins with `_`."""
        is_ours = PYTHON_AND_YAML.fits(file)
        return may_make_dags(file, content) if is_ours else not file.rpartition("/")[2].startswith("_")

    @classmethod
    def read(cls, file: DagFile, options: Any) -> object:
        """Makes the DAGs of a file, with `dag`, `sql` and `task` as a Python file does. Called in a process of its own, with the
        limits of the bundle; again where the tasks run, if there are Python tasks. By default for Python and YAML."""
        return file.as_usual()

    @property
    def options(self) -> Any:
        """Of the bundle's configuration and manifest, as `Options`; as they were when the bundle was last fetched."""
        return self.bundle.options

    @property
    def last_parse(self) -> datetime | None:
        """When files of the bundle were last read, by this manager or one before it; None: never."""
        row = self.catalog.bundle(self.bundle.name)
        stored = row.parsed_at if row else None
        return max((at for at in (self._last_parse, stored) if at is not None), default=None)

    def changes(self, fetched: Fetched) -> Changes:
        """What differs in `fetched` from what the bundle held when files of it were last read, also before a restart."""
        before = self._content_parsed
        if before is None:
            row = self.catalog.bundle(self.bundle.name)
            before = self.bundle.snapshot_content(row.content_hash) if row else None
        was, now = before.files if before else {}, fetched.content.files
        return Changes(
            added=tuple(sorted(now.keys() - was.keys())),
            edited=tuple(sorted(file for file in now.keys() & was.keys() if now[file] != was[file])),
            removed=tuple(sorted(was.keys() - now.keys())),
        )

    def due_in(self) -> float | None:
        """Seconds until `scan` is to be called; 0 or less is now, None is never."""
        now = self.clock.now()
        last = self._last_scan or self.last_parse
        at: Any = self.next_scan(last if last is None else min(last, now))
        now = self.clock.now()  # what was now a moment ago has come
        if at is not None and not (isinstance(at, datetime) and at.tzinfo is not None):
            what = "an instant with a time zone, or None"
            raise InvalidInput(f"its parser {self.name!r} gave {at!r} as next_scan; {what}")
        if self._scan_failed and self._last_scan is not None:
            again = min(self._last_scan, now) + timedelta(seconds=self.bundle.settings.fetch_interval)
            at = again if at is None else min(at, again)
        return None if at is None else float((at - now).total_seconds())

    def scan_results(self) -> Iterator[Submission]:
        """The submissions of a scan, or one that says why it failed. None when the manifest names another parser now."""
        self._last_scan, self._scan_failed = self.clock.now(), True
        has_submitted = False
        try:
            for submission in self.scan():
                check_submission(submission, self)
                has_submitted = True
                yield submission
        except ParserChanged:
            return
        except InvalidInput as error:
            yield unreadable_because(error, self.bundle)
            return
        self._scan_failed = False
        if not has_submitted:
            yield from self.without_errors_of_bundle()

    def without_errors_of_bundle(self) -> Iterator[Submission]:
        """It could be fetched again: an error of its own, or of its manifest, is cleared. Nothing where there is none, or still
        one."""
        if self.bundle.missing_folder is None and {".", MANIFEST} & self.catalog.files_of(self.bundle.name):
            nothing = BundleContent({}, ())
            yield Submission(
                self.bundle.name, self.bundle.settings.place, self.name, nothing, covers=(), deactivates=False
            )

    def parse(self, subpath: str = "", *, deactivate_removed: bool = False) -> Submission:
        """Parses the files under `subpath` ("" is all) on request, changed or not. `InvalidInput` when the bundle can't be
        fetched or has no such path; `InvalidConfig` when its manifest is wrong."""
        subpath = path_within_bundle(subpath)
        fetched = self.bundle.fetch()
        candidates = (*fetched.content.files, *self.catalog.files_of(self.bundle.name))
        if subpath and not any(subpath in paths_to(file) for file in candidates):
            raise InvalidInput(
                f"bundle {self.bundle.name!r} has no file or folder {subpath!r} ({self.bundle.settings.place})"
            )
        made = self.submission(fetched, covers=(subpath,), again=True, deactivates=deactivate_removed, on_request=True)
        others = sorted(made.content.files.keys() - self.dag_files(made.content))
        texts = ((file, read(Path(made.snapshot, file), file)) for file in others if made.covers_file(file))
        return replace(made, airflow_files=tuple(file for file, text in texts if text and is_of_airflow(file, text)))

    def submission(
        self,
        fetched: Fetched,
        *,
        covers: tuple[str, ...] = ("",),
        leaves_out: tuple[str, ...] = (),
        again: bool = False,
        deactivates: bool = True,
        on_request: bool = False,
    ) -> Submission:
        """All that the files under `covers` but not under `leaves_out` define. Files are read that have changed, or whose
        reading read something that has; with `again` all of them. `InvalidInput` when the bundle's environment can't be had."""
        if fetched.settings.keep_last_good:  # DAGs of a folder that is missing, too: a mount may be away for a while
            leaves_out = (*leaves_out, *self.bundle.missing_folders)
        settings, options = fetched.settings, self.bundle.options.model_dump(mode="json")
        snapshot, content = self.bundle.take_snapshot(fetched)
        self._python = interpreter_of(settings, snapshot)
        shown = settings.model_copy(update={"options": options}).shown()
        shown |= {"python": self._python} if self._python else {}
        reader = self._reader()
        empty = Submission(
            self.bundle.name, settings.place, self.name, content, snapshot=str(snapshot), commit_id=fetched.commit_id,
            covers=covers, leaves_out=leaves_out, deactivates=deactivates, keep_last_good=settings.keep_last_good,
            on_request=on_request,
            settings_json=json.dumps(shown, ensure_ascii=False),
            reader_json=json.dumps({"reader": reader, "options": options}, sort_keys=True) if reader else None,
            python=self._python,
        )  # fmt: skip
        files = sorted(file for file in self.dag_files(content) if empty.covers_file(file))
        stale_files = files if again else self.stale(files, content)
        now, dependencies = self.clock.monotonic(), _dependencies_in(content, self._python)
        results = self.loader.load(
            snapshot, stale_files, import_timeout=settings.import_timeout, import_memory_mb=settings.import_memory,
            limits=self.bundle.limits, reader=reader, options=self.bundle.raw_options.values,
            python=self._python,
        )  # fmt: skip
        for file, result in zip(stale_files, results, strict=True):
            self.records[file] = ParseRecord(result, dependencies(file, result), now)
        self.records = {file: record for file, record in self.records.items() if file in content.files}
        if stale_files:
            self._last_parse = self.clock.now()
        self._content_parsed = content
        results_now = [self.records[file].result for file in files]
        return replace(
            empty,
            parsed=tuple(result for result in results_now if isinstance(result, ParsedFile)),
            failed=(
                *(result for result in results_now if isinstance(result, FailedFile)),
                *filter(None, [self.bundle.missing_folder]),
            ),
            parsed_at=self._last_parse if stale_files else None,
        )

    def dag_files(self, content: BundleContent) -> Collection[str]:
        """Files of the bundle that DAGs are read from: those that may make some, and those that did or broke: one that was
        cut off in the middle of a copy may not look like a DAG file any more."""
        read_before = content.files.keys() & self.catalog.files_of(self.bundle.name) - {MANIFEST}
        return {*content.candidates, *filter(self._dag_files.fits, read_before)}

    def stale(self, files: Iterable[str], content: BundleContent) -> list[str]:
        """Those that were never parsed, or whose result depended on something that has changed."""
        dependencies = _dependencies_in(content, self._python)

        def is_stale(file: str) -> bool:
            before = self.records.get(file)
            return before is None or dependencies(file, before.result) != before.dependencies

        return [file for file in files if is_stale(file)]

    def has_released_ids(self) -> bool:
        """A file was rejected because another, maybe of another bundle, had an id of its DAGs, which is free now."""
        parsed = [read.result for read in self.records.values() if isinstance(read.result, ParsedFile)]
        return self.catalog.has_released_ids(self.bundle.name, parsed)

    def _reader(self) -> str:
        """`module:Class` when the class has a `read` of its own; the process that reads a file imports it by that."""
        cls, name = type(self), f"{type(self).__module__}:{type(self).__qualname__}"
        if getattr(cls.read, "__func__", cls.read) is BundleParser.read.__func__:  # type: ignore[attr-defined]
            return ""
        if "<locals>" in cls.__qualname__ or cls.__module__ == "__main__":
            raise InvalidInput(
                f"its parser {self.name!r} is a class that no other process can import ({name}); "
                "put it at the top level of a module of its package"
            )
        return name


def check_submission(submission: object, parser: BundleParser) -> None:
    """`InvalidInput` for what the manager could not apply, from a parser that makes submissions itself: they are applied in the
    one thread that all bundles share."""
    who = f"its parser {parser.name!r} gave"
    if not isinstance(submission, Submission):
        instead = "instead of a Submission (`self.submission(...)` makes one)"
        raise InvalidInput(f"{who} a {type(submission).__name__} {instead}")
    if submission.bundle != parser.bundle.name:
        raise InvalidInput(f"{who} a submission for another bundle, {submission.bundle!r}")
    for one in submission.parsed:
        if type(parser).__module__.startswith("backfill_manager."):
            return  # read by the loader, which has looked
        try:
            specs = one.dags
            for spec in specs:
                spec.check()
            if tuple(spec.dag_id for spec in specs) != tuple(one.dag_ids):
                raise ValueError(f"dag_ids {one.dag_ids!r} are not those of its definitions")
            if one.file not in submission.content.files:
                raise ValueError("there is no such file in the bundle")
        except (AttributeError, KeyError, TypeError, ValueError, InvalidInput) as error:
            raise InvalidInput(f"{who} DAGs of {one.file} that can't be stored: {error}") from error


def unreadable(bundle: BundleState, why: str, file: str = ".") -> Submission:
    """For a bundle that can't be fetched or read: its DAGs stay as they are. `file` is to blame; `.` is the bundle."""
    failed, nothing = FailedFile(file, None, why), BundleContent({}, ())
    return Submission(bundle.name, bundle.settings.place, bundle.parser, nothing, failed=(failed,), readable=False)


def unreadable_because(error: BaseException, bundle: BundleState) -> Submission:
    """`unreadable` for what fetching or parsing raised. An error of the manifest is reported as that file's."""
    message = str(error) if isinstance(error, InvalidInput) else parser_failure(error, bundle.parser)
    if isinstance(error, InvalidConfig) and message.startswith(MANIFEST):
        return unreadable(bundle, message, MANIFEST)
    who = f"bundle {bundle.name!r}"
    return unreadable(bundle, message if message.startswith(who) else f"{who}: {message}")


def parser_failure(error: BaseException, parser: str) -> str:
    return f"its parser {parser!r} failed: {type(error).__name__}: {error_message(error).partition(chr(10))[0]}"


def _dependencies_in(
    content: BundleContent, python: str | None
) -> Callable[[str, ParsedFile | FailedFile], tuple[object, ...]]:
    """What a file's result depends on: the interpreter, digests of the file and of all that it read, names in the folders that
    it listed. A file that failed depends on everything: what it had read is lost."""

    @cache
    def listing(folder: str) -> tuple[str, ...]:
        return tuple(sorted(name for name in content.files if not folder or name.startswith(f"{folder}/")))

    def dependencies(file: str, result: ParsedFile | FailedFile) -> tuple[object, ...]:
        if isinstance(result, FailedFile):
            return (python, content.hash)
        read = tuple((name, content.files.get(name)) for name in (file, *result.imported, *result.read))
        return (python, *read, *map(listing, result.listed))

    return dependencies
