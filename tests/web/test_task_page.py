"""The page of a task: its log as a file."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page

from backfill_manager.testing import InMemoryManager
from backfill_manager.web.pages import runs

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"


def test_the_log_is_a_text_file_of_all_attempts_or_of_one(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOG_LINES", 2)  # so that it is read in pieces
    whole = busy.get(f"{RUN}/tasks/clean/log.txt")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    name = "shop-backfill__2024-01-13T00_00_00Z-clean"
    assert whole.headers["content-disposition"] == f'attachment; filename="{name}.log"'
    lines = whole.text.splitlines()
    assert [line.partition("Z ")[2] or line for line in lines] == [
        line
        for n in (1, 2)
        for line in (
            f"--- attempt {n}, start {n} ---", "INFO     336,776 rows read",
            "WARNING  3 rows <without> an order number", "INFO     written",
        )
    ]  # fmt: skip
    second = busy.get(f"{RUN}/tasks/clean/log.txt?try=2")
    assert second.text.splitlines() == lines[4:]
    assert f'filename="{name}-try-2.log"' in second.headers["content-disposition"]
    assert busy.get(f"{RUN}/tasks/nothing/log.txt").status_code == 404
    assert busy.get(f"{RUN}/tasks/publish/log.txt").text == ""


def test_a_file_of_too_many_lines_is_cut_and_says_so(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOG_LINES", 2)
    monkeypatch.setattr(runs, "MAX_DOWNLOAD", 4)
    *lines, last = busy.get(f"{RUN}/tasks/clean/log.txt").text.splitlines()
    assert last == "--- cut after 4 lines; download single attempts ---"
    assert len([line for line in lines if not line.startswith("---")]) == 4


def test_each_line_has_its_own_address(busy: TestClient, busy_ground_of_module: InMemoryManager) -> None:
    page = Page(busy.get(f"{RUN}/tasks/clean").text)
    numbers = [one for one in page.root.all() if one.attributes.get("class") == "line-number"]
    assert [one.attributes["href"] for one in numbers] == ["#L2", "#L3", "#L4", "#L2.2", "#L2.3", "#L2.4"]
    assert {f"#{one.attributes['id']}" for one in page.root.all() if one.attributes.get("id")} >= {
        one.attributes["href"] for one in numbers
    }


def test_the_durations_of_the_last_runs_lead_to_them(busy: TestClient) -> None:
    page = Page(busy.get(f"{RUN}/tasks/clean").text)
    (card,) = (one for one in page.root.all() if one.attributes.get("id") == "task-durations")
    (picture,) = card.find("svg")[:1]
    bars = picture.find("a")
    assert 1 < len(bars) <= runs.MAX_DURATIONS
    links = [str(bar.attributes["href"]) for bar in bars]
    assert [row.find("a")[0].attributes["href"] for row in card.find("tbody")[0].find("tr")] == links[::-1]
    (here,) = (bar for bar in bars if bar.attributes.get("aria-current"))
    assert here.attributes["href"] == f"{RUN}/tasks/clean"
    assert str(here.attributes["aria-label"]).startswith("backfill__2024-01-13T00:00:00Z: success, ")
    assert {busy.get(link).status_code for link in links[:3]} == {200}
