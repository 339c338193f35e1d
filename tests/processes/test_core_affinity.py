"""The manager stays on one core while all are busy, and what it starts does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backfill_manager.processes.core_affinity import CoreAffinity, CoreTimes, core_times

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="Linux only")]

SCRIPT = """
import json, os, sys, threading
from pathlib import Path
from backfill_manager.processes.core_affinity import CoreAffinity
from backfill_manager.processes.fork_server_client import ForkServerProcess

allowed = sorted(os.sched_getaffinity(0))
if len(allowed) < 2:
    sys.exit(5)
stat, passed = Path(sys.argv[1]), dict.fromkeys(allowed, (0, 0, 0, 0))

def passes(cores):  # as /proc/stat counts: user, nice, system, idle
    for core, times in cores.items():
        passed[core] = tuple(map(sum, zip(passed[core], times)))
    lines = [f"cpu{core} {' '.join(map(str, times))} 0 0 0 0 0 0" for core, times in passed.items()]
    stat.write_text("cpu  1 1 1 1 0 0 0 0 0 0\\n" + "\\n".join(lines) + "\\nctxt 5\\n")
    affinity.run_once()
    return [sorted(os.sched_getaffinity(thread)) for thread in (0, other.native_id)]

stop = threading.Event()
other = threading.Thread(target=stop.wait)
other.start()
affinity = CoreAffinity(stat)
last = allowed[-1]
busy = {core: (5 if core == last else 60, 100, 0, 0) for core in allowed}  # all have nice tasks, the last one little else
seen = [passes({core: (0, 0, 0, 100) for core in allowed})]
seen.append(passes({core: (0, 0, 0, 100) for core in allowed}))
seen.append(passes(busy))
server = ForkServerProcess()
seen.append([sorted(os.sched_getaffinity(server.pid))])
server.stop()
seen.append(passes(busy))
seen.append(passes({core: (0, 0, 0, 100) for core in allowed}))
passes(busy)
affinity.stop()
seen.append([sorted(os.sched_getaffinity(thread)) for thread in (0, other.native_id)])
stop.set()
print(json.dumps([allowed, last, seen]))
"""


def test_threads_share_a_core_while_all_are_busy_and_processes_that_it_starts_may_use_all(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "stat")], capture_output=True, text=True, timeout=60
    )
    if done.returncode == 5:
        pytest.skip("one core")
    assert done.returncode == 0, done.stderr
    allowed, last, (first, idle, busy, fork_server, still_busy, idle_again, stopped) = json.loads(done.stdout)
    everywhere, kept = [allowed, allowed], [[last], [last]]
    assert (first, idle) == (everywhere, everywhere)
    assert (busy, still_busy) == (kept, kept), "the core where least is done that does not give way"
    assert fork_server == [allowed]
    assert (idle_again, stopped) == (everywhere, everywhere)


def test_what_the_kernel_counts_for_each_core() -> None:
    stat = "cpu  10 20 30 40 5 1 2 3 7 0\ncpu0 6 12 20 30 5 1 1 2 4 0\ncpu11 4 8 10 10 0 0 1 1 3 0\nintr 1 2\nctxt 7\n"
    assert core_times(stat) == {0: CoreTimes(30, 35, 77), 11: CoreTimes(16, 10, 34)}


def test_where_the_times_of_cores_can_not_be_read_the_manager_goes_on_without(tmp_path: Path) -> None:
    assert CoreAffinity(tmp_path / "missing").run_once() is None
