"""The home page: what has failed since yesterday, what is late, what runs, and backfills under way."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.busy_state import put
from support.page_checks import Page, wrongs
from support.page_client import browser_of
from support.scenarios import accepted

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import DagRun
from backfill_manager.planning.runs.lateness import first_deadline, following_deadline, passed_deadlines
from backfill_manager.queries import home
from backfill_manager.queries.home import expected_dags, failed_since, late_dags
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

DAY = timedelta(days=1)


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2024, 1, day, hour, tzinfo=timezone.utc)


def shown(manager: InMemoryManager, part: str | None = None, address: str = "/") -> str:
    """What a person reads on the page, or in one part of it."""
    answer = browser_of(manager.store, manager.clock).get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    whole = page.root
    if part is not None:
        (whole,) = [one for one in page.root.all() if one.attributes.get("id") == part]
    return whole.whole_text


# -- failures ---------------------------------------------------------------------------------------------------------


def fails_by_day(launch: TaskLaunch) -> Outcome | None:
    day = launch.run.logical_date.day if launch.run.logical_date else 0
    if launch.run.dag_id == "good" or launch.ti.task_id == "load":
        return Succeeded()
    text = "AnalysisException: no such table" if day == 9 else f"ValueError: {day} rows without a key\n  in line {day}"
    return Failed(text, retryable=False)


def failing() -> InMemoryManager:
    manager = InMemoryManager(
        dag_spec("bad", "load", "clean", upstream={"clean": ["load"]}, schedule="@daily"), dag_spec("good", "only"),
        script=fails_by_day, clock=FakeClock(at(20)),
    )  # fmt: skip
    manager.backfill("bad", days("2024-01-05", 5))
    manager.backfill("good", days("2024-01-05", 2))
    manager.drain()
    return manager


def test_failures_are_grouped_by_dag_and_error_and_lead_to_a_log() -> None:
    manager = failing()
    found = failed_since(manager.store, manager.clock.now() - DAY)
    assert found.runs == 5
    assert {(one.dag_id, one.task_id, one.error.partition(" ")[0], one.runs) for one in found.groups} == {
        ("bad", "clean", "AnalysisException:", 1), ("bad", "clean", "ValueError:", 4),
    }  # fmt: skip
    text = shown(manager, "home-failed")
    assert "5 runs, by DAG and error" in text and "rows without a key" in text and "in line" not in text
    (group,) = [one for one in found.groups if one.runs == 4]
    page = browser_of(manager.store, manager.clock).get("/").text
    assert f"/dags/bad/runs/{group.run_id}/tasks/clean" in page


def test_it_says_of_how_many_of_the_failed_runs_the_errors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = failing()
    assert "errors of the newest" not in shown(manager, "home-failed")
    monkeypatch.setattr(home, "MAX_FAILED", 3)
    assert "5 runs, by DAG and error, newest first; errors of the newest 3" in shown(manager, "home-failed")


def test_what_failed_earlier_and_what_was_run_again_since_is_left_out() -> None:
    manager = failing()
    (first, *_) = manager.store.read(DagRun, order_by=("run_seq",))
    accepted(manager, "run.mark", dag_id="bad", run_id=first.run_id, state="success")
    assert failed_since(manager.store, manager.clock.now() - DAY).runs == 4
    manager.clock.advance(seconds=90_000)
    assert failed_since(manager.store, manager.clock.now() - DAY).runs == 0
    assert "No run has failed since yesterday." in shown(manager, "home-failed")


def test_a_run_counts_once_for_errors_that_are_alike_and_one_in_which_nothing_failed_by_its_reason() -> None:
    def fails(launch: TaskLaunch) -> Outcome:
        return Failed(f"ValueError: {len(launch.ti.task_id)} rows without a key", retryable=False)

    manager = InMemoryManager(
        dag_spec("bad", "a", "bb"), dag_spec("past", "a", each={"a": {"depends_on_past": True}}), script=fails,
        clock=FakeClock(at(20)),
    )  # fmt: skip
    manager.backfill("bad", days("2024-01-05", 3))
    manager.backfill("past", days("2024-01-05", 2))
    manager.drain()
    found = failed_since(manager.store, manager.clock.now() - DAY)
    groups = {(one.dag_id, one.task_id, one.runs, one.run_id.partition("__")[2][:10]) for one in found.groups}
    assert groups == {
        ("bad", "a", 3, "2024-01-07"), ("past", "a", 1, "2024-01-05"), ("past", None, 1, "2024-01-06"),
    }  # fmt: skip
    assert found.runs == found.read == 5
    assert next(one.error for one in found.groups if one.task_id is None).startswith("deadlock: task 'a'")


def test_a_secret_in_an_error_is_masked() -> None:
    manager = InMemoryManager(
        dag_spec("bad", "clean"), script=lambda _: Failed("ValueError: password=hunter22", retryable=False),
        clock=FakeClock(at(20)),
    )  # fmt: skip
    manager.backfill("bad", days("2024-01-05", 1))
    manager.drain()
    assert "hunter22" not in shown(manager) and "ValueError" in shown(manager, "home-failed")


# -- late -------------------------------------------------------------------------------------------------------------


def expecting(**more: Any) -> InMemoryManager:
    """A daily DAG, expected two hours after its interval's end, whose runs do not end by themselves."""
    spec = dag_spec("flights", "clean", expected_by=7200.0, **more)
    manager = InMemoryManager(spec, script=lambda _: None, scheduled=True, clock=FakeClock(at(2)))
    manager.drain()
    return manager


def late(manager: InMemoryManager) -> list[dict[str, Any]]:
    now = manager.clock.now()
    return late_dags(manager.store, expected_dags(manager.store), now - DAY, now)


def test_a_dag_is_late_from_its_deadline_until_it_has_succeeded() -> None:
    manager = expecting()
    manager.clock.advance(seconds=7199)
    assert late(manager) == [] and "No DAG is late." in shown(manager, "home-late")
    manager.clock.advance(seconds=1)
    (one,) = late(manager)
    assert (one["interval_start"], one["expected_at"], one["intervals"], one["state"]) == (
        "2024-01-01T00:00:00Z", "2024-01-02T02:00:00Z", 1, "running",
    )  # fmt: skip
    assert "flights 2024-01-01" in shown(manager, "home-late")
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    manager.drain()
    assert late(manager) == []


def test_an_interval_without_a_run_is_late_unless_nobody_expected_it() -> None:
    manager = InMemoryManager(dag_spec("flights", "clean", expected_by=7200.0), clock=FakeClock(at(2, 12)))
    manager.drain()
    row = manager.state.catalog.dags["flights"]
    put(manager, row.evolve(is_paused=False, updated_at=at(2, 12)))
    assert late(manager) == [], "its deadline was before the DAG was there"
    put(manager, row.evolve(is_paused=False, updated_at=at(1)))
    assert [(one["interval_start"], one["run_id"]) for one in late(manager)] == [("2024-01-01T00:00:00Z", None)]
    put(manager, row.evolve(is_paused=True, updated_at=at(1)))
    assert late(manager) == [] and expected_dags(manager.store) == {}


def test_the_dag_that_is_late_for_longest_comes_first_with_its_newest_interval() -> None:
    specs = [
        dag_spec("flights", "a", expected_by=7200.0),
        dag_spec("hours", "a", schedule="@hourly", expected_by=600.0),
    ]
    manager = InMemoryManager(
        *specs, dag_spec("whenever", "a"), script=lambda _: None, scheduled=True, clock=FakeClock(at(2))
    )
    manager.drain()
    manager.clock.advance(seconds=86_400)
    manager.drain()
    manager.clock.advance(seconds=3 * 3600)

    def since_the_first() -> list[dict[str, Any]]:
        return late_dags(manager.store, expected_dags(manager.store), at(1), manager.clock.now())

    assert expected_dags(manager.store).keys() == {"flights", "hours"}
    hours, flights = since_the_first()
    assert (hours["dag_id"], hours["late_since"]) == ("hours", "2024-01-02T00:10:00Z")
    assert (flights["interval_start"], flights["expected_at"], flights["late_since"], flights["intervals"]) == (
        "2024-01-02T00:00:00Z", "2024-01-03T02:00:00Z", "2024-01-02T02:00:00Z", 2,
    )  # fmt: skip
    put(manager, manager.state.catalog.dags["flights"].evolve(updated_at=manager.clock.now()))
    assert since_the_first()[1] == flights, "its runs were expected, whatever has changed since"


def test_a_duration_without_start_date_counts_from_its_last_run() -> None:
    spec = dag_spec("flights", "clean", schedule={"seconds": 6 * 3600}, expected_by=1800.0)
    manager = InMemoryManager(spec, clock=FakeClock(at(2, 8)))
    manager.backfill("flights", [(at(2, 1), at(2, 7))])
    manager.drain()
    put(manager, manager.state.catalog.dags["flights"].evolve(is_paused=False, updated_at=at(2, 3)))
    manager.clock.advance(seconds=5 * 3600)
    assert late(manager) == []
    manager.clock.advance(seconds=1800)
    assert [(one["interval_start"], one["intervals"]) for one in late(manager)] == [("2024-01-02T07:00:00Z", 1)]


def test_passed_deadlines_are_those_that_follow_one_another() -> None:
    for settings in (
        {"schedule": "@hourly"}, {"schedule": "0 5 * * *", "timezone": "Europe/Berlin"},
        {"schedule": "@hourly", "start_date": at(10, 3), "end_date": at(11, 4)},
    ):  # fmt: skip
        spec = dag_spec("flights", "clean", expected_by=5400.0, **settings)
        since, until = at(8), at(13)
        following, deadline = [], first_deadline(spec, since)
        while deadline is not None and deadline.at <= until:
            following.append(deadline)
            deadline = following_deadline(spec, deadline.start)
        assert following and passed_deadlines(spec, since, until, 1000) == following[::-1]
        assert passed_deadlines(spec, since, until, 3) == following[::-1][:3]


# -- what runs, and what to do first --------------------------------------------------------------------------------------


def test_runs_at_work_come_with_their_time_so_far() -> None:
    manager = expecting()
    manager.clock.advance(seconds=95)
    assert "Running for flights scheduled__2024-01-01T00:00:00Z scheduled 1 min 35 s" in shown(manager, "home-running")


def test_a_new_project_is_shown_what_to_do_first() -> None:
    manager = InMemoryManager(dag_spec("flights", "clean"), clock=FakeClock(at(2)))
    manager.drain()
    text = shown(manager)
    assert "Nothing has run yet" in text and "bfm backfill create" in text and "Failed since yesterday" not in text
