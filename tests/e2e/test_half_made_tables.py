"""A table in an object store whose making was killed half way is made after all, and a commit that lands meanwhile stays. By
Hadoop's own connectors, each in a Spark of its own: moto's S3 and, with `--slow`, azurite."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.azure_server import CONTAINER, HOST, WHERE_TO_GET_IT, azure_server, find_azurite
from support.azure_server import has_connector as has_azure_connector
from support.azure_server import spark_conf as azure_conf
from support.manager_process import TIMEOUT_S
from support.s3_server import BUCKET, has_connector, s3_in_environ

SCRIPT = """
import json, sys
from backfill_manager.execution.output import output_table
from backfill_manager.execution.spark.catalog import hadoop_path
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.spark.session import build_session

root, conf = sys.argv[1], json.loads(sys.argv[2])
spark = build_session(pools=[], master="local[1]", warehouse=root, conf=conf)
schema = spark.range(1).schema

def put(path, text="{"):
    path, files = hadoop_path(spark, path)
    stream = files.create(path, True)
    stream.write(text.encode())
    stream.close()

def log_of(table):
    folder, files = hadoop_path(spark, table + "/_delta_log")
    return sorted(str(s.getPath().getName()) for s in files.listStatus(folder)) if files.exists(folder) else []

def half_made(name):
    table = f"{root}/{name}"
    folder, files = hadoop_path(spark, table + "/_delta_log/_staged_commits")
    files.mkdirs(folder)
    put(table + "/_delta_log/.00000000000000000000.json.1a2b.tmp")
    put(table + "/_delta_log/00000000000000000000.crc")
    return table

table = half_made("killed")
before = log_of(table)
OutputTable(spark, table).remove_unfinished_log()
print("FOUND", json.dumps({"before": before, "removed": log_of(table)}))

table = half_made("made")
OutputTable(spark, table).create(schema)
spark.range(3).write.format("delta").mode("append").save(table)
print("FOUND", json.dumps({"made": spark.read.format("delta").load(table).count()}))

OutputTable(spark, f"{root}/other").create(schema)
commit = "_delta_log/00000000000000000000.json"
text = "\\n".join(row[0] for row in spark.read.text(f"{root}/other/{commit}").collect())

class Landing:  # its commit, of a JVM that goes on, and a file of another writer: right after the log is listed
    def __init__(self, files):
        self.files = files
    def __getattr__(self, name):
        return getattr(self.files, name)
    def listStatus(self, folder):
        found = self.files.listStatus(folder)
        if folder.getName() == "_delta_log":
            put(f"{table}/{commit}", text)
            put(f"{table}/part-00000.parquet", "staged")
        return found

def landing(spark, path):
    where, files = hadoop_path(spark, path)
    return where, Landing(files)

table = half_made("landed")
output_table.hadoop_path = landing
OutputTable(spark, table).remove_unfinished_log()
output_table.hadoop_path = hadoop_path
found = OutputTable(spark, table)
print("FOUND", json.dumps({"left": log_of(table), "columns": found.read().schema.names}))
table = f"{root}/made"
found = OutputTable(spark, table)
found.remove_unfinished_log()
print("FOUND", json.dumps({"whole": spark.read.format("delta").load(table).count()}))
spark.stop()
"""


@pytest.fixture(
    params=[
        pytest.param("s3", marks=pytest.mark.skipif(
            not has_connector(), reason="`python -m backfill_manager.execution.spark.connectors s3a://` fetches the connector")),
        pytest.param("azure", marks=[
            pytest.mark.slow,
            pytest.mark.skipif(find_azurite() is None, reason=WHERE_TO_GET_IT),
            pytest.mark.skipif(
                not has_azure_connector(), reason="`python -m backfill_manager.execution.spark.connectors abfss://` fetches it"),
        ]),
    ]
)  # fmt: skip
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A folder in a store, and what Spark's settings need for it."""
    if request.param == "s3":
        with s3_in_environ():
            yield f"s3a://{BUCKET}/half", {}
    else:
        with azure_server(tmp_path) as address:
            yield f"abfs://{CONTAINER}@{HOST}/half", azure_conf(address)


def test_a_table_whose_making_was_killed_is_made_and_a_commit_that_lands_meanwhile_stays(
    place: tuple[str, dict[str, str]],
) -> None:
    root, conf = place
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, root, json.dumps(conf)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    found: dict[str, object] = {}
    for line in done.stdout.splitlines():
        if line.startswith("FOUND "):
            found |= json.loads(line.removeprefix("FOUND "))
    left_by_the_killed = [".00000000000000000000.json.1a2b.tmp", "00000000000000000000.crc", "_staged_commits"]
    assert found == {
        "before": left_by_the_killed, "removed": [], "made": 3, "left": ["00000000000000000000.json"], "columns": ["id"],
        "whole": 3,
    }, done.stdout + done.stderr  # fmt: skip
