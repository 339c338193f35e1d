"""Whether rows fit into the columns of a table. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


def refuse_untyped(what: str, fields: Sequence[StructField]) -> None:
    """`InvalidInput` for columns in which there is the type that Spark gives to NULL alone: the table's would take no value."""
    names = [field.name for field in fields if '"void"' in json.dumps(field.dataType.jsonValue())]
    if names:
        raise InvalidInput(
            f"{what}: column {', '.join(map(repr, names))} has no type, as it is nothing but NULL; cast it, as in "
            "CAST(NULL AS STRING); nothing was written"
        )


def new_columns(table: StructType, rows: StructType, within: str = "") -> Iterator[str]:
    """Columns, and fields of structs as `column.field`, that the table lacks."""
    from pyspark.sql.types import StructType

    of_table = {field.name.lower(): field.dataType for field in table.fields}
    for field in rows.fields:
        kind = of_table.get(field.name.lower())
        if kind is None:
            yield within + field.name
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            yield from new_columns(kind, field.dataType, f"{within}{field.name}.")


def nullable_fields(
    table: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]], within: str = ""
) -> Iterator[str]:
    """Fields of structs, as `column.field`, that are NOT NULL in the table, and may be NULL in the rows or are not there.
    `table`, `rows`: as the JSON of a schema has them."""
    of_rows = {field["name"].lower(): field for field in rows}
    for field in table:
        given = of_rows.get(field["name"].lower())
        if within and not field["nullable"] and (given is None or given["nullable"]):
            yield within + field["name"]
        elif given is not None and "fields" in field["type"] and "fields" in given["type"]:
            yield from nullable_fields(field["type"]["fields"], given["type"]["fields"], f"{within}{field['name']}.")


def different_types(table: StructType, rows: StructType) -> str:
    of_table = {field.name.lower(): field.dataType for field in table.fields}
    return "; ".join(
        f"column {field.name!r} is {field.dataType.simpleString()} here and "
        f"{of_table[field.name.lower()].simpleString()} in the table"
        for field in rows.fields
        if field.name.lower() in of_table and not _fits(field.dataType, of_table[field.name.lower()])
    )


def _fits(kind: DataType, into: DataType) -> bool:
    """Whether values of this type go into a column of that one as they are; fields that only one struct has, and NULL, do."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructType

    if isinstance(kind, StructType) and isinstance(into, StructType):
        return not different_types(into, kind)
    if isinstance(kind, ArrayType) and isinstance(into, ArrayType):
        return _fits(kind.elementType, into.elementType)
    if isinstance(kind, MapType) and isinstance(into, MapType):
        return _fits(kind.keyType, into.keyType) and _fits(kind.valueType, into.valueType)
    if isinstance(kind, StringType) and isinstance(into, StringType):  # of whatever collation
        return True
    return isinstance(kind, NullType) or kind == into
