"""docs/how-to/preview-a-change.md, done as it says: beside a real manager, with real tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bfm import Bfm, BfmResult
from support.bfm_beside_manager import bfm_beside_manager, write_bundle
from support.manager_process import wait_for

from backfill_manager.execution.output.clones import Clones, remaining

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "preview-a-change.md").read_text(encoding="utf-8")
(DAG_FILE,) = re.findall(r"^```python\n# jobs/bundles/prices.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(FIXED, BUG) = re.findall(r'`("id.*?")`', PAGE)
COMMANDS = [line.split() for line in re.findall(r"^\$ bfm (.+)$", PAGE, re.MULTILINE)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path, "prices.py", DAG_FILE)


@pytest.fixture
def bfm(bundle: Path, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Iterator[Bfm]:
    with bfm_beside_manager(tmp_path, spark, capfd) as beside:
        yield beside
    spark.sql("DROP SCHEMA IF EXISTS shop CASCADE")


def totals(spark: SparkSession) -> list[int]:
    days = spark.table("shop.totals").orderBy("day").collect()
    assert sorted(row["price"] for row in spark.table("shop.prices").collect())
    return [row[1] for row in days]


DOWNSTREAM = """
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-01-31", reads={"shop.totals": "day"}, writes=["shop.double"])
def spending():
    @task
    def double(ctx):
        totals = ctx.spark.table("shop.totals").where(ctx.in_interval("day")).selectExpr("day", "2 * total AS double")
        ctx.write(totals, "shop.double", time_column="day")

    double()
"""


def test_what_is_downstream_reads_the_clones(bfm: Bfm, bundle: Path, spark: SparkSession) -> None:
    days = ("--from", "2024-01-02", "--to", "2024-01-02")
    (bundle.parent / "spending.py").write_text(DOWNSTREAM)
    last = 'end_date="2024-01-31"'
    bundle.write_text(DAG_FILE.replace(last, f'{last}, writes=["shop.prices", "shop.totals"]'))
    assert bfm("bundles", "parse", "examples").code == 0
    done = bfm(
        "backfill",
        "create",
        "prices",
        *days,
        "--preview",
        "--downstream",
        "--wait",
        "--conf",
        '{"api_token": "2024-01-02"}',
    )
    assert done.code == 0, done
    (root,) = bfm("backfill", "list", "--dag", "prices", "--output", "json").document
    below = wait_for(
        lambda: bfm("backfill", "list", "--dag", "spending", "--state", "success", "--output", "json").document
    )
    assert [row["preview_id"] for row in below] == [root["backfill_id"]]
    found = bfm("backfill", "diff", root["backfill_id"], "--table", "shop.double", "--output", "json").document
    assert [(table["added"], table["version"]) for table in found["tables"]] == [(1, None)]
    (added,) = found["tables"][0]["examples"]["added"]
    assert added["day"].startswith("***") and added["double"] == 2 * 1704, (
        "a secret of its params is masked in rows, too"
    )
    (clone,) = (one for one in Clones(spark, root["backfill_id"]).all() if one.source.table == "shop.double")
    assert spark.read.format("delta").load(clone.path).first()["double"] == 2 * 1704
    assert not spark.catalog.tableExists("shop.double") and not spark.catalog.tableExists("shop.prices")
    assert bfm("backfill", "discard", root["backfill_id"]).code == 0


def test_the_page_is_right(bfm: Bfm, bundle: Path, spark: SparkSession) -> None:
    commands = iter(COMMANDS)

    def follow(*words: str) -> BfmResult:
        command = next(commands)
        assert tuple(command[: len(words)]) == words
        done = bfm(*command)
        assert done.code == 0, (command, done)
        return done

    wrong, right = [552, 1704, 2856], [276, 852, 1428]
    follow("backfill", "create", "prices")
    assert totals(spark) == wrong
    assert BUG in DAG_FILE
    bundle.write_text(DAG_FILE.replace(BUG, FIXED))
    follow("bundles", "parse")
    follow("backfill", "create", "prices")
    assert totals(spark) == wrong, "nobody notices"
    assert len(remaining(spark)) == 1
    real = bfm("runs", "list", "--type", "backfill", "--output", "json").document
    assert [run["state"] for run in real] == ["success"] * 3

    text = follow("backfill", "diff").out
    assert "price differs in 71 rows" in text and "hour_id=" in text, text
    found = {table["table"]: table for table in follow("backfill", "diff").document["tables"]}
    assert {name: (one["added"], one["removed"], one["same"]) for name, one in found.items()} == {
        "shop.prices": (71, 71, 1), "shop.totals": (3, 3, 0),
    }  # fmt: skip
    assert [part["interval"] for part in found["shop.totals"]["intervals"]] == [
        "2024-01-01 – 2024-01-02", "2024-01-02 – 2024-01-03", "2024-01-03 – 2024-01-04",
    ]  # fmt: skip
    assert "2 tables, 3 runs" in follow("backfill", "promote").out
    assert totals(spark) == right
    runs = bfm("runs", "timeline", "prices", "--output", "json").document
    assert [(run["run_type"], len(run["overridden"])) for run in runs] == [("backfill", 1)] * 3
    shown = bfm("tables", "show", "shop.totals", "--output", "json").document
    assert {row["run_id"] for row in shown} == {run["run_id"] for run in runs}

    follow("backfill", "create", "prices")
    assert totals(spark) == right
    follow("backfill", "discard")
    assert next(commands, None) is None
    wait_for(lambda: not remaining(spark))
    assert bfm("backfill", "show", "latest", "--output", "json").document["preview_outcome"] == "discarded"
