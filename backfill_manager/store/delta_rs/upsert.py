"""Updates rows by key and inserts the others, in one commit, where they lie close together: what almost every tick does.

delta-rs' MERGE plans a join with a case for each column, and costs the same for ten rows as for a thousand. Here the rows of the
`run_seq`s in question are read, those that have a new form are left out, and the span is overwritten with the rest and the new
rows: about two thirds of the CPU, and less where the files are large. A span in which few rows change is left to MERGE, which
does not touch the files between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from arro3.core import Array, DataType, RecordBatch, Table
from deltalake import CommitProperties, DeltaTable, write_deltalake

from backfill_manager.model.records import Record, columns
from backfill_manager.store.delta_base import run_seq_spans
from backfill_manager.store.delta_rs.tables import run
from backfill_manager.store.sql_text import arrow_table, select

NARROW_GAP: Final = 20  # run_seqs between two rows that are rewritten with them
MAX_WIDTH_PER_SEQ: Final = 8  # run_seqs that are rewritten, for each that has changed; beyond, MERGE touches less


def narrow_spans(rows: Sequence[Record]) -> list[tuple[int, int]] | None:
    """The spans of `run_seq` to overwrite; None where the rows lie too far apart."""
    spans = run_seq_spans(rows, NARROW_GAP)
    width = sum(high - low + 1 for low, high in spans)
    seqs = len({row.run_seq for row in rows})  # type: ignore[attr-defined]
    return spans if width <= MAX_WIDTH_PER_SEQ * seqs else None


def overwrite_spans(
    handle: DeltaTable, record: type[Record], rows: Sequence[Record], spans: Sequence[tuple[int, int]], commit: CommitProperties
) -> None:  # fmt: skip
    """From a handle that stands still this is a compare-and-swap, as MERGE is: both read and commit are of its version."""
    where = " OR ".join(f"(run_seq >= {low} AND run_seq <= {high})" for low, high in spans)
    new = arrow_table(record, rows)
    held = run({record.TABLE: handle}, select(record.TABLE, columns(record), where))
    batches = [*new.to_batches(), *_without(held, record, {row.key for row in rows}, new.schema)]
    merged = Table.from_batches(batches, schema=new.schema)
    write_deltalake(handle, merged, mode="overwrite", predicate=where, commit_properties=commit)


def _without(held: Table, record: type[Record], keys: set[tuple[Any, ...]], schema: Any) -> Iterator[RecordBatch]:
    for batch in held.to_batches():
        there = zip(*(batch.column(name).to_pylist() for name in record.KEY), strict=True)
        left = [at for at, key in enumerate(there) if key not in keys]
        if left:
            kept = Table.from_batches([batch.take(Array(left, DataType.uint32()))])
            plain = [kept.column(field.name).cast(field.type) for field in schema]  # DataFusion gives string views
            yield from Table.from_arrays(plain, schema=schema).to_batches()
