"""Reads the newest end of many DAGs' timelines: how far the schedule of each has come; and which of the runs are partial.

In a few statements for all of them, for the manager when it starts and for lists that show the next interval.

A run that left tasks out by choice (`tasks` of a backfill) has `is_partial`. In one of an older release it is null: there the
backfill has `tasks`, and the task instances that its runs left out have an error of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.clock import earlier
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, RunKey
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.planning.runs.timeline import CURRENT_RUNS, OF_TIMELINE, TimelineWindow
from backfill_manager.store.base import Condition, Store, matching

HORIZONS: Final = (*(timedelta(hours=8**n) for n in range(6)), None)  # 1 hour, 8, 64, ... nearly 4 years, all


def recent_timelines(counts: Mapping[str, int], store: Store, now: datetime) -> dict[str, TimelineWindow]:
    """For each DAG the newest part of its timeline, which holds so many runs that advance the schedule, however many manual runs
    there are between them. Of overridden runs it has the numbers only: after a batch a date may be run again on which no run is
    current any more.

    Thousands of DAGs are read together. How far back their runs lie differs from minutes to years and is not known, so they are
    looked for within an hour of the newest one that may advance the schedule, then those that are not complete within eight of
    the newest of theirs, and so on: a few statements, none of which reads much more than is needed. (Counted from now, an
    hour's gap between runs looks like an hour without a manager.)"""
    found: dict[str, TimelineWindow] = {}
    for horizon in HORIZONS:
        missing = [dag_id for dag_id in counts if dag_id not in found]
        if not missing:
            break
        of_these = [Condition("dag_id", "in", missing), OF_TIMELINE]
        since = None if horizon is None else _back_from_newest(of_these, horizon, store, now)
        dated = Condition("logical_date", "not_null") if since is None else Condition("logical_date", ">=", since)
        runs = defaultdict[str, list[DagRun]](list)
        for run in with_partial_marked(store.read(DagRun, [*of_these, dated]), store):
            runs[run.dag_id].append(run)
        for dag_id in missing:
            recent = _newest(runs[dag_id], counts[dag_id])
            if recent.floor is not None or since is None:
                found[dag_id] = recent
    floors = {dag_id: recent.floor for dag_id, recent in found.items() if recent.floor is not None}
    if floors:
        _put_batches_that_reach_in(found, floors, store)
    return found


def _back_from_newest(where: Sequence[Condition], horizon: timedelta, store: Store, now: datetime) -> datetime | None:
    """So much earlier than the newest scheduled or backfill run that is not of a time to come; None where there is none."""
    begun = [*where, Condition("logical_date", "<=", now), *matching(run_type=(s.SCHEDULED_RUN, s.BACKFILL_RUN))]
    newest = store.first(DagRun, begun, ["-logical_date"])
    return None if newest is None or newest.logical_date is None else earlier(newest.logical_date, horizon)


def _newest(runs: list[DagRun], most: int) -> TimelineWindow:
    """Of one DAG's runs those from the date on, the floor, on which the `most`-th of those stands that advance the schedule;
    all if there are fewer."""
    oldest = TimelineWindow.of(runs).nth_advancing(most)
    floor = None if oldest is None else oldest.logical_date
    window = TimelineWindow.of(run for run in runs if floor is None or (run.logical_date and run.logical_date >= floor))
    window.floor = floor
    return window


def _put_batches_that_reach_in(
    recent: Mapping[str, TimelineWindow], floors: Mapping[str, datetime], store: Store
) -> None:
    """Few DAGs have batches; for those the one that ends last of all that begin before the floor and end after it."""
    batches = [*CURRENT_RUNS, Condition("items", ">", 1)]
    maybe = _across(min(floors.values()), max(floors.values()))  # others ended long ago
    with_batches = store.count("dag_run", ["dag_id"], [Condition("dag_id", "in", list(floors)), *batches, *maybe])
    for (dag_id,) in with_batches:
        where = [Condition("dag_id", "=", dag_id), *batches, *_across(floors[dag_id], floors[dag_id])]
        if batch := store.first(DagRun, where, ["-interval_end"]):
            recent[dag_id].put(batch)


def _across(first: datetime, last: datetime) -> list[Condition]:
    """That begin before the last of two floors, and end after the first."""
    return [Condition("logical_date", "<", last), Condition("interval_end", ">", first)]


def with_partial_marked(runs: Sequence[DagRun], store: Store) -> list[DagRun]:
    """The same runs, each partial one marked as such."""
    unmarked = {run.dag_id for run in runs if run.is_partial is None and run.backfill_id is not None}
    partial = partial_runs_of_older_releases(store, unmarked) if unmarked else frozenset()
    return [run.evolve(is_partial=True) if run.key in partial else run for run in runs]


def partial_runs_of_older_releases(store: Store, dag_ids: Collection[str]) -> frozenset[RunKey]:
    """Of these DAGs."""
    of_dags = Condition("dag_id", "in", sorted(dag_ids))
    chose_tasks = [of_dags, Condition("tasks", "not_null"), Condition("with_upstream", "is_null")]
    backfills = store.read(Backfill, chose_tasks)
    if not backfills:
        return frozenset()
    first = min(row.run_seq for row in backfills)  # a backfill's runs are made after it
    left_out = [
        Condition("run_seq", ">", first), Condition("dag_id", "in", sorted({row.dag_id for row in backfills})),
        Condition("state", "=", s.SKIPPED), Condition("error", "=", NOT_SELECTED),
    ]  # fmt: skip
    found = store.read_arrow("task_instance", ("dag_id", "run_id"), left_out)
    return frozenset(zip(found["dag_id"].to_pylist(), found["run_id"].to_pylist(), strict=True))
