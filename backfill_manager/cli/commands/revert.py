"""What `bfm runs revert` and `bfm backfill revert` do: shows what would be put back, asks, and has it done."""

from __future__ import annotations

import json
from typing import Any

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.diff import ends_text
from backfill_manager.cli.render.printer import Column, Output
from backfill_manager.cli.render.response import (
    RESULT_TIMEOUT_S,
    is_confirmed,
    outcome_of,
    print_planned,
    result_of,
    wait_for_response,
)
from backfill_manager.humanise import plural

MAX_READERS = 10  # that are named


def ask_and_revert(context: CliContext, kind: str, values: Document, what: str, *, dry_run: bool, yes: bool) -> int:
    """`values`: the run or the backfill."""
    if dry_run or not yes:
        plan = result_of(context, kind, {**values, "dry_run": True}, "reads the history of tables")
        print_planned(context.out, plan, _print_plan, dry_run=dry_run)
        if dry_run:
            return 0
        names = ", ".join(table["table"] for table in plan["tables"])
        it_was = "it was" if len(plan["tables"]) == 1 else "they were"
        if not is_confirmed(context, f"Put {names} back to what {it_was} before {what}?", "reverts", "reverted"):
            return 0
    request = context.backend.submit(kind, {**values, "dry_run": False})
    response = wait_for_response(context, request, RESULT_TIMEOUT_S)
    result = {} if response is None else json.loads(response.payload_json or "{}")
    if yes and result and context.out.is_table:
        _print_plan(context.out, result)
    text = f"Revert {what}: submitted (request {request.request_id})." if response is None else response.message
    context.out.print_result({**outcome_of(request, response, **values), **result}, text)
    return 0


def _print_plan(out: Output, plan: Document) -> None:
    columns = (
        "table", Column("back_to", "back to version", _versions), Column("intervals", of=_intervals, fold=True),
        Column("runs", right=True, of=lambda table: len(table["runs"])), Column("rows_now", "rows now", right=True),
        Column("rows_then", "rows then", right=True),
    )  # fmt: skip
    rows = [out.in_zone(table, table["runs"][0]["dag_id"]) for table in plan["tables"]]
    out.print_rows(rows, columns, as_stored=True)
    if plan["readers"]:
        named = dict.fromkeys(f"{one['dag_id']}/{one['run_id']}" for one in plan["read_by"])
        some = ", ".join(list(named)[:MAX_READERS]) + (", ..." if len(named) > MAX_READERS else "")
        out.note(f"{plural(plan['readers'], 'task')} read this since; what they made of it stays as it is: {some}")


def _versions(versions: Any) -> str:
    return ", ".join(map(str, versions)) or "none: it was empty"


def _intervals(table: Document) -> str:
    labels = table["intervals"]
    if not labels:
        return "the whole table"
    if len(labels) == 1:
        return ends_text(table) or str(labels[0])
    return f"{plural(len(labels), 'interval')}: {ends_text(table, '…') or f'{labels[0]} … {labels[-1]}'}"
