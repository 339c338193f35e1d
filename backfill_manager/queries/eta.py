"""Pace and time left of a backfill: from its own pace so far, else from how long runs of its DAG took before.

`read_pace` reads many runs and its result changes slowly, so a server may keep it for some seconds. The rest is pure.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, DagVersion
from backfill_manager.queries.documents import seconds_between
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.store.base import Store, matching

Backfill = Mapping[str, Any]  # a document of `queries.backfills`
MAX_RUNS_READ: Final = 100
OBSERVED_S: Final = 60.0


@dataclass(frozen=True)
class Pace:
    """Seconds from one item's end to the next one's; where none of its own has ended yet, the median seconds that a run of
    its DAG takes. Both None: unknown."""

    per_item_s: float | None
    run_s: float | None = None
    of_item_s: float | None = None  # the same for each item of those runs
    is_serial: bool = False  # its runs come one after another

    def seconds_left(self, backfill: Backfill) -> float | None:
        left = items_left(backfill)
        if self.per_item_s is not None:
            return left * self.per_item_s
        if self.run_s is None:
            return None
        concurrency = 1 if self.is_serial else int(backfill["max_active_runs"] or 1)
        if not isinstance(backfill["batch"], int):
            return None if self.of_item_s is None else left * self.of_item_s / concurrency
        return self.run_s * math.ceil(math.ceil(left / backfill["batch"]) / concurrency)


class ObservedPace:
    """Items that ended per minute over the last minute of watching a backfill (or all of it, while that is less)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def observe(self, at: float, ended: int) -> None:
        """`at` in seconds that only go forward."""
        self._samples.append((at, ended))
        while len(self._samples) > 2 and at - self._samples[1][0] >= OBSERVED_S:
            self._samples.popleft()

    @property
    def per_minute(self) -> float | None:
        if len(self._samples) < 2:
            return None
        (since, before), (until, now) = self._samples[0], self._samples[-1]
        return (now - before) * 60 / (until - since) if until > since and now > before else None

    def seconds_left(self, items: int) -> float | None:
        return items * 60 / self.per_minute if self.per_minute else None


def items_left(backfill: Backfill) -> int:
    return int(backfill["pending"] + backfill["running"])


def items_ended(backfill: Backfill) -> int:
    """Items that ran to an end; what the plan skipped took no time and says nothing of the pace."""
    return int(backfill["success"] + backfill["failed"] + backfill["cancelled"])


def items_per_minute(backfill: Backfill) -> float | None:
    """While it runs, the rate behind its `time_left_s`; once it has ended, the rate over its whole time. None if unknown."""
    if backfill["state"] == states.RUNNING and backfill["time_left_s"]:
        return float(items_left(backfill) * 60 / backfill["time_left_s"])
    if backfill["started_at"] is None or backfill["completed_at"] is None:
        return None
    took = (parse_instant(backfill["completed_at"]) - parse_instant(backfill["started_at"])).total_seconds()
    done = backfill["success"] + backfill["failed"]
    return done * 60 / took if took > 0 and done else None


def has_time_left(backfill: Backfill) -> bool:
    return bool(backfill["state"] == states.RUNNING and items_left(backfill) and backfill["waits_until"] is None)


def with_time_left(store: Store, backfill: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The backfill with `time_left_s` and `finishes_at` where they are known: not while it is paused or waits for
    its time window, and no end for one that has a window."""
    return at_pace(backfill, read_pace(store, backfill, now), now) if has_time_left(backfill) else backfill


def at_pace(backfill: dict[str, Any], pace: Pace, now: datetime) -> dict[str, Any]:
    """`with_time_left` for a backfill that has time left, and whose pace has been read."""
    left_s = pace.seconds_left(backfill)
    if left_s is None:
        return backfill
    end = None if backfill["window"] else format_instant((now + timedelta(seconds=left_s)).replace(microsecond=0))
    return {**backfill, "time_left_s": round(left_s, 1), "finishes_at": end}


def read_pace(store: Store, backfill: Backfill, now: datetime) -> Pace:
    of_it = matching(backfill_id=backfill["backfill_id"], state=(states.SUCCESS, states.FAILED, *states.RUN_LIVE))
    made = store.read(DagRun, of_it, order_by=("-run_seq",), limit=MAX_RUNS_READ, without=NOT_LISTED)
    ended = [run for run in made if run.state not in states.RUN_LIVE]
    starts = [run.started_at for run in ended if run.started_at is not None]
    spent = (now - min(starts)).total_seconds() if starts else 0.0
    if starts and not backfill["parents"]:  # else there is no run while it waits for these, which is part of its pace
        spent -= _idle_s(made, min(starts), now)
    if spent > 0:
        return Pace(spent / sum(run.items for run in ended))
    of_dag = matching(dag_id=backfill["dag_id"], state=states.SUCCESS)
    past = store.read(DagRun, of_dag, order_by=("-run_seq",), limit=MAX_RUNS_READ, without=NOT_LISTED)
    took = [(s, s / run.items) for run in past if (s := seconds_between(run.started_at, run.ended_at)) is not None]
    if not took:
        return Pace(None)
    from backfill_manager.dags.stored_definition import definition_or_why  # costs more than a light command

    version = store.first(DagVersion, matching(dag_id=backfill["dag_id"], version=backfill["dag_version"]))
    is_serial = version is not None and definition_or_why(version).is_serial
    return Pace(None, statistics.median(s for s, _ in took), statistics.median(each for _, each in took), is_serial)


def _idle_s(runs: Iterable[DagRun], since: datetime, now: datetime) -> float:
    """Seconds since then in which none of these runs was there for more than a minute: a pause, a closed time window, what
    lies between the end of a backfill and its retry."""
    idle_s, until = 0.0, since
    for begin, end in (*sorted((run.created_at, run.ended_at or now) for run in runs), (now, now)):
        gap_s = (begin - until).total_seconds()
        idle_s += gap_s if gap_s > OBSERVED_S else 0.0
        until = max(until, end)
    return idle_s
