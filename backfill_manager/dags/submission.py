"""What a bundle parser submits: what some files of a bundle define, or why they failed to import."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import ParsedFile


@dataclass(frozen=True)
class Submission:
    """`content` is all that the bundle holds at that moment, `snapshot` the folder that keeps it. It covers the files
    under `covers`, but not for those under `leaves_out` (paths within the bundle, "" is all of it; the longest one that
    fits a file counts): it has every definition and error of these, and nothing of others.

    `readable` False: the bundle itself can't be fetched, so nothing is known of its DAGs. `on_request`: a person requested it,
    so what was deactivated by hand comes back."""

    bundle: str
    path: str
    parser: str
    content: BundleContent
    snapshot: str = ""
    commit_id: str | None = None
    parsed: tuple[ParsedFile, ...] = ()
    failed: tuple[FailedFile, ...] = ()
    covers: tuple[str, ...] = ("",)
    leaves_out: tuple[str, ...] = ()
    deactivates: bool = True  # DAGs that no file makes any more
    keep_last_good: bool = True  # DAGs of a file that fails now go on as they were
    readable: bool = True
    on_request: bool = False
    parsed_at: datetime | None = None  # when files were read for it; None: none was
    settings_json: str | None = None  # how the bundle is read: configuration and manifest together
    reader_json: str | None = None  # what made the DAGs of its files, where it was a parser's own `read` (DagVersion)

    def covers_file(self, file: str) -> bool:
        for path in paths_to(file):
            if path in self.leaves_out:
                return False
            if path in self.covers:
                return True
        return False


def paths_to(file: str) -> list[str]:
    """`a/b/c.py` -> `a/b/c.py`, `a/b`, `a`, ``: from the file to the bundle's root."""
    parts = file.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), -1, -1)]
