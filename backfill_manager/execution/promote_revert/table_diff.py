"""How the rows of two versions of a table differ: those of a table and those of a preview's clone. Each row is read once.

By a key: rows are added, removed or changed, and of each column is counted in how many rows it differs, with examples. Without
one the sides are compared as multisets: rows that occur more often on one side are added or removed.

Both are one aggregation over the two sides together, so floats (NaN is NaN), NULLs and repeated rows are compared as GROUP BY
does. Maps, which it does not take, are compared by their sorted entries; maps within others by their JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.output.staged_write import Replaced
from backfill_manager.execution.promote_revert.preview_parts import instants, label
from backfill_manager.masking import mask_values
from backfill_manager.store.sql_guard import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

EXAMPLES: Final = 5  # of each kind
MAX_PARTS: Final = 400  # that are counted one by one; more are taken together
_SIDE, _PART, _OLD, _NEW = "__bfm_side", "__bfm_part", "__bfm_old", "__bfm_new"
_ROW: Final = "__bfm_row"


@dataclass
class TableDiff:
    key: list[str]  # empty: compared as multisets
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    columns: list[dict[str, Any]] = field(default_factory=list)  # {"name", "rows", "examples": [{"key", "old", "new"}]}
    intervals: list[dict[str, Any]] = field(default_factory=list)  # those with a difference, in order
    examples: dict[str, list[Any]] = field(default_factory=dict)  # of rows that were added, and removed

    def without_secrets(self, known: tuple[str, ...]) -> TableDiff:
        """As people are shown it: values of columns that are named like secrets, and `known` ones, are masked."""

        def masked(example: dict[str, Any], column: str) -> dict[str, Any]:
            return {name: mask_values(value, "" if name == "key" else column, known) for name, value in example.items()}

        examples = ([masked(example, one["name"]) for example in one["examples"]] for one in self.columns)
        columns = [{**one, "examples": found} for one, found in zip(self.columns, examples, strict=True)]
        return replace(self, columns=columns, examples=mask_values(self.examples, more=known))


def schema_changes(old: StructType, new: StructType) -> list[dict[str, str | None]]:
    """Columns that only one side has, or that have another type."""
    before, after = ({f.name: f.dataType.simpleString() for f in one.fields} for one in (old, new))
    types = {name: (before.get(name), after.get(name)) for name in (*before, *after)}
    return [{"column": name, "old": old, "new": new} for name, (old, new) in types.items() if old != new]


def same_rows(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have the same rows, each as often, and the same columns."""
    if schema_changes(one.schema, other.schema):
        return False
    found = diff(one, other, [], [])
    return found.added == found.removed == 0


def diff(old: DataFrame, new: DataFrame, key: Sequence[str], parts: Sequence[Replaced]) -> TableDiff:
    """`parts`: by which differences are counted, too. `InvalidInput` for a key that a side does not have, or has twice."""
    from pyspark.sql import functions as F

    shared = [one for one in new.schema.fields if one.name in old.columns]
    _check_key(key, [one.name for one in shared])
    key = [next(one.name for one in shared if one.name.lower() == name.lower()) for name in key]
    values = [one.name for one in shared if one.name not in key]
    sides = [_side(one, number, shared, parts) for number, one in enumerate((old, new))]
    rows = sides[0].unionByName(sides[1])
    grouped = _by_key(rows, key) if key else _as_multisets(rows, [one.name for one in shared])
    of_row = enumerate(key or [one.name for one in shared])
    row = F.struct(*(F.col(identifier(f"{_ROW}{n}")).alias(name) for n, name in of_row))
    counts = {
        "added": F.sum("added"), "removed": F.sum("removed"), "changed": F.sum("changed"), "same": F.sum("same"),
        "repeated": F.sum(F.col("repeated").cast("bigint")),
        **{kind: F.first(F.when(F.col(by), F.to_json(row)), ignorenulls=True) for kind, by in _EXAMPLES.items()},
    }  # fmt: skip
    for n in range(len(values) if key else 0):
        differs = F.col(f"differs{n}")
        values_of_both = F.col(f"{_OLD}.c{n}").alias("old"), F.col(f"{_NEW}.c{n}").alias("new")
        example = F.to_json(F.struct(row.alias("key"), *values_of_both))
        counts[f"rows{n}"] = F.sum(differs.cast("bigint"))
        counts[f"example{n}"] = F.first(F.when(differs, example), ignorenulls=True)
    found = grouped.groupBy(_PART).agg(*(column.alias(name) for name, column in counts.items())).collect()
    return _result(sorted((one.asDict() for one in found), key=lambda one: one[_PART]), list(key), values, parts)


_COUNTED: Final = ("added", "removed", "changed", "same")
_EXAMPLES: Final = {"an_added": "is_added", "a_removed": "is_removed", "a_repeated": "repeated"}


def _side(rows: DataFrame, number: int, columns: Sequence[Any], parts: Sequence[Replaced]) -> DataFrame:
    from pyspark.sql import functions as F

    part: Column = F.lit(-1)
    if parts:
        cases = F
        for n, one in enumerate(parts):
            cases = cases.when(F.expr(one.where), n)
        part = cases.otherwise(-1)
    types = {one.name.lower(): one.dataType for one in rows.schema.fields}
    names = [one.name for one in columns]
    compared = [_comparable(F.col(identifier(name)), types[name.lower()]).alias(name) for name in names]
    return rows.select(*compared, part.cast("int").alias(_PART), F.lit(number).alias(_SIDE))


def _by_key(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    values = [name for name in rows.columns if name not in (*key, _PART, _SIDE)]
    numbered = [F.col(identifier(name)).alias(f"c{n}") for n, name in enumerate(values)]
    whole = F.struct(*numbered, F.lit(1).alias("there"))
    sides = [
        part
        for side, name in enumerate((_OLD, _NEW))
        for part in (
            F.sum((F.col(_SIDE) == side).cast("bigint")).alias(f"{name}_n"),
            F.first(F.when(F.col(_SIDE) == side, whole), ignorenulls=True).alias(name),
            F.first(F.when(F.col(_SIDE) == side, F.col(_PART)), ignorenulls=True).alias(f"{name}_part"),
        )
    ]
    keys = [F.col(identifier(name)).alias(f"{_ROW}{n}") for n, name in enumerate(key)]
    grouped = rows.groupBy(*keys).agg(*sides)
    added, removed = F.col(f"{_OLD}_n") == 0, F.col(f"{_NEW}_n") == 0
    both = ~added & ~removed
    differ = [both & ~F.col(f"{_OLD}.c{n}").eqNullSafe(F.col(f"{_NEW}.c{n}")) for n in range(len(values))]
    changed = F.lit(False)
    for one in differ:
        changed = changed | one
    return grouped.select(
        *(f"{_ROW}{n}" for n in range(len(key))), _OLD, _NEW,
        F.coalesce(f"{_NEW}_part", f"{_OLD}_part").alias(_PART), added.alias("is_added"), removed.alias("is_removed"),
        added.cast("bigint").alias("added"), removed.cast("bigint").alias("removed"),
        changed.cast("bigint").alias("changed"), (both & ~changed).cast("bigint").alias("same"),
        ((F.col(f"{_OLD}_n") > 1) | (F.col(f"{_NEW}_n") > 1)).alias("repeated"),
        *(one.alias(f"differs{n}") for n, one in enumerate(differ)),
    )  # fmt: skip


def _as_multisets(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as F

    counts = [F.sum((F.col(_SIDE) == side).cast("bigint")).alias(f"n{side}") for side in (0, 1)]
    keys = [F.col(identifier(name)).alias(f"{_ROW}{n}") for n, name in enumerate(columns)]
    grouped = rows.groupBy(_PART, *keys).agg(*counts)
    more, zero = F.col("n1") - F.col("n0"), F.lit(0).cast("bigint")
    return grouped.select(
        *(f"{_ROW}{n}" for n in range(len(columns))), _PART, (more > 0).alias("is_added"), (more < 0).alias("is_removed"),
        F.greatest(more, zero).alias("added"), F.greatest(-more, zero).alias("removed"), zero.alias("changed"),
        F.least("n0", "n1").alias("same"), F.lit(False).alias("repeated"),
    )  # fmt: skip


def _comparable(column: Column, kind: DataType) -> Column:
    """The value as GROUP BY takes it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, VariantType

    if isinstance(kind, MapType) and not _has_map(kind.keyType) and not _has_map(kind.valueType):
        return F.array_sort(F.map_entries(column))
    return F.to_json(F.struct(column.alias("value"))) if _has_map(kind) or isinstance(kind, VariantType) else column


def _has_map(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(one.dataType) for one in kind.fields)
    return isinstance(kind, MapType | VariantType)


def _check_key(key: Sequence[str], columns: Sequence[str]) -> None:
    for name in key:
        if name.lower() not in [one.lower() for one in columns]:
            near = nearest(name, columns) or f"; they have {', '.join(columns)}"
            raise InvalidInput(f"the key {name!r} is no column of both sides{near}")


def _result(found: list[dict[str, Any]], key: list[str], values: list[str], parts: Sequence[Replaced]) -> TableDiff:
    if repeated := sum(one["repeated"] or 0 for one in found):
        example = next(one["a_repeated"] for one in found if one["a_repeated"])
        raise InvalidInput(
            f"the key {', '.join(key)} is not unique: {repeated:,} of its values {'has' if repeated == 1 else 'have'} more than "
            f"one row on a side, such as "
            f"{example}; name more columns (--key), or none to compare whole rows"
        )
    added, removed, changed, same = (sum(one[kind] or 0 for one in found) for kind in _COUNTED)
    result = TableDiff(key, added, removed, changed, same)
    for n, name in enumerate(values if key else ()):
        if rows := sum(one[f"rows{n}"] or 0 for one in found):
            examples = [json.loads(one[f"example{n}"]) for one in found if one[f"example{n}"]][:EXAMPLES]
            result.columns.append({"name": name, "rows": rows, "examples": examples})
    for one in found:
        counts = {kind: one[kind] for kind in ("added", "removed", "changed")}
        if one[_PART] >= 0 and any(counts.values()):
            part = parts[one[_PART]]
            result.intervals.append({"interval": label(part), **instants([part]), **counts})
    for kind, example in (("added", "an_added"), ("removed", "a_removed")):
        result.examples[kind] = [json.loads(one[example]) for one in found if one[example]][:EXAMPLES]
    return result
