"""When a scheduled run is late: `expected_by` of a DAG is how long after its interval's end it must have succeeded. Pure.

The manager looks at each deadline once, when it passes, and sends messages; pages show which of those that passed of late are
still without success. `latest`: the run that carries the schedule, from which a duration without a `start_date` counts.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.runs.next_run import anchor_of
from backfill_manager.planning.runs.timeline import TimelineWindow, timeline_key


class Deadline(NamedTuple):
    """Until when the run of the interval that begins at `start` must have succeeded."""

    start: datetime
    at: datetime


def first_deadline(spec: DagSpec, after: datetime, latest: DagRun | None = None) -> Deadline | None:
    """The first one after this instant; None for a DAG that has no more of them."""
    timetable, allowed = timetable_of(spec, anchor_of(latest)), timedelta(seconds=spec.expected_by or 0)
    if not timetable.repeats:
        return None
    end = timetable.next_after(after - allowed)
    start = end and timetable.last_before(end)
    if spec.start_date is not None and (start is None or start < spec.start_date):
        start = timetable.first_at_or_after(spec.start_date)
        end = start and timetable.next_after(start)
    if start is None or end is None or (spec.end_date is not None and start > spec.end_date):
        return None
    return Deadline(start, end + allowed)


def following_deadline(spec: DagSpec, start: datetime, latest: DagRun | None = None) -> Deadline | None:
    """That of the interval after the one that begins at `start`."""
    timetable = timetable_of(spec, anchor_of(latest))
    following = timetable.next_after(start)
    end = following and timetable.next_after(following)
    if following is None or end is None or (spec.end_date is not None and following > spec.end_date):
        return None
    return Deadline(following, end + timedelta(seconds=spec.expected_by or 0))


def passed_deadlines(
    spec: DagSpec, since: datetime, until: datetime, most: int, latest: DagRun | None = None
) -> list[Deadline]:
    """Those after `since` and up to `until`, the newest first, of which no more than `most`."""
    timetable, allowed = timetable_of(spec, anchor_of(latest)), timedelta(seconds=spec.expected_by or 0)
    found: list[Deadline] = []
    if spec.expected_by is None or not timetable.repeats:
        return found
    if spec.end_date is not None:  # no interval begins after it
        last_end = timetable.next_after(spec.end_date)
        until = until if last_end is None else min(until, last_end + allowed)
    end = timetable.last_before(until - allowed + timedelta(microseconds=1))
    while end is not None and end + allowed > since and len(found) < most:
        start = timetable.last_before(end)
        if start is None or (spec.start_date is not None and start < spec.start_date):
            break
        found.append(Deadline(start, end + allowed))
        end = start
    return found


def run_of_interval(recent: TimelineWindow, start: datetime) -> DagRun | None:
    """The current run of the interval that begins then, or the batch that stands for it."""
    return recent.current_at(timeline_key(start, None)) or recent.covering(start)


def has_succeeded(recent: TimelineWindow, start: datetime) -> bool:
    """Also true of what is older than the part of the timeline that is held: newer runs have begun since."""
    current = run_of_interval(recent, start)
    if current is None:
        return recent.floor is not None and start <= recent.floor
    return current.state == s.SUCCESS
