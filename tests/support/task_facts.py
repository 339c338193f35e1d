"""What a task finds in its process, as another one could have changed it, and whether it finds it unchanged."""

from __future__ import annotations

import decimal
import gc
import json
import locale
import logging
import os
import random
import resource
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backfill_manager.execution.messages import Succeeded
from support.executor_fixture import PATIENCE, TaskRunner, a_launch

LEFT_BEHIND = "left_behind"  # in the name of everything that a test's task leaves behind
EACH_SIGNAL = sorted({*signal.Signals} - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


def facts() -> dict[str, Any]:
    umask = os.umask(0o022)
    os.umask(umask)
    return {
        "folder": os.getcwd(),
        "environment": sorted(os.environ),
        "umask": umask,
        "locale": locale.setlocale(locale.LC_ALL),
        "signal handlers": [str(getattr(signal.getsignal(number), "__name__", number)) for number in EACH_SIGNAL],
        "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "logging": [logging.getLogger().level, logging.root.manager.disable, len(logging.getLogger().handlers)],
        "warnings": [str(one) for one in warnings.filters],
        "path": [entry for entry in sys.path if LEFT_BEHIND in entry],
        "modules": [name for name in sys.modules if LEFT_BEHIND in name],
        "threads": [thread.name for thread in threading.enumerate() if LEFT_BEHIND in thread.name],
        "files": [line for line in open_files() if LEFT_BEHIND in line],
        "patched": [
            json.dumps([1]),
            print.__module__,
            threading.Thread.start.__qualname__,
            os._exit.__module__,
            Succeeded.__init__.__qualname__,
        ],
        "limits": [resource.getrlimit(what) for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_NPROC)],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "recursion": sys.getrecursionlimit(),
        "streams": [type(sys.stdout).__name__, type(sys.stderr).__name__],
        "precision": decimal.getcontext().prec,
        "sockets": socket.getdefaulttimeout(),
        "collects garbage": gc.isenabled(),
        "seed": random.getstate()[1][:2] == seeded_state()[1][:2],
    }  # fmt: skip


def seeded_state() -> Any:
    return random.Random(13).getstate()


def open_files() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # of the listing itself
            continue
    return found


def facts_of_a_task(ctx: Any) -> dict[str, Any]:
    """What a task finds in its process, and in Spark."""
    session = {"rows": ctx.spark.range(7).count(), "setting": ctx.spark.conf.get("spark.left.behind", "")}
    return {**facts(), **session, "tags": len(ctx.spark.sparkContext.getJobTags())}


@contextmanager
def nobody_else_notices(runner: TaskRunner) -> Iterator[None]:
    """What happens inside changes nothing for a task that runs beside it, for one after it, and for the manager."""
    own = facts()
    before = runner.run(a_launch("before", run_id="before"), facts_of_a_task)
    assert isinstance(before, Succeeded) and before.result_json is not None
    begun, may_go_on = runner.signal(), runner.signal()

    def stays(ctx: Any) -> dict[str, Any]:
        begun.set()
        assert may_go_on.wait(PATIENCE)
        return facts_of_a_task(ctx)

    free = runner.executor.free("backfill")
    beside = runner.start(a_launch("beside", run_id="beside"), stays)
    assert begun.wait(PATIENCE)
    yield
    may_go_on.set()
    assert found(runner.recorder.outcome(beside)) == found(before), "beside it"
    assert found(runner.run(a_launch("after", run_id="after"), facts_of_a_task)) == found(before), "after it"
    assert facts() == own, "in the manager"
    assert runner.executor.free("backfill") == free, "its slot is free"
    assert runner.executor.running() == set()


def found(outcome: Any) -> dict[str, Any]:
    assert isinstance(outcome, Succeeded) and outcome.result_json is not None, outcome
    result: dict[str, Any] = json.loads(outcome.result_json)
    return result


def wait_gone(pid: int) -> None:
    """Returns when there is no such process any more."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        assert poll.poll(PATIENCE * 1000), f"process {pid} runs on: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
    finally:
        os.close(process)
