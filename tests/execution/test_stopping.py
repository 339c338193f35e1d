"""Stop means stop: a try that is cancelled or timed out ends with its process, its children, its Spark jobs and their Python
workers, and its slot is free."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.executor_fixture import PATIENCE, TOO_LATE, TaskRunner, a_launch, no_spark_job_goes_on
from support.file_signals import FileSignal
from support.task_facts import nobody_else_notices, wait_gone
from support.task_snapshot import of_snapshot, pickled_by_value

from backfill_manager.execution.messages import Cancelled, Failed, TaskEnded, TaskLaunch, TaskLogged

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

GRACE_S = 2.0  # of tests/execution/conftest.py
SLOW_MACHINE_S = 20.0  # what is done in a moment takes so long at the very most

# Gives its process id by the signal, and then does what does not end by itself.
Does = Callable[[Any, FileSignal], None]


def loops(ctx: Any, begun: FileSignal) -> None:
    begun.set(str(os.getpid()))
    while True:
        pass


def sleeps(ctx: Any, begun: FileSignal) -> None:
    begun.set(str(os.getpid()))
    time.sleep(100_000)


def waits_for_a_lock(ctx: Any, begun: FileSignal) -> None:
    lock = threading.Lock()
    lock.acquire()
    begun.set(str(os.getpid()))
    lock.acquire()


def waits_for_a_child(ctx: Any, begun: FileSignal) -> None:
    begun.set(str(os.getpid()))
    subprocess.run(["sleep", "100000"], check=True)


def runs_a_spark_job(ctx: Any, begun: FileSignal) -> None:
    begun.set(str(os.getpid()))
    ctx.spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()


def runs_spark_jobs_in_threads(ctx: Any, begun: FileSignal) -> None:
    threads = [threading.Thread(target=runs_a_spark_job, args=(ctx, begun)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def catches_everything(ctx: Any, begun: FileSignal) -> None:
    while True:
        try:
            begun.set(str(os.getpid()))
            time.sleep(100_000)
        except BaseException:  # noqa: BLE001 - what is to be stopped all the same
            print("not now")


def stays_in_c(ctx: Any, begun: FileSignal) -> None:
    while True:
        with contextlib.suppress(BaseException):  # which may come a moment before it is in C
            begun.set(str(os.getpid()))
            sum(itertools.repeat(1))  # Python's handlers of signals never get a chance


def ignores_the_signal(ctx: Any, begun: FileSignal) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeps(ctx, begun)


def stops_its_process(ctx: Any, begun: FileSignal) -> None:
    while True:
        with contextlib.suppress(BaseException):
            begun.set(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)


def never_leaves_its_finally(ctx: Any, begun: FileSignal) -> None:
    try:
        sleeps(ctx, begun)
    finally:
        time.sleep(100_000)


HEEDS: list[Does] = [
    loops, sleeps, waits_for_a_lock, waits_for_a_child, runs_a_spark_job, runs_spark_jobs_in_threads,
]  # fmt: skip
HEEDS_NOT: list[Does] = [
    catches_everything,
    stays_in_c,
    ignores_the_signal,
    stops_its_process,
    never_leaves_its_finally,
]


@pytest.mark.parametrize("function", HEEDS, ids=[function.__name__ for function in HEEDS])
def test_a_cancelled_task_cleans_up_and_ends(runner_of: Callable[..., TaskRunner], function: Does) -> None:
    runner = runner_of(grace_s=PATIENCE)  # it ends by itself
    begun, cleaned_up = runner.signal(), runner.signal()

    def task(ctx: Any) -> None:
        try:
            function(ctx, begun)
        finally:
            cleaned_up.set()

    with nobody_else_notices(runner):
        launch, took = cancelled(runner, task, begun)
        assert took < SLOW_MACHINE_S
        assert cleaned_up.is_set()
        assert "it is killed now" not in runner.log_of(launch)
        no_spark_job_goes_on(runner.spark)


@pytest.mark.parametrize("function", HEEDS_NOT, ids=[function.__name__ for function in HEEDS_NOT])
def test_a_cancelled_task_that_goes_on_is_killed_at_the_end_of_its_grace(runner: TaskRunner, function: Does) -> None:
    begun = runner.signal()
    with nobody_else_notices(runner):
        launch, took = cancelled(runner, lambda ctx: function(ctx, begun), begun)
        assert GRACE_S <= took < GRACE_S + SLOW_MACHINE_S
        assert "it has not ended 2 s after it was stopped; it is killed now" in runner.log_of(launch)
        killed_at, ended_at = times_of_the_end(runner, launch)
        assert timedelta(0) <= ended_at - killed_at <= timedelta(seconds=2), "its slot is free within 2 s of the grace"


def times_of_the_end(runner: TaskRunner, launch: TaskLaunch) -> tuple[datetime, datetime]:
    """When it was killed and when its end was reported, as the executor has recorded it."""
    lines = [line for event in runner.recorder.events if isinstance(event, TaskLogged) for line in event.lines]
    killed_at = next(x.at for x in lines if x.run_id == launch.ti.run_id and "it is killed now" in x.message)
    ended = (event for event in runner.recorder.events if isinstance(event, TaskEnded) and event.key == launch.key)
    assert killed_at is not None
    return killed_at, next(ended).at


def cancelled(runner: TaskRunner, task: Callable[[Any], None], begun: FileSignal) -> tuple[TaskLaunch, float]:
    """The launch, and the seconds from the call to the report of its end, when its process has gone."""
    launch = runner.start(a_launch(), task)
    assert begun.wait(PATIENCE)
    at = time.monotonic()
    assert runner.executor.cancel(launch.key, "cancelled by hand")
    assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")
    took = time.monotonic() - at
    assert not os.path.exists(f"/proc/{begun.text()}")
    return launch, took


@pytest.mark.parametrize("function", [loops, stays_in_c], ids=["loops", "stays_in_c"])
def test_a_task_that_takes_too_long_is_stopped_in_the_same_way(runner: TaskRunner, function: Does) -> None:
    begun = runner.signal()
    with nobody_else_notices(runner):
        launch = runner.start(a_launch(timeout=TOO_LATE), lambda ctx: function(ctx, begun))
        assert runner.recorder.outcome(launch) == Failed("timed out after 2 s")
        wait_gone(int(begun.text()))
        first, *_, last = runner.recorder.lines(launch)
        what = "TaskStopped is raised in its code, its Spark jobs are cancelled, and it can write no more"
        assert first == f"timed out after 2 s: {what}"
        assert re.fullmatch(r"it ended \d+\.\d s after it was stopped", last)
        assert ("it is killed now" in runner.log_of(launch)) == (function is stays_in_c)


def test_a_task_that_is_stopped_learns_it_by_an_exception_that_its_log_shows(runner: TaskRunner) -> None:
    begun = runner.signal()
    launch = runner.start(a_launch(), lambda ctx: sleeps(ctx, begun))
    assert begun.wait(PATIENCE)
    runner.executor.cancel(launch.key, "cancelled by hand")
    runner.recorder.outcome(launch)
    assert "in sleeps" in runner.log_of(launch) and "TaskStopped" in runner.log_of(launch)


def test_the_children_of_a_task_that_is_killed_end_with_it(runner: TaskRunner) -> None:
    begun, children = runner.signal(), runner.signal()

    def task(ctx: Any) -> None:
        sessions = [False, True]
        pids = [subprocess.Popen(["sleep", "100000"], start_new_session=new).pid for new in sessions]
        children.set(" ".join(map(str, pids)))
        catches_everything(ctx, begun)

    with nobody_else_notices(runner):
        launch = runner.start(a_launch(), task)
        assert begun.wait(PATIENCE)
        runner.executor.cancel(launch.key, "cancelled by hand")
        assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")
        assert [pid for pid in children.text().split() if os.path.exists(f"/proc/{pid}")] == []
        assert "not now" in runner.log_of(launch)


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds", "has to be killed"])
def test_sparks_python_workers_of_a_task_that_is_stopped_end(runner: TaskRunner, heeds: bool) -> None:
    working = runner.signal()

    def task(ctx: Any) -> None:
        from pyspark.sql import functions as F

        @F.udf("long")
        def sleeps_for_ever(_):  # type: ignore[no-untyped-def]
            working.set(str(os.getpid()))
            time.sleep(100_000)

        while True:
            try:
                ctx.spark.range(1).select(sleeps_for_ever("id")).collect()
            except BaseException:
                if heeds:
                    raise

    with nobody_else_notices(runner):
        launch = runner.start(a_launch(), task)
        assert working.wait(PATIENCE)
        runner.executor.cancel(launch.key, "cancelled by hand")
        assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")
        at = time.monotonic()
        wait_gone(int(working.text()))
        assert time.monotonic() - at < SLOW_MACHINE_S  # 2 s: Spark waits so long for its worker to end by itself
        no_spark_job_goes_on(runner.spark)


def test_a_task_whose_file_never_ends_can_be_stopped(runner: TaskRunner) -> None:
    begun, snapshot = runner.signal(), runner.folder / "endless"
    snapshot.mkdir()
    (snapshot / "begun.pickle").write_bytes(pickled_by_value(begun))
    (snapshot / "work_dag.py").write_text(
        "import os, pickle\n"
        "from pathlib import Path\n"
        "pickle.loads(Path(__file__).with_name('begun.pickle').read_bytes()).set(str(os.getpid()))\n"
        "while True: pass\n"
    )
    with nobody_else_notices(runner):
        launch = of_snapshot(a_launch(), snapshot, "work_dag.py")
        runner.executor.launch(launch)
        assert begun.wait(PATIENCE)
        runner.executor.cancel(launch.key, "cancelled by hand")
        assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")
        wait_gone(int(begun.text()))


def test_two_stops_are_one(runner: TaskRunner) -> None:
    begun = runner.signal()
    launch = runner.start(a_launch(), lambda ctx: catches_everything(ctx, begun))
    assert begun.wait(PATIENCE)
    assert runner.executor.cancel(launch.key, "first")
    assert not runner.executor.cancel(launch.key, "second")
    assert runner.recorder.outcome(launch) == Cancelled("first")
