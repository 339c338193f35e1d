"""The list of notifications, by its query, REST, client, command line and page."""

from __future__ import annotations

from typing import Any

import pytest
from support.api_server import ApiFixture
from support.busy_state import busy_ground, notifications

from backfill_manager.queries.notifications import NotificationFilter, list_notifications
from backfill_manager.store.base import Store


@pytest.fixture(scope="module")
def store() -> Store:
    return busy_ground().store


@pytest.mark.parametrize(
    ("filter", "events"),
    [
        ({}, ["late", "failed", "done"]),
        ({"state": ("waiting",)}, ["late", "failed"]),
        ({"state": ("waiting", "sent"), "target": "ops"}, ["failed", "done"]),
        ({"event": ("done",)}, ["done"]),
        ({"dag_id": "wide"}, ["late"]),
        ({"backfill_id": "none"}, []),
    ],
)
def test_filters_hold_together(store: Store, filter: dict[str, Any], events: list[str]) -> None:
    assert [one["event"] for one in list_notifications(store, NotificationFilter(**filter)).items] == events


def test_pages_hold_each_once_and_newest_first(store: Store) -> None:
    found, after = list[str](), None
    while True:
        page = list_notifications(store, NotificationFilter(), limit=1, after=after)
        found += [one["event"] for one in page.items]
        after = page.after
        if after is None:
            break
    assert found == ["late", "failed", "done"]


def test_what_waits_says_how_often_it_failed_and_why_and_no_secret(store: Store) -> None:
    late, failed, _ = list_notifications(store, NotificationFilter()).items
    assert (failed["failures"], failed["error"][-7:], failed["ended_at"]) == (3, "503 <b>", None)
    assert "hunter22" not in str(late) and late["title"].startswith("wide: a backfill is late")


def test_the_api_pages_filters_and_refuses_what_it_does_not_know() -> None:
    api = ApiFixture()
    api.put(*notifications(busy_ground()))
    first = api.call.get("/notifications?limit=2")
    second = api.call.get(f"/notifications?limit=2&cursor={first['next_cursor']}")
    assert [one["event"] for one in first["items"] + second["items"]] == ["late", "failed", "done"]
    assert second["next_cursor"] is None
    assert [one["target"] for one in api.call.get("/notifications?state=sent&dag_id=shop")["items"]] == ["ops"]
    for wrong in ("state=lost", "event=early", "colour=red"):
        assert api.call("GET", f"/notifications?{wrong}").status_code == 422
