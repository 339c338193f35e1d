"""Named constructors for every change, and the list a tick gathers them in.

A half-filled change can't be written: each constructor sets all the fields that go with its state. The guard is
`model.states.LEGAL`; an illegal one raises with the row's key and both states.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from backfill_manager.errors import IllegalTransition
from backfill_manager.model import states as s
from backfill_manager.model.records import COMMIT_ORDER, Backfill, BackfillItem, DagRun, Record, TaskInstance, TaskTry

NOT_SELECTED = "left out by the backfill's tasks"  # why a task is skipped that never was to run
SKIPPED_BY_UPSTREAM = "skipped by its upstream"

R = TypeVar("R", TaskInstance, DagRun, Backfill, BackfillItem)
AnyRecord = TypeVar("AnyRecord", bound=Record)


def _move(row: R, to: str, **fields: Any) -> R:
    if (row.state, to) not in s.LEGAL[row.TABLE]:
        raise IllegalTransition(row.TABLE, "/".join(str(part) for part in row.key), row.state, to)
    return row.evolve(state=to, **fields)


def _ended(ti: TaskInstance, at: datetime) -> dict[str, Any]:
    duration_s = None if ti.started_at is None else (at - ti.started_at).total_seconds()
    return {"ended_at": at, "duration_s": duration_s, "wait_ends_at": None}


def scheduled(ti: TaskInstance) -> TaskInstance:
    """May start as soon as there is a slot."""
    return _move(ti, s.SCHEDULED, retry_at=None, wait_ends_at=None)


def held_back(ti: TaskInstance) -> TaskInstance:
    """It was scheduled, and waits for something again before it has begun."""
    return _move(ti, s.NONE)


def queued(ti: TaskInstance, at: datetime, pool: str) -> TaskInstance:
    """Handed to the executor; from here `launch` names this start and no other."""
    return _move(
        ti, s.QUEUED, pool=pool, queued_at=at, started_at=None, ended_at=None, duration_s=None, error=None,
        launch=ti.launch + 1, try_number=ti.try_number + 1,
    )  # fmt: skip


def started(ti: TaskInstance, at: datetime) -> TaskInstance:
    return _move(ti, s.RUNNING, started_at=at)


def succeeded(
    ti: TaskInstance,
    at: datetime,
    result_json: str | None = None,
    rows: int | None = None,
    shown_json: str | None = None,
) -> TaskInstance:
    return _move(
        ti, s.SUCCESS, result_json=result_json, result_shown_json=shown_json, rows_written=rows, error=None, losses=None,
        **_ended(ti, at),
    )  # fmt: skip


def failed(ti: TaskInstance, at: datetime, error: str) -> TaskInstance:
    """The last try it had."""
    return _move(ti, s.FAILED, failures=ti.failures + 1, error=error, losses=None, **_ended(ti, at))


def up_for_retry(ti: TaskInstance, at: datetime, error: str, until: datetime) -> TaskInstance:
    """A try failed, and another is left; not before `until`."""
    return _move(
        ti, s.UP_FOR_RETRY, failures=ti.failures + 1, error=error, retry_at=until, losses=None, **_ended(ti, at)
    )  # fmt: skip


def put_back(ti: TaskInstance, at: datetime, error: str, until: datetime) -> TaskInstance:
    """It could not finish, for no reason of its own: it costs no try. Not before `until`."""
    return _move(ti, s.UP_FOR_RETRY, try_number=ti.try_number - 1, retry_at=until, error=error, **_ended(ti, at))


def lost(ti: TaskInstance, at: datetime, error: str, until: datetime) -> TaskInstance:
    """The manager's process or its JVM ended while it was queued or running: it costs no try, and is counted."""
    return put_back(ti, at, error, until).evolve(losses=(ti.losses or 0) + 1)


def cleared(ti: TaskInstance, by: str | None) -> TaskInstance:
    """To be run again: its tries go on counting, its output is of a new generation. `by` is the request."""
    return _move(
        ti, s.NONE, generation=ti.generation + 1, failures=0, cleared_by=by, queued_at=None, started_at=None,
        ended_at=None, duration_s=None, retry_at=None, error=None, result_json=None, result_shown_json=None,
        rows_written=None, losses=None, wait_ends_at=None,
    )  # fmt: skip


def marked(ti: TaskInstance, state: str, at: datetime, reason: str) -> TaskInstance:
    """A person sets its final state. It must not be running. What its last try took stays readable: a mark is no work."""
    times = {name: getattr(ti, name) for name in ("queued_at", "started_at", "ended_at", "duration_s")}
    has_run = ti.started_at is not None and ti.ended_at is not None
    if ti.state in s.TASK_FINISHED:
        ti = cleared(ti, ti.cleared_by)
    return _move(
        ti, state, error=None if state == s.SUCCESS else reason, retry_at=None, losses=None,
        **_ended(ti, at) | (times if has_run else {}),
    )  # fmt: skip


def removed(ti: TaskInstance, at: datetime) -> TaskInstance:
    """Its run moves to a version of the DAG that has no such task."""
    return _move(ti, s.REMOVED, **_ended(ti, at))


def skipped(ti: TaskInstance, at: datetime, reason: str) -> TaskInstance:
    return _move(ti, s.SKIPPED, error=reason, losses=None, **_ended(ti, at))


def upstream_failed(ti: TaskInstance, at: datetime, error: str | None = None) -> TaskInstance:
    """`error` only where it was no failure of this run that held it: a deadlock."""
    return _move(ti, s.UPSTREAM_FAILED, error=error, **_ended(ti, at))


def cancelled(ti: TaskInstance, at: datetime, reason: str) -> TaskInstance:
    return _move(ti, s.CANCELLED, error=reason, losses=None, **_ended(ti, at))


def try_of(
    ti: TaskInstance, term: int, state: str | None = None, spark_jobs: Sequence[int] = (),
    spark_stages_json: str | None = None,
) -> TaskTry:  # fmt: skip
    """The record of the start that has just ended, as the task instance tells it. One that is followed by another has failed."""
    state = state or (s.FAILED if ti.state == s.UP_FOR_RETRY else ti.state)
    return TaskTry(
        dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=ti.launch, try_number=ti.try_number,
        state=state, run_seq=ti.run_seq, term=term, pool=ti.pool, started_at=ti.started_at,
        ended_at=ti.ended_at, duration_s=ti.duration_s, error=ti.error,
        spark_jobs_json=json.dumps(spark_jobs) if spark_jobs else None, spark_stages_json=spark_stages_json,
    )  # fmt: skip


def run_started(run: DagRun, at: datetime | None) -> DagRun:
    """The first of its tasks starts. None: only a callback does, after a deadlock, or because it was cleared."""
    running = run if run.state == s.RUNNING else _move(run, s.RUNNING)
    return running if at is None else running.evolve(started_at=at, ended_at=None)


def run_ended(run: DagRun, state: str, at: datetime, reason: str | None = None) -> DagRun:
    """One that has an end already was marked, and keeps it."""
    return _move(run, state, ended_at=run.ended_at or at, reason=reason)


def run_reopened(run: DagRun, *, is_marked: bool = False) -> DagRun:
    """Some of its tasks are to run again: it goes on from `queued`. `is_marked`: until one starts, it keeps its times."""
    times = {} if is_marked else {"started_at": None, "ended_at": None}
    return _move(run, s.QUEUED, reason=None, **times)


def run_overridden(run: DagRun, by_run_id: str) -> DagRun:
    """A newer run re-does its date; its task instances stay as they were."""
    return _move(run, s.OVERRIDDEN, overridden_by=by_run_id)


def run_reverted(run: DagRun, at: datetime, by: str, restored_run_id: str | None) -> DagRun:
    """Its tables hold the rows of before it; it keeps its state, its tasks and its place. `by`: the request."""
    return run.evolve(reverted_at=at, reverted_by=by, restored_run_id=restored_run_id)


def run_follows(run: DagRun, previous_run_id: str | None) -> DagRun:
    """Its place in the timeline: only the pointer changes."""
    return run.evolve(previous_run_id=previous_run_id)


def item_started(item: BackfillItem, run_id: str) -> BackfillItem:
    return _move(item, s.RUNNING, run_id=run_id)


def item_again(item: BackfillItem, batch: int | None, reason: str | None) -> BackfillItem:
    """To be run once more: in half of its batch, or retried."""
    return _move(item, s.PENDING, batch=batch, reason=reason)


def item_reopened(item: BackfillItem) -> BackfillItem:
    """Its run goes on."""
    return _move(item, s.RUNNING, reason=None)


def item_ended(item: BackfillItem, state: str, reason: str | None = None) -> BackfillItem:
    return _move(item, state, reason=reason)


def backfill_started(backfill: Backfill, at: datetime) -> Backfill:
    return _move(backfill, s.RUNNING, started_at=backfill.started_at or at)


def backfill_paused(backfill: Backfill, reason: str | None = None) -> Backfill:
    return _move(backfill, s.PAUSED, is_paused=True, reason=reason)


def backfill_unpaused(backfill: Backfill, at: datetime, failed: int) -> Backfill:
    """`failed` is how many items have failed so far: `stop_on_failure` counts anew from there."""
    return _move(
        backfill, s.RUNNING, is_paused=False, reason=None, started_at=backfill.started_at or at,
        failed_when_resumed=failed,
    )  # fmt: skip


def backfill_cancelling(backfill: Backfill, reason: str, *, let_running_finish: bool = False) -> Backfill:
    """It ends when the last of its tasks has stopped, or has finished. Until then it is running, if it was paused, too: there
    is nothing left that a pause could hold."""
    if backfill.is_paused:
        backfill = _move(backfill, s.RUNNING, is_paused=False)
    return backfill.evolve(is_cancelled=True, is_cancelling=not let_running_finish, reason=reason)


def backfill_reopened(backfill: Backfill) -> Backfill:
    """It had ended; failed items or cleared runs of it run again. What was cancelled of it stays so."""
    return _move(
        backfill, s.RUNNING, completed_at=None, is_cancelling=False, failed_when_resumed=0, hidden_at=None,
        reason=backfill.reason if backfill.is_cancelled else None,
    )  # fmt: skip


def backfill_ended(backfill: Backfill, state: str, at: datetime, reason: str | None = None) -> Backfill:
    return _move(backfill, state, completed_at=at, reason=reason, is_paused=False, is_cancelling=False)


class Changes:
    """What one tick will commit: the last form of each row, by table. Folding is by key, so one row is written once."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[tuple[Any, ...], Record]] = {}

    def put(self, row: Record) -> None:
        self._rows.setdefault(row.TABLE, {})[row.key] = row

    def latest(self, row: R) -> R:
        """What `row`, as the tables have it, has become since."""
        return self._rows.get(row.TABLE, {}).get(row.key, row)  # type: ignore[return-value]

    def rows(self, record: type[AnyRecord]) -> list[AnyRecord]:
        return list(self._rows.get(record.TABLE, {}).values())  # type: ignore[arg-type]

    def by_table(self) -> Iterator[tuple[str, list[Record]]]:
        """Tables in the order in which they are committed: children before parents."""
        for table in COMMIT_ORDER:
            if rows := self._rows.get(table):
                yield table, list(rows.values())

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())
