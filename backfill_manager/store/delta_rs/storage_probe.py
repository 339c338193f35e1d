"""Finds out whether a storage keeps what fencing rests on: of writers that make one log entry, exactly one succeeds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from backfill_manager.errors import StateError
from backfill_manager.model.records import Request
from backfill_manager.store.delta_rs.log import OF_A_CLIENT, is_lost_race
from backfill_manager.store.sql_text import arrow_table

if TYPE_CHECKING:
    import pyarrow as pa

WRITERS: Final = 4  # two may by chance come one after the other, where a storage looks first and writes then
RACES: Final = 3
ATTEMPTS: Final = 20  # a race that a client wins tells nothing


def check_conditional_put(open_table: Callable[[], DeltaTable], place: str) -> None:
    """`StateError` if more than one of several writers at the same version of `request`, the one table with many writers,
    succeed. Each appends no rows."""
    rows, decided = arrow_table(Request, []), 0
    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in range(ATTEMPTS):
            handles = list(writers.map(lambda _: open_table(), range(WRITERS)))
            if len({handle.version() for handle in handles}) > 1:
                continue
            winners = sum(writers.map(partial(_commits, rows, Barrier(WRITERS)), handles))
            if winners > 1:
                raise StateError(
                    f"The storage of {place} lets two writers make the same commit, so a former leader could not be kept from "
                    "writing: use one with conditional put (`If-None-Match`), as S3, GCS, Azure and local disks have it."
                )
            decided += winners
            if decided == RACES:
                return
    raise StateError(f"The storage of {place} lets no writer commit: of {WRITERS}, exactly one must succeed.")


def _commits(rows: pa.Table, begin: Barrier, handle: DeltaTable) -> bool:
    once = CommitProperties(max_commit_retries=0)
    begin.wait()
    try:
        write_deltalake(handle, rows, mode="append", commit_properties=once, post_commithook_properties=OF_A_CLIENT)
    except DeltaError as error:
        if not is_lost_race(error):
            raise
        return False
    return True
