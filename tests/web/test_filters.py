"""Jinja filters, and ids in addresses."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_manager import humanise
from backfill_manager.clock import UTC
from backfill_manager.schemas import page_paths
from backfill_manager.web import filters, links

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"), (0.0421, "42 ms"), (1, "1.0 s"), (9.96, "10 s"), (59.96, "1 min"), (125, "2 min 5 s"),
        (3600, "1 h"), (7800, "2 h 10 min"), (86_400, "1 d"), (273_600, "3 d 4 h"), (-1, "0 s"),
    ],
)  # fmt: skip
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert filters.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (336_776, "336,776"), (1.25, "1.2"), (42.0, "42"), (123.4, "123")]
)
def test_a_number_in_words(value: float, text: str) -> None:
    assert filters.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "now"), (59, "59 s ago"), (61, "1 min ago"), (-7200, "in 2 h"), (200_000, "2 d ago")]
)
def test_how_long_ago(seconds: int, text: str) -> None:
    assert humanise.age(NOON - timedelta(seconds=seconds), NOON) == text


@pytest.mark.parametrize(
    ("at", "zone", "text"),
    [
        ("2013-01-01T05:00:00Z", "America/New_York", "2013-01-01"),
        ("2013-01-01T05:00:00Z", "UTC", "2013-01-01 05:00 UTC"),
        ("2013-01-01T00:00:07Z", "UTC", "2013-01-01 00:00:07 UTC"),
        ("2013-07-01T09:15:00Z", "Europe/Berlin", "2013-07-01 11:15 CEST"),
        ("2013-07-01T09:15:00Z", "America/Sao_Paulo", "2013-07-01 06:15 UTC-03"),
        ("0099-01-01T00:00:00Z", "UTC", "0099-01-01"),
    ],
)
def test_a_logical_date_is_as_short_as_it_can_be_in_its_zone(at: str, zone: str, text: str) -> None:
    assert filters.plain_day(at, zone) == text


def test_what_runs_takes_time_until_it_ends() -> None:
    running = {"state": "running", "started_at": "2024-01-31T11:58:54.500000Z", "duration_s": None}
    assert '<time datetime="2024-01-31T11:58:54.500000Z"' in (shown := filters.elapsed(running, NOON))
    assert shown.endswith('class="elapsed">1 min 5 s</time>')
    assert filters.elapsed({**running, "state": "success", "duration_s": 7.0}, NOON) == "7.0 s"
    assert filters.elapsed({**running, "started_at": "2024-01-31T12:00:01Z"}, NOON).endswith(">0 s</time>")


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        (None, None, ("2024-01-24", "2024-01-30")),
        ("2024-01-28T05:00:00Z", None, ("2024-01-28", "2024-01-30")),
        ("2013-01-01T05:00:00Z", "2013-12-31T05:00:00Z", ("2013-12-25", "2013-12-31")),
        ("2025-03-01T05:00:00Z", None, ("2025-03-01", "2025-03-01")),
    ],
)
def test_example_days_are_days_that_the_dag_has(start: str | None, end: str | None, days: tuple[str, str]) -> None:
    dag = {"timezone": "America/New_York", "start_date": start, "end_date": end}
    assert filters.example_days(NOON, dag) == days


def test_an_instant_has_the_exact_one_as_its_title() -> None:
    shown = filters.instant("2013-01-05T05:00:00.250000Z", "America/New_York", seconds=True)
    assert shown == (
        '<time datetime="2013-01-05T05:00:00.250000Z" title="2013-01-05 05:00:00.250000 UTC">5 Jan 2013, 00:00:00 EST</time>'
    )
    assert (
        filters.instant(None) == filters.ago(None, NOON) == filters.duration(None) == '<span class="no-value">–</span>'
    )


def test_commands_in_a_message_are_shown_as_such_and_nothing_else_is_markup() -> None:
    assert (
        filters.inline_code("start one with `bfm <x>`; <b>") == "start one with <code>bfm &lt;x&gt;</code>; &lt;b&gt;"
    )
    assert filters.inline_code("a lone ` tick") == "a lone ` tick"


@given(st.text(min_size=1))
def test_an_id_survives_its_way_through_an_address(text: str) -> None:
    from urllib.parse import unquote

    part = page_paths.segment(text.encode("utf-8", "replace").decode())
    assert "/" not in part and "\\" not in part and part not in (".", "..") and "?" not in part and "#" not in part
    assert page_paths.from_segment(unquote(part)) == text.encode("utf-8", "replace").decode()


def test_addresses() -> None:
    assert links.to("runs", "a b", "x/y", tab="t", none=None, empty="", off=False) == "/runs/a%20b/x~2Fy?tab=t"
    assert links.to("requests") == "/requests"


def test_a_request_leads_to_what_it_made_and_a_plan_to_its_dag() -> None:
    about = {"backfill_id": "b1", "dag_id": "flights"}
    assert links.to_object({"kind": "backfill.create", "about": about}) == ("/backfills/b1", "backfill b1")
    assert links.to_object({"kind": "backfill.dry_run", "about": about, "object_id": None}) == (
        "/dags/flights",
        "flights",
    )


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/dags?q=x#y", True), ("/", True), ("//evil", False), ("/\\evil", False), ("https://evil", False), ("", False),
        ("/a\nb", False), (None, False), ("dags", False),
    ],
)  # fmt: skip
def test_what_is_a_path_of_ours(path: str | None, own: bool) -> None:
    assert links.is_local(path) is own
