"""Parses a bundle without a manager, in this process: for `dags test`, a dry run when no manager is active, tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.dags.catalog import DagCatalog, SubmissionResult
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.bundle_state import BundleState
from backfill_manager.dags.parsers.parser import check_submission, parser_failure, unreadable_because
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.dags.versions import Submission
from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.model.records import Record
from backfill_manager.settings import BundleSettings, LimitSettings


def parse_bundle(
    settings: BundleSettings, *, snapshots: Path, limits: LimitSettings | None = None, loader: DagLoader | None = None
) -> Submission:
    """All of a bundle, parsed by its own parser; what fails is an error in it. A `loader` that is given is left open."""
    bundle = BundleState(settings, snapshots=snapshots, limits=limits)
    with nullcontext(loader) if loader else DagLoader() as loader:
        try:
            submission = _parse(bundle, loader, DagCatalog(), SystemClock())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a parser may come from another package
            return unreadable_because(error, bundle)
        return replace(submission, on_request=False, deactivates=True)


def parse_dry_run(
    bundle: BundleState,
    subpath: str,
    rows: Iterable[Record],
    clock: Clock,
    *,
    deactivate_removed: bool = False,
    pools: Collection[str] | None = None,
) -> SubmissionResult:
    """What parsing `subpath` would change, given the `rows` of DAGs, their versions and errors, and the names of the `pools`."""
    catalog = DagCatalog()
    for row in rows:
        catalog.put(row)
    with DagLoader() as loader:
        try:
            submission = _parse(bundle, loader, catalog, clock, subpath, deactivate_removed)
        except BackfillManagerError:
            raise
        except (Exception, SystemExit) as error:
            raise InvalidInput(f"bundle {bundle.name!r}: {parser_failure(error, bundle.parser)}") from error
        return catalog.dry_run(submission, clock.now(), pools)


def _parse(
    bundle: BundleState, loader: DagLoader, catalog: DagCatalog, clock: Clock, subpath: str = "", removed: bool = False
) -> Submission:
    parser = parser_for(bundle, loader, catalog, clock)
    submission = parser.parse(subpath, deactivate_removed=removed)
    check_submission(submission, parser)
    return submission
