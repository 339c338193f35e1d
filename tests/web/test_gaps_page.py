"""The tab *Gaps* of a DAG: the matrix, and the way from a cell to a backfill."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from support.lake import Lake
from support.page_checks import Page, wrongs
from support.page_client import browser_of
from support.sample_state import FilledState, StandingClock

ADDRESS = "/dags/flights/gaps?start_date=2024-05-01&end_date=2024-05-04"


@pytest.fixture
def browser(tmp_path: Path) -> TestClient:
    state = FilledState(tmp_path / "state", StandingClock())
    Lake(state, tmp_path / "lake").story()
    return browser_of(state.store, state.clock)


def test_a_cell_leads_to_the_form_that_does_its_interval_again(browser: TestClient) -> None:
    answer = browser.get(ADDRESS)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    links = [one for one in page.root.find("a") if "gap" in (one.attributes.get("class") or "").split()]
    assert [one.attributes.get("class").split()[0] for one in links] == ["s-failed", "s-upstream", "s-retry"]
    form = browser.get(links[0].attributes["href"])
    assert form.status_code == 200
    assert parse_qs(urlsplit(links[0].attributes["href"]).query)["dates"] == ["2024-05-02T00:00:00Z"]
    assert "2024-05-02T00:00:00Z</textarea>" in form.text


def test_all_that_is_missing_or_outdated_becomes_a_backfill(browser: TestClient) -> None:
    page = Page(browser.get(ADDRESS).text)
    buttons = {
        one.whole_text: one.attributes["href"]
        for one in page.root.find("a")
        if "button" in (one.attributes.get("class") or "")
    }
    missing = parse_qs(urlsplit(buttons["Backfill what is missing"]).query)
    assert (missing["kind"], missing["by"], missing["start_date"]) == (["missing"], ["data"], ["2024-05-01"])
    form = browser.get(buttons["Backfill what is missing"]).text
    assert '<option value="data" selected>' in form
    assert 'value="outdated" checked' in browser.get(buttons["Backfill what is outdated"]).text


def test_nothing_is_found(browser: TestClient) -> None:
    assert "No gaps" in browser.get("/dags/flights/gaps?start_date=2024-05-01&end_date=2024-05-01").text
