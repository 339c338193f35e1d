"""Options, markers and fixtures of the whole suite: one Spark session per run, UTC everywhere.

The markers `spark` (modules that use the session) and `processes` (modules that start servers, managers or browsers) split the
suite into three parts of about the same length, which tests/run runs side by side.
"""

from __future__ import annotations

import configparser
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from support.class_archive import ARCHIVE, JAVA_OPTIONS
from support.measured_costs import Costs, read_costs, split_by_budget
from support.tiny_wheel import make_wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ["TZ"] = "UTC"
os.environ["PASSWORD_OF_THE_TESTS"] = "opensesame-opensesame"  # before any process is started that has to hide it
time.tzset()

# What Spark does besides for a plan costs more than it saves for a few rows: measured with overwrites of three rows, code that is
# generated and compiled takes a quarter of the CPU time, adaptive execution a tenth, the place in the code of each column 5 %.
# spark-submit.sh's demo, which CI runs too, has all of it.
SMALL_DATA_CONF = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
SPARK_OPTIONS = " ".join(f"-D{name}={value}" for name, value in SMALL_DATA_CONF.items())

# The time of an example depends on the machine, so there is no deadline. In CI the examples are the same every time.
hypothesis.settings.register_profile(
    "no-deadline", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no-deadline")

MAX_CPU_S = 60.0
TESTS = Path(__file__).parent
WITH_PROCESSES = (
    "e2e/",
    "browser/",
    "client/",
    "api/test_connections.py",
    "cli/test_remote_backend.py",
    "dags/test_bundle_environment.py",
    "dags/test_loader.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")
    parser.addoption(
        "--budget", type=float, metavar="SECONDS",
        help="of each test run the cases that so many seconds of CPU allow for (tests/costs.txt), of each file at least one test",
    )  # fmt: skip
    parser.addoption("--bench", action="store_true", help="also run the benchmarks and print their figures")


def pytest_configure(config: pytest.Config) -> None:
    """Benches measure Spark and its JVM as users have them."""
    if folder := os.environ.get("BFM_TEST_COSTS"):
        config.pluginmanager.register(Costs(Path(folder)))
    if not config.getoption("--bench"):
        os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{JAVA_OPTIONS} -XX:SharedArchiveFile={ARCHIVE} {SPARK_OPTIONS}")
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A bench may take longer than the limit of a test, `faulthandler_timeout`."""
    if item.get_closest_marker("bench"):
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker in ("slow", "bench"):
        if not config.getoption(f"--{marker}"):
            for item in items:
                if item.get_closest_marker(marker):  # not `in item.keywords`: a folder is called bench
                    item.add_marker(pytest.mark.skip(reason=f"left out unless --{marker} is given"))
    if (budget_s := config.getoption("--budget")) is not None:
        items[:], left_out = split_by_budget(items, read_costs(), budget_s)
        config.hook.pytest_deselected(items=left_out)
    with_spark = {item.path for item in items if _uses_spark(item)}  # a module is not divided
    for item in items:
        if item.path in with_spark:
            item.add_marker(pytest.mark.spark)
        if str(item.path.relative_to(TESTS)).startswith(WITH_PROCESSES):
            item.add_marker(pytest.mark.processes)


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ()) or "[delta-spark" in item.name


@pytest.fixture
def must_end() -> Iterator[None]:
    """Fails a test that computes for more than a minute of CPU time, a thousand times what it should take, so that an endless
    computation does not hang the run. Other load on the machine does not matter."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still computing after {MAX_CPU_S:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """`local[2]` with Delta and the pools `scheduled` and `backfill`; the one JVM of the test run. Benches have a manager's own
    settings: with every job of the run in the status store, the end of a task takes longer with each."""
    from backfill_manager.execution.spark.session import build_session
    from backfill_manager.model.records import Pool

    root = tmp_path_factory.mktemp("spark")
    derby = f"-Dderby.system.home={root}"
    session = build_session(
        app_name="tests",
        master="local[2]",
        warehouse=str(root / "warehouse"),
        pools=[
            Pool(name="scheduled", slots=16, weight=4, min_share=2),
            Pool(name="backfill", slots=16, weight=1, min_share=0),
        ],
        conf={"spark.driver.extraJavaOptions": derby} if pytestconfig.getoption("--bench") else {
            **SMALL_DATA_CONF,
            "spark.sql.shuffle.partitions": "1",
            "spark.ui.retainedJobs": "100000",  # tests look up jobs in the status store
            "spark.ui.retainedStages": "100000",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "3g",  # the status store of thousands of jobs; with 1 GB the JVM would only collect garbage
            # A young generation that is collected seldom, and a heap that grows without full collections.
            "spark.driver.extraJavaOptions": f"{derby} -Xms2g -Xmn768m -XX:MetaspaceSize=512m",
        },
    )  # fmt: skip
    yield session
    session.stop()


@pytest.fixture(scope="session")
def sheet_parser_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installs the package of tests/data/sheet_parser in a folder and returns it."""
    source, folder = Path(__file__).parent / "data" / "sheet_parser", tmp_path_factory.mktemp("sheet_parser")
    about = configparser.ConfigParser()
    about.read(source / "setup.cfg")
    points = "".join(f"[{group}]{names}\n" for group, names in about["options.entry_points"].items())
    modules = sorted((source / about["options"]["packages"]).glob("*.py"))
    files = {str(file.relative_to(source)): file.read_text() for file in modules}
    wheel = make_wheel(folder, about["metadata"]["name"], about["metadata"]["version"], files, entry_points=points)
    site = folder / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return site


@pytest.fixture
def sheet_parser(sheet_parser_installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the package with the parser `sheets` on the import path of this process and its children."""
    monkeypatch.syspath_prepend(str(sheet_parser_installed))
    return sheet_parser_installed
