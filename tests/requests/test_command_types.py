"""What a request's payload must hold, whoever wrote it."""

from __future__ import annotations

import json
import os
import pwd

import pytest
from support.sample_state import NEW_YEAR, FilledState, StandingClock

from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Request
from backfill_manager.requests import submit
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.commands import COMMANDS, ClearTasks
from backfill_manager.schemas.payloads import parse_payload

ASK = CreateBackfill(dag_id="flights", start_date=NEW_YEAR, end_date=NEW_YEAR).to_payload()
RIGHT = {
    "backfill.create": {"backfill_id": "b1", "ask": ASK},
    "backfill.dry_run": {"backfill_id": "b1", "ask": ASK},
    "backfill.pause": {"backfill_id": "b1"},
    "backfill.unpause": {"backfill_id": "b1"},
    "backfill.cancel": {"backfill_id": "b1", "let_running_finish": False},
    "pool.set": {"name": "backfill"},
    "manager.stop": {"drain": True},
    "manager.stand_by": {"manager_id": "1.a", "host": "here", "pid": 4711},
    "state.compact": {},
    "state.prune": {},
    "dag.pause": {"dag_id": "flights"},
    "dag.unpause": {"dag_id": "flights"},
    "backfill.set": {"backfill_id": "b1", "changes": {"batch": 3, "window": "20:00-06:00"}},
    "backfill.retry": {"backfill_id": "b1"},
    "backfill.hide": {"backfill_id": "b1"},
    "backfill.diff": {"backfill_id": "b1"},
    "backfill.promote": {"backfill_id": "b1"},
    "backfill.discard": {"backfill_id": "b1"},
    "backfill.revert": {"backfill_id": "b1", "dry_run": True},
    "run.revert": {"dag_id": "flights", "run_id": "manual__1", "dry_run": False},
    "backfill.note": {"backfill_id": "b1", "text": "why"},
    "run.note": {"dag_id": "flights", "run_id": "manual__1", "text": ""},
    "dag.deactivate": {"dag_id": "flights"},
    "bundle.parse": {"bundle": "examples", "subpath": "daily/x.py", "dry_run": False, "deactivate_removed": True},
    "bundle.deactivate": {"bundle": "examples", "subpath": ""},
    "dag.trigger": {"dag_id": "flights", "logical_date": None, "conf": {}},
    "run.cancel": {"dag_id": "flights", "run_id": "manual__1"},
    "run.mark": {"dag_id": "flights", "run_id": "manual__1", "state": "success"},
    "runs.mark": {"dag_id": "flights", "state": "success"},
    "task.run": {"dag_id": "flights", "task_id": "clean", "logical_date": "2013-01-01T05:00:00Z"},
    "task.mark": {"dag_id": "flights", "run_id": "manual__1", "task_id": "clean", "state": "skipped"},
    "tasks.clear": {"ask": ClearTasks(dag_id="flights", start_date="2013-01-01").to_payload()},
}


def test_every_kind_has_a_payload_that_is_right() -> None:
    assert set(RIGHT) == set(COMMANDS)
    for kind, payload in RIGHT.items():
        assert parse_payload(kind, json.dumps(payload)) == payload


@pytest.mark.parametrize("kind", RIGHT)
def test_every_field_is_needed_and_no_other_is_known(kind: str) -> None:
    for name in RIGHT[kind]:
        without = {field: value for field, value in RIGHT[kind].items() if field != name}
        with pytest.raises(InvalidInput, match=f"{kind}: the field '{name}' is missing"):
            parse_payload(kind, json.dumps(without))
    with pytest.raises(InvalidInput, match="unknown field 'colour'"):
        parse_payload(kind, json.dumps({**RIGHT[kind], "colour": "red"}))


@pytest.mark.parametrize(
    ("kind", "changed", "result"),
    [
        ("backfill.pause", {"backfill_id": "../etc"}, "backfill_id must be"),
        ("backfill.pause", {"backfill_id": 7}, "backfill_id must be"),
        ("backfill.pause", {"backfill_id": "a' OR 1=1"}, "backfill_id must be"),
        ("backfill.cancel", {"let_running_finish": "no"}, "must be true or false"),
        ("backfill.create", {"ask": []}, "ask must be a JSON object"),
        ("backfill.create", {"ask": {}}, "the field 'dag_id' is missing"),
        ("backfill.create", {"ask": {**ASK, "colour": "red"}}, "colour"),
        ("backfill.create", {"ask": {**ASK, "start_date": "soon"}}, "soon"),
        ("backfill.create", {"ask": {**ASK, "start_date": 5}}, "start_date must be an instant"),
        ("backfill.create", {"ask": {**ASK, "dates": 5}}, "dates must be a list"),
        ("pool.set", {"slots": 0}, "slots must be 1 or more, not 0"),
        ("pool.set", {"slots": True}, "slots must be a whole number"),
        ("pool.set", {"slots": 2.5}, "slots must be a whole number"),
        ("pool.set", {"name": "a b"}, "name must be"),
        ("pool.set", {"memory_mb": "much"}, "memory_mb must be MB, or a size such as `512 MB` or `2 GB`, not 'much'"),
        ("pool.set", {"memory_mb": 8}, "memory_mb must be 16 or more, not 8"),
        ("pool.set", {"nice": 20}, "nice must be 19 or less, not 20"),
        ("pool.set", {"nice": "-1"}, "nice must be 0 to 19, or `none`, not '-1'"),
        ("pool.set", {"name": "control"}, "pool that plans"),
        ("dag.pause", {"dag_id": ""}, "dag_id must not be empty"),
        ("backfill.set", {"changes": {}}, "Nothing to set"),
        ("backfill.set", {"changes": {"prioritty": 1}}, "did you mean 'priority'"),
        ("backfill.set", {"changes": {"window": "evenings"}}, "a span of hours such as 20:00-06:00"),
        ("bundle.parse", {"subpath": "../../etc"}, "must be a path within the bundle"),
        ("bundle.parse", {"subpath": "/etc"}, "must be a path within the bundle"),
        ("bundle.parse", {"dry_run": 1}, "must be true or false"),
        ("dag.trigger", {"logical_date": "2013-13-01"}, "must be an instant"),
        ("dag.trigger", {"conf": [1]}, "must be a JSON object"),
        ("run.mark", {"state": "skipped"}, "must be 'success' or 'failed'"),
        ("task.mark", {"state": "done"}, "must be 'success', 'failed' or 'skipped'"),
        ("task.run", {"logical_date": None}, "must be an instant"),
        ("tasks.clear", {"ask": {"dag": "flights", "tasks": "cle(an"}}, "is not a regular expression"),
        ("tasks.clear", {"ask": {"dag": "flights", "colour": "red"}}, "unknown field 'colour'"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(kind: str, changed: dict[str, object], result: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_payload(kind, json.dumps({**RIGHT[kind], **changed}))
    assert str(error.value).startswith(f"{kind}: ")
    assert result in str(error.value)


def test_what_a_setting_was_may_be_said_or_left_out() -> None:
    payload = {**RIGHT["backfill.set"], "was": {"batch": 1}}
    assert parse_payload("backfill.set", json.dumps(payload)) == payload
    with pytest.raises(InvalidInput, match=r"backfill\.set: was must be a JSON object"):
        parse_payload("backfill.set", json.dumps({**payload, "was": ["batch"]}))
    with pytest.raises(InvalidInput, match=r"backfill\.pause: unknown field 'was'"):
        parse_payload("backfill.pause", json.dumps({"backfill_id": "b1", "was": {}}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"manager\.stop: "):
        parse_payload("manager.stop", text)


def test_an_unknown_kind_offers_the_nearest() -> None:
    with pytest.raises(InvalidInput, match=r"did you mean 'backfill\.pause'"):
        parse_payload("backfill.paus", "{}")


def test_asking_appends_one_row_and_says_who(state: FilledState, clock: StandingClock) -> None:
    submitted = submit.submit(state.store, clock, "manager.stop", {"drain": True}, requested_by="ada", source="api")

    [row] = state.store.read(Request)
    assert row == submitted
    assert (row.kind, row.requested_by, row.source, row.requested_at) == ("manager.stop", "ada", "api", clock.at)


def test_who_asks_is_the_user_of_the_process_and_not_of_its_environment(
    state: FilledState, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")

    submit.submit(state.store, clock, "manager.stop", {"drain": True})

    assert [row.requested_by for row in state.store.read(Request)] == [pwd.getpwuid(os.getuid()).pw_name]


def test_what_is_wrong_is_not_appended(state: FilledState, clock: StandingClock) -> None:
    with pytest.raises(InvalidInput):
        submit.submit(state.store, clock, "manager.stop", {"drain": "perhaps"})

    assert state.store.read(Request) == []


def test_an_answer_is_waited_for_no_longer_than_the_timeout(state: FilledState, clock: StandingClock) -> None:
    submitted = submit.submit(state.store, clock, "manager.stop", {"drain": True})

    assert submit.wait_for_response(state.store, clock, submitted.request_id, 3.0, pause=clock.pass_time) is None
    assert 3.0 <= clock.monotonic() < 3.5

    clock.meanwhile = [lambda: state.answers(submitted, message="gone")]
    answer = submit.wait_for_response(state.store, clock, submitted.request_id, 3.0, pause=clock.pass_time)
    assert answer is not None
    assert answer.message == "gone"
