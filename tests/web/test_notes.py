"""Notes on the pages of runs and backfills, in lists and in the grid."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs

from backfill_manager.model.records import Backfill, Request
from backfill_manager.testing import InMemoryManager

RUN_ID = "backfill__2024-01-13T00:00:00Z"
RUN = f"/dags/shop/runs/{RUN_ID}"
TEXT = "Late data & <b>more</b>:\nsee https://example.com/tickets/12."


def page_of(browser: TestClient, address: str, status: int = 200) -> Page:
    response = browser.get(address)
    page = Page(response.text)
    ours = [one for one in wrongs(page) if not one.startswith("https://example.com/")]  # a note links to where it likes
    assert (response.status_code, ours) == (status, [])
    return page


@pytest.fixture
def noted(manager: InMemoryManager) -> str:
    """The id of a backfill that has a note, as has a run of it."""
    (run,) = [row for row in manager.runs("shop") if row.run_id == RUN_ID]
    assert run.backfill_id is not None
    (backfill,) = [row for row in manager.store.read(Backfill) if row.backfill_id == run.backfill_id]
    for row in (run, backfill):
        manager.state.put(row.evolve(note=TEXT, note_by="ann", note_at=manager.clock.now()))
    manager.commit()
    return run.backfill_id


def test_a_note_is_shown_with_its_links_and_nothing_else_of_it_is_html(noted: str, browser: TestClient) -> None:
    for address in (RUN, f"/backfills/{noted}"):
        text = browser.get(address).text
        assert "Late data &amp; &lt;b&gt;more&lt;/b&gt;:" in text and "<b>more" not in text
        links = [one for one in page_of(browser, address).root.find("a") if one.whole_text.startswith("https://")]
        assert [one.attributes["href"] for one in links] == ["https://example.com/tickets/12"]
        assert {"noreferrer", "nofollow"} <= set(str(links[0].attributes["rel"]).split())


@pytest.mark.parametrize(
    "address",
    [
        "/runs?dag=shop",
        "/backfills?dag=shop",
        "/dags/shop?order=made",
        "/dags/shop/timeline",
        "/dags/shop/day/2024-01-13",
    ],
)
def test_lists_and_the_grid_mark_what_has_a_note(noted: str, browser: TestClient, address: str) -> None:
    page_of(browser, address)
    text = browser.get(address).text
    assert "Late data &amp; &lt;b&gt;more" in text
    assert "i-note" in text or "note-corner" in text


def test_the_form_sends_the_text_and_what_its_user_has_seen(
    noted: str, manager: InMemoryManager, browser: TestClient
) -> None:
    for address, kind in ((RUN, "run.note"), (f"/backfills/{noted}", "backfill.note")):
        (form,) = [one for one in page_of(browser, address).forms if str(one.attributes["action"]).endswith("/note")]
        (was,) = [one for one in form.find("input") if one.attributes.get("name") == "was"]
        assert was.attributes["value"] == TEXT
        manager.clock.advance(seconds=1)
        answer = browser.post(
            str(form.attributes["action"]), data={"text": "Fixed.\r\nThanks", "was": TEXT.replace("\n", "\r\n")}
        )
        assert answer.status_code == 303 and answer.headers["location"].startswith(address)
        (row,) = manager.store.read(Request, order_by=("-requested_at",), limit=1)
        payload = json.loads(row.payload_json)
        assert (row.kind, payload["text"], payload["was"]) == (kind, "Fixed.\nThanks", TEXT)


def test_a_viewer_sees_notes_and_no_form(noted: str, logged_in: object) -> None:
    viewer = logged_in("ben")  # type: ignore[operator]
    page = page_of(viewer, RUN)
    assert "Late data" in page.root.whole_text
    assert not [one for one in page.forms if str(one.attributes["action"]).endswith("/note")]


def test_too_long_a_text_is_refused_in_words(browser: TestClient) -> None:
    response = browser.post(f"{RUN}/note", data={"text": "x" * 4001})
    assert response.status_code == 422 and "at most 4000 characters" in response.text
