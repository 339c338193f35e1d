"""One Spark session for the whole run; UTC everywhere; `--slow` and `--bench` let the long ones in. `-m spark` are the modules
that use the session: so the suite runs in two halves side by side."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ["TZ"] = "UTC"
time.tzset()

# How long an example takes says something of the machine and nothing of us. All else is as it was (in CI: the same examples
# every time).
hypothesis.settings.register_profile(
    "unhurried", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

MOST_CPU_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run what takes minutes")
    parser.addoption("--bench", action="store_true", help="also run the benchmarks and print their figures")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker in ("slow", "bench"):
        if not config.getoption(f"--{marker}"):
            for item in items:
                if item.get_closest_marker(marker):  # not `in item.keywords`: a folder is called bench
                    item.add_marker(pytest.mark.skip(reason=f"left out unless --{marker} is given"))
    with_spark = {item.path for item in items if _uses_spark(item)}  # a module stays whole
    for item in items:
        if item.path in with_spark:
            item.add_marker(pytest.mark.spark)


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or "[delta-spark" in item.name


@pytest.fixture
def must_end() -> Iterator[None]:
    """For what would compute (nearly) for ever if it were done wrongly: after a minute of this process's own computing, a
    thousand times what it takes, the test fails instead of hanging. A machine that is busy with other things is no matter."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"it has computed for {MOST_CPU_S:g} seconds and does not come to an end")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]` with Delta and the pools `scheduled` and `backfill`; the one JVM of the test run."""
    from backfill_manager.execution.session import build_session
    from backfill_manager.model.records import Pool

    root = tmp_path_factory.mktemp("spark")
    session = build_session(
        app_name="tests",
        master="local[2]",
        warehouse=str(root / "warehouse"),
        pools=[
            Pool(name="scheduled", slots=16, weight=4, min_share=2),
            Pool(name="backfill", slots=16, weight=1, min_share=0),
        ],
        conf={
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.retainedJobs": "100000",  # tests look jobs up in the status store
            "spark.ui.retainedStages": "100000",
            "spark.default.parallelism": "2",
            # 48 MB of compiled code are C1's default; this JVM fills them, and from then on Java fails to link now and then
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
            f" -Dderby.system.home={root}",
        },
    )
    yield session
    session.stop()
