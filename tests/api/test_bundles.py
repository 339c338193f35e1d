"""What those ask by API who push their DAGs themselves: parse a path, deactivate a DAG or a path."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from support.api_server import ApiFixture
from support.scenarios import refused

from backfill_manager.model.records import BundleRow, DagRow
from backfill_manager.schemas import request_kinds

PUSHED = BundleRow("tests", "/dags", "event", "0", datetime(2024, 1, 1, tzinfo=timezone.utc))


def with_bundle(api: ApiFixture) -> ApiFixture:
    api.manager.state.put(PUSHED)
    api.manager.tick()
    return api


def activity(api: ApiFixture) -> dict[str, tuple[bool, bool]]:
    """By DAG: whether it is active, and whether a person has deactivated it."""
    return {row.dag_id: (row.is_active, row.deactivated_by is not None) for row in api.store.read(DagRow)}


def test_parsing_a_path_is_submitted_as_it_was_sent(api: ApiFixture) -> None:
    expected = {"subpath": "team/a.py", "dry_run": True, "deactivate_removed": True}
    response = with_bundle(api).call("POST", "/bundles/tests/parse", json=expected)
    assert (response.status_code, response.json()["kind"]) == (202, request_kinds.BUNDLE_PARSE)
    (request,) = api.requests()
    assert json.loads(request.payload_json) == {"bundle": "tests", **expected}


def test_without_a_body_all_of_the_bundle_is_parsed_and_nothing_is_removed(api: ApiFixture) -> None:
    assert with_bundle(api).call("POST", "/bundles/tests/parse").status_code == 202
    (request,) = api.requests()
    assert json.loads(request.payload_json) == {
        "bundle": "tests", "subpath": "", "dry_run": False, "deactivate_removed": False,
    }  # fmt: skip


def test_a_dag_is_deactivated(api: ApiFixture) -> None:
    response = api.call("POST", "/dags/flights/deactivate?wait=30", meanwhile=api.manager.tick)
    assert (response.status_code, response.json()["state"]) == (200, "accepted")
    assert activity(api) == {"flights": (False, True)}


@pytest.mark.parametrize("path", ["dag.py", "./dag.py"])
def test_the_dags_of_a_path_are_deactivated(api: ApiFixture, path: str) -> None:
    with_bundle(api)
    for subpath, status, expected in (("dag", 409, (True, False)), (path, 200, (False, True))):
        body = {"subpath": subpath}
        response = api.call("POST", "/bundles/tests/deactivate?wait=30", json=body, meanwhile=api.manager.tick)
        assert response.status_code == status
        assert activity(api) == {"flights": expected}
    again = api.call("POST", "/bundles/tests/deactivate?wait=30", json={"subpath": path}, meanwhile=api.manager.tick)
    assert (again.status_code, again.json()["message"]) == (
        200,
        f"{path.removeprefix('./')} of bundle tests has no active DAG",
    )


def test_a_bundle_that_there_is_not_is_not_found(api: ApiFixture) -> None:
    for path, body in (("parse", None), ("deactivate", {"subpath": "a.py"})):
        assert api.call("POST", f"/bundles/nope/{path}", json=body).status_code == 404
    assert api.requests() == []


def test_a_bundle_that_is_gone_when_the_manager_reads_the_request_is_refused(api: ApiFixture) -> None:
    assert refused(api.manager, request_kinds.BUNDLE_DEACTIVATE, bundle="nope", subpath="").startswith(
        "There is no bundle 'nope'"
    )
