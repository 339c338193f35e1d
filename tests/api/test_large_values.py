"""Run parameters and settings are small, on every way in; and lists do not repeat what may be large, not even in old states."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from support.api_server import ApiFixture, Caller

from backfill_manager.api.app import create_app
from backfill_manager.model.records import Backfill, DagRun, Request, Response, TaskInstance
from backfill_manager.schemas.json_values import MAX_BYTES
from backfill_manager.settings import Settings
from backfill_manager.testing import dag_spec
from backfill_manager.web import page, router

MARK = "only in the details"
LARGE = {"text": "é" * (MAX_BYTES // 2)}  # in UTF-8 just above
JUST_SMALL_ENOUGH = {"text": "é" * (MAX_BYTES // 2 - 6)}
TOLD = "must not be larger than 64 kB as JSON, and has 65,548 bytes"
JANUARY = {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-02"}


@pytest.fixture
def browser(api: ApiFixture) -> Caller:
    """The same with pages."""
    return Caller(
        create_app(
            Settings(), api.store, clock=api.clock, secret=b"known", extra_routers=[router.router],
            error_page=page.error_page,
        )
    )  # fmt: skip


@pytest.mark.parametrize("field", ["conf", "overrides"])
def test_what_every_run_would_have_a_copy_of_is_refused_by_the_api_when_it_is_large(
    api: ApiFixture, field: str
) -> None:
    backfill_id = api.backfill(2)
    for method, path, body in (
        ("POST", "/backfills", {**JANUARY, field: LARGE}),
        ("POST", "/backfills/dry_run", {**JANUARY, field: LARGE}),
        ("PATCH", f"/backfills/{backfill_id}", {field: LARGE}),
        *([("POST", "/dags/flights/runs", {"conf": LARGE})] if field == "conf" else []),
    ):
        answer = api.call(method, path, json=body)
        assert (answer.status_code, TOLD in answer.json()["detail"]) == (422, True), (path, answer.text[:500])
    assert api.requests() == []
    assert api.call("POST", "/dags/flights/runs", json={"conf": JUST_SMALL_ENOUGH}).status_code == 202


def test_a_page_says_that_parameters_are_too_large(api: ApiFixture, browser: Caller) -> None:
    form = {"conf": json.dumps(LARGE, ensure_ascii=False)}
    for path, more in (("/dags/flights/trigger", {}), ("/backfills/new", {"dag_id": "flights", "dates": "2013-01-01"})):
        answer = browser("POST", f"http://localhost:8099{path}", data={**form, **more})
        assert answer.status_code == 422, path
    assert api.requests() == []


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("dag.trigger", {"dag_id": "flights", "logical_date": None, "conf": LARGE}),
        ("backfill.create", {"backfill_id": "b9", "ask": {**JANUARY, "conf": LARGE}}),
        ("backfill.create", {"backfill_id": "b9", "ask": {**JANUARY, "overrides": LARGE}}),
        ("backfill.set", {"backfill_id": "latest", "changes": {"conf": LARGE}}),
        ("dag.pause", {"dag_id": "x" * 40_000_000}),
        ("no.such.kind", {"x" * 1_000_000: 1}),
        ("dag.pause", {"dag_id": "flights", "x" * 100_000: 1}),
    ],
)
def test_a_row_appended_by_hand_is_refused_with_a_short_message(
    api: ApiFixture, kind: str, payload: dict[str, Any]
) -> None:
    api.store.append_request(Request("r1", kind, json.dumps(payload, ensure_ascii=False), "ada", api.clock.now()))
    api.manager.tick()
    [answer] = api.store.read(Response)
    assert (answer.outcome, len(answer.message) <= 4000) == ("refused", True)
    assert api.manager.runs("flights") == []


@pytest.fixture
def old_state(api: ApiFixture) -> ApiFixture:
    """Of a release that took parameters of any size: in a run, a backfill, a request that waits, one that is answered."""
    conf = json.dumps({"text": MARK * 10_000})
    backfill_id = api.backfill(3, conf_json=conf)
    for _ in range(6):
        api.manager.tick()
    assert {run.conf_json for run in api.store.read(DagRun)} == {conf}
    submit = {
        **JANUARY,
        "start_date": "2013-01-01T00:00:00Z",
        "end_date": "2013-01-02T00:00:00Z",
        "conf": {"text": MARK},
    }
    api.store.append_request(
        Request("r1", "backfill.create", json.dumps({"backfill_id": "b9", "ask": submit}), "ada", api.clock.now())
    )
    trigger = {"dag_id": "flights", "logical_date": None, "conf": {"text": MARK * 10_000}}
    api.store.append_request(Request("r2", "dag.trigger", json.dumps(trigger), "ada", api.clock.now()))
    answer = Response(
        "r3", "backfill.dry_run", "accepted", None, "planned", json.dumps([MARK]), api.clock.now(), 1
    )  # fmt: skip
    api.put(answer)
    api.store.append_request(
        Request("r3", "backfill.dry_run", json.dumps({"backfill_id": backfill_id}), "ada", api.clock.now())
    )
    return api


def test_no_list_repeats_what_may_be_large(old_state: ApiFixture, browser: Caller) -> None:
    lists = (
        "/backfills", "/runs", "/requests", "/dags", "/dags/flights/runs", "/dags/flights/grid", "/dags/flights/timeline",
        "/pools", "/backfills/latest/running", "/runs?state=success", "/requests?kind=dag.trigger",
    )  # fmt: skip
    for path in lists:
        response = old_state.call("GET", path)
        assert (response.status_code, MARK in response.text) == (200, False), path
        assert all({"conf", "payload"}.isdisjoint(one) for one in response.json().get("items", ())), path
    for path in (
        "/dags",
        "/dags/flights",
        "/dags/flights/timeline",
        "/dags/flights/calendar",
        "/backfills",
        "/requests",
        "/",
        "/runs",
        "/tasks",
    ):
        response = browser("GET", f"http://localhost:8099{path}")
        assert (response.status_code in (200, 307), MARK in response.text) == (True, False), path


def test_what_lists_leave_out_is_in_the_details(old_state: ApiFixture) -> None:
    made = [one["backfill_id"] for one in old_state.call.get("/backfills")["items"]]
    backfill_id = next(one for one in made if one != "b9")
    assert made[0] == "b9", "it waits for the manager"
    for path in (
        f"/backfills/{backfill_id}",
        "/backfills/b9",
        "/runs/latest",
        "/requests/r1",
        "/requests/r2",
        "/requests/r3",
    ):
        assert MARK in old_state.call("GET", path).text, path
    about = {one["request_id"]: one["about"] for one in old_state.call.get("/requests")["items"]}
    assert about == {
        "r1": {"dag_id": "flights", "backfill_id": "b9"},
        "r2": {},  # so large that a list does not look into it
        "r3": {"backfill_id": backfill_id},
    }


def test_many_dates_are_a_few_and_their_number_in_lists(api: ApiFixture, browser: Caller) -> None:
    keys = [f"customer {n}" for n in range(100_000)]
    config = {"type": "partitions", "partitions": keys, "run_backwards": False}
    backfill_id = api.backfill(1, config_json=json.dumps(config))
    [listed] = api.call.get("/backfills")["items"]
    shown = listed["config"]["partitions"]
    assert (shown, listed["config"]["total"]) == (keys[:100], 100_000)
    assert api.call.get(f"/backfills/{backfill_id}")["config"] == config
    assert "100,000 partitions" in browser("GET", "http://localhost:8099/backfills").text
    long_keys = {**config, "partitions": ["x" * 1000] * 50}
    api.put(api.store.read(Backfill)[0].evolve(config_json=json.dumps(long_keys)))
    [listed] = api.call.get("/backfills")["items"]
    assert (len(listed["config"]["partitions"]), listed["config"]["total"]) == (4, 50)


def test_an_answer_does_not_repeat_what_was_set(api: ApiFixture) -> None:
    backfill_id = api.backfill(3)
    api.manager.ask("backfill.set", backfill_id=backfill_id, changes={"conf": JUST_SMALL_ENOUGH})
    api.manager.tick()
    [answer] = api.store.read(Response)
    assert (answer.outcome, len(answer.message) < 500) == ("accepted", True)


def test_a_large_result_is_shown_of_a_single_task_only(api: ApiFixture) -> None:
    api.backfill(1)
    for _ in range(6):
        api.manager.tick()
    large = json.dumps("x" * 100_000)
    for task in api.store.read(TaskInstance):
        api.put(task.evolve(result_json=large if task.task_id == "clean" else "7"))
    listed = {one["task_id"]: one for one in api.call.get("/runs/latest/tasks")["items"]}
    assert [(listed[one]["result"], listed[one]["result_chars"]) for one in ("clean", "delays")] == [
        (None, 100_002),
        (7, 1),
    ]
    [alone] = api.call.get("/runs/latest/tasks?task_id=clean")["items"]
    assert alone["result"] == "x" * 100_000
    assert api.call("GET", "/runs/latest/tasks?task_id=claen").status_code == 404


def test_a_long_description_is_whole_in_the_details_only(api: ApiFixture) -> None:
    spec = dag_spec("wordy", "a")
    api.manager.add_dag(dataclasses.replace(spec, description="so " * 10_000))
    api.manager.tick()
    [listed] = [one for one in api.call.get("/dags")["items"] if one["dag_id"] == "wordy"]
    assert len(listed["description"]) == 1000
    assert api.call.get("/dags/wordy")["description"] == "so " * 10_000
