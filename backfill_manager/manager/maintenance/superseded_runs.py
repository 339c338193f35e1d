"""Which old runs nothing needs any more: neither the timeline, nor `depends_on_past`, nor tasks that wait for what they wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from backfill_manager.model import states as s
from backfill_manager.model.records import (
    DagRun,
    RunKey,
    TableAccess,
)
from backfill_manager.planning.data.written_intervals import REVERT, WrittenIntervals, without_reverted
from backfill_manager.planning.runs.recent_runs import with_partial_marked
from backfill_manager.planning.runs.timeline import OF_TIMELINE, advances_schedule, first_date, number_of, timeline_key
from backfill_manager.store.base import Condition, Store, matching, spanning


def superseded(runs: Sequence[DagRun], store: Store, cutoff: datetime) -> list[DagRun]:
    """Of finished runs that are overridden, external or a preview's, those that nothing depends on. On an overridden one
    depend: the number of the next run of its date or partition, if it has the highest; the schedule, if it had reached this
    date and the run that overrode it has not; and a revert of the run that overrode it, if that ended after `cutoff`: its date
    is done as that run did it then. (No run has an overridden one as the one before.)"""
    overridden = [run for run in runs if run.state == s.OVERRIDDEN]
    of_dags = [*matching(dag_id=sorted({run.dag_id for run in overridden})), OF_TIMELINE]
    dates = tuple({run.logical_date for run in overridden if run.logical_date is not None})
    keys = tuple({run.partition_key for run in overridden if run.partition_key is not None})
    same: list[DagRun] = []
    if dates:
        same += store.read(DagRun, [*of_dags, Condition("logical_date", "in", dates)])
    if keys:
        same += store.read(DagRun, [*of_dags, Condition("partition_key", "in", keys)])
    needed = {run.key for run in _depended_on(with_partial_marked(same, store), cutoff)}
    return [run for run in runs if run.key not in needed]


def only_writers(runs: Sequence[DagRun], store: Store) -> set[RunKey]:
    """Those of them without which it would not be known that an interval or a partition of a table has been written, for which
    tasks wait (`waits_for`): the run that overrode it has failed, or writes another table. Of several the newest."""
    if not runs:
        return set()
    seqs = sorted(run.run_seq for run in runs)
    where = [*spanning("run_seq", seqs), *matching(run_seq=seqs)]
    mine = _writes(store, where, "run_seq", "dag_id", "run_id")
    written = defaultdict[Any, WrittenIntervals](WrittenIntervals)
    starts = [row["interval_start"] for row in mine if row["interval_start"] is not None]
    ends = [row["interval_end"] for row in mine if row["interval_end"] is not None]
    within = (min(starts), max(ends)) if starts and ends else None
    for column in ("table_name", "table_path"):
        if named := {row[column] for row in mine if row[column] is not None}:
            for row in _writes(store, matching(**{column: sorted(named)}), without=seqs, within=within):
                written[row["table_name"], row["table_path"]].add(*_interval_and_key(row))
    needed = set[RunKey]()
    for row in sorted(mine, key=lambda row: -int(row["run_seq"])):
        of_table, (start, end, key) = written[row["table_name"], row["table_path"]], _interval_and_key(row)
        is_known = key is not None or (start is not None and end is not None and start < end)
        if is_known and not of_table.covers(start, end, key):
            needed.add((row["dag_id"], row["run_id"]))
            of_table.add(start, end, key)
    return needed


def _writes(
    store: Store, where: Sequence[Condition], *more: str, without: Sequence[int] = (),
    within: tuple[datetime, datetime] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What successful tries have written and nobody has reverted, each once. `without`: the run_seqs of other runs. `within`:
    of intervals only those that meet this one, as there may be many years."""
    import pyarrow as pa
    import pyarrow.compute as pc

    what = [Condition("access", "in", ("write", REVERT)), Condition("succeeded", "=", True), *where]
    columns = ("table_name", "table_path", "interval_start", "interval_end", "partition_key")
    found = store.read_arrow(TableAccess.TABLE, (*columns, "dag_id", "run_id", "run_seq", "access"), what)
    left = without_reverted(found)
    left = left.filter(pc.invert(pc.is_in(left["run_seq"], pa.array(without, pa.int64()))))
    if within is not None:
        start, end = (pa.scalar(one, left.schema.field("interval_start").type) for one in within)
        meets = pc.and_(pc.less_equal(left["interval_start"], end), pc.greater_equal(left["interval_end"], start))
        left = left.filter(pc.or_(pc.fill_null(meets, False), pc.is_valid(left["partition_key"])))
    rows: list[dict[str, Any]] = left.group_by([*columns, *more]).aggregate([]).to_pylist()
    return rows


def _interval_and_key(row: Mapping[str, Any]) -> tuple[datetime | None, datetime | None, str | None]:
    return row["interval_start"], row["interval_end"], row["partition_key"]


def _depended_on(runs: Iterable[DagRun], cutoff: datetime) -> Iterator[DagRun]:
    """Of all runs of some dates and partitions, those on which ids of new runs, the schedule, and reverts depend."""
    by_key = defaultdict[Any, dict[RunKey, DagRun]](dict)
    for run in runs:
        by_key[run.dag_id, timeline_key(run.logical_date, run.partition_key)][run.key] = run
    for same in by_key.values():
        of_date = [
            run for run in same.values() if first_date(run) == run.logical_date
        ]  # others are numbered in another place
        if of_date:
            yield max(of_date, key=number_of)
        current = {run.run_id for run in same.values() if run.state != s.OVERRIDDEN}
        young = {run.run_id for run in same.values() if (run.ended_at or run.created_at) >= cutoff} & current
        if before := [run for run in same.values() if run.overridden_by in young]:
            yield max(before, key=lambda run: run.run_seq)
        advancing = [run for run in same.values() if run.logical_date is not None and advances_schedule(run)]
        if advancing and all(run.state == s.OVERRIDDEN for run in advancing):
            yield max(advancing, key=lambda run: run.run_seq)
