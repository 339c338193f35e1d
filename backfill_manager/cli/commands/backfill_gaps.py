"""`bfm backfill gaps`: what lies in the tables of a DAG against its runs."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Final

from backfill_manager.cli import options as o
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.errors import worded
from backfill_manager.cli.render.printer import Column
from backfill_manager.errors import InvalidInput, StateError, nearest
from backfill_manager.humanise import plural
from backfill_manager.schemas.findings import FINDINGS, WROTE_NO_ROW

COLUMNS: Final = (
    Column("table", fold=True), Column("interval_start", "interval"), Column("interval_end", "to", optional=True), "finding",
    Column("because", fold=True), Column("rows", right=True), Column("usual_rows", "usual", right=True, optional=True),
    Column("run_id", "run", optional=True),
)  # fmt: skip
DAGS: Final = o.argument(
    "[DAG]...", "Ids of DAGs, see `bfm dags list`. Without any: all DAGs that have a schedule.", None
)
FINDING: Final = o.option("--finding", f"Only this finding ({', '.join(FINDINGS)}); may be repeated.", metavar="NAME")


def gaps(
    context: CliContext,
    dag: list[str] | None = DAGS,
    start_date: str | None = o.option("--from", "The first interval starts at or after this date.", metavar="T"),
    end_date: str | None = o.option(
        "--to", "The last interval starts at or before this date (inclusive).", metavar="T"
    ),
    finding: list[str] | None = FINDING,
    count: bool = o.flag("--count", "Count rows with Spark if there are too many to read."),
    limit: int | None = o.LIMIT,
) -> None:
    """Compare the runs of DAGs with the rows in the tables that they write, interval by interval. It reads the tables' logs, and
    the time column where intervals share a file. Without a DAG, it compares all that are active and have a schedule. Findings:

    empty: a run has succeeded, but there are no rows. no_run: rows that no run has written. rewritten: somebody else has changed
    the rows since. outdated: an input has changed since it was read. fewer_rows: fewer than half of what is usual for it.
    unknown: it can't be known, and why. Dates that have neither rows nor a successful run are none: `backfill create DAG --kind
    missing --dry-run` lists them.

    Examples:

    [cyan]bfm backfill gaps flights --from 2013-01-01 --to 2013-12-31[/]

    [cyan]bfm backfill gaps --from 2013-01-01 --to 2013-01-31[/]

    [cyan]bfm backfill gaps flights --finding empty --finding outdated --output json[/]
    """
    for name in finding or ():
        if name not in FINDINGS:
            raise InvalidInput(f"--finding {name!r}: there are {', '.join(FINDINGS)}{nearest(name, FINDINGS)}")
    dags = list(dict.fromkeys(dag or _with_a_schedule(context)))
    found: list[Document] = []
    refused: dict[str, InvalidInput] = {}
    for dag_id in dags:
        try:
            found += context.backend.gaps(dag_id, start_date=start_date, end_date=end_date, count=count)
        except StateError:
            raise
        except InvalidInput as error:  # of one among many: it has no interval in this range, say
            refused[dag_id] = error
    if refused and len(refused) == len(dags):  # as of a date that is none
        raise refused[dags[0]]
    for dag_id, why in refused.items() if dag else ():
        context.out.note(f"{dag_id}: {worded(why)}")
    dags = [dag_id for dag_id in dags if dag_id not in refused]
    rows = [one for one in found if not finding or one["finding"] in finding]
    limit = context.out.limit(limit)
    columns = COLUMNS if dag and len(dags) + len(refused) == 1 else (Column("dag_id", "DAG"), *COLUMNS)
    whose = f"{dags[0]} hold what its runs" if len(dags) == 1 else f"{plural(len(dags), 'DAG')} hold what their runs"
    nothing = f"No gaps: the tables of {whose} have written."
    if not found and not _has_written(context, dags):
        nothing = (
            f"Nothing to compare: no run of {dags[0] if len(dags) == 1 else 'these DAGs'} has written a table yet."
        )
    if context.out.is_table:
        rows = _joined(rows)
    context.out.print_rows(rows[:limit], columns, empty=nothing)
    if context.out.is_table:
        given = (("--from", start_date), ("--to", end_date))
        chosen = "".join(f" {name} {shlex.quote(value)}" for name, value in given if value)
        _print_notes(context, dags, found, rows, limit, chosen, counted=count)


def _joined(rows: list[Document]) -> list[Document]:
    """For people: intervals that follow each other, and of which nothing is known for one reason, are one line. `intervals`: how
    many a line is for."""
    joined: list[Document] = []
    last: dict[tuple[str, ...], Document] = {}  # by table and reason
    for row in rows:
        line = {**row, "intervals": 1}
        if row["finding"] == "unknown" and row["interval_start"] is not None:  # else of the whole table
            reason = (row["dag_id"], row["table"], row["because"])
            before = last.get(reason)
            if before is not None and before["interval_end"] == row["interval_start"]:
                number = before["intervals"] + 1
                because = f"{row['because']} ({number:,} intervals)"
                before |= {"interval_end": row["interval_end"], "run_id": None, "intervals": number, "because": because}
                continue
            last[reason] = line
        joined.append(line)
    return joined


def _with_a_schedule(context: CliContext) -> list[str]:
    return [one["dag_id"] for one in context.backend.dags(active=True) if one["schedule"] is not None]


def _has_written(context: CliContext, dags: list[str]) -> bool:
    """Whether a table is known that a task of theirs has written."""
    tasks = [task for table in context.backend.tables() for task in table["written_by"]]
    return any(
        edge["dag_id"] == dag_id and edge["access"] == "write"
        for dag_id in dags
        if any(task.startswith(f"{dag_id}.") for task in tasks)  # or of a DAG whose id begins with this one and a dot
        for edge in context.backend.lineage(dag_id=dag_id)["edges"]
    )


def _print_notes(
    context: CliContext, dags: list[str], found: list[Document], lines: list[Document], limit: int | None, chosen: str, *,
    counted: bool,
) -> None:  # fmt: skip
    """`chosen`: the options of the range, as they were given."""
    counts = Counter(one["finding"] for one in found)
    if limit is not None and len(lines) > limit:
        summary = ", ".join(f"{counts[name]:,} {name}" for name in FINDINGS if counts[name])
        shown, of = (sum(line["intervals"] for line in some) for some in (lines[:limit], lines))
        context.out.note(f"{shown:,} of {plural(of, 'finding')} ({summary}); --limit shows more.")
    missing = {one["dag_id"] for one in found if one["finding"] == "empty" and one["because"] != WROTE_NO_ROW}
    outdated = {one["dag_id"] for one in found if one["finding"] == "outdated"}

    def only(dags: set[str]) -> str:
        return min(dags) if len(dags) == 1 else "DAG"

    if not found:
        of = dags[0] if len(dags) == 1 else "DAG"
        context.out.note(
            "Dates that have neither rows nor a successful run are no gaps; to list them: "
            f"`bfm backfill create {of}{chosen} --kind missing --dry-run`"
        )
    if missing:
        context.out.note(
            f"To run what is missing: `bfm backfill create {only(missing)}{chosen} --kind missing --by data`"
        )
    if outdated:
        context.out.note(f"To run what is outdated: `bfm backfill create {only(outdated)}{chosen} --kind outdated`")
    if not counted and any(one["finding"] == "unknown" and "not be counted" in one["because"] for one in found):
        context.out.note("Some rows could not be counted; --count counts them, which starts Spark.")
