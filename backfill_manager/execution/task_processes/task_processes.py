"""The manager's end of task processes: starts them, keeps some warm, reads what they say and print, and learns how each ended.

    start(order, listener) ─► a warm process, or a new one ─► lines, turns at tables, outcome ─► it has ended

A process whose task allows it (`reuse_process`) waits for another try of the same version when one has succeeded.

The starter's thread makes calls to the JVM (a gateway for each process) and hands out orders; the reader's reads what processes
send and print; a few threads report ends, for which Spark is asked what the try did. The end of a try is the end of its process,
and of all that the process had started, unless that waits for another one.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import queue
import selectors
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pydantic import TypeAdapter

from backfill_manager.clock import Clock
from backfill_manager.dags.bundles.environment import interpreter_of_version
from backfill_manager.errors import AbandonedTry, BackfillManagerError, InvalidInput, LostLease, StateError
from backfill_manager.execution import messages as m
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.output_group_commit import Answer, GroupCommits
from backfill_manager.execution.output.staged_write import StagedWrite
from backfill_manager.execution.output.table_turns import TurnHolder
from backfill_manager.execution.task_processes.jvm_gateway import JvmGateways
from backfill_manager.execution.task_processes.process_ends import outcome_of_no_process, outcome_without_message
from backfill_manager.execution.task_processes.running_task import Listener, RunningTask, TaskProcess
from backfill_manager.execution.task_processes.task_main import CALL, TaskOrder
from backfill_manager.processes.channel import Channel
from backfill_manager.processes.fork_server import HEAVY
from backfill_manager.processes.fork_server_client import ForkServers, NoProcess
from backfill_manager.processes.limits import went_over
from backfill_manager.processes.memory_cgroup import MemoryCgroup
from backfill_manager.processes.printed_lines import PipeLines
from backfill_manager.service import FailureHandler, Pass, ServicePool, ServiceThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MAX_WARM: Final = 4  # idle processes of one interpreter; as many as tasks run, at most so many
IDLE_S: Final = 60.0  # after which idle ones end that are not needed
LONG_START_S: Final = 120.0  # nothing else is started meanwhile
MAX_START_S: Final = 7200.0
END_TIMEOUT_S: Final = 10.0  # for a process that was killed to be gone
ENDS_AT_ONCE: Final = 4  # that are reported, each while it waits for Spark
MAX_STARTS: Final = 3  # of one try, in processes that end before it has begun
_NO_MESSAGE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
_OUTCOMES: Final[dict[str, TypeAdapter[m.Outcome]]] = {
    kind.__name__: TypeAdapter(kind) for kind in (m.Succeeded, m.Failed, m.Skipped, m.Postponed)
}
_STAGED: Final = TypeAdapter(StagedWrite)
_TABLES: Final = TypeAdapter(tuple[m.AccessedTable, ...])
_CHECKS: Final = TypeAdapter(tuple[m.CheckedWrite, ...])
_SPAN: Final = TypeAdapter(m.TaskSpan)


def _nothing() -> None:
    pass


class TaskProcesses:
    """All task processes of an executor."""

    def __init__(
        self, spark: SparkSession, servers: ForkServers, clock: Clock, *, name: str, commits: GroupCommits,
        on_failure: FailureHandler | None = None,
    ) -> None:  # fmt: skip
        self._servers, self._gateways, self._clock, self._commits = servers, JvmGateways(spark), clock, commits
        self._lock = threading.Lock()  # guards which process has which task
        self._processes: set[TaskProcess] = set()  # that have not ended
        self._warm: dict[str | None, list[TaskProcess]] = defaultdict(list)  # by interpreter; of the starter
        self._used: set[str | None] = set()  # interpreters, since `_end_idle`; of the starter, too
        # Interpreters of which no process could be started; only tasks try it again.
        self._unable: set[str | None] = set()
        self._waiting: dict[
            Hashable, list[TaskProcess]
        ] = {}  # for another try, by its `reuse_key`; of the starter, too
        self._most_running = 0  # tasks at once, since `_end_idle`; of the starter, too
        # That tasks have imported, by interpreter.
        self._libraries: dict[str | None, frozenset[str]] = defaultdict(frozenset)
        self._jvm_work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # for the reader
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._wake_lock, self._is_closed = threading.Lock(), False
        # of the state, or secrets: it may take a while
        self._reads = ServicePool(f"{name}, what tasks ask for", 1, on_failure=on_failure)
        self._ends = ServicePool(f"{name}, ends of tasks", ENDS_AT_ONCE, on_failure=on_failure)
        self._starting = Pass(f"starter of {name}", LONG_START_S, MAX_START_S)
        self._starter = ServiceThread(f"starter of {name}", self._start_tasks, on_failure=on_failure)
        self._reader = ServiceThread(f"reader of {name}", self._read_all, on_failure=on_failure)
        self._starter.start()
        self._reader.start()

    @property
    def passes(self) -> list[Pass]:
        return [self._starting, *self._reads.passes, *self._ends.passes]

    def prepare(self) -> None:
        """Have a warm process of our interpreter before the first task comes."""
        self._jvm_work.put(partial(self._warm.setdefault, None, []))

    def start(self, order: TaskOrder, listener: Listener, turns: TurnHolder) -> RunningTask:
        """Returns at once. Its end is reported to the listener, unless this is closed before."""
        task = RunningTask(order, listener, turns)
        self._jvm_work.put(partial(self._start, task))
        return task

    def close(self) -> None:
        """Ends all processes. Of tries that still run no end is reported."""
        self._jvm_work.put(None)
        self._starter.join()
        with self._lock:
            left = list(self._processes)
            for process in left:
                process.task = None
        for process in left:
            process.signal()
        for process in left:
            if process.forked is not None:
                process.forked.wait(END_TIMEOUT_S)
        self._post(self._stop_reading)
        self._reader.join()
        self._handle_events()
        while not self._jvm_work.empty():  # gateways to close
            if (work := self._jvm_work.get()) is not None:
                work()
        self._reads.close(cancel=True)
        self._ends.close()
        self._gateways.close()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    # -- the starter's thread: what calls the JVM ------------------------------------------------------------------------
    def _start_tasks(self) -> None:
        idle_at = self._clock.monotonic() + IDLE_S
        while True:
            try:
                work = self._jvm_work.get(timeout=max(0.0, idle_at - self._clock.monotonic()))
            except queue.Empty:
                work = _nothing
            if work is None:
                return
            with self._starting.at_work():
                work()
            if self._clock.monotonic() >= idle_at:
                self._end_idle()
                idle_at = self._clock.monotonic() + IDLE_S
            if self._jvm_work.empty():
                self._keep_warm()

    def _start(self, task: RunningTask) -> None:
        try:
            python = interpreter_of_version(task.order.launch.version)
            self._used.add(python)
            self._unable.discard(python)
            while not (task.is_stopped or self._is_closed):
                process = self._free(task, python)
                with self._lock:
                    if process.has_ended:
                        continue
                    process.task, task.process = task, process
                self._most_running = max(self._most_running, self._running().total())
                break
            else:
                task.listener.ended(m.Postponed("it was stopped before it had begun"))
                return
        except StateError as error:  # it is gone
            task.listener.ended(m.Failed(one_line(error)))
            return
        except (NoProcess, OSError) as error:
            task.listener.ended(outcome_of_no_process(python, error))
            return
        task.starts += 1
        self._limit_memory(task, process)
        if task.starts == 1:
            task.listener.started()
        if task.is_stopped:  # before it could learn it; from now on SIGTERM reaches its code
            process.signal()
        with suppress(OSError):  # it has ended: the reader learns how
            process.channel.send({"order": True}, attachment=pickle.dumps(task.order))

    def _free(self, task: RunningTask, python: str | None) -> TaskProcess:
        """One that has served a try like this one (the last one first, as others may end then), a warm one, or a new one."""
        if waiting := self._waiting.get(task.order.reuse_key):
            return waiting.pop()
        warm = self._warm[python]
        return warm.pop(0) if warm else self._new(python)

    def _keep_waiting(self, process: TaskProcess, key: Hashable) -> None:
        """It waits for another try; of all that do, no more than tasks have run at once lately, or may be kept warm. (Not than
        run now: in chains all may end between two ticks.)"""
        process.was_used = True
        self._waiting.setdefault(key, []).append(process)
        number = sum(map(len, self._waiting.values()))
        for others in list(self._waiting.values()) if number > max(MAX_WARM, self._most_running) else ():
            if others and number > 1:
                others.pop(0).signal()
                break

    def _limit_memory(self, task: RunningTask, process: TaskProcess) -> None:
        """Of the process and all that it starts. Without a cgroup it limits itself."""
        launch, forked = task.order.launch, process.forked
        if launch.memory_mb is None or forked is None or not forked.wait_begun(END_TIMEOUT_S) or forked.pid is None:
            return
        if task.cgroup is not None:  # of a process that ended before the task had begun
            task.cgroup.remove()
            task.cgroup = None
        cgroup = MemoryCgroup.create(launch.ti.task_id, launch.memory_mb)
        if cgroup is not None and cgroup.add(forked.pid):
            task.cgroup = cgroup
        elif cgroup is not None:
            cgroup.remove()

    def _new(self, python: str | None) -> TaskProcess:
        with ExitStack() as opened:  # closes what was opened when descriptors run out half way
            ours, theirs = socket.socketpair()
            opened.callback(ours.close)
            opened.callback(theirs.close)
            outputs = list[tuple[int, int]]()
            for _ in range(2):
                outputs.append(os.pipe())
                for end in outputs[-1]:
                    opened.callback(os.close, end)
            opened.pop_all()
        ends = [theirs.fileno(), *(end for _, end in outputs)]
        process = TaskProcess(python, Channel(ours), [output for output, _ in outputs])
        with self._lock:
            self._processes.add(process)
        self._post(partial(self._add, process))
        try:
            preload, on_end = ("pyspark", *sorted(self._libraries[python])), partial(self._end, process)
            process.forked = self._servers.get(python).fork(
                CALL, {}, ends, name="bfm task", preload=preload, on_end=partial(self._post, on_end)
            )
        except BaseException:
            self._post(partial(self._end, process))
            raise
        finally:
            theirs.close()
            for _, end in outputs:
                os.close(end)
        return process

    def _open_gateway(self, process: TaskProcess, number: int) -> None:
        try:
            is_first = process.gateway is None
            if process.gateway is None:
                process.gateway = self._gateways.open()
        except (OSError, Py4JError) as error:
            self._reply(process, {"number": number, "broken": one_line(error)})
        else:
            along = [process.gateway.connection.fileno()] if is_first else []
            self._reply(process, {"number": number, "gateway": self._gateways.job(process.gateway)}, along)

    def _release_gateway(self, process: TaskProcess, *, reusable: bool) -> None:
        if process.gateway is not None:
            self._gateways.release(process.gateway, reusable=reusable)

    def _running(self) -> Counter[str | None]:
        """How many have a task, by interpreter."""
        with self._lock:
            return Counter(process.python for process in self._processes if process.task is not None)

    def _keep_warm(self) -> None:
        """As many idle ones as run, at most `MAX_WARM`, and one while none runs."""
        running = self._running()
        for python in {*running, *self._warm} - self._unable:
            wanted = min(MAX_WARM, max(running[python], 1))
            warm = self._warm[python] = [process for process in self._warm[python] if not process.has_ended]
            if len(warm) < wanted and self._jvm_work.empty():
                try:
                    warm.append(self._new(python))
                except (NoProcess, OSError):  # the next task reports it
                    self._unable.add(python)
                    continue
                if len(warm) < wanted:
                    self._jvm_work.put(_nothing)  # once more, after what has come meanwhile

    def _end_idle(self) -> None:
        """Processes beyond what `_keep_warm` wants. Of another interpreter that has not been used since the last time, all, and
        its server: a bundle's environment of last month is needed no more."""
        running = self._running()
        for python, warm in list(self._warm.items()):
            is_needed = python is None or python in running or python in self._used
            wanted = min(MAX_WARM, max(running[python], 1)) if is_needed else 0
            while len(warm) > wanted:
                warm.pop().signal()
            if not is_needed:
                del self._warm[python]
                self._servers.end(python)
        self._used.clear()
        self._most_running = running.total()
        for key, waiting in list(self._waiting.items()):
            for process in waiting:
                if not process.was_used:
                    process.signal()
                process.was_used = False
            self._waiting[key] = [process for process in waiting if not process.has_ended]
            if not self._waiting[key]:
                del self._waiting[key]

    # -- the reader's thread: everything else ----------------------------------------------------------------------------
    def _post(self, event: Callable[[], None]) -> None:
        self._events.put(event)
        with self._wake_lock, suppress(BlockingIOError):  # then it will wake anyway
            if not self._is_closed:
                os.write(self._wake, b"x")

    def _stop_reading(self) -> None:
        with self._wake_lock:
            self._is_closed = True

    def _read_all(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._read(*key.data)
            with suppress(BlockingIOError):
                while os.read(self._woken, 4096):
                    pass
            self._handle_events()

    def _handle_events(self) -> None:
        while not self._events.empty():
            self._events.get()()

    def _add(self, process: TaskProcess) -> None:
        if process in self._processes:
            self._selector.register(process.channel, selectors.EVENT_READ, (process, None))
            for output in process.outputs:
                self._selector.register(output.end, selectors.EVENT_READ, (process, output))

    def _read(self, process: TaskProcess, output: PipeLines | None) -> None:
        if output is None:
            if not self._read_messages(process):
                self._selector.unregister(process.channel)
            return
        process.printed(output, output.read() or ())
        if output.is_closed:
            self._selector.unregister(output.end)

    def _read_messages(self, process: TaskProcess) -> bool:
        """False at the end of its channel."""
        received = process.channel.receive_some()
        if not received:
            return received is None
        try:
            for message in process.messages.feed(received):
                self._handle(process, message)
        except _NO_MESSAGE as error:  # the task may write to any descriptor of its process
            sent = f"it has sent what is no message ({one_line(error)})"
            process.problem = f"{sent}; does it write to files it did not open?"
            process.signal()
            return False
        return True

    def _handle(self, process: TaskProcess, message: dict[str, Any]) -> None:
        task = process.task
        if message.get("request") == "gateway":
            self._jvm_work.put(partial(self._open_gateway, process, int(message["number"])))
        elif task is None:
            return
        elif "begun" in message:
            task.has_begun = True
        elif "line" in message:
            process.line(str(message["level"]), str(message["line"]))
        elif "span" in message:
            task.listener.span(_SPAN.validate_python(message["span"]))
        elif "request" in message:
            self._answer(process, task, message)
        elif "release" in message:
            turn = task.held.pop(message["release"], None)
            if turn is not None:
                turn.release()
        else:
            kind = message.pop("outcome")
            task.jobs_may_run = bool(message.pop("jobs_may_run"))
            self._libraries[process.python] |= set(HEAVY).intersection(message.pop("libraries"))
            task.tables = _TABLES.validate_python(message.pop("tables"))
            task.checks = _CHECKS.validate_python(message.pop("checks"))
            waits, task.used_spark = bool(message.pop("waits")), bool(message.pop("used_spark"))
            task.outcome = _OUTCOMES[kind].validate_python(message)
            if waits:
                self._end_try(process, task)

    def _end_try(self, process: TaskProcess, task: RunningTask) -> None:
        """The try has ended, and its process waits for another one."""
        self._drain(process)
        with process.lock:
            if task.is_stopped:  # a signal may be on its way
                process.signal()
                return
            process.task = None
        task.turns.release_all()
        self._jvm_work.put(partial(self._keep_waiting, process, task.order.reuse_key))
        assert task.outcome is not None
        self._ends.call(_report_end, task, task.outcome)

    def _drain(self, process: TaskProcess) -> None:
        """What it has printed, and what is left of its last line."""
        for output in process.outputs:
            process.printed(output, output.drain())

    def _answer(self, process: TaskProcess, task: RunningTask, request: dict[str, Any]) -> None:
        number = int(request["number"])
        if request["request"] == "may_write":
            refusal = task.listener.write_refusal()
            refused = None if refusal is None else dataclasses.asdict(Answer.refused(refusal))
            self._reply(process, {"number": number, "refused": refused})
            return
        if request["request"] == "commit":
            self._commit(process, task, number, request["staged"])
            return
        if request["request"] == "rows_before":
            of = (str(request["table"]), int(request["count"]), str(request["unit"]))
            self._reads.call(self._answer_read, process, number, partial(task.listener.rows_before, *of))
            return
        if request["request"] == "secret":
            self._reads.call(self._answer_read, process, number, partial(task.listener.secret, str(request["name"])))
            return
        table, shared = str(request["table"]), bool(request["shared"])
        try:
            if request["only_if_free"]:
                turn = task.turns.try_acquire(table, shared=shared)
                if turn is not None:
                    task.held[number] = turn
                self._reply(process, {"number": number, "has_turn": turn is not None})
            else:
                has_come = partial(self._reply, process, {"number": number, "has_turn": True})
                task.held[number] = task.turns.request(table, shared=shared, on_turn=has_come)
        except AbandonedTry as error:
            self._reply(process, {"number": number, "abandoned": str(error)})

    def _commit(self, process: TaskProcess, task: RunningTask, number: int, staged: dict[str, Any]) -> None:
        def refusal() -> AbandonedTry | LostLease | None:
            return AbandonedTry("its process has ended") if process.has_ended else task.listener.write_refusal()

        def reply(answer: Answer) -> None:
            self._reply(process, {"number": number, "answer": dataclasses.asdict(answer)})

        self._commits.submit(_STAGED.validate_python(staged), refusal, reply)

    def _answer_read(self, process: TaskProcess, number: int, read: Callable[[], str | Sequence[int]]) -> None:
        try:
            reply = {"found": read()}
        except InvalidInput as error:
            reply = {"invalid": str(error)}
        except BackfillManagerError as error:
            reply = {"broken": str(error)}
        self._reply(process, {"number": number, **reply})

    def _reply(self, process: TaskProcess, reply: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        if not process.channel.try_send(reply, descriptors):
            process.signal()

    def _end(self, process: TaskProcess) -> None:
        """It has ended, and so has everything that it had started."""
        for end in (process.channel.fileno(), *(output.end for output in process.outputs)):
            with suppress(KeyError):
                self._selector.unregister(end)
        while not process.problem and process.channel.wait(0) and self._read_messages(process):
            pass
        if process.forked is not None and process.forked.pid is None:
            self._unable.add(process.python)
        with self._lock:
            process.has_ended = True
            self._processes.discard(process)
            task = process.task
        self._drain(process)
        for output in process.outputs:
            os.close(output.end)
        process.channel.close()
        ended_by_itself = process.forked is not None and process.forked.code == 0
        is_at_rest = task is None or (task.outcome is not None and not task.jobs_may_run)
        self._jvm_work.put(partial(self._release_gateway, process, reusable=ended_by_itself and is_at_rest))
        if task is None:
            return
        if not (task.has_begun or task.outcome or task.is_stopped) and task.starts < MAX_STARTS:
            # none of its code has run, and it holds no turn: as if it were given its first process
            self._jvm_work.put(partial(self._start, task))
        else:
            task.turns.release_all()
            self._ends.call(_report_end, task, task.outcome or outcome_without_message(process))


def _report_end(task: RunningTask, outcome: m.Outcome) -> None:
    memory_mb = task.order.launch.memory_mb
    if task.cgroup is not None:
        task.cgroup.remove()
        if memory_mb is not None and isinstance(outcome, m.Failed) and task.cgroup.went_over():
            outcome = m.Failed(went_over(memory_mb))
    task.listener.ended(outcome)
