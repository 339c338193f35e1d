"""Backfills over HTTP: asked for, tried out, changed while they run, hidden and copied."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.api_server import JANUARY, ApiFixture

from backfill_manager.clock import parse_instant
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model import states as s
from backfill_manager.requests import submit
from backfill_manager.testing import dag_spec, days


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
