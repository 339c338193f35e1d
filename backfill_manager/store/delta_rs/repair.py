"""Repairs the damaged files of a state whose tables delta-rs keeps. No manager may lead it meanwhile.

Nothing is thrown away: a damaged file gets the ending `.damaged`, which no reader looks for (of a table's data files, vacuum
deletes it later).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from deltalake import CommitProperties, write_deltalake

from backfill_manager.humanise import plural
from backfill_manager.model.records import TABLES, Record, columns
from backfill_manager.store.base import matching
from backfill_manager.store.delta_rs.damage import LAST_CHECKPOINT, LOG, Damage, TableFiles
from backfill_manager.store.delta_rs.tables import DeltaRsTables, run
from backfill_manager.store.filters import checked, records_of
from backfill_manager.store.sql_text import arrow_table, predicate, python_columns, select
from backfill_manager.store.wrong_rows import Wrong, corrected, place_columns

AT_ONCE: Final = 1_000  # values that one statement names


def repair(tables: DeltaRsTables, damages: Sequence[Damage]) -> None:
    """Repairs those that can be; `damages` are what `damages_of` has found now."""
    for table in dict.fromkeys(damage.table for damage in damages if damage.can_be_repaired):
        of_table = [damage for damage in damages if damage.table == table]
        if all(damage.can_be_repaired for damage in of_table):
            with tables.translate_errors(table, "repaired"):
                _repair_table(tables, table, of_table)
    tables.forget()


def _repair_table(tables: DeltaRsTables, table: str, damages: Sequence[Damage]) -> None:
    kinds = {damage.kind for damage in damages}
    if "table" in kinds:
        tables.create(TABLES[table])
        return
    files = TableFiles(tables, table)
    for damage in damages:
        if damage.kind in ("last entry", "checkpoint") or (damage.kind == "data" and damage.file in files.sizes()):
            files.set_aside(damage.file)
    if kinds & {"checkpoint", "last checkpoint"} and "_last_checkpoint" in files.sizes(LOG):
        files.delete(LAST_CHECKPOINT)
    if "checkpoint" in kinds:
        tables.open(table, may_be_older=True).create_checkpoint()
    if "data" in kinds:
        tables.open(table, may_be_older=True).repair(dry_run=False)


def rewrite_rows(tables: DeltaRsTables, record: type[Record], wrong: Sequence[Wrong]) -> Iterator[str]:
    """Says what was done. Each commit replaces all rows around some wrong ones at once, and fails if they have changed since."""
    first = place_columns(record)[0]
    values = sorted({place[0] for one in wrong for place in one.places})
    dropped = emptied = 0
    for begin in range(0, len(values), AT_ONCE):
        where = predicate(checked(record, matching(**{first: values[begin : begin + AT_ONCE]})))
        with tables.translate_errors(record.TABLE, "repaired"):
            handle, names = tables.open(record.TABLE), list(columns(record))
            found = run({record.TABLE: handle}, select(record.TABLE, names, where))
            rows = records_of(record, names, python_columns(found))
            kept = corrected(record, rows)
            write_deltalake(
                handle, arrow_table(record, kept), mode="overwrite", predicate=where,
                commit_properties=CommitProperties(max_commit_retries=0),
            )  # fmt: skip
        dropped += len(rows) - len(kept)
        emptied += len(set(kept) - set(rows))
    tables.forget()
    if dropped:
        keys = next(len(one.places) for one in wrong if one.column is None)
        yield f"Repaired: {record.TABLE}: {plural(keys, 'key')} had several rows; the newest is kept, {dropped:,} deleted."
    if emptied:
        names = [one.column for one in wrong if one.column is not None]
        yield f"Repaired: {record.TABLE}: {' and '.join(names)} that was no JSON is null in {plural(emptied, 'row')}."
