"""Trigger rules (Airflow's meanings): what the upstream of a task says to whether it may start. The whole rule is in
manager/decisions/task_readiness.py.

Pure: states in, a verdict out. `cancelled` counts as failed, `removed` as success: neither changes unless its task is cleared.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from backfill_manager.errors import InvalidInput
from backfill_manager.manager.state import ActiveRun
from backfill_manager.model import states as s

Verdict = Literal["start", "wait", "skip", "upstream_failed"]

GOOD: Final = frozenset({s.SUCCESS, s.REMOVED})
BAD: Final = frozenset({s.FAILED, s.UPSTREAM_FAILED, s.CANCELLED})
NEEDS_NO_FAILURE: Final = frozenset({"all_success", "none_failed", "none_failed_min_one_success"})
PAST_IS_DONE: Final = frozenset({s.SUCCESS, s.SKIPPED, s.REMOVED})


def evaluate(rule: str, upstream: Collection[str]) -> Verdict:
    """What becomes of a task whose upstream tasks are in these states (an empty collection: a root, it may start). A task that
    will not start ends the same way in whatever order its upstream tasks end."""
    if not upstream or rule == "always":
        return "start"
    good = any(state in GOOD for state in upstream)
    bad = any(state in BAD for state in upstream)
    skipped = s.SKIPPED in upstream
    done = all(state in s.TASK_FINISHED for state in upstream)

    if rule == "all_success":
        return "upstream_failed" if bad else "wait" if not done else "skip" if skipped else "start"
    if rule == "all_failed":
        return "skip" if good or skipped else "start" if done else "wait"
    if rule == "all_done":
        return "start" if done else "wait"
    if rule == "one_success":
        return "start" if good else "wait" if not done else "upstream_failed" if bad else "skip"
    if rule == "one_failed":
        return "start" if bad else "wait" if not done else "skip"
    if rule == "none_failed":
        return "upstream_failed" if bad else "start" if done else "wait"
    if rule == "none_failed_min_one_success":
        return "upstream_failed" if bad else "wait" if not done else "start" if good else "skip"
    if rule == "none_skipped":
        return "skip" if skipped else "start" if done else "wait"
    raise InvalidInput(f"unknown trigger rule {rule!r}")


def counted_state(run: ActiveRun, task_id: str) -> str:
    """The state of a task for what comes after it. Where the task that it is mapped from has failed since, or could not start, it
    is that one's: the success of the mapped task is of a former result."""
    mapping = run.tasks.get(run.spec.task(task_id).mapped_from or "")
    return mapping.state if mapping is not None and mapping.state in BAD else run.tasks[task_id].state


def run_outcome(leaves: Collection[str], every: Collection[str]) -> str:
    """The state of a run whose tasks have all finished: its leaves decide (Airflow's rule), a cancelled task stops it."""
    if s.CANCELLED in every:
        return s.CANCELLED
    return s.FAILED if any(state in BAD for state in leaves) else s.SUCCESS
