"""How tables differ from what a preview has written, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.render.printer import Column, Output
from backfill_manager.humanise import plural

MAX_INTERVALS: Final = 20
_COUNTS: Final = (Column("added", right=True), Column("removed", right=True), Column("changed", right=True))


def print_diff(out: Output, found: Document, dag_id: str | None = None) -> None:
    """`dag_id`: in whose zone intervals are shown, if people have chosen that of the DAG."""
    if not out.is_table:
        out.print_document(found)
        return
    columns = ("table", Column("compared", of=_compared), *_COUNTS, Column("same", right=True))
    out.print_rows(found["tables"], columns, empty="No run of the preview that has succeeded has written a table.")
    for table in found["tables"]:
        for line in _lines(table):
            out.print_line(line)
        shown = table["intervals"][:MAX_INTERVALS]
        if shown:
            out.print_line("")
            interval = Column(
                "interval", f"interval of {table['table']}", of=lambda one: ends_text(one) or one["interval"]
            )
            out.print_rows(shown, (interval, *_COUNTS), dag_id=dag_id)
        if len(table["intervals"]) > len(shown):
            out.note(
                f"{plural(len(table['intervals']) - len(shown), 'more interval')} with differences; see --output json."
            )


def ends_text(row: Document, separator: str = "–") -> str | None:
    """The ends of an interval, or of several, as they are in the row; None where they are no instants, and in the answers of
    older managers."""
    start, end = row.get("interval_start"), row.get("interval_end")
    return f"{start} {separator} {end}" if start and end else None


def _compared(table: Document) -> str:
    return f"by {', '.join(table['key'])}" if table["key"] else "whole rows"


def _lines(table: Document) -> Iterator[str]:
    """What is worth a line of its own: columns of the schema, columns that differ, examples."""
    name = table["table"]
    if table["version"] is None:
        yield f"{name}: does not exist yet; it will be made"
    for change in table["schema_changes"]:
        old, new = change["old"] or "none", change["new"] or "none"
        yield f"{name}: column {change['column']}: {old} in the table, {new} in the preview"
    for column in table["columns"]:
        shown = (f"{_short(one['key'])}: {_value(one, 'old')} → {_value(one, 'new')}" for one in column["examples"][:2])
        yield f"{name}: {column['name']} differs in {plural(column['rows'], 'row')}, such as {'; '.join(shown)}"
    for kind, examples in table["examples"].items():
        if examples:
            yield f"{name}: {kind}, such as {_short(examples[0])}"


def _value(example: Document, side: str) -> str:
    return json.dumps(example.get(side), ensure_ascii=False)  # a null is left out of Spark's JSON


def _short(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())
