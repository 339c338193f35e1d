"""Estimates what a plan will read, and how long it will take: for the dry run only, without reading any data.

What is read comes from the logs of the Delta tables that the DAG names in `reads`: a file counts for an item if the values of
its time column, from the smallest to the largest, overlap the item's interval. A file without such statistics, and a table
that is read without a time column, count for every item. So the figures are upper bounds of what Spark opens: a file counts in
full however few of its rows are needed. Items that make one run together read a file once.

How long it takes comes from the DAG's own last runs that succeeded, as if nothing else used the slots.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import format_instant, micros
from backfill_manager.dags.schedule.timezones import check_timezone, instant_of_reading
from backfill_manager.model import states
from backfill_manager.model.records import DagRun
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.data.interval_overlap import Spans, micros_of
from backfill_manager.planning.runs.timeline import OF_TIMELINE
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.store.data_tables.places import Numbers

FIGURES: Final = ("rows", "files", "bytes")
MAX_PAST_RUNS: Final = 100
FilesOf = Callable[[str, str | None], pa.Table | None]  # table, time column -> file_statistics; None: not there


@dataclass(frozen=True)
class Durations:
    """Seconds that one item took in the past."""

    median: float
    shortest: float
    longest: float

    def total(self, items: int, runs: int, max_active_runs: int) -> float:
        """Seconds for so many items in so many runs, of which up to `max_active_runs` are active at once."""
        return self.median * items / max(1, min(max_active_runs, runs))


@dataclass(frozen=True)
class Estimate:
    """`items` has the columns `rows files bytes`, int64, one row for each item of the plan: 0 for a skipped one, null
    for what is not known. `read` are the totals, `unknown` the tables of which nothing is known."""

    items: pa.Table
    read: dict[str, int | None]
    durations: Durations | None
    total_s: float | None
    finishes_at: datetime | None
    unknown: tuple[str, ...]

    def to_json_document(self) -> dict[str, Any]:
        run_s = None
        if self.durations is not None:
            run_s = {name: round(value, 3) for name, value in dataclasses.asdict(self.durations).items()}
        total_s = None if self.total_s is None else round(self.total_s, 3)
        finishes_at = format_instant(self.finishes_at)
        return {
            **self.read,
            "run_s": run_s,
            "total_s": total_s,
            "finishes_at": finishes_at,
            "unknown": list(self.unknown),
        }


def with_estimates(plan: BackfillPlan, store: Store, files_of: FilesOf, now: datetime) -> BackfillPlan:
    """The plan, and all downstream of it, each with its `estimate`."""
    below = tuple(with_estimates(one, store, files_of, now) for one in plan.downstream)
    return dataclasses.replace(plan, downstream=below, estimate=estimate(plan, past_runs(store, plan), files_of, now))


def past_runs(store: Store, plan: BackfillPlan) -> list[DagRun]:
    """The DAG's last successful runs, newest first, without external and partial ones."""
    where = [
        *matching(dag_id=plan.dag.dag_id, state=states.SUCCESS), OF_TIMELINE, Condition("started_at", "not_null"),
        Condition("ended_at", "not_null"),
    ]  # fmt: skip
    found = store.read(DagRun, where, order_by=("-ended_at",), limit=MAX_PAST_RUNS)
    return [run for run in found if not run.is_partial]


def estimate(plan: BackfillPlan, past: Sequence[DagRun], files_of: FilesOf, now: datetime) -> Estimate:
    """`past`: as `past_runs` gives them."""
    if plan.command.mark_success:  # no task runs
        none = pa.repeat(0, plan.items.num_rows)
        return Estimate(
            pa.table(dict.fromkeys(FIGURES, none)), dict.fromkeys(FIGURES, 0), None, 0.0, _after(now, 0.0), ()
        )
    found = {read: files_of(read.table, read.time_column) for read in plan.dag.reads}
    tables = [_Files.of(files, plan.dag.timezone) for files in found.values() if files is not None]
    durations = durations_of(past)
    pending, runs = plan.summary["pending"], plan.summary["runs"]
    at_once = 1 if plan.dag.is_serial else plan.max_active_runs
    total_s = None if durations is None else durations.total(pending, runs, at_once)
    if plan.limits is not None:  # of batches that size themselves: by what past tries cost, without their waiting
        durations, total_s = None, plan.simulated.total_s
    finishes_at = None if total_s is None else _after(now, total_s)
    unknown = tuple(dict.fromkeys(read.table for read, files in found.items() if files is None))
    return Estimate(_per_item(plan, tables), _totals(plan, tables), durations, total_s, finishes_at, unknown)


def durations_of(past: Sequence[DagRun]) -> Durations | None:
    """None when there has been no run. A run of several items counts as if each had taken its part of the time."""
    took = [
        (run.ended_at - run.started_at).total_seconds() / run.items
        for run in past
        if run.started_at is not None and run.ended_at is not None
    ]
    return Durations(statistics.median(took), min(took), max(took)) if took else None


def _after(now: datetime, seconds: float) -> datetime | None:
    try:
        return now.replace(microsecond=0) + timedelta(seconds=round(seconds))
    except OverflowError:  # beyond the year 9999
        return None


@dataclass(frozen=True)
class _Files:
    """The files of one table: `spans` and `whole` hold, by figure, those that know their times and the sum over all
    others. A figure that some file does not tell is missing from both."""

    spans: dict[str, Spans]
    whole: dict[str, int]
    everything: dict[str, int]

    @classmethod
    def of(cls, files: pa.Table, timezone: str) -> _Files:
        timed = pc.and_(pc.is_valid(files["first"]), pc.is_valid(files["last"]))
        known, other = files.filter(timed), files.filter(pc.invert(timed))
        first, last = (_instants(known[end], timezone) for end in ("first", "last"))
        figures = [name for name in FIGURES if name == "files" or not files[name].null_count]
        return cls(
            {name: Spans(first, last, _weights(known, name)) for name in figures},
            {name: int(_weights(other, name).sum()) for name in figures},
            {name: int(_weights(files, name).sum()) for name in figures},
        )


def _weights(files: pa.Table, name: str) -> Numbers:
    if name == "files":
        return np.ones(files.num_rows, np.int64)
    weights: Numbers = files[name].cast(pa.int64()).to_numpy()
    return weights


def _instants(times: pa.ChunkedArray, timezone: str) -> Numbers:
    """A column of times without nulls, as epoch micros. A date or a reading of a wall clock is one in the DAG's zone,
    as in `execution.interval`."""
    if not len(times):
        return np.zeros(0, np.int64)
    if pa.types.is_timestamp(times.type) and times.type.tz:
        return micros_of(times)
    zone = check_timezone(timezone)
    encoded = times.cast(pa.timestamp("us")).combine_chunks().dictionary_encode()
    instants = [micros(instant_of_reading(reading, zone)) for reading in encoded.dictionary.to_pylist()]
    at: Numbers = np.array(instants, np.int64)[encoded.indices.to_numpy()]
    return at


def _per_item(plan: BackfillPlan, tables: Sequence[_Files]) -> pa.Table:
    items, unknown = plan.items, pa.nulls(plan.items.num_rows, pa.int64())
    runs = pc.equal(items["state"], states.PENDING)
    figures = {name: _figure(name, tables, items) for name in FIGURES}
    return pa.table(
        {name: unknown if one is None else pc.if_else(runs, pa.array(one), 0) for name, one in figures.items()}
    )


def _totals(plan: BackfillPlan, tables: Sequence[_Files]) -> dict[str, int | None]:
    """The totals over the runs that the pending items make, each over its joined interval."""
    joined = (
        plan.items.append_column("run", plan.batches)
        .filter(pc.equal(plan.items["state"], states.PENDING))
        .group_by("run")
        .aggregate([("interval_start", "min"), ("interval_end", "max")])
        .rename_columns(["run", "interval_start", "interval_end"])
    )
    figures = {name: _figure(name, tables, joined) for name in FIGURES}
    return {name: None if figure is None else int(figure.sum()) for name, figure in figures.items()}


def _figure(name: str, tables: Sequence[_Files], items: pa.Table) -> Numbers | None:
    """For each interval the sum over the tables of which it is known; None if it is of none, or if a table does not tell it."""
    if not tables or any(name not in table.spans for table in tables):
        return None
    if items["interval_start"].null_count:  # partitions: each table is read whole each time
        return np.full(items.num_rows, sum(table.everything[name] for table in tables), np.int64)
    intervals = micros_of(items["interval_start"]), micros_of(items["interval_end"])
    total = np.zeros(items.num_rows, np.int64)
    for table in tables:
        total += table.spans[name].meeting(*intervals) + table.whole[name]
    return total
