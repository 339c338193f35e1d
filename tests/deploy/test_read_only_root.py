"""A manager as the image and the manifests have it: a read-only root, a user without any right, and few folders to write to.

It needs root, for a mount namespace of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backfill_manager.execution.spark.jars import DELTA, jar_paths
from backfill_manager.model.records import TaskInstance
from backfill_manager.store import open_store

REPOSITORY = Path(__file__).parents[2]
WRITTEN = ("state", "warehouse", "snapshots", "home", "cache/environments", "cache/ended_sessions")
UID = 10001

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.getuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")),
        reason="makes a mount namespace, as root",
    ),
]


def test_a_manager_writes_to_the_folders_that_are_named_only(tmp_path: Path) -> None:
    scratch = Path("/srv") / f"bfm-{tmp_path.parent.name}-{os.getpid()}"  # not below /tmp, which is covered
    try:
        for name in (*WRITTEN, "cache/jars", "dags", "python", "work"):
            (scratch / name).mkdir(parents=True)
        for name in WRITTEN:
            os.chown(scratch / name, UID, UID)
        for jar in jar_paths(DELTA):
            shutil.copy(jar, scratch / "cache" / "jars")
        shutil.copy(REPOSITORY / "conf" / "deploy" / "dags" / "hello.py", scratch / "dags")
        passwd = Path("/etc/passwd").read_text(encoding="utf-8")
        (scratch / "passwd").write_text(f"{passwd}bfm:x:{UID}:{UID}::{scratch}/home:/bin/sh\n", encoding="utf-8")
        conf = {
            "state": f"{scratch}/state", "warehouse": f"{scratch}/warehouse", "snapshots": f"{scratch}/snapshots",
            "bundles": [{"name": "main", "path": f"{scratch}/dags"}], "spark": {"master": "local[2]"},
        }  # fmt: skip
        (scratch / "manager.yaml").write_text(json.dumps(conf), encoding="utf-8")
        done = subprocess.run(
            ["unshare", "-m", "bash", "-c", script(scratch)], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        states = {ti.task_id: ti.state for ti in open_store(f"{scratch}/state").read(TaskInstance)}
        assert states == {"hours": "success", "total": "success"}, done.stderr[-3000:]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def script(scratch: Path) -> str:
    """The namespace, and the manager in it until nothing is left to do: the schedule has one run."""
    here, python = shlex.quote(str(scratch)), Path(sys.base_prefix)
    lines = ["set -e", "mount --make-rprivate /", f"mount --bind {here}/passwd /etc/passwd"]
    if python.is_relative_to("/root"):  # where others may not look
        top = Path("/root") / python.relative_to("/root").parts[0]
        lines += [f"mount --bind {top} {here}/python", "mount -t tmpfs -o mode=755 tmpfs /root"]
        lines += [f"mkdir {top}", f"mount --bind {here}/python {top}"]
    lines += [f"mount --bind {here}/{name} {here}/{name}" for name in WRITTEN]
    lines += [
        "mount -t tmpfs -o mode=1777,exec tmpfs /tmp", f"mount -t tmpfs -o mode=1777 tmpfs {here}/work",
        "mount -o remount,bind,ro /", f"cd {here}/work", f"if touch {here}/x 2>/dev/null; then exit 9; fi",
        f"export HOME={here}/home BFM_CACHE={here}/cache BFM_CONF={here}/manager.yaml TZ=UTC",
        f"setpriv --reuid {UID} --regid {UID} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "
        f"{shlex.quote(sys.executable)} -m backfill_manager manager start --until-idle",
    ]  # fmt: skip
    return "\n".join(lines)
