"""State and warehouse in a container of Azure's blob storage (azurite on this machine): a leader is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.azure_server import (
    CONTAINER,
    HOST,
    WHERE_TO_GET_IT,
    azure_in_environ,
    find_azurite,
    has_connector,
    spark_conf,
)
from support.manager_process import kill
from support.steady import Steady

from backfill_manager.model.records import Manager, TaskTry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_azurite() is None, reason=WHERE_TO_GET_IT),
    pytest.mark.skipif(
        not has_connector(),
        reason="`python -m backfill_manager.execution.spark.connectors abfss://` fetches the connector",
    ),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def test_a_leader_is_killed_and_the_next_ends_the_work(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with azure_in_environ(root) as address:
        conf = {"spark.sql.shuffle.partitions": "1", **spark_conf(address)}
        story = Steady(
            root, place=f"az://{CONTAINER}", rows=f"az://{CONTAINER}/warehouse", warehouse=f"abfs://{CONTAINER}@{HOST}/warehouse",
            spark={"master": "local[2]", "conf": conf}, lease={"seconds": 10},
        )  # fmt: skip
        first = managers()
        story.begin(8)
        story.when_done(2)
        kill(first)
        second = managers()
        story.end()
        assert [row.pid for row in story.store.read(Manager, order_by=["term"])] == [first.pid, second.pid]
        assert "lost" in {one.state for one in story.store.read(TaskTry)}, "something was running when it was killed"
