"""A change is a request: 202 and where to look, or with `wait` the manager's answer."""

from __future__ import annotations

from typing import Any

import pytest
from support.api_server import JANUARY, ApiFixture, bearer, with_tokens

from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, Pool, Request
from backfill_manager.store.base import Condition


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


def test_a_dag_is_paused_and_goes_on(api: ApiFixture) -> None:
    for is_paused in (False, True):
        api.call("PATCH", "/dags/flights?wait=30", json={"is_paused": is_paused}, meanwhile=api.manager.tick)
        assert api.call.get("/dags/flights")["is_paused"] is is_paused
    assert [row.is_paused for row in api.store.read(DagRow)] == [True]


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
