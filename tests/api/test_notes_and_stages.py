"""Notes on runs and backfills, and Spark stages of tries, over REST."""

from __future__ import annotations

import pytest
from support.api_server import ApiFixture
from support.busy_state import STAGES

from backfill_manager.execution.messages import Succeeded


def a_run(api: ApiFixture) -> tuple[str, str]:
    """The ids of a backfill and of its only run, whose first task has ended, with Spark stages."""
    backfill_id = api.backfill(1)
    api.manager.tick()
    api.manager.tick()
    [launch] = api.manager.running.values()
    api.manager.finish(launch.key, Succeeded(), spark_jobs=(3,), spark_stages=STAGES)
    api.manager.tick()
    [run] = api.manager.runs("flights")
    return backfill_id, run.run_id


@pytest.mark.parametrize("of", ["run", "run of a DAG", "backfill"])
def test_a_note_is_written_changed_and_removed(api: ApiFixture, of: str) -> None:
    backfill_id, run_id = a_run(api)
    path = {
        "run": f"/runs/{run_id}",
        "run of a DAG": f"/dags/flights/runs/{run_id}",
        "backfill": f"/backfills/{backfill_id}",
    }[of]
    assert api.call.get(path)["note"] is None

    answer = api.call("PATCH", f"{path}/note", json={"text": " Late:\r\npassword=hunter2 ", "was": ""})
    assert answer.status_code == 202 and answer.json()["payload"]["text"] == "Late:\npassword=***"
    api.manager.tick()
    seen = api.call.get(path)
    assert (seen["note"], seen["note_by"]) == ("Late:\npassword=***", "local") and seen["note_at"].endswith("Z")
    listed = api.call.get("/backfills" if of == "backfill" else "/runs")["items"]
    assert [one["note"] for one in listed] == [seen["note"]]

    api.call("PATCH", f"{path}/note", json={"text": "mine", "was": "another"})
    api.manager.tick()
    refused = api.call.get("/requests?limit=1")["items"][0]
    assert refused["outcome"] == "refused" and "somebody has changed it in the meantime" in refused["message"]
    assert api.call.get(path)["note"] == seen["note"]

    assert api.call("PATCH", f"{path}/note", json={"text": ""}).status_code == 202
    api.manager.tick()
    assert api.call.get(path)["note"] is None


def test_a_note_with_if_match_needs_the_run_as_it_was_seen(api: ApiFixture) -> None:
    _, run_id = a_run(api)
    path = f"/dags/flights/runs/{run_id}"
    seen = api.call("GET", path).headers["etag"]
    assert api.call("PATCH", f"{path}/note", json={"text": "why"}, headers={"If-Match": '"other"'}).status_code == 412
    assert api.call("PATCH", f"{path}/note", json={"text": "why"}, headers={"If-Match": seen}).status_code == 202


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "text"), ({"text": 1}, "text"), ({"text": "x" * 4001}, "text"), ({"text": "x", "note": "y"}, "note")],
)
def test_a_body_that_is_no_note_is_refused_with_its_field(api: ApiFixture, body: dict[str, object], field: str) -> None:
    backfill_id, _ = a_run(api)
    answer = api.call("PATCH", f"/backfills/{backfill_id}/note", json=body)
    assert answer.status_code == 422 and [one["field"] for one in answer.json()["errors"]] == [f"body.{field}"]


def test_spark_stages_are_added_up_in_lists_and_single_ones_are_shown_of_one_task(api: ApiFixture) -> None:
    _, run_id = a_run(api)
    [listed] = api.call.get(f"/runs/{run_id}/tasks")["tries"]
    [alone] = api.call.get(f"/runs/{run_id}/tasks?task_id=clean")["tries"]
    assert alone["spark_stages"] == STAGES.model_dump(mode="json")
    assert listed["spark_stages"] == {**alone["spark_stages"], "longest": []}
    api.manager.drain()
