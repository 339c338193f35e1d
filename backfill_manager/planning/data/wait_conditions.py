"""What tasks wait for beside the tables that our own runs write: at what to look for a run, and what was seen there. Pure.

A run of several intervals waits for what each of them needs: for as many files, and for rows in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.schemas.waits import ExternalWait, FileWait, label

MAX_PARTS: Final = 10_000  # intervals of one run that are looked at apart
MAX_OPEN: Final = 100  # of one wait of one run, that are looked for at a time


@dataclass(frozen=True)
class WaitCheck:
    """One wait for one interval; of a file its path alone, which many intervals may share."""

    wait: ExternalWait
    start: datetime | None = None
    end: datetime | None = None
    partition_key: str | None = None
    timezone: str = "UTC"
    path: str | None = None  # of a file; None: it can't be filled in

    @property
    def label(self) -> str:
        return label(self.wait if self.path is None else FileWait(self.path))


@dataclass(frozen=True)
class Seen:
    """What a look has found."""

    is_there: bool
    problem: str | None = None  # why nobody can say
    since: datetime | None = None  # when it was first seen so

    def describe(self) -> str:
        if self.problem is None:
            return ""
        at = "" if self.since is None else f", looked at {self.since:%Y-%m-%d %H:%M} UTC"
        return f": {self.problem}{at}"


def wait_checks_of(
    wait: ExternalWait, dag: DagSpec, start: datetime | None, end: datetime | None, partition_key: str | None
) -> tuple[WaitCheck, ...]:
    """For a run with this interval or partition, in the order of time."""
    return tuple(dict.fromkeys(_look(wait, dag, *part, partition_key) for part in _parts(dag, start, end)))


def _look(wait: ExternalWait, dag: DagSpec, start: datetime | None, end: datetime | None, key: str | None) -> WaitCheck:
    if not isinstance(wait, FileWait):
        return WaitCheck(wait, start, end, key, dag.timezone)
    zone = ZoneInfo(dag.timezone)
    sides = (None if at is None else at.astimezone(zone) for at in (start, end))
    try:
        return WaitCheck(wait, path=wait.path(*sides))
    except ValueError:  # it names an interval, and the run has none
        return WaitCheck(wait)


def _parts(
    dag: DagSpec, start: datetime | None, end: datetime | None
) -> list[tuple[datetime | None, datetime | None]]:  # fmt: skip
    """The intervals of the schedule that make up this one; it alone where they don't."""
    if start is None or end is None or start >= end:
        return [(start, end)]
    last = end - timedelta(microseconds=1)
    found = list(islice(timetable_of(dag, start).intervals(start, last), MAX_PARTS + 1))
    fits = 1 < len(found) <= MAX_PARTS and found[0][0] == start and found[-1][1] == end
    return [*found] if fits else [(start, end)]


def open_wait_checks(looks: Iterable[WaitCheck], seen: Mapping[WaitCheck, Seen]) -> list[WaitCheck]:
    """Those that have not been found yet."""
    return [look for look in looks if not ((known := seen.get(look)) and known.is_there)]
