"""Which runs a command chooses (`schemas.commands.ChosenRuns`): by dates, by their ids, or as those of items of a backfill.

Current ones of every type (neither overridden nor reverted); an `external` run only when it is named, and a run without a date
only when no dates are given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from backfill_manager.dags.schedule.timetable import parse_end, parse_start
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun
from backfill_manager.planning.timeline import OF_TIMELINE
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import ChosenRuns
from backfill_manager.store.base import Condition, Store, matching

MAX_RUNS: Final = 100_000  # of one command

Span = tuple[datetime | None, datetime | None]  # both ends included


def spans_of(command: ChosenRuns, dag: DagRow) -> tuple[Span, ...]:
    """The dates in order, read in the DAG's zone; a date alone as the end of a range is its whole day. `InvalidInput` for
    what is no date, or the wrong way round."""
    if command.dates:
        return tuple(
            sorted((_span(text, dag.timezone) for text in command.dates), key=lambda span: span[0] or datetime.min)
        )
    start = None if command.start_date is None else parse_start(command.start_date, dag.timezone, name="start_date")
    end = None if command.end_date is None else parse_end(command.end_date, dag.timezone, name="end_date")
    if start is not None and end is not None and start > end:
        raise errors.RANGE_REVERSED(start=command.start_date, end=command.end_date)
    return ((start, end),)


def _span(text: str, timezone: str) -> Span:
    first, _, last = text.partition("/")
    start, end = parse_start(first, timezone, name="dates"), parse_end(last or first, timezone, name="dates")
    if start > end:
        raise errors.DATES_REVERSED(range=text)
    return start, end


def read_chosen_runs(store: Store, command: ChosenRuns, dags: Sequence[DagRow]) -> list[DagRun]:
    """By DAG and logical date; those without a date come last. `InvalidInput` for too many."""
    by_dates: dict[tuple[Span, ...], list[str]] = {}  # DAGs of one zone are read at once
    for dag in dags:
        by_dates.setdefault(spans_of(command, dag), []).append(dag.dag_id)
    of_items = _runs_of_items(store, command, dags)
    runs: list[DagRun] = []
    for spans, dag_ids in by_dates.items():
        where = [*matching(dag_id=dag_ids, run_id=command.run_ids), Condition("state", "!=", s.OVERRIDDEN)]
        where.append(Condition("reverted_at", "is_null"))
        start, end = spans[0][0], max((end for _, end in spans if end is not None), default=None)
        if start is not None:
            where.append(Condition("logical_date", ">=", start))
        if end is not None:
            where.append(Condition("logical_date", "<=", end))
        if command.backfill_id is not None:
            where.append(Condition("backfill_id", "=", command.backfill_id))
        elif not command.run_ids:
            where.append(OF_TIMELINE)
        found = store.read(DagRun, where, limit=MAX_RUNS + 1 - len(runs))
        if len(spans) > 1:
            found = [run for run in found if _is_within(run.logical_date, spans)]
        runs += [run for run in found if of_items is None or run.run_id in of_items]
    if len(runs) > MAX_RUNS:
        raise errors.TOO_MANY_RUNS(max=f"{MAX_RUNS:,}")
    return sorted(runs, key=lambda run: (run.dag_id, run.logical_date is None, run.logical_date, run.run_seq))


def _is_within(at: datetime | None, spans: Sequence[Span]) -> bool:
    if at is None:
        return False
    before = bisect_right(spans, at, key=lambda span: span[0] or datetime.min)
    return any(end is None or at <= end for _, end in spans[max(0, before - 2) : before])


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
