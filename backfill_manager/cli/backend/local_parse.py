"""A dry run of parsing without a manager: the files are read by this process, and nothing is stored."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from backfill_manager.cli.context import CliContext
from backfill_manager.dags.parsers.local_parse import preview
from backfill_manager.errors import NotFound
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record
from backfill_manager.store.base import Condition


def parse(call: CliContext, name: str, subpath: str, *, deactivate_removed: bool) -> dict[str, Any]:
    """What would change of the state as it is; of one that is not made yet, too."""
    settings = next((bundle for bundle in call.settings.bundles if bundle.name == name), None)
    if settings is None:
        raise NotFound("bundle", name, [bundle.name for bundle in call.settings.bundles])
    with tempfile.TemporaryDirectory(prefix="bfm-parse-") as scratch:
        taken = preview(
            settings,
            subpath,
            _known(call),
            snapshots=Path(scratch),
            limits=call.settings.limits,
            clock=call.clock,
            deactivate_removed=deactivate_removed,
        )
    return taken.to_json_document()


def _known(call: CliContext) -> list[Record]:
    store = call.any_store
    if not store.exists():
        return []
    problems = store.read(ImportProblem, [Condition("is_current", "=", True)])
    return [*store.read(DagRow), *store.read(DagVersion), *store.read(BundleRow), *problems]
