"""What runs in a task process: forked by the fork server, waits for its task, runs it, and ends.

    launch ─► log lines, requests (a way into the JVM, a turn at a table, whether it may still write) ─► outcome ─► os._exit

Before its task has come, one that waits attaches itself to the JVM; else this happens when the task first needs Spark.

It serves one try, so whatever a task does to its process ends with it: modules, environment, folder, signal handlers, threads. It
ends by `os._exit`: nothing that the task has left behind (threads, exit handlers) can hold it up. A stop comes as SIGTERM, which
raises `TaskStopped` where the task is, so that its `finally` runs; after a while comes SIGKILL.

With `reuse_process` it waits for another try of the same version instead, if the last one succeeded and left the process as it
had found it, see `processes.process_state`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import itertools
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JError

from backfill_manager.errors import AbandonedTry, BackfillManagerError, InvalidInput
from backfill_manager.execution.lineage.table_access import TableAccesses
from backfill_manager.execution.messages import Skipped, Succeeded, TaskLaunch
from backfill_manager.execution.output.output_group_commit import Answer, checked
from backfill_manager.execution.output.row_checks import CheckResults
from backfill_manager.execution.output.staged_write import StagedWrite
from backfill_manager.execution.output.table_turns import Turn
from backfill_manager.execution.output.write_context import StateIdentity, WriteContext
from backfill_manager.execution.secrets import NoSecret, check_secret_name
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.execution.task_processes import task_spans
from backfill_manager.execution.task_processes.task_log import TaskLogger, shorten_middle
from backfill_manager.execution.task_processes.task_spark import NoSpark, TaskSpark
from backfill_manager.execution.tasks.run_task import run_python_task
from backfill_manager.masking import Known, hide, mask_text
from backfill_manager.processes.channel import Channel
from backfill_manager.processes.fork_server import HEAVY
from backfill_manager.processes.limits import apply_in_child
from backfill_manager.processes.process_state import difference_since, process_state

ATTACH_AFTER_S: Final = 0.2  # of waiting for a task
MAX_TRIES: Final = 200  # of one process with `reuse_process`; what they leave in memory ends with it
_exit = os._exit  # as it is before the task may put something else in its place


class TaskStopped(BaseException):
    """Raised in a task that is stopped (cancelled, timed out, the manager ends); not an Exception, so that a task's own
    `except Exception` does not catch it."""


@dataclass(frozen=True)
class TaskOrder:
    """All that a task process is given."""

    launch: TaskLaunch
    state: StateIdentity
    snapshots: Path | None
    jobs: SparkJobGroup
    commits_together: bool = False  # its writes may share a commit with those of others
    with_columns: bool = False  # what the columns of its writes are computed from is recorded
    traceparent: str | None = None  # of the span of this try; None: nobody traces

    @property
    def reuse_key(self) -> Hashable | None:
        """Tries with the same one may follow each other in a process; None: this one has a process of its own."""
        launch = self.launch
        is_alone = launch.task.kind not in ("python", "executor") or launch.memory_mb is not None or launch.preview_id
        if is_alone or not launch.task.reuse_process:
            return None
        return (launch.version, launch.nice)


def run(_: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """The entry of the process. Descriptors: channel, standard output and error."""
    channel_end, output, error = descriptors
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for standard, end in enumerate((nowhere, output, error)):
        os.dup2(end, standard)
        os.close(end)
    manager = _Manager(Channel(socket.socket(fileno=channel_end)))
    spark = TaskSpark(manager.request_gateway)
    order = manager.receive_order(spark)
    if order is None:
        _exit(0)
    faulthandler.enable(file=2)  # a crash in C code leaves the lines of Python that led there in the log
    logging.getLogger().addHandler(_LinesOfLogging(manager))
    logging.getLogger().setLevel(logging.INFO)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # its lines appear as they are printed
    apply_in_child(order.launch.memory_mb, order.launch.nice)
    manager.prepare_for_forks()
    tries = 1
    while _serve(order, spark, manager, may_wait=order.reuse_key is not None and tries < MAX_TRIES):
        order, tries = manager.receive_order(spark), tries + 1
        if order is None:
            break
    _exit(0)


def _serve(order: TaskOrder, spark: TaskSpark, manager: _Manager, *, may_wait: bool) -> bool:
    """Whether the process waits for another try now, and has said so. `may_wait`: it does if nothing speaks against it."""
    own = os.getpid()

    def stop(_number: int, _frame: object) -> None:
        if manager.stops_when_sent():
            return
        spark.drop_connection()
        raise TaskStopped("this try is stopped")

    signal.signal(signal.SIGTERM, stop)
    manager.stop = stop
    spark.enter(order.jobs)
    accesses, check_results = TableAccesses(with_columns=order.with_columns), CheckResults()
    if order.traceparent is not None:
        task_spans.set_up(order.traceparent, lambda span: manager.send({"span": span}))
    before: dict[str, Any] = {}  # as the version's code left it when it was loaded

    def remember_state() -> None:
        if may_wait:
            before.update(process_state(_own_threads(spark, manager)))

    manager.secrets = order.launch.secrets
    manager.send({"begun": True})
    this = WriteContext(
        order.launch, lambda: spark.session, TaskLogger.of(order.launch, manager.log), manager.refuse_if_abandoned,
        order.state, manager, manager.commit if order.commits_together else None, accesses, check_results,
        manager.rows_before, manager.secret,
    )  # fmt: skip
    outcome = run_python_task(this, manager.log, order.snapshots, remember_state)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getpid() != own:
        _exit(0)  # a fork that the task made, and that came out of it too; one outcome is enough
    with contextlib.suppress(Py4JError, OSError):  # Spark is gone, and they with it
        spark.stop_streams(manager.log)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the task has closed it, or put whatever it likes in its place
            stream.flush()
    loaded = [name for name in HEAVY if name in sys.modules]
    waits = may_wait and isinstance(outcome, Succeeded | Skipped) and not spark.jobs_may_run
    if waits and (changed := difference_since(before, _own_threads(spark, manager))):
        manager.log("INFO", f"its process is not reused: it has changed {changed}")
        waits = False
    about = {
        "outcome": type(outcome).__name__, "jobs_may_run": spark.jobs_may_run, "libraries": loaded, "waits": waits,
        "used_spark": spark.is_attached,
        "tables": [dataclasses.asdict(one) for one in accesses.all()],
        "checks": [dataclasses.asdict(one) for one in check_results.all()],
    }  # fmt: skip
    if waits:
        spark.leave()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a stop of the next try may come before its order is taken
    manager.send({**about, **dataclasses.asdict(outcome)})
    return waits


def _own_threads(spark: TaskSpark, manager: _Manager) -> tuple[threading.Thread, ...]:
    return (*spark.threads, *manager.threads)


class _Manager:
    """The manager, as the task process sees it. It gives out the turns at tables (`table_turns.Turns`)."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._process = channel, os.getpid()
        self._numbers = itertools.count(1)
        self._replies: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._orders: queue.SimpleQueue[TaskOrder] = queue.SimpleQueue()
        self._has_begun = False  # from then on a thread receives, if anything is asked
        self._lock = threading.Lock()
        self.threads: list[threading.Thread] = []  # that one, and no other
        self.secrets: tuple[Known, ...] = ()  # of the try's params: no part of one may be left where a line is cut
        self.stop: Callable[[int, FrameType | None], None] | None = None  # the handler of SIGTERM
        self._stop_waits = False

    def prepare_for_forks(self) -> None:
        """That the task makes: they may log."""
        self._channel.keep_whole_in_forks()
        os.register_at_fork(after_in_child=self._leave_stop_to_parent)

    def _leave_stop_to_parent(self) -> None:
        """In a fork, which `multiprocessing` ends by SIGTERM."""
        if self.stop is not None and signal.getsignal(signal.SIGTERM) is self.stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except OSError:  # the manager is gone, and nobody waits for this try
            _exit(1)
        if self._stop_waits and self.stop is not None and threading.current_thread() is threading.main_thread():
            self._stop_waits = False
            self.stop(signal.SIGTERM, None)

    def stops_when_sent(self) -> bool:
        """Whether a stop has come in the middle of a message; it is called again after that."""
        if self._channel.is_sending_here:
            self._stop_waits = True
            return True
        return False

    def receive_order(self, spark: TaskSpark) -> TaskOrder | None:
        """None when the manager needs this process no more. One that has to wait attaches itself to the JVM meanwhile."""
        if not self._has_begun and not self._channel.wait(ATTACH_AFTER_S):
            with contextlib.suppress(NoSpark, Py4JError, OSError):  # the task tries again, if it needs Spark
                spark.attach()
        while not self.threads and self._orders.empty():
            if not self._receive():
                return None
        self._has_begun = True
        return self._orders.get()

    def request_gateway(self) -> dict[str, Any]:
        """What `TaskSpark` needs to come into the JVM."""
        reply = self.request("gateway")
        if "broken" in reply:
            raise NoSpark(f"this process could not be attached to Spark: {reply['broken']}")
        return {**reply["gateway"], "connection": next(iter(reply["descriptors"]), None)}

    def log(self, level: str, message: str) -> None:
        self.send({"level": level, "line": shorten_middle(mask_text(message, self.secrets))})

    def request(self, what: str, **more: Any) -> dict[str, Any]:
        """Waits for the reply."""
        if os.getpid() != self._process:  # the reply would come to the task
            raise InvalidInput("A fork of a task's process can't write or read secrets; threads of the task can")
        number, replies = next(self._numbers), queue.SimpleQueue[dict[str, Any]]()
        self._replies[number] = replies
        try:
            self.send({"request": what, "number": number, **more})
            if self._has_begun:
                self._start_listening()
            while not self._has_begun and replies.empty():  # nobody else is here who could receive
                if not self._receive():
                    _exit(0)
            return replies.get()
        finally:
            self._replies.pop(number, None)

    def refuse_if_abandoned(self) -> None:
        if refused := self.request("may_write")["refused"]:
            checked(Answer(**refused))

    def commit(self, staged: StagedWrite) -> Answer:
        """See `WriteContext.commit_together`."""
        reply = self.request("commit", staged=dataclasses.asdict(staged))
        return checked(Answer(**reply["answer"]))

    def try_acquire(self, identity: str, *, shared: bool = False) -> Turn | None:
        return self._turn(identity, shared=shared, only_if_free=True)

    def acquire(self, identity: str, *, shared: bool = False) -> Turn:
        turn = self._turn(identity, shared=shared, only_if_free=False)
        assert turn is not None
        return turn

    def _turn(self, identity: str, **how: bool) -> Turn | None:
        reply = self.request("turn", table=identity, **how)
        if reply.get("abandoned"):
            raise AbandonedTry(reply["abandoned"])
        if not reply["has_turn"]:
            return None
        turn = contextlib.ExitStack()
        turn.callback(self.send, {"release": reply["number"]})
        return turn

    def rows_before(self, table: str, number: int, unit: str) -> Sequence[int]:
        """See `row_checks.RowsBefore`."""
        reply = self.request("rows_before", table=table, count=number, unit=unit)
        if "broken" in reply:
            raise BackfillManagerError(reply["broken"])
        rows: list[int] = reply["found"]
        return rows

    def secret(self, name: str) -> str:
        """The value, which this process masks from then on, as the manager does."""
        reply = self.request("secret", name=check_secret_name(name))
        if "invalid" in reply:
            raise InvalidInput(reply["invalid"])
        if "broken" in reply:
            raise NoSecret(reply["broken"])
        value: str = reply["found"]
        hide(value)
        return value

    def _start_listening(self) -> None:
        with self._lock:
            if not self.threads:
                self.threads.append(threading.Thread(target=self._listen, name="bfm replies", daemon=True))
                self.threads[0].start()

    def _listen(self) -> None:
        while self._receive():
            pass
        _exit(1)

    def _receive(self) -> bool:
        """Takes the next message; False when the manager is gone."""
        received = self._channel.receive()
        if received is None:
            return False
        message, descriptors = received
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if "order" in message:
            self._orders.put(pickle.loads(self._channel.receive_attachment()))
        elif (waiting := self._replies.get(message["number"])) is not None:
            waiting.put(message | {"descriptors": descriptors})
        return True


class _LinesOfLogging(logging.Handler):
    """What loggers let through beside `ctx.log`: of the bundle's modules, and of libraries."""

    def __init__(self, manager: _Manager) -> None:
        super().__init__()
        self._manager = manager

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("py4j"):
            self._manager.log(record.levelname, f"{record.name}: {self.format(record)}")


CALL: Final = f"{__name__}:{run.__name__}"
