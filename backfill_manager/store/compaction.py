"""Housekeeping of delta-rs tables, so that a tick costs the same after a million commits, and the folders hold
hundreds of files and not millions.

A MERGE rewrites the files it finds its rows in, whole, and what it adds goes into the same new file. Left alone, the
file with the living rows would carry the finished ones along and grow for ever, and ticks that only add would each
leave a file. So every few commits the newest stretch is rewritten in the order of `run_seq`, cut into slices; slices
become big files when there are many, and those stay as they are. Each file covers a narrow span of `run_seq`, and a
MERGE that names the spans it touches skips all the others.

A rewrite is an overwrite of a span of `run_seq` through the leader's own handle: delta-rs' `optimize.compact` is not
a compare-and-swap (from a stale handle it goes through, and the living leader's next commit fails for it), an
overwrite is.

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
from backfill_manager.store.delta_rs.sql import run, select

COMPACT_AFTER: Final = 40  # commits to a table, before its files are looked at
CLEAN_AFTER: Final = 100  # commits, before vacuum, checkpoint and log clean-up
RECENT: Final = 20  # ticks that tell at which run_seqs the work is
FEW_FILES: Final = 8  # so many of a kind may lie about
SLICE_ROWS: Final = 5_000
BIG_ROWS: Final = 50_000  # a file of so many rows is left as it is
MOST_ROWS: Final = 200_000  # to rewrite at once
THOROUGH_PASSES: Final = 3
TYPICAL_ROW_BYTES: Final = 60  # in a file, until files of some size tell better
HEADROOM: Final = 1.4  # the writer's own estimate of a file's size runs ahead of what it comes to


@dataclass(frozen=True)
class CompactionTarget:
    """One table, the handle to tidy it through, and how its commits are marked."""

    table: str
    handle: DeltaTable
    commit: CommitProperties


@dataclass(frozen=True)
class Span:
    """One file: the run_seqs it covers, its rows and bytes."""

    low: int
    high: int
    rows: int
    bytes: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Rewrite the run_seqs `[begin, end)`, to the end of the table when None, into files of about so many rows."""

    begin: int
    end: int | None
    rows_per_file: int

    def predicate(self) -> str:
        return f"run_seq >= {self.begin}" + ("" if self.end is None else f" AND run_seq < {self.end}")


class Compactor:
    def __init__(self, handles: Mapping[str, DeltaTable]) -> None:
        self._handles = handles
        self._compacted: dict[str, int] = {}  # table -> version after the last time
        self._cleaned: dict[str, int] = {}
        self._worked_at: dict[str, deque[int]] = {}  # table -> lowest run_seq of each recent tick, stragglers aside

    def touched(self, table: str, lowest: int) -> None:
        self._worked_at.setdefault(table, deque(maxlen=RECENT)).append(lowest)

    def due(self, table: str, handle: DeltaTable | None = None) -> bool:
        return bool((handle or self._handles[table]).version() - self._compacted.get(table, 0) >= COMPACT_AFTER)

    def tidy(self, room: CompactionTarget, thoroughly: bool = False) -> int:
        """Compact, and when it is time clean up behind; returns the number of files that are left in use. `thoroughly`:
        down to as few as may be, and clean up now."""
        handle, table = room.handle, room.table
        few = 1 if thoroughly else FEW_FILES
        if has_run_seq(TABLES[table]):
            for _ in range(THOROUGH_PASSES if thoroughly else 1):  # crumbs become slices, and these big files
                self._rewrite_spans(room, few)
        elif len(handle.file_uris()) > few:
            _rewrite(room, "", file_bytes=BIG_ROWS * TYPICAL_ROW_BYTES)
        if thoroughly or handle.version() - self._cleaned.get(table, 0) >= CLEAN_AFTER:
            handle.vacuum(dry_run=False, full=True, commit_properties=room.commit)
            handle.create_checkpoint()
            handle.cleanup_metadata()
            self._cleaned[table] = handle.version()
        self._compacted[table] = handle.version()
        return len(handle.file_uris())

    def tidy_shared(self, table: str, handle: DeltaTable, thoroughly: bool = False) -> int:
        """The same for the table that clients append to: who loses the race for a version is the compaction, which then
        waits for the next time."""
        try:
            return self.tidy(CompactionTarget(table, handle, CommitProperties(max_commit_retries=0)), thoroughly)
        except CommitFailedError:
            return len(handle.file_uris())

    def _rewrite_spans(self, room: CompactionTarget, few: int) -> None:
        added = room.handle.get_add_actions(flatten=True)
        told = {name: added[name].to_pylist() for name in ("min.run_seq", "max.run_seq", "num_records", "size_bytes")}
        files = [Span(*known) for known in zip(*told.values(), strict=True) if known[0] is not None]
        recent = self._worked_at.get(room.table)
        work = what_to_rewrite(files, min(recent) if recent and not TABLES[room.table].APPEND_ONLY else None, few)
        if work is not None:
            telling = [file for file in files if file.rows >= SLICE_ROWS // 5]
            row_bytes = sum(f.bytes for f in telling) / sum(f.rows for f in telling) if telling else TYPICAL_ROW_BYTES
            _rewrite(room, work.predicate(), file_bytes=int(work.rows_per_file * row_bytes * HEADROOM))


def what_to_rewrite(files: list[Span], hot: int | None, few: int = FEW_FILES) -> Rewrite | None:
    """What is worth rewriting now, when work goes on at the run_seqs `hot` and above (None: nowhere). `few` of a kind may
    stay."""
    cool = [file for file in files if hot is None or file.high < hot]
    mixed = [file for file in files if hot is not None and file.low < hot <= file.high]
    behind_big = _behind(file for file in cool if file.rows >= BIG_ROWS)
    slices = [file for file in cool if SLICE_ROWS // 2 <= file.rows < BIG_ROWS and file.low >= behind_big]
    behind_slices = max(behind_big, _behind(slices))
    if len(slices) > few and not any(file.low < behind_slices for file in mixed):
        return _affordable(files, Rewrite(behind_big, behind_slices, BIG_ROWS))
    crumbs = [file for file in files if file.rows < SLICE_ROWS // 2 and file.low >= behind_slices]
    carried = sum(file.rows for file in mixed)  # mostly finished rows, which every tick copies
    if len(crumbs) > few or carried > 2 * SLICE_ROWS:
        begin = min([behind_slices, *(file.low for file in mixed if carried > 2 * SLICE_ROWS)])
        return _affordable(files, Rewrite(begin, None, SLICE_ROWS))
    return None


def _affordable(files: list[Span], work: Rewrite) -> Rewrite | None:
    touched = (f for f in files if f.high >= work.begin and (work.end is None or f.low < work.end))
    return work if sum(file.rows for file in touched) <= MOST_ROWS else None


def _behind(files: Iterable[Span]) -> int:
    return max((file.high for file in files), default=-1) + 1


def _rewrite(room: CompactionTarget, where: str, *, file_bytes: int) -> None:
    record = TABLES[room.table]
    order = [("run_seq", False)] if has_run_seq(record) else []
    order += [(name, False) for name in record.KEY]
    what = [f'"{name}"' for name in columns(record)]
    rows: Any = run({room.table: room.handle}, select(room.table, what, where or "TRUE", order_by=order))
    how: dict[str, Any] = {"predicate": where} if where else {}
    write_deltalake(
        room.handle, rows, mode="overwrite", commit_properties=room.commit, target_file_size=file_bytes, **how
    )  # fmt: skip
