"""A try's memory, its children's included, is limited by a cgroup: real processes in real cgroups."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.of_another_user import NOBODY, ONLY_AS_ROOT, without_leave_to_kill
from support.waiting_process import Start, release

from backfill_manager.process_info import is_process_alive
from backfill_manager.processes import memory_cgroup
from backfill_manager.processes.limits import CGROUP_PREFIX
from backfill_manager.processes.memory_cgroup import MemoryCgroup

pytestmark = pytest.mark.skipif(
    memory_cgroup._usable_place() is None,
    reason="no cgroup can be made here (no root with cgroup v1, no delegated cgroup v2)",
)
TAKE = "taken = b'x' * ({} << 20); print('has it')"
IN_A_CHILD = "import subprocess, sys; raise SystemExit(subprocess.call([sys.executable, '-c', {!r}]))"


@pytest.fixture
def small() -> Iterator[MemoryCgroup]:
    cgroup = MemoryCgroup.create("flights/2013-01-01 clean", 100)
    assert cgroup is not None
    yield cgroup
    cgroup.remove()
    assert not cgroup._folder.exists()


def test_who_takes_more_is_ended_and_its_neighbour_is_not(start: Start, small: MemoryCgroup) -> None:
    greedy, modest, outside = start(TAKE.format(300)), start(TAKE.format(10)), start(TAKE.format(300))
    other = MemoryCgroup.create("other", 100)
    assert other is not None
    assert small.add(greedy.pid) and other.add(modest.pid)

    assert release(greedy)[0] == -signal.SIGKILL
    assert small.went_over()
    assert release(modest)[:2] == release(outside)[:2] == (0, "has it\n")
    assert not other.went_over()
    other.remove()
    small.remove()
    assert small.went_over(), "it is still known after the end"


def test_children_count(start: Start, small: MemoryCgroup) -> None:
    parent = start(IN_A_CHILD.format(TAKE.format(300)))
    assert small.add(parent.pid)
    assert release(parent)[0] != 0
    assert small.went_over()


def test_children_and_their_parent_count_together(start: Start, small: MemoryCgroup) -> None:
    """Each of them alone would stay below the limit."""
    child = f"{TAKE.format(60)}; input()"
    family = start(f"{TAKE.format(60)}; {IN_A_CHILD.format(child)}")
    assert small.add(family.pid)
    code, _, _ = release(family)
    assert code != 0
    assert small.went_over()


def test_what_is_left_in_it_is_ended_when_it_is_removed(start: Start, small: MemoryCgroup) -> None:
    """A child in a session of its own, whose parent has ended."""
    sleeps = "import time; time.sleep(600)"
    parent = start(
        f"import subprocess, sys\nprint(subprocess.Popen([sys.executable, '-c', {sleeps!r}], start_new_session=True, "
        "stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    assert small.add(parent.pid)
    code, left, _ = release(parent)
    assert code == 0
    assert int(left) in small._pids()
    small.remove()
    assert not small._folder.exists()
    assert not is_process_alive(int(left))
    assert not small.went_over()


def test_a_process_that_has_ended_is_not_added(start: Start, small: MemoryCgroup) -> None:
    process = start("")
    release(process)
    assert not small.add(process.pid)


def test_a_process_in_a_cgroup_has_no_limit_of_its_own(start: Start, small: MemoryCgroup) -> None:
    """What it reserves and never uses (Arrow takes a gigabyte at once) does it no harm."""
    process = start(
        "from backfill_manager.processes.limits import apply_in_child\nimport resource\napply_in_child(100, 0)\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA) == (resource.RLIM_INFINITY,) * 2)"
    )
    assert small.add(process.pid)
    assert release(process) == (0, "True\n", "")


def test_cgroups_of_a_manager_that_was_killed_are_removed_at_the_next_start(small: MemoryCgroup) -> None:
    """With what still runs in them; those of managers that live stay."""
    killed = subprocess.run(
        [sys.executable, "-c",
         "import os, signal, subprocess, sys\n"
         "from backfill_manager.processes.memory_cgroup import MemoryCgroup\n"
         "cgroup = MemoryCgroup.create('left', 100)\n"
         "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], stdout=subprocess.DEVNULL,"
         " stderr=subprocess.DEVNULL)\n"
         "assert cgroup.add(left.pid)\n"
         "print(cgroup._folder, left.pid, flush=True)\n"
         "os.kill(os.getpid(), signal.SIGKILL)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    folder, pid = killed.stdout.split()
    assert killed.returncode == -signal.SIGKILL
    assert Path(folder).name.startswith(CGROUP_PREFIX)
    assert pid in Path(folder, "cgroup.procs").read_text().split()

    memory_cgroup.remove_leftovers()
    assert not Path(folder).exists()
    assert small._folder.exists()


@ONLY_AS_ROOT
def test_a_process_of_another_user_in_it_is_left() -> None:
    code = f"""
import subprocess
from backfill_manager.processes.memory_cgroup import MemoryCgroup
cgroup = MemoryCgroup.create("left", 100)
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user={NOBODY}) as other:
    assert cgroup.add(other.pid)
    cgroup.remove()
    print(other.poll())
cgroup.remove()
print(cgroup._folder.exists())
"""
    alone = memory_cgroup._places
    ends_all = any(place.is_v2 and (place.folder / "cgroup.kill").exists() for place in alone())
    assert without_leave_to_kill(code) == f"{'-9' if ends_all else 'None'}\nFalse\n"


def test_doctor_goes_by_the_limit_of_the_cgroup_that_it_is_in(start: Start, small: MemoryCgroup) -> None:
    code = (
        "from backfill_manager.cli.machine_checks import _memory; found = _memory(); print(found.status, found.found)"
    )
    before = start(code)
    assert small.add(before.pid)
    ended, said, _ = release(before)
    assert ended == 0 and said.startswith("warning 0.") and " GB of the 0.1 GB that the cgroup allows" in said
    assert "the cgroup allows" not in release(start(code))[1]
