"""State and warehouse in a bucket (moto's S3 on this machine): managers are killed, stand still and are replaced."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from support import flights_in_pandas as by_pandas
from support.manager_process import TIMEOUT_S, kill, wait_for
from support.process_tree import signal_all
from support.s3_server import BUCKET, has_connector, s3_in_environ
from support.steady import Steady
from support.store_proxy import StoreProxy, store_proxy

from backfill_manager.model.records import Manager, TaskTry
from backfill_manager.store.base import Condition

REPOSITORY = Path(__file__).parents[2]
DEMO_TIMEOUT_S = 1800.0

pytestmark = pytest.mark.skipif(
    not has_connector(), reason="`python -m backfill_manager.execution.spark.connectors s3a://` fetches the connector"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def bucket() -> Iterator[str]:
    with s3_in_environ():
        yield f"s3://{BUCKET}"


def test_a_leader_is_killed_the_next_stands_still_and_a_third_ends_the_work(
    root: Path, bucket: str, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    story = Steady(root, place=f"{bucket}/steady", lease={"seconds": 10})
    first = managers()
    story.begin(10)
    story.when_done(1)
    kill(first)
    second = managers()
    story.when_led_by(second.pid)
    third = managers()
    wait_for(lambda: "standing by" in story.log(2))
    wait_for(lambda: story.store.count("task_try", [], [Condition("term", "=", 2)])[()])
    signal_all(second, signal.SIGSTOP)
    assert story.done() < story.days, "in the middle"
    story.when_led_by(third.pid)
    story.end()
    signal_all(second, signal.SIGCONT)
    assert second.wait(TIMEOUT_S) == 1
    assert "stopping: the lease is lost" in story.log(1)
    story.end()
    assert [row.pid for row in story.store.read(Manager, order_by=["term"])] == [first.pid, second.pid, third.pid]
    assert "lost" in {one.state for one in story.store.read(TaskTry)}, "something was running when the first was killed"


def looks_at_the_lease(proxy: StoreProxy) -> int:
    """That have begun since the last plan: each lists the log once."""
    return sum("list-type" in path and "manager" in path for _, path, what, _ in proxy.seen() if not what)


def test_a_standby_waits_for_a_bucket_that_is_away_and_takes_over_when_it_is_back(
    root: Path, bucket: str, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Its way to the bucket is a proxy, the leader's is not. Twice, as the second time is waited for like the first."""
    with store_proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        story = Steady(root, place=f"{bucket}/steady", lease={"seconds": 10})
        leader = managers()
        story.begin(6)
        story.when_done(1)
        standby = managers(environ={"AWS_ENDPOINT_URL": proxy.address})
        wait_for(lambda: "standing by" in story.log(1))
        for times in (1, 2):
            proxy.plan(faults={"fail": 1.0})
            wait_for(lambda times=times: story.log(1).count("waiting: ") == times)
            if times == 1:
                proxy.plan()
                wait_for(lambda: looks_at_the_lease(proxy) >= 2)  # a whole one has come between
        kill(leader)
        assert standby.poll() is None
        proxy.plan()
        story.when_led_by(standby.pid)
        story.end()


FAULTS_OF_A_BACKFILL = {
    "delay": 0.02,
    "repeat": 0.02,
    "drop": 0.01,
    "lose_answer": 0.02,
    "fail": 0.02,
    "fail_after": 0.02,
}
MANAGERS = 20


@pytest.mark.parametrize(
    ("days", "seed"), [(2, 1), pytest.param(20, 2, marks=pytest.mark.slow), pytest.param(60, 3, marks=pytest.mark.slow)]
)
def test_a_backfill_over_a_store_that_delays_repeats_drops_and_fails_requests(
    root: Path, bucket: str, managers: Callable[..., subprocess.Popen[bytes]], days: int, seed: int
) -> None:
    """The managers see the bucket, for state and warehouse, through a proxy; one that ends is followed by another."""
    with store_proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        story = Steady(root, place=f"{bucket}/steady", lease={"seconds": 30})
        through = {"AWS_ENDPOINT_URL": proxy.address}
        running = managers(environ=through)
        story.begin(days, overrides={"retries": 50, "retry_delay": 1})
        proxy.plan(seed=seed, faults=FAULTS_OF_A_BACKFILL, delay_s=0.2)
        for _ in range(MANAGERS):
            wait_for(lambda: story.has_ended() or running.poll() is not None)  # noqa: B023
            if story.has_ended():
                break
            running = managers(environ=through)
        met = {what for *_, what, _ in proxy.seen()}
    story.end()
    assert met == {"", *FAULTS_OF_A_BACKFILL}, "requests met each of them"


@pytest.mark.slow
def test_the_demo_leaves_the_tables_that_pandas_computes(tmp_path: Path, bucket: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    environ |= {"BFM_STATE": f"{bucket}/demo/state", "BFM_WAREHOUSE": f"{bucket}/demo/warehouse".replace("s3:", "s3a:")}
    with (tmp_path / "demo.log").open("wb") as log:
        done = subprocess.run(
            [REPOSITORY / "spark-submit.sh", "demo"], env=environ, stdout=log, stderr=subprocess.STDOUT,
            timeout=DEMO_TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (tmp_path / "demo.log").read_text()
    for table in by_pandas.EXPECTED:
        by_pandas.check_table(f"{bucket}/demo/warehouse", table, by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 31)))
