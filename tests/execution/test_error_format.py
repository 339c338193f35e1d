"""The traceback of a task's error, as its log has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.captured import AnalysisException
from pyspark.sql import SparkSession

import backfill_manager
from backfill_manager.execution.error_format import one_line, traceback_text
from backfill_manager.execution.output.exactly_once_writer import check_arguments
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict


def traceback_of(function: Callable[..., Any], *args: Any) -> str:
    def code_of_a_task() -> None:
        retry_on_conflict(logging.getLogger("task"), "silver.flights")(function, *args)

    try:
        code_of_a_task()
    except Exception as error:  # noqa: BLE001 - whatever the function raises
        return traceback_text(error)
    raise AssertionError("it raises nothing")


def test_an_error_of_this_package_ends_where_the_task_called_it() -> None:
    text = traceback_of(check_arguments, "ctx.write", 5, None)
    frames = [line for line in text.splitlines() if line.startswith("  File ")]
    assert frames[-1].endswith("in code_of_a_task") and "tenacity" not in text and "check_arguments(" not in text
    assert text.endswith(
        "InvalidInput: ctx.write takes a Spark DataFrame, not a int; ctx.spark.createDataFrame makes one"
    )


def test_the_way_to_any_other_error_is_whole() -> None:
    text = traceback_of(len, 5)
    assert "in code_of_a_task" in text and "tenacity" in text and text.endswith("object of type 'int' has no len()")


def test_a_package_whose_name_begins_as_ours_is_the_tasks_code() -> None:
    theirs: dict[str, Any] = {}
    place = f"{Path(backfill_manager.__file__).parent}_dags/etl.py"
    exec(compile("def load(n):\n    check('ctx.write', n, None)\n", place, "exec"), theirs)
    theirs["check"] = check_arguments
    frames = [line for line in traceback_of(theirs["load"], 5).splitlines() if line.startswith("  File ")]
    assert frames[-1].endswith(f'"{place}", line 2, in load')


WRITE_FAILED = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/t."
BAD_VALUE = "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'x5' cannot be cast."
NO_SPACE = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    "below, cause",
    [
        (
            f"Caused by: {WRITE_FAILED}\n\t... 1 more\nCaused by: {BAD_VALUE}\n== DataFrame ==",
            f"; caused by {BAD_VALUE}",
        ),
        (f"Caused by: {NO_SPACE}\n\tSuppressed: a.B: c\n\t\tCaused by: d.E: f", f"; caused by {NO_SPACE}"),
        (f"Caused by: {WRITE_FAILED}\n\t... 1 more", ""),
        ("", ""),
    ],
)
def test_one_line_of_a_java_exception_has_its_root_cause(below: str, cause: str) -> None:
    error = Exception(
        f"An error occurred while calling o744.writeFiles.\n: {WRITE_FAILED}\n\tat org.apache.X.y(X.scala:8)\n{below}"
    )
    assert one_line(error) == f"Exception: {WRITE_FAILED}{cause}"


def test_one_line_of_an_exception_that_spark_only_hands_on_has_its_root_cause(spark: SparkSession) -> None:
    handed_on, cause = (
        "HiveException: Unable to instantiate SessionHiveMetaStoreClient",
        "ERROR XSDB6: Another instance of Derby",
    )
    trace = f"{handed_on}\n\tat org.apache.X.y(X.scala:8)\nCaused by: a.B: c\n\t... 1 more\nCaused by: {cause}\n\t... 9 more"
    assert one_line(AnalysisException(handed_on, trace)) == f"AnalysisException: {handed_on}; caused by {cause}"
    with pytest.raises(AnalysisException) as raised:
        spark.sql("SELECT a FROM VALUES (1) AS t(b)")
    assert "caused by" not in one_line(raised.value)
