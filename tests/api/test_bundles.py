"""What those ask by API who push their DAGs themselves: parse a path, deactivate a DAG or a path."""

from __future__ import annotations

import json
from datetime import datetime, timezone

from support.api_server import Stage

from backfill_manager.model.records import BundleRow, DagRow
from backfill_manager.schemas import kinds

PUSHED = BundleRow("tests", "/dags", "event", "0", datetime(2024, 1, 1, tzinfo=timezone.utc))


def with_bundle(stage: Stage) -> Stage:
    stage.ground.state.put(PUSHED)
    stage.ground.tick()
    return stage


def activity(stage: Stage) -> dict[str, tuple[bool, bool]]:
    """By DAG: whether it is active, and whether a person has deactivated it."""
    return {row.dag_id: (row.is_active, row.deactivated_by is not None) for row in stage.store.read(DagRow)}


def test_parsing_a_path_is_asked_of_the_manager_word_by_word(stage: Stage) -> None:
    wanted = {"subpath": "team/a.py", "dry_run": True, "deactivate_removed": True}
    told = with_bundle(stage).call("POST", "/bundles/tests/parse", json=wanted)
    assert (told.status_code, told.json()["kind"]) == (202, kinds.BUNDLE_PARSE)
    (request,) = stage.asked()
    assert json.loads(request.payload_json) == {"bundle": "tests", **wanted}


def test_without_a_body_all_of_the_bundle_is_parsed_and_nothing_is_removed(stage: Stage) -> None:
    assert with_bundle(stage).call("POST", "/bundles/tests/parse").status_code == 202
    (request,) = stage.asked()
    assert json.loads(request.payload_json) == {
        "bundle": "tests", "subpath": "", "dry_run": False, "deactivate_removed": False,
    }  # fmt: skip


def test_a_dag_is_deactivated(stage: Stage) -> None:
    told = stage.call("POST", "/dags/flights/deactivate?wait=30", meanwhile=stage.ground.tick)
    assert (told.status_code, told.json()["state"]) == (200, "accepted")
    assert activity(stage) == {"flights": (False, True)}


def test_the_dags_of_a_path_are_deactivated(stage: Stage) -> None:
    with_bundle(stage)
    for subpath, expected in (("dag", (True, False)), ("dag.py", (False, True))):
        body = {"subpath": subpath}
        told = stage.call("POST", "/bundles/tests/deactivate?wait=30", json=body, meanwhile=stage.ground.tick)
        assert told.status_code == 200
        assert activity(stage) == {"flights": expected}


def test_a_bundle_that_there_is_not_is_not_found(stage: Stage) -> None:
    for path, body in (("parse", None), ("deactivate", {"subpath": "a.py"})):
        assert stage.call("POST", f"/bundles/nope/{path}", json=body).status_code == 404
    assert stage.asked() == []
