"""`bfm doctor --thorough` starts Spark and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.manager_process import TIMEOUT_S


def doctor(root: Path) -> tuple[int, dict[str, dict[str, str]]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    command = [sys.executable, "-m", "backfill_manager", "--output", "json", "doctor", "--thorough"]
    done = subprocess.run(
        command, cwd=root, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, {one["name"]: one for one in json.loads(done.stdout)}


def test_spark_writes_reads_and_deletes_a_table_of_the_warehouse(tmp_path: Path) -> None:
    code, found = doctor(tmp_path)
    assert code == 0, found
    assert found["spark"]["status"] == "ok", found["spark"]
    assert "written 10 rows as a Delta table of the warehouse, read and deleted it" in found["spark"]["found"]
    assert not list((tmp_path / "warehouse").iterdir())


@pytest.mark.slow
def test_a_metastore_that_spark_cannot_open_is_named_with_its_root_cause(tmp_path: Path) -> None:
    database = f"{tmp_path}/metastore"
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=false",
    }
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "manager.yaml").write_text(json.dumps({"spark": {"conf": conf}}))
    code, found = doctor(tmp_path)
    assert (code, found["spark"]["status"]) == (1, "error"), found["spark"]
    assert "Spark can't open its metastore: " in found["spark"]["found"]
    assert f"Database '{database}' not found" in found["spark"]["found"]
