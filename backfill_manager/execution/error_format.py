"""An exception as one line for the tables and as a traceback for the log, both without secrets."""

from __future__ import annotations

import logging
import os
import re
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import BackfillManagerError, error_message
from backfill_manager.masking import Known, mask_text

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

MAX_ERROR_CHARS: Final = 500
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
_CAUSE: Final = re.compile("^Caused by: (.*)", re.MULTILINE)  # those of suppressed exceptions are indented
_NO_CONDITION: Final = "_LEGACY_ERROR_TEMP"  # of Spark, for an exception that it has no message for
_OF_RETRIES: Final = ("/tenacity/", "/concurrent/futures/")


def one_line(error: BaseException, known: tuple[Known, ...] = ()) -> str:
    """`ValueError: no flights on this day`: the type and the first line of the message. `known` is masked before it is cut. Of a
    Java exception it has the root cause, too: Spark says "Task failed while writing rows" of a full disk and of a bad value."""
    text = mask_text(error_message(error), known)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    java_trace = ""
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines[0] = lines[1].removeprefix(": ")  # Py4J: the second line has the Java exception
        java_trace = text
    elif lines and lines[0].startswith("An exception was thrown from the Python worker"):
        lines[0] = lines[-1]  # of a function on a worker: its traceback ends with the exception
    elif lines and (getattr(error, "getCondition", str)() or _NO_CONDITION).startswith(_NO_CONDITION):
        java_trace = mask_text(getattr(error, "_stackTrace", ""), known)  # as of a metastore that can't be reached
    causes = _CAUSE.findall(java_trace)
    if causes and causes[-1] not in lines[0]:
        lines[0] += f"; caused by {causes[-1]}"
    parts = [] if isinstance(error, BackfillManagerError) and lines else [type(error).__name__]
    line = ": ".join(parts + lines[:1])
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 4]} ..."


def unbound_parameter(error: AnalysisException) -> str:
    """The parameter that a statement uses and that has no value. Raises any other error again."""
    if error.getCondition() != "UNBOUND_SQL_PARAMETER":
        raise error
    name: str = (error.getMessageParameters() or {}).get("name", "?").strip("`")
    return name


def silence_query_loggers() -> None:
    """PySpark prints a page of JSON for every failed query before it raises; the exception is enough."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).disabled = True


def traceback_text(error: BaseException) -> str:
    """The traceback from the task's own code on, without the frames of this package (and of its retries) that led there. That of
    one of this package's errors, whose message says all, ends where the task's code called it."""
    described = traceback.TracebackException(type(error), error, error.__traceback__)
    own = [number for number, frame in enumerate(described.stack) if not _is_of_this_package(frame.filename)]
    if own:
        end = own[-1] + 1 if isinstance(error, BackfillManagerError) else len(described.stack)
        described.stack = traceback.StackSummary.from_list(described.stack[own[0] : end])
    else:
        described.stack = traceback.StackSummary.from_list(described.stack[-1:])
    return mask_text("".join(described.format())).rstrip()


def _is_of_this_package(file: str) -> bool:
    return file.startswith(_PACKAGE) or any(folder in file for folder in _OF_RETRIES)
