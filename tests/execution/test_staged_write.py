"""Where the files of a table lie by their statistics: inside, outside or across what a write replaces. No Spark."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.clock import UTC
from backfill_manager.execution.interval import Interval, bounds, ends
from backfill_manager.execution.output.staged_write import Replaced, StagedWrite

FROM, TO = datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC)
LONG = "a key of more than thirty-two characters"


def of_interval(kind: str = "timestamp", start: datetime = FROM, end: datetime = TO) -> Replaced:
    return Replaced("", "at", kind, "", *ends(Interval(start, end), "UTC")[kind])


def of_key(key: str, kind: str = "string") -> Replaced:
    return Replaced("", "at", kind, "", key=key)


def a_file(low: Any = None, high: Any = None, nulls: int | None = 0, rows: int = 10) -> dict[str, Any]:
    counts = {} if nulls is None else {"at": nulls}
    smallest, largest = ({} if end is None else {"at": end} for end in (low, high))
    about = {"numRecords": rows, "minValues": smallest, "maxValues": largest, "nullCount": counts}
    return {"partitionValues": {}, "stats": json.dumps(about)}


@pytest.mark.parametrize(
    ("low", "high", "place"),
    [
        ("2013-01-02T00:00:00.000Z", "2013-01-02T23:59:59.999Z", "inside"),
        ("2013-01-02T01:00:00.000+01:00", "2013-01-02T23:59:59.999Z", "inside"),
        ("2013-01-02T00:00:00.000Z", "2013-01-03T00:00:00.000Z", "across"),
        ("2013-01-01T23:59:59.999Z", "2013-01-02T05:00:00.000Z", "across"),  # a row just before midnight, too
        ("2013-01-01T00:00:00.000Z", "2013-01-01T23:59:59.999Z", "outside"),
        ("2013-01-01T00:00:00.000Z", "2013-01-02T00:00:00.000Z", "across"),
        ("2013-01-03T00:00:00.000Z", "2013-01-04T00:00:00.000Z", "outside"),
        ("2013-01-01T00:00:00.000Z", "2013-01-04T00:00:00.000Z", "across"),
        ("2013-01-01T00:00:00.000Z", "+12000-01-04T00:00:00.000Z", "across"),
        ("2013-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "across"),
    ],
)
def test_a_file_of_times(low: str, high: str, place: str) -> None:
    assert of_interval().place_of(a_file(low, high)) == place


@pytest.mark.parametrize(
    ("low", "high", "place"),
    [
        ("2013-01-02", "2013-01-02", "inside"), ("2013-01-01", "2013-01-02", "across"), ("2013-01-03", "2013-01-03", "outside"),
        ("2013-01-01", "2013-01-01", "outside"),
    ],
)  # fmt: skip
def test_a_file_of_dates(low: str, high: str, place: str) -> None:
    assert of_interval("date").place_of(a_file(low, high)) == place
    assert of_interval("date").place_of({"partitionValues": {"at": high}, "stats": "{}"}) == (
        "outside" if place == "outside" else "inside"
    )


def test_a_time_in_an_interval_whose_end_is_within_a_millisecond_is_not_taken_for_inside() -> None:
    """The statistics say 00:00:00.000 of a row at 00:00:00.000700."""
    end = FROM + timedelta(microseconds=500)
    file = a_file("2013-01-02T00:00:00.000Z", "2013-01-02T00:00:00.000Z")
    assert of_interval(end=end).place_of(file) == "across"
    assert of_interval(start=end).place_of(file) == "across"


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_without_statistics_nothing_is_known(kind: str) -> None:
    replaced = of_interval(kind)
    assert replaced.place_of({"partitionValues": {}}) == "across"
    assert replaced.place_of(a_file()) == "across"
    assert replaced.place_of(a_file("2013-01-02", "2013-01-02", nulls=None)) == "across"


def test_rows_without_a_time_belong_to_no_interval() -> None:
    within = ("2013-01-02T01:00:00.000Z", "2013-01-02T02:00:00.000Z")
    assert of_interval().place_of(a_file(*within, nulls=1)) == "across"
    assert of_interval().place_of(a_file(nulls=10)) == "outside"
    assert of_interval().place_of(a_file(nulls=0, rows=0)) == "outside"
    assert of_interval("date").place_of({"partitionValues": {"at": None}, "stats": "{}"}) == "outside"


@pytest.mark.parametrize(
    ("key", "low", "high", "place"),
    [
        ("m", "m", "m", "inside"), ("m", "a", "z", "across"), ("m", "n", "z", "outside"), ("m", "a", "l", "outside"),
        (LONG[:32], LONG[:32], LONG[:32], "across"),  # it may be the beginning of a longer one
    ],
)  # fmt: skip
def test_a_file_of_keys(key: str, low: str, high: str, place: str) -> None:
    assert of_key(key).place_of(a_file(low, high)) == place


def test_a_partition_column_is_exact() -> None:
    assert of_key(LONG).place_of({"partitionValues": {"at": LONG}}) == "inside"
    assert of_key(LONG).place_of({"partitionValues": {"at": LONG + "!"}}) == "outside"
    assert of_key("10", "int").place_of({"partitionValues": {"at": "9"}}) == "outside"
    assert of_key("10", "int").place_of(a_file(9, 10)) == "across"
    assert of_interval("timestamp").place_of({"partitionValues": {"at": "2013-01-02 00:00:00"}}) == "across"


times = st.datetimes(datetime(2013, 1, 1), datetime(2013, 1, 5)).map(lambda at: at.replace(tzinfo=UTC))


def cut(at: datetime) -> str:
    """As Delta's statistics have it."""
    return (
        at.replace(microsecond=at.microsecond // 1000 * 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


@given(st.lists(times, min_size=1, max_size=5), times, times)
def test_what_it_says_of_a_file_is_true_of_each_of_its_rows(
    rows: list[datetime], one: datetime, other: datetime
) -> None:
    start, end = sorted((one, other))
    place = of_interval(start=start, end=end).place_of(a_file(cut(min(rows)), cut(max(rows)), rows=len(rows)))
    within = [start <= at < end for at in rows]
    assert place == "across" or all(within) == any(within) == (place == "inside")


def test_overlaps() -> None:
    day, next_day = of_interval(), of_interval(start=TO, end=TO + timedelta(days=1))
    both = of_interval(end=TO + timedelta(days=1))
    assert not day.overlaps(next_day) and not next_day.overlaps(day)
    assert both.overlaps(day) and day.overlaps(both) and day.overlaps(day)
    assert of_key("a").overlaps(of_key("a")) and not of_key("a").overlaps(of_key("b"))
    assert of_key("7", "int").overlaps(of_key("07", "int")) and not of_key("7", "int").overlaps(of_key("8", "int"))
    assert day.overlaps(of_key("a")), "nobody knows"


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_the_ends_are_those_of_the_sql(kind: str) -> None:
    interval = Interval(datetime(2013, 3, 10, 5, tzinfo=UTC), datetime(2013, 3, 11, 4, tzinfo=UTC))
    lower, upper = ends(interval, "America/New_York")[kind]
    assert bounds(interval, "America/New_York")[kind] == (f"{kind.upper()} '{lower}'", f"{kind.upper()} '{upper}'")


def staged(*files: dict[str, Any], replaced: Replaced | None) -> StagedWrite:
    actions = tuple(json.dumps({"add": file}) for file in files)
    return StagedWrite("t", "t", "/t", "id", "", actions, replaced, "bfm/1", 0, "{}")


def test_a_write_with_rows_outside_of_its_interval_is_not_known_by_its_statistics() -> None:
    inside = a_file("2013-01-02T00:00:00.000Z", "2013-01-02T23:59:59.999Z", rows=7)
    across = a_file("2013-01-02T00:00:00.000Z", "2013-01-03T00:00:00.000Z")
    assert staged(inside, a_file(rows=0), replaced=of_interval()).is_known_by_statistics
    assert staged(inside, inside, replaced=of_interval()).rows == 14
    assert not staged(inside, across, replaced=of_interval()).is_known_by_statistics
    assert not staged(inside, {"partitionValues": {}}, replaced=None).is_known_by_statistics
    assert staged(across, replaced=None).is_known_by_statistics
    assert staged(replaced=of_interval()).is_known_by_statistics and staged(replaced=None).rows == 0
