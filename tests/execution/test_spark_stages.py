"""What a try's Spark stages did, by Spark's status store: of Python and of SQL tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.executor_fixture import TaskRunner, a_launch

from backfill_manager.execution.messages import Succeeded, TaskEnded, TaskLaunch
from backfill_manager.execution.spark.spark_status import BEHIND_S, MAX_STAGES, SparkStatus
from backfill_manager.schemas.resources import SparkStages

ROWS = 1_000_000


def stages_of(runner: TaskRunner, launch: TaskLaunch) -> SparkStages | None:
    runner.recorder.outcome(launch)
    return next(e.spark_stages for e in runner.recorder.events if isinstance(e, TaskEnded) and e.key == launch.key)


def stages_found(status: SparkStatus, jobs: Sequence[int]) -> SparkStages:
    found = status.stages_of(jobs, str)
    assert found is not None
    return found


def of_one_job(runner: TaskRunner, partitions: int = 1) -> tuple[Sequence[int], SparkStatus, Callable[[Any], str]]:
    """The ids of the job of a try, a status that is nobody else's, and what that reads documents with."""
    launch = runner.start(a_launch(), lambda ctx: ctx.spark.sparkContext.parallelize([1, 2], partitions).count())
    status = SparkStatus(runner.spark.sparkContext)
    assert status._as_json is not None
    return runner.recorder.spark_jobs_of(launch), status, status._as_json


def skewed(ctx: Any) -> int:
    """A shuffle whose one partition has nearly all rows."""
    from pyspark.sql import functions as F

    rows = ctx.spark.range(0, ROWS, 1, 4).withColumn(
        "k", F.when(F.col("id") < ROWS - 10_000, 0).otherwise(F.col("id") % 50)
    )
    hashed = rows.repartition(8, "k").select(F.length(F.sha2(F.col("id").cast("string"), 512)).alias("n"))
    return int(hashed.agg(F.sum("n")).collect()[0][0])


def test_a_python_task_tells_of_its_shuffle_and_its_skew(runner: TaskRunner) -> None:
    launch = runner.start(a_launch(), skewed)
    assert runner.recorder.outcome(launch) == Succeeded(str(ROWS * 128))
    found = stages_of(runner, launch)
    assert found is not None and found.jobs == len(runner.recorder.spark_jobs_of(launch)) >= 1
    by_tasks = {one.tasks: one for one in found.longest}
    read, hashed = by_tasks[4], by_tasks[8]
    assert found.stages == len(found.longest) and {one.status for one in found.longest} == {"complete"}
    assert read.input_rows == ROWS and read.shuffle_write_bytes == hashed.shuffle_read_bytes > ROWS
    assert hashed.skew is not None and hashed.skew > 2
    assert hashed.duration_s and hashed.task_s and hashed.name and hashed.failed_tasks == hashed.spilled_bytes == 0
    assert found.shuffle_read_bytes == sum(one.shuffle_read_bytes for one in found.longest)
    assert found.tasks == sum(one.tasks for one in found.longest)
    durations = [one.duration_s or 0.0 for one in found.longest]
    assert durations == sorted(durations, reverse=True)


def test_a_sql_task_tells_what_it_has_written(runner: TaskRunner, table: str) -> None:
    launch = runner.start(a_launch(kind="sql", sql=f"CREATE TABLE {table} USING delta AS SELECT id FROM range(1000)"))
    assert isinstance(runner.recorder.outcome(launch), Succeeded)
    found = stages_of(runner, launch)
    assert found is not None and found.output_rows >= 1000 and found.output_bytes > 0 and found.input_rows >= 1000


def test_a_try_without_spark_jobs_asks_spark_nothing(runner: TaskRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(SparkStatus, "_read", lambda *args: asked.append(args))
    plain, sql = (
        runner.start(a_launch(), lambda ctx: None),
        runner.start(a_launch(run_id="sql", kind="sql", sql="SET a=1")),
    )
    assert stages_of(runner, plain) is None and stages_of(runner, sql) is None
    assert asked == []


def test_a_task_that_fails_tells_of_the_stage_that_failed(runner: TaskRunner) -> None:
    def fails(ctx: Any) -> None:
        ctx.spark.range(10).selectExpr("raise_error('boom')").collect()

    launch = runner.start(a_launch(), fails)
    found = stages_of(runner, launch)
    assert found is not None and [one.status for one in found.longest] == ["failed"] and found.failed_tasks >= 1


def test_of_many_stages_the_longest_are_listed_and_all_are_added_up(runner: TaskRunner) -> None:
    def many(ctx: Any) -> None:
        for _ in range(25):
            ctx.spark.sparkContext.parallelize([1], 1).count()

    launch = runner.start(a_launch(), many)
    found = stages_of(runner, launch)
    assert found is not None and (found.jobs, found.stages, found.tasks) == (25, 25, 25)
    assert len(found.longest) == MAX_STAGES and {one.skew for one in found.longest} == {None}


def test_what_spark_has_forgotten_or_cannot_say_fails_nothing(
    runner: TaskRunner, caplog: pytest.LogCaptureFixture
) -> None:
    status = SparkStatus(runner.spark.sparkContext)
    assert status.stages_of([], str) is None and status.stages_of([10**8], str) is None
    launch = runner.start(a_launch(), lambda ctx: ctx.spark.range(3).count())
    jobs = runner.recorder.spark_jobs_of(launch)
    status._as_json = lambda value: '{"another": "layout"}'
    assert status.stages_of(jobs, str) is None
    assert "can't be read" in caplog.text
    caplog.clear()


def test_what_spark_hears_of_a_moment_later_is_waited_for(runner: TaskRunner) -> None:
    jobs, status, as_json = of_one_job(runner)
    waited = list[float]()

    def behind(value: Any) -> str:  # until it has been waited for twice
        text = as_json(value)
        return text if len(waited) > 1 else text.replace("SUCCEEDED", "RUNNING").replace("COMPLETE", "ACTIVE")

    status._as_json, status._wait = behind, waited.append
    assert [one.status for one in stages_found(status, jobs).longest] == ["complete"]
    assert waited == list(BEHIND_S[:2])


def test_jobs_of_which_spark_hears_a_moment_later_are_waited_for(runner: TaskRunner) -> None:
    (job,), status, _ = of_one_job(runner)
    tracker, waited, asked = status._tracker, list[float](), list[int]()
    assert status._number_of_jobs is not None and status._number_of_jobs() > job

    class Behind:
        def getJobInfo(self, number: int) -> Any:
            asked.append(number)
            return tracker.getJobInfo(job) if len(waited) > 1 else None

        def getJobIdsForGroup(self, group: str) -> Any:
            return tracker.getJobIdsForGroup(group)

    status._tracker, status._wait, status._number_of_jobs = Behind(), waited.append, lambda: job + 1
    group = runner.spark.sparkContext._jsc.sc().statusStore().job(job).jobGroup().get()
    assert status.jobs_of(group) == (job,) and waited == list(BEHIND_S[:2]) and set(asked) == {job}


def test_a_job_that_goes_on_is_not_waited_for_longer(runner: TaskRunner) -> None:
    jobs, status, as_json = of_one_job(runner)
    waited = list[float]()
    status._as_json = lambda value: as_json(value).replace("SUCCEEDED", "RUNNING").replace("COMPLETE", "ACTIVE")
    status._wait = waited.append
    assert [one.status for one in stages_found(status, [*jobs, *jobs]).longest] == ["active"]
    assert waited == list(BEHIND_S)


def test_a_stage_that_spark_has_forgotten_is_not_read(runner: TaskRunner) -> None:
    """An exception of the JVM takes a hundred times the CPU of an answer."""

    def twice(ctx: Any) -> None:
        for _ in range(2):
            ctx.spark.sparkContext.parallelize([1], 1).count()

    launch = runner.start(a_launch(), twice)
    jobs = runner.recorder.spark_jobs_of(launch)
    status = SparkStatus(runner.spark.sparkContext)
    tracker, store, asked = status._tracker, status._store, list[int]()
    first, second = (one.stage_id for one in sorted(stages_found(status, jobs).longest, key=lambda one: one.stage_id))

    class Forgetful:
        def getStageInfo(self, number: int) -> Any:
            return None if number == first else tracker.getStageInfo(number)

    class Asked:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def lastStageAttempt(self, number: int) -> Any:
            asked.append(number)
            return store.lastStageAttempt(number)

    status._tracker, status._store = Forgetful(), Asked()
    found = stages_found(status, jobs)
    assert (found.jobs, found.stages, [one.stage_id for one in found.longest], asked) == (2, 1, [second], [second])


def test_a_stage_that_was_over_at_once_has_no_skew(runner: TaskRunner) -> None:
    jobs, status, as_json = of_one_job(runner, partitions=2)

    def skews_of(run_ms: int) -> set[float | None]:
        status._as_json = lambda value: json.dumps({**json.loads(as_json(value)), "executorRunTime": run_ms})
        return {one.skew for one in stages_found(status, jobs).longest}

    assert skews_of(99) == {None} and None not in skews_of(100)


@pytest.mark.parametrize("kind", ["python", "sql"])
def test_the_details_of_a_stage_name_its_try(runner: TaskRunner, kind: str) -> None:
    """In place of a stack trace of Py4J, which Spark would take for each RDD."""
    launch = a_launch(kind="sql", sql="SELECT sum(id) FROM range(10)") if kind == "sql" else a_launch()
    runner.start(launch, lambda ctx: ctx.spark.range(10).selectExpr("sum(id)").collect())
    store = runner.spark.sparkContext._jsc.sc().statusStore()
    stages = stages_found(SparkStatus(runner.spark.sparkContext), runner.recorder.spark_jobs_of(launch)).longest
    assert {store.lastStageAttempt(one.stage_id).details() for one in stages} == {
        f"work_dag.work {launch.run.run_id} try 1"
    }


def test_a_task_that_is_stopped_in_a_stage_ends_all_the_same(runner: TaskRunner) -> None:
    def long_one(ctx: Any) -> None:
        ctx.spark.range(0, 10**13, 1, 4).selectExpr("sum(id * 3 % 7)").collect()

    launch = runner.start(a_launch(timeout=3.0), long_one)
    assert "timed out" in getattr(runner.recorder.outcome(launch), "error", "")
    found = stages_of(runner, launch)
    assert found is None or {one.status for one in found.longest} <= {"active", "failed"}


def test_secrets_in_the_names_of_stages_are_masked(runner: TaskRunner) -> None:
    def named(ctx: Any) -> None:
        ctx.spark.sparkContext.setLocalProperty("callSite.short", f"load {ctx.params['api_key']}")
        ctx.spark.range(0, 3, 1, 1)._jdf.count()

    launch = runner.start(a_launch(params={"api_key": "s3cr3t-v4lue"}), named)
    found = stages_of(runner, launch)
    assert found is not None and [one.name for one in found.longest] == ["load ***"]
