"""`bfm backfill gaps`: what lies in the tables of a DAG against its runs."""

from __future__ import annotations

from collections import Counter
from typing import Final

from backfill_manager.cli import options as o
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.output import Column
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.humanise import plural
from backfill_manager.schemas.findings import FINDINGS

COLUMNS: Final = (
    Column("table", fold=True), Column("interval_start", "interval"), Column("interval_end", "to", optional=True), "finding",
    Column("because", fold=True), Column("rows", right=True), Column("usual_rows", "usual", right=True, optional=True),
    Column("run_id", "run", optional=True),
)  # fmt: skip
FINDING: Final = o.option("--finding", f"Only this ({', '.join(FINDINGS)}); may be repeated.", metavar="NAME")


def gaps(
    context: CliContext,
    dag: o.Dag,
    start_date: str | None = o.option("--from", "The first interval starts here or after.", metavar="T"),
    end_date: str | None = o.option("--to", "The last interval starts here or before (inclusive).", metavar="T"),
    finding: list[str] | None = FINDING,
    count: bool = o.flag("--count", "Count rows with Spark where the tables' statistics do not tell them."),
    limit: int | None = o.LIMIT,
) -> None:
    """Compare the runs of a DAG with what lies in the tables that it writes, interval by interval, from the tables' logs; no data
    are read. Findings:

    empty: a run has succeeded, and no row lies there. no_run: rows that no run has written. rewritten: somebody else has changed
    them since. outdated: an input has changed since it was read. fewer_rows: fewer than half of what is usual around it. unknown:
    it is not known, and why.

    Examples:

    [cyan]bfm backfill gaps flights --from 2013-01-01 --to 2013-12-31[/]

    [cyan]bfm backfill gaps flights --finding empty --finding outdated --output json[/]
    """
    for name in finding or ():
        if name not in FINDINGS:
            raise InvalidInput(f"--finding {name!r}: there are {', '.join(FINDINGS)}{nearest(name, FINDINGS)}")
    found = context.backend.gaps(dag, start_date=start_date, end_date=end_date, count=count)
    rows = [one for one in found if not finding or one["finding"] in finding]
    limit = context.out.limit(limit)
    context.out.print_rows(
        rows[:limit], COLUMNS, empty=f"No gaps: the tables of {dag} hold what its runs have written."
    )
    if context.out.is_table:
        _print_notes(context, dag, found, len(rows), limit, counted=count)


def _print_notes(
    context: CliContext, dag: str, found: list[Document], shown: int, limit: int | None, *, counted: bool
) -> None:  # fmt: skip
    counts = Counter(one["finding"] for one in found)
    if limit is not None and shown > limit:
        summary = ", ".join(f"{counts[name]:,} {name}" for name in FINDINGS if counts[name])
        context.out.note(f"{limit} of {plural(shown, 'finding')} ({summary}); --limit shows more.")
    if counts["empty"]:
        context.out.note(f"To run what is missing: `bfm backfill create {dag} --kind missing --by data`")
    if counts["outdated"]:
        context.out.note(f"To run what is outdated: `bfm backfill create {dag} --kind outdated`")
    if not counted and any(one["finding"] == "unknown" and "not be counted" in one["because"] for one in found):
        context.out.note("Some rows can't be counted by statistics; --count counts them, which starts Spark.")
