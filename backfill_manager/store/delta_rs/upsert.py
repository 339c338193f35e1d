"""Updates rows by key and inserts the others, in one commit, where they lie close together: what almost every tick does.

delta-rs' MERGE plans a join with a case for each column, and costs the same for ten rows as for a thousand. Here the span of the
`run_seq`s in question is overwritten with the new rows and those of the others that lie in it: about two thirds of the CPU, and
less where the files are large. A span in which few rows change is left to MERGE, which does not touch the files between.

The others are mostly cached from the commit before: work goes on in the same rows, and nobody else writes. Else they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from deltalake import DeltaTable, write_deltalake

from backfill_manager.model.records import Record, columns
from backfill_manager.store.delta_base import run_seq_spans
from backfill_manager.store.delta_rs.log import CommitArguments
from backfill_manager.store.delta_rs.tables import run
from backfill_manager.store.filters import records_of
from backfill_manager.store.sql_text import arrow_table, python_columns, select

NARROW_GAP: Final = 20  # run_seqs between two rows that are rewritten with them
MAX_WIDTH_PER_SEQ: Final = 8  # run_seqs that are rewritten, for each that has changed; beyond, MERGE touches less
READ_AHEAD: Final = 200  # run_seqs above the span, where the next ticks work; fewer where that is more than may be kept
MAX_KEPT: Final = 2_000  # rows of a table
MAX_KEPT_BYTES: Final = 16_000_000  # of them; a result may have a million characters
Spans = Sequence[tuple[int, int]]


def narrow_spans(rows: Sequence[Record]) -> Spans | None:
    """The spans of `run_seq` to overwrite; None where the rows lie too far apart."""
    spans = run_seq_spans(rows, NARROW_GAP)
    width = sum(high - low + 1 for low, high in spans)
    seqs = len({row.run_seq for row in rows})  # type: ignore[attr-defined]
    return spans if width <= MAX_WIDTH_PER_SEQ * seqs else None


@dataclass(frozen=True)
class _Known:
    """All rows of some spans of a table, as they are in one version of it."""

    version: int
    spans: Spans
    rows: dict[tuple[Any, ...], Record]
    size: int  # bytes, at most: those of rows that were replaced are counted, too

    @property
    def may_be_kept(self) -> bool:
        return len(self.rows) <= MAX_KEPT and self.size <= MAX_KEPT_BYTES

    def covers(self, spans: Spans) -> bool:
        return all(any(low <= begin and end <= high for low, high in self.spans) for begin, end in spans)


class SpanWriter:
    """Of one leader: it keeps what it has written last to each table."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._read_ahead: dict[str, int] = {}  # of a table whose `READ_AHEAD` were too many rows

    def overwrite(
        self, handle: DeltaTable, record: type[Record], rows: Sequence[Record], spans: Spans, commit: CommitArguments
    ) -> None:
        """From a handle that stands still this is a compare-and-swap, as MERGE is: both read and commit are of its version."""
        known = self._known.pop(record.TABLE, None)
        if known is None or known.version != handle.version() or not known.covers(spans):
            ahead = self._read_ahead.get(record.TABLE, READ_AHEAD)
            known = _read(handle, record, [*spans[:-1], (spans[-1][0], spans[-1][1] + ahead)])
            if not known.may_be_kept:
                self._read_ahead[record.TABLE] = ahead // 4
        rows_now = known.rows | {_place(row): row for row in rows}
        written = arrow_table(record, [row for row in rows_now.values() if _is_in(row, spans)])
        write_deltalake(handle, written, mode="overwrite", predicate=_where(spans), **commit)
        now = _Known(handle.version(), known.spans, rows_now, known.size + written.nbytes)
        if now.may_be_kept:
            self._known[record.TABLE] = now


def _read(handle: DeltaTable, record: type[Record], spans: Spans) -> _Known:
    names = list(columns(record))
    found = run({record.TABLE: handle}, select(record.TABLE, names, _where(spans)))
    rows = records_of(record, names, python_columns(found))
    return _Known(handle.version(), spans, {_place(row): row for row in rows}, found.nbytes)


def _place(row: Record) -> tuple[Any, ...]:
    """By which MERGE, too, finds a row: states of older releases have rows of one key and two `run_seq`s."""
    return (row.run_seq, *row.key)  # type: ignore[attr-defined]


def _where(spans: Spans) -> str:
    return " OR ".join(f"(run_seq >= {low} AND run_seq <= {high})" for low, high in spans)


def _is_in(row: Record, spans: Spans) -> bool:
    seq: int = row.run_seq  # type: ignore[attr-defined]
    return any(low <= seq <= high for low, high in spans)
