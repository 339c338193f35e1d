"""Compaction of delta-rs tables, so that a tick costs the same after a million commits, and folders hold hundreds of files
and not millions.

A MERGE rewrites the files it finds its rows in, whole, and what it adds goes into the same new file. Left alone, the file
with the unfinished rows would carry the finished ones along and grow for ever, and ticks that only add would each leave a
file. So every few commits the newest part of the table is rewritten in the order of `run_seq`, cut into slices; many slices
become big files, and those stay as they are. Each file covers a narrow span of `run_seq`, and a MERGE that names the spans
it touches skips all the others.

A rewrite is an overwrite of a span of `run_seq` through the leader's own handle: delta-rs' `optimize.compact` is not a
compare-and-swap (from a stale handle it goes through, and the next commit of the real leader fails for it), an overwrite is.

Less often follow vacuum, checkpoint and log clean-up, in this order: a checkpoint forgets removed files that are past
retention, so they are taken away before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake

from backfill_manager.model.records import TABLES, columns, has_run_seq
from backfill_manager.store.delta_rs.log import CommitArguments, unless_others_are_quicker
from backfill_manager.store.delta_rs.tables import run
from backfill_manager.store.sql_text import select
from backfill_manager.store.table_properties import arrow_schema, nullable_schema

if TYPE_CHECKING:
    import pyarrow as pa

COMPACT_AFTER: Final = 40  # commits to a table, before its files are looked at
VACUUM_AFTER: Final = 100  # commits, before vacuum, checkpoint and log clean-up
RECENT_TICKS: Final = 20  # that tell at which run_seqs the work is
MAX_SMALL_FILES: Final = 8  # of a kind, that are left alone
SLICE_ROWS: Final = 5_000
BIG_ROWS: Final = 50_000  # a file of so many rows is left as it is
MAX_ROWS_REWRITTEN: Final = 200_000  # at once
THOROUGH_PASSES: Final = 3
TYPICAL_ROW_BYTES: Final = 60  # in a file, until files of some size tell better
PART_BYTES: Final = 64_000_000  # in memory, of a table that is rewritten whole
HEADROOM: Final = 1.4  # the writer's own estimate of a file's size runs ahead of what it comes to


@dataclass(frozen=True)
class CompactionTarget:
    """One table, the handle to compact it through, and how its commits are marked."""

    table: str
    handle: DeltaTable
    commit: CommitArguments


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
    def __init__(self) -> None:
        self._compacted: dict[str, int] = {}  # table -> version after the last time
        self._vacuumed: dict[str, int] = {}
        self._shortened: dict[str, int] = {}  # its log
        self._left: dict[str, int] = {}  # table without spans -> files after it was rewritten
        self._worked_at: dict[str, deque[int]] = {}  # table -> lowest run_seq of each recent tick, stragglers aside

    def touched(self, table: str, lowest: int) -> None:
        self._worked_at.setdefault(table, deque(maxlen=RECENT_TICKS)).append(lowest)

    def is_due(self, table: str, handle: DeltaTable) -> bool:
        return bool(handle.version() - self._compacted.get(table, 0) >= COMPACT_AFTER)

    def put_off(self, table: str, handle: DeltaTable) -> None:
        """What could not be done is due again later, as if it had been."""
        self._compacted[table] = self._vacuumed[table] = handle.version()

    def compact(self, target: CompactionTarget, thoroughly: bool = False) -> int:
        """Compacts, and when it is time vacuums; returns the number of files in use. `thoroughly`: down to as few as may
        be, and vacuums now."""
        handle, table = target.handle, target.table
        may_stay = 1 if thoroughly else MAX_SMALL_FILES
        if has_run_seq(TABLES[table]):
            for _ in range(THOROUGH_PASSES if thoroughly else 1):  # small files become slices, and these big files
                self._rewrite_spans(target, may_stay)
        elif len(handle.file_uris()) > (may_stay if thoroughly else max(may_stay, 2 * self._left.get(table, 0))):
            _rewrite_all(target)  # the rarer, the larger it is
            self._left[table] = len(handle.file_uris())
        if thoroughly or handle.version() - self._vacuumed.get(table, 0) >= VACUUM_AFTER:
            handle.vacuum(dry_run=False, full=True, **target.commit)
            self._shorten_log(table, handle)
            self._vacuumed[table] = handle.version()
        self._compacted[table] = handle.version()
        return len(handle.file_uris())

    def compact_shared(self, table: str, handle: DeltaTable, thoroughly: bool = False) -> int:
        """The same for the table that clients append to: where a client is quicker, the compaction waits for the next
        time, and the log alone is shortened, when that is due."""
        with unless_others_are_quicker():
            once = {"commit_properties": CommitProperties(max_commit_retries=0)}
            return self.compact(CompactionTarget(table, handle, once), thoroughly)
        self._compacted[table] = handle.version()  # not in each tick: what was read for it is many small files
        if handle.version() - self._shortened.get(table, 0) >= VACUUM_AFTER:
            self._shorten_log(table, handle)
        return len(handle.file_uris())

    def _shorten_log(self, table: str, handle: DeltaTable) -> None:
        handle.create_checkpoint()
        with suppress(FileNotFoundError):  # an entry that another process, of a manager before, has deleted meanwhile
            handle.cleanup_metadata()
        self._shortened[table] = handle.version()

    def _rewrite_spans(self, target: CompactionTarget, may_stay: int) -> None:
        added = target.handle.get_add_actions(flatten=True)
        names = ("min.run_seq", "max.run_seq", "num_records", "size_bytes")
        rows = zip(*(added[name].to_pylist() for name in names), strict=True)
        files = [Span(*row) for row in rows if row[0] is not None]
        recent = self._worked_at.get(target.table)
        hot = min(recent) if recent and not TABLES[target.table].APPEND_ONLY else None
        rewrite = what_to_rewrite(files, hot, may_stay)
        if rewrite is not None:
            sized = [file for file in files if file.rows >= SLICE_ROWS // 5]
            row_bytes = sum(f.bytes for f in sized) / sum(f.rows for f in sized) if sized else TYPICAL_ROW_BYTES
            _rewrite(target, rewrite.predicate(), file_bytes=int(rewrite.rows_per_file * row_bytes * HEADROOM))


def what_to_rewrite(files: list[Span], hot: int | None, may_stay: int = MAX_SMALL_FILES) -> Rewrite | None:
    """What is worth rewriting now, when work goes on at the run_seqs `hot` and above (None: nowhere). So many small files of
    a kind may stay."""
    cool = [file for file in files if hot is None or file.high < hot]
    mixed = [file for file in files if hot is not None and file.low < hot <= file.high]
    behind_big = _behind(file for file in cool if file.rows >= BIG_ROWS)
    slices = [file for file in cool if SLICE_ROWS // 2 <= file.rows < BIG_ROWS and file.low >= behind_big]
    behind_slices = max(behind_big, _behind(slices))
    if len(slices) > may_stay and not any(file.low < behind_slices for file in mixed):
        return _affordable(files, Rewrite(behind_big, behind_slices, BIG_ROWS))
    small = [file for file in files if file.rows < SLICE_ROWS // 2 and file.low >= behind_slices]
    carried = sum(file.rows for file in mixed)  # mostly finished rows, which every tick copies
    if len(small) > may_stay or carried > 2 * SLICE_ROWS:
        begin = min([behind_slices, *(file.low for file in mixed if carried > 2 * SLICE_ROWS)])
        return _affordable(files, Rewrite(begin, None, SLICE_ROWS))
    return None


def _affordable(files: list[Span], rewrite: Rewrite) -> Rewrite | None:
    touched = (f for f in files if f.high >= rewrite.begin and (rewrite.end is None or f.low < rewrite.end))
    return rewrite if sum(file.rows for file in touched) <= MAX_ROWS_REWRITTEN else None


def _behind(files: Iterable[Span]) -> int:
    return max((file.high for file in files), default=-1) + 1


def _rewrite(target: CompactionTarget, where: str, *, file_bytes: int) -> None:
    import pyarrow as pa

    record = TABLES[target.table]
    order = [(name, False) for name in ("run_seq", *record.KEY)]
    rows = run({target.table: target.handle}, select(target.table, columns(record), where, order_by=order))
    # Files keep the type of texts: PyArrow can't compare a column with `string_view`, as queries give it, with a text.
    typed = pa.table(rows).cast(nullable_schema(record, list(columns(record))))
    one_batch = typed.combine_chunks()  # of several, the writer may mix up the order
    write_deltalake(
        target.handle, one_batch, mode="overwrite", predicate=where, target_file_size=file_bytes, **target.commit
    )  # fmt: skip


def _rewrite_all(target: CompactionTarget) -> None:
    """Of a table without spans. It may be larger than memory, so it is put in order by key in parts: who looks for a key finds it
    in one file of each."""
    import pyarrow as pa

    record = TABLES[target.table]
    schema = arrow_schema(record)
    found = QueryBuilder().register(target.table, target.handle).execute(select(target.table, columns(record), "TRUE"))
    parts = _parts_in_order(pa.RecordBatchReader.from_stream(found, schema), record.KEY)
    write_deltalake(
        target.handle, pa.RecordBatchReader.from_batches(schema, parts), mode="overwrite",
        target_file_size=BIG_ROWS * TYPICAL_ROW_BYTES, **target.commit,
    )  # fmt: skip


def _parts_in_order(batches: Iterable[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    order = [(name, "ascending") for name in key]
    part, size = list[pa.RecordBatch](), 0
    for batch in batches:
        part, size = [*part, batch], size + batch.nbytes
        if size >= PART_BYTES:
            yield from pa.Table.from_batches(part).sort_by(order).to_batches()
            part, size = [], 0
    if part:
        yield from pa.Table.from_batches(part).sort_by(order).to_batches()
