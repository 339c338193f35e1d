"""What a try has come to whose process has ended without saying so, or could not be started."""

from __future__ import annotations

import signal

from backfill_manager.execution import messages as m
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.task_processes.running_task import TaskProcess
from backfill_manager.processes.fork_server_client import NoProcess


def outcome_without_message(process: TaskProcess) -> m.Outcome:
    forked = process.forked
    if forked is None:
        return m.Postponed("its process could not be started")
    if forked.refused:
        return m.Postponed(forked.refused)
    if forked.code is None:
        code = forked.code_of_server if forked.pid is None else 0
        return _of_broken(process.python, code) or m.Lost("the fork server of its process ended while it ran")
    if process.problem:
        return m.Failed(process.problem)
    return m.Failed(ending(forked.code))


def outcome_of_no_process(python: str | None, error: NoProcess | OSError) -> m.Outcome:
    """When none could be started. What the system has too few of comes back; an interpreter of a bundle does not by itself."""
    if isinstance(error, NoProcess):
        if python is not None and error.is_of_interpreter:
            return m.Failed(one_line(error))
        if (failed := _of_broken(python, error.code_of_server)) is not None:
            return failed
    return m.Postponed(one_line(error))


def _of_broken(python: str | None, code: int) -> m.Failed | None:
    """For an interpreter of a bundle that has ended with this code in place of starting a process; None for another end."""
    if python is None or not code:
        return None
    why = "its packages may have changed or be gone"
    return m.Failed(f"{python} could not start its process (exit code {code}): {why}")


def ending(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"its process ended with exit code {code} before the task had"
    names = {int(number): number.name for number in signal.Signals}
    return f"its process ended with signal {-code} ({names.get(-code, 'unknown')})"
