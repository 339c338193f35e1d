"""docs/how-to/try-a-change.md, done as it says: beside a real manager, with real tables."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bfm import Bfm, BfmResult
from support.manager_process import TIMEOUT_S, PatientClock, wait_for

from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext
from backfill_manager.execution.preview import remaining
from backfill_manager.manager.manager import run_manager
from backfill_manager.settings import load_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "try-a-change.md").read_text(encoding="utf-8")
(DAG_FILE,) = re.findall(r"^```python\n# jobs/bundles/prices.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(FIXED, BUG) = re.findall(r'`("id.*?")`', PAGE)
COMMANDS = [line.split() for line in re.findall(r"^\$ bfm (.+)$", PAGE, re.MULTILINE)]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "m.yaml").write_text(f"bundles:\n- {{name: examples, path: '{tmp_path / 'bundle'}'}}\n")
    file = tmp_path / "bundle" / "prices.py"
    file.write_text(DAG_FILE)
    return file


@pytest.fixture
def bfm(bundle: Path, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Iterator[Bfm]:
    where = ("--conf", str(tmp_path / "m.yaml"), "--state", str(tmp_path / "state"))
    settings = load_settings(str(tmp_path / "m.yaml"), state=str(tmp_path / "state"), environ={})
    ready, stop = threading.Event(), threading.Event()
    leading = threading.Thread(
        target=run_manager, args=(settings,), kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark}
    )  # fmt: skip
    leading.start()
    assert ready.wait(TIMEOUT_S), "the manager answers requests"

    def run_it(*args: str) -> BfmResult:
        capfd.readouterr()
        code = run((*where, *args), CliContext(environ={}, clock=PatientClock()))
        return BfmResult(code, *capfd.readouterr())

    yield run_it
    stop.set()
    leading.join(TIMEOUT_S)
    spark.sql("DROP SCHEMA IF EXISTS shop CASCADE")


def totals(spark: SparkSession) -> list[int]:
    days = spark.table("shop.totals").orderBy("day").collect()
    assert sorted(row["price"] for row in spark.table("shop.prices").collect())
    return [row[1] for row in days]


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
