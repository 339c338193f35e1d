"""One Spark session for the whole run; UTC everywhere; `--slow` and `--bench` let the long ones in. `-m spark` are the modules
that use the session: so the suite runs in two halves side by side."""

from __future__ import annotations

import configparser
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
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


@pytest.fixture(scope="session")
def sheet_parser_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of tests/data/sheet_parser as pip installs it, in a folder of its own. Its wheel is made here, as building
    it by pip would ask the network for setuptools."""
    source, folder = Path(__file__).parent / "data" / "sheet_parser", tmp_path_factory.mktemp("sheet_parser")
    about = configparser.ConfigParser()
    about.read(source / "setup.cfg")
    name, version = about["metadata"]["name"], about["metadata"]["version"]
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    points = "".join(f"[{group}]{names}\n" for group, names in about["options.entry_points"].items())
    wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted((source / about["options"]["packages"]).glob("*.py")):
            archive.write(file, file.relative_to(source))
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", points)
        archive.writestr(f"{info}/RECORD", "")
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
    """Where this process, and those that it starts, find the package with the parser `sheets`."""
    monkeypatch.syspath_prepend(str(sheet_parser_installed))
    return sheet_parser_installed
