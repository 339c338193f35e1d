"""Reverts runs: in each table the parts that they have written get the rows of before, from Delta's history, by one commit.

The commit names the runs, so an attempt after a crash finds the tables that are done, and goes on with the others. Nothing is
changed where one of the tables can't go back: it was dropped or replaced, others have written the same parts since, the history
is gone, or the rows of then do not fit its columns any more. What each part goes back to is decided by `revert_plan`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from backfill_manager.errors import Refused
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.delta_refusals import APPEND_ONLY
from backfill_manager.execution.output.log_actions import columns_set_by, names_in_files
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_state import TableState
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.promote_revert import table_swap
from backfill_manager.execution.promote_revert.preview_parts import Parts, WriteOfTry, each, instants, label
from backfill_manager.execution.promote_revert.revert_plan import Change, Conflict, Undo, plan_undo
from backfill_manager.execution.promote_revert.table_diff import MAX_PARTS, schema_changes
from backfill_manager.humanise import plural
from backfill_manager.model.records import RunKey
from backfill_manager.store.data_tables.commits import REVERTS, UNDOES_FROM
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_COMPARED: Final = 20  # commits of others of which the rows are compared; beyond, they count as changes
MAX_NAMED: Final = 3  # in a message
# In the error of a file that is gone.
_GONE: Final = ("FILE_NOT_EXIST", "FileNotFoundException", "DELTA_FILE_NOT_FOUND")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenTable:
    """A table that the runs have written, by the state's records."""

    name: str  # in the catalog, else its path
    table_id: str | None
    version: int | None  # of their first write; None: not known of all
    since: datetime  # when the first of the runs was made


@dataclass(frozen=True)
class Reverted:
    """One table, after it; of a dry run before it."""

    table: str
    name: str | None  # in the catalog
    path: str
    table_id: str
    version: int | None  # None: of a dry run
    since: int  # the version of the first write that is undone
    back_to: tuple[int, ...]  # versions that its rows come from; -1: there was no table
    intervals: tuple[str, ...]  # none: it goes back as a whole
    rows_now: int | None  # in these; None: an attempt before has done it, as with the next
    rows_then: int | None
    writes: tuple[WriteOfTry, ...]

    def to_json_document(self) -> dict[str, Any]:
        runs = sorted({write.run for write in self.writes})
        parts = [write.replaced for write in self.writes if write.replaced is not None] if self.intervals else []
        return {
            "table": self.table, "version": self.version, "back_to": [one for one in self.back_to if one >= 0],
            "intervals": list(self.intervals) or None, **instants(parts),
            "rows_now": self.rows_now, "rows_then": self.rows_then,
            "runs": [{"dag_id": dag_id, "run_id": run_id} for dag_id, run_id in runs],
        }  # fmt: skip


class Reversion:
    def __init__(
        self, spark: SparkSession, state_id: str, runs: Collection[RunKey], turns: Turns,
        is_leader: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._spark, self._state_id, self._runs, self._turns = spark, state_id, frozenset(runs), turns
        self._is_leader = is_leader

    def run(self, written: Iterable[WrittenTable], *, dry_run: bool) -> list[Reverted]:
        """`Refused` with all reasons, before the first table is changed, if one of them can't go back."""
        tables, reasons = list[_Table](), list[str]()
        for one in written:
            try:
                tables += self._read(one)
            except Refused as refused:
                reasons.append(str(refused))
        if reasons:
            raise Refused(f"nothing was reverted: {'; '.join(reasons)}")
        if not tables:
            raise Refused("nothing was reverted: the logs of the tables hold no commit of this")
        return [table.summary() if dry_run or table.undo.done is not None else self._revert(table) for table in tables]

    def _revert(self, table: _Table) -> Reverted:
        with self._turns.acquire(table.output.identity):
            return retry_on_conflict(_log, table.name)(self._commit, table.written)

    def _commit(self, written: WrittenTable) -> Reverted:
        delta = table_swap.begin(self._spark, self._output(written.name))
        (table,) = self._read(written)
        if table.undo.done is not None:
            return table.summary()
        runs = sorted({write.run for write in table.undo.writes})
        about = {REVERTS: [list(run) for run in runs], UNDOES_FROM: table.undo.first, "state": self._state_id}
        digest = hashlib.sha256(f"{runs}{table.since}{table.undo.parts.condition}".encode()).hexdigest()[:16]
        transaction = f"bfm/{self._state_id}/revert/{digest}"
        table_swap.refuse_unless_leader(self._is_leader)
        parts, since = table.undo.parts, table.state.version
        version = table_swap.swap_in(table.output, table.rows, parts, transaction, about, since, delta)
        return table.summary(version)

    def _read(self, written: WrittenTable) -> list[_Table]:
        """The table with what is to be done; none where its log has no commit of the runs. `Refused` if it can't be done."""
        name, output = written.name, self._output(written.name)
        if not output.exists():
            raise Refused(f"{name} was dropped since")
        state = output.read()
        if written.table_id is not None and state.table_id != written.table_id:
            raise Refused(f"{name} was replaced by another table of this name since")
        since = written.version if written.version is not None else state.version_before(written.since) + 1
        try:
            changes = [self._change(state, *commit) for commit in state.commits(since - 1)]
        except Py4JJavaError as error:
            raise Refused(
                f"{name}: its log does not reach back to version {since} any more ({one_line(error)})"
            ) from None
        undo = plan_undo(changes, self._runs)
        if undo is None:
            return []
        then = [one.names_in_files for one in changes if one.version >= undo.first and one.names_in_files is not None]
        if undo.done is None and (renamed := state.renamed_columns(undo.parts.columns, then)):
            has = "has" if len(renamed) == 1 else "have"
            raise Refused(
                f"{name}: {', '.join(renamed)}, by which the runs have replaced rows, {has} been renamed or dropped since"
            )
        if undo.done is None and (numbered := state.numbered_columns):
            raise Refused(
                f"{name}: Delta numbers {', '.join(numbered)} itself (GENERATED ALWAYS AS IDENTITY), so rows of before can't be "
                "put back with their numbers"
            )
        if undo.done is None and state.is_append_only:
            raise Refused(f"{name} {APPEND_ONLY}")
        if undo.done is None and (conflicts := self._conflicts(undo, state)):
            raise Refused(_conflicts_text(name, conflicts, whole=undo.parts.is_whole))
        return [_Table(self._spark, written, output, state, undo)]

    def _output(self, name: str) -> OutputTable:
        """A name as the records have it: its parts are not quoted (`my-catalog.sales.2024`)."""
        return OutputTable(self._spark, name) if "/" in name else OutputTable.named(self._spark, name.split("."))

    def _change(self, state: TableState, version: int, actions: table_swap.Actions) -> Change:
        operation = next((one["commitInfo"].get("operation") for one in actions if "commitInfo" in one), "a commit")
        about, by = table_swap.about_commit(actions), f"{operation} by another writer"
        is_ours = table_swap.is_of_state(about, self._state_id)
        writes = tuple(one for one in table_swap.writes_of(version, about) if one.run_id) if is_ours else ()
        # Writes say what they have changed.
        files = () if writes else tuple(map(state.with_names, table_swap.changed_files(actions)))
        reverts = frozenset((dag, run) for dag, run in about.get(REVERTS, ())) if is_ours else frozenset[RunKey]()
        columns = columns_set_by(actions)
        return Change(version, by, writes, files, reverts, None if columns is None else names_in_files(columns))

    def _conflicts(self, undo: Undo, state: TableState) -> list[Conflict]:
        """Those that stand: of a commit that does not say which rows it changed, the rows before and after it are compared."""

        def stands(number: int, one: Conflict) -> bool:
            if one.is_certain or number >= MAX_COMPARED:
                return True
            return table_swap.differ(self._spark, state.path, one.parts, one.version - 1, one.version)

        return [one for number, one in enumerate(undo.conflicts) if stands(number, one)]


class _Table:
    """A table that can go back. `Refused` for one whose rows of then are gone, or do not fit."""

    def __init__(
        self, spark: SparkSession, written: WrittenTable, output: OutputTable, state: TableState, undo: Undo
    ) -> None:
        self.written, self.output, self.state, self.undo = written, output, state, undo
        self.name, self._spark = written.name, spark
        self.since = undo.first
        self.rows_now: int | None = None
        self.rows_then: int | None = None
        if undo.done is None:
            self.rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), self._slices())
            self._count()

    def summary(self, version: int | None = None) -> Reverted:
        undo = self.undo
        name = None if self.output.is_path else self.output.key
        intervals = () if undo.parts.is_whole else tuple(label(part) for part in each(undo.writes, MAX_PARTS))
        return Reverted(
            self.name, name, self.state.path, self.state.table_id, undo.done if version is None else version, self.since,
            tuple(one.version for one in undo.slices), intervals, self.rows_now, self.rows_then, undo.writes,
        )  # fmt: skip

    def _slices(self) -> Iterator[DataFrame]:
        now = table_swap.rows_at(self._spark, self.state.path, None, Parts())
        for one in self.undo.slices:
            if one.version < 0:
                yield now.limit(0)
                continue
            try:
                rows = table_swap.rows_at(self._spark, self.state.path, one.version, one.parts)
            except AnalysisException as error:
                raise Refused(f"{self.name}: version {one.version} can't be read any more: {one_line(error)}") from None
            changed = [one["column"] for one in schema_changes(rows.schema, now.schema) if one["old"] is not None]
            if changed:
                raise Refused(
                    f"{self.name}: its rows of version {one.version} do not fit any more, as {', '.join(map(str, changed))} "
                    f"{'has' if len(changed) == 1 else 'have'} changed or gone since"
                )
            yield rows

    def _count(self) -> None:
        """Opens every file that is to be read: one may be gone, though Delta's log still names it."""
        from pyspark.sql import functions as F

        files = self.rows.select(F.input_file_name().alias("file"))  # a plain count is answered from statistics
        try:
            self.rows_then = int(files.agg(F.count("file")).collect()[0][0])
        except (PySparkException, Py4JJavaError) as error:
            if not any(text in str(error) for text in _GONE):
                raise
            versions = [str(one.version) for one in self.undo.slices if one.version >= 0]
            raise Refused(
                f"{self.name}: files of version{'s' * (len(versions) > 1)} {', '.join(versions)} are gone, as after VACUUM "
                f"({one_line(error)})"
            ) from None
        self.rows_now = table_swap.rows_at(self._spark, self.state.path, None, self.undo.parts).count()


def _conflicts_text(name: str, conflicts: list[Conflict], *, whole: bool) -> str:
    named = "; ".join(f"version {one.version}: {one.by}" for one in conflicts[:MAX_NAMED])
    more = f" and {plural(len(conflicts) - MAX_NAMED, 'other')}" if len(conflicts) > MAX_NAMED else ""
    if whole:
        return f"{name} can only go back as a whole, and has been written since ({named}{more})"
    return f"{name} has been written since in the same intervals ({named}{more})"
