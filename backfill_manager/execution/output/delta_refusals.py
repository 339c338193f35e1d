"""What Delta refuses a write for, in one line that says what to do: a constraint that the rows violate, and what the table does
not take whatever the rows are. The second is not retried; rows may be others the next time, as after a check that fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from backfill_manager.errors import BackfillManagerError, ChecksFailed, InvalidInput

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
def named_refusals(call: str) -> Iterator[None]:
    """`InvalidInput` or `ChecksFailed` for what Delta refuses meanwhile; other errors stay as they are."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        for pattern, kind, message in _REFUSALS:
            if (found := re.search(pattern, text, re.MULTILINE)) is not None:
                parts = [_example(part) if part.lstrip().startswith("- ") else part for part in found.groups()]
                raise kind(f"{call}: {message.format(*parts)}; nothing was written") from None
        raise


def _example(lines: str) -> str:
    """Of ` - column : value` for each column of a row."""
    values = [re.sub(r"^- (.*?) : ", r"\1 = ", line.strip()) for line in lines.strip().splitlines()]
    return f" (for example {', '.join(values)})"
