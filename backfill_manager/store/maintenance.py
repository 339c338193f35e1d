"""Housekeeping of delta-rs tables, so that after a million commits the folders hold hundreds of files and not
millions.

Compaction rewrites rows in order through the leader's own handle, as an overwrite: delta-rs' `optimize.compact` is
not a compare-and-swap (from a stale handle it goes through, and the living leader's next commit fails for it), an
overwrite is. What is rewritten is the *cool tail*: rows below the lowest `run_seq` that ticks still touch, above the
last file that is big already. So the files that ticks rewrite stay small, big ones are left alone, each file covers a
narrow span of `run_seq` and a MERGE that names the lowest it touches skips them all.

Then vacuum, checkpoint, log clean-up, in this order: a checkpoint forgets removed files that are past retention, so
they are taken away before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.model.records import TABLES, columns, has_run_seq
from backfill_manager.store.delta_rs_sql import run, select

COMMITS: Final = 100  # since the last time, before a table is looked at again
FEW_FILES: Final = 8  # that many small files may lie about
BIG_ROWS: Final = 50_000  # a file of so many rows is left as it is
MANY_STRAYS: Final = (
    64  # small files among the big ones (runs long past, cleared and run again) before they are taken too
)
FILE_BYTES: Final = 4_000_000


@dataclass(frozen=True)
class Room:
    """One table, the handle to tidy it through, and how its commits are marked."""

    table: str
    handle: DeltaTable
    commit: CommitProperties


@dataclass(frozen=True)
class Span:
    """One file: the run_seqs it covers, and its rows."""

    low: int
    high: int
    rows: int


class Housekeeping:
    def __init__(self, handles: Mapping[str, DeltaTable]) -> None:
        self._handles = handles
        self._tidied: dict[str, int] = {}  # table -> version after the last time
        self._lowest: dict[str, int] = {}  # table -> lowest run_seq that a MERGE named since then

    def touched(self, table: str, lowest: int) -> None:
        self._lowest[table] = min(lowest, self._lowest.get(table, lowest))

    def due(self, table: str, handle: DeltaTable | None = None) -> bool:
        version = (handle or self._handles[table]).version()
        return bool(version - self._tidied.get(table, 0) >= COMMITS)

    def tidy(self, room: Room) -> int:
        """Compact, vacuum, checkpoint, clean the log; returns the number of files that are left in use."""
        handle, table = room.handle, room.table
        where = self._to_rewrite(room)
        if where is not None:
            _rewrite(room, where)
        self._lowest.pop(table, None)
        handle.vacuum(dry_run=False, full=True, commit_properties=room.commit)
        handle.create_checkpoint()
        handle.cleanup_metadata()
        self._tidied[table] = handle.version()
        return len(handle.file_uris())

    def tidy_shared(self, table: str, handle: DeltaTable) -> int:
        """The same for the table that clients append to: who loses the race for a version is the compaction, which then
        waits for the next time."""
        try:
            return self.tidy(Room(table, handle, CommitProperties(max_commit_retries=0)))
        except CommitFailedError:
            return len(handle.file_uris())

    def _to_rewrite(self, room: Room) -> str | None:
        """The predicate of the rows to rewrite: None for nothing, `""` for all."""
        record = TABLES[room.table]
        if not has_run_seq(record):
            return "" if len(room.handle.file_uris()) > FEW_FILES else None
        span = tail(_spans(room.handle), None if record.APPEND_ONLY else self._lowest.get(room.table))
        if span is None:
            return None
        return f"run_seq >= {span[0]}" + ("" if span[1] is None else f" AND run_seq < {span[1]}")


def tail(files: list[Span], hot: int | None) -> tuple[int, int | None] | None:
    """Which run_seqs, `[from, to)`, are worth rewriting; `hot` is the lowest that ticks still touch."""
    cool = [file for file in files if hot is None or file.high < hot]
    small = [file for file in cool if file.rows < BIG_ROWS]
    behind_the_big = max((file.high for file in cool if file.rows >= BIG_ROWS), default=-1) + 1
    fresh = [file for file in small if file.low >= behind_the_big]
    if len(small) - len(fresh) > MANY_STRAYS:
        return min(file.low for file in small), hot
    if len(fresh) > FEW_FILES:
        return behind_the_big, hot
    return None


def _spans(handle: DeltaTable) -> list[Span]:
    told = handle.get_add_actions(flatten=True)
    if told.num_rows == 0:
        return []
    lows, highs, rows = (told[name].to_pylist() for name in ("min.run_seq", "max.run_seq", "num_records"))
    return [Span(low, high, n) for low, high, n in zip(lows, highs, rows, strict=True) if low is not None]


def _rewrite(room: Room, where: str) -> None:
    record = TABLES[room.table]
    order = [("run_seq", False)] if has_run_seq(record) else []
    order += [(name, False) for name in record.KEY]
    what = [f'"{name}"' for name in columns(record)]
    rows: Any = run({room.table: room.handle}, select(room.table, what, where or "TRUE", order_by=order))
    how: dict[str, Any] = {"predicate": where} if where else {}
    write_deltalake(
        room.handle, rows, mode="overwrite", commit_properties=room.commit, target_file_size=FILE_BYTES, **how
    )  # fmt: skip
