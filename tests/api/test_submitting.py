"""A change is a request: 202 and where to look, or with `wait` the manager's answer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.api_server import Stage, bearer, with_tokens

from backfill_manager.clock import parse_instant
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun, Pool, Request
from backfill_manager.requests import submit
from backfill_manager.store.base import Condition
from backfill_manager.testing import dag_spec

JANUARY = {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31"}


def test_a_change_is_a_request_and_says_where_its_answer_will_be(stage: Stage) -> None:
    backfill_id = stage.backfill()

    told = stage.call("POST", f"/backfills/{backfill_id}/pause")

    assert told.status_code == 202
    asked = told.json()
    assert (asked["kind"], asked["state"], asked["answer"]) == ("backfill.pause", "waiting", None)
    assert told.headers["location"] == f"/api/v1/requests/{asked['request_id']}"
    assert stage.call.get(told.headers["location"]) == {**asked, "result": None}
    stage.ground.tick()
    assert stage.call.get(told.headers["location"])["state"] == "accepted"
    assert stage.call.get(f"/backfills/{backfill_id}")["state"] == "paused"


def test_whoever_waits_gets_the_managers_answer(stage: Stage) -> None:
    backfill_id = stage.backfill()

    told = stage.call("POST", f"/backfills/{backfill_id}/pause?wait=30", meanwhile=stage.ground.tick)

    assert (told.status_code, told.json()["state"]) == (200, "accepted")
    assert told.json()["answer"]["message"] == f"backfill {backfill_id} is paused; running items continue"
    assert told.json()["object_id"] == backfill_id


def test_an_answer_that_does_not_come_in_time_is_still_202(stage: Stage) -> None:
    told = stage.call("POST", f"/backfills/{stage.backfill()}/pause?wait=0.05")
    assert (told.status_code, told.json()["state"]) == (202, "waiting")


def test_what_the_manager_refuses_is_a_conflict_with_its_reason(stage: Stage) -> None:
    backfill_id = stage.backfill()
    stage.call("POST", f"/backfills/{backfill_id}/cancel")  # the manager will read that first

    def once_both_are_there() -> None:
        if len(stage.asked()) == 2:
            stage.ground.tick()

    told = stage.call("POST", f"/backfills/{backfill_id}/pause?wait=30", meanwhile=once_both_are_there)

    assert told.status_code == 409
    problem = told.json()
    assert problem["type"] == "urn:backfill-manager:problem:refused"
    assert told.headers["location"].startswith("/api/v1/requests/")


def test_what_can_be_refused_at_once_asks_nobody(stage: Stage) -> None:
    before = len(stage.asked())
    for method, path, body, status, word in (
        ("POST", "/backfills", {**JANUARY, "dag_id": "flihgts"}, 404, "did you mean 'flights'"),
        ("POST", "/backfills", {**JANUARY, "end_date": "2012-01-01"}, 422, "start_date 2013-01-01T00:00:00Z is after"),
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
        told = stage.call(method, path, json=body)
        assert (told.status_code, word in told.json()["detail"]) == (status, True), (path, body, told.text)
    assert len(stage.asked()) == before


def test_a_backfill_can_be_looked_at_before_it_is_made(stage: Stage) -> None:
    told = stage.call("POST", "/backfills", json={**JANUARY, "priority": 5, "conf": {"full": True}})

    backfill_id = told.json()["payload"]["backfill_id"]
    found = stage.call.get(f"/backfills/{backfill_id}")
    assert (found["state"], found["reason"], found["priority"]) == ("queued", "waiting for the manager", 5)
    assert [one["backfill_id"] for one in stage.call.get("/backfills")["items"]] == [backfill_id]


def test_an_end_is_its_whole_day_may_be_left_out_and_lie_in_the_future(stage: Stage) -> None:
    stage.ground.add_dag(dag_spec("hours", "one", schedule="@hourly", start_date=parse_instant("2023-12-01T00:00:00Z")))
    stage.ground.commit()

    def config(**said: Any) -> dict[str, Any]:
        told = stage.call("POST", "/backfills", json={"dag_id": "hours", **said})
        assert told.status_code == 202, told.text
        found: dict[str, Any] = stage.call.get(f"/backfills/{told.json()['payload']['backfill_id']}")
        return {**found["config"], "first_waits": not found["ignore_first_depends_on_past"]}

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


def test_overrides_of_a_backfill_that_runs_are_looked_at_as_those_of_a_new_one(stage: Stage) -> None:
    backfill_id = stage.backfill()
    for overrides, word in (
        ({"pool": "nope"}, "there is no pool 'nope'"),
        ({"clean.pool": "scheduled"}, "is for scheduled runs"),
        ({"retries": "many"}, "retries must be a whole number"),
        ({"nope.retries": 1}, "has no task 'nope'"),
    ):
        told = stage.call("PATCH", f"/backfills/{backfill_id}", json={"overrides": overrides})
        assert (told.status_code, word in told.json()["detail"]) == (422, True), told.text


def test_a_backfill_that_is_made_while_one_waits_is_201_at_its_own_address(stage: Stage) -> None:
    def plan() -> None:
        for request in stage.store.unanswered():
            stage.answer(request, "accepted", "made", submit.id_from(request.request_id))

    told = stage.call("POST", "/backfills?wait=30", json=JANUARY, meanwhile=plan)

    assert (told.status_code, told.json()["state"]) == (201, "accepted")
    assert told.headers["location"] == f"/api/v1/backfills/{told.json()['object_id']}"


def test_a_dry_run_is_planned_by_the_manager_and_makes_nothing(stage: Stage) -> None:
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
        for request in stage.store.unanswered():
            stage.answer(request, "accepted", "planned", None, plan)

    told = stage.call("POST", "/backfills/dry_run", json=JANUARY, meanwhile=answer)

    assert (told.status_code, told.json()) == (200, plan)
    assert stage.call.get("/backfills")["items"] == []


def test_a_dry_run_needs_a_living_manager_and_says_so(stage: Stage) -> None:
    stage.ground.leader.resign(stage.clock.now())

    told = stage.call("POST", "/backfills/dry_run", json=JANUARY)

    assert told.status_code == 503
    assert "none is running" in told.json()["detail"]
    assert stage.asked() == []


def test_without_a_manager_reads_go_on_and_changes_wait(stage: Stage) -> None:
    backfill_id = stage.backfill()
    stage.ground.leader.resign(stage.clock.now())

    health = stage.call.get("/health")
    assert (health["status"], health["manager"], health["leader"]["leading"]) == ("ok", "none", False)
    assert stage.call.get(f"/backfills/{backfill_id}")["pending"] == 3
    assert stage.call("POST", f"/backfills/{backfill_id}/pause").status_code == 202


def test_the_same_key_with_the_same_body_makes_one_request(stage: Stage) -> None:
    key = {"Idempotency-Key": "monday's"}

    first = stage.call("POST", "/backfills", json=JANUARY, headers=key)
    again = stage.call("POST", "/backfills", json=dict(reversed(JANUARY.items())), headers=key)

    assert first.json() == again.json()
    assert len(stage.asked()) == 1


def test_a_repeated_request_is_told_its_answer_whatever_has_become_of_the_thing(stage: Stage) -> None:
    backfill_id, key = stage.backfill(), {"Idempotency-Key": "c1"}
    first = stage.call("POST", f"/backfills/{backfill_id}/cancel?wait=30", headers=key, meanwhile=stage.ground.tick)
    stage.ground.drain()
    assert stage.ground.row(backfill_id).state == s.CANCELLED

    again = stage.call("POST", f"/backfills/{backfill_id}/cancel", headers=key)

    assert (again.status_code, again.json()) == (200, first.json())
    without = stage.call("POST", f"/backfills/{backfill_id}/cancel")
    assert (without.status_code, "has ended" in without.json()["detail"]) == (409, True)


def test_the_same_key_for_something_else_is_a_mistake(stage: Stage) -> None:
    key = {"Idempotency-Key": "k"}
    stage.call("POST", "/backfills", json=JANUARY, headers=key)

    for path, body in (("/backfills", {**JANUARY, "priority": 1}), ("/dags/flights/runs", JANUARY)):
        told = stage.call("POST", path, json=body, headers=key)
        assert told.status_code == 422, told.text
    assert len(stage.asked()) == 1


def test_the_same_key_for_the_run_of_another_dag_is_a_mistake(stage: Stage) -> None:
    """What a change is about may stand behind the question mark; how long its answer is waited for is no part of it."""
    stage.backfill()
    stage.ground.tick()
    key = {"Idempotency-Key": "once"}
    first = stage.call("POST", "/runs/latest/cancel?dag_id=flights&wait=0.1", headers=key)
    again = stage.call("POST", "/runs/latest/cancel?wait=0&dag_id=flights", headers=key)
    other = stage.call("POST", "/runs/latest/cancel?dag_id=others", headers=key)
    assert (first.status_code, again.json()["request_id"]) == (202, first.json()["request_id"])
    assert (other.status_code, len(stage.asked())) == (422, 1)


def test_an_expression_that_cannot_be_matched_in_linear_time_is_refused(stage: Stage) -> None:
    for path, body in (
        ("/dags/flights/clear", {"tasks": "(?=clean)"}),
        (
            "/backfills",
            {"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-02", "tasks": "(clean)\\1"},
        ),
    ):
        told = stage.call("POST", path, json=body)
        assert (told.status_code, "can't be matched in linear time" in told.json()["detail"]) == (422, True)
    assert stage.asked() == []


def test_a_key_is_a_persons_own() -> None:
    stage = Stage(with_tokens())
    for name in ("olga", "oleg"):
        headers = {"Idempotency-Key": "k", **bearer(name)}
        assert stage.call("POST", "/backfills", json=JANUARY, headers=headers).status_code == 202
    assert [row.requested_by for row in stage.asked()] == ["olga", "oleg"]


def test_the_audit_trail_says_who_what_when_and_from_where() -> None:
    stage = Stage(with_tokens())
    backfill_id = stage.backfill()
    stage.call.address = ("192.0.2.7", 4000)

    told = stage.call("POST", f"/backfills/{backfill_id}/pause", headers=bearer("oleg"))

    [row] = stage.asked()
    assert (row.requested_by, row.source, row.requested_from) == ("oleg", "api", "192.0.2.7")
    assert told.json()["requested_from"] == "192.0.2.7"


def test_settings_of_a_backfill_change_while_it_runs(stage: Stage) -> None:
    backfill_id = stage.backfill()
    changes = {"priority": 7, "max_active_runs": 1, "window": None, "overrides": {"retries": 2}, "conf": {"a": 1}}

    told = stage.call("PATCH", f"/backfills/{backfill_id}?wait=30", json=changes, meanwhile=stage.ground.tick)

    assert told.status_code == 200, told.text
    found = stage.call.get(f"/backfills/{backfill_id}")
    assert {name: found[name] for name in changes} == changes


def test_two_who_change_the_same_backfill_both_get_their_word(stage: Stage) -> None:
    backfill_id = stage.backfill()
    for changes in ({"priority": 1}, {"max_active_runs": 2}):
        assert stage.call("PATCH", f"/backfills/{backfill_id}", json=changes).status_code == 202
    stage.ground.tick()
    found = stage.call.get(f"/backfills/{backfill_id}")
    assert (found["priority"], found["max_active_runs"]) == (1, 2)


def test_a_change_that_says_what_it_saw_overwrites_nothing_unseen(stage: Stage) -> None:
    backfill_id = stage.backfill()
    path = f"/backfills/{backfill_id}?wait=30"
    mine = {"priority": 1, "window": "20:00-06:00", "was": {"priority": 0, "window": None}}
    assert stage.call("PATCH", path, json=mine, meanwhile=stage.ground.tick).status_code == 200

    theirs = {"priority": 2, "was": {"priority": 0}}
    told = stage.call("PATCH", path, json=theirs, meanwhile=stage.ground.tick)

    assert (told.status_code, told.json()["detail"].startswith("priority is 1 now, not 0")) == (409, True)
    found = stage.call.get(f"/backfills/{backfill_id}")
    assert (found["priority"], found["window"]) == (1, "20:00-06:00")
    assert [json.loads(one.payload_json).get("was") for one in stage.asked()] == [mine["was"], theirs["was"]]


def test_a_change_that_saw_none_where_there_is_one_is_refused(stage: Stage) -> None:
    backfill_id = stage.backfill()
    changes = {"priority": 1, "was": {"priority": None}}
    told = stage.call("PATCH", f"/backfills/{backfill_id}?wait=30", json=changes, meanwhile=stage.ground.tick)
    assert (told.status_code, told.json()["detail"].startswith("priority is 0 now, not null")) == (409, True)


@pytest.mark.parametrize(
    ("was", "words"),
    [
        ({"pool": "backfill"}, "'was' tells of 'pool', which is not to be changed"),
        ({"prioritty": 0}, "prioritty"),
        ({"priority": "0"}, "valid integer"),
        ([], "was"),
    ],
)
def test_what_it_saw_must_be_of_what_it_changes(stage: Stage, was: object, words: str) -> None:
    told = stage.call("PATCH", f"/backfills/{stage.backfill()}", json={"priority": 1, "was": was})
    assert (told.status_code, words in told.text) == (422, True)


def test_deleting_cancels_and_hides_and_nothing_is_lost(stage: Stage) -> None:
    backfill_id, other = stage.backfill(), stage.backfill(1)

    told = stage.call("DELETE", f"/backfills/{backfill_id}?wait=30", meanwhile=stage.ground.tick)
    stage.ground.drain()

    assert told.status_code == 200
    assert [one["backfill_id"] for one in stage.call.get("/backfills")["items"]] == [other]
    found = stage.call.get(f"/backfills/{backfill_id}")
    assert (found["state"], found["hidden_at"] is not None, found["cancelled"]) == ("cancelled", True, 3)


def test_the_latest_is_the_newest_that_is_not_hidden(stage: Stage) -> None:
    older = stage.backfill()
    stage.clock.advance(seconds=1)
    newer = stage.backfill(1)
    assert stage.call.get("/backfills/latest")["backfill_id"] == newer
    stage.call("DELETE", f"/backfills/{newer}?wait=30", meanwhile=stage.ground.tick)
    stage.ground.drain()
    assert stage.call.get("/backfills/latest")["backfill_id"] == older
    stage.call("DELETE", f"/backfills/{older}?wait=30", meanwhile=stage.ground.tick)
    stage.ground.drain()
    assert stage.call("GET", "/backfills/latest").status_code == 404


def test_a_backfill_that_has_ended_can_be_hidden_and_comes_back_when_it_is_retried(stage: Stage) -> None:
    backfill_id = stage.backfill(1)
    stage.ground.drain()
    [launch] = stage.ground.running.values()
    from backfill_manager.execution.messages import Failed

    stage.ground.finish(launch.key, Failed("no"))
    stage.ground.drain()
    assert stage.ground.row(backfill_id).state == s.FAILED

    stage.call("DELETE", f"/backfills/{backfill_id}")
    stage.ground.drain()
    assert stage.call.get("/backfills")["items"] == []
    stage.call("POST", f"/backfills/{backfill_id}/retry")
    stage.ground.drain()
    assert [one["backfill_id"] for one in stage.call.get("/backfills")["items"]] == [backfill_id]


def test_a_dag_is_paused_and_goes_on(stage: Stage) -> None:
    for is_paused in (False, True):
        stage.call("PATCH", "/dags/flights?wait=30", json={"is_paused": is_paused}, meanwhile=stage.ground.tick)
        assert stage.call.get("/dags/flights")["is_paused"] is is_paused
    assert [row.is_paused for row in stage.store.read(DagRow)] == [True]


def test_a_run_by_hand_is_made_marked_and_cleared(stage: Stage) -> None:
    wanted = {"logical_date": "2013-01-05", "conf": {"full": True}}
    made = stage.call("POST", "/dags/flights/runs?wait=30", json=wanted, meanwhile=stage.ground.tick)
    assert made.status_code == 201, made.text
    run = stage.call.get(made.headers["location"])
    assert (run["run_type"], run["logical_date"], run["conf"]) == ("manual", "2013-01-05T00:00:00Z", {"full": True})

    run_id = run["run_id"]
    marked = stage.call("POST", f"/runs/{run_id}/mark?wait=30", json={"state": "success"}, meanwhile=stage.ground.tick)
    assert marked.status_code == 200, marked.text
    stage.ground.drain()
    assert stage.call.get(f"/runs/{run_id}")["state"] == "success"

    plan = stage.call("POST", "/dags/flights/clear", json={"dry_run": True, "run_ids": [run_id]})
    assert (plan.status_code, plan.json()["summary"]) == (
        200,
        {"runs": 1, "tasks": 2, "running": 0, "stay_upstream_failed": 0},
    )
    cleared = stage.call("POST", "/dags/flights/clear?wait=30", json={"run_ids": [run_id]}, meanwhile=stage.ground.tick)
    assert cleared.json()["answer"]["message"] == "cleared 2 tasks in 1 run"
    cancelled = stage.call("POST", f"/runs/{run_id}/cancel?wait=30", meanwhile=stage.ground.tick)
    assert cancelled.status_code == 200, cancelled.text


def test_a_run_by_hand_of_a_date_in_the_future_is_refused_unless_it_is_asked_for(stage: Stage) -> None:
    ahead = (stage.clock.now() + timedelta(days=40)).replace(microsecond=0)
    for date in (f"{ahead:%Y-%m-%d}", f"{ahead:%Y-%m-%dT%H:%M:%SZ}"):
        for more in ({}, {"allow_future": False}):
            told = stage.call("POST", "/dags/flights/runs?wait=30", json={"logical_date": date, **more})
            assert told.status_code == 422, told.text
            said = told.json()["detail"]
            assert said.startswith(f"logical_date {ahead:%Y-%m-%d}T") and said.endswith("add allow_future")
            assert "--" not in said and len(said.splitlines()) == 1
    assert stage.asked() == []
    wrong = stage.call("POST", "/dags/flights/runs", json={"allow_future": "yes"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "body.allow_future")

    wanted = {"logical_date": f"{ahead:%Y-%m-%d}", "allow_future": True}
    made = stage.call("POST", "/dags/flights/runs?wait=30", json=wanted, meanwhile=stage.ground.tick)
    assert made.status_code == 201, made.text
    assert stage.call.get(made.headers["location"])["logical_date"] == f"{ahead:%Y-%m-%d}T00:00:00Z"


@pytest.mark.parametrize(
    ("which", "chosen"),
    [
        ({}, ["clean", "delays"]),
        ({"with_upstream": False}, ["delays"]),
        ({"tasks": "^clean$"}, ["clean"]),
        ({"tasks": "^clean$", "with_downstream": True}, ["clean", "delays"]),
    ],
)
def test_a_backfill_of_some_tasks_takes_along_what_is_said_and_its_runs_tell_whether_they_are_partial(
    stage: Stage, which: dict[str, Any], chosen: list[str]
) -> None:
    wanted = {**JANUARY, "tasks": "^delays$", **which}
    told = stage.call("POST", "/backfills", json=wanted)
    assert told.status_code == 202, told.text
    asked = stage.call.get(f"/backfills/{told.json()['payload']['backfill_id']}")
    fields = ("tasks", "with_upstream", "with_downstream")
    settings = {name: asked[name] for name in fields}
    assert settings == {
        "with_upstream": True,
        "with_downstream": False,
        **{n: wanted[n] for n in fields if n in wanted},
    }

    stage.ground.script = lambda _: Succeeded()
    stage.backfill(1, **settings)
    stage.ground.drain()
    assert [launch.task.task_id for launch in stage.ground.launched] == chosen
    (run,) = stage.call.get("/runs")["items"]
    is_partial = len(chosen) < 2
    assert run["is_partial"] is is_partial
    for address in (f"/runs/{run['run_id']}", f"/dags/flights/runs/{run['run_id']}"):
        assert stage.call.get(address)["is_partial"] is is_partial
    assert [one["is_partial"] for one in stage.call.get("/dags/flights/runs")["items"]] == [is_partial]


def test_a_task_is_marked_by_its_run(stage: Stage) -> None:
    stage.backfill(1)
    stage.ground.drain()
    [run] = stage.store.read(DagRun)

    told = stage.call(
        "POST", f"/runs/{run.run_id}/mark?wait=30&dag_id=flights", json={"state": "skipped", "task_id": "clean"},
        meanwhile=stage.ground.tick,
    )  # fmt: skip

    assert (told.status_code, told.json()["kind"]) == (200, "task.mark")


def test_a_pool_gets_more_slots_and_keeps_the_rest(stage: Stage) -> None:
    told = stage.call("PATCH", "/pools/backfill?wait=30", json={"slots": 40}, meanwhile=stage.ground.tick)

    assert told.status_code == 200
    [pool] = stage.store.read(Pool, [Condition("name", "=", "backfill")])
    assert (pool.slots, pool.weight) == (40, 1)


def test_a_hundred_who_wait_hold_no_thread_each(stage: Stage) -> None:
    """More than the pool of threads has: whoever came after would never be asked for."""
    import asyncio

    import httpx

    backfill_id = stage.backfill()

    async def all_of_them() -> list[int]:
        transport = httpx.ASGITransport(stage.app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            calls = [client.post(f"/api/v1/backfills/{backfill_id}/pause?wait=60") for _ in range(100)]
            calling = asyncio.gather(*calls)
            while len(stage.store.read(Request)) < 100:
                await asyncio.sleep(0)
            stage.ground.tick()
            return [one.status_code for one in await calling]

    assert set(asyncio.run(all_of_them())) == {200}


@pytest.mark.parametrize("wait", ["-1", "61", "nan", "x"])
def test_a_wait_that_is_none_is_named(stage: Stage, wait: str) -> None:
    told = stage.call("POST", f"/backfills/x/pause?wait={wait}")
    assert (told.status_code, told.json()["errors"][0]["field"]) == (422, "query.wait")
