"""Nothing that a task does reaches another task or the manager. Its try fails with what happened, its output is in its log."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.executor_fixture import PATIENCE, TaskRunner, a_launch, no_spark_job_goes_on
from support.leaves_children import start_children
from support.manager_process import wait_for
from support.task_facts import LEFT_BEHIND, found, nobody_else_notices, wait_gone

from backfill_manager.errors import BackfillManagerError
from backfill_manager.execution.messages import Failed, Lost, Succeeded
from backfill_manager.execution.task_processes.task_log import HEAD_LINES, TAIL_LINES
from backfill_manager.execution.task_processes.task_processes import MAX_STARTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def says(text: str = "") -> None:
    """On all ways to the standard streams, without anything that flushes them."""
    print(f"printed {text}".rstrip())
    print("and to stderr", file=sys.stderr)
    os.write(1, b"written\n")
    subprocess.run(["echo", "said by a child"], check=True)


SAID = ("printed", "and to stderr", "written", "said by a child")

# -- ways to end that are not a task's -------------------------------------------------------------------------------------


def exits_at_once(ctx: Any) -> None:
    says()
    os._exit(7)


def exits_at_once_as_if_all_was_well(ctx: Any) -> None:
    says()
    os._exit(0)


def exits_from_a_thread(ctx: Any) -> None:
    says()
    thread = threading.Thread(target=os._exit, args=(8,))
    thread.start()
    thread.join()


def calls_sys_exit(ctx: Any) -> None:
    says()
    sys.exit(3)


def reads_address_0(ctx: Any) -> None:
    says()
    ctypes.string_at(0)


def aborts(ctx: Any) -> None:
    says()
    os.abort()


def kills_itself(ctx: Any) -> None:
    says()
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_session(ctx: Any) -> None:
    says()
    os.killpg(0, signal.SIGKILL)


def calls_itself(ctx: Any) -> None:
    says()
    calls_itself_without_end(1)


def calls_itself_without_end(n: int) -> int:
    return calls_itself_without_end(n + 1) + 1


def sets_an_alarm(ctx: Any) -> None:
    says()
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    threading.Event().wait()


def closes_all_files(ctx: Any) -> None:
    says()
    os.closerange(0, 1000)


ENDS: list[tuple[Callable[[Any], None], str, str]] = [
    (exits_at_once, "its process ended with exit code 7 before the task had", ""),
    (exits_at_once_as_if_all_was_well, "its process ended with exit code 0 before the task had", ""),
    (exits_from_a_thread, "its process ended with exit code 8 before the task had", ""),
    (calls_sys_exit, "SystemExit: 3", "in calls_sys_exit"),
    (reads_address_0, "its process ended with signal 11 (SIGSEGV)", "in reads_address_0"),
    (aborts, "its process ended with signal 6 (SIGABRT)", "in aborts"),
    (kills_itself, "its process ended with signal 9 (SIGKILL)", ""),
    (kills_its_session, "its process ended with signal 9 (SIGKILL)", ""),
    (sets_an_alarm, "its process ended with signal 14 (SIGALRM)", ""),
    (calls_itself, "RecursionError: maximum recursion depth exceeded", "in calls_itself_without_end"),
    (closes_all_files, "its process ended with exit code 1 before the task had", ""),
]


@pytest.mark.parametrize(("function", "error", "trace"), ENDS, ids=[function.__name__ for function, _, _ in ENDS])
def test_a_task_that_ends_its_process_fails_with_how_it_ended(
    runner: TaskRunner, function: Callable[[Any], None], error: str, trace: str
) -> None:
    with nobody_else_notices(runner):
        launch = a_launch()
        outcome = runner.run(launch, function)
        assert isinstance(outcome, Failed) and outcome.error.startswith(error), outcome
        assert outcome.retryable
        log = runner.log_of(launch)
        assert [text for text in SAID if text not in log] == []
        assert trace in log


def test_a_task_whose_process_is_killed_from_outside_fails_with_that(runner: TaskRunner) -> None:
    begun = runner.signal()

    def waits(ctx: Any) -> None:
        says()
        begun.set(str(os.getpid()))
        threading.Event().wait()

    with nobody_else_notices(runner):
        launch = runner.start(a_launch(), waits)
        assert begun.wait(PATIENCE)
        os.kill(int(begun.text()), signal.SIGKILL)
        assert runner.recorder.outcome(launch) == Failed("its process ended with signal 9 (SIGKILL)")
        assert [text for text in SAID if text not in runner.log_of(launch)] == []


def test_a_task_that_writes_into_files_that_are_not_its_own_fails(runner: TaskRunner) -> None:
    def scribbles(ctx: Any) -> None:
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                os.set_blocking(int(descriptor), False)
                os.write(int(descriptor), b"\xff" * 10_000)
        threading.Event().wait()

    with nobody_else_notices(runner):
        outcome = runner.run(a_launch(), scribbles)
        assert isinstance(outcome, Failed)
        assert "it has sent what is no message" in outcome.error and "files it did not open" in outcome.error


def test_a_task_that_kills_the_process_that_it_was_forked_from_is_lost_and_the_next_one_runs(
    runner: TaskRunner,
) -> None:
    pids = runner.folder / "pids"

    def kills(ctx: Any) -> None:
        pids.write_text(json.dumps([os.getpid(), *start_children()]))
        os.kill(os.getppid(), signal.SIGKILL)
        threading.Event().wait()

    outcome = runner.run(a_launch(), kills)
    assert isinstance(outcome, Lost) and outcome.alone, outcome
    assert [pid for pid in json.loads(pids.read_text()) if os.path.exists(f"/proc/{pid}")] == []
    assert runner.run(a_launch(run_id="the next"), lambda ctx: ctx.spark.range(7).count()) == Succeeded("7")


def test_an_interpreter_that_is_broken_fails_its_tasks_and_is_started_for_them_only(runner: TaskRunner) -> None:
    """As when the packages of a bundle's interpreter were taken away: no process of it can be kept warm. It is no loss, after
    two of which the tasks of others would have to wait."""
    python, starts = runner.folder / "python", runner.folder / "starts"
    python.write_text(f"#!/bin/sh\necho >>'{starts}'\nexit 1\n")
    python.chmod(0o755)
    launch = a_launch("of_broken")
    launch = dataclasses.replace(launch, version=dataclasses.replace(launch.version, python=str(python)))
    assert runner.run(launch) == Failed(
        f"{python} could not start its process (exit code 1): its packages may have changed or be gone"
    )
    for n in range(10):
        assert runner.run(a_launch(f"work_{n}"), lambda ctx: "done") == Succeeded('"done"')
    assert len(starts.read_text().splitlines()) <= 2 * MAX_STARTS


def test_an_interpreter_that_can_not_be_started_fails_its_tasks_and_is_asked_for_by_them_only(
    runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, servers, asked = runner.folder / "python", runner.executor._processes._servers, list[str | None]()
    python.write_text("#!/no/such/interpreter\n")
    python.chmod(0o755)
    get = servers.get
    monkeypatch.setattr(servers, "get", lambda wanted: asked.append(wanted) or get(wanted))
    launch = a_launch("of_broken")
    launch = dataclasses.replace(launch, version=dataclasses.replace(launch.version, python=str(python)))
    assert runner.run(launch) == Failed(f"{python} can't be started: No such file or directory")
    for n in range(3):
        assert runner.run(a_launch(f"work_{n}"), lambda ctx: "done") == Succeeded('"done"')
    assert asked.count(str(python)) <= 2


def test_a_task_whose_process_ends_before_it_has_begun_is_started_in_another_and_writes(
    runner: TaskRunner, table: str
) -> None:
    outcome = runner.run(a_launch(), lambda ctx: os.getppid())
    assert isinstance(outcome, Succeeded)
    server = int(outcome.result_json or "0")
    os.kill(server, signal.SIGSTOP)
    wait_for(lambda: ") T " in Path(f"/proc/{server}/stat").read_text())
    # from here on it forks nothing, and what it has forked takes no task
    for process in Path(f"/proc/{server}/task/{server}/children").read_text().split():
        os.kill(int(process), signal.SIGSTOP)
    launch = runner.start(
        a_launch(run_id="the next"), lambda ctx: ctx.write(ctx.spark.range(7), table, mode="overwrite")
    )
    runner.recorder.wait_until(lambda: launch.key in runner.recorder.started())
    os.kill(server, signal.SIGKILL)
    assert runner.recorder.rows_of(launch) == 7
    assert runner.recorder.started().count(launch.key) == 1


@pytest.mark.parametrize("stopped", ["its process", "its fork server"])
def test_a_task_whose_process_does_not_begin_is_started_in_another(
    stopped: str, runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has stopped the process, or the fork server that should make it: nothing says so."""
    # A new fork server has to be there, with all that it imports, within this time.
    monkeypatch.setattr("backfill_manager.execution.executor.BEGIN_TIMEOUT_S", 8.0)
    monkeypatch.setattr("backfill_manager.execution.executor.END_TIMEOUT_S", 2.0)
    monkeypatch.setattr("backfill_manager.processes.fork_server_client.STOP_TIMEOUT_S", 0.5)
    outcome = runner.run(a_launch(), lambda ctx: os.getppid())
    assert isinstance(outcome, Succeeded)
    server = int(outcome.result_json or "0")
    warm = Path(f"/proc/{server}/task/{server}/children")
    wait_for(lambda: warm.read_text().split())
    if stopped == "its fork server":
        os.kill(server, signal.SIGSTOP)
        wait_for(lambda: ") T " in Path(f"/proc/{server}/stat").read_text())
    for process in warm.read_text().split():
        os.kill(int(process), signal.SIGSTOP)
    launch = runner.start(a_launch(run_id="the next"), lambda ctx: "done")
    assert runner.recorder.outcome(launch) == Succeeded('"done"')
    log = runner.log_of(launch)
    assert "its process has not begun within 8 s; it is ended, and another one started" in log
    assert ("its fork server does not answer" in log) == (stopped == "its fork server")
    assert runner.recorder.started().count(launch.key) == 1


def test_a_recursion_that_uses_up_the_stack_of_c_ends_that_task_only(runner: TaskRunner) -> None:
    def deep(ctx: Any) -> None:
        says()
        sys.setrecursionlimit(10**9)

        def without_end(_: int) -> int:
            return len(sorted([1], key=without_end))

        without_end(1)

    with nobody_else_notices(runner):
        launch = a_launch()
        outcome = runner.run(launch, deep)
        assert isinstance(outcome, Failed)
        # Newer Pythons notice it.
        assert "SIGSEGV" in outcome.error or outcome.error.startswith("RecursionError"), outcome
        assert [text for text in SAID if text not in runner.log_of(launch)] == []


# -- what it leaves behind -------------------------------------------------------------------------------------------------


def test_threads_and_child_processes_that_a_task_leaves_behind_end_with_it(runner: TaskRunner) -> None:
    def leaves(ctx: Any) -> dict[str, int]:
        # Not a daemon: Python would wait for it.
        threading.Thread(target=threading.Event().wait, name=LEFT_BEHIND).start()
        plain = subprocess.Popen(["sleep", "100000"])
        session = subprocess.Popen(["sleep", "100000"], start_new_session=True)
        deaf = subprocess.Popen(["sh", "-c", "trap '' HUP INT TERM; sleep 100000 & wait"], start_new_session=True)
        reading, writing = os.pipe()
        if os.fork() == 0:  # a daemon, as they are made: nobody's child, in no session of others
            os.setsid()
            if os.fork() == 0:
                os.write(writing, str(os.getpid()).encode())
                signal.pause()
            os._exit(0)
        pids = {"plain": plain.pid, "session": session.pid, "deaf": deaf.pid, "daemon": int(os.read(reading, 20))}
        return {**pids, "task": os.getpid()}

    with nobody_else_notices(runner):
        launch = a_launch()
        pids = found(runner.run(launch, leaves))
        assert {who: pid for who, pid in pids.items() if os.path.exists(f"/proc/{pid}")} == {}


@pytest.mark.parametrize("ends", ["it succeeds", "it exits"])
def test_spark_jobs_that_a_task_leaves_behind_end_with_it(runner: TaskRunner, ends: str) -> None:
    def leaves(ctx: Any) -> None:
        def endless() -> None:
            ctx.spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()

        threading.Thread(target=endless, daemon=True).start()
        tracker = ctx.spark.sparkContext.statusTracker()
        while not tracker.getActiveJobsIds():
            time.sleep(0.01)
        if ends == "it exits":
            os._exit(1)

    outcome = runner.run(a_launch(), leaves)
    assert isinstance(outcome, Succeeded if ends == "it succeeds" else Failed), outcome
    no_spark_job_goes_on(runner.spark)


@pytest.mark.parametrize("ends", ["it succeeds", "it raises", "it exits"])
def test_rows_that_a_task_has_cached_end_with_it(runner: TaskRunner, ends: str) -> None:
    def caches(ctx: Any) -> None:
        rows = ctx.spark.range(0, 1000, 1, 2).selectExpr("id * 17 AS n").cache()
        assert rows.count() == 1000
        rows.createOrReplaceTempView("numbers")
        ctx.spark.sql("CACHE TABLE doubled AS SELECT n * 2 FROM numbers")
        if ends == "it exits":
            os._exit(1)
        assert ends == "it succeeds"

    def is_cached(ctx: Any) -> bool:
        return bool(ctx.spark.range(0, 1000, 1, 2).selectExpr("id * 17 AS n").storageLevel.useMemory)

    def kept() -> set[int]:
        return set(runner.spark.sparkContext._jsc.getPersistentRDDs())

    before = kept()  # Delta keeps the state of tables of other tests
    assert isinstance(runner.run(a_launch(), caches), Succeeded if ends == "it succeeds" else Failed)
    assert runner.run(a_launch(launch=2), is_cached) == Succeeded("false")
    assert kept() <= before


def test_a_task_that_clears_the_cache_drops_its_own_rows_only(runner: TaskRunner) -> None:
    def clears(ctx: Any) -> list[bool]:
        mine = ctx.spark.range(100).selectExpr("id * 19 AS n").cache()
        was_cached = mine.storageLevel.useMemory
        ctx.spark.catalog.clearCache()
        return [was_cached, mine.storageLevel.useMemory]

    others = runner.spark.range(100).selectExpr("id * 23 AS n").cache()
    try:
        assert runner.run(a_launch(), clears) == Succeeded("[true, false]")
        assert others.storageLevel.useMemory
    finally:
        others.unpersist()


def test_a_try_that_can_not_end_because_of_what_it_registered_for_its_exit_ends(runner: TaskRunner) -> None:
    def holds_on(ctx: Any) -> str:
        for _ in range(3):
            atexit.register(threading.Event().wait)
        lock = threading.Lock()
        lock.acquire()
        atexit.register(lock.acquire)
        threading.Thread(target=lock.acquire, name=LEFT_BEHIND).start()
        return "done"

    with nobody_else_notices(runner):
        assert runner.run(a_launch(), holds_on) == Succeeded('"done"')


def test_a_fork_that_comes_out_of_the_task_as_well_reports_nothing(runner: TaskRunner) -> None:
    def forks(ctx: Any) -> str:
        child = os.fork()
        if child == 0:
            return "the child"
        os.waitpid(child, 0)
        return "the task"

    with nobody_else_notices(runner):
        assert runner.run(a_launch(), forks) == Succeeded('"the task"')


def test_a_fork_of_a_task_ends_by_a_signal_like_any_other_process(runner: TaskRunner) -> None:
    def forks(ctx: Any) -> int:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"it runs")
            time.sleep(100_000)
        os.read(read, 100)
        os.kill(child, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    launch = a_launch()
    assert runner.run(launch, forks) == Succeeded(str(-signal.SIGTERM))
    assert runner.log_of(launch) == "", "nothing of a stop of this try"


def test_a_fork_of_a_task_gets_an_error_that_it_can_not_reach_the_manager(runner: TaskRunner) -> None:
    def forks(ctx: Any) -> str:
        with contextlib.suppress(BackfillManagerError):
            ctx.secret("password")  # there is none
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                ctx.secret("password")
            except Exception as error:  # noqa: BLE001 - the task compares it
                os.write(write, str(error).encode())
            os._exit(0)
        return os.read(read, 1000).decode()

    message = "A fork of a task's process can't write or read secrets; threads of the task can"
    assert runner.run(a_launch(timeout=PATIENCE / 2), forks) == Succeeded(f'"{message}"')


def test_a_fork_that_logs_while_a_thread_of_the_task_does_goes_on(runner: TaskRunner) -> None:
    def forks(ctx: Any) -> None:
        def logs() -> None:
            for _ in range(5_000):
                ctx.log.info("of the thread %s", "x" * 1000)

        thread = threading.Thread(target=logs)
        thread.start()
        for number in range(50):
            child = os.fork()
            if child == 0:
                ctx.log.info("of fork %d", number)
                os._exit(0)
            os.waitpid(child, 0)
        thread.join()

    launch = a_launch(timeout=PATIENCE / 2)
    assert isinstance(runner.run(launch, forks), Succeeded)
    forked = [line for line in runner.recorder.lines(launch) if line.startswith("of fork ")]
    assert forked == [f"of fork {number}" for number in range(50)]


# -- what it changes in its process ----------------------------------------------------------------------------------------


def changes_its_folder(ctx: Any) -> None:
    os.chdir("/")
    os.umask(0o777)


def changes_its_environment(ctx: Any) -> None:
    os.environ.clear()
    os.environ[LEFT_BEHIND] = "1"
    time.tzset()


def changes_its_locale(ctx: Any) -> None:
    import locale

    locale.setlocale(locale.LC_ALL, "C.UTF-8")


def changes_signal_handlers(ctx: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.setitimer(signal.ITIMER_REAL, 10_000)


def sets_logging_up_anew(ctx: Any) -> None:
    import logging
    import warnings

    logging.basicConfig(level=logging.DEBUG, force=True)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("error")


def patches_modules(ctx: Any) -> None:
    import builtins
    import json

    from pyspark.sql import DataFrame, SparkSession

    from backfill_manager.execution import messages
    from backfill_manager.execution.tasks import run_task

    def ours(*_: Any, **__: Any) -> str:
        return LEFT_BEHIND

    json.dumps = builtins.print = os._exit = sys.exit = ours  # type: ignore[assignment]
    threading.Thread.start = messages.Succeeded.__init__ = run_task.run_python_task = ours  # type: ignore[assignment,method-assign]
    SparkSession.range = DataFrame.count = ours  # type: ignore[assignment,method-assign]


def fills_modules_and_path(ctx: Any) -> None:
    import types

    sys.modules[LEFT_BEHIND] = types.ModuleType(LEFT_BEHIND)
    sys.path[:] = [f"/{LEFT_BEHIND}"]
    sys.modules["json"] = sys.modules[LEFT_BEHIND]


def closes_its_streams(ctx: Any) -> None:
    sys.stdout.close()
    sys.stderr.close()
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def changes_limits_and_more(ctx: Any) -> None:
    import decimal
    import gc
    import random
    import resource
    import socket

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    os.nice(5)
    sys.setrecursionlimit(200)
    decimal.getcontext().prec = 3
    socket.setdefaulttimeout(0.001)
    gc.disable()
    random.seed(13)


def changes_its_session(ctx: Any) -> None:
    ctx.spark.conf.set("spark.left.behind", "1")
    ctx.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    ctx.spark.range(1).createOrReplaceTempView(LEFT_BEHIND)
    ctx.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "scheduled")
    ctx.spark.sparkContext.addJobTag(LEFT_BEHIND)


CHANGES: list[Callable[[Any], None]] = [
    changes_its_folder, changes_its_environment, changes_its_locale, changes_signal_handlers, sets_logging_up_anew,
    fills_modules_and_path, closes_its_streams, changes_limits_and_more, changes_its_session,
]  # fmt: skip


@pytest.mark.parametrize("function", CHANGES, ids=[function.__name__ for function in CHANGES])
def test_what_a_task_changes_in_its_process_ends_with_it(runner: TaskRunner, function: Callable[[Any], None]) -> None:
    with nobody_else_notices(runner):
        assert runner.run(a_launch(), function) == Succeeded(None)


def shuts_its_gateway_down(ctx: Any) -> None:
    ctx.spark.sparkContext._gateway.shutdown()


def exits_in_the_middle_of_a_call(ctx: Any) -> None:
    threading.Thread(target=lambda: ctx.spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()).start()
    tracker = ctx.spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    os._exit(0)


def is_interrupted_in_the_middle_of_a_call(ctx: Any) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    ctx.spark.range(1).count()
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Interrupted):
        ctx.spark._jvm.java.lang.Thread.sleep(2000)


def calls_the_jvm_in_a_fork(ctx: Any) -> None:
    ctx.spark.range(1).count()
    begun, begin = os.pipe()
    if os.fork() == 0:
        os.write(begin, b"x")
        ctx.spark._jvm.java.lang.Thread.sleep(2000)
        os._exit(0)
    os.read(begun, 1)


@pytest.mark.parametrize(
    "function",
    [
        shuts_its_gateway_down,
        exits_in_the_middle_of_a_call,
        is_interrupted_in_the_middle_of_a_call,
        calls_the_jvm_in_a_fork,
    ],
    ids=lambda function: function.__name__,
)
def test_what_a_task_does_to_its_way_into_the_jvm_does_not_reach_the_ones_that_come_later(
    runner: TaskRunner, function: Callable[[Any], None]
) -> None:
    with nobody_else_notices(runner):
        runner.run(a_launch(), function)
        together = runner.barrier(8)  # more than there are processes that wait for a task

        def counts(ctx: Any) -> int:
            assert together.wait(PATIENCE)
            rows: int = ctx.spark.range(7).count()
            return rows

        later = [runner.start(a_launch(run_id=f"run {n}"), counts) for n in range(8)]
        assert [runner.recorder.outcome(launch) for launch in later] == [Succeeded("7")] * 8


def test_what_a_task_patches_is_patched_for_itself_only(runner: TaskRunner) -> None:
    with nobody_else_notices(runner):
        outcome = runner.run(a_launch(), patches_modules)
        assert isinstance(outcome, Succeeded | Failed), "what it has broken is its own"


# -- what it prints --------------------------------------------------------------------------------------------------------


def test_what_a_task_prints_is_in_its_log_as_it_happens_and_without_secrets(runner: TaskRunner) -> None:
    heard = runner.signal()

    def prints(ctx: Any) -> None:
        says(os.environ["PASSWORD_OF_THE_TESTS"])
        assert heard.wait(PATIENCE)
        print("the end", end="")

    launch = runner.start(a_launch(), prints)
    runner.recorder.wait_until(lambda: set(runner.recorder.lines(launch)) >= {"printed ***", *SAID[1:]})
    heard.set()
    assert runner.recorder.outcome(launch) == Succeeded(None)
    assert runner.recorder.lines(launch)[-1] == "the end"


def test_a_flood_of_output_is_cut_short_and_holds_up_nobody(runner: TaskRunner) -> None:
    def floods(ctx: Any) -> str:
        for _ in range(50_000):
            print("a line of a task that prints and prints and prints and prints and prints and prints")
        os.write(2, b"x" * 20_000_000)
        os.write(1, b"\xff\x00\xfe\r\n")
        return "done"

    with nobody_else_notices(runner):
        launch = a_launch()
        assert runner.run(launch, floods) == Succeeded('"done"')
        lines = runner.recorder.lines(launch)
        assert "its last 2,000 lines" in lines[HEAD_LINES] and "lines are left out here" in lines[HEAD_LINES + 1]
        assert len(lines) <= HEAD_LINES + 2 + TAIL_LINES
        assert {"\ufffd\x00\ufffd", "x"} & {line.strip("x") or "x" for line in lines[HEAD_LINES + 2 :]}


def test_a_child_that_holds_the_streams_open_does_not_hold_up_the_end(runner: TaskRunner) -> None:
    def leaves(ctx: Any) -> int:
        return subprocess.Popen(["sh", "-c", "echo I am here; exec sleep 100000"], start_new_session=True).pid

    outcome = runner.run(a_launch(), leaves)
    assert isinstance(outcome, Succeeded) and outcome.result_json is not None
    wait_gone(int(outcome.result_json))
