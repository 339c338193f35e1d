"""Slots, queues, deadlines, cancelling, events: what the manager relies on."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.executor_fixture import (
    PATIENCE,
    THIS_STATE,
    TOO_LATE,
    EventRecorder,
    TaskRunner,
    a_launch,
    an_executor,
    day,
    no_spark_job_goes_on,
    outlive_the_stop,
    running_spark_jobs,
)
from support.file_signals import FileSignal
from support.task_snapshot import with_function

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import (
    Cancelled,
    Event,
    Failed,
    LaunchKey,
    PutBack,
    Skipped,
    Succeeded,
    TaskEnded,
    TaskLaunch,
    TaskLogged,
)
from backfill_manager.execution.spark.spark_health import spark_gone_reason


class Gate:
    """Tasks wait in it, in order of their coming, until they are let through."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner, self.open = runner, dict[str, FileSignal]()

    def enter(self, name: str, **how: Any) -> TaskLaunch:
        may_go = self.open[name] = self.runner.signal()

        def waits(ctx: Any) -> str:
            assert may_go.wait(PATIENCE)
            run_id: str = ctx.run_id
            return run_id

        return self.runner.start(a_launch(run_id=name, pool=how.pop("pool", "narrow"), **how), waits)

    def let(self, *names: str) -> None:
        for name in names:
            self.open[name].set()

    def let_all(self) -> None:
        self.let(*self.open)

    def begun(self) -> list[str]:
        return [run_id for _, run_id, _, _ in self.runner.recorder.started()]

    def wait_begun(self, *names: str) -> None:
        self.runner.recorder.wait_until(lambda: self.begun() == list(names))


@pytest.fixture
def gate(runner: TaskRunner) -> Any:
    gate = Gate(runner)
    yield gate
    gate.let_all()


def test_a_pool_runs_as_many_as_its_slots_and_a_free_slot_takes_the_next_at_once(
    runner: TaskRunner, gate: Gate
) -> None:
    for name in ("a", "b", "c", "d"):
        gate.enter(name)
    runner.recorder.wait_until(lambda: len(gate.begun()) == 2)
    assert set(gate.begun()) == {"a", "b"}
    assert runner.executor.free("narrow") == -2
    assert len(runner.executor.running()) == 4 and runner.executor.load() == {"narrow": 4}
    gate.let("b")
    runner.recorder.wait_until(lambda: len(gate.begun()) == 3)
    assert gate.begun()[2] == "c"
    gate.let_all()
    runner.recorder.wait_until(lambda: not runner.executor.running())
    assert runner.executor.free("narrow") == 2 and not runner.executor.load()


def test_higher_priority_goes_first_and_among_equals_the_older_run(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 1)
    for name, priority in (("first", 0), ("old", 0), ("older still waits", 0), ("urgent", 5)):
        gate.enter(name, priority=priority)
    gate.wait_begun("first")
    gate.let_all()
    gate.wait_begun("first", "urgent", "old", "older still waits")


def test_a_scheduled_run_goes_before_what_backfills_have_handed_over(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 1)
    for name in ("first", "batch", "batch too"):
        gate.enter(name)
    gate.enter("scheduled", run_type="scheduled")
    gate.enter("urgent", priority=5)
    gate.wait_begun("first")
    gate.let_all()
    gate.wait_begun("first", "urgent", "scheduled", "batch", "batch too")


def test_slots_can_be_changed_while_tasks_run(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 0)
    for name in ("a", "b", "c"):
        gate.enter(name)
    runner.executor.set_slots("narrow", 1)
    gate.wait_begun("a")
    runner.executor.set_slots("narrow", 3)
    runner.recorder.wait_until(lambda: len(gate.begun()) == 3)


def test_a_heavy_task_takes_its_weight_and_is_not_overtaken(runner: TaskRunner, gate: Gate) -> None:
    gate.enter("light")
    gate.wait_begun("light")
    gate.enter("heavy", weight=7)  # more than the pool has: it takes all of it
    gate.enter("light too")
    assert runner.executor.free("narrow") == -2
    gate.let("light")
    gate.wait_begun("light", "heavy")
    gate.let("heavy")
    gate.wait_begun("light", "heavy", "light too")


def test_a_launch_that_waits_is_taken_out_of_the_queue_when_cancelled(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 1)
    gate.enter("a")
    waiting = gate.enter("b")
    gate.wait_begun("a")
    assert runner.executor.cancel(waiting.key, "not needed")
    assert runner.recorder.outcome(waiting) == Cancelled("not needed")
    assert not runner.executor.cancel(waiting.key, "again")
    gate.let("a")
    runner.recorder.wait_until(lambda: not runner.executor.running())
    assert gate.begun() == ["a"]


def test_cancelling_stops_the_spark_jobs_of_a_task(runner: TaskRunner) -> None:
    computing = runner.signal()

    def endless(ctx: Any) -> None:
        computing.set()  # a moment before: the job that is not yet there when it is cancelled must go too
        ctx.spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()

    launch = runner.start(a_launch(), endless)
    assert computing.wait(PATIENCE)
    assert runner.executor.cancel(launch.key, "cancelled by hand")
    assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")
    no_spark_job_goes_on(runner.spark)


def test_a_cancelled_task_that_swallows_the_error_starts_no_more_spark_jobs(
    runner_of: Callable[..., TaskRunner],
) -> None:
    runner = runner_of(THIS_STATE, grace_s=PATIENCE)  # it is not killed
    begun, refused = runner.signal(), runner.signal()

    def stubborn(ctx: Any) -> None:
        outlive_the_stop(begun)
        while not refused.is_set():
            try:
                ctx.spark.range(10).count()
            except Exception as error:  # noqa: BLE001 - the stubborn kind of task
                refused.set(str(error))

    launch = runner.start(a_launch(), stubborn)
    assert begun.wait(PATIENCE)
    runner.executor.cancel(launch.key, "cancelled by hand")
    assert refused.wait(PATIENCE)
    assert "cancelled" in refused.text()
    assert runner.recorder.outcome(launch) == Cancelled("cancelled by hand")


def test_a_try_that_takes_too_long_fails_and_frees_its_slot(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 1)
    late = gate.enter("late", timeout=TOO_LATE)
    after = gate.enter("after")
    assert runner.recorder.outcome(late) == Failed("timed out after 2 s")
    gate.let_all()
    assert runner.recorder.outcome(after) == Succeeded('"after"')


def test_nothing_is_heard_of_a_try_after_its_end(runner: TaskRunner) -> None:
    enough = runner.signal()

    def talkative(ctx: Any) -> None:
        while not enough.is_set():
            with contextlib.suppress(BaseException):
                ctx.log.info("I am still here")
                enough.wait(0.05)

    launch = a_launch(timeout=TOO_LATE)
    runner.run(launch, talkative)
    runner.run(a_launch(run_id="another"), lambda ctx: None)
    enough.set()
    runner.run(a_launch(run_id="a third"), lambda ctx: None)
    heard = [event for event in runner.recorder.events if launch.key in keys_of(event)]
    assert [event for event in heard if isinstance(event, TaskEnded)] == heard[-1:]
    assert "I am still here" in runner.log_of(launch)


def keys_of(event: Event) -> set[LaunchKey]:
    if isinstance(event, TaskLogged):
        return {(line.dag_id, line.run_id, line.task_id, line.launch) for line in event.lines}
    return {event.key}


def test_an_unknown_pool_is_a_failure_that_names_the_pools(runner: TaskRunner) -> None:
    outcome = runner.run(a_launch(pool="backfil"), lambda ctx: None)
    assert outcome == Failed("there is no pool 'backfil'; did you mean 'backfill'?", retryable=False)


def test_closing_waits_then_gives_up_what_still_runs(runner: TaskRunner, gate: Gate) -> None:
    runner.executor.set_slots("narrow", 1)
    running, waiting = gate.enter("running"), gate.enter("waiting")
    gate.wait_begun("running")
    runner.executor.close(0.0)
    assert runner.recorder.end_of(waiting) == PutBack("the manager stopped before it had begun")
    assert runner.recorder.end_of(running) == PutBack("the manager stopped while it ran")
    late = gate.enter("late")
    assert runner.recorder.end_of(late) == PutBack("the manager is stopping")


def test_closing_lets_a_running_task_finish_within_the_grace(runner: TaskRunner, gate: Gate) -> None:
    running = gate.enter("running")
    gate.wait_begun("running")
    closing = threading.Thread(target=runner.executor.close, args=(PATIENCE,))
    closing.start()
    gate.let("running")
    closing.join(PATIENCE)
    assert runner.recorder.end_of(running) == Succeeded('"running"')


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_one_line_and_the_traceback_is_in_the_log(runner: TaskRunner) -> None:
    def fails(ctx: Any) -> None:
        ctx.log.info("about to fail")
        raise ValueError("no flights on this day\nat all")

    launch = a_launch()
    assert runner.run(launch, fails) == Failed("ValueError: no flights on this day")
    output = runner.log_of(launch)
    assert output.count("ValueError: no flights on this day") == 1
    assert output.startswith("about to fail\nTraceback") and "in fails" in output and "run_task.py" not in output


def test_what_a_task_says_of_secrets_of_the_environment_is_hidden(runner: TaskRunner) -> None:
    def password() -> str:
        return os.environ["PASSWORD_OF_THE_TESTS"]  # tests/conftest.py sets it

    def fails(ctx: Any) -> None:
        ctx.log.info(f"connect with {password()} to jdbc:x://me:word@host/db")
        raise ValueError(f"{password()} is refused")

    launch = a_launch()
    assert runner.run(launch, fails) == Failed("ValueError: *** is refused")
    output = runner.log_of(launch)
    assert output.startswith("connect with *** to jdbc:x://***@host/db\n") and output.endswith(
        "ValueError: *** is refused"
    )
    assert runner.run(a_launch("skips"), lambda ctx: ctx.skip(f"no {password()} today")) == Skipped("no *** today")


def test_secrets_are_hidden_by_their_names_and_those_of_params_wherever_they_are(runner: TaskRunner) -> None:
    params = {"api": {"token": "of-the-conf"}, "depth": 3}

    def fails(ctx: Any) -> None:
        ctx.log.info(f"with token={ctx.params['depth']}x and AWS_SECRET_ACCESS_KEY=abc, token_count=5")
        ctx.log.info(f"{ctx.params} says {ctx.params['api']['token']}")
        raise ValueError(f"password=abc, {ctx.params['api']['token']} is refused")

    launch = a_launch(params=params)
    assert runner.run(launch, fails) == Failed("ValueError: password=***, *** is refused")
    output = runner.log_of(launch)
    assert output.startswith(
        "with token=*** and AWS_SECRET_ACCESS_KEY=***, token_count=5\n{'api': {'token': '***'}, 'depth': 3} says ***\n"
    )
    assert output.endswith("ValueError: password=***, *** is refused") and "of-the-conf" not in output
    returns = runner.run(a_launch("returns", params=params), lambda ctx: {"token": ctx.params["api"]["token"]})
    assert returns == Succeeded('{"token": "of-the-conf"}'), "for the tasks after it; it is masked where it is shown"


def test_of_a_secret_of_params_nothing_is_left_where_a_line_or_an_error_is_cut(runner: TaskRunner) -> None:
    def fails(ctx: Any) -> None:
        ctx.log.info(" ".join([ctx.params["token"]] * 2_000))
        raise ValueError(" ".join([ctx.params["token"]] * 60))

    launch = a_launch(params={"token": "of-the-conf"})
    assert runner.run(launch, fails) == Failed(f"ValueError: {' '.join(['***'] * 60)}")
    assert runner.recorder.lines(launch)[0] == " ".join(["***"] * 2_000)


def test_an_exception_that_can_not_be_formatted_fails_its_task_like_any_other(runner: TaskRunner) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    def fails(ctx: Any) -> None:
        raise Odd

    outcome = runner.run(a_launch(), fails)
    assert isinstance(outcome, Failed) and outcome.error.startswith("Odd: <")


def test_a_failing_spark_job_is_one_line_too(runner: TaskRunner) -> None:
    outcome = runner.run(a_launch(), lambda ctx: ctx.spark.table("there_is_no_such_table"))
    assert isinstance(outcome, Failed) and "\n" not in outcome.error
    assert outcome.error.startswith("AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]")


def test_what_is_not_written_yet_is_not_tried_again(runner: TaskRunner) -> None:
    """As drafts of other tools have it: their retries, with their delays, would only put off the message."""

    def draft(ctx: Any) -> None:
        raise NotImplementedError("HttpOperator of Airflow: write here what it did")

    outcome = runner.run(a_launch(), draft)
    assert isinstance(outcome, Failed) and not outcome.retryable


def test_a_reason_to_skip_may_be_anything(runner: TaskRunner) -> None:
    nothing: Any = ValueError("no flights")
    assert runner.run(a_launch(), lambda ctx: ctx.skip(nothing)) == Skipped("no flights")


def test_skip_is_not_caught_by_a_tasks_own_except(runner: TaskRunner) -> None:
    def skips(ctx: Any) -> None:
        try:
            ctx.skip("a holiday")
        except Exception:  # noqa: BLE001 - what users write
            raise AssertionError("skip is no error") from None

    assert runner.run(a_launch(), skips) == Skipped("a holiday")


def test_a_task_that_calls_sys_exit_ends_itself_only(runner: TaskRunner) -> None:
    assert runner.run(a_launch(), lambda ctx: sys.exit(3)) == Failed("SystemExit: 3")


@pytest.mark.parametrize("code", [None, 0])
def test_a_function_that_ends_as_a_script_that_succeeds_has_succeeded(runner: TaskRunner, code: int | None) -> None:
    def script(_: Any) -> int:
        import argparse

        assert argparse.ArgumentParser().parse_args() == argparse.Namespace(), "it was given no arguments"
        sys.exit(code)

    assert runner.run(a_launch(), script) == Succeeded(None)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({1, 2}, "returned set, which is not a JSON value"),
        (float("nan"), "not a JSON value"),
        ("x" * 1_000_001, "a result may have"),
        (functools.reduce(lambda within, _: [within], range(101), []), "nested more than 100 levels deep"),
    ],
)
def test_a_result_that_is_no_small_json_value_is_refused(runner: TaskRunner, value: Any, complaint: str) -> None:
    outcome = runner.run(a_launch(), lambda ctx: value)
    assert isinstance(outcome, Failed) and not outcome.retryable and complaint in outcome.error


def test_results_travel_to_the_tasks_downstream(runner: TaskRunner) -> None:
    from backfill_manager.dags.definition import TaskSpec

    assert runner.run(a_launch("count"), lambda ctx: {"rows": 3}) == Succeeded('{"rows": 3}')
    others = (TaskSpec("count"), TaskSpec("check", upstream=("count",)), TaskSpec("aside"))
    reads = a_launch("report", upstream=("check",), others=others, results={"count": {"rows": 3}})
    assert runner.run(reads, lambda ctx: [ctx.result("count")["rows"], ctx.result("check")]) == Succeeded("[3, null]")
    wrong = a_launch("report", run_id="x", upstream=("check",), others=others)
    outcome = runner.run(wrong, lambda ctx: ctx.result("aside"))
    assert isinstance(outcome, Failed) and "'aside', which is not upstream of it" in outcome.error


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("interval_start", "; did you mean 'interval'?"),
        ("zzz", "; it has count_rows, dag_id, ended, in_interval,"),
        ("ds", '; use f"{ctx.logical_date:%Y-%m-%d}"'),
        ("data_interval_end", "; use ctx.interval.end"),
        ("get", "; use its attributes"),
    ],
)
def test_the_error_of_a_name_that_ctx_lacks_says_what_it_has(runner: TaskRunner, wrong: str, says: str) -> None:
    outcome = runner.run(a_launch(), lambda ctx: getattr(ctx, wrong))
    assert isinstance(outcome, Failed)
    assert f"AttributeError: ctx has no {wrong!r}{says}" in outcome.error, outcome.error


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("ds", '; use f"{ctx.logical_date:%Y-%m-%d}"'),
        ("params", "; use ctx.params"),
        ("ruN_id", "; did you mean 'run_id'?"),
    ],
)
def test_the_error_of_an_item_of_ctx_says_that_it_has_attributes(runner: TaskRunner, wrong: str, says: str) -> None:
    outcome = runner.run(a_launch(), lambda ctx: ctx[wrong])
    assert isinstance(outcome, Failed)
    assert f"TypeError: ctx[{wrong!r}]: ctx is no dictionary{says}" in outcome.error, outcome.error


def test_ctx_tells_what_the_run_is(runner: TaskRunner) -> None:
    def looks(ctx: Any) -> list[Any]:
        start, end = ctx.interval
        return [
            ctx.dag_id, ctx.task_id, ctx.run_id, ctx.run_type, ctx.logical_date == start == day(1),
            end == ctx.interval.end, ctx.partition_key, ctx.params["n"], ctx.try_number,
        ]  # fmt: skip

    launch = a_launch(run_id="r", params={"n": 5}, try_number=2)
    assert runner.run(launch, looks) == Succeeded('["work_dag", "work", "r", "backfill", true, true, null, 5, 2]')


def test_a_run_without_interval_says_so(runner: TaskRunner) -> None:
    outcome = runner.run(a_launch(interval=None, partition="north"), lambda ctx: ctx.in_interval("at"))
    assert isinstance(outcome, Failed)
    assert "has no interval; it is for partition 'north' (ctx.partition_key)" in outcome.error
    assert issubclass(InvalidInput, Exception) and not outcome.retryable


# -- the log ----------------------------------------------------------------------------------------------------------


def test_lines_come_while_the_task_runs_and_the_rest_before_its_end(runner: TaskRunner) -> None:
    heard = runner.signal()

    def talks(ctx: Any) -> None:
        ctx.log.info("first of %d", 2)
        assert heard.wait(PATIENCE)
        ctx.log.getChild("part").warning("last")

    launch = runner.start(a_launch(), talks)
    runner.recorder.wait_until(lambda: runner.recorder.lines(launch) == ["first of 2"])
    heard.set()
    runner.recorder.outcome(launch)
    assert runner.recorder.lines(launch) == ["first of 2", "last"]
    assert isinstance(runner.recorder.events[-1], TaskEnded)


def test_the_logging_of_a_bundles_modules_lands_in_the_tasks_log(runner: TaskRunner) -> None:
    def talks(ctx: Any) -> None:
        thread = threading.Thread(target=logging.getLogger("bundle.helpers").warning, args=("in a thread",))
        thread.start()
        thread.join()
        logging.getLogger("bundle.helpers").info("here")
        logging.getLogger("bundle.helpers").debug("not shown")

    launch = a_launch()
    runner.run(launch, talks)
    logging.getLogger("bundle.helpers").warning("nobody's")
    assert runner.recorder.lines(launch) == ["bundle.helpers: in a thread", "bundle.helpers: here"]


def test_a_task_that_logs_without_end_keeps_the_end_of_its_log_and_its_error(runner: TaskRunner) -> None:
    from backfill_manager.execution.task_processes.task_log import HEAD_LINES, TAIL_LINES

    def loops(ctx: Any) -> None:
        for n in range(HEAD_LINES + TAIL_LINES + 50):
            ctx.log.info("%d", n)
        raise ValueError("x" * 50_000 + " the cause")

    launch = a_launch()
    assert isinstance(runner.run(launch, loops), Failed)
    lines = runner.recorder.lines(launch)
    assert len(lines) == HEAD_LINES + 2 + TAIL_LINES and lines[:2] == ["0", "1"]
    assert lines[-1].startswith("Traceback") and lines[-1].endswith("x the cause")
    assert lines[-2] == str(HEAD_LINES + TAIL_LINES + 49)


def test_the_end_of_a_process_that_could_not_log_it_is_in_the_log(runner: TaskRunner) -> None:
    launch = a_launch()
    outcome = runner.run(launch, lambda ctx: os._exit(3))
    assert outcome == Failed("its process ended with exit code 3 before the task had")
    assert runner.recorder.lines(launch) == [outcome.error]


# -- Spark goes away --------------------------------------------------------------------------------------------------


def test_a_task_beneath_which_spark_goes_away_is_lost_not_failed(tmp_path: Path) -> None:
    story = """
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from support.executor_fixture import EventRecorder, a_launch, an_executor
        from support.file_signals import FileSignal
        from support.task_snapshot import with_function
        from backfill_manager.execution.spark.session import build_session

        spark, folder = build_session(master="local[1]", pools=[]), Path(sys.argv[3])
        running, recorder = FileSignal(folder / "running"), EventRecorder()

        def endless(ctx):
            running.set()
            ctx.spark.range(0, 10**13, 1, 1).selectExpr("max(id % 7)").collect()

        def report(why):
            print("GONE", why)

        with an_executor(spark, recorder, slots={"backfill": 1}, on_spark_gone=report) as executor:
            launch, waits = (with_function(a_launch(run_id=name), endless, folder) for name in ("runs", "waits"))
            for each in (launch, waits):
                executor.launch(each)
            assert running.wait(180)
            spark.sparkContext._gateway.proc.kill() if sys.argv[2] == "killed" else spark.stop()
            print("OUTCOME", recorder.outcome(launch))
            print("WAITED", recorder.outcome(waits))
    """
    for how in ("stopped", "killed"):
        (tmp_path / how).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(story), str(Path(__file__).parents[1]), how, str(tmp_path / how)],
            capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
        )  # fmt: skip
        assert "OUTCOME Lost(reason='Spark went away while it ran: its " in done.stdout, (
            how,
            done.stdout,
            done.stderr[-3000:],
        )
        assert "alone=True" in done.stdout and "WAITED PutBack(" in done.stdout, "what had not begun is not counted"
        assert done.stdout.count("GONE its ") == 1, "and it is reported once"


STOPS: list[Callable[[Any], None]] = [
    lambda ctx: ctx.spark.stop(),
    lambda ctx: ctx.spark.sparkContext.stop(),
    lambda ctx: SparkContext.getOrCreate().stop(),
    lambda ctx: SparkSession.builder.getOrCreate().stop(),
]


@pytest.mark.parametrize("stop", STOPS, ids=["session", "context", "any context", "any session"])
def test_a_task_that_stops_spark_fails_and_spark_stays(runner: TaskRunner, stop: Callable[[Any], None]) -> None:
    outcome = runner.run(a_launch(), stop)
    assert isinstance(outcome, Failed) and not outcome.retryable, "it would fail again"
    assert outcome.error.startswith("A task must not stop Spark")
    assert runner.run(a_launch(launch=2), lambda ctx: ctx.spark.range(3).count()) == Succeeded("3")


@pytest.mark.parametrize("level", ["DEBUG", "OFF"])
def test_a_task_does_not_change_the_log_level_of_all(runner: TaskRunner, level: str) -> None:
    def level_of_jvm(spark: SparkSession) -> str:
        return str(spark._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel())

    before = level_of_jvm(runner.spark)
    launch = a_launch()
    assert runner.run(launch, lambda ctx: ctx.spark.sparkContext.setLogLevel(level)) == Succeeded(None)
    assert level_of_jvm(runner.spark) == before
    (line,) = runner.recorder.lines(launch)
    assert line == f"pyspark: setLogLevel({level!r}) has no effect: the log level of Spark is the manager's"


def test_a_task_that_cancels_all_jobs_cancels_its_own_only(runner: TaskRunner) -> None:
    def cancels(ctx: Any) -> list[int]:
        tracker, ended = ctx.spark.sparkContext.statusTracker(), threading.Event()

        def endless() -> None:
            with contextlib.suppress(Exception):  # of Spark: it is cancelled
                ctx.spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()
            ended.set()

        threading.Thread(target=endless).start()
        while not ended.wait(0.1):  # it may not have begun yet
            ctx.spark.sparkContext.cancelAllJobs()
        return sorted(tracker.getActiveJobsIds())

    spark, output = runner.spark, list[str]()

    def another() -> None:
        try:
            spark.range(0, 10**13, 1, 2).selectExpr("max(id % 7)").collect()
        except Py4JError as error:
            output.append(str(error))

    thread = threading.Thread(target=another)
    thread.start()
    try:
        jobs = running_spark_jobs(spark)
        assert runner.run(a_launch(), cancels) == Succeeded(str(jobs)) and not output
    finally:
        spark.sparkContext.cancelAllJobs()
        thread.join()
    assert "cancelled" in output[0]


def test_a_process_that_is_out_of_file_descriptors_does_not_take_spark_for_gone(spark: SparkSession) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    output = list[str | None]()
    # It has no connection to the JVM yet.
    looking = threading.Thread(target=lambda: output.append(spark_gone_reason(spark)))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        looking.start()
        looking.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert output == [None]


def test_a_deadline_thread_that_fails_is_reported_and_closing_does_not_wait_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    recorder, failed, let_go = EventRecorder(), list[tuple[str, str]](), FileSignal(tmp_path / "let go")
    result = threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, TaskLogged) and not failed:  # in the deadline thread: nothing would be timed out any more
            raise ZeroDivisionError
        recorder(event)

    def on_failure(part: str, error: BaseException) -> None:
        failed.append((part, type(error).__name__))
        result.set()

    def talks(ctx: Any) -> None:
        ctx.log.info("one line")
        let_go.wait(PATIENCE)

    launch = with_function(a_launch(), talks, tmp_path)
    try:
        with an_executor(spark, hear, term=7, slots={"backfill": 1}, on_failure=on_failure) as executor:
            executor.launch(launch)
            assert result.wait(PATIENCE)
            executor.close(0.0)
            assert recorder.end_of(launch) == PutBack("the manager stopped while it ran")
            assert failed == [("executor of term 7", "ZeroDivisionError")]
    finally:
        let_go.set()


def test_delta_is_imported_before_there_is_a_task() -> None:
    """Tasks that were the first to import it, at the same time, found half of a package that imports itself in a circle."""
    look = "import sys, backfill_manager.execution.executor; print('delta.tables' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "True\n"


def listening_servers(spark: SparkSession) -> set[int]:
    """Servers of task processes in the JVM: each has a thread (its id) that waits for connections."""
    jvm: Any = spark.sparkContext._jvm
    stacks = jvm.java.lang.Thread.getAllStackTraces().entrySet()
    return {
        entry.getKey().getId()
        for entry in stacks
        if any("py4j.GatewayServer.run" in str(frame) for frame in entry.getValue())
    }


def test_a_closed_executor_leaves_no_server_behind_which_would_keep_the_jvm_of_spark_submit_alive(
    spark: SparkSession, tmp_path: Path
) -> None:
    before, recorder = listening_servers(spark), EventRecorder()
    with an_executor(spark, recorder) as executor:
        runner = TaskRunner(spark, executor, recorder, [True], tmp_path)
        assert runner.run(a_launch(), lambda ctx: ctx.spark.range(1).count()) == Succeeded("1")
        assert listening_servers(spark) - before
    deadline = time.monotonic() + PATIENCE
    while listening_servers(spark) - before:
        assert time.monotonic() < deadline
