"""Long lists are paginated, and a changed page is sent again only as far as needed."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from support.busy_state import put
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.api.app import GZIP_MIN_BYTES
from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import DagRun, DagVersion, ImportProblem
from backfill_manager.queries import failures
from backfill_manager.store.base import matching
from backfill_manager.testing import InMemoryManager, dag_spec, days
from backfill_manager.web.pages import backfills
from backfill_manager.web.pages import run as run_page

AT = datetime(2024, 1, 1, tzinfo=UTC)
NAMES = [f"team_{n:03d}" for n in range(120)]
LIVE = {"X-Live": "1"}


def outcome(launch: TaskLaunch) -> Outcome | None:
    return Failed("no rows", retryable=False) if launch.run.dag_id in ("team_007", "team_107") else Succeeded()


@pytest.fixture
def manager() -> InMemoryManager:
    """120 DAGs: every tenth has run, 007 and 107 have failed, 110 to 119 are inactive."""
    manager = InMemoryManager(
        *(dag_spec(name, "load", description=f"what {name} has", schedule=None, owner="ben" if n >= 50 else "ada")
          for n, name in enumerate(NAMES)),
        script=outcome,
    )  # fmt: skip
    for name in (*NAMES[::10], "team_007", "team_107"):
        manager.backfill(name, days("2024-01-01", 2))
    manager.drain()
    for n, name in enumerate(NAMES):
        tags = '["odd"]' if n % 2 else "[]"
        row = manager.state.catalog.dags[name]
        manager.state.put(row.evolve(is_active=n < 110, is_paused=n == 3, tags_json=tags))
    manager.drain()
    return manager


@pytest.fixture
def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, manager.clock)


@pytest.fixture
def listed(browser: TestClient) -> Callable[[str], list[str]]:
    def ids(address: str) -> list[str]:
        answer = browser.get(address)
        page = Page(answer.text)
        assert (answer.status_code, wrongs(page)) == (200, []), address
        return [
            str(one.attributes["id"]).removeprefix("dag-") for one in page.root.find("tr") if one.attributes.get("id")
        ]

    return ids


def step(browser: TestClient, address: str, rel: str) -> str | None:
    found = [
        one.attributes["href"]
        for one in Page(browser.get(address).text).root.find("a")
        if one.attributes.get("rel") == rel
    ]
    return found[0] if found else None


# -- the list of DAGs -------------------------------------------------------------------------------------------------


def test_every_dag_is_on_one_page_and_the_links_lead_through_all_of_them(
    browser: TestClient, listed: Callable[[str], list[str]]
) -> None:
    address: str | None = "/dags"
    pages: list[list[str]] = []
    while address:
        pages.append(listed(address))
        last, address = address, step(browser, address, "next")
    assert [len(one) for one in pages] == [50, 50, 10]
    assert [name for one in pages for name in one] == NAMES[:110]
    assert "51–100 of 110 DAGs" in browser.get("/dags?page=2").text
    assert step(browser, last, "prev") == "/dags?page=2"
    assert listed("/dags?page=99") == pages[-1], "fewer than there were when the link was made"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=TEAM_10", NAMES[100:110]),
        ("q=what+team_105", ["team_105"]),
        ("tag=odd&q=team_10", ["team_101", "team_103", "team_105", "team_107", "team_109"]),
        ("state=failed", ["team_007", "team_107"]),
        ("state=failed&sort=-name", ["team_107", "team_007"]),
        ("state=success&sort=last", [*reversed(NAMES[:110:10])]),
        ("show=paused", ["team_003"]),
        ("show=inactive", NAMES[110:]),
        ("show=all&q=team_11", NAMES[110:]),
        ("show=unpaused&q=team_003", []),
        ("owner=ada", NAMES[:50]),
        ("owner=ben&q=team_10", NAMES[100:110]),
    ],
)
def test_search_filters_and_order_look_at_all_dags_not_at_one_page(
    listed: Callable[[str], list[str]], query: str, found: list[str]
) -> None:
    assert listed(f"/dags?{query}") == found


def test_the_address_keeps_what_was_chosen_from_page_to_page(
    browser: TestClient, listed: Callable[[str], list[str]]
) -> None:
    first = "/dags?tag=odd&sort=-name"
    following = step(browser, first, "next")
    assert following is not None
    odd = [name for n, name in enumerate(NAMES[:110]) if n % 2][::-1]
    assert listed(first) + listed(following) == odd
    form = next(one for one in Page(browser.get(following).text).forms if one.attributes.get("role") == "search")
    chosen = {
        select.attributes["name"]: option.attributes["value"]
        for select in form.find("select")
        for option in select.find("option")
        if "selected" in option.attributes
    }
    assert chosen == {"show": "", "sort": "-name"} | ({"state": chosen["state"]} if "state" in chosen else {})
    assert [one.attributes["value"] for one in form.find("input") if one.attributes.get("name") == "tag"] == ["odd"]


def test_a_choice_that_there_is_not_is_reported(browser: TestClient) -> None:
    for query in ("show=gone", "sort=size", "state=fialed", "page=0", "page=x"):
        assert browser.get(f"/dags?{query}").status_code == 422, query


def test_a_dag_that_is_gone_offers_no_switch(browser: TestClient) -> None:
    page = Page(browser.get("/dags?show=inactive").text)
    assert not [one for one in page.forms if str(one.attributes.get("action")).endswith("pause")]
    assert page.root.whole_text.count("is gone or no longer defines it") == 10


# -- what is sent -----------------------------------------------------------------------------------------------------


def size(browser: TestClient, address: str, **headers: str) -> tuple[int, int, str]:
    """Status, bytes on the wire, ETag."""
    answer = browser.get(address, headers={**LIVE, "accept-encoding": "gzip", **headers})
    return answer.status_code, int(answer.headers.get("content-length", 0)), answer.headers["etag"]


def test_a_change_elsewhere_sends_nothing_and_one_on_the_page_a_few_kilobytes(
    manager: InMemoryManager, browser: TestClient
) -> None:
    _, whole, etag = size(browser, "/dags")
    assert whole < 20_000
    assert size(browser, "/dags", **{"if-none-match": etag}) == (304, 0, etag)
    manager.clock.advance(seconds=2)  # what was a moment ago is two seconds more ago: the browser counts on by itself
    manager.backfill("team_090", days("2024-02-01", 1))
    manager.drain()
    assert size(browser, "/dags", **{"if-none-match": etag})[:2] == (304, 0)
    manager.backfill("team_020", days("2024-02-01", 1))
    manager.drain()
    status, sent, changed = size(browser, "/dags", **{"if-none-match": etag})
    assert (status, sent < 20_000, changed != etag) == (200, True, True)


def test_a_refresh_has_the_live_elements_of_the_page_and_not_its_frame(browser: TestClient) -> None:
    whole, refreshed = Page(browser.get("/dags").text), browser.get("/dags", headers=LIVE).text
    lives = [
        {one.attributes["id"] for one in page.root.all() if "data-live" in one.attributes}
        for page in (whole, Page(refreshed))
    ]
    assert lives[0] == lives[1]
    assert "<head>" not in refreshed
    assert "etag" not in browser.get("/dags").headers, "a page that is opened is always sent"


def test_what_differs_from_person_to_person_is_not_taken_for_the_same(logged_in: Callable[[str], TestClient]) -> None:
    ada, ben = logged_in("ada"), logged_in("ben")
    tags = [one.get("/pools", headers=LIVE).headers["etag"] for one in (ada, ada, ben)]
    assert tags[0] == tags[1], "but for the token of its forms, which is another one each time"
    assert tags[1] != tags[2]


def test_answers_are_compressed_where_that_is_asked_for(browser: TestClient) -> None:
    for address in ("/dags", "/api/v1/dags", "/openapi.json", "/static/x/live.js", "/static/x/app.css"):
        plain = browser.get(address, headers={"accept-encoding": "identity"})
        packed = browser.get(address, headers={"accept-encoding": "gzip"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip", address
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert packed.content == plain.content or address == "/dags"
        assert int(packed.headers["content-length"]) < len(packed.content) / 2
        shown = browser.head(address, headers={"accept-encoding": "gzip"})
        assert shown.headers["content-encoding"] == "gzip"
    small = browser.get("/api/v1/pools", headers={"accept-encoding": "gzip"})
    assert (len(small.content) < GZIP_MIN_BYTES, "content-encoding" in small.headers) == (True, False)


def test_an_etag_names_an_answer_in_both_of_its_forms(browser: TestClient) -> None:
    packed = browser.get("/api/v1/dags", headers={"accept-encoding": "gzip"})
    plain = browser.get("/api/v1/dags", headers={"accept-encoding": "identity"})
    etag = packed.headers["etag"]
    assert etag.startswith('W/"')
    assert etag == plain.headers["etag"]
    for form in ("gzip", "identity"):
        again = browser.get("/api/v1/dags", headers={"accept-encoding": form, "if-none-match": etag})
        assert (again.status_code, again.content, "content-encoding" in again.headers) == (304, b"", False)


def test_the_token_of_forms_is_another_text_on_each_page_and_each_is_taken(
    logged_in: Callable[[str], TestClient],
) -> None:
    ada = logged_in("ada")

    def token() -> str:
        metas = Page(ada.get("/pools").text).root.find("meta")
        return next(str(one.attributes["content"]) for one in metas if one.attributes.get("name") == "csrf-token")

    tokens = {token() for _ in range(5)}
    assert len(tokens) == 5
    for one in tokens:
        assert ada.post("/dags/team_000/pause", data={"csrf_token": one}).status_code == 303
    mangled = [one[:-4] + "AAAA" for one in tokens] + ["", "=", "é", next(iter(tokens))[:32], "A" * 64]
    for one in mangled:
        assert ada.post("/dags/team_000/pause", data={"csrf_token": one}).status_code == 403, one


# -- other long pages ---------------------------------------------------------------------------------------------------


def test_import_errors_versions_runs_of_a_day_and_tasks_come_in_pages(manager: InMemoryManager) -> None:
    many = dag_spec("many", *(f"task_{n:03d}" for n in range(230)), schedule="@hourly")
    manager.add_dag(many)
    put(manager, *(ImportProblem("b", f"f{n:03d}.py", 1, "wrong", None, True, AT, AT) for n in range(120)))
    put(
        manager,
        *(
            DagVersion("team_000", n, f"h{n}", dag_spec("team_000", "load").to_json(), "b", "f.py", "", AT)
            for n in range(2, 71)
        ),
    )
    run = manager.backfill("many", days("2024-01-01", 1))
    manager.drain()
    assert run
    browser = browser_of(manager.store, manager.clock)
    for address, what in (
        ("/import-errors", "1–50 of 120 files"),
        ("/dags/team_000/versions", "1–50 of 70 versions"),
        ("/dags/many", "1–100 of 230 tasks"),
        ("/dags/many/runs/backfill__2024-01-01T00:00:00Z", "1–200 of 230 tasks"),
    ):
        page = Page(browser.get(address).text)
        assert (wrongs(page), what in page.root.whole_text) == ([], True), (address, page.root.whole_text[-300:])
        following = step(browser, address, "next")
        assert following is not None
        more = Page(browser.get(following).text)
        assert (wrongs(more), step(browser, following, "prev")) == ([], address)


def test_a_timeline_is_gone_through_page_by_page(manager: InMemoryManager) -> None:
    manager.backfill("team_001", days("2023-01-01", 130))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    address: str | None = "/dags/team_001/timeline"
    seen: list[str] = []
    while address:
        page = Page(browser.get(address).text)
        assert wrongs(page) == []
        seen += [one.whole_text for one in page.root.find("a") if one.attributes.get("class") == "date"]
        address = step(browser, address, "next")
    assert len(seen) == len(set(seen)) == 130
    assert seen == sorted(seen, reverse=True)


def test_the_errors_of_a_backfill_say_of_how_many_items_they_are(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = browser.get("/api/v1/backfills?dag_id=team_007").json()["items"]
    address = f"/backfills/{found['backfill_id']}"
    assert "failed items" not in browser.get(address).text.partition("<h3>Errors")[2].partition("</h3>")[0]
    for module in (failures, backfills):
        monkeypatch.setattr(module, "MAX_ITEMS", 1)
    assert "of the first 1 failed items" in browser.get(address).text


def test_leaders_and_checks_say_when_there_are_more(
    manager: InMemoryManager, busy: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = browser_of(manager.store, manager.clock)
    assert "Past and current leaders, newest first." in browser.get("/manager").text
    for _ in range(21):
        manager.crash()
    assert "The last 20 leaders, newest first." in browser.get("/manager").text
    address = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"
    assert "those that passed come last" not in busy.get(address).text
    monkeypatch.setattr(run_page, "MAX_CHECKS", 2)
    assert "The first 2 of 4 checks; those that passed come last." in busy.get(address).text


def test_each_run_of_a_day_is_on_one_page(manager: InMemoryManager) -> None:
    manager.add_dag(dag_spec("often", "load", batchable=True))
    manager.backfill("often", days("2023-12-31", 2), batch=2)
    manager.drain()
    (batch,) = manager.store.read(DagRun, matching(dag_id="often"))
    often = [
        batch.evolve(
            run_id=f"manual__{n:04}", items=1, logical_date=AT + timedelta(seconds=n), run_seq=batch.run_seq + n
        )
        for n in range(1, 2152)
    ]
    put(manager, *often)
    browser = browser_of(manager.store, manager.clock)
    address: str | None = "/dags/often/day/2024-01-01"
    assert "2,152 runs" in browser.get(address).text
    seen: list[str] = []
    while address:
        page = Page(browser.get(address).text)
        seen += [one.whole_text for one in page.root.find("a") if one.attributes.get("class") == "name"]
        address = step(browser, address, "next")
    assert seen == [batch.run_id, *(run.run_id for run in often)]


def test_a_page_is_what_gzip_makes_of_it(browser: TestClient) -> None:
    with browser.stream("GET", "/dags", headers={**LIVE, "accept-encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    assert gzip.decompress(packed).decode() == browser.get("/dags", headers=LIVE).text


def test_favourites_come_first_and_can_be_shown_alone(browser: TestClient, listed: Callable[[str], list[str]]) -> None:
    browser.cookies.set("bfm-favourites", "team_105,team_007,no%2Csuch%20dag,team_115")
    assert listed("/dags")[:3] == ["team_007", "team_105", "team_000"]
    assert listed("/dags?sort=-name")[0] == "team_109", "only where the order is that of names"
    assert listed("/dags?show=favourites&sort=-name") == ["team_115", "team_105", "team_007"]


def test_the_palette_knows_every_active_dag(browser: TestClient) -> None:
    found = browser.get("/fragments/palette").json()
    assert found == [[name, f"/dags/{name}"] for name in NAMES[:110]]
