"""Schedule, time zone and dates of a DAG, as `DagSpec` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from backfill_manager.dags.authoring.building import current_collection
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.schemas.waits import On


def parse_times(settings: dict[str, Any], who: str) -> None:
    """Schedule, zone and dates in the form in which `DagSpec` holds them."""
    from backfill_manager.dags.schedule.timetable import Timetable, parse_last, parse_schedule, parse_start
    from backfill_manager.dags.schedule.timezones import check_timezone

    try:
        if "schedule" in settings:
            settings["schedule"] = parse_schedule(_every(settings))
        timezone = settings.get("timezone", DagSpec.timezone)
        check_timezone(timezone)
        # A datetime without an offset is the DAG's wall clock, as its text is.
        times = {name: settings.get(name) for name in ("start_date", "end_date")}
        times = {name: value.isoformat() if isinstance(value, date) else value for name, value in times.items()}
        if times["start_date"] is not None:
            settings["start_date"] = parse_start(times["start_date"], timezone, name="start_date")
        excluded = settings.get("exclude_dates", ())
        if excluded and Timetable(schedule := settings.get("schedule")).cron is None:
            raise InvalidInput(f"exclude_dates needs a cron schedule or a preset such as '@daily', not {schedule!r}")
        if times["end_date"] is not None:
            timetable = Timetable(settings.get("schedule"), timezone, settings.get("start_date"), excluded)
            settings["end_date"] = parse_last(times["end_date"], timetable)
    except InvalidInput as error:
        raise InvalidDag(f"{who}: {error}") from None
    start, end = settings.get("start_date"), settings.get("end_date")
    if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
        raise InvalidDag(f"{who}: start_date {times['start_date']} is after end_date {times['end_date']}")


def _every(settings: Mapping[str, Any]) -> Any:
    """The schedule; of `on(...)` that of its intervals: its `every`, else the one by which DAGs further up in the file write all
    of its tables. A duration is not taken from them: it counts from each DAG's own `start_date`."""
    from backfill_manager.dags.schedule.timetable import Timetable, parse_schedule

    data = settings["schedule"]
    if not isinstance(data, On):
        return data
    if data.every is not None:
        if not Timetable(every := parse_schedule(data.every, where="schedule: every")).repeats:
            raise InvalidInput(f"schedule: every must be a schedule that repeats, such as '@daily', not {every!r}")
        return every
    tables = {wait for wait in data.waits if isinstance(wait, str)}
    collection = current_collection()
    grids, written = [], set[str]()
    for spec in [made.spec for made in collection.dags] if collection else []:
        if found := tables.intersection(spec.output_tables):
            grids.append((spec.schedule, spec.timezone, spec.exclude_dates))
            written |= found
    if grids and written == tables and all(grid == grids[0] for grid in grids):
        schedule, *where = grids[0]
        own = [settings.get(name, getattr(DagSpec, name)) for name in ("timezone", "exclude_dates")]
        if where == own and isinstance(schedule, str) and Timetable(schedule).repeats:
            return schedule
    example = f"on({data.waits[0]!r}, every='@daily')" if tables else "on(..., every='@daily')"
    unless = (
        "DAGs further up in this file write all of its tables (`writes=`, `into=`), by one cron schedule with its `timezone` and "
        "`exclude_dates`"
    )
    raise InvalidInput(f"schedule needs `every`, which gives its runs their intervals: {example}; unless {unless}")
