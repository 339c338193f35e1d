"""A Spark session that is there already: that of a Databricks job or of a notebook. It is used as it is, and left running.

What a manager needs of it can't be set any more once Spark runs, so it is checked at the start, each in one line. The decisions
are functions over plain values: Spark Connect's client, of which one of them speaks, is no dependency of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.errors import InvalidConfig
from backfill_manager.logging import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger("spark")

TIME_ZONE: Final = "spark.sql.session.timeZone"
SCHEDULER: Final = "spark.scheduler.mode"
SUBQUERY_THREADS: Final = "spark.sql.subquery.maxThreadThreshold"
UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
_IS_REMOTE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # as PySpark itself looks


def why_remote(environ: Mapping[str, str], conf: Mapping[str, str], session: type | None = None) -> str | None:
    """What makes sessions of this process those of Spark Connect; None where they have a SparkContext. `session`: the type of one
    that is there."""
    if found := next((name for name in _IS_REMOTE if name in environ), None):
        return f"{found} is set"
    if "spark.remote" in conf:
        return "spark.remote is set"
    if (conf.get("spark.api.mode") or environ.get("SPARK_API_MODE", "")).lower() == "connect":
        return "Spark's API mode is `connect`"
    if session is not None and session.__module__.startswith("pyspark.sql.connect"):
        return "the session that is there is one of its clients"
    return None


def refuse_remote(environ: Mapping[str, str], conf: Mapping[str, str], session: type | None = None) -> None:
    """`InvalidConfig` where Spark would be used over Spark Connect."""
    if reason := why_remote(environ, conf, session):
        raise InvalidConfig(
            f"Spark Connect has no SparkContext, in whose pools a manager runs its tasks ({reason}). On Databricks, standard and "
            "serverless compute are that: use a job cluster with dedicated access mode (data_security_mode: SINGLE_USER). "
            "Elsewhere unset SPARK_REMOTE, or use another master."
        )


def problem_of(time_zone: str) -> str | None:
    """Why results of a session with this time zone would be wrong; None if they are right."""
    if time_zone in UTC_NAMES:
        return None
    return (
        f"The Spark session that is there has the time zone {time_zone}, and intervals are in UTC: set `{TIME_ZONE} UTC` where "
        "this Spark is configured (the cluster's Spark settings, spark-defaults.conf)."
    )


def shortcomings(scheduler: str, subquery_threads: int) -> list[str]:
    """What tasks will lack in a session with these settings."""
    found, where = [], "where this Spark is configured"
    if scheduler != "FAIR":
        found.append(f"pools have slots, but no weights and no min_share: set `{SCHEDULER} FAIR` {where}")
    if subquery_threads < 128:
        found.append(
            f"{subquery_threads} tasks at once whose queries have a subquery in a subquery may wait for each other for ever: "
            f"set `{SUBQUERY_THREADS} 128` {where}"
        )
    return found


def find_session() -> SparkSession | None:
    """The session of a SparkContext that this process has already; None where there is none. `InvalidConfig` if a manager can't
    use it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    session: Any = SparkSession.getActiveSession() or SparkSession(SparkContext._active_spark_context)
    if problem := problem_of(str(session.newSession().conf.get(TIME_ZONE))):  # tasks have sessions of their own
        raise InvalidConfig(problem)
    mode = session.sparkContext.getConf().get(SCHEDULER, "FIFO")
    for shortcoming in shortcomings(str(mode), int(session.conf.get(SUBQUERY_THREADS, "16"))):
        log.warning(shortcoming)
    log.info("using the Spark session that is there", application_id=session.sparkContext.applicationId)
    return session
