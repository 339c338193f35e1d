"""The zone of the times on pages: every one says it, and one choice holds for all of a page."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from backfill_manager.model.records import Backfill
from backfill_manager.testing import InMemoryManager
from backfill_manager.web.page import ZONE_COOKIE

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"
PAGES = (
    "/dags", "/dags/shop", "/dags/shop/timeline", "/dags/shop/versions", "/dags/shop/day/2024-01-12", "/backfills", "{shop}",
    RUN, f"{RUN}/tasks/clean", f"{RUN}/tasks/clean/log", "/requests", "/manager", "/tables/one?table=bronze.orders",
    "/import-errors",
)  # fmt: skip
ZONES = {"": "CET", "utc": "UTC", "mine:Asia/Tokyo": "JST"}


def texts_of_times(browser: TestClient, manager: InMemoryManager, page: str) -> list[str]:
    """What the page shows of instants, without how long ago they were."""
    newest = {row.dag_id: row.backfill_id for row in manager.store.read(Backfill, order_by=["created_at"])}
    answer = browser.get(page.format(shop=f"/backfills/{newest['shop']}"))
    assert answer.status_code == 200
    return re.findall(r"<time(?![^>]*class=)[^>]*>([^<]*)</time>", answer.text)


@pytest.mark.parametrize("choice", ZONES)
def test_every_time_of_every_page_says_its_zone_which_is_the_chosen_one(
    busy: TestClient, busy_ground_of_module: InMemoryManager, choice: str
) -> None:
    if choice:
        busy.cookies.set(ZONE_COOKIE, choice)
    shown = {page: texts_of_times(busy, busy_ground_of_module, page) for page in PAGES}
    assert all(shown[page] for page in (RUN, f"{RUN}/tasks/clean", f"{RUN}/tasks/clean/log", "{shop}", "/manager"))
    for page, texts in shown.items():
        of_no_dag = not choice and not page.startswith(("/dags/shop", "{shop}", "/tables"))  # several DAGs, or none
        for text in texts:
            if ":" in text:
                assert text.endswith((" UTC", " CET") if of_no_dag else f" {ZONES[choice]}"), (page, text)


def test_logical_dates_follow_and_are_written_whole_where_they_are_no_midnight(busy: TestClient) -> None:
    assert ">2024-01-13 01:00 CET<" in busy.get(RUN).text
    busy.cookies.set(ZONE_COOKIE, "utc")
    assert ">2024-01-13<" in busy.get(RUN).text


@pytest.mark.parametrize(
    "wrong", ["mine:", "mine:Mars/Olympus", "mine:../../etc/passwd", "mine:Europe", "x", "mine:" + "a" * 5000]
)
def test_a_choice_that_is_none_is_left_alone(busy: TestClient, wrong: str) -> None:
    busy.cookies.set(ZONE_COOKIE, wrong)
    assert " CET</time>" in busy.get(RUN).text


def test_the_page_says_what_is_chosen(busy: TestClient) -> None:
    assert '<option value="" selected>' in busy.get("/dags").text
    busy.cookies.set(ZONE_COOKIE, "mine:UTC")
    assert '<option value="mine" selected>' in busy.get("/dags").text
