"""Runs and tasks over HTTP: triggered, marked, cleared, with their parameters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.api_server import JANUARY, ApiFixture

from backfill_manager.model.records import DagRun
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.testing import dag_spec, days


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


def test_a_task_is_marked_by_its_run(api: ApiFixture) -> None:
    api.backfill(1)
    api.manager.drain()
    [run] = api.store.read(DagRun)

    response = api.call(
        "POST", f"/runs/{run.run_id}/mark?wait=30&dag_id=flights", json={"state": "skipped", "task_id": "clean"},
        meanwhile=api.manager.tick,
    )  # fmt: skip

    assert (response.status_code, response.json()["kind"]) == (200, "task.mark")
