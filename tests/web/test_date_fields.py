"""Dates of forms: each has a picker, says its zone, and is read in the one zone of the page."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from support.page_checks import Element, Page

from backfill_manager.clock import UTC, parse_instant
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Request
from backfill_manager.testing import InMemoryManager
from backfill_manager.web.dates import Edge, as_typed, for_command, moved
from backfill_manager.web.page import ZONE_COOKIE

# Address of each form with dates -> the names of its fields for them. The DAG is in Europe/Berlin.
FORMS = {
    "/dags/shop/trigger": ["logical_date"],
    "/dags/shop/render": ["logical_date"],
    "/dags/shop/clear": ["start", "end"],
    "/dags/shop/gaps": ["start_date", "end_date"],
    "/gaps": ["start_date", "end_date"],
    "/backfills/new?dag=shop": ["start_date", "end_date", "dates"],
    "/runs": ["from", "to"],
    "/tasks": ["from", "to"],
}
ZONES = {"": "Europe/Berlin", "utc": "UTC", "mine:Asia/Tokyo": "Asia/Tokyo"}
OF_NO_DAG = {"/runs": "UTC", "/tasks": "UTC", "/gaps": "each DAG’s zone"}
DATE_NAMES = {"start", "end", "from", "to", "dates", "start_date", "end_date", "logical_date"}
EDGES: tuple[Edge, ...] = ("at", "start", "end", "end_excluded")


def page_of(browser: TestClient, address: str, choice: str = "") -> Page:
    if choice:
        browser.cookies.set(ZONE_COOKIE, choice)
    answer = browser.get(address)
    assert answer.status_code == 200
    return Page(answer.text)


def with_class(page: Page, name: str) -> list[Element]:
    return [one for one in page.root.all() if name in str(one.attributes.get("class") or "").split()]


@pytest.mark.parametrize("choice", ZONES)
@pytest.mark.parametrize("address", FORMS)
def test_each_field_has_a_picker_and_the_form_says_the_zone(busy: TestClient, address: str, choice: str) -> None:
    page = page_of(busy, address, choice)
    fields = {str(one.attributes["id"]): one for one in page.root.all() if one.attributes.get("name") in DATE_NAMES}
    pickers = {one.attributes["data-field"] for one in with_class(page, "pick")}
    assert sorted(str(one.attributes["name"]) for one in fields.values()) == sorted(FORMS[address])
    assert pickers == set(fields)
    assert {one.attributes.get("type") for one in fields.values()} <= {"text", None}  # ISO text can be typed
    zone = ZONES[choice] if choice or address not in OF_NO_DAG else OF_NO_DAG[address]
    said = " ".join(one.whole_text for one in with_class(page, "typed-zone"))
    assert f"Dates in {zone}." in said
    sent = [one.attributes.get("value") for one in page.root.find("input") if one.attributes.get("name") == "zone"]
    assert sent == ([] if zone == OF_NO_DAG["/gaps"] else [zone])


def test_no_form_has_a_date_that_is_no_such_field(busy: TestClient) -> None:
    for address in FORMS:
        page = page_of(busy, address)
        assert [
            one.attributes
            for one in page.root.find("input")
            if one.attributes.get("type") in ("date", "datetime-local")
        ] == []


def asked(manager: InMemoryManager, kind: str) -> dict[str, object]:
    (row,) = [one for one in manager.store.read(Request, order_by=["-requested_at"]) if one.kind == kind][:1]
    return dict(json.loads(row.payload_json))


def csrf(page: Page) -> str:
    return next(
        str(one.attributes["value"]) for one in page.root.find("input") if one.attributes.get("name") == "csrf_token"
    )


@pytest.mark.parametrize(
    ("choice", "sent", "instant"),
    [
        ("", "", "2024-01-05T23:00:00Z"), ("utc", "", "2024-01-06T00:00:00Z"), ("mine:Asia/Tokyo", "", "2024-01-05T15:00:00Z"),
        ("utc", "Asia/Tokyo", "2024-01-05T15:00:00Z"),  # typed before the zone was switched in another tab
    ],
)  # fmt: skip
def test_a_trigger_is_for_the_day_of_the_zone_that_the_form_said(
    manager: InMemoryManager, browser: TestClient, choice: str, sent: str, instant: str
) -> None:
    token = csrf(page_of(browser, "/dags/shop/trigger", choice))
    form = {"logical_date": "2024-01-06", "csrf_token": token} | ({"zone": sent} if sent else {})
    assert browser.post("/dags/shop/trigger", data=form).status_code == 303
    assert asked(manager, "dag.trigger")["logical_date"] == instant


def test_a_typed_offset_is_kept_whatever_the_zone(manager: InMemoryManager, browser: TestClient) -> None:
    token = csrf(page_of(browser, "/dags/shop/trigger", "mine:Asia/Tokyo"))
    form = {"logical_date": "2024-01-06T05:00+02:00", "csrf_token": token, "zone": "Asia/Tokyo"}
    browser.post("/dags/shop/trigger", data=form)
    assert asked(manager, "dag.trigger")["logical_date"] == "2024-01-06T03:00:00Z"


def test_a_zone_that_is_none_is_reported(browser: TestClient) -> None:
    token = csrf(page_of(browser, "/dags/shop/trigger"))
    form = {"logical_date": "2024-01-06", "csrf_token": token, "zone": "Mars/Olympus"}
    answer = browser.post("/dags/shop/trigger", data=form)
    assert answer.status_code == 422 and "no time zone &#39;Mars/Olympus&#39;" in answer.text
    for address in ("/dags/shop/clear?zone=Mars", "/runs?from=2024-01-01&zone=Mars", "/dags/shop/render?zone=Mars"):
        assert "no time zone" in browser.get(address).text


def test_a_backfill_is_of_the_days_of_the_zone_that_the_form_said(
    manager: InMemoryManager, browser: TestClient
) -> None:
    page = page_of(browser, "/backfills/new?dag=shop", "utc")
    form = {
        "dag": "shop", "sent": "1", "csrf_token": csrf(page), "zone": "UTC", "do": "create", "kind": "schedule",
        "start_date": "2024-01-05", "end_date": "2024-01-07", "max_active_runs": "1", "reprocess": "completed",
        "pool": "backfill",
    }  # fmt: skip
    assert browser.post("/backfills/new", data=form).status_code == 303
    ask = asked(manager, "backfill.create")["ask"]
    assert isinstance(ask, dict)
    config = ask.get("config", ask)
    assert config["start_date"] == "2024-01-05T00:00:00Z"
    assert parse_instant(config["end_date"]) < parse_instant("2024-01-08T00:00:00Z")


def test_a_clear_finds_the_runs_of_the_days_of_the_zone(browser: TestClient) -> None:
    """Runs of `shop` are at midnight in UTC: at one in Berlin, at nine in Tokyo."""
    for choice, last, runs in (
        ("utc", "2024-01-06", 2),
        ("", "2024-01-06", 2),
        ("mine:America/New_York", "2024-01-05", 1),
    ):
        browser.cookies.clear()
        page = page_of(browser, f"/dags/shop/clear?dry_run=true&start=2024-01-05&end={last}&tasks=^extract$", choice)
        heading = next(one.whole_text for one in page.root.find("h2") if " of " in one.whole_text)
        assert heading.endswith(f"of {runs} run" + ("s" if runs > 1 else "")), choice


def test_a_link_with_another_zone_shows_the_same_instants(browser: TestClient) -> None:
    browser.cookies.set(ZONE_COOKIE, "utc")
    address = "/dags/shop/gaps?start_date=2024-01-10&end_date=2024-01-14&zone=Europe/Berlin"
    values = {
        one.attributes.get("name"): one.attributes.get("value") for one in page_of(browser, address).root.find("input")
    }
    assert (values["start_date"], values["end_date"]) == ("2024-01-09T23:00", "2024-01-14T22:59:59.999999")
    browser.cookies.clear()
    values = {
        one.attributes.get("name"): one.attributes.get("value") for one in page_of(browser, address).root.find("input")
    }
    assert (values["start_date"], values["end_date"]) == ("2024-01-10", "2024-01-14")


def test_rendered_and_listed_runs_follow_the_zone(browser: TestClient) -> None:
    page = page_of(browser, "/dags/shop/render?logical_date=2024-01-06T12:00", "mine:Asia/Tokyo")
    assert "manual__2024-01-06T05:00:00Z" in page.root.whole_text  # the next 06:00 in Berlin
    assert "No interval" in page.root.whole_text
    # 14 hours ahead: the day of the first runs begins at 10 in UTC.
    browser.cookies.set(ZONE_COOKIE, "mine:Pacific/Kiritimati")
    there = listed(browser, "/runs?from=2024-01-07&to=2024-01-07")
    browser.cookies.clear()
    assert listed(browser, "/runs?from=2024-01-07&to=2024-01-07&zone=Pacific/Kiritimati") == there
    assert listed(browser, "/runs?from=2024-01-06T10:00Z&to=2024-01-07T09:59:59Z") == there
    assert there and listed(browser, "/runs?from=2024-01-07&to=2024-01-07") != there


def listed(browser: TestClient, address: str) -> list[str]:
    """What the list of runs has."""
    page = page_of(browser, address)
    return [row.find("td")[0].whole_text for body in page.root.find("tbody") for row in body.find("tr")]


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1)), st.sampled_from(EDGES),
    st.sampled_from(("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC")),
    st.sampled_from(("Europe/Berlin", "Asia/Kolkata")),
)  # fmt: skip
def test_what_is_typed_in_one_zone_means_the_same_in_another(local: datetime, edge: Edge, was: str, zone: str) -> None:
    at = local.replace(microsecond=0, tzinfo=UTC)
    text = as_typed(at, was, edge)
    there = moved(text, was, zone, edge)
    assert moved(there, zone, was, edge) == text
    assert parse_instant(for_command(text, was, "Pacific/Auckland", edge, name="x")) == at
    assert parse_instant(for_command(there, zone, "Pacific/Auckland", edge, name="x")) == at


def test_a_day_means_its_edges() -> None:
    day, night = "2024-03-31", ZoneInfo("Europe/Berlin")  # of 23 hours
    begin, end = datetime(2024, 3, 31, tzinfo=night), datetime(2024, 4, 1, tzinfo=night)
    read = {edge: parse_instant(for_command(day, "Europe/Berlin", "UTC", edge, name="x")) for edge in EDGES}
    assert read == {
        "at": begin,
        "start": begin,
        "end": end.astimezone(UTC) - timedelta(microseconds=1),
        "end_excluded": end,
    }
    assert moved("nonsense", "UTC", "Europe/Berlin", "at") == "nonsense"
    with pytest.raises(InvalidInput):
        for_command("nonsense", "UTC", "Europe/Berlin", "at", name="logical_date")
