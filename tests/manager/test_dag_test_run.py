"""`bfm dags test`: one run for real, and a state that is gone afterwards. What it writes is tested in
tests/e2e/test_many_states_one_warehouse.py."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.clock import UTC
from backfill_manager.errors import NotFound
from backfill_manager.manager import dag_test_run
from backfill_manager.settings import BundleSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAG_FILE = """
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-01-01", waits_for=["nobody.writes.this"])
def counting():
    @task
    def count(ctx):
        ctx.log.info("counting %s", ctx.interval.start.date())
        return ctx.spark.range(5).count()

    @task(retries=0)
    def picky(ctx):
        assert ctx.result("count") == 5
        assert ctx.logical_date.day != 3, "not on the third"

    count() >> picky()
"""

BY_REGION = """
from backfill_manager import Param, dag, task


@dag(params={"scale": Param(1), "region": Param("eu", choices=["eu", "us"])})
def by_region():
    @task
    def tell(ctx):
        ctx.log.info("%s of %s, %s", ctx.partition_key, ctx.params["region"], ctx.params["scale"])

    tell()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "counting.py").write_text(DAG_FILE)
    (tmp_path / "bundle" / "by_region.py").write_text(BY_REGION)
    (tmp_path / "bundle" / "broken.py").write_text("from backfill_manager import dag\nnonsense\n")
    return Settings(
        state=str(tmp_path / "state"),
        warehouse=str(tmp_path / "warehouse"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"))],
    )


def test_a_run_is_tried_out_and_leaves_no_state(settings: Settings, spark: SparkSession) -> None:
    """It does not wait for what its DAG waits for."""
    result = dag_test_run.run_dag_once(settings, "counting", None, spark=spark)
    assert (result["run"]["state"], result["run"]["run_id"]) == ("success", "manual__2024-01-01T00:00:00Z")
    assert [(ti["task_id"], ti["state"]) for ti in result["tasks"]] == [("count", "success"), ("picky", "success")]
    assert any("counting 2024-01-01" in line for line in result["logs"])
    assert not Path(settings.state).exists()


def test_a_run_that_fails_says_which_task_and_why(settings: Settings, spark: SparkSession) -> None:
    result = dag_test_run.run_dag_once(settings, "counting", datetime(2024, 1, 3, tzinfo=UTC), spark=spark)
    assert result["run"]["state"] == "failed"
    (picky,) = [ti for ti in result["tasks"] if ti["task_id"] == "picky"]
    assert "not on the third" in picky["error"]


def test_a_date_is_read_in_the_zone_of_the_dag_before_any_manager_knows_it(
    settings: Settings, spark: SparkSession
) -> None:
    zoned = DAG_FILE.replace('start_date="2024-01-01"', 'start_date="2024-01-01", timezone="America/New_York"')
    Path(settings.bundles[0].path, "counting.py").write_text(zoned)
    result = dag_test_run.run_dag_once(settings, "counting", "2024-01-02", spark=spark)
    assert (result["run"]["state"], result["run"]["run_id"]) == ("success", "manual__2024-01-02T05:00:00Z")


def test_lines_are_shown_as_they_come_and_the_next_try_does_not_wait(settings: Settings, spark: SparkSession) -> None:
    flaky = DAG_FILE.replace("retries=0", "retries=1, retry_delay=86_400").replace(
        "day != 3", "day != 3 or ctx.try_number > 1"
    )
    Path(settings.bundles[0].path, "counting.py").write_text(flaky)
    shown: list[str] = []
    result = dag_test_run.run_dag_once(settings, "counting", "2024-01-03", spark=spark, on_line=shown.append)
    assert result["run"]["state"] == "success"
    assert shown[0] == "count: INFO counting 2024-01-03"
    assert shown[1].startswith("picky: ERROR Traceback")
    assert sorted(shown) == sorted(result["logs"])


def test_a_dag_without_a_start_date_is_run_as_by_hand(settings: Settings, spark: SparkSession) -> None:
    result = dag_test_run.run_dag_once(settings, "by_region", None, spark=spark)
    run = result["run"]
    assert (run["state"], run["interval_start"]) == ("success", run["interval_end"])


def test_a_run_of_a_partition_with_params_is_tried_out(settings: Settings, spark: SparkSession) -> None:
    conf = {"region": "us"}
    result = dag_test_run.run_dag_once(settings, "by_region", None, partition_key="north", conf=conf, spark=spark)
    run = result["run"]
    assert (run["state"], run["run_id"], run["conf"]) == ("success", "manual__north", conf)
    assert (run["partition_key"], run["logical_date"]) == ("north", None)
    assert any("north of us, 1" in line for line in result["logs"])


def test_an_unknown_dag_is_reported_with_the_files_that_could_not_be_loaded(
    settings: Settings, spark: SparkSession
) -> None:
    with pytest.raises(NotFound, match=r"no DAG 'count'; did you mean 'counting'"):
        dag_test_run.run_dag_once(settings, "count", None, spark=spark)
    with pytest.raises(NotFound, match=r"broken\.py, line 2: NameError"):
        dag_test_run.run_dag_once(settings, "xyz", None, spark=spark)
    for name in ("b", "c", "d", "xyz"):
        Path(settings.bundles[0].path, f"{name}.py").write_text("# dag of backfill_manager\n1 / 0\n")
    with pytest.raises(NotFound, match=r"loaded: xyz\.py, line 2: ZeroDivisionError.*b\.py, line 2.*; and 2 more$"):
        dag_test_run.run_dag_once(settings, "xyz", None, spark=spark)


MAPPED = """
from backfill_manager import dag, sql, task


def report(ctx):
    ctx.log.info("%s has ended: %s", ctx.ended.task_id, ctx.mapped_value)


@dag(schedule="@daily", start_date="2024-01-01")
def deliveries():
    @task
    def find(ctx):
        return {"north": 2, "south": 3}

    @task(on_success=report)
    def load(ctx):
        return ctx.spark.range(ctx.mapped_value).count()

    @task
    def add(ctx):
        return sum(ctx.result("load").values())

    found = find()
    load.expand(over=found) >> add()
    sql("count", "SELECT count(*) FROM range(:mapped_value)", over=found)
"""


def test_tasks_are_mapped_over_the_result_of_another(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "bundle" / "deliveries.py").write_text(MAPPED)
    result = dag_test_run.run_dag_once(settings, "deliveries", None, spark=spark)
    assert result["run"]["state"] == "success", result["logs"]
    assert {ti["task_id"]: ti["result"] for ti in result["tasks"]} == {
        "find": {"north": 2, "south": 3}, "load": {"north": 2, "south": 3}, "load.north": 2, "load.south": 3, "add": 5,
        "count": {"north": 2, "south": 3}, "count.north": None, "count.south": None,
        "load.on_success": None, "load.north.on_success": None, "load.south.on_success": None,
    }  # fmt: skip
    for text in ("load.north has ended: 2", "load.south has ended: 3"):
        assert any(text in line for line in result["logs"]), text
