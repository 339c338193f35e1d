"""A year of a DAG's runs by day: how many, in which state, how long they took, how many rows they wrote. Counted in Arrow,
as an hourly DAG has 8760 runs a year and one of every minute half a million. Days are those of the DAG's zone."""

from __future__ import annotations

from datetime import MAXYEAR, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import UTC, micros
from backfill_manager.dags.schedule.timezones import start_of_day
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.planning.runs.timeline import timeline_of
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.store.base import Condition, Store

FIRST_YEAR: Final = 100  # that is shown: in UTC, a date of an earlier one may lie before the beginning of the calendar
# A day with runs in several states shows the first of these.
WORST_FIRST: Final = (states.FAILED, states.RUNNING, states.QUEUED, states.CANCELLED, states.SUCCESS)


def calendar(store: Store, dag_id: str, timezone: str, year: int) -> dict[str, dict[str, Any]]:
    """Day (`2013-01-05`) -> `state` (the worst of its runs), `states` (counts), `runs`, `duration_s` (mean of the runs that
    have ended; None when none has). Only runs in the timeline; a batch is a run of each of its days."""
    dates, runs = _runs_of(store, dag_id, timezone, year, ("state", "started_at", "ended_at"), all_days=True)
    if not runs.num_rows:
        return {}
    took = pc.microseconds_between(runs["started_at"], runs["ended_at"])
    counted = pa.table({"day": runs["day"], "state": runs["state"], "us": took}).group_by(["day", "state"])
    days: dict[str, dict[str, Any]] = {}
    for row in counted.aggregate([([], "count_all"), ("us", "count"), ("us", "sum")]).sort_by("day").to_pylist():
        day = days.setdefault(dates[row["day"]].isoformat(), {"states": {}, "runs": 0, "took_us": 0, "ended": 0})
        day["states"][row["state"]] = row["count_all"]
        day["runs"] += row["count_all"]
        day["took_us"] += row["us_sum"] or 0
        day["ended"] += row["us_count"]
    return {
        name: {
            "state": next((state for state in WORST_FIRST if state in day["states"]), states.SUCCESS),
            "states": day["states"], "runs": day["runs"],
            "duration_s": day["took_us"] / 1e6 / day["ended"] if day["ended"] else None,
        }
        for name, day in days.items()
    }  # fmt: skip


def rows_by_day(store: Store, dag_id: str, timezone: str, year: int) -> dict[str, int]:
    """Day -> rows that the tasks of its runs wrote into tables; days on which none did are left out."""
    dates, runs = _runs_of(store, dag_id, timezone, year, ("run_id", "run_seq"))
    if not runs.num_rows:
        return {}
    seqs = runs["run_seq"].to_numpy()
    where = [
        Condition("dag_id", "=", dag_id),
        Condition("run_seq", ">=", int(seqs.min())),  # so that files of other runs are not read
        Condition("run_seq", "<=", int(seqs.max())),
        Condition("rows_written", "not_null"),
    ]
    written = store.read_arrow(TaskInstance.TABLE, ("run_id", "rows_written"), where)
    found = runs.join(written, "run_id", join_type="inner").group_by("day").aggregate([("rows_written", "sum")])
    return {dates[row["day"]].isoformat(): row["rows_written_sum"] for row in found.to_pylist()}


def years(store: Store, dag_id: str, timezone: str) -> list[int]:
    """The years from the first run of the timeline to the last, or the last day of a batch, newest first; empty when there is
    none."""
    where = timeline_of(dag_id)
    ends = [
        found.logical_date.astimezone(ZoneInfo(timezone)).year
        for order in ("logical_date", "-logical_date")
        if (found := store.first(DagRun, where, (order,), NOT_LISTED)) and found.logical_date
    ]
    batch = store.first(DagRun, [*where, Condition("items", ">", 1)], ("-interval_end",), NOT_LISTED) if ends else None
    if batch is not None and batch.interval_end is not None:
        ends.append((batch.interval_end - timedelta(microseconds=1)).astimezone(ZoneInfo(timezone)).year)
    return list(range(max(ends), max(min(ends), FIRST_YEAR) - 1, -1)) if ends else []


def runs_of_day(
    store: Store, dag_id: str, timezone: str, at: datetime, *, first: int = 0, limit: int | None = None
) -> list[dict[str, Any]]:
    """The runs in the timeline on the day of `at`, in the DAG's zone, from the place `first` on; also batches that have
    intervals of it, which come first."""
    end = None if limit is None else first + limit
    rows = [
        run
        for where in _of_day(dag_id, timezone, at)
        for run in store.read(DagRun, where, order_by=("logical_date",), limit=end, without=NOT_LISTED)
    ]
    return [run_view(row) for row in rows[first:end]]


def count_runs_of_day(store: Store, dag_id: str, timezone: str, at: datetime) -> int:
    return sum(store.count(DagRun.TABLE, (), where).get((), 0) for where in _of_day(dag_id, timezone, at))


def _of_day(dag_id: str, timezone: str, at: datetime) -> list[list[Condition]]:
    """Of the batches that reach into the day, and of the runs whose date lies in it."""
    zone = ZoneInfo(timezone)
    day = at.astimezone(zone).date()
    begin, end = start_of_day(day, zone), start_of_day(day + timedelta(days=1), zone)
    where = [*timeline_of(dag_id), Condition("logical_date", "<", end)]
    return [[*where, *_batches_into(begin)], [*where, Condition("logical_date", ">=", begin)]]


def _batches_into(at: datetime) -> list[Condition]:
    """Runs that begin before an instant and take intervals after it along."""
    return [Condition("items", ">", 1), Condition("logical_date", "<", at), Condition("interval_end", ">", at)]


def _runs_of(
    store: Store, dag_id: str, timezone: str, year: int, columns: tuple[str, ...], *, all_days: bool = False
) -> tuple[list[date], pa.Table]:
    """The days of a year, and the runs on them in the timeline with `day`, from 0; with `all_days` a batch has a row for each
    of its days. The days lie between midnights that Python computes: zones come from there only, as in the planner."""
    zone = ZoneInfo(timezone)
    dates = _dates_of(year)
    midnights = [start_of_day(one, zone) for one in dates]
    end = datetime.max.replace(tzinfo=UTC) if year == MAXYEAR else start_of_day(date(year + 1, 1, 1), zone)
    edges = np.array([micros(one) for one in (*midnights, end)])

    def days(column: pa.ChunkedArray, *, before: int = 0) -> np.ndarray:
        return np.asarray(np.searchsorted(edges, column.cast(pa.int64()).to_numpy() - before, side="right")) - 1

    where = timeline_of(dag_id)
    in_year = [*where, Condition("logical_date", ">=", midnights[0]), Condition("logical_date", "<", end)]
    names = ["logical_date", "interval_end", "items", *columns]
    runs = store.read_arrow(DagRun.TABLE, names, in_year)
    if all_days:
        runs = pa.concat_tables([runs, store.read_arrow(DagRun.TABLE, names, [*where, *_batches_into(midnights[0])])])
    first = days(runs["logical_date"])
    if not all_days:
        return dates, runs.append_column("day", pa.array(first))
    ends = days(pc.coalesce(runs["interval_end"], runs["logical_date"]), before=1)
    last = np.where(runs["items"].to_numpy() > 1, np.minimum(ends, len(dates) - 1), first)
    first = np.maximum(first, 0)
    row = np.repeat(np.arange(len(first)), last - first + 1)
    of_first = np.flatnonzero(np.diff(row, prepend=-1))  # where the rows of each run begin
    day = first[row] + np.arange(len(row)) - of_first[row]
    return dates, runs.take(pa.array(row)).append_column("day", pa.array(day))


def _dates_of(year: int) -> list[date]:
    first = date(year, 1, 1)
    return [first + timedelta(days=n) for n in range((date(year, 12, 31) - first).days + 1)]


def weeks_of(year: int) -> list[list[date | None]]:
    """The days of a year in columns of weeks, Monday first; None where a week reaches beyond the year."""
    padded: list[date | None] = [*([None] * date(year, 1, 1).weekday()), *_dates_of(year)]
    padded += [None] * (-len(padded) % 7)
    return [padded[n : n + 7] for n in range(0, len(padded), 7)]
