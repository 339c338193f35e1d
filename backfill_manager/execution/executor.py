"""Pools, slots, deadlines: which try runs when, and the events of each.

A launch waits in its pool's queue (higher priority first, then scheduled before backfill, then older run first) until slots are
free; a pool never runs more than its slots at once, and a slot that comes free takes the next one at once, without the
manager. Python tasks run in processes (`task_process`), SQL tasks, which hold no code of users, in threads. One watching thread
sleeps until the next deadline: a try's timeout, the end of its grace, the next flush of its log.

A try that is timed out or cancelled is *abandoned*: its Spark jobs are cancelled, further ones and its writes are refused, and
`TaskStopped` is raised in its process. When that has ended, its outcome is reported and its slots are free; if it has not
after `grace_s`, it is killed, with all that it has started. A SQL task has nothing but Spark jobs, and its thread ends with them.

Events of one try come in order: TaskStarted, TaskLogged..., TaskEnded, and none after that.

Without Spark nothing can continue. The first to notice (a try that fails, the Spark monitor) calls `report_spark_gone`; from then
on nothing is started, and every try ends: what had started is Lost, what waited is put back.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from backfill_manager.clock import Clock
from backfill_manager.errors import AbandonedTry, BackfillManagerError, LostLease, nearest
from backfill_manager.execution import messages as m
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.lineage.table_access import TableAccesses
from backfill_manager.execution.output.output_group_commit import GroupCommits
from backfill_manager.execution.output.row_checks import CheckResults
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.execution.output.write_context import StateIdentity, WriteContext
from backfill_manager.execution.secrets import FindSecret, no_secret
from backfill_manager.execution.spark.cached_rows import CachedRows
from backfill_manager.execution.spark.session import CONTROL_POOL
from backfill_manager.execution.spark.spark_health import spark_gone_reason
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.execution.spark.spark_status import SparkStatus
from backfill_manager.execution.task_processes.running_task import RunningTask
from backfill_manager.execution.task_processes.task_log import LogLines, TaskLogger
from backfill_manager.execution.task_processes.task_main import TaskOrder
from backfill_manager.execution.task_processes.task_processes import TaskProcesses
from backfill_manager.execution.tasks.run_task import run_sql_task
from backfill_manager.model.pools import start_order
from backfill_manager.processes.fork_server_client import ForkServers
from backfill_manager.service import FailureHandler, Pass, ServiceThread
from backfill_manager.store.delta_spark.transaction import set_active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLUSH_INTERVAL_S: Final = 1.0
CANCEL_AGAIN_S: Final = (0.25, 5.0)  # the first time, and the longest; it doubles between
GRACE_S: Final = 5.0
END_TIMEOUT_S: Final = 10.0  # for a process that was killed to be gone; only the system can keep it
BEGIN_TIMEOUT_S: Final = 300.0  # for a process that was given a try to begin it, on the busiest machine
# kill: the end of an abandoned one's grace; give_up: it can't be killed; cancel: its Spark jobs, once more
# begin: its process should have begun with it
Deadline = Literal["timeout", "kill", "give_up", "cancel", "flush", "begin"]
RowsBeforeOf = Callable[[m.TaskLaunch, str, int, str], Sequence[int]]


class Traces(Protocol):
    """Where spans of tasks go; waits for nothing."""

    def traceparent(self, launch: m.TaskLaunch) -> str:
        """Of the span of this try, as W3C writes it."""

    def put_own(self, span: m.TaskSpan) -> None:
        """Of a task's code."""


@dataclass(eq=False)
class _Try:
    launch: m.TaskLaunch
    jobs: SparkJobGroup
    lines: LogLines
    accesses: TableAccesses  # of a SQL task
    turns: TurnHolder
    weight: int = 0  # slots it takes; 0 while it waits
    held: int = 0  # slots it holds: from its start to the end of its code
    running: RunningTask | None = None  # of a Python task, once it has begun
    abandoned: m.Outcome | None = None  # its outcome, whatever it does
    stopped_at: float = 0.0  # when it was abandoned while it ran
    ended: bool = False
    deadlines: dict[Deadline, float] = field(default_factory=dict)
    cancel_in: float = CANCEL_AGAIN_S[0]
    ended_starts: int = 0  # the last of its processes that was ended as it did not begin; they are numbered from 1
    check_results: CheckResults = field(default_factory=CheckResults)  # likewise
    event_lock: threading.RLock = field(default_factory=threading.RLock)  # one event after another


class Executor:
    """`is_leader()` says whether this manager still leads: writes are refused when it doesn't. `state` owns the outputs.
    `snapshots` is where snapshots lie now: a state that was moved still names the place where they lay then.
    `find_secret` is for `ctx.secret`. `rows_before` is `row_checks.RowsBefore` of a launch, and may read the state.
    `on_spark_gone(reason)` is called once, from any thread. `with_columns`: see `TableAccesses`.
    `traces`: None when nobody traces."""

    def __init__(
        self, spark: SparkSession, *, servers: ForkServers, on_event: Callable[[m.Event], None], clock: Clock,
        term: int, is_leader: Callable[[], bool], state: StateIdentity, slots: Mapping[str, int], snapshots: Path | None = None,
        grace_s: float = GRACE_S, on_spark_gone: Callable[[str], None] = lambda reason: None,
        on_failure: FailureHandler | None = None, rows_before: RowsBeforeOf = lambda launch, table, number, unit: (),
        with_columns: bool = False, find_secret: FindSecret = no_secret, traces: Traces | None = None,
    ) -> None:  # fmt: skip
        self._spark, self._snapshots, self._on_event, self._clock = spark, snapshots, on_event, clock
        self._with_columns, self._traces = with_columns, traces
        self._is_leader, self._state, self._grace_s = is_leader, state, grace_s
        self._on_spark_gone, self._on_failure, self._rows_before = on_spark_gone, on_failure, rows_before
        self._find_secret = find_secret
        self._spark_status, self._cached_rows = SparkStatus(spark.sparkContext), CachedRows(spark)
        self._changed = threading.Condition()  # guards all below
        self._slots = dict(slots)
        self._used: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, list[tuple[tuple[int, int, int], int, _Try]]] = defaultdict(list)
        self._order = itertools.count()
        self._tries: dict[m.LaunchKey, _Try] = {}  # those that have not ended
        self._load = Counter[str]()  # how many these are, by pool: the tick looks at each event
        self._closing = self._closed = False
        self._watching = True
        self._gone: m.Lost | m.PutBack | None = None  # Spark has; what becomes of what ran
        name = f"executor of term {term}"
        self._commits = GroupCommits(spark, CONTROL_POOL, on_failure=on_failure)
        self._processes = TaskProcesses(spark, servers, clock, name=name, commits=self._commits, on_failure=on_failure)
        self._watcher = ServiceThread(name, self._watch, on_failure=on_failure)
        self._watcher.start()

    @property
    def passes(self) -> list[Pass]:
        """Of its threads that call the JVM or read the state; each of the others only waits for events."""
        return [*self._processes.passes, *self._commits.passes]

    def prepare(self) -> None:
        """Have a process ready for the first Python task: starting the first one takes seconds."""
        self._processes.prepare()

    def launch(self, launch: m.TaskLaunch) -> None:
        """Queue one start of a task instance. Its end is always reported by a TaskEnded."""
        ti = launch.ti
        tag = f"bfm/{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.launch}".replace(",", "_")
        about = f"{ti.dag_id}.{ti.task_id} {ti.run_id} try {ti.try_number}"
        lines = LogLines(launch, self._clock, lambda: self._flush_soon(it))
        accesses = TableAccesses(with_columns=self._with_columns)
        turns = TurnHolder(PROCESS_TURNS, "/".join(map(str, launch.key)))
        it = _Try(launch, SparkJobGroup(launch.pool, tag, about), lines, accesses, turns)
        refusal: m.Outcome | None = None
        with self._changed:
            self._tries[launch.key] = it
            self._load[launch.pool] += 1
            if self._closing:
                refusal = m.PutBack("the manager is stopping")
            elif launch.pool not in self._slots:
                hint = nearest(launch.pool, self._slots, n=1) or f"; there are {', '.join(sorted(self._slots))}"
                refusal = m.Failed(f"there is no pool {launch.pool!r}{hint}", retryable=False)
            else:
                order = start_order(ti.priority, ti.run_seq, for_schedule=launch.run.is_for_schedule)
                heapq.heappush(self._waiting[launch.pool], (order, next(self._order), it))
        if refusal is not None:
            self._end(it, refusal)
        self._admit(launch.pool)

    def cancel(self, key: m.LaunchKey, reason: str) -> bool:
        """Stop a try, or take it out of the queue; False if there is no such try any more."""
        with self._changed:
            it = self._tries.get(key)
        return it is not None and self._abandon(it, m.Cancelled(reason))

    def set_slots(self, pool: str, slots: int) -> None:
        """From now on. With fewer slots than are taken nothing is stopped; the next ones wait."""
        with self._changed:
            self._slots[pool] = slots
        self._admit(pool)

    def running(self) -> set[m.LaunchKey]:
        """Launched and not ended: running, or waiting here for a slot."""
        with self._changed:
            return set(self._tries)

    def load(self) -> Counter[str]:
        """By pool: how many are running or wait for a slot."""
        with self._changed:
            return +self._load

    def free(self, pool: str) -> int:
        """Slots of the pool that are neither used nor promised to what waits here; below 0 when more waits."""
        with self._changed:
            waiting = sum(self._weight(it) for *_, it in self._waiting[pool] if not it.ended)
            return self._slots.get(pool, 0) - self._used[pool] - waiting

    def report_spark_gone(self, reason: str) -> None:
        """Start nothing more and end every try. What had begun is Lost, unless the manager was stopping anyway."""
        with self._changed:
            if self._gone is not None:
                return
            started = [it for it in self._tries.values() if it.held]
            lost = f"Spark went away while it ran: {reason}"
            self._gone = m.PutBack(lost) if self._closing else m.Lost(lost, alone=len(started) == 1)
            self._closing = True
            waiting = [it for it in self._tries.values() if not it.weight]
        self._on_spark_gone(reason)
        for it in waiting:
            self._abandon(it, m.PutBack("Spark went away before it had begun"))
        for it in started:
            self._abandon(it, self._gone)

    def close(self, grace_s: float) -> None:
        """Start nothing more; wait up to `grace_s` seconds for what runs; the rest is put back. The end of every try has
        been reported when this returns. Spark is left running."""
        with self._changed:
            self._closing = True
            waiting = [it for it in self._tries.values() if not it.weight]
        for it in waiting:
            self._abandon(it, m.PutBack("the manager stopped before it had begun"))
        with self._changed:
            self._changed.wait_for(lambda: not self._tries, timeout=grace_s)
            left = list(self._tries.values())
        for it in left:  # without Spark it counts as lost
            self._abandon(it, self._gone or m.PutBack("the manager stopped while it ran"))
        with self._changed:
            self._changed.wait_for(lambda: not self._tries or not self._watching)  # it kills each after its grace
            left = list(self._tries.values())
        for it in left:  # the watcher has failed
            self._end(it, it.abandoned or m.PutBack("the manager stopped while it ran"))
        with self._changed:
            already, self._closed = self._closed, True
            self._changed.notify_all()
        if not already:
            self._watcher.join()
            self._processes.close()
            self._commits.close()

    def _weight(self, it: _Try) -> int:
        """A task heavier than its pool takes all of it: it would never run otherwise."""
        return max(1, min(it.launch.task.weight, self._slots.get(it.launch.pool, 1)))

    def _admit(self, pool: str) -> None:
        """Gives free slots to those first in the queue, and begins them. The first is never overtaken by lighter ones."""
        ready: list[_Try] = []
        with self._changed:
            queue = self._waiting[pool]
            while queue and not self._closing:
                it = queue[0][-1]
                if not it.ended:
                    weight = self._weight(it)
                    if self._used[pool] + weight > self._slots.get(pool, 0):
                        break
                    it.weight = it.held = weight
                    self._used[pool] += weight
                    ready.append(it)
                heapq.heappop(queue)
        for it in ready:
            self._begin(it)

    def _begin(self, it: _Try) -> None:
        if (timeout_s := it.launch.task.timeout) is not None:
            with self._changed:
                it.deadlines["timeout"] = self._clock.monotonic() + timeout_s
                self._changed.notify_all()
        if it.launch.task.kind == "sql":
            try:
                ServiceThread(it.jobs.tag, self._run_sql, it, on_failure=self._on_failure).start()
            except RuntimeError as error:  # the process has no thread left
                self._end(it, m.Postponed(str(error)))
            return
        order = TaskOrder(
            it.launch, self._state, self._snapshots, it.jobs, self._commits.is_available, self._with_columns,
            traceparent=None if self._traces is None else self._traces.traceparent(it.launch),
        )  # fmt: skip
        with self._changed:
            if it.abandoned is None:
                it.running = self._processes.start(order, _Listener(self, it), it.turns)
        if it.running is None:
            self._end(it, m.PutBack("stopped before it had begun"))

    def _run_sql(self, it: _Try) -> None:
        self.started(it)
        outcome: m.Outcome = m.Failed("its thread broke off")
        try:
            if it.abandoned is None:
                session = self._spark.newSession()
                it.jobs.enter(session)
                set_active(session)  # else Delta looks names up by Spark's defaults, not by the session's settings
                commit = partial(self._commits.commit, partial(self.write_refusal, it))
                this = WriteContext(
                    it.launch, lambda: session, TaskLogger.of(it.launch, it.lines.add), partial(self._refuse_if_abandoned, it),
                    self._state, it.turns, commit if self._commits.is_available else None, it.accesses, it.check_results,
                    partial(self.rows_before, it),
                )  # fmt: skip
                outcome = run_sql_task(this, it.lines.add)
        except Exception as error:  # noqa: BLE001 - before its statements: Spark is gone, or a bug of ours
            outcome = m.Failed(one_line(error))
        finally:
            it.turns.release_all()
            self.ended(it, outcome)

    def rows_before(self, it: _Try, table: str, number: int, unit: str) -> Sequence[int]:
        """See `row_checks.RowsBefore`."""
        try:
            return self._rows_before(it.launch, table, number, unit)
        except Exception as error:  # whatever engine the state has; the try reports it, and is retried
            what = "what this task has written before can't be read from the state"
            raise BackfillManagerError(f"{what}: {one_line(error)}") from error

    def secret(self, it: _Try, name: str) -> str:
        """See `Secrets.find`. Its log knows the value before its process does, so all that comes after is masked."""
        found = self._find_secret(name, it.launch.version.bundle)
        it.lines.add_secret(found.value)
        it.lines.add("INFO", f"ctx.secret reads {name} from {found.source}")
        return found.value

    def span(self, it: _Try, span: m.TaskSpan) -> None:
        """Made by its code, and masked as its log is."""
        if self._traces is not None:
            self._traces.put_own(span.without_secrets(it.lines.masked))

    def started(self, it: _Try) -> None:
        self.report(it, m.TaskStarted(it.launch.key, self._clock.now()))
        if it.launch.task.kind != "sql":
            with self._changed:
                if it.abandoned is None:
                    it.deadlines["begin"] = self._clock.monotonic() + BEGIN_TIMEOUT_S
                    self._changed.notify_all()

    def write_refusal(self, it: _Try) -> AbandonedTry | LostLease | None:
        if it.abandoned is not None:
            return AbandonedTry(f"this try is over ({_reason(it.abandoned)}); it writes no more")
        if not self._is_leader():
            return LostLease("this manager is not sure that it still leads; its tasks write no more")
        return None

    def _refuse_if_abandoned(self, it: _Try) -> None:
        if (refusal := self.write_refusal(it)) is not None:
            raise refusal

    def ended(self, it: _Try, outcome: m.Outcome) -> None:
        """Its code runs no more, and its Spark jobs should not. A failure may be that Spark is gone, and then is nobody's."""
        has_used_spark = it.running is None or it.running.has_used_spark  # None: a SQL task
        may_run = it.running is not None and it.running.jobs_may_run
        is_at_rest = not has_used_spark or (isinstance(outcome, m.Succeeded | m.Skipped) and not may_run)
        if it.stopped_at:
            it.lines.add("INFO", f"it ended {self._clock.monotonic() - it.stopped_at:.1f} s after it was stopped")
        if not is_at_rest:  # the JVM knows nothing of the end of a process
            it.jobs.cancel_jobs(self._spark.sparkContext)
        if has_used_spark:
            self._cached_rows.drop_those_of(it.jobs.group)
        if isinstance(outcome, m.Failed | m.Postponed) and (reason := spark_gone_reason(self._spark)):
            self.report_spark_gone(reason)
            outcome = self._gone or m.Lost(reason)
        elif isinstance(outcome, m.Lost):  # its fork server has ended, and took others along
            with self._changed:
                outcome = m.Lost(outcome.reason, alone=sum(1 for other in self._tries.values() if other.held) == 1)
        self._end(it, it.lines.without_secrets(outcome))

    def _abandon(self, it: _Try, outcome: m.Outcome) -> bool:
        with self._changed:
            if it.ended or it.abandoned is not None:
                return False
            it.abandoned = outcome  # from here on its writes are refused
            for deadline in ("timeout", "begin"):
                it.deadlines.pop(deadline, None)
            runs = it.weight > 0
            if runs:
                it.stopped_at = now = self._clock.monotonic()
                it.deadlines |= {"kill": now + self._grace_s, "cancel": now + it.cancel_in}
            self._changed.notify_all()
        if not runs:
            self._end(it, outcome)
            return True
        spark = "its Spark jobs are cancelled, and it can write no more"
        what = spark if it.running is None else f"TaskStopped is raised in its code, {spark}"
        if it.launch.task.kind == "bash":
            what = "SIGTERM is sent to its command"
        level = "ERROR" if isinstance(outcome, m.Failed) else "WARNING"
        it.lines.add(level, f"{_reason(outcome)}: {what}")
        it.turns.stop_waiting()
        if it.running is not None:
            it.running.stop()
        it.jobs.cancel_jobs(self._spark.sparkContext)
        return True

    def _end(self, it: _Try, outcome: m.Outcome) -> None:
        """Frees the slots and hands them on; then reports the end, once: what Spark says of it takes some milliseconds, and some
        more while Spark is busy."""
        with it.event_lock:
            if it.ended:
                return
            try:
                outcome = it.abandoned or outcome
                is_logged = it.abandoned is not None or it.lines.has_error(_reason(outcome).removesuffix(" ..."))
                # Else its process has logged it.
                if isinstance(outcome, m.Failed | m.Lost) and not is_logged:
                    it.lines.add("ERROR", _reason(outcome))
                it.lines.close()
                self._flush(it)
                at = self._clock.now()
                self._free_slots(it)
                may_have_jobs = it.weight > 0 and (it.running is None or it.running.has_used_spark)
                spark_jobs = self._spark_status.jobs_of(it.jobs.group) if may_have_jobs else ()
                stages = self._spark_status.stages_of(spark_jobs, it.lines.masked)
                of_thread = (it.accesses.all(), it.check_results.all())
                tables, checks = of_thread if it.running is None else (it.running.tables, it.running.checks)
                checks = tuple(map(it.lines.check_without_secrets, checks))
                tables = tuple(map(it.lines.table_without_secrets, tables))
                self._on_event(m.TaskEnded(it.launch.key, outcome, at, spark_jobs, tables, checks, stages))
            finally:
                it.ended = True
                with self._changed:
                    self._tries.pop(it.launch.key, None)
                    self._load[it.launch.pool] -= 1
                    self._changed.notify_all()
                self._free_slots(it)

    def _free_slots(self, it: _Try) -> None:
        with self._changed:
            self._used[it.launch.pool] -= it.held
            it.held = 0
            it.deadlines.clear()  # its code has ended
        self._admit(it.launch.pool)

    def report(self, it: _Try, event: m.Event) -> None:
        with it.event_lock:
            if not it.ended:
                self._on_event(event)

    def _flush_soon(self, it: _Try) -> None:
        with self._changed:
            if not it.ended:
                it.deadlines["flush"] = self._clock.monotonic() + FLUSH_INTERVAL_S
                self._changed.notify_all()

    def _flush(self, it: _Try) -> None:
        with it.event_lock:
            if lines := it.lines.take():
                self.report(it, m.TaskLogged(lines))

    def _watch(self) -> None:
        try:
            while self._handle_deadlines():
                pass
        finally:
            with self._changed:
                self._watching = False
                self._changed.notify_all()

    def _handle_deadlines(self) -> bool:
        """Waits for the next one, or handles those that are due; False when the executor is closed."""
        with self._changed:
            if self._closed:
                return False
            now = self._clock.monotonic()
            watched = list(self._tries.values())
            soonest = min((at for it in watched for at in it.deadlines.values()), default=None)
            if soonest is None or soonest > now:
                self._changed.wait(None if soonest is None else soonest - now)
                return True

            def due(deadline: Deadline) -> list[_Try]:
                return [it for it in watched if it.deadlines.get(deadline, inf) <= now]

            timed_out, to_kill, overdue = due("timeout"), due("kill"), due("give_up")
            to_cancel, to_flush, to_begin = due("cancel"), due("flush"), due("begin")
            for it in to_flush:
                del it.deadlines["flush"]
            for it in to_kill:
                del it.deadlines["kill"]
                it.deadlines["give_up"] = now + END_TIMEOUT_S
            for it in to_cancel:
                it.cancel_in = min(it.cancel_in * 2, CANCEL_AGAIN_S[1])
                it.deadlines["cancel"] = now + it.cancel_in
        for it in to_begin:
            self._has_not_begun(it, now)
        for it in timed_out:
            self._abandon(it, m.Failed(f"timed out after {it.launch.task.timeout:g} s"))
        for it in to_kill:
            it.lines.add("WARNING", f"it has not ended {self._grace_s:g} s after it was stopped; it is killed now")
            if it.running is not None:
                it.running.kill()
        for it in to_cancel:
            it.jobs.cancel_jobs(self._spark.sparkContext)
        for it in to_flush:
            self._flush(it)
        for it in overdue:  # a thread that waits for Spark, or a process that the system keeps
            it.lines.add("WARNING", "it can't be ended; its slot is given to the next one")
            if it.running is not None:
                it.running.give_up()
            self._end(it, it.abandoned or m.PutBack("abandoned"))
        return True

    def _has_not_begun(self, it: _Try, now: float) -> None:
        """Ends the process that was given this try, which gets another one; then its fork server, if that does not answer either
        (something has stopped it). A process that has begun is left alone: what it does is the task's."""
        running = it.running
        with self._changed:
            it.deadlines.pop("begin", None)
            if it.abandoned is not None or running is None or running.has_begun or running.outcome is not None:
                return
            is_first = running.starts > it.ended_starts
            it.ended_starts = running.starts
            it.deadlines["begin"] = now + (END_TIMEOUT_S if is_first else BEGIN_TIMEOUT_S)
        if is_first:
            it.lines.add(
                "WARNING",
                f"its process has not begun within {BEGIN_TIMEOUT_S:g} s; it is ended, and another one started",
            )
            running.end_process()
        else:
            it.lines.add("WARNING", "its fork server does not answer; it is ended, with all that runs below it")
            running.give_up()


def _reason(outcome: m.Outcome) -> str:
    return outcome.error if isinstance(outcome, m.Failed) else getattr(outcome, "reason", "ended")


class _Listener:
    """What a task process reports goes to the executor."""

    def __init__(self, executor: Executor, it: _Try) -> None:
        self._executor, self._it = executor, it
        self.line, self.cut, self.write_refusal = it.lines.add, it.lines.cut, partial(executor.write_refusal, it)
        self.rows_before = partial(executor.rows_before, it)
        self.secret, self.span = partial(executor.secret, it), partial(executor.span, it)

    def started(self) -> None:
        self._executor.started(self._it)

    def ended(self, outcome: m.Outcome) -> None:
        self._executor.ended(self._it, outcome)
