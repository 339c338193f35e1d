"""What PySpark and Delta's Python API offer works in a task process as in an ordinary driver."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.executor_fixture import EventRecorder, TaskRunner, a_launch, an_executor, no_spark_job_goes_on
from support.task_snapshot import with_function

from backfill_manager.execution.messages import Succeeded
from backfill_manager.processes.fork_server_client import ForkServers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def rdd(ctx: Any) -> Any:
    words = ctx.spark.sparkContext.parallelize(["a", "b", "a"], 2)
    return sorted(words.map(lambda word: (word, 1)).reduceByKey(lambda x, y: x + y).collect())


def udf(ctx: Any) -> Any:
    from pyspark.sql import functions as F

    plus_one = F.udf(lambda x: x + 1, "long")
    return ctx.spark.range(4).select(plus_one("id").alias("n")).agg(F.sum("n")).first()[0]


def udf_in_sql(ctx: Any) -> Any:
    ctx.spark.udf.register("doubled", lambda x: x * 2, "long")
    return ctx.spark.sql("SELECT sum(doubled(id)) FROM range(4)").first()[0]


def pandas_udf(ctx: Any) -> Any:
    import pandas as pd
    from pyspark.sql import functions as F

    def plus(numbers: Any) -> Any:
        return numbers + 1

    plus.__annotations__ = {
        "numbers": pd.Series,
        "return": pd.Series,
    }  # not as text, which this file makes of annotations
    plus_one = F.pandas_udf(plus, "long")  # type: ignore[call-overload]
    frame = ctx.spark.range(4).select(plus_one("id").alias("n")).toPandas()
    return int(frame["n"].sum())


def map_in_pandas(ctx: Any) -> Any:
    def doubled(frames: Any) -> Any:
        for frame in frames:
            yield frame * 2

    return ctx.spark.range(4).mapInPandas(doubled, "id long").agg({"id": "sum"}).first()[0]


def accumulator(ctx: Any) -> Any:
    sc = ctx.spark.sparkContext
    seen = sc.accumulator(0)
    sc.parallelize(range(10), 2).foreach(lambda n: seen.add(n))
    return seen.value


def broadcast(ctx: Any) -> Any:
    sc = ctx.spark.sparkContext
    names = sc.broadcast({0: "zero", 1: "one"})
    return sc.parallelize([1, 0], 2).map(lambda n: names.value[n]).collect()


def delta_table(ctx: Any) -> Any:
    from delta.tables import DeltaTable

    path = f"{ctx.params['folder']}/merged"
    ctx.spark.range(3).write.format("delta").save(path)
    new = ctx.spark.range(2, 5)
    table = DeltaTable.forPath(ctx.spark, path)
    table.alias("old").merge(new.alias("new"), "old.id = new.id").whenNotMatchedInsertAll().execute()
    return sorted(row.id for row in table.toDF().collect())


def for_each_batch(ctx: Any) -> Any:
    folder, batches = ctx.params["folder"], []
    ctx.spark.range(5).write.format("delta").save(f"{folder}/source")
    stream = ctx.spark.readStream.format("delta").load(f"{folder}/source").writeStream
    query = stream.foreachBatch(lambda frame, number: batches.append((number, frame.count())))
    query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
    return batches


def get_or_create(ctx: Any) -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    same_context = SparkContext.getOrCreate() is ctx.spark.sparkContext
    return [SparkSession.builder.getOrCreate() is ctx.spark, same_context]


def temporary_views(ctx: Any) -> Any:
    ctx.spark.range(3).createOrReplaceTempView("mine")
    return ctx.spark.table("mine").count()


@pytest.mark.parametrize(
    ("task", "result"),
    [
        (rdd, '[["a", 2], ["b", 1]]'),
        (udf, "10"),
        (udf_in_sql, "12"),
        (pandas_udf, "10"),
        (map_in_pandas, "12"),
        (accumulator, "45"),
        (broadcast, '["one", "zero"]'),
        (delta_table, "[0, 1, 2, 3, 4]"),
        (for_each_batch, "[[0, 5]]"),
        (get_or_create, "[true, true]"),
        (temporary_views, "3"),
    ],
)
def test_it_works_as_in_an_ordinary_driver(
    runner: TaskRunner, tmp_path: Path, task: Callable[[Any], Any], result: str
) -> None:
    launch = a_launch(params={"folder": str(tmp_path)})
    assert runner.run(launch, task) == Succeeded(result), runner.log_of(launch)


def test_two_tasks_are_called_back_by_their_own_streams(runner: TaskRunner, tmp_path: Path) -> None:
    launches = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        launches.append(runner.start(a_launch(run_id=name, params={"folder": str(tmp_path / name)}), for_each_batch))
    assert [runner.recorder.outcome(launch) for launch in launches] == [Succeeded("[[0, 5]]")] * 2


def test_a_stream_that_still_runs_when_its_function_returns_is_stopped(runner: TaskRunner, tmp_path: Path) -> None:
    def leaves(ctx: Any) -> str:
        rates = ctx.spark.newSession().readStream.format("rate").load().writeStream.queryName("left behind")
        query = rates.format("noop").option("checkpointLocation", f"{ctx.params['folder']}/checkpoint").start()
        return str(query.id)

    launch = runner.start(a_launch(params={"folder": str(tmp_path)}), leaves)
    assert isinstance(runner.recorder.outcome(launch), Succeeded)
    assert runner.recorder.lines(launch) == [
        "streaming query 'left behind' still ran when the function had returned; it is stopped"
    ]
    no_spark_job_goes_on(runner.spark)
    threads = runner.spark.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()
    assert not [thread for thread in threads if "left behind" in thread.getName()]


@pytest.mark.parametrize("way", ["a column", "a session", "a context", "another thread"])
def test_a_task_finds_spark_however_it_looks_for_it_first(runner: TaskRunner, way: str) -> None:
    def looks(ctx: Any) -> Any:
        import threading

        from pyspark import SparkContext
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as F

        match ctx.params["way"]:
            case "a column":
                column = F.col("id") + F.lit(1)
            case "a session":
                assert SparkSession.getActiveSession() is ctx.spark
            case "a context":
                assert SparkContext.getOrCreate() is ctx.spark.sparkContext
            case "another thread":
                thread = threading.Thread(target=lambda: ctx.spark.range(3).count())
                thread.start()
                thread.join()
        column = F.col("id") + F.lit(1)
        pool = ctx.spark.sparkContext.getLocalProperty("spark.scheduler.pool")
        return [pool, ctx.spark.range(3).select(F.max(column)).collect()[0][0]]

    assert runner.run(a_launch(params={"way": way}), looks) == Succeeded('["backfill", 3]')


def test_a_task_without_spark_has_no_jobs_and_a_plain_one_imports_nothing_that_it_does_not_name(
    runner: TaskRunner,
) -> None:
    def imported(ctx: Any) -> Any:
        before = set(sys.modules)
        if ctx.params["spark"]:
            from pyspark.sql import functions as F

            ctx.spark.range(3).select(F.lit("x"), F.array(F.lit(1))).collect()
        return sorted(sys.modules.keys() - before)

    without = runner.start(a_launch(run_id="without", params={"spark": False}), imported)
    assert runner.recorder.spark_jobs_of(without) == ()
    with ForkServers() as servers:  # those of the other tests have imported them, for other tasks
        recorder = EventRecorder()
        with an_executor(runner.spark, recorder, servers=servers) as executor:
            launch = with_function(a_launch(params={"spark": True}), imported, runner.folder)
            executor.launch(launch)
            assert recorder.outcome(launch) == Succeeded("[]")
            assert recorder.spark_jobs_of(launch)


def test_a_failed_query_that_the_task_catches_leaves_nothing_in_its_log(runner: TaskRunner) -> None:
    def catches(ctx: Any) -> None:
        from pyspark.errors import AnalysisException

        try:
            ctx.spark.sql("SELECT not_a_column FROM range(1)")
        except AnalysisException:
            ctx.log.info("caught")

    launch = a_launch()
    assert runner.run(launch, catches) == Succeeded()
    assert runner.recorder.lines(launch) == ["caught"]


def test_tries_that_follow_each_other_share_nothing_of_their_connection(runner: TaskRunner) -> None:
    """One that left in order hands its connection on, with its thread of the JVM."""

    def leaves(ctx: Any) -> None:
        import gc
        import threading

        ctx.spark.sparkContext.setLocalProperty("left.behind", "yes")
        gc.collect()
        threading.Event().wait(1.5)  # py4j's thread looks each second for what the JVM is to forget
        ctx.spark.sparkContext.addJobTag("left_behind")
        ctx.spark.range(3).count()

    def looks(ctx: Any) -> Any:
        context = ctx.spark.sparkContext
        active = context._jvm.org.apache.spark.sql.classic.SparkSession.active()
        return [
            context.getLocalProperty("left.behind"),
            len(context.getJobTags()),
            active.equals(ctx.spark._jsparkSession),
        ]

    for number in range(3):
        assert runner.run(a_launch(run_id=f"leaves {number}"), leaves) == Succeeded(None)
        assert runner.run(a_launch(run_id=f"looks {number}"), looks) == Succeeded("[null, 1, true]")


def test_views_and_settings_of_a_task_are_its_own(runner: TaskRunner) -> None:
    def leaves(ctx: Any) -> None:
        ctx.spark.range(3).createOrReplaceTempView("left_behind")
        ctx.spark.conf.set("spark.sql.shuffle.partitions", "77")

    def looks(ctx: Any) -> Any:
        return [ctx.spark.catalog.tableExists("left_behind"), ctx.spark.conf.get("spark.sql.shuffle.partitions")]

    assert runner.run(a_launch(run_id="one"), leaves) == Succeeded(None)
    assert runner.run(a_launch(run_id="two"), looks) == Succeeded('[false, "1"]')


def test_its_spark_context_has_all_that_an_ordinary_one_has(runner: TaskRunner, spark: SparkSession) -> None:
    """`task_spark` makes the Python half of the SparkContext by itself: a new PySpark may want more in it."""

    def names(ctx: Any) -> list[str]:
        sc = ctx.spark.sparkContext
        made_when_used = ("_accumulatorServer", "_javaAccumulator", "_temp_dir")
        return sorted({*vars(sc), *(name for name in made_when_used if hasattr(type(sc), name))})

    outcome = runner.run(a_launch(), names)
    assert isinstance(outcome, Succeeded) and outcome.result_json is not None
    assert set(vars(spark.sparkContext)) - set(json.loads(outcome.result_json)) == set()


def test_its_session_has_all_that_an_ordinary_one_has(runner: TaskRunner, spark: SparkSession) -> None:
    outcome = runner.run(a_launch(), lambda ctx: sorted(vars(ctx.spark)))
    assert isinstance(outcome, Succeeded) and outcome.result_json is not None
    assert set(vars(spark.newSession())) <= set(json.loads(outcome.result_json))
