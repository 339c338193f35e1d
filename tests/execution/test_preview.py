"""Tasks of a preview write clones, and read them in place of the tables; the tables stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.executor_fixture import TaskRunner, a_launch
from support.previews import in_preview, result_of, values

from backfill_manager.execution.messages import Failed
from backfill_manager.execution.output.clones import Clones
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.execution.promote_revert.promote import writes_to
from backfill_manager.execution.spark.catalog import warehouse


def test_a_table_is_written_and_read_as_its_clone(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones
) -> None:
    path = spark.sql(f"DESCRIBE DETAIL {events}").first()["location"]

    def write(ctx: Any) -> None:
        rows = ctx.spark.table(events).where(ctx.in_interval("at")).selectExpr("at", "id", "v + 100 AS v")
        ctx.write(rows, events, time_column="at")

    def read(ctx: Any) -> list[float]:
        from delta.tables import DeltaTable

        ways = (
            ctx.spark.table(events), ctx.spark.read.table(events), ctx.spark.read.format("delta").load(path),
            ctx.spark.sql(f"SELECT * FROM (SELECT * FROM {events} AS e) WHERE id IN (SELECT id FROM {events})"),
            ctx.spark.sql(f"WITH e AS (TABLE {events}) SELECT e.* FROM e JOIN {{x}} USING (id)", x=ctx.spark.table(events)),
            DeltaTable.forName(ctx.spark, events).toDF(),
        )  # fmt: skip
        return [one.agg({"v": "sum"}).first()[0] for one in ways]

    result_of(runner, in_preview(clones, 1), write)
    result_of(runner, in_preview(clones, 2), write)
    assert values(spark, events) == [0, 0, 0, 1, 1, 1]
    (clone,) = clones.all()
    assert values(spark, f"delta.`{clone.path}`") == [0, 1, 100, 100, 101, 101]
    assert (clone.source.table, clone.source.version) == (events, 1)
    assert result_of(runner, in_preview(clones), read) == "[403.0, 403.0, 403.0, 403.0, 403.0, 403.0]"
    assert result_of(runner, a_launch(run_id="outside"), read) == "[3.0, 3.0, 3.0, 3.0, 3.0, 3.0]"


def test_a_table_that_another_program_has_made_in_the_warehouse_is_read(
    runner: TaskRunner, spark: SparkSession, clones: Clones
) -> None:
    folder = Path(warehouse(spark).removeprefix("file:")) / "made_for_previews"
    write_deltalake(str(folder), pa.table({"id": [1, 2]}))
    ways = (lambda ctx: ctx.spark.table("made_for_previews"), lambda ctx: ctx.spark.sql("TABLE made_for_previews"))
    for way in ways:
        assert result_of(runner, in_preview(clones), lambda ctx, way=way: way(ctx).count()) == "2"
        spark.sql("DROP TABLE made_for_previews")


def test_names_are_replaced_where_they_are(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones, schema: str
) -> None:
    sql = f"""
        UPDATE {events} SET v = 7;
        CREATE TABLE {schema}.clustered USING delta CLUSTER BY (id) AS SELECT *, '\U0001f600' AS s FROM {events} /* \U0001f600 */;
        INSERT INTO {schema}.clustered SELECT *, '\U0001f600' FROM {events}
    """
    result_of(runner, in_preview(clones, kind="sql", sql=sql))
    assert values(spark, events) == [0, 0, 0, 1, 1, 1]
    (made,) = [one for one in clones.all() if one.source.version is None]
    assert values(spark, f"delta.`{made.path}`") == [7] * 12


def test_tables_that_the_preview_makes_are_not_confused(spark: SparkSession, clones: Clones, schema: str) -> None:
    turns = TurnHolder(TableTurns())
    for name in ("one", "other"):
        assert clones.of(OutputTable(spark, f"{schema}.{name}")) is None
        clones.make(OutputTable(spark, f"{schema}.{name}"), turns).create(spark.range(0).schema)
    assert [one.source.table for one in clones.all()] == [f"{schema}.one", f"{schema}.other"]


def test_tries_that_make_the_same_clone_at_once_make_one(spark: SparkSession, events: str, clones: Clones) -> None:
    turns = TurnHolder(TableTurns())
    with ThreadPoolExecutor(4) as pool:
        makes = [
            pool.submit(Clones(spark, clones.preview_id).make, OutputTable(spark, events), turns) for _ in range(4)
        ]
        assert len({one.result().identity for one in makes}) == 1
    (clone,) = clones.all()
    assert OutputTable(spark, clone.path).read().version == 0
    assert values(spark, f"delta.`{clone.path}`") == values(spark, events)


def test_what_a_try_has_read_is_named_as_outside_of_the_preview(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones, schema: str
) -> None:
    spark.sql(f"CREATE TABLE {schema}.other USING delta AS SELECT 1 AS id")

    def write(ctx: Any) -> None:
        rows = (
            ctx.spark.table(events).join(ctx.spark.table(f"{schema}.other"), "id", "left").where(ctx.in_interval("at"))
        )
        ctx.write(rows, events, time_column="at")

    result_of(runner, in_preview(clones, 1), write)
    result_of(runner, in_preview(clones, 2), write)
    (clone,) = clones.all()
    found = [[(one.name, one.version) for one in write.reads] for write in writes_to(spark, clone)]
    assert found == [[(events, 1), (f"{schema}.other", 0)], [(events, None), (f"{schema}.other", 0)]]


def test_statements_name_what_they_read_too(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones, schema: str
) -> None:
    spark.sql(f"CREATE TABLE {schema}.other USING delta AS SELECT 10 AS id, 7.0 AS v")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT * FROM {schema}.other")
    sql = f"""
        CREATE TABLE {schema}.made USING delta AS SELECT id, v FROM {events} WHERE at >= :interval_start;
        INSERT INTO {schema}.made SELECT id, v FROM {schema}.seen WHERE id IN (SELECT id FROM {schema}.other VERSION AS OF 0);
        MERGE INTO {events} t USING (SELECT id, max(v) AS v FROM {schema}.made GROUP BY id) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET v = s.v + 10
    """
    result_of(runner, in_preview(clones, kind="sql", sql=sql))
    changed, made = clones.all()
    found = [
        [(one.name, one.version) for one in write.reads]
        for clone in (made, changed)
        for write in writes_to(spark, clone)
    ]
    first = [(events, 1), (f"{schema}.other", 0)]
    assert found == [first[:1], first, [*first, (f"{schema}.made", None)]]


def test_what_would_reach_the_table_itself_is_refused(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones, schema: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT * FROM {events}")

    def write(ctx: Any) -> None:
        ctx.write(ctx.spark.table(events).where(ctx.in_interval("at")), events, time_column="at")

    result_of(runner, in_preview(clones), write)

    def merge(ctx: Any) -> None:
        from delta.tables import DeltaTable

        DeltaTable.forName(ctx.spark, events).delete()

    def make(ctx: Any) -> None:
        from delta.tables import DeltaTable

        DeltaTable.createIfNotExists(ctx.spark).tableName(f"{schema}.made").addColumn("id", "INT").execute()

    def merge_into(ctx: Any) -> None:
        from pyspark.sql.functions import expr

        ctx.spark.table(events).alias("s").mergeInto(events, expr("s.id = 1")).whenMatched().delete().merge()

    def stream(ctx: Any) -> None:
        of = ctx.spark.readStream.table(events).writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
        of.trigger(availableNow=True).toTable(f"{schema}.made").awaitTermination()

    def batches(ctx: Any) -> None:
        of = ctx.spark.readStream.table(events).writeStream.option("checkpointLocation", f"{tmp_path}/checkpoint")
        of.foreachBatch(lambda df, _: ctx.write(df, events, mode="append")).start().awaitTermination()

    refused: list[tuple[Callable[[Any], Any], str]] = [
        (lambda ctx: ctx.spark.table(f"{schema}.seen").count(), f"a query reads {events}"),
        (lambda ctx: ctx.spark.sql(f"SELECT * FROM {events} VERSION AS OF 0").count(), f"a query reads {events}"),
        (lambda ctx: ctx.spark.table(events).write.mode("append").saveAsTable(events), "DataFrameWriter.saveAsTable"),
        (lambda ctx: ctx.spark.sql(f"DELETE FROM {events}"), "spark.sql('DELETE FROM"),
        (merge, "DeltaTable.delete writes"),
        (make, "DeltaTableBuilder.execute writes"),
        (merge_into, "MergeIntoWriter.merge writes"),
        (stream, "DataStreamWriter.toTable writes"),
        (batches, "DataStreamWriter.start writes"),
        (lambda ctx: ctx.spark.catalog.dropTable(events), "Catalog.dropTable writes"),
        (
            lambda ctx: ctx.spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/made' USING parquet TABLE {events}"),
            "spark.sql(",
        ),
    ]
    for function, text in refused:
        outcome = runner.run(in_preview(clones), function)
        assert isinstance(outcome, Failed) and text in outcome.error and not outcome.retryable, outcome
    assert values(spark, events) == [0, 0, 0, 1, 1, 1]
    assert not spark.catalog.tableExists(f"{schema}.made") and not [*tmp_path.iterdir()]


def test_statements_of_sql(
    runner: TaskRunner, spark: SparkSession, events: str, clones: Clones, schema: str, tmp_path: Path
) -> None:
    sql = f"""
        CREATE TABLE IF NOT EXISTS {schema}.made (id BIGINT, v DOUBLE) USING delta;
        INSERT INTO {schema}.made SELECT id, v FROM {events} WHERE at >= :interval_start AND at < :interval_end;
        MERGE INTO {events} t USING {schema}.made s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v + 10;
        DELETE FROM {events} WHERE id = 20
    """
    result_of(runner, in_preview(clones, kind="sql", sql=sql))
    assert values(spark, events) == [0, 0, 0, 1, 1, 1]
    assert not spark.catalog.tableExists(f"{schema}.made")
    made, changed = (values(spark, f"delta.`{one.path}`") for one in reversed(clones.all()))
    assert (made, changed) == ([0, 1], [0, 1, 1, 10, 11])
    into = in_preview(
        clones, kind="sql", sql=f"SELECT at, id, -v AS v FROM {events} WHERE id = 11", into=events, time_column="at"
    )
    result_of(runner, into)
    assert values(spark, f"delta.`{clones.all()[0].path}`") == [-11, 0, 1, 1]
    computed = f"IDENTIFIER('{schema}' || '.events')"
    directory = f"DIRECTORY '{tmp_path}/made' USING parquet"
    for text, why in {
        f"OPTIMIZE {events}": "INSERT, MERGE", f"CREATE TABLE {schema}.other LIKE {events}": "INSERT, MERGE",
        f"INSERT INTO {computed} TABLE {events}": "in place of IDENTIFIER(...)",
        f"INSERT INTO {computed} SELECT now(), 1, 1": "in place of IDENTIFIER(...)",
        f"INSERT OVERWRITE {directory} TABLE {events}": "it writes is no table",
        f"BEGIN DELETE FROM {events}; END": "without BEGIN ... END",
        f"CREATE TABLE {schema}.other AS SELECT 1": "a table of parquet, and clones are Delta tables; write USING delta;",
        f"CREATE TABLE {schema}.other (id INT) USING delta LOCATION '{tmp_path}/made'": "leave LOCATION out",
    }.items():  # fmt: skip
        outcome = runner.run(in_preview(clones, kind="sql", sql=text))
        assert isinstance(outcome, Failed) and not outcome.retryable, outcome
        assert "can't be directed to the clones of a preview: " in outcome.error and why in outcome.error, outcome
    assert values(spark, events) == [0, 0, 0, 1, 1, 1] and not [*tmp_path.iterdir()]
    sql = f"WITH e AS (SELECT * FROM {events}) INSERT INTO {events} SELECT at, id, v + 1000 FROM e"
    result_of(runner, in_preview(clones, kind="sql", sql=sql))
    assert values(spark, f"delta.`{clones.all()[0].path}`") == [-11, 0, 1, 1, 989, 1000, 1001, 1001]
    assert values(spark, events) == [0, 0, 0, 1, 1, 1]
    more = f"INSERT INTO {events} SELECT at, id, v + 5000 WHERE v = 989"
    sql = f"FROM {events} {more} INSERT INTO {schema}.made SELECT id, 7 WHERE v = -11"
    result_of(runner, in_preview(clones, kind="sql", sql=sql))
    made, changed = (values(spark, f"delta.`{one.path}`") for one in reversed(clones.all()))
    assert (made, changed[-1]) == ([0, 1, 7], 5989)
    assert values(spark, events) == [0, 0, 0, 1, 1, 1] and not spark.catalog.tableExists(f"{schema}.made")
