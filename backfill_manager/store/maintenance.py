"""Housekeeping of delta-rs tables, so that a tick costs the same after a million commits, and the folders hold hundreds
of files and not millions.

A MERGE rewrites the files it finds its rows in, whole, and what it adds goes into the same new file. Left alone, the file
with the living rows would swallow the finished ones and grow for ever, and ticks that only add would each leave a file.
So every few commits the *cool* rows, those below the lowest `run_seq` that recent ticks work at, are rewritten in order:
crumbs into slices, slices into big files, which then stay as they are. Each file covers a narrow span of `run_seq`, and a
MERGE that names the spans it touches skips all the others.

Compaction is an overwrite of a span of `run_seq` through the leader's own handle: delta-rs' `optimize.compact` is not a
compare-and-swap (from a stale handle it goes through, and the living leader's next commit fails for it), an overwrite is.

Less often follow vacuum, checkpoint and log clean-up, in this order: a checkpoint forgets removed files that are past
retention, so they are taken away before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.model.records import TABLES, columns, has_run_seq
from backfill_manager.store.delta_rs_sql import run, select

COMPACT_AFTER: Final = 25  # commits to a table, before its files are looked at
CLEAN_AFTER: Final = 100  # commits, before vacuum, checkpoint and log clean-up
RECENT: Final = 20  # ticks that tell at which run_seqs the work is
FEW_FILES: Final = 8  # so many of a kind may lie about
SLICE_ROWS: Final = 5_000
BIG_ROWS: Final = 50_000  # a file of so many rows is left as it is
MOST_ROWS: Final = 200_000  # to rewrite at once
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
        self._compacted: dict[str, int] = {}  # table -> version after the last time
        self._cleaned: dict[str, int] = {}
        self._worked_at: dict[str, deque[int]] = {}  # table -> lowest run_seq of each recent tick, stragglers aside

    def touched(self, table: str, lowest: int) -> None:
        self._worked_at.setdefault(table, deque(maxlen=RECENT)).append(lowest)

    def due(self, table: str, handle: DeltaTable | None = None) -> bool:
        return bool((handle or self._handles[table]).version() - self._compacted.get(table, 0) >= COMPACT_AFTER)

    def tidy(self, room: Room) -> int:
        """Compact, and when it is time clean up behind; returns the number of files that are left in use."""
        handle, table = room.handle, room.table
        where = self._to_rewrite(room)
        if where is not None:
            _rewrite(room, where)
        if handle.version() - self._cleaned.get(table, 0) >= CLEAN_AFTER:
            handle.vacuum(dry_run=False, full=True, commit_properties=room.commit)
            handle.create_checkpoint()
            handle.cleanup_metadata()
            self._cleaned[table] = handle.version()
        self._compacted[table] = handle.version()
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
        recent = self._worked_at.get(room.table)
        span = cool_span(_spans(room.handle), min(recent) if recent and not record.APPEND_ONLY else None)
        if span is None:
            return None
        return f"run_seq >= {span[0]}" + ("" if span[1] is None else f" AND run_seq < {span[1]}")


def cool_span(files: list[Span], hot: int | None) -> tuple[int, int | None] | None:
    """Which run_seqs, `[from, to)`, are worth rewriting now; work goes on at `hot` and above (None: nowhere)."""
    cool = [file for file in files if hot is None or file.high < hot]
    mixed = [file for file in files if hot is not None and file.low < hot <= file.high]
    behind_big = _behind(file for file in cool if file.rows >= BIG_ROWS)
    slices = [file for file in cool if SLICE_ROWS <= file.rows < BIG_ROWS and file.low >= behind_big]
    behind_slices = max(behind_big, _behind(slices))
    crumbs = [file for file in cool if file.rows < SLICE_ROWS and file.low >= behind_slices]
    begin: int | None = None
    if len(slices) > FEW_FILES:
        begin = behind_big
    elif len(crumbs) > FEW_FILES:
        begin = behind_slices
    if sum(file.rows for file in mixed) > SLICE_ROWS:  # finished rows that every tick would carry along
        begin = min(file.low for file in mixed) if begin is None else min(begin, *(file.low for file in mixed))
    if begin is None or sum(file.rows for file in files if file.high >= begin and file not in mixed) > MOST_ROWS:
        return None
    return begin, hot


def _behind(files: Iterable[Span]) -> int:
    return max((file.high for file in files), default=-1) + 1


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
