"""With `reuse_process` a process serves one try after another, as long as each leaves it as it found it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.executor_fixture import PATIENCE, EventRecorder, TaskRunner, a_launch, an_executor, settled
from support.task_facts import found

from backfill_manager.execution.messages import Cancelled, Failed, Succeeded, TaskLaunch, TaskSpan
from backfill_manager.execution.task_processes.task_processes import MAX_WARM
from backfill_manager.processes.process_state import difference_since, first_difference, process_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
_runs = itertools.count(1)


class Version:
    """One version of a DAG with a task, whose function a test plays as often as it likes."""

    def __init__(self, runner: TaskRunner, function: Callable[[Any], Any], **task: Any) -> None:
        self.runner, self.function, self.task = runner, function, {"reuse_process": True} | task
        self._stored: TaskLaunch | None = None
        self.launches: list[TaskLaunch] = []

    def start(self, **params: Any) -> TaskLaunch:
        launch = a_launch(run_id=f"run {next(_runs)}", params=params, **self.task)
        if self._stored is None:
            self._stored = launch = self.runner.start(launch, self.function)
        else:
            launch = self.runner.start(dataclasses.replace(launch, version=self._stored.version))
        self.launches.append(launch)
        return launch

    def run(self, **params: Any) -> dict[str, Any]:
        """What its function returned, which must have succeeded."""
        result: dict[str, Any] = found(self.runner.recorder.outcome(self.start(**params)))
        return result


def pid_and(ctx: Any, **more: Any) -> dict[str, Any]:
    return {"pid": os.getpid(), **more}


def test_the_next_try_of_a_version_runs_in_the_process_of_the_last(runner: TaskRunner) -> None:
    version = Version(runner, pid_and)
    assert len({version.run()["pid"] for _ in range(5)}) == 1


def test_a_task_that_does_not_say_so_has_a_process_of_its_own(runner: TaskRunner) -> None:
    version = Version(runner, pid_and, reuse_process=False)
    assert len({version.run()["pid"] for _ in range(3)}) == 3


def test_another_version_or_another_priority_has_another_process(runner: TaskRunner) -> None:
    one, other, nicer = Version(runner, pid_and), Version(runner, pid_and), Version(runner, pid_and)
    first = one.run()["pid"]
    nicer._stored = one._stored
    launch = dataclasses.replace(a_launch(run_id="nicer", reuse_process=True), version=one._stored.version, nice=7)  # type: ignore[union-attr]
    assert first != other.run()["pid"]
    assert first != found(runner.recorder.outcome(runner.start(launch)))["pid"]
    assert first == one.run()["pid"]


def test_each_try_has_a_session_its_pool_and_its_group_in_spark(runner: TaskRunner) -> None:
    def uses_spark(ctx: Any) -> dict[str, Any]:
        rows = ctx.spark.range(7).count()
        views = [row.viewName for row in ctx.spark.sql("SHOW VIEWS").collect() if row.isTemporary]
        ctx.spark.range(1).createOrReplaceTempView("left_by_a_try")
        setting = ctx.spark.conf.get("spark.sql.session.timeZone")
        ctx.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        group = ctx.spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        return {"pid": os.getpid(), "rows": rows, "views": views, "setting": setting, "group": group}

    version = Version(runner, uses_spark)
    results = [version.run() for _ in range(4)]
    assert len({one["pid"] for one in results}) == 1
    assert [(one["rows"], one["views"], one["setting"]) for one in results] == [(7, [], "UTC")] * 4
    assert len({one["group"] for one in results}) == 4
    settled(runner.spark)
    jobs = [runner.recorder.spark_jobs_of(launch) for launch in version.launches]
    assert all(jobs) and len(set(itertools.chain(*jobs))) == sum(map(len, jobs)), "each job belongs to one try"


def test_a_try_that_needs_no_spark_after_one_that_did_is_distinguished(runner: TaskRunner) -> None:
    version = Version(
        runner, lambda ctx: {"pid": os.getpid(), "rows": ctx.params["spark"] and ctx.spark.range(3).count()}
    )
    results = [version.run(spark=wanted) for wanted in (True, False, True, False)]
    assert [one["rows"] for one in results] == [3, False, 3, False]
    assert {runner.log_of(launch) for launch in version.launches} == {""}
    assert len({one["pid"] for one in results}) == 1


def test_what_is_printed_lands_in_the_log_of_the_try_that_printed_it(runner: TaskRunner) -> None:
    def prints(ctx: Any) -> dict[str, Any]:
        print(f"printed by {ctx.params['who']}")
        os.write(1, f"no newline by {ctx.params['who']}".encode())
        return {"pid": os.getpid()}

    version = Version(runner, prints)
    assert version.run(who="a") == version.run(who="b")
    logs = [runner.log_of(launch) for launch in version.launches]
    assert logs == [f"printed by {who}\nno newline by {who}" for who in ("a", "b")]


def changes_the_folder(_: Any) -> None:
    os.chdir("/")


def changes_the_environment(_: Any) -> None:
    os.environ["LEFT_BEHIND"] = "1"


def changes_a_handler(_: Any) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def blocks_a_signal(_: Any) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})


def leaves_a_thread(_: Any) -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def leaves_a_child(_: Any) -> None:
    subprocess.Popen(["sleep", "100000"])


def sets_logging_up_anew(_: Any) -> None:
    import logging

    logging.basicConfig(force=True)


def sets_arguments(_: Any) -> None:
    sys.argv = ["script", "--day", "2024-01-02"]


def moves_its_output(_: Any) -> None:
    os.dup2(2, 1)


def sets_a_timer(_: Any) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 10_000)


CHANGES = {
    changes_the_folder: "the current folder",
    changes_the_environment: "environment variables",
    changes_a_handler: "handlers of signals",
    blocks_a_signal: "blocked signals",
    leaves_a_thread: "threads",
    leaves_a_child: "child processes",
    sets_logging_up_anew: "logging",
    sets_arguments: "sys.argv",
    moves_its_output: "standard streams",
    sets_a_timer: "timers",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_process_that_a_task_has_changed_serves_no_other_try(
    runner: TaskRunner, change: Callable[[Any], None]
) -> None:
    def may_change(ctx: Any) -> dict[str, Any]:
        before = os.getpid(), os.getcwd(), "LEFT_BEHIND" in os.environ
        if ctx.params["change"]:
            change(ctx)
        return {"was": list(before)}

    version = Version(runner, may_change)
    first = version.run(change=False)["was"]
    launch = version.start(change=True)
    assert found(runner.recorder.outcome(launch))["was"] == first
    assert runner.log_of(launch) == f"its process is not reused: it has changed {CHANGES[change]}"
    pid, *rest = version.run(change=False)["was"]
    assert (pid, *rest) != tuple(first) and rest == first[1:]


@pytest.mark.parametrize("how", ["raises", "exits", "is killed"])
def test_a_process_whose_try_has_failed_serves_no_other(runner: TaskRunner, how: str) -> None:
    def may_fail(ctx: Any) -> dict[str, Any]:
        if ctx.params["fails"]:
            if how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exits":
                os._exit(0)
            raise ValueError("as asked for")
        return {"pid": os.getpid()}

    version = Version(runner, may_fail)
    first = version.run(fails=False)["pid"]
    assert isinstance(runner.recorder.outcome(version.start(fails=True)), Failed)
    assert version.run(fails=False)["pid"] != first


def test_a_try_that_is_stopped_before_its_process_has_taken_it_does_not_begin(
    runner_of: Callable[..., TaskRunner],
) -> None:
    runner = runner_of(grace_s=PATIENCE)
    begun, handed_out = runner.signal(), threading.Event()

    def waits(ctx: Any) -> dict[str, Any]:
        if ctx.params["waits"]:
            begun.set()
            threading.Event().wait()
        return {"pid": os.getpid()}

    version = Version(runner, waits)
    os.kill(version.run(waits=False)["pid"], signal.SIGSTOP)
    launch = version.start(waits=True)
    runner.recorder.wait_until(lambda: launch.key in runner.recorder.started())
    runner.executor._processes._jvm_work.put(handed_out.set)
    handed_out.wait(PATIENCE)
    running = runner.executor._tries[launch.key].running
    assert running is not None and running.process is not None and running.process.forked is not None
    runner.executor.cancel(launch.key, "by the test")
    running.process.forked.signal(signal.SIGCONT)
    assert runner.recorder.outcome(launch) == Cancelled("by the test")
    assert not begun.is_set()


def test_a_stop_reaches_the_try_that_it_is_for_and_no_other(runner: TaskRunner) -> None:
    begun = runner.signal()

    def waits(ctx: Any) -> dict[str, Any]:
        if ctx.params["waits"]:
            begun.set()
            threading.Event().wait()
        return {"pid": os.getpid()}

    version = Version(runner, waits)
    first = version.run(waits=False)["pid"]
    stopped = version.start(waits=True)
    begun.wait(PATIENCE)
    assert runner.executor.cancel(stopped.key, "by the test")
    assert runner.recorder.outcome(stopped) == Cancelled("by the test")
    again = version.run(waits=False)["pid"]
    assert again != first and version.run(waits=False)["pid"] == again


def test_cancels_at_the_end_of_tries_hit_no_later_one(runner: TaskRunner) -> None:
    """Each try is cancelled at about the moment of its end; those that follow in the same processes are left alone."""
    version = Version(runner, pid_and)
    version.run()
    for number in range(60):
        launch = version.start()
        time.sleep(0.0005 * (number % 20))  # not to wait for something: to hit another moment each time
        runner.executor.cancel(launch.key, "by the test")
        outcome = runner.recorder.outcome(launch)
        assert isinstance(outcome, Succeeded | Cancelled), outcome
        assert version.run()["pid"]


def test_a_write_of_each_try_of_a_process_is_its_own(runner: TaskRunner) -> None:
    def writes(ctx: Any) -> dict[str, Any]:
        ctx.write(ctx.spark.range(ctx.params["n"]).selectExpr("id", "'x' AS key"), "reused_out", mode="append")
        return {"pid": os.getpid()}

    version = Version(runner, writes)
    assert len({version.run(n=n)["pid"] for n in (3, 4, 5)}) == 1
    assert [runner.recorder.rows_of(launch) for launch in version.launches] == [3, 4, 5]
    assert runner.spark.table("reused_out").count() == 12


class Spans:
    """Gives each try a span, and takes those that its code makes."""

    def __init__(self) -> None:
        self.of_runs: dict[str, str] = {}
        self.taken: list[TaskSpan] = []

    def traceparent(self, launch: TaskLaunch) -> str:
        self.of_runs[launch.ti.run_id] = f"{len(self.of_runs) + 1:016x}"
        return f"00-{7:032x}-{self.of_runs[launch.ti.run_id]}-01"

    def put_own(self, span: TaskSpan) -> None:
        self.taken.append(span)


def test_a_span_of_the_code_is_below_the_try_that_made_it(spark: SparkSession, tmp_path: Path) -> None:
    def makes_a_span(ctx: Any) -> dict[str, Any]:
        from opentelemetry import trace

        with trace.get_tracer("test").start_as_current_span(ctx.run_id):
            return {"pid": os.getpid()}

    recorder, spans = EventRecorder(), Spans()
    with an_executor(spark, recorder, traces=spans) as executor:
        version = Version(TaskRunner(spark, executor, recorder, [True], tmp_path), makes_a_span)
        assert len({version.run()["pid"] for _ in range(3)}) == 1
    assert {span.name: span.parent_id for span in spans.taken} == spans.of_runs and len(spans.taken) == 3


def test_a_library_that_is_imported_on_the_way_may_add_to_the_filters_of_warnings(runner: TaskRunner) -> None:
    def imports_it(_: Any) -> dict[str, Any]:
        import warnings
        from importlib import import_module

        if library not in __import__("sys").modules:
            import_module(library)
            warnings.filterwarnings("ignore", module="of_that_library")
        return {"pid": os.getpid()}

    library = "colorsys"  # that nothing else imports
    version = Version(runner, imports_it)
    assert len({version.run()["pid"] for _ in range(3)}) == 1


def test_as_many_are_kept_as_have_run_at_once(runner: TaskRunner) -> None:
    """In chains all tries may end before the next ones come."""

    at_once = MAX_WARM + 3
    barrier = runner.barrier(at_once, rounds=2)

    def meets_others(ctx: Any) -> dict[str, Any]:
        return pid_and(ctx, met=barrier.wait(PATIENCE, ctx.params["round"]))

    version, pids = Version(runner, meets_others), list[set[int]]()
    for number in range(2):
        launches = [version.start(round=number) for _ in range(at_once)]
        pids.append({found(runner.recorder.outcome(launch))["pid"] for launch in launches})
    assert len(pids[0]) == at_once and pids[0] == pids[1]


def test_many_tries_of_several_versions_leave_few_processes(runner: TaskRunner) -> None:
    versions = [Version(runner, pid_and) for _ in range(12)]
    for version in versions:
        version.run()
    waiting = runner.executor._processes._waiting
    runner.recorder.wait_until(lambda: sum(map(len, waiting.values())) <= 5)


def test_threads_that_have_been_joined_are_not_left_behind() -> None:
    """The system may still list one whose `join` has returned: about one time in ten here."""
    for _ in range(200):
        before = process_state()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(str, range(4)))
        assert difference_since(before) is None


def test_a_state_that_nobody_has_changed_is_equal() -> None:
    before = process_state()
    assert json.dumps(sorted(before)) and first_difference(before, process_state()) is None
    os.environ["LEFT_BEHIND"] = "1"
    try:
        assert first_difference(before, process_state()) == "environment variables"
    finally:
        del os.environ["LEFT_BEHIND"]


@pytest.mark.parametrize("another_ends", [False, True])
def test_a_thread_that_goes_on_is_a_difference(another_ends: bool) -> None:
    ends = [threading.Event(), threading.Event()]
    another, left = (threading.Thread(target=end.wait, args=[PATIENCE]) for end in ends)
    another.start()
    before = process_state()
    left.start()
    try:
        if another_ends:
            ends[0].set()
            another.join()
        assert difference_since(before) == "threads"
    finally:
        for end in ends:
            end.set()
        for thread in (another, left):
            thread.join()
    assert difference_since(before) is None
