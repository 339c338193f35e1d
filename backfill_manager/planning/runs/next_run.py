"""Decides which interval the scheduler makes a run of next, and when: pure, from the definition and the run that carries the
schedule (`TimelineWindow.last_scheduled`).

Scheduled and backfill runs carry it, if their interval had ended when they were created: after a backfill has reached past
today's schedule, the scheduler goes on from there. Manual, external and partial runs, and runs of a future interval don't; but
a date that has a whole run already, created after its interval had ended, is passed over (`taken`). A changed schedule goes on
from the end of the last run under the old one. With `catchup=False` only the latest complete interval is made; with
`catchup=True` every one from `start_date` on, or, for a DAG without a `start_date`, from the latest run on. An interval is due
at its end; `@once` is due at `start_date`, and has no length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from backfill_manager.clock import EPOCH
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import ONCE, Timetable, timetable_of
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRun


@dataclass(frozen=True)
class Upcoming:
    """The half-open interval `[start, end)`, made at `due_at`. Instants are UTC."""

    start: datetime
    end: datetime
    due_at: datetime


def upcoming(
    spec: DagSpec, latest: DagRun | None, now: datetime, taken: Callable[[datetime], bool] = lambda _: False
) -> Upcoming | None:
    """What comes next after `latest`; None when nothing ever will. It may be due already. `taken` tells of a logical date
    whether it has a run that stands for it, so that the schedule passes it over."""
    if spec.schedule == ONCE:
        at = spec.start_date or now
        return None if latest is not None or taken(at) else Upcoming(at, at, at)
    timetable = timetable_of(spec, anchor_of(latest))
    if not timetable.repeats:
        return None
    try:
        start = _start(spec, timetable, _begin(spec, latest), now)
    except OverflowError:  # the run before it is at the end of the calendar
        return None
    while start is not None and taken(start):
        start = timetable.next_after(start)
    if start is None or (spec.end_date is not None and start > spec.end_date):
        return None
    end = timetable.next_after(start)
    return None if end is None else Upcoming(start, end, end)


def anchor_of(latest: DagRun | None) -> datetime:
    """Of a duration without a `start_date`: it goes on from where the timeline ends, else by whole multiples of itself."""
    if latest is None or latest.logical_date is None:
        return EPOCH
    return latest.interval_end or latest.logical_date


def _begin(spec: DagSpec, latest: DagRun | None) -> datetime | None:
    """No interval that starts before this is made."""
    if latest is None or latest.logical_date is None:
        return spec.start_date
    after = max(latest.interval_end or latest.logical_date, latest.logical_date + timedelta(microseconds=1))
    return max(after, spec.start_date) if spec.start_date is not None else after


def _start(spec: DagSpec, timetable: Timetable, begin: datetime | None, now: datetime) -> datetime | None:
    complete = timetable.last_complete(now)
    if begin is not None and (spec.catchup or complete is None or complete[0] < begin):
        return timetable.first_at_or_after(begin)
    return complete[0] if complete else timetable.first_at_or_after(now)


def manual_interval(spec: DagSpec, logical_date: datetime | None, now: datetime) -> tuple[datetime, datetime]:
    """The interval of a manual run: from its logical date to the schedule's next firing; without a date, the last interval that
    is complete. A DAG without a schedule has no intervals: the run's ends at its start."""
    timetable = timetable_of(spec, logical_date or EPOCH)
    complete = timetable.last_complete(now)
    if logical_date is None and complete is not None:
        return complete
    start = logical_date or now
    try:
        return start, (timetable.next_after(start) if timetable.repeats else None) or start
    except OverflowError:
        raise InvalidInput(f"The interval of {start:%Y-%m-%d} ends beyond the calendar.") from None


def interval_from(spec: DagSpec, at: datetime, now: datetime) -> tuple[datetime, datetime]:
    """The interval of the DAG's schedule that begins at this instant or next after it, as a manual run has it."""
    first = at if spec.schedule is None else timetable_of(spec, at).first_at_or_after(at) or at
    return manual_interval(spec, first, now)
