"""Before there is a session: Java, jars from disk, the pools' file; and who gives way to whom on one machine."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from backfill_manager.errors import InvalidConfig, InvalidInput, WrongJava
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.spark import jars, session
from backfill_manager.execution.spark.session import (
    NICENESS,
    fair_scheduler_xml,
    lower_jvm_thread_priority,
    query_thread_conf,
    ui_address,
)
from backfill_manager.execution.spark.site_settings import LOG_SETTINGS, with_site_lists
from backfill_manager.execution.spark.spark_trial import run_python_on_a_worker
from backfill_manager.model.records import Pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_java(folder: Path, says: str, code: int = 0) -> Path:
    home = folder / "java home"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("says", "version"), [('java version "1.8.0_402"', "8"), ('openjdk version "11.0.2" 2019-01-15', "11")]
)
def test_an_old_java_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, says)))
    with pytest.raises(WrongJava, match=f"is Java {version}. Spark needs Java 17 or newer. Install it: `apt install"):
        jars.java()


@pytest.mark.parametrize(
    ("core", "reason"),
    [
        (None, "is no Spark: it has no bin/spark-submit"),
        ("spark-core_2.13-3.5.6.jar", "is Spark 3.5.6, and PySpark is"),
    ],
)
def test_another_spark_in_spark_home_is_refused_before_its_jvm_starts(
    core: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if core is not None:
        for file in (tmp_path / "bin" / "spark-submit", tmp_path / "jars" / core):
            file.parent.mkdir()
            file.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(InvalidConfig, match=rf"SPARK_HOME={tmp_path} {reason}.*\. Unset SPARK_HOME"):
        session.build_session(pools=[], master="local[1]")


def test_a_missing_java_is_reported_with_the_place_that_was_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WrongJava, match=f"Java was not found in JAVA_HOME={tmp_path}"):
        jars.java()


def test_jars_in_the_cache_are_taken_without_java_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFM_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))  # so that fetching could not even begin
    (tmp_path / "jars").mkdir()
    there = [tmp_path / "jars" / jar.file_name for jar in jars.DELTA]
    for jar in there:
        jar.touch()
    assert jars.jar_paths(jars.DELTA) == [str(jar) for jar in there]
    command = [sys.executable, "-m", "backfill_manager.execution.spark.jars"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [
        str(jar) for jar in there
    ]


def test_a_fetch_that_fails_says_where_a_jar_can_be_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFM_CACHE", str(tmp_path))
    # a Java that is new enough and fetches nothing: no network
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path, 'openjdk version "17.0.1" Server access error: refused')))
    with pytest.raises(
        InvalidInput, match=r"could not be fetched(.|\n)*put the jar into .*jars yourself(.|\n)*refused"
    ):
        jars.jar_paths(jars.DELTA)
    assert not list((tmp_path / "jars").iterdir())


def test_the_pools_file_names_every_pool_fair_inside_and_control_first_of_all() -> None:
    text = fair_scheduler_xml([Pool("scheduled", 16, 4, 2), Pool('odd <"pool">', 1, 1, 0)])
    pools = {pool.get("name"): [child.text for child in pool] for pool in ElementTree.fromstring(text)}
    assert pools == {
        "scheduled": ["FAIR", "4", "2"],
        'odd <"pool">': ["FAIR", "1", "0"],
        "control": ["FIFO", "1000", "1"],
    }


@pytest.mark.parametrize(
    ("slots", "of_results", "of_shuffles"),
    [((), 256, 256), ((4, 8), 256, 384), ((16, 16), 256, 1024), ((16, 64), 640, 1024), ((16, 1000), 1024, 1024)],
)
def test_queries_have_eight_threads_for_each_slot_and_their_shuffles_have_32(
    slots: tuple[int, ...], of_results: int, of_shuffles: int
) -> None:
    assert query_thread_conf([Pool(f"pool{n}", count, 1, 0) for n, count in enumerate(slots)]) == {
        "spark.sql.resultQueryStage.maxThreadThreshold": str(of_results),
        "spark.sql.shuffleExchange.maxThreadThreshold": str(of_shuffles),
    }


def test_a_session_has_them(spark: SparkSession) -> None:
    conf = {**query_thread_conf([Pool("all", 32, 1, 0)]), "spark.sql.subquery.maxThreadThreshold": "128"}
    assert {name: spark.conf.get(name) for name in conf} == conf


def test_subqueries_in_subqueries_of_many_queries_do_not_wait_for_each_other(spark: SparkSession) -> None:
    inner = "SELECT avg(id) FROM range(8) WHERE id > (SELECT max(id) / 2 FROM range(4))"
    barrier = threading.Barrier(24)  # with Spark's own 16 threads for subqueries, none of them ends

    def query() -> int:
        session = spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "true")  # as Spark has it; the tests' session has not
        barrier.wait()
        return int(session.sql(f"SELECT sum(id) FROM range(10) WHERE id > ({inner})").collect()[0][0])

    with ThreadPoolExecutor(24) as threads:
        assert [future.result() for future in [threads.submit(query) for _ in range(24)]] == [35] * 24


def test_a_call_to_a_jvm_that_dies_meanwhile_raises_and_logs_nothing(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.protocol import Py4JError

    def dies() -> None:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.recv(1)  # and does not read the rest, as a process that is killed

    with socket.create_server(("127.0.0.1", 0)) as server:
        dying = threading.Thread(target=dies)
        dying.start()
        gateway = ClientServer(
            java_parameters=JavaParameters(port=server.getsockname()[1]),
            python_parameters=PythonParameters(eager_load=False),  # without a thread that waits for calls of the JVM
        )
        with pytest.raises(Py4JError):
            gateway.jvm.java.lang.System.nanoTime()
        dying.join()
    assert [record for record in caplog.records if record.name == "root"] == []
    logging.getLogger().error("of others")
    assert [record.message for record in caplog.records if record.name == "root"] == ["of others"]


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({"spark.network.timeout": "1s"}, "INVALID_SPARK_CONFIG"),
        ({"spark.driver.memory": "lots"}, "JAVA_GATEWAY_EXITED"),
        ({"spark.local.dir": "/dev/null/no-folder"}, "its JVM has ended"),
    ],
)
def test_settings_with_which_spark_does_not_start_are_one_line(
    conf: dict[str, str], reason: str, tmp_path: Path
) -> None:
    settings = {"state": str(tmp_path / "state"), "bundles": [], "spark": {"master": "local[1]", "conf": conf}}
    (tmp_path / "manager.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "backfill_manager", "--conf", str(tmp_path / "manager.yaml"), "manager", "start"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    last = done.stderr.rstrip().rpartition("\n")[2]
    assert done.returncode == 2, done.stderr
    assert last.startswith("Spark does not start: ") and reason in last
    assert last.endswith(
        "Correct `spark` in the configuration file, the options of spark-submit, or spark-defaults.conf in Spark's conf folder."
    )
    assert "backfill_manager/" not in done.stderr, "no traceback of ours"


def test_a_time_zone_in_which_days_would_be_others_is_refused_before_spark_starts() -> None:
    """`CAST(at AS DATE)` of a task would be another day than the one that its write replaces."""
    with pytest.raises(InvalidConfig, match=r"`spark.sql.session.timeZone` is Asia/Kathmandu, .* in UTC"):
        session.build_session(pools=[], master="local[1]", conf={"spark.sql.session.timeZone": "Asia/Kathmandu"})


def test_what_pools_lack_with_these_settings_is_said(tmp_path: Path) -> None:
    """Of a Spark of its own, as of a session that was given."""
    pools = tmp_path / "pools.xml"
    pools.write_text("<allocations/>")
    conf = {
        "spark.scheduler.mode": "FIFO",
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.driver.memory": "lots",
    }
    settings = {"state": str(tmp_path / "state"), "bundles": [], "spark": {"master": "local[1]", "conf": conf}}
    (tmp_path / "manager.yaml").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "backfill_manager", "--conf", str(tmp_path / "manager.yaml"), "manager", "start"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    warnings = [line for line in done.stderr.splitlines() if "level=warning" in line]
    assert [
        "`spark.scheduler.mode FAIR`" in warnings[0],
        "`spark.scheduler.allocation.file` is set" in warnings[1],
    ] == [True] * 2


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (None, "io.delta.sql.DeltaSparkSessionExtension"),
        ("a.Extension,b.Extension", "io.delta.sql.DeltaSparkSessionExtension,a.Extension,b.Extension"),
        ("a.Extension,io.delta.sql.DeltaSparkSessionExtension", "io.delta.sql.DeltaSparkSessionExtension,a.Extension"),
    ],
)
def test_extensions_of_the_configuration_are_loaded_beside_deltas(given: str | None, joined: str) -> None:
    conf = {"spark.x": "1"} if given is None else {"spark.x": "1", "spark.sql.extensions": given}
    assert session.with_deltas_extension(conf) == {"spark.x": "1", "spark.sql.extensions": joined}


@pytest.mark.parametrize(
    ("master", "conf", "chosen"),
    [
        (None, {}, "local[*]"),
        (None, {"spark.master": "local[2]"}, "local[2]"),
        ("local[1]", {"spark.master": "spark://a:7077"}, "local[1]"),
        ("spark://a:7077", {}, "spark://a:7077"),
        (None, {"spark.master": "spark://a:7077"}, "spark://a:7077"),
    ],
)
def test_executors_elsewhere_are_not_given_an_address_of_this_machine_alone(
    master: str | None, conf: dict[str, str], chosen: str
) -> None:
    settings = session.with_master(master, conf)
    assert settings["spark.master"] == chosen
    assert ("spark.driver.host" in settings) == chosen.startswith("local")
    assert ("spark.authenticate" in settings) == chosen.startswith("local"), (
        "elsewhere it needs a secret on each machine"
    )


def test_a_cluster_on_this_machine_needs_no_secret_as_spark_makes_none_for_it() -> None:
    assert "spark.authenticate" not in session.with_master("local-cluster[2,1,1024]", {})


def test_the_driver_takes_no_message_of_others_on_this_machine(spark: SparkSession) -> None:
    """As Spark's own executors would send it: a request (3) to an endpoint of the driver, with a Java object in it."""
    port = int(spark.conf.get("spark.driver.port") or 0)

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    to = b"\1" + text("127.0.0.1") + struct.pack(">i", port) + text("OutputCommitCoordinator")
    message = b"\0" + to + b"\xac\xed\0\5t" + text("hello")  # from nobody; a Java string
    request = b"\3" + struct.pack(">qi", 1, len(message)) + message
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">q", len(request) + 8) + request)
        answer = connection.makefile("rb").read(9)
    assert answer[8:] == b"\5", "it failed (5), and was not answered (4) by the endpoint"


UI = """\
import socket
from backfill_manager.execution.spark.session import build_session
spark = build_session(master="local[1]", pools=[], conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
port = int(spark.sparkContext.uiWebUrl.rpartition(":")[2])
for address in ("127.0.0.1", "127.0.0.2"):
    with socket.socket() as connection:
        print(connection.connect_ex((address, port)) == 0)
spark.stop()
"""


@pytest.mark.parametrize("where", ["site/spark-defaults.conf", "spark/conf/spark-defaults.conf"])
def test_jars_and_extensions_of_spark_defaults_are_loaded_beside_deltas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    file = tmp_path / where
    file.parent.mkdir(parents=True)
    file.write_text(
        "# spark.jars no.jar\n\n spark.jars\ta.jar,\\\n  b.jar \nspark.sql.extensions = a.Extension\nspark.x=1\n"
    )
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert where.startswith("spark/") or with_site_lists({"spark.y": "2"}) == {"spark.y": "2"}
    if where.startswith("site/"):
        monkeypatch.setenv("SPARK_CONF_DIR", str(file.parent))
    lists = {"spark.jars": "a.jar,b.jar", "spark.sql.extensions": "a.Extension"}
    assert with_site_lists({"spark.y": "2"}) == lists | {"spark.y": "2"}
    assert with_site_lists({"spark.jars": "c.jar"}) == lists | {"spark.jars": "c.jar"}, (
        "as any property of `spark.conf`"
    )
    assert with_site_lists({}, str(tmp_path / "none")) == {}, "spark-submit with `--properties-file`"


def test_extensions_that_spark_submit_is_given_by_itself_are_loaded_beside_those_of_the_configuration(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as Python programs of spark-submit have it
    monkeypatch.delenv("BFM_SUBMITTER_PID", raising=False)
    assert spark._jvm is not None
    name, properties = "spark.sql.extensions", spark._jvm.java.lang.System
    before = properties.getProperty(name)
    properties.setProperty(name, "a.Extension")
    try:
        given = session._given_at_submit({name: "b.Extension", "spark.x": "1"})
    finally:
        properties.clearProperty(name) if before is None else properties.setProperty(name, before)
    assert given == {name: "a.Extension,b.Extension"}


@pytest.mark.parametrize(
    ("own", "conf", "shown"),
    [
        ("http://driver:4040", {}, "http://driver:4040"),
        ("http://driver:4040", {"spark.ui.reverseProxy": "true"}, "http://driver:4040"),
        ("http://driver:4040", {"spark.ui.reverseProxyUrl": "https://spark.example.org/"}, "http://driver:4040"),
        (
            "http://driver:4040",
            {"spark.ui.reverseProxy": "true", "spark.ui.reverseProxyUrl": "https://spark.example.org/ui/"},
            "https://spark.example.org/ui/proxy/app-1",
        ),
        (None, {"spark.ui.reverseProxy": "true", "spark.ui.reverseProxyUrl": "https://spark.example.org"}, None),
    ],
)
def test_sparks_ui_is_where_the_proxy_of_the_site_has_it(
    own: str | None, conf: dict[str, str], shown: str | None
) -> None:
    assert ui_address(own, "app-1", conf) == shown


def test_a_trial_needs_a_python_of_sparks_workers(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    run_python_on_a_worker(spark)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with pytest.raises(Py4JJavaError, match="Cannot run program"):
        run_python_on_a_worker(spark)


def test_sparks_ui_is_on_loopback_where_spark_runs_in_one_process() -> None:
    done = subprocess.run([sys.executable, "-c", UI], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == ["True", "False"], f"else other machines reach it, too: {done.stderr}"
    assert session.jvm_variables("spark://a:7077") == {}


@pytest.mark.parametrize(
    ("file", "conf_dir", "are_ours"),
    [
        ("site/log4j2.xml", "site", False),
        ("spark/conf/log4j2.properties", None, False),
        ("site/spark-env.sh", "site", True),
    ],
)
def test_the_log_settings_of_a_site_count_more_than_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, conf_dir: str | None, are_ours: bool
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dof=site")
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    if conf_dir:
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / conf_dir))
    ours = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()} " if are_ours else ""
    with session.our_log_settings():
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"{ours}-Dof=site"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dof=site"


def test_spark_does_not_say_again_that_a_task_failed_and_one_line_says_why(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    jvm: Any = spark.sparkContext._jvm
    logger_of = jvm.org.apache.logging.log4j.LogManager.getLogger
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        spark.sparkContext.parallelize([0], 1).map(lambda n: 1 // n).collect()
    assert one_line(raised.value) == "PythonException: ZeroDivisionError: integer division or modulo by zero"
    by_a_udf = spark.range(1).select(udf(lambda n: str(1 // n))("id"))
    with pytest.raises(Exception, match="ZeroDivisionError") as raised:
        by_a_udf.collect()
    assert one_line(raised.value) == "PythonException: ZeroDivisionError: integer division or modulo by zero"
    assert not any(
        logger_of(f"org.apache.spark.{name}").isErrorEnabled()
        for name in ("scheduler.TaskSetManager", "executor.Executor")
    )
    assert logger_of("org.apache.spark.SparkContext").isErrorEnabled(), "but of all else that fails"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the priorities of threads")
def test_on_one_machine_spark_gives_way_to_the_manager(spark: SparkSession) -> None:
    lower_jvm_thread_priority(spark)
    jvm: Any = spark.sparkContext._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    nicer = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, pid) == nicer
    assert sum(spark.sparkContext.parallelize(range(4), 2).collect()) == 6, "and works on"
