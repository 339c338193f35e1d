"""`bfm bundles`: where DAGs come from."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import Bundle, argument
from backfill_manager.cli.render.plan import note_unknown_pools
from backfill_manager.cli.render.printer import COMMIT, ERROR_COLUMNS, Column
from backfill_manager.cli.render.response import outcome_of, submit, wait_for_response
from backfill_manager.humanise import memory, parse_outcome
from backfill_manager.schemas.request_kinds import BUNDLE_DEACTIVATE, BUNDLE_PARSE

PARSE_TIMEOUT_S: Final = 900.0  # a bundle of thousands of files takes its time
_CHANGES: Final = ("dag_id", "change", Column("version", right=True), "file")

group = Group(
    "bundles", "Bundles: the folders, git repositories and archives that DAGs come from; list and parse them."
)


@group.command("list")
def list_(context: CliContext) -> None:
    """List the bundles: where each comes from, which parser reads it, how many DAGs it has, files that can't be read.

    Example: [cyan]bfm bundles list --output json[/]
    """
    columns = (
        "name", "path", Column("is_configured", "configured"), "parser", Column("dags", right=True), Column("errors", right=True),
        COMMIT, Column("refreshed_at", "changed"), Column("parsed_at", "parsed"),
    )  # fmt: skip
    empty = "No bundle is configured: name one in the configuration file (default: conf/manager.yaml) under `bundles`."
    context.out.print_rows(context.backend.bundles(), columns, empty=empty)


@group.command("show")
def show(context: CliContext, bundle: Bundle) -> None:
    """Show one bundle: where it comes from, how it is read (configuration and manifest together), when it was last read.

    Example: [cyan]bfm bundles show examples[/]
    """
    from backfill_manager.queries.bundles import find_bundle

    row = context.out.in_zone(find_bundle(context.backend.bundles(), bundle))
    labels = {"refreshed_at": "changed", "parsed_at": "parsed", "is_configured": "configured"}
    hidden = {"settings", "content_hash"}
    fields = [(labels.get(name, name), value) for name, value in row.items() if name not in hidden]
    settings = [(name, _setting(name, value)) for name, value in (row["settings"] or {}).items() if name != "parser"]
    context.out.print_fields(row, [*fields, *settings])


def _setting(name: str, value: Any) -> Any:
    if name == "directories" and value:
        value = [{key: one for key, one in each.items() if one is not None} for each in value]
    if name in {"directories", "options"} and value:
        return json.dumps(value, ensure_ascii=False)
    if name == "import_memory":
        return memory(value)
    return f"{value:g} s" if isinstance(value, float) else value


@group.command("parse", schema="commands.ParseBundle", without=("bundle", "subpath"))
def parse(
    context: CliContext,
    values: Document,
    bundle: Bundle,
    subpath: str = argument("[SUBPATH]", "File or folder of the bundle.", default="", show_default="the whole bundle"),
) -> int:
    """Have the manager parse the files of a bundle now, changed or not, and wait for the result. This is the last step of a
    rollout. Exit code 1 if a file can't be read. Without --server, a dry run needs no manager.

    Example: [cyan]bfm bundles parse examples flights.py --dry-run[/]
    """
    from backfill_manager.schemas.commands import ParseBundle

    values = {"bundle": bundle, "subpath": subpath, "dry_run": False, "deactivate_removed": False, **values}
    ParseBundle.parse(values)
    dry_run = values["dry_run"]
    if dry_run and not context.backend.has_active_manager():
        return _print_parsed(context, context.backend.dry_run(BUNDLE_PARSE, values), dry_run)
    request = context.backend.submit(BUNDLE_PARSE, values)
    response = wait_for_response(context, request, PARSE_TIMEOUT_S)
    if response is not None and response.payload_json is not None:
        return _print_parsed(context, json.loads(response.payload_json), dry_run)
    text = f"Parse {bundle}: submitted (request {request.request_id})."
    context.out.print_result(outcome_of(request, response), text)
    return 0


def _print_parsed(context: CliContext, result: Document, dry_run: bool) -> int:
    out, changes, errors = context.out, result["changes"], result["errors"]
    stored = ". Nothing was stored." if dry_run else ""
    if changes and out.is_table:
        out.print_rows(changes, _CHANGES)
    text = parse_outcome(result, dry_run=dry_run)
    out.print_result({**result, "dry_run": dry_run}, f"{text}{stored}")
    if result.get("still_active"):
        out.note("--deactivate-removed deactivates them at once; the standard parser does so at its next scan.")
    if result.get("airflow_files"):
        out.note("bfm import airflow FILE translates a file of Airflow into a draft.")
    for one in result.get("unknown_pools", ()):
        note_unknown_pools(context, one["dag_id"], {one["pool"]: one["tasks"]})
    if errors and out.is_table:
        out.print_line("")
        out.print_rows(errors, ERROR_COLUMNS)
    return 1 if errors else 0


@group.command("deactivate")
def deactivate(
    context: CliContext, bundle: Bundle, subpath: str = argument("SUBPATH", "File or folder of the bundle.")
) -> None:
    """Make the DAGs of a file or folder inactive, until they have new content or are parsed with `bfm bundles parse`.

    Example: [cyan]bfm bundles deactivate examples old_reports[/]
    """
    values = {"bundle": bundle, "subpath": subpath}
    submit(context, BUNDLE_DEACTIVATE, values, "Deactivate {subpath} of {bundle}")
