"""Protection against crash loops: finds the task that ends the manager's process, by its losses in a row (over terms). Pure.

A start is *lost* when the manager's process, its JVM or the fork server of its tasks ends while it runs (a JVM out of memory, a
crash in it, `kill -9`). That a task's own process ends is a failure of this try, and no loss.
Every task that ran at that moment has lost a start, and only one of them, or none, is the cause. So a loss costs no try, and:

- It waits before it starts again (`BACK_OFF_S`), so that no cause makes a hot loop.
- After two losses in a row a task is a *suspect*. Suspects go first, one at a time, the one that was started last before the
  others, and nothing else is started in the first `ALONE_FOR_S` seconds of a suspect's start: the leader after a
  crash has nothing running, so a suspect runs alone. If the process ends again, it is this task that ends it.
- So the third loss in a row fails the task if it ran alone. A task that only ran beside the cause gets through when its turn
  comes, and its count is taken back. With other tasks beside it a third loss proves nothing: it is counted, and next time the
  suspect has twice as long to itself. So a task that ends the process after an hour, while others run, fails too.

Why not "one suspect at a time, beside whatever else runs": a backfill of a DAG that always crashes brings a task without a
loss with every run that it makes. Such a task would end the process beside a suspect that is not the cause, which would fail.
Why only 20 seconds alone at first, and not to its end: after two crashes in a row every long task is a suspect, and the schedule
must not wait for hours.

What counts: a start that was left behind by a leader which ended without giving its lease back (`recovery`), and one beneath
which Spark went away (`apply_outcomes`). What does not: a stop, a drain or a hand-over (`PutBack`); a lease that is not
certain for a moment, or a process without a thread to spare (`Postponed`); and what the executor had not begun. A success,
failure, skip, cancel, mark or clear ends the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance

BACK_OFF_S: Final = (1.0, 10.0, 60.0)  # before the next start, by losses in a row
POSTPONED_FOR_S: Final = 5.0
MAX_LOSSES: Final = 3  # in a row; they fail a task that ran alone
MAX_DOUBLED: Final = 12  # a day
ALONE_FOR_S: Final = 20.0  # a suspect's first time; twice as long after each loss that proved nothing


def is_suspect(ti: TaskInstance) -> bool:
    return (ti.losses or 0) >= MAX_LOSSES - 1


def after_loss(ti: TaskInstance, at: datetime, *, alone: bool, reason: str | None = None) -> TaskInstance:
    """The task after a start that was lost at `at`."""
    losses = (ti.losses or 0) + 1
    if losses >= MAX_LOSSES and alone:
        return c.failed(
            ti, at,
            f"The manager's process, its JVM or the fork server of its tasks ended {losses} times in a row while this task ran, "
            "the last time with no other task beside it. A collect() of too many rows, System.exit, a crash in native code of "
            "the JVM and a kill of all processes do that. It is not started again by itself: fix it, then clear it to try again.",
        ).evolve(losses=losses)  # fmt: skip
    message = reason or "the manager's process or its JVM ended while it ran"
    if losses > 1:
        message += f"; {losses} times in a row now"
    return c.lost(ti, at, message, at + timedelta(seconds=BACK_OFF_S[min(losses, len(BACK_OFF_S)) - 1]))


def has_recovered(tasks: Iterable[TaskInstance], now: datetime) -> bool:
    """Whether every task that was lost has been running again for a while. Until then the process may end at any moment."""
    for ti in tasks:
        if ti.losses and ti.state not in s.TASK_FINISHED:
            began = ti.queued_at if ti.state in s.TASK_STARTED else None
            if began is None or now < began + timedelta(seconds=ALONE_FOR_S):
                return False
    return True


def isolation_ends_at(tasks: Iterable[TaskInstance], now: datetime) -> datetime | None:
    """The instant before which no task is started: a suspect runs alone at first, or waits to. None: there is none. What lies
    further ahead than it can was written before the clock was set back, and holds nobody up."""
    suspects = [ti for ti in tasks if is_suspect(ti)]
    latest = now + timedelta(seconds=BACK_OFF_S[-1])
    alone_until = [
        ti.queued_at + timedelta(seconds=ALONE_FOR_S * 2.0 ** min((ti.losses or 0) - (MAX_LOSSES - 1), MAX_DOUBLED))
        for ti in suspects
        if ti.state in s.TASK_STARTED and ti.queued_at is not None and ti.queued_at <= now
    ]
    retry_at = [ti.retry_at for ti in suspects if ti.state == s.UP_FOR_RETRY and ti.retry_at is not None]
    return max((at for at in (*alone_until, *(at for at in retry_at if at <= latest)) if at > now), default=None)
