"""Decides which messages are sent to whom: the ends of runs and backfills, and runs that are late. Pure.

A message is a row that is committed with what it tells, before it: a crash between the two makes it twice rather than never.
`notification_sender` sends it then. Runs of a backfill send nothing, their backfill tells how they have ended. A mark after which
a run or a backfill is what it was is no news.

What is late: `planning/runs/lateness.py`. Each deadline is looked at once, when it passes; those that passed while no manager
led, when the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, Literal

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.humanise import duration, plural
from backfill_manager.logging import get_logger
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, Notification
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.runs.lateness import first_deadline, following_deadline, has_succeeded, run_of_interval

Happened = Literal["failed", "late", "deadlocked", "done"]

DEADLOCK: Final = "deadlock: "  # how the reason of a deadlocked run begins, and that of its backfill
MAX_ERROR_CHARS: Final = 1_000

log = get_logger("notifications")


def run_ended(tick: Tick, run: ActiveRun, outcome: str, reason: str | None) -> None:
    """A run that belongs to no backfill has ended."""
    row, event = run.row, _event_of(outcome, reason)
    if event is None or row.backfill_id is not None or run.ended_as == outcome:
        return
    what = f"{row.dag_id}: run {row.run_id} {_HAS[event]}"
    errors = [f"{ti.task_id}: {ti.error}" for ti in run.own_tasks if ti.state == s.FAILED and ti.error]
    took = []
    if row.started_at is not None:  # one that was marked keeps its times
        took = [f"after {duration(((row.ended_at or tick.now) - row.started_at).total_seconds())}"]
    text = "\n".join([*filter(None, [reason]), *(one[:MAX_ERROR_CHARS] for one in errors), *took])
    _put(tick, event, run.spec, f"{row.run_id}/{format_instant(tick.now)}", what, text, run_id=row.run_id)


def backfill_ended(tick: Tick, live: ActiveBackfill, outcome: str) -> None:
    row, reason = live.row, None if outcome == s.SUCCESS else live.row.reason
    event = _event_of(outcome, reason)
    if event is None or live.ended_as == outcome:
        return
    counts = [f"{plural(live.counts[state], 'item')} {word}" for state, word in _SHOWN.items() if live.counts[state]]
    did_nothing = event == "done" and not live.counts[s.SUCCESS]
    what = f"{row.dag_id}: backfill {row.backfill_id} {'had nothing to run' if did_nothing else _HAS[event]}"
    text = "\n".join(line for line in (reason, ", ".join(counts)) if line)
    key = f"{row.backfill_id}/{format_instant(tick.now)}"
    _put(tick, event, live.spec, key, what, text, backfill_id=row.backfill_id, always=row.notify)


def backfill_paused(tick: Tick, live: ActiveBackfill, reason: str) -> None:
    """By its own `stop_on_failure`."""
    row = live.row
    what, key = f"{row.dag_id}: backfill {row.backfill_id} is paused", f"{row.backfill_id}/{format_instant(tick.now)}"
    _put(tick, "failed", live.spec, key, what, reason, backfill_id=row.backfill_id, always=row.notify)


_HAS: Final = {"failed": "has failed", "deadlocked": "is deadlocked", "done": "has succeeded"}
_SHOWN: Final = {s.SUCCESS: "succeeded", s.FAILED: "failed", s.CANCELLED: "cancelled", s.SKIPPED: "skipped"}


def _event_of(outcome: str, reason: str | None) -> Happened | None:
    """None: of a cancelled one, nobody needs to hear."""
    if outcome == s.FAILED:
        return "deadlocked" if (reason or "").startswith(DEADLOCK) else "failed"
    return "done" if outcome == s.SUCCESS else None


def find_late_runs(tick: Tick) -> None:
    """Makes messages of the deadlines that have passed."""
    for dag, spec, start, deadline in _deadlines(tick.state, tick.now):
        while deadline <= tick.now:
            if not has_succeeded(tick.state.recent[dag.dag_id], start):
                _tell_late(tick, spec, start, deadline)
            following = following_deadline(spec, start, tick.state.recent[dag.dag_id].last_scheduled)
            if following is None:
                tick.state.expected.pop(dag.dag_id)
                break
            start, deadline = following
            tick.state.expected[dag.dag_id] = (dag.current_version, start, deadline)
    tick.state.not_led_since = None
    tick.state.announced = set()


def next_deadline(state: ManagerState, now: datetime) -> datetime | None:
    return min((deadline for _, _, _, deadline in _deadlines(state, now)), default=None)


def _deadlines(state: ManagerState, now: datetime) -> Iterator[tuple[DagRow, DagSpec, datetime, datetime]]:
    """The next of each DAG, with the start of its interval."""
    if not state.targets:
        return
    for dag in list(state.catalog.dags.values()):
        if dag.dag_id not in state.recent or not dag.is_active or dag.is_paused:
            state.expected.pop(dag.dag_id, None)
            continue
        spec = state.current_spec(dag.dag_id)
        known = state.expected.get(dag.dag_id)
        if known is None or known[0] != dag.current_version:
            state.expected.pop(dag.dag_id, None)
            if spec.expected_by is None:
                continue
            after = state.not_led_since or now
            if known is not None:  # of a version before, whose deadline may have passed since the last tick
                after = min(now, known[2] - timedelta(microseconds=1))
            found = first_deadline(spec, after, state.recent[dag.dag_id].last_scheduled)
            if found is None:
                continue
            known = state.expected[dag.dag_id] = (dag.current_version, *found)
        yield dag, spec, known[1], known[2]


def _tell_late(tick: Tick, spec: DagSpec, start: datetime, deadline: datetime) -> None:
    current = run_of_interval(tick.state.recent[spec.dag_id], start)
    now = "there is no run of it yet" if current is None else f"run {current.run_id} is {current.state}"
    if current is not None and current.reason:
        now += f": {current.reason}"
    what = f"{spec.dag_id}: the interval of {format_instant(start)} is late"
    text = f"expected within {duration(spec.expected_by or 0)} of its end; {now}"
    key = f"{format_instant(start)}/{format_instant(deadline)}"  # another `expected_by` has another deadline
    if _id_of("late", spec, key) in tick.state.announced:
        return
    _put(tick, "late", spec, key, what, text, run_id=current.run_id if current else None)


def new_notifications(changes: Changes) -> list[Notification]:
    """Those that were made in this tick; the others of its rows say how sending went."""
    return [row for row in changes.rows(Notification) if row.state == "waiting" and not row.failures]


def warn_of_unknown(state: ManagerState, dag_id: str, targets: Collection[str]) -> None:
    """In the manager's log: of these targets those that the configuration does not have."""
    if unknown := sorted(set(targets) - {target.name for target in state.targets}):
        log.warning("no such notification target", dag=dag_id, targets=", ".join(unknown))


def _id_of(event: Happened, spec: DagSpec, what: str) -> str:
    return f"{event}/{spec.dag_id}/{what}"


def _put(
    tick: Tick, event: Happened, spec: DagSpec, what: str, title: str, text: str, *, run_id: str | None = None,
    backfill_id: str | None = None, always: str | None = None,
) -> None:  # fmt: skip
    """One row for each target that wants it. `always`: a target that does, whatever it wants else."""
    warn_of_unknown(tick.state, spec.dag_id, {*spec.notify, *filter(None, [always])})
    for target in tick.state.targets:
        if target.name != always and not target.wants(event, spec.dag_id, spec.notify):
            continue
        row = Notification(
            _id_of(event, spec, what), target.name, event, "waiting", spec.dag_id, title, text, tick.next_seq(1),
            tick.now, run_id=run_id, backfill_id=backfill_id,
        )  # fmt: skip
        tick.put(row)
