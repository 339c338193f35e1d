"""Where the columns of queries come from, by the plans that Spark makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from backfill_manager.execution.lineage.table_access import TableAccesses


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[SparkSession]:
    spark.sql("CREATE SCHEMA bronze")
    spark.sql("CREATE TABLE bronze.events (id BIGINT, amount BIGINT, at TIMESTAMP, parts ARRAY<STRING>) USING delta")
    spark.sql("CREATE TABLE bronze.places (id BIGINT, name STRING) USING delta")
    spark.sql("CREATE TABLE bronze.copies (id BIGINT, total DOUBLE) USING delta")
    spark.sql("CREATE VIEW bronze.large AS SELECT id AS event, amount FROM bronze.events WHERE amount > 10")
    yield spark
    spark.sql("DROP SCHEMA bronze CASCADE")


def sources(df: DataFrame) -> dict[str, set[str]]:
    columns = json.loads(TableAccesses(with_columns=True).columns_of(df) or "null")
    return {
        column["name"]: {f"{table.removeprefix('bronze.')}.{name}" for table, name in column["from"]}
        for column in columns
    }


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, amount * 2 AS twice, 1 AS one FROM bronze.events WHERE at > now()",
         {"id": {"events.id"}, "twice": {"events.amount"}, "one": set()}),
        ("SELECT p.name, sum(e.amount + e.id) AS total FROM bronze.events e JOIN bronze.places p ON e.id = p.id GROUP BY p.name",
         {"name": {"places.name"}, "total": {"events.amount", "events.id"}}),
        ("SELECT e.* FROM bronze.events e LEFT SEMI JOIN bronze.places p ON e.id = p.id",
         {"id": {"events.id"}, "amount": {"events.amount"}, "at": {"events.at"}, "parts": {"events.parts"}}),
        ("SELECT id, id * 2 AS twice FROM bronze.events UNION ALL SELECT id, length(name) FROM bronze.places",
         {"id": {"events.id", "places.id"}, "twice": {"events.id", "places.name"}}),
        ("WITH a AS (SELECT id AS x FROM bronze.events), b AS (SELECT x + 1 AS y FROM a) SELECT a.x, b.y FROM a, b",
         {"x": {"events.id"}, "y": {"events.id"}}),
        ("SELECT id, (SELECT max(name) FROM bronze.places) AS last FROM bronze.events",
         {"id": {"events.id"}, "last": {"places.name"}}),
        ("SELECT id, lag(amount) OVER (PARTITION BY id ORDER BY at) AS before FROM bronze.events",
         {"id": {"events.id"}, "before": {"events.amount", "events.id", "events.at"}}),
        ("SELECT part FROM bronze.events LATERAL VIEW explode(parts) AS part", {"part": {"events.parts"}}),
        ("SELECT id, amount, count(*) AS n FROM bronze.events GROUP BY CUBE (id, amount)",
         {"id": {"events.id"}, "amount": {"events.amount"}, "n": set()}),
        ("SELECT a.id, b.amount FROM bronze.events a JOIN bronze.events b ON a.id = b.amount",
         {"id": {"events.id"}, "amount": {"events.amount"}}),
        ("SELECT event, amount FROM bronze.large", {"event": {"events.id"}, "amount": {"events.amount"}}),
        ("INSERT INTO bronze.copies (total, id) SELECT amount, id FROM bronze.events",
         {"id": {"events.id"}, "total": {"events.amount"}}),
        ("CREATE TABLE bronze.made USING delta AS SELECT id, upper(name) AS loud FROM bronze.places",
         {"id": {"places.id"}, "loud": {"places.name"}}),
    ],
)  # fmt: skip
def test_a_column_comes_from_those_that_its_values_are_computed_from(
    tables: SparkSession, query: str, expected: dict[str, set[str]]
) -> None:
    assert sources(tables.sql(query)) == expected


def test_in_python_too(tables: SparkSession) -> None:
    events = tables.table("bronze.events").withColumn("cents", f.col("amount") * 100).dropDuplicates(["id"])
    places = tables.table("bronze.places").withColumnRenamed("id", "place")
    joined = events.join(places, events.id == places.place).select("cents", "name").orderBy("cents").limit(3)
    assert sources(joined) == {"cents": {"events.amount"}, "name": {"places.name"}}
    opaque = events.select("id").mapInPandas(lambda frames: frames, "id BIGINT")
    assert sources(opaque) == {"id": set()}, "the plan does not say"


def test_types_stand_beside_and_without_the_setting_nothing_is_read(tables: SparkSession) -> None:
    df = tables.sql("SELECT parts, CAST(id AS DECIMAL(10, 2)) AS d FROM bronze.events")
    columns = json.loads(TableAccesses(with_columns=True).columns_of(df) or "null")
    assert [(column["name"], column["type"]) for column in columns] == [("parts", "array"), ("d", "decimal(10,2)")]
    assert TableAccesses().columns_of(df) is None


def test_what_is_read_has_the_columns_of_the_version_that_is_read(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE TABLE {table} (id BIGINT, parts ARRAY<INT>) USING delta")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (price DECIMAL(10, 2))")
    of_version = {}
    for version in (0, 1):
        accesses = TableAccesses(with_columns=True)
        accesses.read_by(spark.sql(f"SELECT id FROM {table} VERSION AS OF {version}"))
        (read,) = accesses.all()
        of_version[read.version] = [(one["name"], one["type"]) for one in json.loads(read.columns_json or "[]")]
    old = [("id", "long"), ("parts", "array")]
    assert of_version == {0: old, 1: [*old, ("price", "decimal(10,2)")]}
