"""`@task.executor`: the function runs on an executor that knows neither its module nor backfill_manager."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.executor_fixture import PATIENCE, TaskRunner, a_launch
from support.spark_cluster import spark_home
from support.task_snapshot import of_snapshot

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.execution.messages import Failed, Skipped, Succeeded, TaskLaunch

if TYPE_CHECKING:
    from collections.abc import Callable

_runs = itertools.count(1)


def run_task(runner: TaskRunner, function: Callable[[Any], Any], **how: Any) -> tuple[TaskLaunch, Any]:
    launch = a_launch(kind="executor", run_id=f"run {next(_runs)}", **how)
    return launch, runner.run(launch, function)


def test_its_result_and_its_lines_come_back(runner: TaskRunner) -> None:
    def task(ctx: Any) -> dict[str, Any]:
        ctx.log.info("in process %d", __import__("os").getpid())
        start, end = ctx.interval
        return {"hours": (end - start).total_seconds() / 3600, "of": ctx.result("count"), "n": ctx.params["n"]}

    launch, outcome = run_task(
        runner, task, params={"n": 1}, upstream=("count",), others=(TaskSpec("count"),), results={"count": 7}
    )
    assert outcome == Succeeded('{"hours": 24.0, "of": 7, "n": 1}')
    (line,) = runner.recorder.lines(launch)
    assert line.startswith("in process ") and line != f"in process {os.getpid()}"


def test_an_exception_there_is_one_line_here_with_its_traceback_in_the_log(runner: TaskRunner) -> None:
    def task(ctx: Any) -> None:
        ctx.log.warning("before")
        raise ConnectionError("the API said no\nfor long")

    launch, outcome = run_task(runner, task)
    assert outcome == Failed("ConnectionError: the API said no")
    first, second = runner.recorder.lines(launch)
    assert first == "before" and second.startswith("Traceback") and "in task" in second


def test_skipping_and_results_that_are_too_much(runner: TaskRunner) -> None:
    assert run_task(runner, lambda ctx: ctx.skip("nothing new"))[1] == Skipped("nothing new")
    _, outcome = run_task(runner, lambda ctx: "x" * 1_000_001)
    assert isinstance(outcome, Failed) and "returned 1,000,003 characters of JSON from its executor" in outcome.error
    _, outcome = run_task(runner, lambda ctx: {1, 2})
    assert isinstance(outcome, Failed) and "set is not JSON serializable" in outcome.error
    _, outcome = run_task(runner, lambda ctx: functools.reduce(lambda within, _: [within], range(600), "deep"))
    assert isinstance(outcome, Failed) and "nested more than 100 levels deep" in outcome.error


def test_the_end_of_a_script_is_no_error(runner: TaskRunner) -> None:
    assert run_task(runner, lambda ctx: sys.exit(0))[1] == Succeeded(None)
    assert run_task(runner, lambda ctx: sys.exit(4))[1] == Failed("SystemExit: 4")


def test_a_long_error_is_cut(runner: TaskRunner) -> None:
    def fails(ctx: Any) -> None:
        raise ValueError("no flights " * 1_000)

    _, outcome = run_task(runner, fails)
    assert isinstance(outcome, Failed) and len(outcome.error) == 500


def a_bundle(folder: Path, pipeline: str, **modules: str) -> TaskLaunch:
    """The start of `work` of the DAG in `pipeline.py`, beside these modules."""
    folder.mkdir(exist_ok=True)
    for name, text in {"pipeline": pipeline, **modules}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return of_snapshot(a_launch(kind="executor", run_id=f"run {next(_runs)}"), folder, "pipeline.py")


def test_what_can_not_be_sent_is_named(runner: TaskRunner) -> None:
    pipeline = """
        import threading
        from backfill_manager import dag, task

        lock = threading.Lock()

        @dag(schedule=None)
        def work_dag():
            @task.executor
            def work(ctx):
                return lock.locked()
            work()
    """
    outcome = runner.run(a_bundle(runner.folder / "bundle", pipeline))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert "task 'work' can't be sent to an executor: cannot pickle '_thread.lock' object" in outcome.error


ON_A_CLUSTER = """
    import os, sys
    import api_client
    from api_client import fetch
    from backfill_manager import dag, task

    LIMIT = 5

    @task.executor
    def work(ctx):
        ctx.log.info("there")
        return {**fetch(LIMIT), **api_client.fetch(LIMIT), "pid": os.getpid(),
                "executor": __import__("pyspark").SparkFiles.getRootDirectory(),
                "ours": sorted(m for m in sys.modules if m.startswith("backfill_manager")),
                "path": [p for p in sys.path if "bundle" in p], "day": ctx.logical_date.isoformat()}

    @dag(schedule=None)
    def work_dag():
        work()
"""


def test_on_a_cluster_nothing_of_ours_is_installed_and_it_works_all_the_same(tmp_path: Path) -> None:
    launch = a_bundle(tmp_path / "bundle", ON_A_CLUSTER, api_client="def fetch(n):\n    return {'fetched': n}\n")
    (tmp_path / "launch").write_bytes(pickle.dumps(launch))
    story = """
        import os, pickle, sys
        sys.path.insert(0, sys.argv[1])
        from support.executor_fixture import EventRecorder, an_executor
        from backfill_manager.execution.spark.session import build_session

        with open(sys.argv[2], "rb") as file:
            launch = pickle.load(file)
        spark = build_session(master="local-cluster[2,1,512]", pools=[], conf={"spark.executor.memory": "512m"})
        recorder = EventRecorder()
        with an_executor(spark, recorder, slots={"backfill": 1}) as executor:
            executor.launch(launch)
            outcome = recorder.outcome(launch)
            print("OUTCOME", getattr(outcome, "result_json", outcome), flush=True)
            print("LINES", recorder.lines(launch), "PID", os.getpid())
        spark.stop()
    """
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
    environment |= {"SPARK_HOME": str(spark_home(tmp_path / "spark")), "SPARK_SCALA_VERSION": "2.13"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(story), str(Path(__file__).parents[1]), str(tmp_path / "launch")],
        capture_output=True, text=True, timeout=PATIENCE * 3, check=False, env=environment,
    )  # fmt: skip
    message = next((line for line in done.stdout.splitlines() if line.startswith("OUTCOME {")), None)
    assert message is not None, (done.stdout, done.stderr[:6000])
    result = json.loads(message.removeprefix("OUTCOME "))
    assert result["fetched"] == 5 and result["day"] == "2013-01-01T00:00:00+00:00"
    assert result["ours"] == [] and result["path"] == []
    assert "LINES ['there']" in done.stdout and f"PID {result['pid']}" not in done.stdout


def test_a_task_takes_the_modules_of_its_bundle_along(runner: TaskRunner) -> None:
    pipeline = """
        import clients
        from numbers_of import Numbers
        from backfill_manager import dag, task

        @dag(schedule=None)
        def work_dag():
            @task.executor
            def work(ctx):
                return [clients.fetch(1), Numbers.two, Numbers().__class__.__name__]
            work()
    """
    package = runner.folder / "bundle" / "clients"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .api import fetch\n")
    (package / "api.py").write_text("BASE = 40\n\ndef fetch(n):\n    return BASE + n\n")
    numbers_of = "import clients\n\nclass Numbers:\n    two = clients.fetch(2)\n"
    launch = a_bundle(runner.folder / "bundle", pipeline, numbers_of=numbers_of)
    assert runner.run(launch) == Succeeded('[41, 42, "Numbers"]')
