"""Where systemd has delegated the manager's cgroup (v2), tries are limited by cgroups: real units of systemd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or os.getuid() != 0
    or not Path("/run/systemd/system").is_dir()
    or not Path("/sys/fs/cgroup/cgroup.controllers").is_file(),
    reason="needs root, systemd and cgroup v2",
)


@pytest.mark.parametrize("properties", [[], ["DelegateSubgroup=manager"]], ids=["no subgroup", "a subgroup"])
def test_cgroups_can_be_made_below_a_unit_with_delegate(properties: list[str]) -> None:
    code = """
from pathlib import Path
from backfill_manager.processes.memory_cgroup import MemoryCgroup
cgroup = MemoryCgroup.create("flights", 100)
print(cgroup is not None and (cgroup._folder / "memory.max").read_text().strip())
print(Path("/proc/self/cgroup").read_text().strip().rpartition("/")[2])
cgroup.remove()
"""
    settings = [f"--property={one}" for one in ("Delegate=memory", *properties)]
    python = [f"--setenv=PYTHONPATH={os.environ.get('PYTHONPATH', '')}", sys.executable, "-c", code]
    ended = subprocess.run(
        ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", *settings, *python],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    own = "manager" if properties else "bfm-manager"
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, [str(100 << 20), own], "")
