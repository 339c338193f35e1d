"""A change is a request: 202 and where to look, or with `wait` the manager's answer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.api_server import ApiFixture, bearer, with_tokens

from backfill_manager.clock import parse_instant
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun, Pool, Request
from backfill_manager.requests import submit
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.store.base import Condition
from backfill_manager.testing import dag_spec, days

JANUARY = {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31"}


def test_a_change_is_a_request_with_its_location(api: ApiFixture) -> None:
    backfill_id = api.backfill()

    response = api.call("POST", f"/backfills/{backfill_id}/pause")

    assert response.status_code == 202
    submitted = response.json()
    assert (submitted["kind"], submitted["state"], submitted["answer"]) == ("backfill.pause", "waiting", None)
    assert response.headers["location"] == f"/api/v1/requests/{submitted['request_id']}"
    assert api.call.get(response.headers["location"]) == {**submitted, "result": None}
    api.manager.tick()
    assert api.call.get(response.headers["location"])["state"] == "accepted"
    assert api.call.get(f"/backfills/{backfill_id}")["state"] == "paused"


def test_waiting_returns_the_managers_answer(api: ApiFixture) -> None:
    backfill_id = api.backfill()

    response = api.call("POST", f"/backfills/{backfill_id}/pause?wait=30", meanwhile=api.manager.tick)

    assert (response.status_code, response.json()["state"]) == (200, "accepted")
    assert response.json()["answer"]["message"] == f"backfill {backfill_id} is paused; running items continue"
    assert response.json()["object_id"] == backfill_id


def test_an_answer_that_does_not_come_in_time_is_still_202(api: ApiFixture) -> None:
    response = api.call("POST", f"/backfills/{api.backfill()}/pause?wait=0.05")
    assert (response.status_code, response.json()["state"]) == (202, "waiting")


def test_what_the_manager_refuses_is_a_conflict_with_its_reason(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    api.call("POST", f"/backfills/{backfill_id}/cancel")  # the manager will read that first

    def once_both_are_there() -> None:
        if len(api.requests()) == 2:
            api.manager.tick()

    response = api.call("POST", f"/backfills/{backfill_id}/pause?wait=30", meanwhile=once_both_are_there)

    assert response.status_code == 409
    problem = response.json()
    assert problem["type"] == "urn:backfill-manager:problem:refused"
    assert response.headers["location"].startswith("/api/v1/requests/")


def test_what_can_be_refused_at_once_submits_nothing(api: ApiFixture) -> None:
    before = len(api.requests())
    for method, path, body, status, word in (
        ("POST", "/backfills", {**JANUARY, "dag_id": "flihgts"}, 404, "did you mean 'flights'"),
        ("POST", "/backfills", {**JANUARY, "end_date": "2012-01-01"}, 422, "start_date 2013-01-01 is after"),
        ("POST", "/backfills", {**JANUARY, "tasks": "["}, 422, "tasks '[' is not a regular expression"),
        ("POST", "/backfills", {**JANUARY, "pool": "nowhere"}, 404, "no pool 'nowhere'"),
        (
            "POST",
            "/backfills",
            {**JANUARY, "overrides": {"pool": "nope"}},
            422,
            "overrides pool: there is no pool 'nope'",
        ),
        (
            "POST",
            "/backfills",
            {**JANUARY, "overrides": {"clean.pool": "scheduled"}},
            422,
            "overrides clean.pool=scheduled: the pool 'scheduled' is for scheduled runs",
        ),
        ("POST", "/backfills", {**JANUARY, "dates": ["2013-01-01"], "partitions": ["emea"]}, 422, "don't go together"),
        ("PATCH", "/backfills/nothing", {"priority": 1}, 404, "no backfill"),
        ("PATCH", "/pools/nothing", {"slots": 1}, 404, "no pool"),
        ("PATCH", "/pools/backfill", {}, 422, "Nothing to change was named; the fields are slots, weight"),
        ("POST", "/dags/nothing/runs", {}, 404, "no DAG"),
        ("POST", "/runs/nothing/cancel", None, 404, "no run"),
        (
            "POST",
            "/dags/flights/clear",
            {"only_failed": True, "only_running": True},
            422,
            "only_failed and only_running",
        ),
        ("POST", "/runs/nothing/mark", {"state": "skipped"}, 422, "skipped is for a task"),
    ):
        response = api.call(method, path, json=body)
        assert (response.status_code, word in response.json()["detail"]) == (status, True), (path, body, response.text)
    assert len(api.requests()) == before


def test_a_backfill_can_be_looked_at_before_it_is_made(api: ApiFixture) -> None:
    response = api.call("POST", "/backfills", json={**JANUARY, "priority": 5, "conf": {"full": True}})

    backfill_id = response.json()["payload"]["backfill_id"]
    result = api.call.get(f"/backfills/{backfill_id}")
    assert (result["state"], result["reason"], result["priority"]) == ("queued", "waiting for the manager", 5)
    assert [one["backfill_id"] for one in api.call.get("/backfills")["items"]] == [backfill_id]


def test_an_end_is_its_whole_day_may_be_left_out_and_lie_in_the_future(api: ApiFixture) -> None:
    api.manager.add_dag(dag_spec("hours", "one", schedule="@hourly", start_date=parse_instant("2023-12-01T00:00:00Z")))
    api.manager.commit()

    def config(**options: Any) -> dict[str, Any]:
        response = api.call("POST", "/backfills", json={"dag_id": "hours", **options})
        assert response.status_code == 202, response.text
        result: dict[str, Any] = api.call.get(f"/backfills/{response.json()['payload']['backfill_id']}")
        return {**result["config"], "first_waits": not result["ignore_first_depends_on_past"]}

    day = config(start_date="2023-12-05", end_date="2023-12-05")
    assert (day["end_date"], day["first_waits"], "allow_future" in day) == ("2023-12-05T23:00:00Z", False, False)
    assert config(start_date="2023-12-05", end_date="2023-12-05T00:00")["end_date"] == "2023-12-05T00:00:00Z"
    whole = config(kind="single", start_date="2023-12-05", end_date="2023-12-05")
    assert whole["end_date"] == "2023-12-06T00:00:00Z"
    assert config()["end_date"] is None, "it is found when the manager plans it"
    future = config(
        start_date="2023-12-05", end_date="2030-01-01", allow_future=True, ignore_first_depends_on_past=False
    )
    assert (future["allow_future"], future["first_waits"]) == (True, True)


@pytest.mark.parametrize(
    "covered",
    [
        {"start_date": "2013-01-01", "end_date": "2013-01-31"},
        {"start_date": "2013-01-01"},
        {"kind": "missing", "start_date": "2013-01-01", "end_date": "2013-01-31", "run_backwards": True},
        {"kind": "single", "start_date": "2013-01-01", "end_date": "2013-01-31"},
        {"start_date": "2013-01-01", "end_date": "2030-01-01", "allow_future": True},
        {"dates": ["2013-01-05", "2013-02-07"], "run_backwards": True},
        {"partitions": ["emea", "apac"]},
    ],
    ids=lambda covered: "-".join(covered),
)
def test_the_config_that_is_shown_makes_another_backfill_that_covers_the_same(
    api: ApiFixture, covered: dict[str, Any]
) -> None:
    def shown(**fields: Any) -> Any:
        response = api.call("POST", "/backfills", json={"dag_id": "flights", **fields})
        assert response.status_code == 202, response.text
        return api.call.get(f"/backfills/{response.json()['payload']['backfill_id']}")

    first = shown(**covered)
    second = shown(config=first["config"], priority=3)

    assert second["backfill_id"] != first["backfill_id"]
    assert (second["config"], second["priority"]) == (first["config"], 3)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"config": {"type": "schedule"}, "start_date": "2013-01-01"}, "leave start_date out, or config"),
        ({"config": {"type": "single"}, "kind": "single"}, "leave kind out, or config"),
        ({"config": {"type": "dates"}}, "kind dates needs dates"),
        ({"config": {"type": "dates", "partitions": ["x"]}}, "partitions is for kind partitions, not for kind dates"),
        ({"config": {"type": "dates", "dates": ["2013-01-05"], "total": 101}}, "contains only some of the 101 dates"),
        ({"config": {"start_date": "2013-01-05"}}, "body.config.type: Field required"),
        (
            {"config": {"type": "schedule", "strat_date": "2013-01-05"}},
            "'strat_date'; did you mean 'start_date'",
        ),
        ({"config": [1]}, "body.config: Input should be"),
    ],
)
def test_a_config_that_is_none_or_is_contradicted_is_refused(api: ApiFixture, body: dict[str, Any], words: str) -> None:
    response = api.call("POST", "/backfills", json={"dag_id": "flights", **body})
    assert response.status_code == 422
    assert words in response.json()["detail"]
    assert api.requests() == []


def test_a_list_shortens_a_config_in_a_way_that_can_not_be_taken_for_the_whole(api: ApiFixture) -> None:
    dates = [f"2013-{day // 28 + 1:02}-{day % 28 + 1:02}" for day in range(120)]
    api.call("POST", "/backfills", json={"dag_id": "flights", "dates": dates})
    [listed] = api.call.get("/backfills")["items"]
    again = api.call("POST", "/backfills", json={"dag_id": "flights", "config": listed["config"]})
    assert (again.status_code, "contains only some of the 120 dates" in again.text) == (422, True)


def test_overrides_of_a_backfill_that_runs_are_looked_at_as_those_of_a_new_one(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    for overrides, word in (
        ({"pool": "nope"}, "there is no pool 'nope'"),
        ({"clean.pool": "scheduled"}, "is for scheduled runs"),
        ({"retries": "many"}, "retries must be a whole number"),
        ({"nope.retries": 1}, "has no task 'nope'"),
    ):
        response = api.call("PATCH", f"/backfills/{backfill_id}", json={"overrides": overrides})
        assert (response.status_code, word in response.json()["detail"]) == (422, True), response.text


def test_a_backfill_that_is_made_while_one_waits_is_201_at_its_own_address(api: ApiFixture) -> None:
    def plan() -> None:
        for request in api.store.unanswered():
            api.answer(request, "accepted", "made", submit.id_from(request.request_id))

    response = api.call("POST", "/backfills?wait=30", json=JANUARY, meanwhile=plan)

    assert (response.status_code, response.json()["state"]) == (201, "accepted")
    assert response.headers["location"] == f"/api/v1/backfills/{response.json()['object_id']}"


@pytest.mark.parametrize(
    ("sent", "batch", "target"),
    [({"batch": 7}, 7, None), ({"batch": 1, "batch_target": "90s"}, 1, 90.0), ({"batch_target": 60}, 1, 60.0)],
)
def test_batch_is_a_number_or_auto_and_its_target_seconds_or_a_text(
    api: ApiFixture, sent: dict[str, Any], batch: int, target: float | None
) -> None:
    api.manager.add_dag(dag_spec("wide", "clean", batchable=True))
    api.manager.commit()
    made = api.call("POST", "/backfills", json={**JANUARY, "dag_id": "wide", **sent}).json()["payload"]["ask"]
    assert (made["batch"], made["batch_target"]) == (sent.get("batch"), target)
    backfill_id = api.manager.backfill("wide", days("2013-01-01", 3), batch=0, is_paused=True)
    assert api.call.get(f"/backfills/{backfill_id}")["batch"] == "auto"
    api.call("PATCH", f"/backfills/{backfill_id}", json={**sent, "was": {"batch": "auto"}} if "batch" in sent else sent)
    api.manager.tick()
    found = api.call.get(f"/backfills/{backfill_id}")
    assert (found["batch"], found["batch_target"]) == (batch if "batch" in sent else "auto", target)


@pytest.mark.parametrize("wrong", ["many", 0, True, -1, 1.5, ["auto"], "AUTO"])
def test_another_batch_is_refused_in_one_line(api: ApiFixture, wrong: Any) -> None:
    response = api.call("POST", "/backfills", json={**JANUARY, "batch": wrong})
    assert response.status_code == 422
    assert "must be a whole number of 1 to 1,000,000,000, or `auto`, not " in response.json()["detail"]
    refused = api.call("POST", "/backfills", json={**JANUARY, "batch": "auto"})
    assert refused.status_code == 422 and "does not say batchable=True" in refused.json()["detail"]


def test_a_dry_run_is_planned_by_the_manager_and_creates_nothing(api: ApiFixture) -> None:
    plan = {
        "items": [
            {
                "ordinal": 1, "logical_date": "2013-01-01T00:00:00Z", "interval_start": "2013-01-01T00:00:00Z",
                "interval_end": "2013-01-02T00:00:00Z", "partition_key": None, "state": "pending", "reason": None,
                "run_id": None,
            }
        ],
        "summary": {"pending": 1},
    }  # fmt: skip

    def answer() -> None:
        for request in api.store.unanswered():
            api.answer(request, "accepted", "planned", None, plan)

    response = api.call("POST", "/backfills/dry_run", json=JANUARY, meanwhile=answer)

    assert (response.status_code, response.json()) == (200, plan)
    assert api.call.get("/backfills")["items"] == []


def test_a_dry_run_without_a_running_manager_is_503(api: ApiFixture) -> None:
    api.manager.leader.resign(api.clock.now())

    response = api.call("POST", "/backfills/dry_run", json=JANUARY)

    assert response.status_code == 503
    assert "none is running" in response.json()["detail"]
    assert api.requests() == []


def test_without_a_manager_reads_go_on_and_changes_wait(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    api.manager.leader.resign(api.clock.now())

    health = api.call.get("/health")
    assert (health["status"], health["manager"], health["leader"]["leading"]) == ("ok", "none", False)
    assert api.call.get(f"/backfills/{backfill_id}")["pending"] == 3
    assert api.call("POST", f"/backfills/{backfill_id}/pause").status_code == 202


def test_the_same_key_with_the_same_body_makes_one_request(api: ApiFixture) -> None:
    key = {"Idempotency-Key": "monday's"}

    first = api.call("POST", "/backfills", json=JANUARY, headers=key)
    again = api.call("POST", "/backfills", json=dict(reversed(JANUARY.items())), headers=key)

    assert first.json() == again.json()
    assert len(api.requests()) == 1


def test_a_repeated_request_returns_its_answer_whatever_changed_meanwhile(api: ApiFixture) -> None:
    backfill_id, key = api.backfill(), {"Idempotency-Key": "c1"}
    first = api.call("POST", f"/backfills/{backfill_id}/cancel?wait=30", headers=key, meanwhile=api.manager.tick)
    api.manager.drain()
    assert api.manager.row(backfill_id).state == s.CANCELLED

    again = api.call("POST", f"/backfills/{backfill_id}/cancel", headers=key)

    assert (again.status_code, again.json()) == (200, first.json())
    without = api.call("POST", f"/backfills/{backfill_id}/cancel")
    assert (without.status_code, "has ended" in without.json()["detail"]) == (409, True)


def test_the_same_key_for_something_else_is_a_mistake(api: ApiFixture) -> None:
    key = {"Idempotency-Key": "k"}
    api.call("POST", "/backfills", json=JANUARY, headers=key)

    for path, body in (("/backfills", {**JANUARY, "priority": 1}), ("/dags/flights/runs", JANUARY)):
        response = api.call("POST", path, json=body, headers=key)
        assert response.status_code == 422, response.text
    assert len(api.requests()) == 1


def test_the_same_key_for_the_run_of_another_dag_is_a_mistake(api: ApiFixture) -> None:
    """What a change is about may stand behind the question mark; how long its answer is waited for is no part of it."""
    api.backfill()
    api.manager.tick()
    key = {"Idempotency-Key": "once"}
    first = api.call("POST", "/runs/latest/cancel?dag_id=flights&wait=0.1", headers=key)
    again = api.call("POST", "/runs/latest/cancel?wait=0&dag_id=flights", headers=key)
    other = api.call("POST", "/runs/latest/cancel?dag_id=others", headers=key)
    assert (first.status_code, again.json()["request_id"]) == (202, first.json()["request_id"])
    assert (other.status_code, len(api.requests())) == (422, 1)


def test_an_expression_that_cannot_be_matched_in_linear_time_is_refused(api: ApiFixture) -> None:
    for path, body in (
        ("/dags/flights/clear", {"tasks": "(?=clean)"}),
        (
            "/backfills",
            {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-02", "tasks": "(clean)\\1"},
        ),
    ):
        response = api.call("POST", path, json=body)
        assert (response.status_code, "can't be matched in linear time" in response.json()["detail"]) == (422, True)
    assert api.requests() == []


def test_a_key_is_a_persons_own() -> None:
    api = ApiFixture(with_tokens())
    for name in ("olga", "oleg"):
        headers = {"Idempotency-Key": "k", **bearer(name)}
        assert api.call("POST", "/backfills", json=JANUARY, headers=headers).status_code == 202
    assert [row.requested_by for row in api.requests()] == ["olga", "oleg"]


def test_the_audit_trail_has_user_command_time_and_address() -> None:
    api = ApiFixture(with_tokens())
    backfill_id = api.backfill()
    api.call.address = ("192.0.2.7", 4000)

    response = api.call("POST", f"/backfills/{backfill_id}/pause", headers=bearer("oleg"))

    [row] = api.requests()
    assert (row.requested_by, row.source, row.requested_from) == ("oleg", "api", "192.0.2.7")
    assert response.json()["requested_from"] == "192.0.2.7"


def test_settings_of_a_backfill_change_while_it_runs(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    changes = {"priority": 7, "max_active_runs": 1, "window": None, "overrides": {"retries": 2}, "conf": {"a": 1}}

    response = api.call("PATCH", f"/backfills/{backfill_id}?wait=30", json=changes, meanwhile=api.manager.tick)

    assert response.status_code == 200, response.text
    result = api.call.get(f"/backfills/{backfill_id}")
    assert {name: result[name] for name in changes} == changes


def test_two_who_change_the_same_backfill_both_get_their_word(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    for changes in ({"priority": 1}, {"max_active_runs": 2}):
        assert api.call("PATCH", f"/backfills/{backfill_id}", json=changes).status_code == 202
    api.manager.tick()
    result = api.call.get(f"/backfills/{backfill_id}")
    assert (result["priority"], result["max_active_runs"]) == (1, 2)


def test_a_change_with_expected_values_overwrites_nothing_unseen(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    path = f"/backfills/{backfill_id}?wait=30"
    mine = {"priority": 1, "window": "20:00-06:00", "was": {"priority": 0, "window": None}}
    assert api.call("PATCH", path, json=mine, meanwhile=api.manager.tick).status_code == 200

    theirs = {"priority": 2, "was": {"priority": 0}}
    response = api.call("PATCH", path, json=theirs, meanwhile=api.manager.tick)

    assert (response.status_code, response.json()["detail"].startswith("priority is 1 now, not 0")) == (409, True)
    result = api.call.get(f"/backfills/{backfill_id}")
    assert (result["priority"], result["window"]) == (1, "20:00-06:00")
    assert [json.loads(one.payload_json).get("was") for one in api.requests()] == [mine["was"], theirs["was"]]


def test_a_change_that_saw_none_where_there_is_one_is_refused(api: ApiFixture) -> None:
    backfill_id = api.backfill()
    changes = {"priority": 1, "was": {"priority": None}}
    response = api.call("PATCH", f"/backfills/{backfill_id}?wait=30", json=changes, meanwhile=api.manager.tick)
    assert (response.status_code, response.json()["detail"].startswith("priority is 0 now, not none")) == (409, True)


@pytest.mark.parametrize(
    ("was", "words"),
    [
        ({"pool": "backfill"}, "'was' contains 'pool', which is not among the changes"),
        ({"prioritty": 0}, "prioritty"),
        ({"priority": "0"}, "valid integer"),
        ([], "was"),
    ],
)
def test_what_it_saw_must_be_of_what_it_changes(api: ApiFixture, was: object, words: str) -> None:
    response = api.call("PATCH", f"/backfills/{api.backfill()}", json={"priority": 1, "was": was})
    assert (response.status_code, words in response.text) == (422, True)


def test_deleting_cancels_and_hides_and_nothing_is_lost(api: ApiFixture) -> None:
    backfill_id, other = api.backfill(), api.backfill(1)

    response = api.call("DELETE", f"/backfills/{backfill_id}?wait=30", meanwhile=api.manager.tick)
    api.manager.drain()

    assert response.status_code == 200
    assert [one["backfill_id"] for one in api.call.get("/backfills")["items"]] == [other]
    result = api.call.get(f"/backfills/{backfill_id}")
    assert (result["state"], result["hidden_at"] is not None, result["cancelled"]) == ("cancelled", True, 3)


def test_the_latest_is_the_newest_that_is_not_hidden(api: ApiFixture) -> None:
    older = api.backfill()
    api.clock.advance(seconds=1)
    newer = api.backfill(1)
    assert api.call.get("/backfills/latest")["backfill_id"] == newer
    api.call("DELETE", f"/backfills/{newer}?wait=30", meanwhile=api.manager.tick)
    api.manager.drain()
    assert api.call.get("/backfills/latest")["backfill_id"] == older
    api.call("DELETE", f"/backfills/{older}?wait=30", meanwhile=api.manager.tick)
    api.manager.drain()
    assert api.call("GET", "/backfills/latest").status_code == 404


def test_a_backfill_that_has_ended_can_be_hidden_and_comes_back_when_it_is_retried(api: ApiFixture) -> None:
    backfill_id = api.backfill(1)
    api.manager.drain()
    [launch] = api.manager.running.values()
    from backfill_manager.execution.messages import Failed

    api.manager.finish(launch.key, Failed("no"))
    api.manager.drain()
    assert api.manager.row(backfill_id).state == s.FAILED

    api.call("DELETE", f"/backfills/{backfill_id}")
    api.manager.drain()
    assert api.call.get("/backfills")["items"] == []
    api.call("POST", f"/backfills/{backfill_id}/retry")
    api.manager.drain()
    assert [one["backfill_id"] for one in api.call.get("/backfills")["items"]] == [backfill_id]


def test_a_dag_is_paused_and_goes_on(api: ApiFixture) -> None:
    for is_paused in (False, True):
        api.call("PATCH", "/dags/flights?wait=30", json={"is_paused": is_paused}, meanwhile=api.manager.tick)
        assert api.call.get("/dags/flights")["is_paused"] is is_paused
    assert [row.is_paused for row in api.store.read(DagRow)] == [True]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/backfills", JANUARY | {"dag_id": "copy"}),
        ("POST", "/backfills/dry_run", JANUARY | {"dag_id": "copy"}),
        ("PATCH", "/backfills/{backfill_id}", {}),
        ("POST", "/dags/copy/runs", {}),
        ("POST", "/dags/copy/runs", {"partition_key": "north"}),
    ],
)
def test_params_that_do_not_fit_are_refused(api: ApiFixture, method: str, path: str, body: dict[str, Any]) -> None:
    api.manager.add_dag(
        dag_spec("copy", "a", params={"region": "eu"}, declared_params={"region": ParamSpec(None, ("eu", "us"))})
    )
    address = path.format(backfill_id=api.manager.backfill("copy", days("2013-01-01", 3)))
    api.manager.tick()
    asked = len(api.requests())
    unknown = api.call(method, address, json={**body, "conf": {"regoin": "eu"}})
    assert (unknown.status_code, unknown.json()["code"], unknown.json()["field"]) == (422, "unknown_param", "conf")
    assert "did you mean 'region'?" in unknown.json()["detail"]
    wrong = api.call(method, address, json={**body, "conf": {"region": "uk"}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "wrong_param")
    assert "'us'" in wrong.json()["detail"]
    assert len(api.requests()) == asked
    assert api.call("GET", "/dags/copy").json()["declared_params"]["region"]["choices"] == ["eu", "us"]


def test_a_run_of_a_partition_is_made_by_hand(api: ApiFixture) -> None:
    body = {"partition_key": "north"}
    made = api.call("POST", "/dags/flights/runs?wait=30", json=body, meanwhile=api.manager.tick)
    assert made.status_code == 201, made.text
    run = api.call.get(made.headers["location"])
    assert (run["run_id"], run["partition_key"], run["logical_date"]) == ("manual__north", "north", None)
    both = api.call("POST", "/dags/flights/runs", json={**body, "logical_date": "2013-01-05"})
    assert (both.status_code, both.json()["code"]) == (422, "date_and_partition")


def test_a_run_by_hand_is_made_marked_and_cleared(api: ApiFixture) -> None:
    expected = {"logical_date": "2013-01-05", "conf": {"full": True}}
    made = api.call("POST", "/dags/flights/runs?wait=30", json=expected, meanwhile=api.manager.tick)
    assert made.status_code == 201, made.text
    run = api.call.get(made.headers["location"])
    assert (run["run_type"], run["logical_date"], run["conf"]) == ("manual", "2013-01-05T00:00:00Z", {"full": True})

    run_id = run["run_id"]
    marked = api.call("POST", f"/runs/{run_id}/mark?wait=30", json={"state": "success"}, meanwhile=api.manager.tick)
    assert marked.status_code == 200, marked.text
    api.manager.drain()
    assert api.call.get(f"/runs/{run_id}")["state"] == "success"

    plan = api.call("POST", "/dags/flights/clear", json={"dry_run": True, "run_ids": [run_id]})
    assert (plan.status_code, plan.json()["summary"]) == (
        200,
        {"runs": 1, "tasks": 2, "running": 0, "stay_upstream_failed": 0},
    )
    cleared = api.call("POST", "/dags/flights/clear?wait=30", json={"run_ids": [run_id]}, meanwhile=api.manager.tick)
    assert cleared.json()["answer"]["message"] == "cleared 2 tasks in 1 run"
    cancelled = api.call("POST", f"/runs/{run_id}/cancel?wait=30", meanwhile=api.manager.tick)
    assert cancelled.status_code == 200, cancelled.text


def test_a_manual_run_of_a_future_date_is_refused_unless_it_is_allowed(api: ApiFixture) -> None:
    ahead = (api.clock.now() + timedelta(days=40)).replace(microsecond=0)
    for date in (f"{ahead:%Y-%m-%d}", f"{ahead:%Y-%m-%dT%H:%M:%SZ}"):
        for more in ({}, {"allow_future": False}):
            response = api.call("POST", "/dags/flights/runs?wait=30", json={"logical_date": date, **more})
            assert response.status_code == 422, response.text
            sent = response.json()["detail"]
            assert sent.startswith(f"logical_date {date} lies") and sent.endswith("add allow_future")
            assert "--" not in sent and len(sent.splitlines()) == 1
    assert api.requests() == []
    wrong = api.call("POST", "/dags/flights/runs", json={"allow_future": "yes"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "body.allow_future")

    expected = {"logical_date": f"{ahead:%Y-%m-%d}", "allow_future": True}
    made = api.call("POST", "/dags/flights/runs?wait=30", json=expected, meanwhile=api.manager.tick)
    assert made.status_code == 201, made.text
    assert api.call.get(made.headers["location"])["logical_date"] == f"{ahead:%Y-%m-%d}T00:00:00Z"


@pytest.mark.parametrize(
    ("which", "chosen"),
    [
        ({}, ["clean", "delays"]),
        ({"with_upstream": False}, ["delays"]),
        ({"tasks": "^clean$"}, ["clean"]),
        ({"tasks": "^clean$", "with_downstream": True}, ["clean", "delays"]),
    ],
)
def test_a_backfill_of_some_tasks_includes_upstream_and_its_runs_are_partial(
    api: ApiFixture, which: dict[str, Any], chosen: list[str]
) -> None:
    expected = {**JANUARY, "tasks": "^delays$", **which}
    response = api.call("POST", "/backfills", json=expected)
    assert response.status_code == 202, response.text
    submitted = api.call.get(f"/backfills/{response.json()['payload']['backfill_id']}")
    fields = ("tasks", "with_upstream", "with_downstream")
    settings = {name: submitted[name] for name in fields}
    assert settings == {
        "with_upstream": True,
        "with_downstream": False,
        **{n: expected[n] for n in fields if n in expected},
    }

    api.manager.script = lambda _: Succeeded()
    api.backfill(1, **settings)
    api.manager.drain()
    assert [launch.task.task_id for launch in api.manager.launched] == chosen
    (run,) = api.call.get("/runs")["items"]
    is_partial = len(chosen) < 2
    assert run["is_partial"] is is_partial
    for address in (f"/runs/{run['run_id']}", f"/dags/flights/runs/{run['run_id']}"):
        assert api.call.get(address)["is_partial"] is is_partial
    assert [one["is_partial"] for one in api.call.get("/dags/flights/runs")["items"]] == [is_partial]


def test_a_task_is_marked_by_its_run(api: ApiFixture) -> None:
    api.backfill(1)
    api.manager.drain()
    [run] = api.store.read(DagRun)

    response = api.call(
        "POST", f"/runs/{run.run_id}/mark?wait=30&dag_id=flights", json={"state": "skipped", "task_id": "clean"},
        meanwhile=api.manager.tick,
    )  # fmt: skip

    assert (response.status_code, response.json()["kind"]) == (200, "task.mark")


def test_a_pool_gets_more_slots_and_keeps_the_rest(api: ApiFixture) -> None:
    response = api.call("PATCH", "/pools/backfill?wait=30", json={"slots": 40}, meanwhile=api.manager.tick)

    assert response.status_code == 200
    [pool] = api.store.read(Pool, [Condition("name", "=", "backfill")])
    assert (pool.slots, pool.weight) == (40, 1)


def test_a_hundred_who_wait_hold_no_thread_each(api: ApiFixture) -> None:
    """More than the pool of threads has: whoever came after would never be asked for."""
    import asyncio

    import httpx

    backfill_id = api.backfill()

    async def all_of_them() -> list[int]:
        transport = httpx.ASGITransport(api.app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            calls = [client.post(f"/api/v1/backfills/{backfill_id}/pause?wait=60") for _ in range(100)]
            calling = asyncio.gather(*calls)
            while len(api.store.read(Request)) < 100:
                await asyncio.sleep(0)
            api.manager.tick()
            return [one.status_code for one in await calling]

    assert set(asyncio.run(all_of_them())) == {200}


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "x"])
def test_a_wait_that_is_none_is_named(api: ApiFixture, wait: str) -> None:
    response = api.call("POST", f"/backfills/x/pause?wait={wait}")
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "query.wait")


def test_limits_of_a_pools_processes_are_set_and_taken_away(api: ApiFixture) -> None:
    for body, expected in (
        ({"memory_mb": "2 GB", "nice": 12}, (2048, 12)),
        ({"slots": 3}, (2048, 12)),
        ({"memory_mb": 512, "nice": None}, (512, None)),
        ({"memory_mb": "none"}, (None, None)),
    ):
        response = api.call("PATCH", "/pools/backfill?wait=30", json=body, meanwhile=api.manager.tick)
        assert response.status_code == 200, response.text
        (pool,) = [one for one in api.call("GET", "/pools").json()["items"] if one["name"] == "backfill"]
        assert (pool["memory_mb"], pool["nice"]) == expected
    refused = api.call("PATCH", "/pools/backfill", json={"memory_mb": "much"})
    assert (refused.status_code, "`512 MB` or `2 GB`" in refused.text) == (422, True)


def test_a_copy_has_what_was_not_sent_as_it_is_there_secrets_too(api: ApiFixture) -> None:
    conf = {"password": "s3cr3t", "full": True}
    first = api.call("POST", "/backfills", json={**JANUARY, "conf": conf, "priority": 3}).json()["payload"]
    assert first["ask"]["conf"]["password"] == "***"
    body = {"dag_id": "flights", "copy_of": first["backfill_id"], "end_date": "2013-01-05", "priority": 0}
    response = api.call("POST", "/backfills", json=body)
    assert response.status_code == 202, response.text
    asked, copied = (json.loads(request.payload_json)["ask"] for request in api.requests())
    assert copied == {**asked, "end_date": "2013-01-05T00:00:00Z", "priority": 0}
    assert copied["conf"] == conf


def test_a_copy_of_what_is_not_there_is_refused(api: ApiFixture) -> None:
    missing = api.call("POST", "/backfills", json={"dag_id": "flights", "copy_of": "nothing"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "body", "near"),
    [
        ("POST", "/backfills/latest/cancel", {"let_runing_finish": True}, "let_running_finish"),
        ("POST", "/backfills/latest/retry", {"latest_versoin": True}, "latest_version"),
        ("POST", "/backfills/latest/diff", {"tabel": "x"}, "table"),
        ("POST", "/backfills/latest/promote", {"partail": True}, "partial"),
        ("POST", "/backfills/latest/revert", {"dry_runs": True}, "dry_run"),
        ("PATCH", "/backfills/latest", {"priority": 1, "was": {"prioritty": 0}}, "priority"),
        ("POST", "/dags/flights/runs", {"logical_dat": "2013-01-05"}, "logical_date"),
        ("POST", "/dags/flights/clear", {"only_fialed": True}, "only_failed"),
        ("PATCH", "/dags/flights", {"is_pausd": True}, "is_paused"),
        ("PATCH", "/pools/backfill", {"slot": 3}, "slots"),
        ("POST", "/bundles/examples/parse", {"subpaht": "x"}, "subpath"),
    ],
)
def test_an_unknown_field_of_any_body_is_refused_with_the_near_name(
    api: ApiFixture, method: str, path: str, body: dict[str, Any], near: str
) -> None:
    response = api.call(method, path, json=body)
    assert response.status_code == 422
    assert f"; did you mean '{near}'" in response.json()["detail"], response.text


@pytest.mark.parametrize(
    ("address", "field", "body"),
    [
        ("/dags/flights/clear", "run_ids", {}),
        ("/dags/flights/clear", "dates", {}),
        ("/dags/flights/mark", "run_ids", {"state": "failed"}),
        ("/dags/flights/mark", "items", {"state": "failed", "backfill_id": "latest"}),
        ("/backfills/latest/retry", "items", {}),
    ],
)
def test_a_list_that_a_script_has_found_nothing_for_does_not_mean_all(
    api: ApiFixture, address: str, field: str, body: dict[str, Any]
) -> None:
    api.backfill()
    refused = api.call("POST", address, json={**body, field: []})
    assert (refused.status_code, refused.json()["errors"]) == (
        422, [{"field": f"body.{field}", "message": "is empty; leave it out where all are meant"}],
    )  # fmt: skip
    assert api.requests() == []
    schemas = api.app.openapi()["components"]["schemas"]
    for name in ("Clear", "MarkRuns", "Retry"):
        declared = schemas[name]["properties"].get(field, {"minItems": 1})
        assert declared["minItems"] == 1 and "default" not in declared, "a generated client would send it"


def test_a_dag_without_a_name_is_not_any_dag(api: ApiFixture) -> None:
    """As of a variable of the shell that is not set."""
    api.backfill()
    api.manager.tick()
    refused = api.call("POST", "/runs/latest/cancel?dag_id=")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "query.dag_id")
    assert api.requests() == []
