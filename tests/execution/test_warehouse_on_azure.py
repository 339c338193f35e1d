"""A table of a warehouse in Azure: Hadoop's connector against azurite. Azure itself was not tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder
from support.azure_server import (
    CONTAINER,
    HOST,
    WHERE_TO_GET_IT,
    azure_environ,
    azure_server,
    find_azurite,
    has_connector,
    spark_conf,
)

WAREHOUSE = f"abfs://{CONTAINER}@{HOST}/warehouse"
SCRIPT = """
import json, sys
from backfill_manager.execution.spark.session import build_session

warehouse, conf = sys.argv[1], json.loads(sys.argv[2])
spark = build_session(pools=[], master="local[1]", warehouse=warehouse, conf=conf)
spark.range(5).write.format("delta").saveAsTable("numbers")
spark.range(5, 8).write.format("delta").mode("append").saveAsTable("numbers")
spark.sql("DELETE FROM numbers WHERE id >= 6")
found = sorted(row[0] for row in spark.table("numbers").collect())
print("found", json.dumps(found))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_azurite() is None, reason=WHERE_TO_GET_IT)
@pytest.mark.skipif(
    not has_connector(),
    reason="`python -m backfill_manager.execution.spark.connectors abfss://` fetches the connector",
)
def test_a_table_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with azure_server(tmp_path) as address:
        conf = spark_conf(address)
        command = [sys.executable, "-c", SCRIPT, WAREHOUSE, json.dumps(conf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "found [0, 1, 2, 3, 4, 5]" in done.stdout, done.stdout + done.stderr
        for name, value in azure_environ(address).items():
            monkeypatch.setenv(name, value)
        table = DeltaTable(f"az://{CONTAINER}/warehouse/numbers")
        rows = QueryBuilder().register("numbers", table).execute("SELECT id FROM numbers ORDER BY id").read_all()
        assert rows["id"].to_pylist() == [0, 1, 2, 3, 4, 5], "delta-rs reads what Spark has written"
