"""The gaps of DAGs by data, over a range as a person writes it; of many DAGs by days, and the backfill of chosen days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

from backfill_manager.clock import format_instant, from_micros
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.dags.schedule.timezones import start_of_day
from backfill_manager.errors import InvalidInput
from backfill_manager.planning.backfills.backfill_range import with_defaults
from backfill_manager.queries.dags import known_dag
from backfill_manager.queries.data_gaps import CountRows, GapReport, find_gaps
from backfill_manager.requests.backfill_checks import check_range, read_backfill
from backfill_manager.requests.typed_dates import repeat_typed
from backfill_manager.schemas.backfill_options import BackfillInput
from backfill_manager.schemas.findings import FINDINGS, Finding
from backfill_manager.store.base import Store

MAX_DATES: Final = 300  # that a link to a form can list


def gap_report(
    store: Store, dag_id: str, start_date: str | None, end_date: str | None, now: datetime, count: CountRows | None = None
) -> GapReport:  # fmt: skip
    """Dates are read as for a backfill, and refused as there. An end that is left out is the last complete interval's."""
    _, dag = known_dag(store, dag_id)
    typed = BackfillInput.parse({"dag_id": dag_id, "kind": "missing", "start_date": start_date, "end_date": end_date})
    command = read_backfill(typed, dag)
    with repeat_typed(start=(command.start_date, start_date), end=(command.end_date, end_date)):
        check_range(command, dag, now)
    command = with_defaults(command, dag, now)
    assert command.start_date is not None and command.end_date is not None, "else the range was refused"
    return find_gaps(store, dag, command.start_date, command.end_date, count)


@dataclass
class GapDay:
    """The intervals of a DAG that begin on one day of its time zone."""

    intervals: int = 0
    done: int = 0  # whose current run has succeeded
    live: int = 0  # whose run has not ended, of which nothing is found
    findings: Counter[Finding] = field(default_factory=Counter)  # how many of each, over all tables

    @property
    def worst(self) -> Finding | None:
        """The first finding, in the order in which they are listed."""
        return next((name for name in FINDINGS if self.findings[name]), None)

    @property
    def is_done(self) -> bool:
        return self.done == self.intervals and not self.findings

    def describe(self) -> str:
        """`24 intervals: 20 done, 1 running; 2 empty`"""
        parts = [f"{self.done} done", *([f"{self.live} running"] if self.live else ())]
        found = [f"{self.findings[name]} {name}" for name in FINDINGS if self.findings[name]]
        number = "1 interval" if self.intervals == 1 else f"{self.intervals} intervals"
        return "; ".join([f"{number}: {', '.join(parts)}", *found])


@dataclass(frozen=True)
class DagDays:
    """Of one DAG. `problem`: what holds of a whole table, or why nothing is known."""

    dag_id: str
    problem: str | None = None
    days: Mapping[date, GapDay] = field(default_factory=dict)


def gap_days(store: Store, dag_id: str, start_date: str | None, end_date: str | None, now: datetime) -> DagDays:
    """By day. A range in which the DAG has no interval is a problem of the DAG, not of who asks."""
    try:
        report = gap_report(store, dag_id, start_date, end_date, now)
    except InvalidInput as error:
        return DagDays(dag_id, str(error))
    zone = ZoneInfo(report.dag.timezone)
    days: dict[date, GapDay] = {}
    by_start: dict[str | None, GapDay] = {}
    live, done = report.runs.is_live.tolist(), report.runs.is_done.tolist()
    for number, at in enumerate(report.starts.tolist()):
        instant = from_micros(at)
        day = by_start[format_instant(instant)] = days.setdefault(instant.astimezone(zone).date(), GapDay())
        day.intervals += 1
        day.done += done[number] and not live[number]
        day.live += live[number]
    problems = []
    for row in report.to_json_document():
        if row["interval_start"] is None:
            problems.append(f"{row['table']}: {row['because']}")
        else:
            by_start[row["interval_start"]].findings[row["finding"]] += 1
    if any(table.judged is None for table in report.tables) or not report.tables:
        for day in days.values():
            day.findings["unknown"] += day.intervals
    if not report.tables:
        problems.append("its present tasks have written no table by interval")
    return DagDays(dag_id, "; ".join(problems) or None, days)


def backfill_of_days(store: Store, dag_id: str, days: Collection[date]) -> dict[str, Any]:
    """The options of a backfill that does these days of a DAG again: a range if they lie side by side, else each interval."""
    _, dag = known_dag(store, dag_id)
    zone, timetable = ZoneInfo(dag.timezone), timetable_of(dag)
    first, last = min(days), max(days)
    is_known = date.min.year < first.year and last.year < date.max.year  # else a day begins in no year, in some zone
    ordered = sorted(set(days)) if is_known else []
    spans = [(start_of_day(day, zone), start_of_day(day + timedelta(days=1), zone)) for day in ordered]
    starts = (at for begin, end in spans for at, _ in timetable.intervals(begin, end - timedelta(microseconds=1)))
    chosen = list(islice(starts, MAX_DATES + 1))
    again = {"dag": dag_id, "reprocess": "completed"}
    if not chosen:
        raise InvalidInput(f"DAG {dag_id!r} has no interval on these days")
    left_out = [(end, begin) for (_, end), (begin, _) in pairwise(spans) if end < begin]
    if all((at := timetable.first_at_or_after(end)) is None or at >= begin for end, begin in left_out):
        return {**again, "kind": "schedule", "start_date": first.isoformat(), "end_date": last.isoformat()}
    if len(chosen) > MAX_DATES:
        raise InvalidInput(
            f"DAG {dag_id!r}: there are more intervals on these days than a list takes ({MAX_DATES}); choose days side by side"
        )
    return {**again, "kind": "dates", "dates": "\n".join(str(format_instant(at)) for at in chosen)}
