"""Roles of users on the pages of backfills."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from fastapi.testclient import TestClient
from support.backfill_pages import (
    FORM,
    fields_of,
    followed,
    page_of,
    run_some,
)
from support.page_checks import Page

from backfill_manager.model.records import (
    Request,
)
from backfill_manager.testing import InMemoryManager, days


def test_a_viewer_sees_everything_and_can_change_nothing(
    manager: InMemoryManager, logged_in: Callable[[str], TestClient]
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    failed = run_some(manager, n=3, failing=1)
    ben = logged_in("ben")
    for address in ("/backfills", f"/backfills/{one}", f"/backfills/{failed}", f"/backfills/{one}/settings",
                    "/backfills/new?dag=flights"):  # fmt: skip
        page = page_of(ben, address)
        posts = [form.attributes.get("action") for form in page.forms if form.attributes.get("method") == "post"]
        assert posts == ["/logout"], address
    token = csrf(page_of(ben, "/backfills"))
    for verb in ("pause", "unpause", "cancel", "retry", "settings"):
        assert ben.post(f"/backfills/{one}/{verb}", data={"csrf_token": token}).status_code == 403
    for address in ("/backfills/new", "/backfills/new/dry-run"):
        assert ben.post(address, data={**FORM, "csrf_token": token}).status_code == 403
    assert manager.store.read(Request) == []


def csrf(page: Page) -> str:
    return next(
        str(one.attributes["content"]) for one in page.root.find("meta") if one.attributes.get("name") == "csrf-token"
    )


def test_a_session_needs_its_csrf_token(manager: InMemoryManager, logged_in: Callable[[str], TestClient]) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    ada = logged_in("ada")
    assert ada.post(f"/backfills/{one}/pause", data={}).status_code == 403
    assert ada.post("/backfills/new", data={**FORM, "do": "create", "csrf_token": "wrong"}).status_code == 403
    assert manager.store.read(Request) == []
    page = page_of(ada, "/backfills/new?dag=flights")
    where, _ = followed(
        ada, "/backfills/new", **{**fields_of(page, "create-form"), "end_date": "2013-01-31"}, do="create"
    )
    assert "request_id" in parse_qs(urlsplit(where).query)
    row = manager.store.read(Request)[-1]
    assert (row.requested_by, row.source) == ("ada", "ui")
    followed(ada, f"/backfills/{one}/pause", csrf_token=csrf(page))


def test_a_stranger_is_led_to_the_login(logged_in: Callable[[str], TestClient]) -> None:
    answer = logged_in("").get("/backfills?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fbackfills%3Fstate%3Dfailed")
