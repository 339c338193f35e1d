"""What goes wrong is told as a page, with its status; the API's addresses keep their problem documents."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from page_checks import Page, wrongs

from backfill_manager.api.app import create_app
from backfill_manager.settings import Settings
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import FakeClock
from backfill_manager.ui import pages


@pytest.mark.parametrize(
    ("address", "status", "told"),
    [
        ("/nonsense", 404, "nothing at this address"),
        ("/dags/shp", 404, "did you mean 'shop'?"),
        ("/dags/shp/graph", 404, "did you mean 'shop'?"),
        ("/runs/shop/nope", 404, "There is no run of 'shop' 'nope'"),
        ("/runs/shop/latest/nope", 404, "There is no task"),
        ("/requests/ffffffffffff", 404, "There is no request"),
        ("/dags/shop?n=0", 422, "n: "),
        ("/dags/shop?before=soon", 422, "no place in the list"),
        ("/dags/shop?order=made&before=soon", 422, "no place in the list"),
        ("/dags/shop/day/someday", 422, "someday"),
        ("/dags/shop/versions?before=7&after=9", 422, "has no version"),
        ("/requests?before=soon", 422, "no place in the list"),
        ("/runs/shop/latest/extract/log?after=soon", 422, "after"),
    ],
)
def test_a_wrong_address_is_told_as_a_page(busy: TestClient, address: str, status: int, told: str) -> None:
    answer = busy.get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, [])
    assert told in page.root.whole_text


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("tasks=(", "not a regular expression"),
        ("start=someday", "someday"),
        ("run=nope", "There is no run"),
        ("only=failed&start=2024-01-20&end=2024-01-21", "Nothing"),
    ],
)
def test_a_preview_says_why_there_is_nothing_to_clear(busy: TestClient, query: str, told: str) -> None:
    answer = busy.get(f"/dags/shop/clear?preview=true&{query}")
    page = Page(answer.text)
    (said,) = (one.whole_text for one in page.root.find("p") if one.attributes.get("role") == "alert")
    assert (answer.status_code, wrongs(page)) == (200, [])
    assert told.lower() in said.lower()


def test_an_unknown_address_of_the_api_is_a_problem_document(busy: TestClient) -> None:
    answer = busy.get("/api/v1/nonsense")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_state_that_was_never_made_is_told_with_the_command_that_makes_it() -> None:
    app = create_app(Settings(), MemoryStore(), clock=FakeClock(), extra_routers=[pages.router])
    browser = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1))
    answer = browser.get("/dags")
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (503, [])
    assert "state init" in page.root.whole_text


def test_a_bug_of_ours_is_told_as_a_page_too(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> list[object]:
        raise ZeroDivisionError("who divides by nothing")

    monkeypatch.setattr("backfill_manager.ui.import_errors.list_import_errors", breaks)
    answer = busy.get("/import-errors")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.text
    assert "who divides" not in answer.text


@pytest.mark.parametrize(
    ("referer", "back"),
    [("http://localhost/pools?asked=x", ["/pools"]), ("http://evil.example/pools", []), ("http://localhost//evil", [])],
)
def test_a_refused_form_offers_the_way_back(busy: TestClient, referer: str, back: list[str]) -> None:
    answer = busy.post("/pools/nope", data={"slots": "3"}, headers={"referer": referer})
    page = Page(answer.text)
    assert answer.status_code == 404
    assert [one.attributes["href"] for one in page.root.find("a") if one.whole_text == "Back"] == back


def test_static_files_are_kept_for_ever_under_the_hash_of_their_content(busy: TestClient) -> None:
    links = [one.attributes.get("href") or one.attributes.get("src") for one in Page(busy.get("/dags").text).root.all()]
    files = sorted({str(link) for link in links if str(link).startswith("/static/")})
    assert len(files) >= 6
    for file in files:
        answer = busy.get(file)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert busy.get(files[0]).headers["x-content-type-options"] == "nosniff"
    assert busy.get("/static/0123456789ab/app.css").headers["cache-control"] == "no-cache"
    assert busy.get("/static/0123456789ab/nope.css").status_code == 404
    assert busy.get("/static/0123456789ab/..%2f..%2fpages.py").status_code == 404
    assert busy.get("/static/0123456789ab/vendor/LICENSES.txt").status_code == 200


def test_no_page_lets_anything_inline_run(busy: TestClient) -> None:
    policy = busy.get("/dags").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
