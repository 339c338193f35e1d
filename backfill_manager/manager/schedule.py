"""Scheduled runs are made when they are due. Pure decisions over the working set.

Every DAG that is active, not paused and has a schedule goes on from its timeline's latest scheduled or backfill run
(`planning.next_run`), up to `max_active_runs` scheduled runs at once. A date whose run was made before its interval had
ended, or is partial, is done over when the schedule comes to it; while that run is alive the schedule waits for it.

With `lookback=N`, the N intervals before are done again along with each new run, older ones first: late data. Only what
stands there and has finished is done again; gaps are not filled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.manager.create_run import make_run
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.planning.next_run import Upcoming, upcoming
from backfill_manager.planning.timeline import TimelineWindow, timeline_key


def fire_schedules(state: ManagerState, now: datetime, next_seq: Callable[[int], int]) -> None:
    """Make every scheduled run that is due and has room."""
    live = _live(state)
    for dag in _on_schedule(state):
        spec, recent = state.current_spec(dag.dag_id), state.recent[dag.dag_id]
        while live[dag.dag_id] < spec.max_active_runs:
            due = _upcoming(state, dag, spec, recent, now)
            if due is None or due.due_at > now or _is_held(recent, due):
                break
            for standing in _to_look_back_on(spec, recent, due):
                _make(state, dag, spec, recent, standing, _interval_of(standing), now, next_seq, items=standing.items)
            _make(state, dag, spec, recent, recent.current_at(timeline_key(due.start, None)), due, now, next_seq)
            live[dag.dag_id] += 1
            recent.trim(lookback_depth(spec))


def next_due(state: ManagerState, now: datetime) -> datetime | None:
    """When the next scheduled run is to be made; not counting DAGs that have no room, or whose due date has a live run:
    there an ending run comes first."""
    live = _live(state)
    known = [
        due.due_at
        for dag in _on_schedule(state)
        if live[dag.dag_id] < (spec := state.current_spec(dag.dag_id)).max_active_runs
        and (due := _upcoming(state, dag, spec, state.recent[dag.dag_id], now)) is not None
        and not (due.due_at <= now and _is_held(state.recent[dag.dag_id], due))
    ]
    return min(known, default=None)


def lookback_depth(spec: DagSpec) -> int:
    """How many of the newest runs that carry the schedule must be known, with all others since the first of them: those to
    look back on, and the one before them."""
    return spec.lookback + 2


def _on_schedule(state: ManagerState) -> list[DagRow]:
    """Those whose timeline has been read; without a schedule there is none to read."""
    return [
        dag
        for dag_id, dag in state.catalog.dags.items()
        if dag_id in state.recent and dag.is_active and not dag.is_paused
    ]


def _live(state: ManagerState) -> Counter[str]:
    """Scheduled runs that are alive; one that a backfill runs again counts for the backfill."""
    return Counter(run.row.dag_id for run in state.runs.values() if run.is_for_schedule)


def _is_held(recent: TimelineWindow, due: Upcoming) -> bool:
    """A live run stands on the date that is due: it is never overridden, and so waited for."""
    standing = recent.current_at(timeline_key(due.start, None))
    return standing is not None and standing.state in s.RUN_LIVE


def _upcoming(
    state: ManagerState, dag: DagRow, spec: DagSpec, recent: TimelineWindow, now: datetime
) -> Upcoming | None:
    """Worked out once, and again only when its ground has changed or its hour has come."""
    latest = recent.farthest_end
    ground = (dag.current_version, latest and latest.logical_date, latest and latest.interval_end)
    known = state.due.get(dag.dag_id)
    if known is None or known[0] != ground or (known[1] is not None and known[1].due_at <= now):
        known = (ground, upcoming(spec, latest, now, recent.stands_for_schedule))
        state.due[dag.dag_id] = known
    return known[1]


def _to_look_back_on(spec: DagSpec, recent: TimelineWindow, due: Upcoming) -> list[DagRun]:
    timetable, found, at = timetable_of(spec), list[DagRun](), due.start
    for _ in range(spec.lookback if timetable.repeats else 0):
        before = timetable.last_before(at)
        if before is None or (recent.floor is not None and before <= recent.floor):  # who comes before it is not known
            break
        standing = recent.current_at(timeline_key(before, None))
        if standing is not None and standing.state in s.RUN_FINISHED:
            found.append(standing)
        at = before
    return found[::-1]


def _interval_of(run: DagRun) -> Upcoming:
    assert run.logical_date is not None
    start, end = run.interval_start or run.logical_date, run.interval_end or run.logical_date
    return Upcoming(start, end, end)


def _make(
    state: ManagerState,
    dag: DagRow,
    spec: DagSpec,
    recent: TimelineWindow,
    standing: DagRun | None,
    interval: Upcoming,
    now: datetime,
    next_seq: Callable[[int], int],
    *,
    items: int = 1,
) -> None:
    """`standing`, which is on its date, is done over by it."""
    row = DagRun(
        dag_id=dag.dag_id, run_id=recent.next_run_id(s.SCHEDULED_RUN, timeline_key(interval.start, None)),
        run_type=s.SCHEDULED_RUN, state=s.QUEUED, dag_version=dag.current_version, run_seq=next_seq(1), created_at=now,
        logical_date=interval.start, interval_start=interval.start, interval_end=interval.end,
        items=items,
    )  # fmt: skip
    make_run(state, row, spec, stretch=recent, overrides=[standing] if standing else [], now=now)
