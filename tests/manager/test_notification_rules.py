"""Messages about runs and backfills: made with what they tell, sent once, by a real request to a server that may be away."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.http_sink import Sink, http_sink
from support.scenarios import accepted, never, refused

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.errors import InvalidConfig, SparkGone, StateError
from backfill_manager.execution import messages as m
from backfill_manager.manager.decisions.notification_rules import new_notifications
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.manager.maintenance.short_leadership import compact_state
from backfill_manager.manager.services.notification_sender import (
    ATTEMPTS,
    GIVE_UP_AFTER,
    RETRY_S,
    AppriseChannel,
    NotificationSender,
    compose,
    flush,
)
from backfill_manager.manager.services.notification_settings import Target, targets_of
from backfill_manager.manager.tick import TickMetrics
from backfill_manager.model import states as s
from backfill_manager.model.records import Notification
from backfill_manager.queries.failures import failures_of, group_errors
from backfill_manager.settings import Settings
from backfill_manager.settings.model import NotificationSettings
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

ALL = frozenset({"failed", "late", "deadlocked", "done"})
FAILS = lambda _: m.Failed("no such column: delay", retryable=False)  # noqa: E731


def target(name: str = "ops", events: frozenset[str] = ALL, dags: tuple[str, ...] = ("*",), **more: Any) -> Target:
    return Target(name, "json://127.0.0.1:9", events, dags, more.get("group_s", 60.0))


class Manager(InMemoryManager):
    def __init__(self, *specs: Any, targets: tuple[Target, ...] = (target(),), **how: Any) -> None:
        self.targets = targets
        super().__init__(*specs, **how)

    def _take_over(self) -> None:
        super()._take_over()
        self.state.targets = self.targets

    def messages(self) -> list[Notification]:
        return self.store.read(Notification, order_by=["run_seq"])

    def titles(self) -> list[str]:
        return [row.title for row in self.messages()]


def flights(**settings: Any) -> Any:
    return dag_spec("flights", "clean", **settings)


# -- which there are -----------------------------------------------------------------------------------------------------


def test_a_backfill_with_nothing_left_to_start_has_failed_and_is_not_paused() -> None:
    manager = Manager(flights(), script=FAILS)
    backfill = manager.backfill("flights", days("2010-01-01", 2), max_active_runs=2, stop_on_failure=2)
    manager.drain()
    assert manager.titles() == [f"flights: backfill {backfill} has failed"]
    assert manager.row(backfill).reason == "2 failed of 2 items"


def test_a_backfill_of_a_thousand_failures_is_one_message_and_its_runs_are_none() -> None:
    manager = Manager(flights(max_active_runs=100), script=FAILS, slots=100)
    backfill = manager.backfill("flights", days("2010-01-01", 1000), max_active_runs=100)
    manager.drain()
    (row,) = manager.messages()
    assert (row.event, row.state, row.title) == ("failed", "waiting", f"flights: backfill {backfill} has failed")
    assert row.text == "1,000 items failed"
    assert failures_of(manager.store, row) == [
        "1,000 tasks clean (backfill__2010-01-01T00:00:00Z, ...): no such column: delay"
    ]


def test_errors_that_differ_in_numbers_only_are_one_group() -> None:
    errors = iter(["no space left", "row 17 of part-0a1b2c3d4e is bad", "row 5 of part-ffffffffff is bad"])
    manager = Manager(flights(), script=lambda _: m.Failed(next(errors), retryable=False))
    backfill = manager.backfill("flights", days("2013-01-01", 3), max_active_runs=1)
    manager.drain()
    groups = group_errors(manager.store, "flights", backfill)
    assert [(one.count, one.error) for one in groups] == [
        (2, "row 17 of part-0a1b2c3d4e is bad"), (1, "no space left")
    ]  # fmt: skip
    assert groups[0].first_run_id.endswith("2013-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("errors", "last"), [("abcde", "e"), ("abcdef", "and 1 other error"), ("abcdefg", "and 2 other errors")]
)
def test_a_message_names_the_most_frequent_errors_and_how_many_others_there_are(errors: str, last: str) -> None:
    texts = iter([*errors, "b"])
    manager = Manager(flights(), script=lambda _: m.Failed(next(texts), retryable=False))
    manager.backfill("flights", days("2013-01-01", len(errors) + 1), max_active_runs=1)
    manager.drain()
    (row,) = manager.messages()
    lines = failures_of(manager.store, row)
    assert lines[0] == "2 tasks clean (backfill__2013-01-02T00:00:00Z, ...): b"
    assert len(lines) == min(len(errors), 6) and lines[-1].endswith(last)
    assert failures_of(manager.store, row.evolve(event="done")) == []


def test_a_run_that_failed_says_which_task_and_why() -> None:
    clock = FakeClock(datetime(2024, 1, 2, 12, tzinfo=UTC))
    manager = Manager(flights(), script=FAILS, scheduled=True, clock=clock)
    manager.drain()
    (row,) = manager.messages()
    assert row.title == "flights: run scheduled__2024-01-01T00:00:00Z has failed"
    assert row.text == "failed: clean\nclean: no such column: delay\nafter 0 ms"


def test_what_succeeds_is_announced_to_those_who_want_it() -> None:
    wants, other = target("all"), target("bad", frozenset({"failed"}))
    manager = Manager(flights(), targets=(wants, other))
    backfill = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    assert [(row.target, row.title) for row in manager.messages()] == [
        ("all", f"flights: backfill {backfill} has succeeded")
    ]


def test_a_backfill_that_did_nothing_is_not_announced_as_a_success() -> None:
    manager = Manager(flights(), targets=(target("all"),), script=never)
    manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    second = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    (row,) = manager.messages()
    assert row.title == f"flights: backfill {second} had nothing to run"
    assert row.text == "2 items skipped"


@pytest.mark.parametrize(
    ("dags", "notify", "hears"),
    [(("*",), (), True), (("fli*",), (), True), (("sales_*",), (), False), ((), (), False), ((), ("ops",), True)],
)
def test_targets_choose_dags_and_dags_choose_targets(
    dags: tuple[str, ...], notify: tuple[str, ...], hears: bool
) -> None:
    manager = Manager(flights(notify=notify), targets=(target(dags=dags),), script=FAILS)
    manager.backfill("flights", days("2013-01-01", 1))
    manager.drain()
    assert bool(manager.messages()) is hears


def test_a_backfill_names_a_target_that_is_notified_of_its_end_whatever_it_is() -> None:
    manager = Manager(flights(), targets=(target("me", frozenset({"late"}), ()), target("others", dags=("x",))))
    manager.backfill("flights", days("2013-01-01", 1), notify="me")
    manager.drain()
    assert [row.target for row in manager.messages()] == ["me"]


def test_a_target_that_is_not_there_is_refused_for_a_backfill() -> None:
    manager = Manager(flights(), script=lambda _: None)
    backfill = manager.backfill("flights", days("2013-01-01", 1))
    assert "no notification target 'opps'; did you mean 'ops'?" in refused(
        manager, "backfill.set", backfill_id=backfill, changes={"notify": "opps"}
    )
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"notify": "ops"})
    assert manager.row(backfill).notify == "ops"


def test_a_deadlock_and_a_pause_by_failures_are_announced() -> None:
    spec = dag_spec("flights", "clean", each={"clean": {"depends_on_past": True}})
    manager = Manager(spec, script=FAILS)
    manager.backfill("flights", days("2013-01-01", 5))
    manager.drain()
    (row,) = manager.messages()
    assert row.event == "deadlocked"
    assert row.text.startswith("deadlock: task 'clean' of run ")
    other = Manager(flights(), script=FAILS)
    other.backfill("flights", days("2013-01-01", 5), stop_on_failure=2, max_active_runs=1)
    other.drain()
    assert [row.text for row in other.messages()] == ["2 failed items: paused by stop_on_failure=2"]


@pytest.mark.parametrize("is_of_backfill", [False, True])
@pytest.mark.parametrize(
    ("fails", "kind", "marked", "title"),
    [
        ("", "run.mark", {"state": s.SUCCESS}, None),
        ("", "task.mark", {"task_id": "a", "state": s.FAILED}, "has failed"),
        ("a", "run.mark", {"state": s.FAILED}, None),
        ("a", "task.mark", {"task_id": "a", "state": s.SUCCESS}, "has succeeded"),
        ("ab", "task.mark", {"task_id": "a", "state": s.SUCCESS}, None),
        ("ab", "task.mark", {"task_id": "b", "state": s.SUCCESS}, "has failed"),  # c has run meanwhile
    ],
)
def test_a_mark_that_changes_no_end_is_no_news(
    fails: str, kind: str, marked: dict[str, str], title: str | None, is_of_backfill: bool
) -> None:
    spec = dag_spec("flights", "a", "b", "c", upstream={"c": ["b"]})
    manager = Manager(spec, script=lambda launch: FAILS(launch) if launch.key[2] in fails else m.Succeeded())
    if is_of_backfill:
        manager.backfill("flights", days("2013-01-01", 1))
    else:
        accepted(manager, "dag.trigger", dag_id="flights", logical_date="2013-01-01T00:00:00Z", conf={})
    manager.drain()
    (run,), before = manager.runs("flights"), manager.titles()
    assert len(before) == 1
    manager.clock.advance(hours=1)
    accepted(manager, kind, dag_id="flights", run_id=run.run_id, **marked)
    manager.drain()
    sent = manager.titles()[1:]
    assert [one.endswith(title or "") for one in sent] == ([] if title is None else [True]), sent
    assert not any("after 1 h" in row.text for row in manager.messages()), "as long as it has worked"


def test_cancelled_work_is_announced_to_nobody() -> None:
    manager = Manager(flights(), script=lambda _: None)
    backfill = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    accepted(manager, "backfill.cancel", backfill_id=backfill, let_running_finish=False)
    for key in list(manager.running):
        manager.finish(key, m.Cancelled("cancelled"))
    manager.drain()
    assert manager.row(backfill).state == s.CANCELLED
    assert not manager.messages()


# -- late runs --------------------------------------------------------------------------------------------------------


def test_a_run_that_has_not_succeeded_in_time_is_late_once() -> None:
    clock = FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    manager = Manager(flights(expected_by=7200.0), script=lambda _: None, scheduled=True, clock=clock)
    manager.drain()
    assert manager._decisions.next_due(clock.now()) == datetime(2024, 1, 2, 2, tzinfo=UTC), "the manager wakes for it"
    clock.advance(seconds=7199)
    manager.drain()
    assert not manager.messages()
    clock.advance(seconds=1)
    manager.drain()
    (row,) = manager.messages()
    assert row.title == "flights: the interval of 2024-01-01T00:00:00Z is late"
    assert row.text == "expected within 2 h of its end; run scheduled__2024-01-01T00:00:00Z is running"
    assert row.run_id == "scheduled__2024-01-01T00:00:00Z", "what a message links to"
    clock.advance(seconds=3600)
    manager.drain()
    assert len(manager.messages()) == 1
    assert manager._decisions.next_due(clock.now()) == datetime(2024, 1, 3, tzinfo=UTC)


def test_a_deadline_that_was_put_off_and_passes_too_is_a_message_of_its_own() -> None:
    clock = FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    manager = Manager(flights(expected_by=3600.0), script=lambda _: None, scheduled=True, clock=clock)
    manager.drain()
    clock.advance(seconds=3600)
    manager.drain()
    clock.advance(seconds=1800)
    manager.add_dag(flights(expected_by=7200.0))
    manager.drain()
    clock.advance(seconds=1800)
    manager.drain()
    assert len({row.key for row in manager.messages()}) == len(manager.messages()) == 2
    assert len(set(manager.titles())) == 1


def test_a_deadline_that_passes_before_the_tick_that_takes_a_new_version_is_looked_at() -> None:
    """As after hours without space for a commit, in which the file of the DAG was changed."""
    clock = FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    manager = Manager(flights(expected_by=3600.0), script=lambda _: None, scheduled=True, clock=clock)
    manager.drain()
    clock.advance(hours=5)
    manager.add_dag(flights(expected_by=3600.0, description="another"))
    manager.drain()
    assert manager.titles() == ["flights: the interval of 2024-01-01T00:00:00Z is late"]


@pytest.mark.parametrize("without", [{}, {"expected_by": 3600.0, "end_date": datetime(2024, 1, 1, tzinfo=UTC)}])
def test_a_deadline_of_the_days_in_which_there_was_none_is_not_looked_at(without: dict[str, Any]) -> None:
    clock = FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    manager = Manager(flights(expected_by=3600.0), scheduled=True, clock=clock)
    manager.drain()
    manager.script = lambda _: None
    manager.add_dag(flights(**without))
    for _ in range(3):
        clock.advance(days=1)
        manager.drain()
    manager.add_dag(flights(expected_by=3600.0))
    manager.drain()
    assert not [row for row in manager.messages() if row.event == "late"]


def test_after_its_end_date_nothing_is_late() -> None:
    day, clock = datetime(2024, 1, 1, tzinfo=UTC), FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    spec = flights(expected_by=3600.0, start_date=day, end_date=day)
    manager = Manager(spec, script=lambda _: None, scheduled=True, clock=clock)
    for _ in range(4):
        manager.drain()
        clock.advance(seconds=86_400)
    assert [row.title for row in manager.messages()] == ["flights: the interval of 2024-01-01T00:00:00Z is late"]


def test_a_run_in_time_is_not_late_and_neither_is_a_paused_dag() -> None:
    clock = FakeClock(datetime(2024, 1, 2, tzinfo=UTC))
    manager = Manager(flights(expected_by=7200.0), scheduled=True, clock=clock)
    for _ in range(5):
        manager.drain()
        clock.advance(seconds=6 * 3600)
    assert "late" not in {row.event for row in manager.messages()}
    paused = Manager(flights(expected_by=60.0), clock=FakeClock(datetime(2024, 1, 2, tzinfo=UTC)))
    paused.drain()
    paused.clock.advance(seconds=90_000)
    paused.drain()
    accepted(paused, "dag.unpause", dag_id="flights")
    assert "late" not in {row.event for row in paused.messages()}


def test_a_day_that_a_batch_has_done_in_time_is_not_late() -> None:
    manager = Manager(
        flights(expected_by=7200.0, batchable=True), clock=FakeClock(datetime(2024, 1, 3, tzinfo=UTC))
    )  # fmt: skip
    manager.backfill("flights", days("2024-01-01", 2), batch=2)
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="flights")
    manager.drain()
    manager.clock.advance(seconds=3 * 3600)
    manager.drain()
    assert [run.items for run in manager.runs("flights")] == [2]
    assert "late" not in {row.event for row in manager.messages()}


def test_a_deadline_of_a_duration_without_start_date_is_that_of_its_run() -> None:
    clock = FakeClock(datetime(2024, 1, 2, 0, 7, tzinfo=UTC))
    spec = flights(schedule={"seconds": 6 * 3600}, expected_by=1800.0)
    manager = Manager(
        spec, scheduled=True, clock=clock, script=lambda it: None if "T12" in it.run.run_id else m.Succeeded()
    )
    for _ in range(2 * 24):
        manager.drain()
        clock.advance(seconds=1800)
    late = [row.title for row in manager.messages() if row.event == "late"]
    assert late == ["flights: the interval of 2024-01-02T12:00:00Z is late"]


def test_a_deadline_that_passed_while_nobody_led_is_announced_by_the_next_manager() -> None:
    clock = FakeClock(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0))
    manager = Manager(flights(expected_by=3600.0), script=lambda _: None, scheduled=True, clock=clock)
    manager.drain()
    clock.advance(seconds=2 * 86_400)
    manager.state.not_led_since = None
    manager.crash()
    manager.state.not_led_since = clock.now() - timedelta(days=2)  # the lease is of the real clock
    manager.drain()
    assert [row.event for row in manager.messages()] == ["late", "late"]


def test_a_deadline_that_a_killed_manager_has_announced_is_not_announced_again() -> None:
    clock = FakeClock(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0))
    manager = Manager(flights(expected_by=3600.0), script=never, scheduled=True, clock=clock)
    manager.drain()
    clock.advance(seconds=2 * 86_400)  # after the last heartbeat, which is of the real clock
    manager.drain()
    before = manager.messages()
    assert [row.event for row in before] == ["late", "late"]
    for row in before:
        manager.state.put(row.evolve(state="sent"))
    manager.commit()
    manager.crash()
    clock.advance(seconds=86_400)
    manager.drain()
    assert [(row.event, row.state) for row in manager.messages()] == [
        ("late", "sent"), ("late", "sent"), ("late", "waiting"),
    ]  # fmt: skip


def test_a_deadline_that_passes_while_a_manager_waits_for_its_last_tasks_is_announced() -> None:
    clock = FakeClock(datetime(2024, 1, 2, 12, tzinfo=UTC))
    manager = Manager(flights(expected_by=13 * 3600.0), script=never, scheduled=True, clock=clock)
    manager.drain()
    decisions = manager._decisions
    decisions.draining = True
    assert decisions.next_due(clock.now()) == datetime(2024, 1, 2, 13, tzinfo=UTC)
    clock.advance(seconds=3600)
    manager.drain()
    assert manager.titles() == ["flights: the interval of 2024-01-01T00:00:00Z is late"]


def test_who_only_compacts_the_state_does_not_hide_the_deadlines_that_passed_before() -> None:
    manager = Manager(flights(expected_by=3600.0))
    led_until = manager.leader.row.heartbeat_at
    compact_state(manager.store, Settings(), SystemClock())
    manager.crash()
    assert manager.state.not_led_since == led_until


def test_a_manager_that_ends_before_its_first_tick_does_not_hide_the_deadlines_that_passed_before() -> None:
    manager = Manager(flights(expected_by=3600.0))
    led_until, clock = manager.leader.row.heartbeat_at, SystemClock()
    leader = LeaderElector(manager.store, clock, lease_s=15).run_once()
    assert leader is not None
    heart = Heartbeat(leader, clock, lease_s=15, figures=TickMetrics().columns)
    with pytest.raises(SparkGone), heart.holding():
        raise SparkGone("Spark could not be started.")
    manager.crash()
    assert manager.state.not_led_since == led_until


# -- how it is sent ---------------------------------------------------------------------------------------------------


@pytest.fixture
def sink() -> Iterator[Sink]:
    with http_sink() as server:
        yield server


class Post:
    """A manager, and the sender that it works with."""

    def __init__(self, sink: Sink, group_s: float = 60.0, script: Any = FAILS, **how: Any) -> None:
        self.target = Target("ops", f"json://{sink.address}/hook", ALL, ("*",), group_s)
        self.manager = Manager(flights(**how), script=script, targets=(self.target,))
        self.manager._loop.decisions._on_commit = lambda changes: self.sender.put(new_notifications(changes))
        self.start()

    def start(self) -> None:
        self.sender = NotificationSender(
            self.target, AppriseChannel(self.target), self.manager.clock, on_sent=self.manager.events.put,
            details=lambda row: failures_of(self.manager.store, row), public_url="https://backfills.example.com/",
        )  # fmt: skip
        self.sender.put(self.manager.state.notifications.values())

    def fail(self, first: str) -> str:
        backfill = self.manager.backfill("flights", days(first, 1))
        self.manager.drain()
        return backfill

    def states(self) -> list[tuple[str, int]]:
        return [(row.state, row.failures) for row in self.manager.messages()]


def test_one_message_is_sent_with_its_errors_and_a_link(sink: Sink) -> None:
    post = Post(sink)
    backfill = post.fail("2013-01-01")
    assert post.sender.run_once() == 60.0, "it waits for others"
    assert not sink.events
    post.manager.clock.advance(seconds=60)
    assert post.sender.run_once() is None
    (sent,) = sink.events
    assert (sent["title"], sent["type"]) == (f"flights: backfill {backfill} has failed", "failure")
    assert sent["message"].splitlines() == [
        "1 item failed", "1 task clean (backfill__2013-01-01T00:00:00Z): no such column: delay",
        f"https://backfills.example.com/backfills/{backfill}",
    ]  # fmt: skip
    assert post.states() == [("waiting", 0)], "a killed manager would send it again"
    post.manager.drain()
    assert post.states() == [("sent", 0)]
    assert not post.manager.state.notifications


def test_what_happens_within_the_time_of_a_group_is_one_message(sink: Sink) -> None:
    post = Post(sink)
    first = post.fail("2013-01-01")
    post.manager.clock.advance(seconds=30)
    second = post.fail("2013-02-01")
    post.manager.clock.advance(seconds=30)
    assert post.sender.run_once() is None
    (sent,) = sink.events
    assert sent["title"] == "2 failed: flights"
    assert sent["message"].splitlines()[0] == f"- flights: backfill {first} has failed: 1 item failed"
    assert f"/backfills/{second}" in sent["message"]


def test_a_server_that_is_away_gets_them_later(sink: Sink) -> None:
    sink.refuses = 2
    post = Post(sink, group_s=0.0)
    post.fail("2013-01-01")
    assert [post.sender.run_once()] == [5.0]
    post.manager.drain()
    (row,) = post.manager.messages()
    assert (row.state, row.failures) == ("waiting", 1)
    assert "503" in (row.error or "") and "hook" not in (row.error or "")
    assert post.sender.run_once() == 5.0, "not before its time"
    post.manager.clock.advance(seconds=5)
    assert post.sender.run_once() == 10.0
    post.manager.clock.advance(seconds=10)
    assert post.sender.run_once() is None
    post.manager.drain()
    assert post.states() == [("sent", 2)]
    assert len(sink.events) == 1


def test_a_state_that_can_not_be_read_for_its_errors_ends_no_sender(sink: Sink) -> None:
    post = Post(sink, group_s=0.0)
    post.fail("2013-01-01")
    reads = iter([StateError("The bucket did not answer."), []])

    def details(_: Notification) -> list[str]:
        if isinstance(found := next(reads), StateError):
            raise found
        return found

    post.sender._details = details
    assert post.sender.run_once() == 5.0
    post.manager.drain()
    assert (post.states(), post.manager.messages()[0].error) == ([("waiting", 1)], "The bucket did not answer.")
    post.manager.clock.advance(seconds=5)
    assert post.sender.run_once() is None
    assert len(sink.events) == 1


def test_what_is_committed_meanwhile_does_not_send_a_message_again(sink: Sink) -> None:
    post = Post(sink, group_s=0.0)
    first = post.fail("2013-01-01")
    post.sender.run_once()
    sent = post.manager.events.take()
    second = post.fail("2013-02-01")  # before the manager knows that the first was sent
    post.sender.run_once()
    assert [event["title"].split()[2] for event in sink.events] == [first, second]
    for event in sent:
        post.manager.events.put(event)
    post.manager.drain()
    assert post.states() == [("sent", 0)] * 2


def attempts_until_given_up(post: Post) -> int:
    """Attempts at the instants at which they are due."""
    made = 0
    while post.states() == [("waiting", made)]:
        due_s = post.sender.run_once()
        post.manager.drain()
        post.manager.clock.advance(seconds=due_s or 0.0)
        made += 1
    assert post.sender.run_once() is None and post.states() == [("failed", made)]
    return made


def test_after_a_day_it_is_given_up(sink: Sink) -> None:
    sink.refuses = 999
    post = Post(sink, group_s=0.0)
    post.fail("2013-01-01")
    began = post.manager.clock.now()
    assert attempts_until_given_up(post) > ATTEMPTS
    assert timedelta(0) <= post.manager.clock.now() - began - GIVE_UP_AFTER <= timedelta(seconds=RETRY_S[1])


def test_one_that_waited_for_days_without_a_manager_gets_its_attempts(sink: Sink) -> None:
    sink.refuses = 999
    post = Post(sink, group_s=0.0)
    post.fail("2013-01-01")
    post.manager.crash()
    post.manager.clock.advance(days=2)
    post.start()
    assert attempts_until_given_up(post) == ATTEMPTS


def test_what_was_not_sent_by_a_killed_manager_is_sent_by_the_next(sink: Sink) -> None:
    post = Post(sink)
    post.fail("2013-01-01")
    post.manager.crash()
    post.start()
    flush([post.sender])
    assert len(sink.events) == 1, "at its end a manager does not wait for more"
    post.manager.drain()
    assert post.states() == [("sent", 0)]


class SlowChannel:
    """Whose server has taken the message, and answers when it is told to."""

    def __init__(self) -> None:
        self.has_begun, self.may_answer = threading.Event(), threading.Event()

    def send(self, title: str, body: str, *, is_bad: bool) -> str | None:
        self.has_begun.set()
        self.may_answer.wait()
        return None


def test_a_manager_that_ends_waits_for_the_answer_to_a_message_that_is_being_sent(sink: Sink) -> None:
    """Else the next manager would send it again."""
    post, slow = Post(sink, group_s=0.0), SlowChannel()
    post.sender._channel = slow
    post.fail("2013-01-01")
    post.sender.start()
    slow.has_begun.wait()
    ending = threading.Thread(target=flush, args=([post.sender],))
    ending.start()
    while ending.is_alive() and not any(thread.name == "flush" for thread in threading.enumerate()):
        pass
    slow.may_answer.set()
    ending.join()
    post.sender.stop()
    post.manager.drain()
    assert post.states() == [("sent", 0)]


def test_messages_of_other_targets_are_left_to_their_own_senders(sink: Sink) -> None:
    post = Post(sink, group_s=0.0)
    other = target("other")
    sender = NotificationSender(other, AppriseChannel(other), post.manager.clock, on_sent=post.manager.events.put)
    post.fail("2013-01-01")
    sender.put(post.manager.messages())
    assert sender.run_once() is None
    assert post.sender.run_once() is None
    post.manager.drain()
    assert post.states() == [("sent", 0)]


def test_a_manager_that_ends_sends_to_its_targets_at_once_however_slow_one_is(sink: Sink) -> None:
    post, slow = Post(sink), SlowChannel()
    post.fail("2013-01-01")
    (row,) = post.manager.messages()
    away = target("slow")
    sender = NotificationSender(away, slow, post.manager.clock, on_sent=post.manager.events.put)
    sender.put([row.evolve(target="slow")])
    ending = threading.Thread(target=flush, args=([sender, post.sender],))
    ending.start()
    slow.has_begun.wait()
    sink.wait_for(1)
    slow.may_answer.set()
    ending.join()


def test_a_message_has_a_text_even_if_there_is_nothing_to_say(sink: Sink) -> None:
    row = Notification("done/a/1", "ops", "done", "waiting", "a", "a: run r has succeeded", "", 1, FakeClock().now())
    title, body = compose([row], lambda _: [], None)
    assert (
        AppriseChannel(Target("ops", f"json://{sink.address}", ALL, ("*",), 0.0)).send(title, body, is_bad=False)
        is None
    )
    assert sink.wait_for(1)[0]["message"] == "a: run r has succeeded"


def test_a_long_list_is_cut() -> None:
    row = Notification(
        "failed/a/1", "ops", "failed", "waiting", "a", "a: run r has failed", "why", 1, FakeClock().now()
    )
    many = [row.evolve(notification_id=f"{n}", dag_id=f"dag_{n % 7}") for n in range(50)]
    title, body = compose(many, lambda _: [], None)
    assert title == "50 failed: dag_0, dag_1, dag_2 and 4 DAGs more"
    assert body.splitlines()[-1] == "- and 30 more"


# -- the configuration ------------------------------------------------------------------------------------------------


def test_an_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = NotificationSettings(name="ops", url_env="OPS_URL")
    monkeypatch.setenv("OPS_URL", "json://example.com")
    assert targets_of([settings])[0].url == "json://example.com"
    monkeypatch.delenv("OPS_URL")
    with pytest.raises(InvalidConfig, match="notifications, ops: the environment has no variable OPS_URL"):
        targets_of([settings])
    assert "OPS_URL" not in os.environ


@pytest.mark.parametrize("address", ["slakc://opensesame", "slack//opensesame", "opensesame"])
def test_an_address_that_is_none_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(InvalidConfig, match="notifications, ops: Apprise does not take this address") as error:
        AppriseChannel(Target("ops", address, ALL, ("*",), 60.0))
    assert "opensesame" not in str(error.value)


def test_rows_of_a_backfill_that_is_gone_have_no_details() -> None:
    manager = Manager(flights())
    row = Notification("failed/a/1", "ops", "failed", "waiting", "a", "t", "", 1, FakeClock().now(), backfill_id="gone")
    assert failures_of(manager.store, row) == []


def test_a_deadline_that_is_many_intervals_away_is_watched_too() -> None:
    manager = Manager(
        flights(
            schedule="@hourly", expected_by=3 * 3600.0, start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=True,
            max_active_runs=16,
        ),
        scheduled=True, script=lambda launch: None if "T00:00" in launch.run.run_id else m.Succeeded(),
    )  # fmt: skip
    for _ in range(10):
        manager.clock.advance(hours=1)
        manager.drain()
    assert any("late" in title for title in manager.titles())
