"""What the tasks of a run by hand would see, without making it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from backfill_manager.clock import in_zone
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import NotFound
from backfill_manager.model.states import MANUAL_RUN
from backfill_manager.planning.backfills.rendering import PlannedRun, render
from backfill_manager.planning.runs.next_run import interval_from, manual_interval
from backfill_manager.planning.runs.timeline import run_id_for, timeline_key
from backfill_manager.queries.dags import known_dag
from backfill_manager.requests.checked_payloads import check_place
from backfill_manager.store.base import Store


def rendered_run(
    store: Store, dag_id: str, logical_date: str | None, now: datetime, *, task_id: str | None = None,
    partition_key: str | None = None, conf: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """By the DAG's current version: of the interval that begins at the date (as typed) or next after it, without a date of
    the latest complete one; or of a partition. Refused as the run itself would be."""
    _, spec = known_dag(store, dag_id)
    at = None if logical_date is None else parse_date(logical_date, spec.timezone, name="logical_date")
    check_place(at, partition_key)
    check_conf(conf or {}, spec)
    if task_id is not None and task_id not in spec.by_id:
        raise NotFound("task", task_id, spec.by_id, more=f" in DAG {dag_id!r}; it has {', '.join(spec.by_id)}")
    interval = None
    if partition_key is None:
        interval = manual_interval(spec, None, now) if at is None else interval_from(spec, at, now)
    note = None if at is None or interval is None else _why_another(at, interval[0], spec.timezone)
    run_id = run_id_for(MANUAL_RUN, timeline_key(interval[0] if interval else None, partition_key))
    run = PlannedRun(run_id, interval, partition_key, conf or {})
    return render(spec, run, [task.task_id for task in spec.work] if task_id is None else [task_id], note=note)


def _why_another(at: datetime, start: datetime, timezone: str) -> str | None:
    """None for the interval that was meant: a day without a time is that of the interval that starts in it."""
    asked, shown = in_zone(at, timezone), in_zone(start, timezone)
    is_day_of_it = asked[:10] == shown[:10] and "T00:00" in asked
    return (
        None if at == start or is_day_of_it else f"No interval starts at {asked}: this is the next one, from {shown}."
    )
