"""Whether a failed task is tried again, and when."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from support.scenarios import never
from support.state_changes import AT
from support.state_changes import task as task_instance

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskEnded, TaskStarted
from backfill_manager.manager.decisions.apply_outcomes import after_failure, retry_delay_s
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days

TASK = TaskSpec("t", retries=2, retry_delay=60.0, retry_backoff=2.0, max_retry_delay=600.0)


@pytest.mark.parametrize(
    ("failures", "retryable", "state", "delay_s"),
    [
        (0, True, "up_for_retry", 60),
        (1, True, "up_for_retry", 120),
        (2, True, "failed", None),
        (0, False, "failed", None),
    ],
)
def test_it_is_tried_again_while_retries_are_left_and_the_failure_allows_it(
    failures: int, retryable: bool, state: str, delay_s: float | None
) -> None:
    running = task_instance("d", 1, "t", "running", failures=failures, started_at=AT, queued_at=AT)
    after = after_failure(running, AT, "it broke", TASK, retryable=retryable)
    assert (after.state, after.error, after.failures) == (state, "it broke", failures + 1)
    assert after.retry_at == (None if delay_s is None else AT + timedelta(seconds=delay_s))


def test_the_thousandth_retry_waits_no_longer_than_it_may() -> None:
    task = TaskSpec("a", retries=5000, retry_delay=1.0, retry_backoff=10.0, max_retry_delay=600.0)
    assert [retry_delay_s(task, failures) for failures in (1, 3, 4, 1000)] == [1.0, 100.0, 600.0, 600.0]
    assert retry_delay_s(dataclasses.replace(task, retry_delay=0.0), 1000) == 0.0


@pytest.mark.parametrize("outcome", [None, Succeeded(), Failed("boom")], ids=["start", "success", "failure"])
def test_what_an_abandoned_try_reports_after_the_next_has_begun_changes_nothing(outcome: Outcome | None) -> None:
    manager = InMemoryManager(dag_spec("d", "work", each={"work": {"retries": 1, "retry_delay": 0.0}}), script=never)
    manager.backfill("d", days("2013-01-01", 1))
    manager.drain()
    (first,) = manager.running
    manager.finish(first, Failed("boom"))
    manager.drain()
    (second,) = manager.running
    (before,) = manager.tasks("d")
    assert (first[-1], second[-1], before.state) == (1, 2, s.RUNNING)
    now = manager.clock.now()
    manager.events.put(TaskStarted(first, now) if outcome is None else TaskEnded(first, outcome, now))
    manager.drain()
    assert manager.tasks("d") == [before]
