"""`bfm doctor --thorough` starts Spark and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.manager_process import TIMEOUT_S


def test_spark_writes_reads_and_deletes_a_table_of_the_warehouse(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    command = [sys.executable, "-m", "backfill_manager", "--output", "json", "doctor", "--thorough"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert found["spark"]["status"] == "ok", found["spark"]
    assert "written 10 rows as a Delta table of the warehouse, read and deleted it" in found["spark"]["found"]
    assert not list((tmp_path / "warehouse").iterdir())
