"""Rows that are computed once and used several times."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def cached(df: DataFrame) -> Iterator[DataFrame]:
    """The same rows, which Spark keeps when they are first computed. It shares cached rows among all whose plans are the same, as
    those of the next try are; and of rows that a killed process had begun to cache, it waits for the rest for ever. So this
    plan is one that nobody else has."""
    from pyspark.sql import functions as F

    if df.storageLevel.useMemory or df.storageLevel.useDisk:  # by the task itself
        yield df
        return
    mine = df.where(F.lit(secrets.token_hex(16)).isNotNull()).persist()
    try:
        yield mine
    finally:
        mine.unpersist()
