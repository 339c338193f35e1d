"""Previews on the pages of backfills: compared, promoted, discarded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    FORM,
    followed,
    page_of,
    put,
    queued_request,
    run_some,
)

from backfill_manager.model.records import (
    Response,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.testing import InMemoryManager, days


def a_preview(manager: InMemoryManager, **changed: Any) -> str:
    preview_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.state.put(manager.row(preview_id).evolve(preview_id=preview_id, **changed))
    manager.commit()
    return preview_id


def test_a_preview_says_so_and_is_compared_promoted_or_discarded(browser: TestClient, manager: InMemoryManager) -> None:
    preview_id = a_preview(manager, state="success", completed_at=manager.clock.now())
    page = page_of(browser, f"/backfills/{preview_id}")
    assert "This is a preview" in page.root.whole_text
    forms = [form.attributes["action"] for form in page.forms]
    assert {f"/backfills/{preview_id}/{what}" for what in ("promote", "discard")} <= set(forms)

    page = page_of(browser, f"/backfills/{preview_id}/diff")
    assert "Not compared yet" in page.root.whole_text
    browser.post(f"/backfills/{preview_id}/diff", data={"key": "id, region"})
    browser.post(f"/backfills/{preview_id}/promote", data={"rebase": "true"})
    asked = {one.kind: json.loads(one.payload_json) for one in manager.store.unanswered()}
    assert asked == {
        "backfill.diff": {"backfill_id": preview_id, "key": ["id", "region"], "table": None},
        "backfill.promote": {"backfill_id": preview_id, "partial": False, "rebase": True},
    }

    (request,) = (one for one in manager.store.unanswered() if one.kind == "backfill.diff")
    example = {"key": {"id": 3}, "new": "<b>"}
    table = {
        "table": "silver.t", "key": ["id"], "added": 1, "removed": 0, "changed": 2, "same": 3,
        "schema_changes": [{"column": "w", "old": None, "new": "int"}],
        "columns": [{"name": "v", "rows": 2, "examples": [example]}],
        "intervals": [
            {"interval": "2013-01-01 – 2013-01-02", "added": 1, "removed": 0, "changed": 2},
            {"interval": "", "interval_start": "2013-01-05T05:00:00Z", "interval_end": "2013-01-06T05:00:00Z",
             "added": 1, "removed": 0, "changed": 2},
        ],
    }  # fmt: skip
    changes, payload = Changes(), json.dumps({"tables": [table]})
    changes.put(Response(request.request_id, request.kind, "accepted", preview_id, "", payload, manager.clock.now(), 1))
    manager.leader.commit(changes)
    page = page_of(browser, f"/backfills/{preview_id}/diff")
    for text in ("silver.t", "2013-01-01 – 2013-01-02", "none in the table, int in the preview", '{"id": 3}',
                 "2013-01-05 – 2013-01-06"):  # fmt: skip
        assert text in page.root.whole_text


def test_a_preview_is_created_by_the_form_and_marked_in_the_list(browser: TestClient, manager: InMemoryManager) -> None:
    names = [one.attributes.get("name") for one in page_of(browser, "/backfills/new?dag=flights").root.find("input")]
    assert names.count("preview") == 1
    followed(browser, "/backfills/new", **FORM, preview="on", do="create")
    assert queued_request(manager)[1]["ask"]["preview"] is True
    a_preview(manager, state="success", preview_outcome="promoted")
    shown = page_of(browser, "/backfills")
    tags = [one.whole_text for one in shown.root.find("span") if one.attributes.get("class") == "tag"]
    assert tags == ["preview", "promoted preview"], "what waits for the manager comes first"


def test_the_page_of_a_preview_with_failures_offers_to_leave_them_out(
    browser: TestClient, manager: InMemoryManager
) -> None:
    def offered(preview_id: str) -> list[str | None]:
        forms = page_of(browser, f"/backfills/{preview_id}").forms
        (form,) = (one for one in forms if one.attributes["action"] == f"/backfills/{preview_id}/promote")
        return [one.attributes["name"] for one in form.find("input") if one.attributes.get("type") == "checkbox"]

    whole, failed = (run_some(manager, first, n=3, failing=n) for first, n in (("2013-01-01", 0), ("2013-02-01", 1)))
    for one in (whole, failed):
        manager.state.put(manager.row(one).evolve(preview_id=one))
    manager.commit()
    assert (offered(whole), offered(failed)) == (["rebase"], ["partial", "rebase"])
    browser.post(f"/backfills/{failed}/promote", data={"partial": "true"})
    assert queued_request(manager) == (
        "backfill.promote", {"backfill_id": failed, "partial": True, "rebase": False}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("action", "named"), [("promote", "Promotion requested by"), ("discard", "Discard requested by")]
)
def test_while_the_end_of_a_preview_is_requested_it_is_not_offered_again(
    browser: TestClient, manager: InMemoryManager, action: str, named: str
) -> None:
    preview_id, other = (run_some(manager, first, n=1) for first in ("2013-01-01", "2013-02-01"))
    for one in (preview_id, other):
        manager.state.put(manager.row(one).evolve(preview_id=one))
    manager.commit()

    def offered(of: str) -> set[str]:
        actions = {form.attributes["action"] or "" for form in page_of(browser, f"/backfills/{of}").forms}
        return {one for one in ("promote", "discard") if f"/backfills/{of}/{one}" in actions}

    browser.post(f"/backfills/{preview_id}/{action}")
    page = page_of(browser, f"/backfills/{preview_id}")
    assert named in page.root.whole_text and offered(preview_id) == set()
    assert offered(other) == {"promote", "discard"}, "the requested one is another preview"

    (request,) = manager.store.unanswered()
    put(
        manager.leader,
        Response(request.request_id, request.kind, "refused", preview_id, "", None, manager.clock.now(), 1),
    )
    assert named not in page_of(browser, f"/backfills/{preview_id}").root.whole_text
    assert offered(preview_id) == {"promote", "discard"}


def test_a_preview_that_is_over_or_runs_has_no_such_buttons(browser: TestClient, manager: InMemoryManager) -> None:
    over = a_preview(manager, state="success", completed_at=manager.clock.now(), preview_outcome="promoted")
    page = page_of(browser, f"/backfills/{over}")
    assert "This preview is promoted." in page.root.whole_text and f"/backfills/{over}/promote" not in str(page.forms)
    running = a_preview(manager)
    page = page_of(browser, f"/backfills/{running}")
    assert "This is a preview" in page.root.whole_text and f"/backfills/{running}/promote" not in str(page.forms)
