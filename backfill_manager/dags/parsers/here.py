"""Parsing without a manager: in the process that wants to know (`dags test`, a dry run when nobody leads, tests)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.dags.loading.loader import DagLoader
from backfill_manager.dags.parsers.bundle import Bundle
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.parsers.single_pass import SinglePassBundleParser
from backfill_manager.dags.store import DagStore, Shelf, Taken
from backfill_manager.dags.submission import Submission
from backfill_manager.model.records import Record
from backfill_manager.settings import BundleSettings, LimitSettings


def parse_bundle(
    settings: BundleSettings,
    *,
    snapshots: Path,
    limits: LimitSettings | None = None,
    clock: Clock | None = None,
    loader: DagLoader | None = None,
) -> Submission:
    """One look at a whole bundle. `loader` is used and left open; without one, one is made and closed again."""
    with nullcontext(loader) if loader else DagLoader() as loader:
        parser = SinglePassBundleParser(
            Bundle(settings, snapshots=snapshots, limits=limits), loader, DagStore(Shelf()), clock or SystemClock()
        )
        return next(parser.findings())


def preview(
    settings: BundleSettings,
    subpath: str,
    known: Iterable[Record],
    *,
    snapshots: Path,
    limits: LimitSettings | None = None,
    clock: Clock | None = None,
    deactivate_removed: bool = False,
) -> Taken:
    """What parsing `subpath` would change, given the rows that are `known` of DAGs, their versions and errors."""
    clock, shelf = clock or SystemClock(), Shelf()
    for row in known:
        shelf.put(row)
    store = DagStore(shelf)
    with DagLoader() as loader:
        parser = parser_for(Bundle(settings, snapshots=snapshots, limits=limits), loader, store, clock)
        return store.preview(parser.parse(subpath, deactivate_removed=deactivate_removed), clock.now())
