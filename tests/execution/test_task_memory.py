"""What a task's process may take, of memory and processor. A try that takes too much fails with that, and no other does."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest
from support.executor_fixture import TaskRunner, a_launch
from support.task_facts import nobody_else_notices

from backfill_manager.execution.messages import Failed, Succeeded, TaskLaunch
from backfill_manager.processes import memory_cgroup

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="there are cgroups, and limits that hold, on Linux only"
)

LIMIT_MB = 300
TOO_MUCH = f"went over its memory of {LIMIT_MB} MB"


@pytest.fixture(params=["cgroups", "no cgroups"])
def limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TaskLaunch:
    """The start of a task with a limit, with cgroups and as on a machine that has none."""
    if request.param == "no cgroups":
        monkeypatch.setattr(memory_cgroup, "_found", [None])
    elif memory_cgroup._usable_place() is None:
        pytest.skip("no cgroup can be made here")
    return dataclasses.replace(a_launch(), memory_mb=LIMIT_MB)


def wants_10_gb_at_once(ctx: Any) -> None:
    print("I begin")
    b"x" * (10 << 30)


def wants_more_and_more(ctx: Any) -> None:
    print("I begin")
    kept = []
    for _ in range(10_000):
        kept.append(b"x" * (1 << 20))


@pytest.mark.parametrize("function", [wants_10_gb_at_once, wants_more_and_more], ids=["at once", "bit by bit"])
def test_a_task_that_takes_more_than_its_memory_fails_with_that(
    runner: TaskRunner, limited: TaskLaunch, function: Any
) -> None:
    with nobody_else_notices(runner):
        outcome = runner.run(limited, function)
        assert outcome == Failed(TOO_MUCH)
        assert runner.log_of(limited).startswith("I begin")


def test_what_its_children_take_counts(runner: TaskRunner, limited: TaskLaunch) -> None:
    def starts(ctx: Any) -> int:
        code = "b'x' * (2 << 30)"
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode

    with nobody_else_notices(runner):
        outcome = runner.run(limited, starts)
        assert outcome == Failed(TOO_MUCH) or outcome in (Succeeded("1"), Succeeded("-9")), outcome


def test_a_task_that_keeps_within_its_memory_succeeds(runner: TaskRunner, limited: TaskLaunch) -> None:
    def takes_half(ctx: Any) -> int:
        kept = b"x" * (LIMIT_MB // 2 << 20)
        return len(kept) and ctx.spark.range(7).count()

    assert runner.run(limited, takes_half) == Succeeded("7")


def test_a_task_is_nicer_than_the_manager_by_what_is_asked_for(runner: TaskRunner) -> None:
    def looks(ctx: Any) -> list[int]:
        child = subprocess.run(["nice"], capture_output=True, text=True, check=True)
        return [os.getpriority(os.PRIO_PROCESS, 0), int(child.stdout)]

    with nobody_else_notices(runner):
        plain = runner.run(a_launch(), looks)
        nicer = runner.run(dataclasses.replace(a_launch("nicer"), nice=3), looks)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert plain == Succeeded(f"[{own}, {own}]")
        assert nicer == Succeeded(f"[{own + 3}, {own + 3}]")
