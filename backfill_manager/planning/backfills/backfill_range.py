"""The range of a backfill: ends as people write them, and those that were left out."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule import timetable as tt
from backfill_manager.dags.schedule.timezones import check_timezone
from backfill_manager.schemas.backfill_columns import AUTO
from backfill_manager.schemas.backfill_options import CreateBackfill

# Kinds whose items are intervals of the schedule.
ON_SCHEDULE: Final = frozenset({"schedule", "missing", "stale", "outdated"})
RANGED: Final = ON_SCHEDULE | {"single"}  # kinds that take a start and an end
NOTHING_TO_BATCH: Final = frozenset({"single", "partitions"})  # kinds whose items never touch
MAX_ITEMS: Final = 10_000_000  # of one backfill


def with_defaults(command: CreateBackfill, dag: DagSpec, now: datetime) -> CreateBackfill:
    """The command with what was left out of it: the ends of its range, which are the DAG's own `start_date` and the last
    interval that is complete now, but none after the DAG's `end_date`; and `batch`."""
    if command.batch is None:
        may = dag.batchable and command.kind not in NOTHING_TO_BATCH and command.reprocess != "failed_tasks"
        command = command.evolve(batch=AUTO if may else 1)
    if command.kind not in RANGED:
        return command
    start = command.start_date or dag.start_date
    return command.evolve(start_date=start, end_date=command.end_date or _last_end(command, dag, start, now))


def with_settled_ends(command: CreateBackfill, dag: DagSpec, now: datetime) -> CreateBackfill:
    """The same as far as it will be the same whenever it is planned: an end that goes with the clock stays left out, so that
    a request means the same when it is sent again."""
    filled = with_defaults(command, dag, now).evolve(batch=command.batch)
    complete = tt.timetable_of(dag, filled.start_date).last_complete(now)
    if complete is None or (dag.end_date is not None and dag.end_date <= complete[0]):
        return filled
    return filled.evolve(end_date=command.end_date)


def read_range(dag: DagSpec, kind: str, start: str | None, end: str | None) -> dict[str, datetime | None]:
    """`start_date` and `end_date` of a backfill as people write them, in the DAG's zone. A date alone as the end means the
    whole day: its last interval, or (`single`) up to the next local midnight."""
    begins = None if start is None else tt.parse_start(start, dag.timezone, name="start_date")
    return {"start_date": begins, "end_date": None if end is None else read_end(dag, kind, end, begins)}


def read_end(dag: DagSpec, kind: str, text: str, start: datetime | None) -> datetime:
    """The end alone; `start` is where the range begins, from which a duration without a `start_date` counts."""
    if kind == "single":
        at, day = tt.parse_end(text, dag.timezone, name="end_date"), tt.date_only(text)
        return at if day is None else tt.end_of_day(day, dag.timezone)
    last = tt.parse_last(text, tt.timetable_of(dag, start))
    if start is not None and last < start:  # of a date alone: the range may start on that day, after its last interval
        return min(start, tt.parse_end(text, dag.timezone, name="end_date"))
    return last


def _last_end(command: CreateBackfill, dag: DagSpec, start: datetime | None, now: datetime) -> datetime | None:
    """The end that was left out; None where nothing says it."""
    timetable = tt.timetable_of(dag, start)
    complete = timetable.last_complete(now)
    if complete is None:  # no schedule, so no interval: a single run ends with the day of the DAG's end
        return _end_of_single(dag)
    last = complete[0] if dag.end_date is None else min(complete[0], dag.end_date)
    if command.kind in ON_SCHEDULE:
        return last
    begins = timetable.last_at_or_before(last)
    return None if begins is None else timetable.next_after(begins)


def _end_of_single(dag: DagSpec) -> datetime | None:
    if dag.end_date is None:
        return None
    day = dag.end_date.astimezone(check_timezone(dag.timezone)).date()
    return (
        tt.end_of_day(day, dag.timezone) if dag.end_date == tt.parse_start(day, dag.timezone, name="") else dag.end_date
    )
