"""What Delta refuses a write for, in one line that says what to do: a constraint that the rows violate, and what the table does
not take whatever the rows are. The second is not retried; rows may be others the next time, as after a check that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from backfill_manager.clock import format_instant, from_micros
from backfill_manager.errors import BackfillManagerError, ChecksFailed, InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

APPEND_ONLY: Final = "is append-only (delta.appendOnly), so no rows of it can be replaced"
OUTSIDE: Final = "CHECK constraint EXPRESSION("  # by this name Delta checks that rows lie in what replaceWhere replaces
_REFUSALS: Final[tuple[tuple[str, type[BackfillManagerError], str], ...]] = (
    (r"\[DELTA_CANNOT_MODIFY_APPEND_ONLY\]", InvalidInput, f"the table {APPEND_ONLY}; mode='append' adds rows"),
    (
        r"(?:values for GENERATED ALWAYS AS|UPDATE on) IDENTITY column (.+) is not supported", InvalidInput,
        "Delta numbers {0} itself (an identity column); leave it out of the rows",
    ),
    (
        r"Invalid column names: (.+)\.$", InvalidInput,
        "columns of this table can't be named {0}; rename them in the rows, or first make the table with the property "
        "delta.columnMapping.mode = 'name'",
    ),
    (
        r"\[INVALID_SCHEMA_OR_RELATION_NAME\]", InvalidInput,
        "the catalog takes no such name of a table or schema; it consists of letters of ASCII, digits and _",
    ),
    (
        r"\[REQUIRES_SINGLE_PART_NAMESPACE\] (\S+) requires a single-part namespace", InvalidInput,
        "the name has too many parts: the catalog {0} takes schema.table, and no catalog of another name is set in Spark",
    ),
    (
        r"(\S+) is a system preserved database", InvalidInput,
        "{0} is Spark's own schema; take another",
    ),
    (
        r"\[DELTA_PARTITION_COLUMN_NOT_FOUND\] Partition column (.+?) not found", InvalidInput,
        "the rows lack {0}, by which the table is partitioned",
    ),
    (
        r"CHECK constraint Generated Column \((.+)\) violated by row with values:((?:\s+- .*)*)", ChecksFailed,
        "there are rows with another value than Delta computes for a generated column, {0}{1}; leave the column out of the rows",
    ),
    (
        r"CHECK constraint (.+?) \((.+)\) violated by row with values:((?:\s+- .*)*)", ChecksFailed,
        "there are rows that violate the table's CHECK constraint {0}, {1}{2}",
    ),
    (
        r"NOT NULL constraint violated for column: (.+)\.$", ChecksFailed,
        "there are rows without a value in {0}, which is NOT NULL in the table",
    ),
    (
        r"exceeds char/varchar type length limitation\. Failed check: (.+)\.$", ChecksFailed,
        "there are rows with a text that is too long for its column, {0}",
    ),
)  # fmt: skip


@contextmanager
def named_refusals(call: str, rows: DataFrame | None = None) -> Iterator[None]:
    """`InvalidInput` or `ChecksFailed` for what Delta refuses meanwhile; other errors stay as they are. `rows`: those to be
    written, whose types tell what Delta's numbers in an example mean."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        for pattern, kind, message in _REFUSALS:
            if (found := re.search(pattern, text, re.MULTILINE)) is not None:
                parts = [_example(part, rows) if part.lstrip().startswith("- ") else part for part in found.groups()]
                raise kind(f"{call}: {message.format(*parts)}; nothing was written") from None
        raise


def _example(lines: str, rows: DataFrame | None) -> str:
    """Of ` - column : value` for each column of a row."""
    types = {} if rows is None else {name.lower(): of_spark for name, of_spark in rows.dtypes}
    found = re.findall(r"^\s*- (.*?) : (.*)$", lines, re.MULTILINE)
    values = [f"{name} = {_readable(value.strip(), types.get(name.lower()))}" for name, value in found]
    return f" (for example {', '.join(values)})"


def _readable(value: str, of_spark: str | None) -> str:
    """Delta writes dates as days, and timestamps as microseconds, since 1970."""
    if not re.fullmatch(r"-?\d+", value):
        return value
    try:
        if of_spark == "date":
            return str(date(1970, 1, 1) + timedelta(days=int(value)))
        if of_spark in ("timestamp", "timestamp_ntz"):
            text = format_instant(from_micros(int(value))) or value
            return text if of_spark == "timestamp" else text.removesuffix("Z")
    except OverflowError:  # of a year that Python has not
        return value
    return value
