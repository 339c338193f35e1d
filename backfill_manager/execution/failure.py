"""An exception becomes one line for the tables, and a traceback for the log, both without secrets; and: was it Spark that
went away?"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import BackfillManagerError, said_by
from backfill_manager.telemetry import hide_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ERROR_CHARS: Final = 500
_HERE: Final = str(Path(__file__).parent)


def one_line(error: BaseException) -> str:
    """`ValueError: no flights on this day`: the type and the first line of what it says."""
    text = hide_secrets(said_by(error)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines[0] = lines[1].removeprefix(": ")  # Py4J: the second line has the Java exception
    said = lines[0] if lines else ""
    if isinstance(error, BackfillManagerError):
        line = said or type(error).__name__
    else:
        line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 4]} ..."


def told_in_full(error: BaseException) -> str:
    """The traceback from the task's own code on; the frames that led there are ours and tell nothing."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE) and frames.tb_next is not None:
        frames = frames.tb_next
    return hide_secrets("".join(traceback.format_exception(type(error), error, frames))).rstrip()


def spark_is_gone(spark: SparkSession) -> bool:
    """True when there is no Spark behind this session any more: stopped, or its JVM has died."""
    from py4j.protocol import Py4JError

    java_context = spark.sparkContext._jsc
    if java_context is None:
        return True
    try:
        return bool(java_context.sc().isStopped())
    except (Py4JError, OSError):
        return True
