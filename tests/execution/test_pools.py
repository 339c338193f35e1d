"""Every Spark job of a task runs in its pool, under its tag, group and name, whichever thread starts it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support.executor_fixture import PATIENCE, TaskRunner, a_launch, settled

from backfill_manager.execution.messages import Succeeded, TaskLaunch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Job(NamedTuple):
    number: int
    description: str | None
    tags: set[str]
    pools: set[str]


def jobs_since(spark: SparkSession, number: int) -> list[Job]:
    """What Spark's own status store has of each job after `number`; stages that were skipped ran nowhere."""
    store, found = settled(spark).statusStore(), []
    jobs = store.jobsList(None)
    for i in range(jobs.length()):
        job = jobs.apply(i)
        if job.jobId() <= number:
            continue
        stages = [store.lastStageAttempt(job.stageIds().apply(n)) for n in range(job.stageIds().length())]
        found.append(
            Job(
                job.jobId(),
                job.description().get() if job.description().isDefined() else None,
                {str(tag) for tag in job.jobTags().mkString(",").split(",")},
                {stage.schedulingPool() for stage in stages if stage.status().toString() != "SKIPPED"},
            )
        )
    return found


@pytest.fixture
def last_job(spark: SparkSession) -> int:
    spark.range(1).collect()
    jobs = settled(spark).statusStore().jobsList(None)
    return max(jobs.apply(i).jobId() for i in range(jobs.length()))


def sql_job(ctx: Any) -> int:
    count: int = ctx.spark.range(7).repartition(2).count()  # two stages
    return count


def rdd_job(ctx: Any) -> int:
    count: int = ctx.spark.sparkContext.parallelize(range(7), 2).count()
    return count


def in_a_plain_thread(job: Callable[[Any], int]) -> Callable[[Any], int]:
    def task(ctx: Any) -> int:
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(job(ctx)))
        thread.start()
        thread.join()
        return found[0]

    return task


def in_a_pool_of_threads(job: Callable[[Any], int]) -> Callable[[Any], int]:
    def task(ctx: Any) -> int:
        with ThreadPoolExecutor(2) as pool:
            return max(pool.map(lambda _: job(ctx), range(3)))

    return task


def in_a_thread_of_a_thread(job: Callable[[Any], int]) -> Callable[[Any], int]:
    return in_a_plain_thread(in_a_pool_of_threads(job))


def as_it_is(job: Callable[[Any], int]) -> Callable[[Any], int]:
    return job


def to_df_of_an_rdd(ctx: Any) -> int:
    count: int = ctx.spark.sparkContext.parallelize([(n,) for n in range(7)], 2).toDF(["n"]).count()
    return count


@pytest.mark.parametrize("pool", ["backfill", "scheduled"])
@pytest.mark.parametrize("job", [sql_job, rdd_job, to_df_of_an_rdd])
@pytest.mark.parametrize("where", [as_it_is, in_a_plain_thread, in_a_pool_of_threads, in_a_thread_of_a_thread])
def test_every_job_of_a_task_runs_in_its_pool(
    runner: TaskRunner, last_job: int, pool: str, job: Callable[[Any], int], where: Callable[..., Any]
) -> None:
    launch = a_launch(pool=pool)
    assert runner.run(launch, where(job)) == Succeeded("7")
    jobs = jobs_since(runner.spark, last_job)
    assert jobs
    for job_seen in jobs:
        assert job_seen.pools == {pool}
        assert tag_of(launch) in job_seen.tags
        assert job_seen.description == f"work_dag.work {launch.ti.run_id} try 1"


def tag_of(launch: TaskLaunch) -> str:
    return f"bfm/work_dag/{launch.ti.run_id}/work/1"


def test_a_try_tells_at_its_end_which_jobs_it_ran(runner: TaskRunner, last_job: int) -> None:
    together = runner.barrier(2, rounds=2)

    def two_jobs(ctx: Any) -> None:
        for nth in range(2):
            assert together.wait(PATIENCE, nth)
            in_a_plain_thread(rdd_job)(ctx)
        settled(ctx.spark)  # the status store may lag behind what it tells

    launches = [a_launch(run_id="one", pool="backfill"), a_launch(run_id="two", pool="scheduled")]
    for launch in launches:
        runner.start(launch, two_jobs)
    result = {launch.pool: runner.recorder.spark_jobs_of(launch) for launch in launches}
    seen = {job.number: job for job in jobs_since(runner.spark, last_job)}
    assert sorted(result["backfill"] + result["scheduled"]) == sorted(seen)
    for launch in launches:
        first, second = result[launch.pool]
        assert first < second
        for number in (first, second):
            assert (seen[number].pools, seen[number].tags) == ({launch.pool}, {tag_of(launch)})


def test_a_try_that_runs_no_job_tells_of_none(runner: TaskRunner) -> None:
    launch = runner.start(a_launch(), lambda ctx: None)
    assert runner.recorder.spark_jobs_of(launch) == ()


def test_what_a_try_sets_in_spark_does_not_reach_the_next_one(runner: TaskRunner) -> None:
    def task(ctx: Any) -> list[Any]:
        sc = ctx.spark.sparkContext
        found = [sc.getLocalProperty("mine"), sorted(sc.getJobTags()), ctx.spark.conf.get("spark.mine", "")]
        sc.setLocalProperty("mine", "1")
        sc.addJobTag("mine")
        ctx.spark.conf.set("spark.mine", "1")
        return found

    for run_id in ("one", "two"):
        assert runner.run(a_launch(run_id=run_id), task) == Succeeded(f'[null, ["bfm/work_dag/{run_id}/work/1"], ""]')


def test_a_scheduled_job_goes_between_the_tasks_of_a_large_batch(
    runner: TaskRunner, spark: SparkSession, last_job: int
) -> None:
    """A job of the pool `backfill` that has more tasks than cores holds none of them longer than one of its tasks takes: a job of
    `scheduled` has its share of the cores as they come free, and ends long before."""
    system = spark.sparkContext._jvm.java.lang.System  # what the tasks of the large job look at: they are in this JVM

    def batch(ctx: Any) -> int:
        pause = "bigint(reflect('java.lang.System', 'getProperty', 'test.pause_ms'))"
        slow = (
            f"id + length(reflect('java.lang.Thread', 'sleep', {pause})) - length('null')"  # it returns 'null' of void
        )
        rows = ctx.spark.range(0, 400, 1, 400).selectExpr(f"{slow} AS id").selectExpr("max(id)").collect()
        return int(rows[0][0])

    def scheduled(ctx: Any) -> int:
        rows = ctx.spark.range(0, 8, 1, 8).selectExpr("sum(id)").collect()
        return int(rows[0][0])

    system.setProperty("test.pause_ms", "100")  # 20 s on two cores
    large = runner.start(a_launch("large"), batch)
    runner.recorder.wait_until(lambda: large.key in runner.recorder.started())
    store = spark.sparkContext._jsc.sc().statusStore()
    moment = threading.Event()
    while not any("backfill" in job.pools for job in jobs_since(spark, last_job)):
        moment.wait(0.05)
    assert runner.run(a_launch("small", pool="scheduled"), scheduled) == Succeeded("28")
    assert runner.recorder.end_of(large) is None, "the large job goes on"
    system.setProperty("test.pause_ms", "0")
    assert runner.recorder.outcome(large) == Succeeded("399")
    begins = {pool: sorted(_launch_times(store, spark, last_job, pool)) for pool in ("scheduled", "backfill")}
    first, last = begins["scheduled"][0], begins["scheduled"][-1]
    assert len(begins["backfill"]) >= 400 and begins["backfill"][-1] > last
    assert sum(first < at < last for at in begins["backfill"]) <= len(begins["scheduled"]), "it has its share"


def _launch_times(store: Any, spark: SparkSession, last_job: int, pool: str) -> list[int]:
    """When each task of the jobs in this pool began, by Spark's status store."""
    found = list[int]()
    for job in jobs_since(spark, last_job):
        if pool in job.pools:
            ids = store.job(job.number).stageIds()
            for stage in {int(ids.apply(n)) for n in range(ids.length())}:
                tasks = store.taskList(stage, 0, 1000)
                found += [int(tasks.apply(i).launchTime().getTime()) for i in range(tasks.length())]
    return found
