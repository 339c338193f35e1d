"""Measures what a try of a Python task costs in CPU, and in which process, without a manager and its tables.

Many tries at once in one executor; then the same Spark jobs from threads of this process. Linux only: it reads /proc.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.execution.messages import Event, Failed, TaskEnded, TaskLaunch
from support.executor_fixture import a_launch, an_executor, fork_servers
from support.measured_manager import cpu_of
from support.process_tree import processes_below
from support.task_snapshot import of_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDTH: Final = 16
REUSED: Final = ", in reused processes"
KINDS: Final = (
    "nothing", "a line of log", "a Spark job", "on an executor", f"nothing{REUSED}", f"a line of log{REUSED}",
    f"a Spark job{REUSED}",
)  # fmt: skip
FUNCTIONS: Final = """
from backfill_manager import dag, task

@dag("work_dag", schedule=None)
def work_dag():
    @task{kind}
    def work(ctx):
        {body}
    work()
"""
_BODIES: Final = {
    "nothing": "pass",
    "a line of log": 'ctx.log.info("first line")',
    "a Spark job": 'ctx.spark.range(1000).selectExpr("sum(id)").collect()',
    "on an executor": "pass",
}


def measure_tries(
    tries: int, kinds: tuple[str, ...] = KINDS, *, rounds: int = 3, spark: SparkSession
) -> dict[str, Any]:
    """By kind of task: tries per second, and milliseconds of CPU a try, by process; each the median of the rounds. `bare` are
    the same Spark jobs in threads of this process."""
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="bfm-bench-") as scratch:
        for number in range(-1, rounds):  # the first: the JVM compiles the code
            for kind in kinds:
                one = _tries(kind, tries, Path(scratch), spark)
                found.setdefault(kind, []).extend([one] * (number >= 0))
            if any(kind.startswith("a Spark job") for kind in kinds):
                found.setdefault("bare", []).extend([_bare(tries, spark)] * (number >= 0))
    return {kind: {key: _median(key, ones) for key in ones[0]} for kind, ones in found.items()}


def _median(key: str, ones: list[dict[str, float]]) -> float:
    return round(statistics.median(one[key] for one in ones), 2)


def launch_of(kind: str, folder: Path, number: int) -> TaskLaunch:
    is_executor = kind == "on an executor"
    kind, reuse_process = kind.removesuffix(REUSED), kind.endswith(REUSED)
    snapshot = folder / kind.replace(" ", "-")
    if not snapshot.exists():
        snapshot.mkdir()
        text = FUNCTIONS.format(kind=".executor" if is_executor else "", body=_BODIES[kind])
        (snapshot / "work_dag.py").write_text(text)
    how = {"kind": "executor"} if is_executor else {}
    return of_snapshot(
        a_launch("work", run_id=f"run {number} {time.monotonic_ns()}", reuse_process=reuse_process, **how),
        snapshot,
        "work_dag.py",
    )


def _tries(kind: str, tries: int, folder: Path, spark: SparkSession) -> dict[str, float]:
    ended: list[TaskEnded] = []
    done = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, TaskEnded):
            ended.append(event)
            if len(ended) == tries:
                done.set()

    with an_executor(spark, on_event, slots={"backfill": WIDTH}) as executor:
        executor.prepare()
        launches = [launch_of(kind, folder, number) for number in range(tries)]
        server = fork_servers().get(None).pid
        before, began = cpu_by_process(spark, server), time.perf_counter()
        for launch in launches:
            executor.launch(launch)
        done.wait()
        took = time.perf_counter() - began
        after = cpu_by_process(spark, server)
    failed = [event.outcome for event in ended if isinstance(event.outcome, Failed)]
    if failed:
        raise RuntimeError(f"{len(failed)} of {tries} failed: {failed[0].error}")
    return _result(tries, took, before, after)


def _bare(jobs: int, spark: SparkSession) -> dict[str, float]:
    def job(_: int) -> None:
        spark.newSession().range(1000).selectExpr("sum(id)").collect()

    server = fork_servers().get(None).pid
    before, began = cpu_by_process(spark, server), time.perf_counter()
    with ThreadPoolExecutor(WIDTH) as pool:
        list(pool.map(job, range(jobs)))
    took = time.perf_counter() - began
    return _result(jobs, took, before, cpu_by_process(spark, server))


def _result(tries: int, took: float, before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    each = {name: (after[name] - before[name]) / tries * 1000 for name in before}
    return {"per_s": tries / took, "all": sum(each.values()), **each}


def cpu_by_process(spark: SparkSession, server: int) -> dict[str, float]:
    """Seconds of CPU so far."""
    jvm: Any = spark.sparkContext._jvm
    own, _ = cpu_of(jvm.java.lang.ProcessHandle.current().pid())
    forks, children = cpu_of(server)
    running = sum(cpu_of(int(pid))[0] for pid in _children_of(server))
    return {"this process": time.process_time(), "fork server": forks, "task processes": children + running, "JVM": own}


def cpu_of_processes(spark: SparkSession) -> dict[str, float]:
    """Seconds of CPU so far, with those of task processes that have ended. The fork servers count among task processes."""
    jvm: Any = spark.sparkContext._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    tasks = sum(sum(cpu_of(each)) for each in processes_below(os.getpid()) if each != pid)
    return {"manager": time.process_time(), "task processes": tasks, "JVM": cpu_of(pid)[0]}


def _children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
