"""What a try has written and not committed: files in the table's folder, and what a commit must know about them. No Spark here.

Whether a file belongs to an interval or a partition follows from its statistics in Delta's log, which are bounds: the ends of a
TIMESTAMP are cut to milliseconds, those of a STRING to 32 characters. "across" is the answer whenever they leave it open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal

Place = Literal["inside", "outside", "across"]
EXACT_STRING: Final = 32  # characters of a STRING in the statistics, of which Delta keeps a longer one's beginning only
# The condition by which a whole table is replaced: Delta's overwrite without one removes the table's clustering, and goes by
# what the session says of partitions (`spark.sql.sources.partitionOverwriteMode`).
EVERY_ROW: Final = "true"
_MILLISECOND: Final = timedelta(milliseconds=1)
_INSTANTS: Final = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Replaced:
    """The part of a table that a write replaces: `lower <= column < upper`, or `column = key`."""

    where: str  # for replaceWhere: literals in the column's own type
    column: str
    kind: str  # the type of the column
    name: str  # in messages
    lower: str | None = None  # as the statistics have it, as the next two
    upper: str | None = None
    key: str | None = None

    def place_of(self, file: Mapping[str, Any]) -> Place:
        """Where the rows of a file (the fields of Delta's `add`) lie."""
        try:
            return self._place_of(file)
        except (ValueError, OverflowError):  # a time that Python does not have, such as one of the year 12000
            return "across"

    def _place_of(self, file: Mapping[str, Any]) -> Place:
        found = self._ends_of(file)
        if not isinstance(found, tuple):
            return found
        low, high, has_nulls, is_exact = found
        if self.key is not None:
            key = self._value(self.key)
            if low == high == key and is_exact and not has_nulls:
                return "inside"
            return "outside" if key < low or key > high else "across"
        lower, upper = self._value(self.lower), self._value(self.upper)
        past = high + (_MILLISECOND if self.kind in _INSTANTS else timedelta(days=1))  # no row is there, nor after it
        if low >= lower and past <= upper and not has_nulls:
            return "inside"
        return "outside" if past <= lower or low >= upper else "across"

    def overlaps(self, other: Replaced) -> bool:
        """Whether both may replace the same row; True if it isn't known."""
        if (self.column, self.kind) != (other.column, other.kind) or (self.key is None) != (other.key is None):
            return True
        if self.key is not None:
            return bool(self._value(self.key) == self._value(other.key))  # 7 and 07 are the same number
        mine, its = ([self._value(end) for end in (one.lower, one.upper)] for one in (self, other))
        return bool(mine[0] < its[1] and its[0] < mine[1])

    def _ends_of(self, file: Mapping[str, Any]) -> tuple[Any, Any, bool, bool] | Place:
        """The smallest and the largest value, whether there are NULLs, and whether equal ends are all that is known of them."""
        if self.column in (values := file.get("partitionValues") or {}):
            text = values[self.column]
            if text is None:
                return "outside"
            if text == "" or self.kind in _INSTANTS:  # written in several ways
                return "across"
            return self._value(text), self._value(text), False, True
        statistics = json.loads(file.get("stats") or "{}")
        if statistics.get("numRecords") == 0:
            return "outside"
        nulls = statistics.get("nullCount", {}).get(self.column)
        if nulls is not None and nulls == statistics.get("numRecords"):
            return "outside"
        low, high = (statistics.get(end, {}).get(self.column) for end in ("minValues", "maxValues"))
        if nulls is None or low is None or high is None:
            return "across"
        is_exact = self.kind != "string" or len(low) < EXACT_STRING
        return self._value(low), self._value(high), nulls > 0, is_exact

    def _value(self, value: Any) -> Any:
        if self.kind in _INSTANTS:
            return datetime.fromisoformat(value.replace("Z", "+00:00"))
        if self.kind == "date":
            return date.fromisoformat(value)
        return value if self.kind == "string" else int(value)


@dataclass(frozen=True)
class StagedWrite:
    table: str  # its name, in messages
    identity: str  # see `OutputTable.identity`
    folder: str  # as Hadoop writes it
    table_id: str  # of Delta
    definition: str  # of the table, see `DeltaTransaction.definition`
    files: tuple[str, ...]  # Delta's `add` actions, as JSON
    replaced: Replaced | None  # None: it only adds rows
    transaction: str  # the last three: see `CommitMark`
    generation: int
    metadata: str

    @cached_property
    def added(self) -> list[dict[str, Any]]:
        return [json.loads(action)["add"] for action in self.files]

    @property
    def rows(self) -> int:
        return sum(json.loads(file["stats"])["numRecords"] for file in self.added)

    @property
    def bytes(self) -> int:
        return sum(file["size"] for file in self.added)

    @property
    def is_known_by_statistics(self) -> bool:
        """Whether by its statistics the number of rows of each file is known, and that they lie in the part that is replaced."""
        numbers = (json.loads(file.get("stats") or "{}").get("numRecords") for file in self.added)
        if any(rows is None for rows in numbers):
            return False
        replaced = self.replaced
        return replaced is None or all(replaced.place_of(file) == "inside" or _is_empty(file) for file in self.added)


def _is_empty(file: Mapping[str, Any]) -> bool:
    return bool(json.loads(file["stats"])["numRecords"] == 0)
