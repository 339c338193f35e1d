"""Repairs the damaged files of a state whose tables delta-rs keeps. No manager may lead it meanwhile.

Nothing is thrown away: a damaged file gets the ending `.damaged`, which no reader looks for (of a table's data files, vacuum
deletes it later).
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill_manager.model.records import TABLES
from backfill_manager.store.delta_rs.damage import LAST_CHECKPOINT, LOG, Damage, TableFiles
from backfill_manager.store.delta_rs.tables import DeltaRsTables


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
