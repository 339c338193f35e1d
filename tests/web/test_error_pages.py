"""Errors are pages with their status; the API's addresses answer with problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.settings import Settings
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import FakeClock, InMemoryManager

PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("address", "status", "shown"),
    [
        ("/nonsense", 404, "no page at this address"),
        ("/backfils", 404, "There is no page at this address; did you mean '/backfills'?"),
        ("/import_errors", 404, "did you mean '/import-errors'?"),
        ("/dags/shp", 404, "did you mean 'shop'?"),
        ("/dags/shp/graph", 404, "did you mean 'shop'?"),
        ("/dags/shop/runs/nope", 404, "There is no run of DAG 'shop' with the id 'nope'"),
        ("/dags/shop/runs/latest/tasks/nope", 404, "There is no task"),
        ("/requests/ffffffffffff", 404, "There is no request"),
        ("/dags/shop?n=0", 422, "n: "),
        ("/dags/shop?before=soon", 422, "not a position in the list"),
        ("/dags/shop?order=made&before=soon", 422, "not a position in the list"),
        ("/dags/shop?order=made&before=-9223372036854775809", 422, "not a position in the list"),
        ("/dags/shop/day/someday", 422, "someday"),
        ("/dags/shop/versions?before=7&after=9", 422, "has no version"),
        ("/requests?before=soon", 422, "not an instant"),
        ("/dags/shop/runs/latest/tasks/extract/log?after=soon", 422, "after"),
    ],
)
def test_a_wrong_address_is_reported_as_a_page(busy: TestClient, address: str, status: int, shown: str) -> None:
    answer = busy.get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, [])
    assert shown in page.root.whole_text


@pytest.mark.parametrize(
    ("address", "there"),
    [
        ("/docs", "/rest-api"),
        ("/redoc", "/rest-api"),
        ("/health", "/api/v1/health"),
        ("/healthz", "/api/v1/health"),
    ],
)
def test_where_people_look_first_leads_to_what_they_look_for(busy: TestClient, address: str, there: str) -> None:
    answer = busy.get(address, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, there)
    assert busy.get(there).status_code == 200
    assert busy.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("address", ["/backfills/new", "/backfills/latest/settings", "/dags/shop/trigger"])
def test_a_form_whose_connection_breaks_off_is_no_bug_of_the_server(busy: TestClient, address: str) -> None:
    sent: list[Message] = []
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"dag=sh", "more_body": True},
    ]
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": address, "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-www-form-urlencoded")],
        "client": ("127.0.0.1", 5), "server": ("localhost", 80), "state": {},
    }  # fmt: skip

    async def receive() -> Message:
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(busy.app(scope, receive, send))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("tasks=(", "not a regular expression"),
        ("start=someday", "someday"),
        ("run=nope", "There is no run"),
        ("only=failed&start=2024-01-20&end=2024-01-21", "Nothing"),
    ],
)
def test_a_dry_run_says_why_there_is_nothing_to_clear(busy: TestClient, query: str, shown: str) -> None:
    answer = busy.get(f"/dags/shop/clear?dry_run=true&{query}")
    page = Page(answer.text)
    (result,) = (one.whole_text for one in page.root.find("p") if one.attributes.get("role") == "alert")
    assert (answer.status_code, wrongs(page)) == (200, [])
    assert shown.lower() in result.lower()


def test_an_unknown_address_of_the_api_is_a_problem_document(busy: TestClient) -> None:
    answer = busy.get("/api/v1/nonsense")
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


@pytest.mark.parametrize(
    ("method", "address", "allowed"),
    [
        ("POST", "/backfills", "GET"),
        ("DELETE", "/dags/shop", "GET"),
        ("DELETE", "/backfills/latest/pause", "POST"),
        ("POST", "/nonsense", "GET"),
        ("PUT", "/", "GET"),
    ],
)
def test_what_a_page_can_not_do_is_reported_as_a_page(
    busy: TestClient, method: str, address: str, allowed: str
) -> None:
    answer = busy.request(method, address)
    page = Page(answer.text)
    assert (answer.status_code, answer.headers["allow"], wrongs(page)) == (405, allowed, [])
    assert f"{method} is not possible here; {allowed} is." in page.root.whole_text
    assert [one.whole_text for one in page.root.find("main")[0].find("a") if one.attributes["href"] == "/dags"][
        -1
    ] == "Back to DAGs"


@pytest.mark.parametrize("address", ["/api/v1/backfills/abc", "/metrics", "/openapi.json"])
def test_what_an_address_for_programs_can_not_do_is_a_problem_document(busy: TestClient, address: str) -> None:
    answer = busy.put(address)
    assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)


def in_parts(size: int) -> Iterator[bytes]:
    """A form without a Content-Length."""
    yield b"token="
    for _ in range(size // 1000):
        yield b"x" * 1000


@pytest.mark.parametrize("address", ["/login", "/backfills/latest/pause", "/nonsense"])
def test_a_form_that_is_too_large_is_reported_as_a_page(manager: InMemoryManager, address: str) -> None:
    browser = browser_of(manager.store, manager.clock, Settings.model_validate({"api": {"max_body_bytes": 10_000}}))
    answer = browser.post(address, data={"token": "x" * 20_000})
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (413, [])
    assert "larger than this server accepts (10,000 bytes)" in page.root.whole_text
    assert browser.post("/api/v1/backfills", content=b"x" * 20_000).headers["content-type"] == PROBLEM


@pytest.mark.parametrize("address", ["/login", "/backfills/latest/pause"])
def test_a_form_that_turns_out_too_large_is_reported_as_a_page(manager: InMemoryManager, address: str) -> None:
    browser = browser_of(manager.store, manager.clock, Settings.model_validate({"api": {"max_body_bytes": 10_000}}))
    result = {"content-type": "application/x-www-form-urlencoded"}
    answer = browser.post(address, content=in_parts(20_000), headers=result)
    assert (answer.status_code, wrongs(Page(answer.text))) == (413, [])


def test_who_asks_too_often_gets_when_to_come_back(manager: InMemoryManager, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = browser_of(manager.store, manager.clock, Settings.model_validate({"api": {"requests_per_second": 1}}))
    while browser.get("/login").status_code != 429:
        continue
    monkeypatch.setattr(manager.store, "read", None)  # nothing is read for them
    monkeypatch.setattr(manager.store, "version", None)
    answer = browser.get("/backfills?state=failed")
    page = Page(answer.text)
    assert (answer.status_code, answer.headers["retry-after"], wrongs(page)) == (429, "1", [])
    assert "More than 1 requests a second from 127.0.0.1; try again in a second." in page.root.whole_text
    assert [one.attributes["href"] for one in page.root.find("a") if one.whole_text == "Try again"] == [
        "/backfills?state=failed"
    ]
    foreign = browser.get("http://localhost//evil.example/x")
    assert (foreign.status_code, "Try again" in foreign.text) == (429, False), "a link to another server"
    sent = Page(browser.post("/login", data={"token": "guessed"}).text)
    assert "try again in a second" in sent.root.whole_text
    assert "Try again" not in sent.root.whole_text, "a form is not sent by following a link"
    for_program = browser.get("/api/v1/backfills")
    assert (for_program.status_code, for_program.headers["content-type"]) == (429, PROBLEM)
    assert for_program.headers["retry-after"] == "1"


def test_who_guesses_tokens_at_the_login_is_slowed_down_by_a_page(manager: InMemoryManager) -> None:
    token = {"name": "ada", "role": "operator", "sha256": "0" * 64}
    browser = browser_of(manager.store, manager.clock, Settings.model_validate({"api": {"tokens": [token]}}))
    answers = [browser.post("/login", data={"token": f"guess {n}"}) for n in range(30)]
    assert {answer.status_code for answer in answers} == {401, 429}
    for answer in answers:
        assert answer.headers["content-type"].startswith("text/html")
        assert wrongs(Page(answer.text)) == []


def test_a_state_that_was_never_made_is_reported_with_the_command_that_makes_it() -> None:
    browser = browser_of(MemoryStore(), FakeClock())
    answer = browser.get("/dags")
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (503, [])
    assert "state init" in page.root.whole_text


def test_a_bug_of_ours_is_reported_as_a_page_too(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> list[object]:
        raise ZeroDivisionError("who divides by nothing")

    monkeypatch.setattr("backfill_manager.web.pages.dags.list_import_errors", breaks)
    answer = busy.get("/import-errors")
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.text
    assert "who divides" not in answer.text


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://localhost/pools?request_id=x", ["/pools"]),
        ("http://evil.example/pools", []),
        ("http://localhost//evil", []),
    ],
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
