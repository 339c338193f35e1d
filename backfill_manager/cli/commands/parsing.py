"""`bfm bundles parse`: asks the manager; a dry run that finds none is made without (`parsing_here`)."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.output import Column
from backfill_manager.cli.render.response import answered

PATIENCE_S: Final = 900.0  # a bundle of thousands of files takes its time
CHANGES: Final = ("dag_id", "change", Column("version", right=True), "file")
ERRORS: Final = ("file", Column("line", right=True), Column("message", fold=True))


def parse_bundle(call: CliContext, bundle: str, subpath: str, *, dry_run: bool, deactivate_removed: bool) -> int:
    source = call.source
    if dry_run and not source.has_active_manager():
        return _tell(call, source.parse_here(bundle, subpath, deactivate_removed=deactivate_removed), dry_run)
    request = source.parse_bundle(bundle, subpath, dry_run=dry_run, deactivate_removed=deactivate_removed)
    answer = answered(call, request, PATIENCE_S)
    if answer is not None and answer.payload_json is not None:
        return _tell(call, json.loads(answer.payload_json), dry_run)
    if call.out.is_table:
        call.out.line(f"Parse {bundle}: asked for (request {request.request_id}).")
    else:
        call.out.document({"request_id": request.request_id, "kind": request.kind, "outcome": "waiting"})
    return 0


def _tell(call: CliContext, found: dict[str, Any], dry_run: bool) -> int:
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
