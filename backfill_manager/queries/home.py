"""The home page's lists: what has failed of late and why, and what is late.

What they cost does not grow with the history of task instances. Runs that failed are found by two columns of `dag_run`, the
newest `MAX_FAILED` of them are read, and of task instances only those of these runs, by `run_seq`, which lets the engine skip
every other file. Lateness reads DAGs with `expected_by` and the newest end of their timelines, in a few statements for all of
them, and looks at `MAX_DEADLINES` deadlines of each. With a million task instances the page took 0.2 s on two cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import shorten
from backfill_manager.masking import mask_text
from backfill_manager.model import states
from backfill_manager.model.records import DagRow, DagRun, TaskInstance
from backfill_manager.planning.runs.lateness import has_succeeded, passed_deadlines, run_of_interval
from backfill_manager.planning.runs.recent_runs import recent_timelines
from backfill_manager.queries.dags import all_dags, current_dags
from backfill_manager.queries.failures import alike
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.queries.tasks import NO_RESULTS
from backfill_manager.store.base import Condition, Store, matching

MAX_FAILED: Final = 500  # runs whose errors are read, the newest
MAX_DEADLINES: Final = 50  # of one DAG, the newest
MAX_ERROR_CHARS: Final = 500
_NO_ERROR: Final = "no error was recorded"


@dataclass(frozen=True)
class Failure:
    """Runs of one DAG that have failed alike."""

    dag_id: str
    task_id: str | None  # None: the run failed without a failed task
    error: str  # the first line of the newest
    runs: int
    run_id: str  # the newest
    ended_at: str | None


@dataclass(frozen=True)
class Failures:
    """`runs` is how many have failed, of which the newest `read` are in `groups`; the newest first."""

    runs: int
    groups: Sequence[Failure]
    read: int = 0


def failed_since(store: Store, since: datetime) -> Failures:
    """Runs that have ended since then as failed, by DAG and error; those that were run again meanwhile are no failures."""
    where = [*matching(state=states.FAILED), Condition("ended_at", ">=", since)]
    total = store.count("dag_run", (), where).get((), 0)
    if not total:
        return Failures(0, ())
    runs = store.read(DagRun, where, ("-ended_at", "-run_seq"), MAX_FAILED, NOT_LISTED)
    errors: dict[int, list[TaskInstance]] = {}
    of_runs = matching(run_seq=tuple(run.run_seq for run in runs), state=states.FAILED)
    for ti in store.read(TaskInstance, of_runs, ("run_seq", "task_id"), without=NO_RESULTS):
        errors.setdefault(ti.run_seq, []).append(ti)
    groups: dict[tuple[str, str], Failure] = {}
    for run in runs:
        seen = set()
        failed: list[tuple[str | None, str | None]] = [(ti.task_id, ti.error) for ti in errors.get(run.run_seq, ())]
        for task_id, error in failed or [(None, run.reason)]:
            line = _first_line(mask_text(error or ""))
            key = (run.dag_id, alike(line))
            if key in seen:  # two tasks of one run
                continue
            seen.add(key)
            newest = groups.get(key) or Failure(run.dag_id, task_id, line, 0, run.run_id, format_instant(run.ended_at))
            groups[key] = replace(newest, runs=newest.runs + 1)
    return Failures(total, tuple(groups.values()), len(runs))


def expected_dags(store: Store) -> dict[str, tuple[DagRow, DagSpec]]:
    """Active DAGs that are not paused and say by when their runs are expected, by id."""
    rows = all_dags(store)
    return {
        dag_id: (rows[dag_id], spec)
        for dag_id, (spec, _) in current_dags(store).items()
        if spec.expected_by is not None and not rows[dag_id].is_paused
    }


def late_dags(
    store: Store, expected: Mapping[str, tuple[DagRow, DagSpec]], since: datetime, now: datetime
) -> list[dict[str, Any]]:
    """Those of `expected_dags` with a deadline that has passed since then without success so far: the newest such interval, its
    run if there is one, and how many there are. The one that is late for longest comes first.

    An interval without a run counts only if its deadline has passed since the DAG was last changed or unpaused: before that,
    nobody may have expected it."""
    by_latest = [
        dag_id for dag_id, (_, spec) in expected.items() if spec.start_date is None and isinstance(spec.schedule, dict)
    ]
    reached = recent_timelines(dict.fromkeys(by_latest, 1), store, now)
    latest = {dag_id: timeline.last_scheduled for dag_id, timeline in reached.items()}
    deadlines = {
        dag_id: found
        for dag_id, (_, spec) in expected.items()
        if (found := passed_deadlines(spec, since, now, MAX_DEADLINES, latest.get(dag_id)))
    }
    recent = recent_timelines({dag_id: len(found) + 1 for dag_id, found in deadlines.items()}, store, now)
    late = []
    for dag_id, found in deadlines.items():
        row, timeline = expected[dag_id][0], recent[dag_id]
        open_ones = [
            (one, run)
            for one in found
            if not has_succeeded(timeline, one.start)
            and ((run := run_of_interval(timeline, one.start)) is not None or one.at > row.updated_at)
        ]
        if open_ones:
            newest, run = open_ones[0]
            late.append(
                {
                    "dag_id": dag_id, "timezone": row.timezone, "intervals": len(open_ones),
                    "interval_start": format_instant(newest.start), "expected_at": format_instant(newest.at),
                    "late_since": format_instant(open_ones[-1][0].at),
                    "run_id": run and run.run_id, "state": run and run.state, "reason": run and run.reason,
                }
            )  # fmt: skip
    return sorted(late, key=lambda one: (one["late_since"], one["dag_id"]))


def _first_line(text: str) -> str:
    return shorten(next((line.strip() for line in text.splitlines() if line.strip()), _NO_ERROR), MAX_ERROR_CHARS)
