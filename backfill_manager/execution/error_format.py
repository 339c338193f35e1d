"""An exception as one line for the tables and as a traceback for the log, both without secrets."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import BackfillManagerError, error_message
from backfill_manager.masking import Known, mask_text

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException

MAX_ERROR_CHARS: Final = 500
_HERE: Final = str(Path(__file__).parent)


def one_line(error: BaseException, known: tuple[Known, ...] = ()) -> str:
    """`ValueError: no flights on this day`: the type and the first line of the message. `known` is masked before it is cut."""
    lines = [line.strip() for line in mask_text(error_message(error), known).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines[0] = lines[1].removeprefix(": ")  # Py4J: the second line has the Java exception
    elif lines and lines[0].startswith("An exception was thrown from the Python worker"):
        lines[0] = lines[-1]  # of a function on a worker: its traceback ends with the exception
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
    """The traceback from the task's own code on, without the frames of this package (and of its retries) that led there."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith(_HERE) and "/tenacity/" not in file:
            break
        frames = frames.tb_next
    return mask_text("".join(traceback.format_exception(type(error), error, frames))).rstrip()
