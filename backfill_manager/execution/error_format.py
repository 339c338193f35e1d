"""An exception becomes one line for the tables, and a traceback for the log, both without secrets; and: was it Spark that
went away?"""

from __future__ import annotations

import contextlib
import errno
import signal
import subprocess
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import BackfillManagerError, error_message
from backfill_manager.masking import mask_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ERROR_CHARS: Final = 500
TIME_TO_END_S: Final = 5.0  # of a JVM that does not answer, to tell how it ended
CALLS_THAT_PROVE: Final = 3  # in vain, one after another: then the JVM is gone
_HERE: Final = str(Path(__file__).parent)


def one_line(error: BaseException) -> str:
    """`ValueError: no flights on this day`: the type and the first line of what it says."""
    text = mask_environment(error_message(error)).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        lines[0] = lines[1].removeprefix(": ")  # Py4J: the second line has the Java exception
    said = lines[0] if lines else ""
    if isinstance(error, BackfillManagerError):
        line = said or type(error).__name__
    else:
        line = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 4]} ..."


def traceback_text(error: BaseException) -> str:
    """The traceback from the task's own code on; the frames that led there are ours and tell nothing."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE) and frames.tb_next is not None:
        frames = frames.tb_next
    return mask_environment("".join(traceback.format_exception(type(error), error, frames))).rstrip()


def spark_gone_reason(spark: SparkSession) -> str | None:
    """Why there is no Spark behind this session any more, in half a sentence; None while there is. Two calls to the JVM.

    A call that fails proves little (this process may be out of file descriptors, one connection may have broken off), so it
    is repeated before the JVM is taken for dead."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    java_context = context._jsc
    if java_context is None:
        return "its SparkContext was stopped"
    jvm = getattr(context._gateway, "proc", None)  # the process, if PySpark started it
    failed: Exception | None = None
    for _ in range(CALLS_THAT_PROVE):
        try:
            return "its SparkContext was stopped" if java_context.sc().isStopped() else None
        except (Py4JError, OSError) as error:
            if _is_out_of_descriptors(error):
                return None
            failed = error
    if jvm is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its connections end before the process does
            return f"its JVM (pid {jvm.pid}) has ended with {_exit(jvm.wait(TIME_TO_END_S))}"
    return f"its JVM does not answer ({one_line(failed)})" if failed else None


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


def _is_out_of_descriptors(error: BaseException | None) -> bool:
    """Anywhere in the chain: Py4J tells a connection that could not be made by an error of its own."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return False
