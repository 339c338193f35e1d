"""`bfm bundles parse`: asks the manager; a dry run that finds none parses here."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from backfill_manager.cli.answers import answered
from backfill_manager.cli.call import Call
from backfill_manager.cli.output import Column
from backfill_manager.errors import NotFound
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record
from backfill_manager.requests import asking
from backfill_manager.requests.kinds import BUNDLE_PARSE
from backfill_manager.store.contract import Condition
from backfill_manager.views.managers import somebody_leads

PATIENCE_S: Final = 900.0  # a bundle of thousands of files takes its time
CHANGES: Final = ("dag_id", "change", Column("version", right=True), "file")
ERRORS: Final = ("file", Column("line", right=True), Column("message", fold=True))


def parse_bundle(call: Call, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> int:
    store = call.any_store
    if dry_run and not (store.exists() and somebody_leads(store, call.clock.now())):
        return _tell(call, _parse_here(call, bundle, subpath, deactivate_removed), dry_run)
    payload = {
        "bundle": bundle, "subpath": subpath, "dry_run": dry_run, "deactivate_removed": deactivate_removed
    }  # fmt: skip
    request = asking.ask(call.store, call.clock, BUNDLE_PARSE, payload)
    answer = answered(call, request, PATIENCE_S)
    if answer is not None and answer.payload_json is not None:
        return _tell(call, json.loads(answer.payload_json), dry_run)
    if call.out.is_table:
        call.out.line(f"Parse {bundle}: asked for (request {request.request_id}).")
    else:
        call.out.document({"request_id": request.request_id, "kind": request.kind, "outcome": "waiting"})
    return 0


def _parse_here(call: Call, name: str, subpath: str, deactivate_removed: bool) -> dict[str, Any]:
    from backfill_manager.dags.parsers.here import preview

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


def _known(call: Call) -> list[Record]:
    store = call.any_store
    if not store.exists():
        return []
    problems = store.read(ImportProblem, [Condition("is_current", "=", True)])
    return [*store.read(DagRow), *store.read(DagVersion), *store.read(BundleRow), *problems]


def _tell(call: Call, found: dict[str, Any], dry_run: bool) -> int:
    if not call.out.is_table:
        call.out.document({**found, "dry_run": dry_run})
        return 1 if found["errors"] else 0
    dags = "1 DAG" if found["dags"] == 1 else f"{found['dags']} DAGs"
    if found["changes"]:
        call.out.rows(found["changes"], CHANGES)
    unchanged = "" if found["changes"] else "; nothing changes" if dry_run else "; nothing has changed"
    call.out.line(f"{dags} in what was parsed{unchanged}.{' Nothing was stored.' if dry_run else ''}")
    if found["errors"]:
        call.out.line("")
        call.out.rows(found["errors"], ERRORS)
    return 1 if found["errors"] else 0
