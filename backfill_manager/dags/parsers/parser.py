"""The abstraction: a bundle, a loader and the store in; submissions out.

A parser decides *when* its bundle is looked at and *which* of its files are read. The manager calls `look` whenever
`due_in` says so, from one thread, and hands what comes to the store. Every parser can also be asked to parse a path here
and now (`bfm bundles parse`). One of your own is a subclass that a package names in the entry-point group
`backfill_manager.bundle_parsers`; `docs/bundles.md` has one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from backfill_manager.clock import Clock
from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.bundles.manifest import MANIFEST
from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import DagLoader, ParsedFile
from backfill_manager.dags.parsers.bundle import Bundle, Fetched
from backfill_manager.dags.store import DagStore
from backfill_manager.dags.submission import Submission, paths_to
from backfill_manager.errors import InvalidConfig, InvalidInput


@dataclass(frozen=True)
class Read:
    """A file as it was read last, and what that depended on."""

    result: ParsedFile | FailedFile
    ground: tuple[object, ...]
    at: float  # monotonic seconds


class BundleParser(ABC):
    name: ClassVar[str]

    def __init__(self, bundle: Bundle, loader: DagLoader, store: DagStore, clock: Clock) -> None:
        self.bundle, self.loader, self.store, self.clock = bundle, loader, store, clock
        self._read: dict[str, Read] = {}

    @abstractmethod
    def due_in(self) -> float | None:
        """Seconds until `look` is to be called; 0 or less is now, None is never (until it has been asked to parse)."""

    @abstractmethod
    def look(self) -> Iterable[Submission]:
        """What has changed since the last look. `InvalidInput` when the bundle can't be had, `InvalidConfig` when its
        manifest is wrong."""

    def findings(self) -> Iterator[Submission]:
        """What `look` finds, or that it can't."""
        try:
            yield from self.look()
        except InvalidConfig as error:
            yield unreadable(self.bundle, self.name, str(error), MANIFEST)
        except InvalidInput as error:
            yield unreadable(self.bundle, self.name, f"bundle {self.bundle.name!r}: {error}")

    def parse(self, subpath: str = "", *, deactivate_removed: bool = False) -> Submission:
        """Read the files under `subpath` ("" is all) because someone asks for it, changed or not. `InvalidInput` when
        the bundle, or such a path in it, can't be had; `InvalidConfig` when its manifest is wrong."""
        subpath = subpath.strip("/")
        fetched = self.bundle.fetch()
        known = (*fetched.content.files, *self.store.files_of(self.bundle.name))
        if subpath and not any(subpath in paths_to(file) for file in known):
            raise InvalidInput(f"bundle {self.bundle.name!r} has no file or folder {subpath!r} ({self.bundle.place})")
        return self.submission(fetched, covers=(subpath,), again=True, deactivates=deactivate_removed, asked=True)

    # -- what parsers are made of -------------------------------------------------------------------------------------
    def submission(
        self,
        fetched: Fetched,
        *,
        covers: tuple[str, ...] = ("",),
        leaves_out: tuple[str, ...] = (),
        again: bool = False,
        deactivates: bool = True,
        asked: bool = False,
    ) -> Submission:
        """All that the files under `covers` but not under `leaves_out` define. Files are read that have changed, or whose
        reading read something that has; with `again` all of them."""
        settings = fetched.settings
        snapshot, content = self.bundle.keep(fetched)
        empty = Submission(
            self.bundle.name, self.bundle.place, self.name, content, snapshot=snapshot, commit_id=fetched.commit_id,
            covers=covers, leaves_out=leaves_out, deactivates=deactivates, keep_last_good=settings.keep_last_good,
            asked=asked,
        )  # fmt: skip
        known = self.store.files_of(self.bundle.name) - {
            MANIFEST
        }  # one that broke may not look like a DAG file any more
        files = sorted(file for file in {*content.candidates, *(known & set(content.files))} if empty.speaks_for(file))
        wanted = files if again else self.stale(files, content)
        now, names = self.clock.monotonic(), _Names(content)
        for file, result in zip(wanted, self.bundle.load(self.loader, snapshot, wanted, settings), strict=True):
            self._read[file] = Read(result, names.ground(file, result), now)
        for file in [file for file in self._read if file not in content.files]:
            del self._read[file]
        results = [self._read[file].result for file in files]
        return replace(
            empty,
            parsed=tuple(result for result in results if isinstance(result, ParsedFile)),
            failed=tuple(result for result in results if isinstance(result, FailedFile)),
        )

    def stale(self, files: Iterable[str], content: BundleContent) -> list[str]:
        """Those that were never read, or whose reading depended on something that is not as it was."""
        names = _Names(content)

        def is_stale(file: str) -> bool:
            before = self._read.get(file)
            return before is None or names.ground(file, before.result) != before.ground

        return [file for file in files if is_stale(file)]

    def read_at(self, file: str) -> float | None:
        """When it was last read, in monotonic seconds."""
        before = self._read.get(file)
        return before.at if before else None

    def may_be_taken(self) -> bool:
        """A file was read well and counted for nothing, because another one, maybe of another bundle, had an id of its
        DAGs. Now it may have it."""
        parsed = [read.result for read in self._read.values() if isinstance(read.result, ParsedFile)]
        return self.store.may_be_taken(self.bundle.name, parsed)


def unreadable(bundle: Bundle, parser: str, why: str, file: str = ".") -> Submission:
    """The bundle can't be had, or can't be read: its DAGs stay as they are. `file` is to blame; `.` is the bundle."""
    failed = FailedFile(file, None, why)
    return Submission(bundle.name, bundle.place, parser, BundleContent({}, ()), failed=(failed,), readable=False)


class _Names:
    """What a bundle holds, for grounds: what the reading of a file depended on."""

    def __init__(self, content: BundleContent) -> None:
        self._content = content
        self._listings: dict[str, tuple[str, ...]] = {}

    def ground(self, file: str, result: ParsedFile | FailedFile) -> tuple[object, ...]:
        """Digests of the file and of all that it read, names in the folders that it listed. What a file that failed
        had read is not known: it depends on everything."""
        if isinstance(result, FailedFile):
            return (self._content.hash,)
        files = self._content.files
        read = tuple((name, files.get(name)) for name in (file, *result.imported, *result.read))
        return (*read, *(self._listing(folder) for folder in result.listed))

    def _listing(self, folder: str) -> tuple[str, ...]:
        if folder not in self._listings:
            under = f"{folder}/" if folder else ""
            self._listings[folder] = tuple(sorted(name for name in self._content.files if name.startswith(under)))
        return self._listings[folder]
