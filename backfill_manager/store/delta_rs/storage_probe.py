"""Finds out whether a storage keeps what fencing rests on: of two writers that make one log entry, exactly one succeeds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from backfill_manager.errors import StateError
from backfill_manager.model.records import Request
from backfill_manager.store.delta_rs.log import OF_A_CLIENT, is_lost_race
from backfill_manager.store.sql_text import arrow_table

RACES: Final = 3  # two writers may by chance come one after the other, where a storage looks first and writes then
ATTEMPTS: Final = 20  # a race that a client wins tells nothing


def check_conditional_put(open_table: Callable[[], DeltaTable], place: str) -> None:
    """`StateError` if both of two writers at the same version of `request`, the one table with many writers, succeed. Each
    appends no rows."""
    decided = 0
    for _ in range(ATTEMPTS):
        handles = [open_table(), open_table()]
        if handles[0].version() != handles[1].version():
            continue
        with ThreadPoolExecutor(len(handles)) as writers:
            winners = sum(writers.map(_commits, handles))
        if winners == len(handles):
            raise StateError(
                f"The storage of {place} lets two writers make the same commit, so a former leader could not be kept from "
                "writing: use one with conditional put (`If-None-Match`), as S3, GCS, Azure and local disks have it."
            )
        decided += winners
        if decided == RACES:
            return
    raise StateError(f"The storage of {place} lets no writer commit: of two, exactly one must succeed.")


def _commits(handle: DeltaTable) -> bool:
    once = CommitProperties(max_commit_retries=0)
    try:
        rows = arrow_table(Request, [])
        write_deltalake(handle, rows, mode="append", commit_properties=once, post_commithook_properties=OF_A_CLIENT)
    except DeltaError as error:
        if not is_lost_race(error):
            raise
        return False
    return True
