"""docs/how-to/revert-a-run.md, done as it says: beside a real manager, with real tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bfm import Bfm, BfmResult
from support.bfm_beside_manager import bfm_beside_manager, write_bundle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "revert-a-run.md").read_text(encoding="utf-8")
(DAG_FILE,) = re.findall(r"^```python\n# jobs/bundles/sales.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(WRONG, RIGHT) = re.findall(r'`("-?id AS.*?")`', PAGE)
COMMANDS = [line.split() for line in re.findall(r"^\$ bfm (.+)$", PAGE, re.MULTILINE)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path, "sales.py", DAG_FILE)


@pytest.fixture
def bfm(bundle: Path, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Iterator[Bfm]:
    with bfm_beside_manager(tmp_path, spark, capfd) as beside:
        yield beside
    spark.sql("DROP SCHEMA IF EXISTS store CASCADE")


def totals(spark: SparkSession, table: str, column: str) -> list[int]:
    days = spark.table(table).selectExpr(f"date({column}) AS on", "amount").groupBy("on").sum("amount")
    return [row[1] for row in days.orderBy("on").collect()]


def test_the_page_is_right(bfm: Bfm, bundle: Path, spark: SparkSession) -> None:
    commands = iter(COMMANDS)

    def follow(*words: str) -> BfmResult:
        command = next(commands)
        assert tuple(command[: len(words)]) == words
        done = bfm(*command)
        assert done.code == 0, (command, done)
        return done

    def gaps(dag: str, finding: str) -> list[str]:
        found = bfm("backfill", "gaps", dag, "--from", "2024-01-01", "--to", "2024-01-03", "--output", "json").document
        return [one["interval_start"][:10] for one in found if one["finding"] == finding]

    right, wrong = [276, 852, 1428], [276, -852, 1428]
    follow("backfill", "create", "sales")
    assert RIGHT in DAG_FILE
    bundle.write_text(DAG_FILE.replace(RIGHT, WRONG))
    follow("bundles", "parse")
    follow("backfill", "create", "sales")
    assert totals(spark, "store.sales", "at") == wrong
    follow("backfill", "create", "report")
    assert totals(spark, "store.report", "day") == wrong and gaps("report", "outdated") == []

    again = "backfill__2024-01-02T00:00:00Z__2"
    shown = follow("runs", "revert").out
    assert "store.sales" in shown and "2024-01-02T00:00:00Z – 2024-01-03T00:00:00Z" in shown
    assert totals(spark, "store.sales", "at") == wrong, "it only says so"
    done = follow("runs", "revert")
    assert f"{again} reverted; as before: store.sales" in done.out
    assert "1 task read this since" in done.err and "report/backfill__2024-01-02T00:00:00Z" in done.err
    assert totals(spark, "store.sales", "at") == right
    assert "reverted: as after backfill__2024-01-02T00:00:00Z" in " ".join(follow("runs", "timeline").out.split())
    assert again in follow("tables", "show").out
    assert gaps("sales", "rewritten") == gaps("sales", "empty") == [], "it is the manager's own work"

    assert "outdated" in follow("backfill", "gaps", "report").out
    assert gaps("report", "outdated") == ["2024-01-02"]
    follow("backfill", "create", "report")
    assert totals(spark, "store.report", "day") == right and gaps("report", "outdated") == []
    follow("backfill", "revert")
    assert totals(spark, "store.report", "day") == wrong and gaps("report", "outdated") == ["2024-01-02"]
    assert next(commands, None) is None

    first = bfm("runs", "revert", "2024-01-03", "--dag", "sales", "--yes", "--output", "json").document
    assert [table["rows_then"] for table in first["tables"]] == [0] and totals(spark, "store.sales", "at") == right[:2]
    missing = ("--kind", "missing", "--from", "2024-01-01", "--to", "2024-01-03", "--dry-run", "--output", "json")
    plan = bfm("backfill", "create", "sales", *missing).document
    assert [item["logical_date"][:10] for item in plan["items"]] == ["2024-01-03"]
