"""Computes intervals in another way, as a reference: croniter walks over naive wall-clock time, and the
clock-change rule is applied to each reading by asking zoneinfo about both folds. Slow, short, and sharing nothing with
the code under test.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from croniter import croniter

UTC = timezone.utc
FAR = timedelta(hours=50)  # beyond this from a range, no reading can land in it
ZONES = (
    "Australia/Lord_Howe", "Pacific/Apia", "America/New_York", "Africa/Casablanca", "America/Sao_Paulo",
    "Pacific/Chatham", "America/St_Johns", "Europe/Amsterdam", "Asia/Kathmandu", "America/Havana", "Asia/Gaza",
    "Europe/Moscow", "America/Caracas", "Antarctica/Troll", "UTC",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    schedule: str
    timezone: str
    start: datetime
    end: datetime
    exclude_dates: tuple[str, ...] = ()


def excluding(case: Case, source: random.Random) -> Case:
    """It, without a third of the dates of its range and of some days around it."""
    days = (case.end - case.start).days + 9
    dates = (case.start + timedelta(days=day - 4) for day in range(days))
    return replace(case, exclude_dates=tuple(str(day.date()) for day in dates if not source.randrange(3)))


def expected_intervals(case: Case) -> list[tuple[datetime, datetime]]:
    firings = sorted(_firings(case))
    return [(at, until) for at, until in pairwise(firings) if case.start <= at <= case.end]


def _firings(case: Case) -> set[datetime]:
    """Every firing from well before the range to at least one beyond it."""
    zone = ZoneInfo(case.timezone)
    every_hour = croniter.expand(case.schedule)[0][1] == ["*"]
    walk = croniter(case.schedule, case.start.astimezone(zone).replace(tzinfo=None) - FAR)
    last = case.end.astimezone(zone).replace(tzinfo=None) + FAR
    found: set[datetime] = set()
    while True:
        reading = walk.get_next(datetime)
        if str(reading.date()) in case.exclude_dates:
            continue
        folds = [reading.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        if every_hour:
            found.update(at for at in folds if at.astimezone(zone).replace(tzinfo=None) == reading)
        else:
            found.add(max(folds))
        if reading > last and max(found, default=case.end) > case.end:
            return found


@cache
def changes_of_clocks(zone_name: str) -> tuple[datetime, ...]:
    """To half a day, 2011 to 2025; the middle of each year for a zone without any."""
    zone, step = ZoneInfo(zone_name), timedelta(hours=12)
    at, found = datetime(2011, 1, 1, tzinfo=UTC), []
    while at.year < 2026:
        if at.astimezone(zone).utcoffset() != (at + step).astimezone(zone).utcoffset():
            found.append(at)
        at += step
    return tuple(found) or tuple(datetime(year, 7, 1, tzinfo=UTC) for year in range(2011, 2026))


def random_case(random: random.Random) -> Case:
    """An expression, a zone, and a range that mostly has a change of clocks in or near it."""
    zone = random.choice(ZONES)
    change = random.choice(changes_of_clocks(zone))
    sparse = random.random() < 0.3
    start = change - timedelta(minutes=random.randrange(0, 3 * 1440))
    end = start + (
        timedelta(days=random.randrange(0, 800)) if sparse else timedelta(minutes=random.randrange(0, 5 * 1440))
    )
    return Case(random_expression(random, sparse), zone, start, end)


def random_expression(random: random.Random, sparse: bool) -> str:
    minutes = [str(random.randrange(60)), "0", "30", f"{random.randrange(60)},{random.randrange(60)}"]
    hours = [
        str(random.randrange(24)),
        str(random.randrange(5)),
        f"{random.randrange(4)},{random.randrange(24)}",
        "0",
        "2",
    ]
    if not sparse:
        first = random.randrange(55)
        minutes += ["*/15", "*/7", f"{first}-{first + 4}", "58-2"]
        hours += ["*", "*", "*", "*/2", "*/5", "0-4", "22-2", "1-3", "*/1", "0-23"]
    days = ["*", "*", "*", "1", "15", "L", "1,15", "*/3", "10-20", "31", "29", "28-3", "1-31", "15W", "1W", "31W", "?"]
    months = ["*", "*", "*", "*", "*/3", "1-6", "MAR,OCT", "2", "OCT-APR"]
    weekdays = ["*", "*", "*", "MON", "1-5", "6,0", "7", "FRI-MON", "MON#1", "SUN#5", "L0", "L5", "TUE#2,L3", "0-7"]
    month = random.choice(months)
    day = random.choice(days if sparse or month != "2" else days[:9])
    weekday = random.choice(weekdays)
    if day == "31" and month == "2":
        day = "28"
    if "#" in weekday or "L" in weekday:
        day = "*"  # croniter gives up on days that the two fields share too rarely; these pairs have tests of their own
    if "W" in day:
        weekday = "*"
    return f"{random.choice(minutes)} {random.choice(hours)} {day} {month} {weekday}"
