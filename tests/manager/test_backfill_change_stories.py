"""Changes of a backfill that runs, as docs/semantics.md ("Backfill") tells them, without Spark, Delta or a JVM."""

from __future__ import annotations

import json

import pytest
from support.run_operations import JANUARY, THREE, change, done, fails
from support.scenarios import (
    accepted,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    refused,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import Response
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.testing import InMemoryManager, dag_spec, days


def test_max_active_runs_changes_while_it_runs_up_and_down() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, max_active_runs=3)
    assert len(manager.running) == 3
    change(manager, backfill, max_active_runs=1)
    for key in list(manager.running)[:2]:
        manager.finish(key, Succeeded())
    manager.drain()
    assert len(manager.running) == 1, "what runs goes on, and nothing new begins"


def test_priority_changes_for_tasks_that_wait_already_too() -> None:
    one_at_a_time = dag_spec("d", "a", each={"a": {"max_active_tis": 1}})
    manager = InMemoryManager(one_at_a_time, script=never)
    first = manager.backfill("d", JANUARY[:2])
    second = manager.backfill("d", days("2014-01-01", 2))
    manager.drain()
    change(manager, second, priority=7)
    manager.finish(key_of(manager, "2013-01-01"), Succeeded())
    manager.drain()
    assert key_of(manager, "2014-01-01")
    assert {ti.priority for ti in manager.tasks("d") if "2014" in ti.run_id} == {7}
    assert (manager.row(first).priority, manager.row(second).priority) == (0, 7)


def test_pool_changes_for_what_starts_from_now_on() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    from backfill_manager.model.records import Pool

    manager.state.put(Pool(name="nightly", slots=2, weight=1, min_share=0))
    backfill = done(manager, 2, max_active_runs=1)
    change(manager, backfill, pool="nightly")
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert [launch.pool for launch in manager.launched] == ["backfill", "nightly"]
    assert "There is no pool" in refused(manager, "backfill.set", backfill_id=backfill, changes={"pool": "nigthly"})
    assert "for scheduled runs" in refused(manager, "backfill.set", backfill_id=backfill, changes={"pool": "scheduled"})


def test_batch_changes_for_the_runs_that_are_still_to_be_made() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), script=never)
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, batch=3)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    nothing_hangs(manager)
    assert [run.items for run in manager.runs("d")] == [1, 3, 1]
    assert manager.states(backfill) == {s.SUCCESS: 5}


def test_stop_on_failure_set_while_it_fails_pauses_it() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=fails("01-01", "01-02"))
    manager.script = lambda it: Failed("boom") if it.run.run_id < "backfill__2013-01-03" else None
    backfill = done(manager, 5, max_active_runs=1)
    change(manager, backfill, stop_on_failure=2)
    assert (manager.row(backfill).state, manager.row(backfill).is_paused) == (s.PAUSED, True)
    assert "stop_on_failure=2" in (manager.row(backfill).reason or "")
    change(manager, backfill, stop_on_failure=None)
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    manager.script = fails("a ")  # type: ignore[assignment]
    manager.finish(key_of(manager, "01-03"), Failed("boom"))
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 5}


def test_window_set_while_it_runs_holds_back_what_is_not_begun() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 3, max_active_runs=1)
    change(manager, backfill, window="20:00-06:00")
    manager.clock.advance(hours=12)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 1, s.PENDING: 2}
    change(manager, backfill, window=None)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3}


def test_a_backfill_can_be_told_to_be_polite_while_it_runs() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 1)
    change(manager, backfill, is_polite=True)
    assert manager.row(backfill).is_polite


def test_tasks_mark_success_and_conf_change_for_the_runs_that_are_still_to_be_made() -> None:
    manager = InMemoryManager(THREE, script=lambda it: None if "01-01" in it.run.run_id else Succeeded())
    backfill = done(manager, 4, max_active_runs=1)
    change(manager, backfill, tasks="^b$", with_upstream=False, conf={"x": 1})
    manager.script = lambda it: None if "01-03" in it.run.run_id else Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    change(manager, backfill, mark_success=True, tasks=None)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-03"), Succeeded())
    nothing_hangs(manager)
    assert [launch.task.task_id for launch in manager.launched] == ["a", "b", "c", "b", "b"]
    assert manager.launched[3].params == {"x": 1}
    assert manager.states(backfill) == {s.SUCCESS: 4}
    assert manager.runs("d")[3].reason == "marked success"


def test_overrides_set_while_it_runs_hold_for_its_live_runs_too() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = done(manager, 2, max_active_runs=1)
    change(manager, backfill, overrides={"retries": 1, "a.retry_delay": 1})
    manager.script = fails("a ")  # type: ignore[assignment]
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    nothing_hangs(manager)
    assert [(ti.state, ti.try_number) for ti in manager.tasks("d")] == [(s.FAILED, 2)] * 2
    assert manager.state.current_spec("d").task("a").retries == 0, "scoped to the backfill, and to nothing else"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "Nothing to set"),
        ({"run_backwards": True}, "can't be changed"),
        ({"max_active_run": 2}, "did you mean 'max_active_runs'"),
        ({"max_active_runs": 0}, "max_active_runs must be 1 or more, not 0"),
        ({"max_active_runs": None}, "max_active_runs must be a whole number, not null"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"batch": 2}, "batchable=True"),
        ({"window": "20-06"}, "must be a span of hours such as 20:00-06:00"),
        ({"tasks": "^z$"}, "matches no task"),
        ({"tasks": "("}, "not a regular expression"),
        ({"overrides": {"retrys": 1}}, "did you mean 'retries'"),
        ({"overrides": {"z.retries": 1}}, "has no task 'z'"),
        ({"conf": [1]}, "must be a JSON object"),
        ({"is_polite": "yes"}, "must be true or false"),
    ],
)
def test_a_change_that_can_not_be_made_is_refused_with_what_would_be_right(
    changes: dict[str, object], message: str
) -> None:
    from backfill_manager.clock import EPOCH
    from backfill_manager.model.records import Request

    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    before = manager.row(backfill)
    payload = json.dumps({"backfill_id": backfill, "changes": changes})
    # As an older client would, unchecked.
    manager.store.append_request(Request("r", "backfill.set", payload, "tests", EPOCH))
    manager.drain()
    (answer,) = manager.store.read(Response)
    assert answer.outcome == "refused" and message in answer.message
    assert manager.row(backfill) == before


def test_a_change_is_answered_in_words() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    changes = {"window": "20:00-06:00", "is_polite": True, "conf": {"token": "x"}, "pool": "backfill"}
    assert accepted(manager, "backfill.set", backfill_id=backfill, changes=changes).message == (
        f'backfill {backfill} is updated: conf: {{"token": "***"}}, is_polite: yes, pool: backfill, window: 20:00-06:00 UTC'
    )
    taken = {"window": None, "tasks": None, "with_upstream": True, "stop_on_failure": None}
    assert accepted(manager, "backfill.set", backfill_id=backfill, changes=taken).message == (
        f"backfill {backfill} is updated: stop_on_failure: none, tasks: none, window: none, with_upstream: yes"
    )


def test_a_change_of_what_somebody_has_changed_meanwhile_is_refused_and_says_what_it_is_now() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    first = {"changes": {"priority": 3, "conf": {"full": True}}, "was": {"priority": 0, "conf": {}}}
    accepted(manager, "backfill.set", backfill_id=backfill, **first)
    before = manager.row(backfill)

    second = {
        "changes": {"priority": 9, "conf": {}, "window": None},
        "was": {"priority": 0, "conf": {}, "window": None},
    }
    assert refused(manager, "backfill.set", backfill_id=backfill, **second) == (
        'conf is {"full": true} now, not {}; priority is 3 now, not 0: '
        "somebody has changed it in the meantime. Check it, and repeat the request."
    )
    assert manager.row(backfill) == before

    accepted(manager, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 3})
    # It is 9 already.
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"priority": 9}, was={"priority": 7})
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"batch": 1, "priority": 5})
    assert (manager.row(backfill).priority, json.loads(manager.row(backfill).conf_json)) == (5, {"full": True})


def test_of_two_changes_of_one_setting_at_once_the_second_is_refused() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    for priority in (3, 9):
        manager.ask("backfill.set", backfill_id=backfill, changes={"priority": priority}, was={"priority": 0})
    manager.drain()
    assert sorted(answer.outcome for answer in manager.store.read(Response)) == ["accepted", "refused"]
    assert manager.row(backfill).priority == 3


@pytest.mark.parametrize("tables", range(4))
def test_a_crash_in_the_middle_of_a_change_does_not_refuse_it_for_what_it_did_itself(tables: int) -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    manager.ask(
        "backfill.set", backfill_id=backfill, changes={"priority": 3, "batch": 1}, was={"priority": 0, "batch": 1}
    )
    dies_after(manager, tables)
    manager.drain()
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"]
    assert manager.row(backfill).priority == 3


def test_run_backwards_can_not_come_to_meet_depends_on_past_by_a_change() -> None:
    manager = InMemoryManager(THREE, script=never)
    config = json.dumps({"type": "schedule", "run_backwards": True})
    backfill = manager.backfill("d", JANUARY[:2][::-1], config_json=config)
    manager.drain()
    message = refused(manager, "backfill.set", backfill_id=backfill, changes={"overrides": {"depends_on_past": True}})
    assert "run_backwards" in message and "'a'" in message


def test_what_is_asked_of_a_backfill_that_is_being_planned_is_done_before_anything_of_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manager = InMemoryManager(THREE)
    ask = CreateBackfill(dag_id="d", start_date=JANUARY[0][0], end_date=JANUARY[-1][0])
    manager.ask("backfill.create", backfill_id="b", ask=ask.to_payload())
    manager.ask("backfill.set", backfill_id="b", changes={"priority": 7})
    manager.ask("backfill.cancel", backfill_id="b", let_running_finish=False)
    manager.drain()
    assert manager.store.read(Response) == []

    monkeypatch.setattr(manager.clock, "new_id", lambda: "b")
    manager.backfill("d", JANUARY)
    monkeypatch.undo()
    planned, now = manager.store.unanswered()[0].request_id, manager.clock.now()
    manager._decisions.requests.accept(planned, "backfill.create", now, "b", "5 items to run")
    manager.drain()

    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"] * 3
    assert (manager.row("b").state, manager.row("b").priority, manager.launched) == (s.CANCELLED, 7, [])


def test_a_backfill_that_has_ended_can_not_be_changed() -> None:
    manager = InMemoryManager(THREE)
    backfill = done(manager)
    assert "success already" in refused(manager, "backfill.set", backfill_id=backfill, changes={"priority": 1})
