"""Which runs a command chooses (`schemas.commands.ChosenRuns`): by dates, by their ids, or as those of items of a backfill.

Current ones of every type (neither overridden nor reverted); an `external` run only when it is named, and a run without a date
only when no dates are given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.schedule.timetable import parse_end, parse_start
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun, RunKey
from backfill_manager.planning.runs.timeline import CURRENT_RUNS, OF_TIMELINE
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import ChosenRuns
from backfill_manager.store.base import Condition, Store, matching

MAX_RUNS: Final = 100_000  # of one command
MAX_SPANS: Final = 50  # of a DAG, for which it is looked whether they cut a batch

Span = tuple[datetime | None, datetime | None]  # both ends included
_Dates = tuple[datetime, datetime]


def spans_of(command: ChosenRuns, dag: DagRow) -> tuple[Span, ...]:
    """The dates in order, of which none overlap, read in the DAG's zone; a date alone as the end of a range is its whole day.
    `InvalidInput` for what is no date, or the wrong way round."""
    if command.dates:
        return tuple(_merged([_span(text, dag.timezone) for text in command.dates]))
    start = None if command.start_date is None else parse_start(command.start_date, dag.timezone, name="start_date")
    end = None if command.end_date is None else parse_end(command.end_date, dag.timezone, name="end_date")
    if start is not None and end is not None and start > end:
        raise errors.RANGE_REVERSED(start=command.start_date, end=command.end_date)
    return ((start, end),)


def _span(text: str, timezone: str) -> _Dates:
    first, slash, last = text.partition("/")
    start = parse_start(first, timezone, name="dates")
    end = parse_end(last if slash else first, timezone, name="dates")
    if start > end:
        raise errors.DATES_REVERSED(range=text)
    return start, end


def _merged(spans: Sequence[_Dates]) -> list[_Dates]:
    merged: list[_Dates] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def read_chosen_runs(store: Store, command: ChosenRuns, dags: Sequence[DagRow]) -> list[DagRun]:
    """By DAG and logical date; those without a date come last. `InvalidInput` for too many."""
    by_dates, of_items = _by_dates(command, dags), _runs_of_items(store, command, dags)
    runs: list[DagRun] = []
    for spans, dag_ids in by_dates.items():
        where = [*matching(dag_id=dag_ids, run_id=command.run_ids), Condition("state", "!=", s.OVERRIDDEN)]
        where.append(Condition("reverted_at", "is_null"))
        if command.backfill_id is not None:
            where.append(Condition("backfill_id", "=", command.backfill_id))
        elif not command.run_ids:
            where.append(OF_TIMELINE)
        limit = MAX_RUNS + 1 - len(runs) if of_items is None else None  # its other items are no part of it
        whole = (spans[0][0], spans[-1][1])
        found = store.read(DagRun, [*where, *_within(whole)], limit=limit)
        if len(spans) > 1 and limit is not None and len(found) == limit:  # too many may lie between the dates only
            found = [run for span in spans for run in store.read(DagRun, [*where, *_within(span)], limit=limit)]
        if len(spans) > 1:
            found = [run for run in found if _is_within(run.logical_date, spans)]
        runs += [run for run in found if of_items is None or run.run_id in of_items]
    if len(runs) > MAX_RUNS:
        raise errors.TOO_MANY_RUNS(max=f"{MAX_RUNS:,}")
    return sorted(runs, key=lambda run: (run.dag_id, run.logical_date is None, run.logical_date, run.run_seq))


def _within(span: Span) -> list[Condition]:
    start, end = span
    begins = [] if start is None else [Condition("logical_date", ">=", start)]
    return begins if end is None else [*begins, Condition("logical_date", "<=", end)]


def _is_within(at: datetime | None, spans: Sequence[Span]) -> bool:
    if at is None:
        return False
    before = bisect_right(spans, at, key=lambda span: span[0] or datetime.min)
    end = spans[before - 1][1] if before else None
    return before > 0 and (end is None or at <= end)


def read_cut_batches(store: Store, command: ChosenRuns, dags: Sequence[DagRow]) -> list[DagRun]:
    """Batches that a command by dates does not choose although they took some of the dates: a run has the logical date of its
    first interval, and theirs is earlier."""
    cut: dict[RunKey, DagRun] = {}
    if command.run_ids or command.backfill_id is not None:
        return []
    for spans, dag_ids in _by_dates(command, dags).items():
        for start, _ in spans[:MAX_SPANS]:
            if start is not None:
                batches = [*matching(dag_id=dag_ids), *CURRENT_RUNS, Condition("reverted_at", "is_null")]
                into = [Condition("logical_date", "<", start), Condition("interval_end", ">", start)]
                found = store.read(DagRun, [*batches, Condition("items", ">", 1), *into])
                cut |= {run.key: run for run in found if not _is_within(run.logical_date, spans)}
    return list(cut.values())


def _by_dates(command: ChosenRuns, dags: Sequence[DagRow]) -> dict[tuple[Span, ...], list[str]]:
    """DAGs of one zone are read at once."""
    by_dates: dict[tuple[Span, ...], list[str]] = {}
    for dag in dags:
        by_dates.setdefault(spans_of(command, dag), []).append(dag.dag_id)
    return by_dates


def check_batches(store: Store, command: ChosenRuns, dags: Sequence[DagRow], do: str) -> None:
    """For a command that chooses no run: `InvalidInput` when a batch took its dates."""
    for batch in read_cut_batches(store, command, dags):
        raise errors.PART_OF_A_BATCH(
            between=described_dates(command), run_id=batch.run_id, items=batch.items, do=do,
            start=format_instant(batch.logical_date),
        )  # fmt: skip


def _runs_of_items(store: Store, command: ChosenRuns, dags: Sequence[DagRow]) -> frozenset[str] | None:
    """Ids of the runs that the chosen items of the backfill have; None: whatever runs it has."""
    if command.backfill_id is None:
        return None
    backfill = store.first(Backfill, matching(backfill_id=command.backfill_id))
    if backfill is None:
        raise errors.NO_BACKFILL_TO_CHOOSE_FROM(backfill_id=command.backfill_id)
    if backfill.dag_id not in [dag.dag_id for dag in dags]:
        raise errors.BACKFILL_OF_OTHER_DAG(backfill_id=backfill.backfill_id, dag_id=backfill.dag_id)
    ordinals = command.ordinals
    if ordinals is None:
        return None
    chosen = [*matching(backfill_id=backfill.backfill_id), Condition("ordinal", "in_ranges", ordinals)]
    column = store.read_arrow(BackfillItem.TABLE, ["run_id"], [*chosen, Condition("run_id", "not_null")])["run_id"]
    if not len(column):
        raise errors.ITEMS_WITHOUT_RUN(items=", ".join(command.items[:5]), backfill_id=backfill.backfill_id)
    return frozenset(column.unique().to_pylist())


def described_dates(command: ChosenRuns) -> str:
    """` between 2013-01-01 and 2013-01-31`, for messages; empty without dates."""
    start, end = command.start_date, command.end_date
    if command.dates:
        return f" on {', '.join(command.dates[:3])}{', …' if len(command.dates) > 3 else ''}"
    if start and end:
        return f" between {start} and {end}"
    return f" from {start} on" if start else f" up to {end}" if end else ""
