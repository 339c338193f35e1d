"""Decides what the manager's log says of a commit: the ends of backfills, and what has failed. Pure.

Nothing is said of a run or a task that succeeds: a backfill of a year would fill the log. When much fails at once the first lines
stand for all, and the last one says how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from backfill_manager.errors import shorten
from backfill_manager.manager.state import ActiveBackfill
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, TaskInstance, TaskTry
from backfill_manager.model.transitions import Changes

MAX_LINES: Final = 20  # of one commit
MAX_TEXT_CHARS: Final = 300  # of a reason or an error
_WILL_RETRY: Final = frozenset({s.UP_FOR_RETRY, s.SCHEDULED, *s.TASK_STARTED})


class Line(NamedTuple):
    event: str
    fields: dict[str, Any]
    is_warning: bool = True


def logged_changes(changes: Changes, now: datetime, halted: Iterable[ActiveBackfill] = ()) -> list[Line]:
    """The lines, causes first: tries, runs, backfills. `now`: the tick's; a run that ended earlier was logged then.
    `halted`: the backfills that have ended or paused themselves."""
    by_kind = [_of_tries(changes), _of_runs(changes, now), [_of_backfill(live) for live in halted]]
    free, left_out = MAX_LINES, 0
    for kind, lines in reversed([*enumerate(by_kind)]):  # what sums up the others goes before them
        by_kind[kind] = lines[:free]
        left_out += len(lines) - len(by_kind[kind])
        free -= len(by_kind[kind])
    more = [Line("and more", {"left_out": left_out})] if left_out else []
    return [*(line for lines in by_kind for line in lines), *more]


def _of_tries(changes: Changes) -> list[Line]:
    tries, lines = [row for row in changes.rows(TaskTry) if row.state == s.FAILED], list[Line]()
    now = {row.key: row for row in changes.rows(TaskInstance)} if tries else {}
    for row in tries:
        ti = now.get((row.dag_id, row.run_id, row.task_id))
        will_retry = "yes" if ti is not None and ti.state in _WILL_RETRY else "no"  # True would be a key alone
        of_try = {"dag": row.dag_id, "run": row.run_id, "task": row.task_id, "try_number": row.try_number}
        lines.append(Line("try failed", {**of_try, **_texts(error=row.error), "will_retry": will_retry}))
    return lines


def _of_runs(changes: Changes, now: datetime) -> list[Line]:
    failed = [row for row in changes.rows(DagRun) if row.state == s.FAILED and row.ended_at == now]
    texts = [_texts(reason=row.reason, backfill=row.backfill_id) for row in failed]
    return [
        Line("run failed", {"dag": row.dag_id, "run": row.run_id, **more})
        for row, more in zip(failed, texts, strict=True)
    ]


def _of_backfill(live: ActiveBackfill) -> Line:
    row, counts = live.row, {state: live.counts[state] for state in s.ITEM_STATES if live.counts[state]}
    event = "backfill paused" if row.state == s.PAUSED else "backfill ended"
    fields = {"dag": row.dag_id, "backfill": row.backfill_id, "state": row.state, **_texts(reason=row.reason), **counts}
    return Line(event, fields, is_warning=row.state != s.SUCCESS)


def _texts(**texts: str | None) -> dict[str, str]:
    """Each in one line that is not too long; without those that are None."""
    return {key: shorten(" ".join(text.split()), MAX_TEXT_CHARS) for key, text in texts.items() if text is not None}
