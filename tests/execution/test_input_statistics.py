"""Finding the table that a DAG says it reads, wherever it lies, and reading nothing of it but its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.execution.inputs.input_statistics import input_files, location_of
from backfill_manager.execution.spark.catalog import folder_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "SELECT id, TIMESTAMP'2024-01-01 00:00:00' + make_interval(0, 0, 0, CAST(id AS INT)) AS at FROM range(5)"


def test_a_table_is_found_by_name_by_path_and_through_the_catalog(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TABLE input_by_name USING delta AS {ROWS}")
    outside = tmp_path / "out side" / "t"
    spark.sql(f"CREATE OR REPLACE TABLE input_outside USING delta LOCATION '{outside}' AS {ROWS}")
    spark.sql("CREATE SCHEMA IF NOT EXISTS input_schema")
    spark.sql(f"CREATE OR REPLACE TABLE input_schema.inner_one USING delta AS {ROWS}")
    files_of = input_files(spark)
    names = ("input_by_name", "INPUT_BY_NAME", "default.input_by_name", "spark_catalog.default.input_by_name")
    for name in (*names, "input_outside", str(outside), outside.as_uri().replace("%20", " "), "input_schema.inner_one"):
        found = files_of(name, "at")
        assert found is not None, name
        assert sum(found["rows"].to_pylist()) == 5
        assert min(found["first"].to_pylist()).isoformat() == "2024-01-01T00:00:00+00:00"
        assert max(found["last"].to_pylist()).isoformat() == "2024-01-05T00:00:00+00:00"
    assert location_of(spark, "input_outside") == str(outside)


def test_a_table_that_the_catalog_has_forgotten_is_found_in_the_warehouse(spark: SparkSession) -> None:
    spark.sql(f"CREATE OR REPLACE TABLE input_to_forget USING delta AS {ROWS}")
    folder = folder_of(spark, "input_to_forget")
    assert folder is not None
    spark.sql(f"CREATE OR REPLACE TABLE input_forgotten USING delta LOCATION '{folder}2' AS {ROWS}")
    spark.sql("DROP TABLE input_forgotten")  # an external one: its files stay
    found = input_files(spark)("input_to_forget2", None)
    assert found is not None and found["rows"].to_pylist() != []


def test_a_table_without_a_file_has_figures_of_nothing(spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TABLE input_empty (id BIGINT, at TIMESTAMP) USING delta")
    found = input_files(spark)("input_empty", "at")
    assert found is not None and found.num_rows == 0


@pytest.mark.parametrize(
    "name",
    [
        "input_nowhere",
        "no_schema.input_nowhere",
        "no_catalog.no_schema.input_nowhere",
        "/no/such/folder",
        "input_view",
        "input_csv",
        "",
        "a b",
        "x`; DROP TABLE input_keep; --",
        "`x``y`",
        "`",
        "a..b",
    ],
)
def test_what_is_no_delta_table_is_not_there(spark: SparkSession, name: str) -> None:
    spark.sql("CREATE TABLE IF NOT EXISTS input_keep (id BIGINT) USING delta")
    spark.sql("CREATE TABLE IF NOT EXISTS input_csv (id BIGINT) USING csv")
    spark.sql("CREATE OR REPLACE VIEW input_view AS SELECT * FROM input_keep")
    assert input_files(spark)(name, "at") is None
    assert spark.catalog.tableExists("input_keep")
