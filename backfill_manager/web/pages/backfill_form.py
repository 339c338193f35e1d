"""The form *New backfill*: from what was typed to a `CreateBackfill`, with what is wrong by field; and ranges to pick."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import ONCE, parse_date, parse_start, timetable_of
from backfill_manager.errors import BackfillManagerError, InvalidInput, NotFound, StateError
from backfill_manager.planning.backfill_range import ON_SCHEDULE, RANGED, read_end, with_defaults
from backfill_manager.queries.dags import current_dag
from backfill_manager.requests.validation import new_backfill
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store
from backfill_manager.web.pages.form_fields import (
    SETTINGS,
    Typed,
    Wrong,
    field_of,
    in_words,
    read_settings,
    reading,
)

REPROCESS: Final = {
    "none": "Leave them",
    "failed": "Do again those that failed, as new runs",
    "failed_tasks": "Re-run the failed tasks of those that failed, in place",
    "completed": "Do again those that failed or succeeded",
}
CHECKS: Final = {
    "run_backwards": ("Newest first", "Begin with the latest interval."),
    "downstream": ("Downstream", "And backfill every DAG that reads what this one writes, and so on."),
    "allow_future": (
        "Also what has not ended", "Run intervals that are not complete yet, too. Else they are listed as skipped.",
    ),
    "ignore_first_depends_on_past": (
        "The first does not wait", "The first item starts without the run before it; the others wait for theirs, where tasks"
        " depend on the past.",
    ),
}  # fmt: skip
_TEXTS: Final = ("kind", "from_date", "from_time", "to_date", "to_time", "dates", "partitions", "reprocess")
FIELDS: Final = (*_TEXTS, *CHECKS, *SETTINGS)
_DEFAULTS: Final = {
    "kind": "schedule", "reprocess": "none", "pool": "backfill", "batch": "1", "priority": "0",
    "ignore_first_depends_on_past": "on", "with_upstream": "on",
}  # fmt: skip
PLAIN_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class QuickRange:
    """A range that is often wanted: both days are the first moments of intervals, the last one included."""

    word: str
    first: date
    last: date


def typed_of(form: Mapping[str, str], dag: DagSpec | None) -> Typed:
    """What is in each field: as sent, or as the form begins."""
    typed = {name: form.get(name, "") for name in FIELDS}
    if "sent" not in form:  # only opened, perhaps with some of it in the link
        typed |= {name: text for name, text in _DEFAULTS.items() if name not in form}
        if dag is not None and "kind" not in form and (dag.schedule is None or dag.schedule == ONCE):
            typed["kind"] = "single"
    first, slash, last = form.get("quick", "").partition("/")  # a button of a range, where there is no script
    if slash and PLAIN_DAY.fullmatch(first) and PLAIN_DAY.fullmatch(last):
        typed |= {"from_date": first, "from_time": "", "to_date": last, "to_time": ""}
    return typed


def read_form(typed: Typed, dag: DagSpec, wrong: Wrong) -> CreateBackfill | None:
    """The request as a value; None when a field can't be read, which `wrong` then tells."""
    zone, kind = dag.timezone, typed["kind"]
    said: dict[str, Any] = {"dag_id": dag.dag_id, "kind": kind, "reprocess": typed["reprocess"] or "none"}
    said |= {name: typed[name] == "on" for name in CHECKS}
    if kind in RANGED:
        if text := _moment(typed, "from"):
            said["start_date"] = reading(wrong, "from_date", _start, dag, text)
        if text := _moment(typed, "to"):
            said["end_date"] = reading(wrong, "to_date", _end, dag, kind, text, said.get("start_date"))
    elif kind == "dates":
        parts = [one for one in re.split(r"[\s,;]+", typed["dates"]) if one]
        said["dates"] = reading(wrong, "dates", _dates, parts, zone, "--date")
        if not parts:
            wrong["dates"] = "List at least one date."
    elif kind == "partitions":
        keys = (line.strip() for line in typed["partitions"].splitlines())
        said["partitions"] = tuple(dict.fromkeys(key for key in keys if key))
        if not said["partitions"]:
            wrong["partitions"] = "List at least one partition."
    said |= read_settings(typed, wrong)
    if said.get("tasks") is None:  # the box says nothing then
        said["with_upstream"] = True
    return None if wrong else CreateBackfill.parse(said)


def _start(dag: DagSpec, text: str) -> datetime:
    return parse_start(text, dag.timezone, name="start_date")


def _end(dag: DagSpec, kind: str, text: str, start: datetime | None) -> datetime:
    return read_end(dag, kind, text, start)


def _dates(texts: list[str], zone: str, option: str) -> tuple[datetime, ...]:
    return tuple(parse_date(text, zone, name=option) for text in texts)


def _moment(typed: Typed, field: str) -> str:
    """`2013-01-31`, or with the time beside it: `2013-01-31T05:00`."""
    day, time = typed[f"{field}_date"].strip(), typed[f"{field}_time"].strip()
    return f"{day}T{time}" if day and time else day


def checked_payload(
    store: Store, settings: Settings, ask: CreateBackfill, backfill_id: str, now: datetime, wrong: Wrong
) -> dict[str, Any] | None:
    """The payload of the request, or None, with what is wrong by field."""
    try:
        return new_backfill(store, settings, ask, backfill_id, now)
    except StateError:
        raise
    except (InvalidInput, NotFound) as error:
        told(error, wrong)
        return None


def told(error: BackfillManagerError, wrong: Wrong) -> None:
    wrong[field_of(error)] = in_words(error)


def estimate_count(ask: CreateBackfill, dag: DagSpec, now: datetime) -> int:
    """Items, before anything is planned."""
    ask = with_defaults(ask, dag, now)
    if ask.kind in ON_SCHEDULE and ask.start_date is not None and ask.end_date is not None:
        return timetable_of(dag, ask.start_date).estimate_count(ask.start_date, ask.end_date)
    return len(ask.dates) or len(ask.partitions) or 1


def dag_or_none(store: Store, dag_id: str) -> DagSpec | None:
    if not dag_id:
        return None
    return current_dag(store, dag_id)[1]


def quick_ranges(dag: DagSpec, now: datetime) -> list[QuickRange]:
    """In the DAG's zone, up to the last complete day or the DAG's own end."""
    zone = ZoneInfo(dag.timezone)
    begins = dag.start_date.astimezone(zone).date() if dag.start_date else None
    ends = now.astimezone(zone).date() - timedelta(days=1)
    if dag.end_date is not None:
        ends = min(ends, dag.end_date.astimezone(zone).date())
    month = ends.replace(day=1)
    before = (month - timedelta(days=1)).replace(day=1)
    of_before = before.replace(day=calendar.monthrange(before.year, before.month)[1])
    found = [
        QuickRange("7 days", ends - timedelta(days=6), ends),
        QuickRange("30 days", ends - timedelta(days=29), ends),
        QuickRange(f"{month:%B %Y}", month, ends),
        QuickRange(f"{before:%B %Y}", before, of_before),
        QuickRange(str(ends.year), ends.replace(month=1, day=1), ends),
    ]
    if begins is not None:
        found = [QuickRange(one.word, max(one.first, begins), one.last) for one in found if one.last >= begins]
        if begins <= ends:
            found.append(QuickRange("all of it", begins, ends))
    return found
