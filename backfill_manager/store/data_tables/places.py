"""Where rows of a data table lie along one column of it: as numbers, for each file and for each file that a commit has changed.

Places are numbers along the column, whatever its type: epoch micros of a TIMESTAMP, micros of the reading of a TIMESTAMP_NTZ, of
a DATE those of its midnight. Statistics are bounds: the ends of a TIMESTAMP are cut to milliseconds by Spark, so a value may lie
up to a millisecond after the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
FIRST: Final = -(2**62)  # before every value, as the next is after it: of a file of which nothing is known
PAST: Final = 2**62
TIME_TYPES: Final = ("timestamp", "timestamp_ntz", "date")
_MILLISECOND: Final = 1000
DAY: Final = 86_400_000_000
NO_NUMBERS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Files:
    """Files of a table: `first <= value < past` holds for the column in all their rows where it is not null."""

    first: Numbers = field(default_factory=lambda: NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: NO_NUMBERS)
    rows: Numbers = field(default_factory=lambda: NO_NUMBERS)  # whose value is not null; -1: not known
    paths: pa.Array | None = None  # None: their rows are not to be read, as some may have been deleted since
    # by name, of files with deleted rows: which are left
    kept: Mapping[str, pa.BooleanArray] = field(default_factory=dict)

    def where(self, chosen: Flags) -> Files:
        paths = None if self.paths is None else self.paths.filter(chosen)
        return Files(self.first[chosen], self.past[chosen], self.rows[chosen], paths, self.kept)


@dataclass(frozen=True)
class Changes:
    """Files that commits have added or removed, with rows that came or went: one element for each, and for each interval to
    which such a commit confines its changes, in the order of versions."""

    version: Numbers = field(default_factory=lambda: NO_NUMBERS)
    first: Numbers = field(default_factory=lambda: NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: NO_NUMBERS)
    is_ours: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_placed: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))  # False: where its rows lie is not known
    # Of a revert the first version that it has undone: who has read one before it has what is there again. Else 0.
    undoes_from: Numbers = field(default_factory=lambda: NO_NUMBERS)

    def where(self, chosen: Flags | Numbers) -> Changes:
        return Changes(*(values[chosen] for values in vars(self).values()))


def numbers_of(values: pa.ChunkedArray | pa.Array, null: int) -> Numbers:
    found: Numbers = np.asarray(pc.fill_null(values, null).cast(pa.int64()), np.int64)
    return found


def micros_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(values.type):
        # There is no cast from days to microseconds of the same kind in all releases.
        values = values.cast(pa.timestamp("s"))
    return values.cast(pa.timestamp("us", tz=getattr(values.type, "tz", None))).cast(pa.int64())


def step_after(last: Numbers, *, is_date: bool) -> Numbers:
    """From the last value that is known to where there is none any more: Spark cuts to whole milliseconds, delta-rs does not."""
    found: Numbers = np.where(is_date, DAY, np.where(last % _MILLISECOND == 0, _MILLISECOND, 1))
    return found


def places_of(texts: pa.ChunkedArray | pa.Array, kind: str) -> tuple[Numbers, Flags]:
    """Places of values as a log writes them, and which are known: not those that are missing, or that Arrow has no time for."""
    if kind == "date":
        days = pc.if_else(pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d$"), texts, None).cast(pa.date32())
        return numbers_of(days.cast(pa.int32()), 0) * DAY, np.asarray(pc.is_valid(days))
    is_time = pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?$")
    has_zone = pc.match_substring_regex(texts, r"(Z|:\d\d(\.\d+)?[+-]\d\d:?\d\d)$")
    zoned = pc.if_else(pc.and_(is_time, has_zone), texts, None).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    naive = pc.if_else(pc.and_not(is_time, has_zone), texts, None).cast(pa.timestamp("us")).cast(pa.int64())
    instants = pc.coalesce(zoned, naive)
    return numbers_of(instants, 0), np.asarray(pc.is_valid(instants))
