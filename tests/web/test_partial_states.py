"""A state on disk that is broken, half of it gone, of a newer version, or not there yet: pages and API say so in a sentence,
what does not need the broken table goes on, and all of it works again when it is mended, without a restart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs
from support.page_client import browser_of
from support.sample_state import FilledState, StandingClock

from backfill_manager.clock import SystemClock
from backfill_manager.store.delta_rs.store import DeltaRsStore

RUN = "/dags/flights/runs/backfill__2013-01-01T05:00:00Z"
# What is looked at, and which table it can't do without.
NEEDS = {
    "/dags": "dag",
    "/dags/flights": "task_instance",
    "/dags/flights/versions": "dag_version",
    "/backfills": "backfill",
    "/backfills/b1": "backfill_item",
    RUN: "dag_run",
    f"{RUN}/tasks/clean": "task_log",
    "/pools": "pool",
    "/import-errors": "import_error",
    "/requests": "request",
    "/manager": "manager",
    "/api/v1/backfills": "response",
    "/api/v1/bundles": "bundle",
    f"/api/v1{RUN}/tasks": "task_try",
    "/metrics": "task_instance",
}


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> FilledState:
    found = FilledState(tmp_path_factory.mktemp("half") / "state", StandingClock())
    found.dag()
    found.pools()
    found.backfill("b1", {"success": 1, "failed": 1, "pending": 1})
    found.import_error()
    return found


def browser_at(root: Path) -> TestClient:
    return browser_of(DeltaRsStore(str(root)), SystemClock())


def statuses(browser: TestClient) -> dict[str, int]:
    """Requests every address and checks error pages, too."""
    found = {}
    for address in NEEDS:
        answer = browser.get(address)
        found[address] = answer.status_code
        assert "Traceback (most" not in answer.text, address
        if answer.status_code != 200 and answer.headers["content-type"].startswith("text/html"):
            page = Page(answer.text)
            assert (address, wrongs(page)) == (address, [])
    return found


def broken(found: dict[str, int]) -> set[str]:
    assert set(found.values()) <= {200, 503}, found
    return {address for address, status in found.items() if status == 503}


@pytest.mark.parametrize("table", sorted(set(NEEDS.values())))
def test_a_half_written_commit_is_reported_where_it_matters(state: FilledState, table: str) -> None:
    browser = browser_at(state.root)
    log = state.root / table / "_delta_log"
    half = log / f"{len(list(log.glob('*.json'))):020}.json"
    half.write_text('{"add":{"path":"part-')
    try:
        found, health = statuses(browser), browser.get("/api/v1/health")
    finally:
        half.unlink()
    assert (health.status_code, f"Table {table} at" in health.json()["detail"]) == (503, True), "a probe reports any"
    assert browser.get("/api/v1/health").status_code == 200
    needed = {address for address, one in NEEDS.items() if one == table}
    assert needed <= broken(found)
    assert len(broken(found)) < len(NEEDS), "what does not need it goes on"
    assert broken(statuses(browser)) == set()


@pytest.mark.parametrize("table", ["backfill", "dag", "manager"])
def test_a_table_that_is_gone_is_reported_where_it_matters(state: FilledState, table: str, tmp_path: Path) -> None:
    browser = browser_at(state.root)
    shutil.move(state.root / table, tmp_path / table)
    try:
        found = statuses(browser)
    finally:
        shutil.move(tmp_path / table, state.root / table)
    assert broken(found)
    assert broken(statuses(browser)) == set()


def test_a_state_of_a_newer_release_is_reported_with_what_to_do(state: FilledState) -> None:
    browser = browser_at(state.root)
    first = state.root / "dag" / "_delta_log" / f"{0:020}.json"
    text = first.read_text()
    first.write_text(text.replace('"backfill_manager.state_version":"', '"backfill_manager.state_version":"9'))
    try:
        assert first.read_text() != text
        shown = browser.get("/dags")
        assert (shown.status_code, "Use the newer release that wrote it" in shown.text) == (503, True)
        assert browser.get("/api/v1/dags").status_code == 503
    finally:
        first.write_text(text)
    assert browser.get("/dags").status_code == 200


def test_a_state_that_is_not_made_yet_is_reported_and_works_once_it_is(tmp_path: Path) -> None:
    browser = browser_at(tmp_path / "state")
    for address in (
        "/dags",
        "/backfills",
        "/pools",
        "/import-errors",
        "/requests",
        "/manager",
        "/api/v1/dags",
        "/metrics",
    ):
        shown = browser.get(address)
        assert (shown.status_code, "There is no state at" in shown.text) == (503, True), address
    refused = browser.post("/dags/flights/pause", data={"back": "/dags"})
    assert (refused.status_code, "There is no state at" in refused.text) == (503, True)
    assert not (tmp_path / "state").exists(), "asking makes nothing"
    DeltaRsStore(str(tmp_path / "state")).init()
    assert browser.get("/dags").status_code == 200
