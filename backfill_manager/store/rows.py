"""Converts records to Arrow and back, for engines with pyarrow. (`delta_rs.sql` does the same with the lighter arro3.)"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import from_micros, micros
from backfill_manager.model.records import Record, columns

if TYPE_CHECKING:
    import pyarrow as pa


MAX_SPANS: Final = 8
WIDE_GAP: Final = 500


def storable(text: str | None) -> str | None:
    """Replaces what is no UTF-8 (half a character in a file name or a program's output): it must not break a whole tick."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def run_seq_spans(rows: Sequence[Record]) -> list[tuple[int, int]]:
    """The `run_seq`s of some rows as a few spans, in order: what a MERGE names, so that all files outside are skipped.

    More than one, because a tick may touch the newest runs and one straggler of long ago; the widest gaps divide them.
    """
    seqs = sorted({int(row.run_seq) for row in rows})  # type: ignore[attr-defined]
    gaps = sorted(((high - low, low) for low, high in pairwise(seqs) if high - low > WIDE_GAP), reverse=True)
    ends = sorted(low for _, low in gaps[: MAX_SPANS - 1])
    begins = [seqs[0], *(seqs[bisect_right(seqs, low)] for low in ends)]
    return list(zip(begins, [*ends, seqs[-1]], strict=True))


def in_predicate(spans: Sequence[tuple[int, int]]) -> str:
    """The spans as SQL over the target `t` of a MERGE."""
    return "(" + " OR ".join(f"(t.run_seq >= {low} AND t.run_seq <= {high})" for low, high in spans) + ")"


def plain_values(rows: Sequence[Record], name: str, kind: type) -> list[Any]:
    """One column: instants as microseconds, text as what UTF-8 can hold."""
    values = [getattr(row, name) for row in rows]
    if kind is datetime:
        return [None if value is None else micros(value) for value in values]
    return [storable(value) for value in values] if kind is str else values


def to_arrow(record: type[Record], rows: Sequence[Record]) -> pa.Table:
    import pyarrow as pa

    from backfill_manager.store.schema import arrow_schema

    schema = arrow_schema(record)
    kinds = columns(record)
    return pa.table(
        {name: pa.array(plain_values(rows, name, kind), schema.field(name).type) for name, (kind, _) in kinds.items()},
        schema=schema,
    )


def python_columns(table: pa.Table) -> list[list[Any]]:
    """Instants as aware datetimes in `timezone.utc`."""
    import pyarrow as pa

    values: list[list[Any]] = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type) and column.type.tz:
            whole = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
            values.append([None if value is None else from_micros(value) for value in whole])
        else:
            values.append(column.to_pylist())
    return values
