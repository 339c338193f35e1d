"""Whether Spark starts with a configuration, writes tables where it says, and runs Python on its workers.

`bfm doctor --thorough` asks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import Refused
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.spark.catalog import hadoop_path
from backfill_manager.execution.spark.session import build_session
from backfill_manager.store.uri import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.settings import Settings

ROWS: Final = 10


def write_and_read_a_table(settings: Settings) -> int:
    """How many rows were read of a Delta table that a session of its own has written into the warehouse; it is deleted again.
    `InvalidConfig` if Spark does not start, `Refused` if it can't write or read there, or has no Python for its workers."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    spark = build_session(
        pools=[], app_name="bfm doctor", master=settings.spark.master, warehouse=settings.warehouse, conf=settings.spark.conf
    )  # fmt: skip
    place = settings.warehouse
    folder = f"{Path(place).expanduser().absolute() if is_local(place) else place}/_bfm_doctor_{os.getpid()}"
    wanted = f"write and read a table in {place}"
    try:
        spark.range(ROWS).write.format("delta").save(folder)
        rows: int = spark.read.format("delta").load(folder).count()
        path, file_system = hadoop_path(spark, folder)
        file_system.delete(path, True)
        wanted = "open its metastore"
        spark.catalog.databaseExists("default")
        wanted = "run Python on its workers (PYSPARK_PYTHON, spark.pyspark.python)"
        run_python_on_a_worker(spark)
    except (PySparkException, Py4JError) as error:
        raise Refused(f"Spark can't {wanted}: {one_line(error)}") from error
    finally:
        spark.stop()
    return rows


def run_python_on_a_worker(spark: SparkSession) -> None:
    from pyspark.sql.functions import udf

    spark.range(1).select(udf(lambda number: number, "long")("id")).collect()
