"""Plans a backfill: the items it consists of, one value that the dry run prints and the manager performs.

How each kind becomes items is in docs/semantics.md, "Backfill kinds", "Batch" and "Reprocess". Beside that:

- The DAG's own start and end dates don't restrict a range that is given: it reaches dates before the DAG's first on purpose.
- `dates` of a DAG without a schedule (or `@once`) have nothing that would end their intervals: start = end, as for a manual run.
- Dates and partitions named twice are one item.
- A cancelled run counts like a failed one; a live run is `in flight` whatever `reprocess` says. `missing` and `stale` have
  no item for other dates, but one for a live run, as nobody knows yet how it ends.
- An item without a run on its own date is judged by the batch that covers it (`batch_coverage`).

A plan is one Spark job of one task, without a shuffle; a million items stay columns all the way. The caller chooses the
scheduler pool and the session: time zones of session and process don't matter, all instants cross as epoch micros.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import format_instant, micros
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.dags.task_selection import is_whole, selected_tasks
from backfill_manager.model import states
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.planning.backfills.backfill_intervals import intervals
from backfill_manager.planning.backfills.backfill_range import ON_SCHEDULE, with_defaults
from backfill_manager.planning.backfills.rendering import PlannedRun, render
from backfill_manager.planning.backfills.sql_queries import query
from backfill_manager.planning.batches.auto_batch_size import BatchLimits, PastRun, Simulated, simulate, why_so_large
from backfill_manager.planning.batches.batch_coverage import covered_ranges
from backfill_manager.planning.batches.joined_items import batches, batches_of, stretches
from backfill_manager.planning.runs.recent_runs import partial_runs_of_older_releases
from backfill_manager.planning.runs.timeline import (
    CURRENT_RUNS,
    TimelineKey,
    preview_run_type,
    run_id_for,
    timeline_key,
)
from backfill_manager.schemas import errors
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.store.table_properties import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_manager.planning.backfills.dry_run_reruns import Rerun
    from backfill_manager.planning.backfills.estimates import Estimate
    from backfill_manager.planning.backfills.plan_waits import ItemWaits
    from backfill_manager.schemas.backfill_options import CreateBackfill

_RUN_COLUMNS = (
    "run_id", "run_type", "state", "logical_date", "partition_key", "dag_version", "interval_start", "interval_end",
    "items", "is_partial", "reverted_at", "restored_run_id",
)  # fmt: skip
_INSTANTS = ("logical_date", "interval_start", "interval_end")
_MAX_NAMED = 1000  # partition keys in one condition; beyond, all partitioned runs of the DAG are read


@dataclass(frozen=True)
class BackfillPlan:
    """`items` has the columns `ordinal logical_date interval_start interval_end partition_key state reason`, by
    ordinal; instants are timestamp[us, UTC]. `command` has the range's ends filled in. The other fields are of
    a dry run, or of a plan with downstream backfills (`downstream_plan`)."""

    command: CreateBackfill
    dag: DagSpec
    dag_version: int
    items: pa.Table
    existing_not_succeeded: int = 0  # of the items that are skipped as `already exists`
    parents: tuple[str, ...] = ()  # of a plan downstream of another: DAGs of the tree that it waits for
    downstream: tuple[BackfillPlan, ...] = ()  # of the root: all of the tree, each after those it waits for
    left_out: Mapping[str, str] = field(default_factory=dict)  # of the root: DAGs of the tree that aren't planned, why
    no_downstream: str | None = None  # of the root: why the tree has no other DAG
    estimate: Estimate | None = None  # of a dry run
    past: Sequence[PastRun] = ()  # of `batch=auto`, as is the next: see `batch_forecast`
    limits: BatchLimits | None = None
    runs_of_first_key: int = 0  # of a dry run: how many runs its first run follows in its place
    reruns: Mapping[int, Rerun] = field(default_factory=dict)  # of a dry run that re-runs failed tasks; by ordinal
    waits: Mapping[int, ItemWaits] = field(default_factory=dict)  # of a dry run whose tasks wait for data; by ordinal
    wait_sums: Sequence[Mapping[str, Any]] = ()  # the same for each that is waited for
    unknown_pools: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of a dry run; see `pools_not_in`

    @cached_property
    def batches(self) -> pa.ChunkedArray:
        """For each item the ordinal of the first item of its run, null for the skipped: as it would be if all runs were
        made now, or of `batch=auto` if all succeed and cost what runs have cost so far."""
        batch = self.command.batch or 1
        if isinstance(batch, int):
            return batches(self.items, batch, run_backwards=self.command.run_backwards)
        return batches_of(self.items, self.simulated.sizes)

    @property
    def max_active_runs(self) -> int:
        return self.command.max_active_runs or self.dag.max_active_runs

    @cached_property
    def simulated(self) -> Simulated:
        """The runs of `batch=auto`."""
        limits = self.limits or BatchLimits(self.max_active_runs, math.inf)
        parts = stretches(self.items, run_backwards=self.command.run_backwards)
        return simulate(self.past, parts, limits, self.max_active_runs)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that its runs run, but for callbacks."""
        asked = self.command
        chosen = selected_tasks(asked.tasks, self.dag, upstream=asked.with_upstream, downstream=asked.with_downstream)
        return tuple(task_id for task_id in chosen if not self.dag.is_callback(task_id))

    def pools_not_in(self, known: Collection[str]) -> dict[str, list[str]]:
        """The other pools that its tasks name, each with these tasks: they would fail when they start."""
        runs, found = set(self.tasks), self.dag.unknown_pools(known)
        of_those = {pool: [task_id for task_id in named if task_id in runs] for pool, named in found.items()}
        return {pool: named for pool, named in of_those.items() if named}

    @cached_property
    def skipped(self) -> dict[str, int]:
        """Numbers of skipped items by reason."""
        reasons = {entry["values"]: entry["counts"] for entry in pc.value_counts(self.items["reason"]).to_pylist()}
        reasons.pop(None, None)
        return dict(sorted(reasons.items()))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Counts and ends of the plan, ready for JSON; `runs` is what the pending items make, `skipped` counts by
        reason, `first` and `last` are logical dates; `tasks` are those that run, where they were chosen; `reruns` counts the
        runs that go on in place, and their failed tasks."""
        ends = pc.min_max(self.items["logical_date"]).as_py()
        again = {rerun.run_id: rerun.failed_tasks for rerun in self.reruns.values()}
        runs = pc.sum(pc.equal(self.batches, self.items["ordinal"]), min_count=0).as_py()
        return {
            "dag_id": self.command.dag_id,
            "kind": self.command.kind,
            "items": self.items.num_rows,
            "pending": self.items.num_rows - sum(self.skipped.values()),
            "runs": runs - len(self.reruns) + len(again),  # what runs again may stand for several items
            "skipped": self.skipped,
            "first": format_instant(ends["min"]),
            "last": format_instant(ends["max"]),
            "reprocess": self.command.effective_reprocess,
            "max_active_runs": self.max_active_runs,
            **({"tasks": list(self.tasks)} if self.command.tasks is not None else {}),
            **({"reruns": {"runs": len(again), "failed_tasks": sum(again.values())}} if again else {}),
            **({"batching": why_so_large(self.simulated, self.past, self.limits)} if self.limits and runs else {}),
            **({"existing_not_succeeded": n} if (n := self.existing_not_succeeded) else {}),
            **({"before_start_date": n} if (n := self._before_start_date()) else {}),
            **({"unknown_pools": self.unknown_pools} if self.unknown_pools else {}),
            **({"waits": self._waits_document()} if self.wait_sums else {}),
            **({"left_out": dict(self.left_out)} if self.command.downstream else {}),
            **({"no_downstream": self.no_downstream} if self.no_downstream else {}),
            **({"estimate": self.estimate.to_json_document()} if self.estimate else {}),
        }

    def _before_start_date(self) -> int:
        """How many of the items that would run start before the DAG's `start_date`: asked for by hand, or a mistake."""
        if self.dag.start_date is None:
            return 0
        first = pa.scalar(self.dag.start_date, self.items["logical_date"].type)
        early = pc.and_(pc.less(self.items["logical_date"], first), pc.equal(self.items["state"], states.PENDING))
        return int(pc.sum(early, min_count=0).as_py())

    def rows_for(self, backfill_id: str, first_seq: int) -> pa.Table:
        """The items as rows of `backfill_item`; `run_seq` goes with the ordinal."""
        n = self.items.num_rows
        made = {
            **{name: self.items[name] for name in self.items.column_names},
            "backfill_id": pa.repeat(pa.scalar(backfill_id, pa.string()), n),
            "run_seq": pc.add(self.items["ordinal"], pa.scalar(first_seq - 1, pa.int64())),
            "run_id": pa.nulls(n, pa.string()),
            "batch": pa.nulls(n, pa.int64()),  # decided when runs are made, as the setting may change till then
        }
        schema = arrow_schema(BackfillItem)
        return pa.table([made[name] for name in schema.names], schema=schema)

    def first_item(self) -> dict[str, Any] | None:
        """What the tasks of the first run would see; None for a plan of which nothing runs."""
        if self.first_key is None:
            return None
        of_run = self._first_run
        start, end = pc.min(of_run["interval_start"]).as_py(), pc.max(of_run["interval_end"]).as_py()
        interval, (_, partition) = None if start is None else (start, end), self.first_key
        rerun = self.reruns.get(of_run["ordinal"][0].as_py())
        run_type = preview_run_type("BACKFILL_ID") if self.command.preview else states.BACKFILL_RUN  # it has none yet
        run_id = rerun.run_id if rerun else run_id_for(run_type, self.first_key, self.runs_of_first_key)
        return render(self.dag, PlannedRun(run_id, interval, partition, self.command.conf), self.tasks)

    @cached_property
    def first_key(self) -> TimelineKey | None:
        """Where in the timeline the first run would stand; None for a plan of which nothing runs."""
        first = self._first_run
        return (
            timeline_key(pc.min(first["interval_start"]).as_py(), first["partition_key"][0].as_py())
            if len(first)
            else None
        )

    @cached_property
    def _first_run(self) -> pa.Table:
        """Its items."""
        numbers = pc.drop_null(self.batches)
        return (
            self.items.filter(pc.fill_null(pc.equal(self.batches, numbers[0]), False))
            if len(numbers)
            else self.items[:0]
        )

    def to_json_document(self) -> dict[str, Any]:
        """What a dry run prints: the items as they would be made, the summary, what the tasks of the first see, and the same of
        all downstream."""
        below = [
            {
                "dag_id": one.command.dag_id,
                "waits_for": list(one.parents),
                "items": one._items(),
                "summary": one.summary,
            }
            for one in self.downstream
        ]
        first = self.first_item()
        return {"items": self._items(), "summary": self.summary, "first_item": first, "downstream": below}

    def _waits_document(self) -> dict[str, Any]:
        """How many items would wait, how many may, and what for."""
        would = sum(bool(one.missing) for one in self.waits.values())
        return {"items": would, "unknown": len(self.waits) - would, "for": [dict(one) for one in self.wait_sums]}

    def _items(self) -> list[dict[str, Any]]:
        columns = {name: _for_json(self.items[name]) for name in self.items.column_names}
        found = [self.reruns.get(ordinal) for ordinal in columns["ordinal"]]
        columns["run_id"] = [rerun and rerun.run_id for rerun in found]
        columns["batch"] = [None] * self.items.num_rows if self.command.batch == 1 else self.batches.to_pylist()
        if self.reruns:
            columns["failed_tasks"] = [rerun and rerun.failed_tasks for rerun in found]
        if self.wait_sums:
            waits = [self.waits.get(ordinal) for ordinal in columns["ordinal"]]
            columns["waits_for"] = [[] if one is None else [*one.missing] for one in waits]
            columns["may_wait_for"] = [[] if one is None else [*one.unknown] for one in waits]
        if self.estimate is not None:
            columns |= self.estimate.items.to_pydict()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def plan_backfill(
    spark: SparkSession, command: CreateBackfill, dag: DagSpec, dag_version: int, existing: pa.Table, now: datetime
) -> BackfillPlan:
    """The plan. `dag` and `dag_version` are the current ones; `existing`: the runs that may meet it, as `existing_runs`
    reads them. An empty range gives an empty plan; `requests.backfill_checks` refuses it, and all else that makes no
    sense, before."""
    command = with_defaults(command, dag, now)
    known = _relevant_runs(existing, command, dag)
    if command.kind == "single":
        known = _live_or_until(known, _range(command)[1])
    covers, runs = covered_ranges(known, dag_version), _known_runs(known, dag_version)
    values = {
        "kind": command.kind,
        "reprocess": command.effective_reprocess,
        "run_backwards": str(command.run_backwards).lower(),
        "complete_until": "" if command.allow_future else str(micros(now)),
    }
    relations = {
        "asked": _asked(command, dag),
        **({"covers": covers} if covers.num_rows else {}),
        "wanted": query("batch_coverage" if covers.num_rows else "no_batch_coverage"),
        "runs": runs if runs.num_rows else query("no_runs"),
    }
    planned = _one_statement(spark, relations, query("reprocess", values))
    found = planned.toArrow()
    not_succeeded = pc.sum(found["has_not_succeeded"], min_count=0).as_py()
    return BackfillPlan(command, dag, dag_version, _as_items(found), existing_not_succeeded=not_succeeded)


def _one_statement(spark: SparkSession, relations: Mapping[str, str | pa.Table], text: str) -> DataFrame:
    """A query over named queries and tables: Spark analyses it once, and only a table costs a temporary view."""
    tables = {
        name: spark.createDataFrame(one).coalesce(1) for name, one in relations.items() if not isinstance(one, str)
    }
    queries = {**relations, **{name: f"TABLE {{{name}}}" for name in tables}}
    named = ", ".join(f"{name} AS ({one})" for name, one in queries.items())
    return spark.sql(f"WITH {named} SELECT * FROM ({text})", **tables)  # noqa: S608 - texts of `sql/`, and literals


def existing_runs(store: Store, command: CreateBackfill, dag: DagSpec) -> pa.Table:
    """The DAG's runs that an item of this backfill (`command`: with both ends of its range) may meet: not overridden, not
    external, on a date asked for or with an interval that reaches into the range. Of a reverted one `state` is null: it counts as
    none. But where the rows of a run before are back, it is as that one was. Columns `run_id run_type state logical_date
    partition_key dag_version interval_start interval_end items is_partial`."""
    where = [Condition("dag_id", "=", dag.dag_id), *CURRENT_RUNS, *_that_may_meet(command)]
    runs = store.read_arrow("dag_run", _RUN_COLUMNS, where)
    is_partial = runs["is_partial"].cast(pa.bool_())
    if is_partial.null_count:  # of an older release, which did not write it down
        partial = pa.array([run_id for _, run_id in partial_runs_of_older_releases(store, [dag.dag_id])], pa.string())
        is_partial = pc.coalesce(is_partial, pc.is_in(runs["run_id"].cast(pa.string()), partial))
    runs = runs.set_column(runs.column_names.index("is_partial"), "is_partial", is_partial)
    return _with_reverts(store, runs, dag.dag_id).drop_columns(["reverted_at", "restored_run_id"])


def _with_reverts(store: Store, runs: pa.Table, dag_id: str) -> pa.Table:
    if runs["reverted_at"].null_count == runs.num_rows:
        return runs
    restored = runs["restored_run_id"].cast(pa.string())
    counts = pc.or_(pc.is_null(runs["reverted_at"]), pc.is_valid(restored))
    ids = tuple(dict.fromkeys(restored.drop_null().to_pylist()))
    before = store.read(DagRun, matching(dag_id=dag_id, run_id=ids)) if ids else []
    versions = {run.run_id: run.dag_version for run in before}
    was = pa.array([versions.get(run_id) for run_id in restored.to_pylist()], runs["dag_version"].type)
    as_before = {
        "state": pc.if_else(
            counts, pc.if_else(pc.is_valid(restored), states.SUCCESS, runs["state"].cast(pa.string())), None
        ),
        "is_partial": pc.if_else(pc.is_valid(restored), False, runs["is_partial"]),
        "dag_version": pc.coalesce(was, runs["dag_version"]),
    }
    for name, column in as_before.items():
        runs = runs.set_column(runs.column_names.index(name), name, column)
    return runs


def _relevant_runs(existing: pa.Table, command: CreateBackfill, dag: DagSpec) -> pa.Table:
    """The runs that this backfill may meet, each with what a finished partial one is to it: for a whole backfill it counts as
    none, but for `stale` as one that is not of the current version."""
    if not is_whole(command, dag):
        return existing
    live = pa.array(sorted(states.RUN_LIVE), pa.string())
    state = existing["state"].cast(pa.string())  # each store has its own kind of strings
    partial = pc.and_(pc.fill_null(existing["is_partial"], False), pc.invert(pc.is_in(state, live)))
    name, value, column = (
        ("dag_version", 0, existing["dag_version"]) if command.kind == "stale" else ("state", None, state)
    )
    at = existing.column_names.index(name)
    return existing.set_column(at, name, pc.if_else(partial, value, column))


def _live_or_until(runs: pa.Table, end: datetime) -> pa.Table:
    """Without the finished runs that end before: what they have done is a part of what is asked for."""
    is_live = pc.is_in(runs["state"].cast(pa.string()), pa.array(sorted(states.RUN_LIVE), pa.string()))
    ends = runs["interval_end"].cast(pa.timestamp("us", tz="UTC"))
    reaches = pc.fill_null(pc.greater_equal(ends, pa.scalar(end, ends.type)), False)
    return runs.filter(pc.or_(is_live, reaches))


def _that_may_meet(command: CreateBackfill) -> Sequence[Condition]:
    if command.kind == "partitions":
        keys = tuple(dict.fromkeys(command.partitions))
        named = len(keys) <= _MAX_NAMED
        return [Condition("partition_key", "in", keys) if named else Condition("partition_key", "not_null")]
    if command.kind == "dates":
        first, last = min(command.dates), max(command.dates)
    else:
        first, last = _range(command)
    # A run with a date has an interval; one that begins before the range may reach into it.
    return [Condition("interval_end", ">=", first), Condition("logical_date", "<=", last)]


def _range(command: CreateBackfill) -> tuple[datetime, datetime]:
    if command.start_date is None or command.end_date is None:
        raise errors.NO_ENDS(kind=command.kind)
    return command.start_date, command.end_date


def _asked(command: CreateBackfill, dag: DagSpec) -> str | pa.Table:
    """A query for what is asked by a range, a table of what is named."""
    if command.kind in ON_SCHEDULE:
        start, end = _range(command)
        return intervals(timetable_of(dag, start), start, end)
    if command.kind == "partitions":
        return _named(partition_key=list(dict.fromkeys(command.partitions)))
    if command.kind == "single":
        start, end = _range(command)
        return _named(interval_start=[start], interval_end=[end])
    timetable, dates = timetable_of(dag), sorted(set(command.dates))
    ends = [timetable.next_after(at) or at if timetable.repeats else at for at in dates]
    return _named(interval_start=dates, interval_end=ends)


def _named(
    *, interval_start: Sequence[datetime] = (), interval_end: Sequence[datetime] = (), partition_key: Sequence[str] = ()
) -> pa.Table:
    """What a person named one by one, in the order of making, in the shape that `intervals` gives."""
    n = len(interval_start) or len(partition_key)
    nothing: list[None] = [None] * n
    starts = pa.array([micros(at) for at in interval_start] or nothing, pa.int64())
    ends = pa.array([micros(at) for at in interval_end] or nothing, pa.int64())
    return pa.table({
        "place": pa.array(range(n), pa.int64()), "logical_date": starts, "interval_start": starts, "interval_end": ends,
        "partition_key": pa.array(partition_key or nothing, pa.string()),
    })  # fmt: skip


def _known_runs(existing: pa.Table, dag_version: int) -> pa.Table:
    existing = existing.filter(pc.is_valid(existing["state"]))
    return pa.table({
        "logical_date": existing["logical_date"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()),
        "partition_key": existing["partition_key"].cast(pa.string()), "state": existing["state"].cast(pa.string()),
        "is_older": pc.less(existing["dag_version"], dag_version),
    })  # fmt: skip


def _as_items(planned: pa.Table) -> pa.Table:
    instant = pa.timestamp("us", tz="UTC")
    fields = [
        pa.field("ordinal", pa.int64(), nullable=False),
        *(pa.field(name, instant) for name in _INSTANTS),
        pa.field("partition_key", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
    ]
    return pa.table([planned[one.name].cast(one.type) for one in fields], schema=pa.schema(fields))


def _for_json(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, instants spelled as `format_instant` does; whole seconds all at once, as there may be a
    million of them."""
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    try:
        texts: list[Any] = pc.strftime(column.cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ").to_pylist()
    except pa.ArrowInvalid:  # parts of a second would be lost
        return [format_instant(at) for at in column.to_pylist()]
    return texts
