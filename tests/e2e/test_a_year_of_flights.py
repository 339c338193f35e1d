"""docs/how-to/a-year-of-flights.md, done as it says: the flights of a whole year, a real manager, real tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.flights_story import PAGE, flights_story, is_printed, steps
from support.manager_process import wait_for

from backfill_manager.execution.output.clones import remaining

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILS = "bfm backfill create flight_days --from 2013-01-01 --to 2013-03-31 --batch 1 --preview --wait"  # the first time
CANCELLED = "SELECT sum(cancelled) FROM {} WHERE {} < DATE '2013-04-01'"


def test_the_story_is_true(spark: SparkSession, tmp_path: Path) -> None:
    failed, is_promoted = list[str](), False
    with flights_story(spark, tmp_path) as story:
        for step in steps():
            code, printed = story.do(step)
            assert is_printed(step.shown, printed), f"{step.text}\n{printed}"
            failed += [step.text] if code else []
            is_promoted |= "promote" in step.text
            if step.kind == "bfm":
                expected = 2643 if is_promoted else 0  # nobody notices before
                assert _cancelled(spark, "flights_by_day", "day") == expected
        assert _cancelled(spark, "flights_by_month", "month") == 2643
        assert spark.table("flights_clean").count() == 336_776
        wait_for(lambda: not remaining(spark))
    assert failed == [FAILS]


def _cancelled(spark: SparkSession, table: str, column: str) -> int:
    (row,) = spark.sql(CANCELLED.format(table, column)).collect()
    return int(row[0])


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a  b\n...\nc", "a b\nx\ny\nc\n", True), ("a\n...", "b\n", False), ("a", "a\nb", False), ("a", "", False),
        ("Backfill 0123456789ab, in 3 s.", "Backfill ba9876543210, in 1.5 s.", True), ("...", "", True),
        ("3 rows", "4 rows", False),
    ],
)  # fmt: skip
def test_what_is_shown_is_compared(shown: str, printed: str, same: bool) -> None:
    assert is_printed(shown, printed) is same


def test_pictures_are_there() -> None:
    pictures = [step.text for step in steps() if step.kind == "picture"]
    assert len(pictures) == 3
    assert all(0 < (PAGE.parents[1] / "images" / name).stat().st_size < 100_000 for name in pictures)
