"""A year of a DAG's runs by day: how many, in which state, how long they took, how many rows they wrote. Counted in Arrow,
as an hourly DAG has 8760 runs a year and one of every minute half a million. Days are those of the DAG's zone."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from backfill_manager.clock import UTC, micros
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.planning.timeline import timeline_of
from backfill_manager.queries.runs import NOT_LISTED, run_view
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    import pyarrow as pa

# A day with runs in several states shows the first of these.
WORST_FIRST: Final = (states.FAILED, states.RUNNING, states.QUEUED, states.CANCELLED, states.SUCCESS)


def calendar(store: Store, dag_id: str, timezone: str, year: int) -> dict[str, dict[str, Any]]:
    """Day (`2013-01-05`) -> `state` (the worst of its runs), `states` (counts), `runs`, `duration_s` (mean of the runs that
    have ended; None when none has). Only runs in the timeline."""
    dates, midnights = _days_of(year, timezone)
    where = [*timeline_of(dag_id), *_within(midnights)]
    days: dict[str, dict[str, Any]] = {}
    for row in _by_day_and_state(store, where, midnights):
        day = days.setdefault(
            dates[row["day"]].isoformat(), {"states": {}, "runs": 0, "took_s": 0.0, "ended": 0}
        )  # fmt: skip
        day["states"][row["state"]] = row["n"]
        day["runs"] += row["n"]
        day["took_s"] += row["took_s"] or 0.0
        day["ended"] += row["ended"]
    return {name: _day(found) for name, found in sorted(days.items())}


def rows_by_day(store: Store, dag_id: str, timezone: str, year: int) -> dict[str, int]:
    """Day -> rows that the tasks of its runs wrote into tables; days on which none did are left out."""
    import pyarrow as pa

    dates, midnights = _days_of(year, timezone)
    runs = store.read_arrow(
        DagRun.TABLE, ("run_id", "logical_date", "run_seq"), [*timeline_of(dag_id), *_within(midnights)]
    )
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
    runs = runs.append_column("day", pa.array(_day_numbers(runs, midnights)))
    found = runs.join(written, "run_id", join_type="inner").group_by("day").aggregate([("rows_written", "sum")])
    return {dates[row["day"]].isoformat(): row["rows_written_sum"] for row in found.to_pylist()}


def years(store: Store, dag_id: str, timezone: str) -> list[int]:
    """The years from the first run of the timeline to the last, newest first; empty when there is none."""
    ends = [
        found[0].logical_date.astimezone(ZoneInfo(timezone)).year
        for order in ("logical_date", "-logical_date")
        if (found := store.read(DagRun, timeline_of(dag_id), order_by=(order,), limit=1, without=NOT_LISTED))
        and found[0].logical_date
    ]
    return list(range(max(ends), min(ends) - 1, -1)) if ends else []


def runs_of_day(store: Store, dag_id: str, timezone: str, at: datetime, limit: int = 2000) -> list[dict[str, Any]]:
    """The runs in the timeline on the day of `at`, in the DAG's zone."""
    local = at.astimezone(ZoneInfo(timezone))
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    begin, end = (one.astimezone(UTC) for one in (midnight, midnight + timedelta(days=1)))  # +1 day by the wall clock
    where = [*timeline_of(dag_id), Condition("logical_date", ">=", begin), Condition("logical_date", "<", end)]
    rows = store.read(DagRun, where, order_by=("logical_date",), limit=limit, without=NOT_LISTED)
    return [run_view(row) for row in rows]


def _days_of(year: int, timezone: str) -> tuple[list[date], list[datetime]]:
    """The days of a year and the one after, and the instants at which they begin in the zone."""
    zone = ZoneInfo(timezone)
    dates = [date(year, 1, 1) + timedelta(days=n) for n in range((date(year + 1, 1, 1) - date(year, 1, 1)).days + 1)]
    return dates, [datetime(one.year, one.month, one.day, tzinfo=zone).astimezone(UTC) for one in dates]


def _within(midnights: list[datetime]) -> list[Condition]:
    return [Condition("logical_date", ">=", midnights[0]), Condition("logical_date", "<", midnights[-1])]


def _day_numbers(runs: pa.Table, midnights: list[datetime]) -> Any:
    """Of each run, from 0."""
    import numpy as np
    import pyarrow as pa

    at = runs["logical_date"].cast(pa.int64()).to_numpy()
    return np.searchsorted(np.array([micros(one) for one in midnights]), at, side="right") - 1


def _by_day_and_state(store: Store, where: list[Condition], midnights: list[datetime]) -> list[dict[str, Any]]:
    """Rows of `day` (from 0), `state`, `n`, `ended` (runs with both times), `took_s` (their sum). The days lie between the
    midnights: zones come from Python only, here as in the planner."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = store.read_arrow("dag_run", ("logical_date", "state", "started_at", "ended_at"), where)
    if not table.num_rows:
        return []
    took = pc.microseconds_between(table["started_at"], table["ended_at"])
    days = pa.table({"day": _day_numbers(table, midnights), "state": table["state"], "us": took})
    found = days.group_by(["day", "state"]).aggregate([([], "count_all"), ("us", "count"), ("us", "sum")])
    return [
        {
            "day": row["day"],
            "state": row["state"],
            "n": row["count_all"],
            "ended": row["us_count"],
            "took_s": None if row["us_sum"] is None else row["us_sum"] / 1e6,
        }
        for row in found.to_pylist()
    ]


def _day(found: dict[str, Any]) -> dict[str, Any]:
    worst = next((state for state in WORST_FIRST if found["states"].get(state)), states.SUCCESS)
    mean_s = found["took_s"] / found["ended"] if found["ended"] else None
    return {"state": worst, "states": found["states"], "runs": found["runs"], "duration_s": mean_s}


def weeks_of(year: int) -> list[list[date | None]]:
    """The days of a year in columns of weeks, Monday first; None where a week reaches beyond the year."""
    first = date(year, 1, 1)
    days = [first + timedelta(days=n) for n in range((date(year + 1, 1, 1) - first).days)] if year < 9999 else []
    padded: list[date | None] = [None] * first.weekday() + list(days)
    padded += [None] * (-len(padded) % 7)
    return [padded[n : n + 7] for n in range(0, len(padded), 7)]
