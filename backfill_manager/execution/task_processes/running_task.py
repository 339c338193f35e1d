"""A try that is to run in a process, or does, and who learns of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backfill_manager.errors import AbandonedTry, LostLease
from backfill_manager.execution import messages as m
from backfill_manager.execution.output.table_turns import TableTurn, TurnHolder
from backfill_manager.execution.task_processes.jvm_gateway import JvmGateway
from backfill_manager.execution.task_processes.task_main import TaskOrder
from backfill_manager.processes.channel import Channel, MessageBuffer
from backfill_manager.processes.fork_server_client import ForkedProcess
from backfill_manager.processes.memory_cgroup import MemoryCgroup
from backfill_manager.processes.printed_lines import Piece, PipeLines


class Listener(Protocol):
    """Who learns of a try. `started` and `ended` may call the JVM, the others must not wait for anything."""

    def started(self) -> None: ...

    def line(self, level: str, message: str) -> None: ...

    def cut(self, text: str) -> int:
        """See `printed_lines.end_of_piece`."""

    def span(self, span: m.TaskSpan) -> None:
        """That its code has made."""

    def write_refusal(self) -> AbandonedTry | LostLease | None:
        """Why it must write nothing any more."""

    def rows_before(self, table: str, number: int, unit: str) -> Sequence[int]:
        """See `row_checks.RowsBefore`; called in a thread of its own, as it reads the state. `BackfillManagerError` if it
        can't."""

    def secret(self, name: str) -> str:
        """The value, which this try's log masks from then on; called in a thread of its own. `InvalidInput` and `NoSecret` as
        `Secrets.find`."""

    def ended(self, outcome: m.Outcome) -> None: ...


@dataclass(eq=False)
class RunningTask:
    """A try that is to run in a process, or does."""

    order: TaskOrder
    listener: Listener
    turns: TurnHolder
    process: TaskProcess | None = None
    starts: int = 0  # processes that were given it; more than one if one ended before it had begun
    has_begun: bool = False  # the task's own code runs, or did
    is_stopped: bool = False
    outcome: m.Outcome | None = None  # as its process reports it
    tables: tuple[m.AccessedTable, ...] = ()  # read and written, as its process reports them
    checks: tuple[m.CheckedWrite, ...] = ()  # likewise
    jobs_may_run: bool = True  # Spark jobs, when its process has ended; the process may know that there are none
    used_spark: bool | None = None  # as its process reports it
    held: dict[int, TableTurn] = field(default_factory=dict)  # by the number of their request
    cgroup: MemoryCgroup | None = None  # for its memory, where it has a limit and cgroups can be made

    @property
    def has_used_spark(self) -> bool:
        """It may have Spark jobs."""
        if self.used_spark is not None:
            return self.used_spark
        return self.process is not None and self.process.gateway is not None

    def stop(self) -> None:
        """Raise `TaskStopped` in its code. If it has no process yet, it gets none."""
        self.is_stopped = True
        self.turns.stop_waiting()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End its process and all that this has started."""
        self.is_stopped = True
        self._signal(signal.SIGKILL)

    def end_process(self) -> None:
        """Of one that has not begun: it is given another one."""
        self._signal(signal.SIGKILL)

    def give_up(self) -> None:
        """It could not be killed: end its fork server, which something has stopped."""
        if self.process is not None and self.process.forked is not None:
            self.process.forked.kill_server()

    def _signal(self, number: int) -> None:
        if self.process is not None:
            with self.process.lock:
                if self.process.task is self:  # else it serves another try
                    self.process.signal(number)


class TaskProcess:
    """A process, and the try that it runs once it has one."""

    def __init__(self, python: str | None, channel: Channel, outputs: Sequence[int]) -> None:
        self.python, self.channel = python, channel
        self.gateway: JvmGateway | None = None  # once it has asked for one
        self.forked: ForkedProcess | None = None  # set once it is asked for
        self.outputs = [PipeLines(end, self._cut) for end in outputs]
        self.messages = MessageBuffer()
        self.task: RunningTask | None = None
        self.lock = threading.Lock()  # guards the change from one task to another, for those who would signal it
        self.has_ended = False
        self.was_used = True  # since `_end_idle`
        self.problem = ""  # why it could not take an order; what it sent that is no message

    def signal(self, number: int = signal.SIGKILL) -> None:
        if self.forked is not None:
            self.forked.signal(number)

    def line(self, level: str, message: str) -> None:
        if self.task is not None:
            self.task.listener.line(level, message)

    def printed(self, output: PipeLines, pieces: Iterable[Piece]) -> None:
        level = "INFO" if output is self.outputs[0] else "WARNING"
        for text, _ in pieces:
            self.line(level, text)

    def _cut(self, text: str) -> int:
        return len(text) if self.task is None else self.task.listener.cut(text)
