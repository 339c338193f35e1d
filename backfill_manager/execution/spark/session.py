"""The Spark session of the manager, of `dags test`, of a dry run without a manager, of the tests: one builder for all.

Under spark-submit the session exists already in all that must be given at submit time (jars, extensions, scheduler
mode); `submit_conf` is what `spark-submit.sh` and this builder share. Session and process are in UTC.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.error_format import one_line, silence_query_loggers
from backfill_manager.execution.spark.connectors import connector_conf, spark_jars
from backfill_manager.execution.spark.jars import java, problem_of_spark_home
from backfill_manager.execution.spark.provided_session import (
    SCHEDULER,
    SUBQUERY_THREADS,
    TIME_ZONE,
    UTC_NAMES,
    find_session,
    refuse_remote,
    shortcomings,
)
from backfill_manager.execution.spark.site_settings import EXTENSIONS, JARS, jvm_log_option, with_site_lists
from backfill_manager.execution.spark.spark_health import ignore_stopped_context, jvm_pid, spark_gone_reason
from backfill_manager.logging import get_logger
from backfill_manager.model.pools import MAX_SUBQUERY_THREADS
from backfill_manager.model.records import Pool
from backfill_manager.settings import Settings
from backfill_manager.store.uri import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("spark")

CONTROL_POOL = "control"
ALLOCATION_FILE: Final = "spark.scheduler.allocation.file"

# Why each: docs/design-decisions.md, "Spark settings".
BASE_CONF: Mapping[str, str] = {
    EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.cleaner.periodicGC.interval": "15min",
    "spark.sql.subquery.maxThreadThreshold": str(MAX_SUBQUERY_THREADS),
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "500",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Without it `spark.sql(text, args=...)` loses its arguments: Delta's parser drops them (delta-io/delta#7640).
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
}
NICENESS = 10  # of 19; a process that is nicer by 10 gets a tenth of a contested core
LOCAL_CONF: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "2",
    "spark.broadcast.blockSize": "256k",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
# Spark makes a secret of its own where it runs in one process. Else anybody on this machine could send messages to the driver,
# which runs what they hold.
IN_ONE_PROCESS_CONF: Mapping[str, str] = {"spark.authenticate": "true"}


def fair_scheduler_xml(pools: Iterable[Pool]) -> str:
    """The allocation file: every pool by name, FAIR inside; `control` (planning) comes before all of them."""
    named = [(quoteattr(pool.name), "FAIR", pool.weight, pool.min_share) for pool in pools]
    rows = [
        f"  <pool name={name}><schedulingMode>{mode}</schedulingMode>"
        f"<weight>{weight}</weight><minShare>{min_share}</minShare></pool>\n"
        for name, mode, weight, min_share in (*named, (quoteattr(CONTROL_POOL), "FIFO", 1000, 1))
    ]
    return f'<?xml version="1.0"?>\n<allocations>\n{"".join(rows)}</allocations>\n'


def query_thread_conf(pools: Iterable[Pool]) -> dict[str, str]:
    """How many threads Spark has for the last stages of queries, and for their shuffles. A query takes one of the former, and one
    of the latter for each of its shuffles that can begin; while they wait so do its subqueries, which need both. So with too few
    of them all wait for ever: eight and 32 for each slot, as far as Spark allows."""
    slots = sum(pool.slots for pool in pools)
    return {
        "spark.sql.resultQueryStage.maxThreadThreshold": str(min(1024, max(256, 8 * slots))),
        "spark.sql.shuffleExchange.maxThreadThreshold": str(min(1024, max(256, 32 * slots))),
    }


def with_deltas_extension(conf: Mapping[str, str]) -> dict[str, str]:
    """`spark.sql.extensions` of the configuration would take the place of Delta's, without which MERGE and DELETE fail."""
    ours = BASE_CONF[EXTENSIONS]
    names = dict.fromkeys([ours, *conf.get(EXTENSIONS, "").split(",")])
    return {**conf, EXTENSIONS: ",".join(filter(None, names))}


def jars_beside_deltas(conf: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """`spark.jars` of the site and of the configuration, which would take the place of Delta's, and what else it has."""
    others = {name: value for name, value in conf.items() if name != JARS}
    return [jar for jar in conf.get(JARS, "").split(",") if jar], others


def with_master(master: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The settings with `spark.master`, which `master` comes over, and what a driver needs that has no executors elsewhere."""
    chosen = master or conf.get("spark.master") or "local[*]"
    local = LOCAL_CONF if chosen.startswith("local") else {}
    if local and not chosen.startswith("local-cluster"):
        local = {**local, **IN_ONE_PROCESS_CONF}
    return {**local, **conf, "spark.master": chosen}


def jvm_variables(master: str) -> dict[str, str]:
    """Of the JVM for this master. Spark's web UI, which asks for no password, listens on all addresses else, whatever
    `spark.driver.bindAddress` says."""
    return {"SPARK_LOCAL_IP": LOCAL_CONF["spark.driver.bindAddress"]} if master.startswith("local") else {}


def build_session(
    *, pools: Iterable[Pool], app_name: str = "backfill_manager", master: str | None = None, warehouse: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:  # fmt: skip
    """A session with Delta, fair pools and UTC. `master=None` takes what spark-submit gave, else `local[*]`. `InvalidConfig` when
    Spark refuses to start with these settings."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    pools = list(pools)
    jars, conf = jars_beside_deltas(with_site_lists(conf or {}))
    with tempfile.NamedTemporaryFile("w", prefix="bfm-pools-", suffix=".xml", encoding="utf-8") as pools_file:
        pools_file.write(fair_scheduler_xml(pools))
        pools_file.flush()  # Spark reads it when it starts, and never again
        allocation_file = Path(pools_file.name).as_uri()
        settings = {**BASE_CONF, **query_thread_conf(pools), ALLOCATION_FILE: allocation_file}
        is_submitted = os.environ.get("SPARK_ENV_LOADED") or "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit
        if not is_submitted:
            java()
            if problem := problem_of_spark_home():
                raise InvalidConfig(f"{problem}. Unset SPARK_HOME, or let it name the Spark of PySpark's version.")
            conf = with_master(master, conf)
            settings |= {
                # Else jobs/spark_driver.py has named them.
                JARS: ",".join([*spark_jars(warehouse or ""), *jars]),
                "spark.ui.enabled": "false",
                "spark.sql.ui.explainMode": "simple",
            }
        if warehouse:
            settings |= {"spark.sql.warehouse.dir": warehouse, **connector_conf(warehouse)}
        settings |= with_deltas_extension({**conf, **(_given_at_submit(conf) if is_submitted else {})})
        _check(settings, is_ours_of_pools=settings[ALLOCATION_FILE] == allocation_file)
        try:
            with our_log_settings(), _set_meanwhile(jvm_variables(conf.get("spark.master", ""))):
                spark = SparkSession.builder.appName(app_name).config(map=settings).getOrCreate()
        except (Py4JError, PySparkException, ConnectionError) as error:
            has_ended = isinstance(error, Py4JNetworkError | ConnectionError)
            reason = "its JVM has ended, after what it said above" if has_ended else one_line(error).rstrip(".")
            raise InvalidConfig(
                f"Spark does not start: {reason}. Correct `spark` in the configuration file, the options of spark-submit, or "
                "spark-defaults.conf in Spark's conf folder."
            ) from error
    spark.sparkContext.setLogLevel("ERROR")
    silence_query_loggers()
    logging.getLogger().addFilter(is_not_of_py4j)
    return spark


def _given_at_submit(configured: Mapping[str, str]) -> dict[str, str]:
    """What jobs/spark_driver.py has given spark-submit: ours, the configuration's, and a person's options, which count most. Of a
    spark-submit by itself the extensions alone, which the configuration adds to."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # its environment alone: the JVM is still to be started
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # else the configuration is an empty one
    given = dict(SparkConf().getAll())
    if "BFM_SUBMITTER_PID" in os.environ:
        return given
    return {EXTENSIONS: ",".join(conf[EXTENSIONS] for conf in (given, configured) if EXTENSIONS in conf)}


def _check(settings: Mapping[str, str], *, is_ours_of_pools: bool) -> None:
    """`InvalidConfig` where results would be wrong; a warning for each thing that tasks will lack."""
    if (zone := settings[TIME_ZONE]) not in UTC_NAMES:
        raise InvalidConfig(
            f"`{TIME_ZONE}` is {zone}, and the sessions of a manager are in UTC, as intervals are: take it out of `spark.conf` "
            "in the configuration file, or of the options of spark-submit. A DAG has its own `timezone`."
        )
    threads = settings[SUBQUERY_THREADS]
    number = int(threads) if threads.isdecimal() else MAX_SUBQUERY_THREADS  # Spark refuses what is no number
    for shortcoming in shortcomings(settings[SCHEDULER].upper(), number):
        log.warning(shortcoming)
    if not is_ours_of_pools:
        log.warning(
            f"pools have slots, but no weights and no min_share: `{ALLOCATION_FILE}` is set, in place of the file that has them"
        )


@contextlib.contextmanager
def our_log_settings() -> Iterator[None]:
    """For a JVM that PySpark starts meanwhile. What a site has in Spark's conf folder, `SPARK_SUBMIT_OPTS` or
    `spark.driver.extraJavaOptions` counts more."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{jvm_log_option(os.environ)} {before or ''}".lstrip()
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("SPARK_SUBMIT_OPTS", None)
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


@contextlib.contextmanager
def _set_meanwhile(variables: Mapping[str, str]) -> Iterator[None]:
    """Those of them that are not set already."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """For the root logger, which py4j gives the traceback of a call that failed on its way; the call raises as well."""
    return Path(record.pathname).parent.name != "py4j"


class SparkProvider:
    """The session of a manager: one that was given, or that this process has already (a Databricks job's), which is left running;
    or one that is built when it is first needed and stopped by `stop`. `InvalidConfig` where there is only Spark Connect."""

    def __init__(self, settings: Settings, given: SparkSession | None = None) -> None:
        refuse_remote(os.environ, settings.spark.conf, given and type(given))
        self._settings, self._given, self._session = settings, given, given
        self._lease_columns: dict[str, Any] = {}

    def get(self, pools: Iterable[Pool] = ()) -> SparkSession:
        """`pools` are those of the state; without any, those of the configuration."""
        if self._session is None:
            self._session = self._given = find_session()
        if self._session is None:
            configured = [Pool(p.name, p.slots, p.weight, p.min_share) for p in self._settings.pools]
            warehouse = self._settings.warehouse
            self._session = build_session(
                pools=list(pools) or configured,
                master=self._settings.spark.master,
                warehouse=str(Path(warehouse).absolute()) if is_local(warehouse) else warehouse,
                conf=self._settings.spark.conf,
            )
        if not self._lease_columns:
            context = self._session.sparkContext
            spark_ui = ui_address(context.uiWebUrl, context.applicationId, dict(context.getConf().getAll()))
            self._lease_columns = {"application_id": context.applicationId, "spark_ui": spark_ui}
        return self._session

    @property
    def is_ours(self) -> bool:
        """It was built here: its JVM serves nobody else."""
        return self._session is not None and self._given is None

    def gone_reason(self) -> str | None:
        """Why Spark is gone; None while it is there, or has not been needed yet."""
        return None if self._session is None else spark_gone_reason(self._session)

    def lease_columns(self) -> dict[str, Any]:
        """Columns of `Manager`. Without a call to the JVM, which may be silent: the lease is kept however long that lasts."""
        return self._lease_columns

    def stop(self) -> None:
        if self._session is not None and self.is_ours:
            with ignore_stopped_context(), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # PySpark warns of a JVM that has ended already
                self._session.stop()


def ui_address(own: str | None, application_id: str, conf: Mapping[str, str]) -> str | None:
    """Where people find the web UI of an application, which listens at `own`. If a site names its reverse proxy: there. Spark has
    the links between its pages begin there, so they lead nowhere from `own`."""
    proxy = conf.get("spark.ui.reverseProxyUrl", "").rstrip("/")
    if own and proxy and conf.get("spark.ui.reverseProxy", "").lower() == "true":
        return f"{proxy}/proxy/{application_id}"
    return own


def lower_jvm_thread_priority(spark: SparkSession) -> None:
    """Where driver and tasks share one machine (`local[...]`), let the JVM's threads be nicer than this process, so that
    no decision waits for a core that a backfill's tasks hold: a scheduled run that comes due beside a saturating backfill
    ends after 1.2 times its idle time instead of 1.8 (tests/bench/test_isolation.py). Only Linux can tell threads apart."""
    if not spark.sparkContext.master.startswith("local"):
        return
    threads = Path(f"/proc/{jvm_pid(spark)}/task")
    if threads.is_dir():
        for thread in threads.iterdir():  # those that they start later take after them
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended; it is another user's
                os.setpriority(os.PRIO_PROCESS, int(thread.name), os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
