"""Creates scheduled runs when they are due. Pure decisions over `ManagerState`.

Every DAG that is active, not paused and has a schedule continues from its timeline's latest scheduled or backfill run
(`planning.runs.next_run`), up to `max_active_runs` scheduled runs at once. A date whose run was made before its interval had
ended, or is partial, is run again when the schedule comes to it; while that run is active the schedule waits for it.

With `lookback=N`, the N intervals before are run again along with each new run, older ones first, for late data. Only
finished runs are run again; gaps are not filled. Of a batch that began before them, the last intervals are run again one by one.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import ONCE, Timetable, timetable_of
from backfill_manager.manager.decisions.create_run import make_run
from backfill_manager.manager.state import ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.planning.runs.next_run import Upcoming, upcoming
from backfill_manager.planning.runs.timeline import TimelineWindow, timeline_key

MAX_AWAITED: Final = 1000  # runs of a DAG in memory as they may become late


def fire_schedules(tick: Tick) -> None:
    """Creates every scheduled run that is due, within `max_active_runs`."""
    live = _live(tick.state)
    for dag in _on_schedule(tick.state):
        spec, recent = tick.state.current_spec(dag.dag_id), tick.state.recent[dag.dag_id]
        while live[dag.dag_id] < spec.max_active_runs:
            due = _upcoming(tick.state, dag, tick.now)
            if due is None or due.due_at > tick.now or _is_held(recent, due):
                break
            for earlier, interval in _lookback_runs(spec, recent, due):
                _make(tick, dag, earlier, interval, items=earlier.items if earlier else 1)
            _make(tick, dag, recent.current_at(timeline_key(due.start, None)), due)
            live[dag.dag_id] += 1
            recent.trim(lookback_depth(spec))


def next_due(state: ManagerState, now: datetime) -> datetime | None:
    """When the next scheduled run is to be created; not of DAGs in which a run must end first."""
    live = _live(state)
    times = [
        due.due_at
        for dag in _on_schedule(state)
        if live[dag.dag_id] < state.current_spec(dag.dag_id).max_active_runs
        and (due := _upcoming(state, dag, now)) is not None
        and not (due.due_at <= now and _is_held(state.recent[dag.dag_id], due))
    ]
    return min(times, default=None)


def lookback_depth(spec: DagSpec) -> int:
    """How many of the newest runs that advance the schedule must be in memory, with all since: those of `lookback`, and one, and
    those of which it is still to be seen whether they are late."""
    if spec.schedule == ONCE:
        return 1
    awaited = 0
    if spec.expected_by is not None and isinstance(spec.schedule, dict):
        awaited = int(spec.expected_by / spec.schedule["seconds"]) + 1
    elif spec.expected_by is not None and isinstance(spec.schedule, str):
        awaited = _firings_within(spec.schedule, spec.timezone, spec.expected_by)
    return spec.lookback + 2 + min(awaited, MAX_AWAITED)


@lru_cache(maxsize=1024)
def _firings_within(schedule: str, timezone: str, seconds: float) -> int:
    """About how many."""
    since = datetime(2024, 1, 1, tzinfo=UTC)
    return Timetable(schedule, timezone).estimate_count(since, since + timedelta(seconds=seconds))


def _on_schedule(state: ManagerState) -> list[DagRow]:
    """DAGs to schedule whose timeline has been read."""
    dags = state.catalog.dags.values()
    return [dag for dag in dags if dag.dag_id in state.recent and dag.is_active and not dag.is_paused]


def _live(state: ManagerState) -> Counter[str]:
    """Active scheduled runs by DAG; one that a backfill runs again counts for the backfill."""
    return Counter(run.row.dag_id for run in state.runs.values() if run.row.is_for_schedule)


def _is_held(recent: TimelineWindow, due: Upcoming) -> bool:
    """Whether an active run, or batch, has the date that is due: it is never overridden, and so waited for."""
    current = recent.standing_at(timeline_key(due.start, None))
    return current is not None and current.state in s.RUN_LIVE


def _upcoming(state: ManagerState, dag: DagRow, now: datetime) -> Upcoming | None:
    """Computed once, and again only when what it depends on has changed or it is due."""
    recent = state.recent[dag.dag_id]
    latest = recent.last_scheduled
    basis = (dag.current_version, latest and latest.logical_date, latest and latest.interval_end)
    cached = state.due.get(dag.dag_id)
    if cached is None or cached[0] != basis or (cached[1] is not None and cached[1].due_at <= now):
        cached = (basis, upcoming(state.current_spec(dag.dag_id), latest, now, recent.stands_for_schedule))
        state.due[dag.dag_id] = cached
    return cached[1]


def _lookback_runs(spec: DagSpec, recent: TimelineWindow, due: Upcoming) -> list[tuple[DagRun | None, Upcoming]]:
    """What is run again, older first: runs, which are replaced; and days of batches that began earlier, which stay."""
    timetable, runs, at = timetable_of(spec, due.start), list[tuple[DagRun | None, Upcoming]](), due.start
    of_batches = list[tuple[DagRun, Upcoming]]()
    for _ in range(spec.lookback if timetable.repeats else 0):
        before = timetable.last_before(at)
        if before is None or (recent.floor is not None and before <= recent.floor):  # its predecessor is not in memory
            break
        standing = recent.standing_at(timeline_key(before, None))
        if standing is not None and standing.state in s.RUN_FINISHED:
            if standing.logical_date == before:
                runs.append((standing, _interval_of(standing)))
            elif standing.interval_end is not None and at <= standing.interval_end:
                of_batches.append((standing, Upcoming(before, at, at)))
        at = before
    # a batch that begins within these intervals is run again as a whole
    runs += [(None, interval) for batch, interval in of_batches if batch.logical_date and batch.logical_date < at]
    return sorted(runs, key=lambda one: one[1].start)


def _interval_of(run: DagRun) -> Upcoming:
    assert run.logical_date is not None
    start, end = run.interval_start or run.logical_date, run.interval_end or run.logical_date
    return Upcoming(start, end, end)


def _make(tick: Tick, dag: DagRow, current: DagRun | None, interval: Upcoming, items: int = 1) -> None:
    """Creates a scheduled run, which replaces the `current` one of its date."""
    spec, recent = tick.state.current_spec(dag.dag_id), tick.state.recent[dag.dag_id]
    row = DagRun(
        dag_id=dag.dag_id, run_id=recent.next_run_id(s.SCHEDULED_RUN, timeline_key(interval.start, None)),
        run_type=s.SCHEDULED_RUN, state=s.QUEUED, dag_version=dag.current_version, run_seq=tick.next_seq(1),
        created_at=tick.now, logical_date=interval.start, interval_start=interval.start, interval_end=interval.end,
        items=items,
    )  # fmt: skip
    make_run(tick.state, row, spec, recent, [current] if current else [])
