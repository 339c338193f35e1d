"""Limits that a process gives itself: memory where there is no cgroup, priority, who goes first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting_process import Start, release

from backfill_manager.processes.limits import went_over

LIMITED = "from backfill_manager.processes import limits\nlimits.limit_memory({})\n"
REPORTED = "try: taken = b'x' * (300 << 20)\nexcept MemoryError: limits.lift_memory_limit(); print('too much')\n"
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these")


@ON_LINUX
def test_who_takes_more_gets_a_memory_error_and_its_neighbour_does_not(start: Start) -> None:
    greedy, neighbour = start(LIMITED.format(100) + REPORTED), start(LIMITED.format(400) + REPORTED)
    assert release(greedy) == (0, "too much\n", "")
    assert release(neighbour) == (0, "", "")


@ON_LINUX
def test_a_limit_that_is_there_already_is_not_raised(start: Start) -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        + LIMITED.format(4096)
        + "limits.lift_memory_limit()\nprint(resource.getrlimit(resource.RLIMIT_DATA))"
    )
    assert release(start(code)) == (0, f"({1 << 30}, {1 << 30})\n", "")


@ON_LINUX
def test_all_threads_are_nicer_and_no_process_leaves_a_core_file(start: Start) -> None:
    code = """
import os, resource, threading
from backfill_manager.processes import limits
before, end = os.getpriority(os.PRIO_PROCESS, 0), threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
limits.apply_in_child(None, 7)
print([os.getpriority(os.PRIO_PROCESS, one) - min(before + 7, 19) for one in (0, thread.native_id)])
print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY)
limits.apply_in_child(None, 19)
print(os.getpriority(os.PRIO_PROCESS, 0))
end.set()
"""
    code_, out, err = release(start(code))
    assert (code_, out, err) == (0, "[0, 0]\n(0, 0) True\n19\n", "")


@ON_LINUX
def test_it_goes_first_when_the_machine_has_no_memory_left(start: Start) -> None:
    code = (
        "from backfill_manager.processes import limits\nlimits.apply_in_child(None, 0)\n"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    assert int(release(start(code))[1]) == 1000


@ON_LINUX
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="a kernel without autogroups")
def test_nice_counts_against_other_sessions_too() -> None:
    """Two processes burn one core, each in a session of its own, as the manager and a task do: the nicer one gets little."""
    burn = """
import os, sys, time
from backfill_manager.processes import limits
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
limits.apply_in_child(None, int(sys.argv[1]))
print("ready", flush=True)
input()
until = time.monotonic() + 1.5
before = time.process_time()
while time.monotonic() < until:
    pass
print(time.process_time() - before)
"""
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", burn, nice], text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for nice in ("0", "10")
    ]  # fmt: skip
    for process in pair:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in pair:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    first, second = (float(process.communicate(timeout=60)[0]) for process in pair)
    assert first > 1.5 * second


def test_a_process_that_went_over_is_reported_with_its_limit() -> None:
    assert [went_over(megabytes) for megabytes in (512, 2048, 1536, 1500)] == [
        "went over its memory of 512 MB", "went over its memory of 2 GB", "went over its memory of 1.5 GB",
        "went over its memory of 1500 MB",
    ]  # fmt: skip
