"""Promotes a preview: in each table the parts that it has written are replaced by the rows of the clone, by one commit.

The commit carries an application transaction, `bfm/<state>/promote/<preview>/<digest of the parts and the clone's last
write>`: however often the manager is killed in the middle, a table has its old rows or the new ones, and the next attempt leaves
out those that have them.

A table is refused that is not what the clone was made of: dropped, made anew, with other columns, or with commits in these parts
since then. A commit of others between that look and ours is a conflict, and after it the table is looked at again (where Delta's
own transaction can be used: `can_overwrite`). Commits count by the statistics of their files; where these leave
it open, the rows of then and now are compared. With `rebase` the rows are swapped in although others have changed the same parts,
or the table has got other columns that fit. A table of which the preview may have changed any row (by `append`, `merge`,
`overwrite`, or SQL) is replaced as a whole, and so never when others have written it since.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from backfill_manager.errors import InvalidInput, Refused
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.clones import ClonedTable
from backfill_manager.execution.output.delta_refusals import APPEND_ONLY
from backfill_manager.execution.output.log_actions import (
    clustering_set_by,
    last_numbers,
    metadata_set_by,
    names_in_files,
    settings_in,
)
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_state import TableState
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.promote_revert import table_swap
from backfill_manager.execution.promote_revert.preview_parts import Parts, WriteOfTry
from backfill_manager.humanise import plural
from backfill_manager.model.records import RunKey
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROMOTES: Final = "promotes"  # in the user metadata of its commits
MAX_NAMED: Final = 5  # versions in a message
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Promoted:
    table: str
    name: str | None  # in the catalog
    path: str
    version: int | None  # None: an attempt before has done it, and its commit has left the log; or it was only made
    parts: int  # 0: it was replaced as a whole
    writes: tuple[WriteOfTry, ...]
    table_id: str | None = None


class Promotion:
    """Of the successful runs of one preview."""

    def __init__(
        self, spark: SparkSession, preview_id: str, state_id: str, runs: Collection[RunKey], turns: Turns, *, rebase: bool,
        is_leader: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        self._spark, self._preview_id, self._state_id, self._turns = spark, preview_id, state_id, turns
        self._runs, self._rebase, self._is_leader = runs, rebase, is_leader

    def run(self, clones: Iterable[ClonedTable]) -> list[Promoted]:
        """`Refused` with all reasons, before the first table is changed, if one of them can't be promoted."""
        every = [PreviewedTable(self._spark, clone, self._runs) for clone in clones]
        tables = [one for one in every if one.writes]
        unwritten = [one for one in every if not one.is_written]
        reasons = [reason for one in unwritten for reason in self._of_unwritten(one)]
        if reasons := [*reasons, *(one for table in tables for one in self._reasons(table, self._transaction(table)))]:
            raise Refused(f"nothing was promoted: {'; '.join(reasons)}")
        made = [self._make(one) for one in unwritten if one.clone.source.version is None]
        return [*(self._promote(one) for one in tables), *made]

    def _transaction(self, table: PreviewedTable) -> str:
        digest = hashlib.sha256(f"{table.parts.condition}{table.last_write}".encode()).hexdigest()[:12]
        return f"bfm/{self._state_id}/promote/{self._preview_id}/{digest}"

    def _promote(self, table: PreviewedTable) -> Promoted:
        with self._turns.acquire(table.output.identity):
            version = retry_on_conflict(_log, table.name)(self._commit, table)
        return self._promoted(table, version)

    def _make(self, table: PreviewedTable) -> Promoted:
        """A table to which the preview has written no rows."""
        with self._turns.acquire(table.output.identity):
            if not table.output.exists():
                table_swap.refuse_unless_leader(self._is_leader)
                table.output.create(table.rows().schema, like=table.clone_now)
        return self._promoted(table, None)

    def _promoted(self, table: PreviewedTable, version: int | None) -> Promoted:
        state, parts = table.output.read(), len(table.parts.parts)
        name = None if table.output.is_path else table.output.key
        return Promoted(table.name, name, state.path, version, parts, tuple(table.writes), state.table_id)

    def _commit(self, table: PreviewedTable) -> int | None:
        transaction, rows = self._transaction(table), table.rows()
        if table.clone.source.version is None and not table.output.exists():
            table.output.create(rows.schema, like=table.clone_now)
        delta = table_swap.begin(self._spark, table.output)
        if reasons := list(self._reasons(table, transaction)):
            raise Refused("; ".join(reasons))
        writes = table_swap.described(table.writes, self._state_id, whole=table.parts.is_whole)
        about = {PROMOTES: self._preview_id, "state": self._state_id, "writes": writes}
        since = -1 if table.clone.source.version is None else table.clone.source.version
        table_swap.refuse_unless_leader(self._is_leader)
        return table_swap.swap_in(table.output, rows, table.parts, transaction, about, since, delta)

    def _reasons(self, table: PreviewedTable, transaction: str) -> Iterator[str]:
        source, name = table.clone.source, table.name
        if table.has_failed_writes and table.parts.is_whole:
            yield f"{name}: runs that did not succeed have written it, and it can only be replaced as a whole; retry them"
            return
        if not table.output.exists():
            if source.version is not None:
                yield f"{name} was dropped since the preview began"
            return
        now = table.output.read()
        if now.recorded(transaction) is not None:
            return
        if source.table_id is not None and now.table_id != source.table_id:
            yield f"{name} was replaced by another table of this name since the preview began"
            return
        if now.is_append_only:
            yield f"{name} {APPEND_ONLY}"
            return
        yield from self._of_columns(table, now)
        yield from self._of_settings(table, now)
        yield from self._of_commits(table, now)

    def _of_settings(self, table: PreviewedTable, now: TableState) -> Iterator[str]:
        if table.clone.source.version is None:  # the table is made like the clone
            return
        columns = {one["name"] for one in table.columns_of_clone} & set(table.clone_now.schema.names)
        ends = (table.metadata_of_clone, table.clone_now.metadata, now.metadata)
        first, last, there = (settings_in(one, columns) for one in ends)
        clustering = clustering_set_by(table.first_commit, table.columns_of_clone)
        clusterings = (clustering, table.clone_now.clustering, now.clustering)
        for one, clustering in zip((first, last, there), clusterings, strict=True):
            one["its clustering"] = clustering or None
        changed = {name: last.get(name) for name in {**first, **last} if last.get(name) != first.get(name)}
        lost = [name for name, value in changed.items() if value != there.get(name)]
        for verb in ("changed", "removed"):
            if names := [name for name in lost if (changed[name] is None) == (verb == "removed")]:
                yield (
                    f"{table.name}: the preview has {verb} {', '.join(names[:MAX_NAMED])}, which promoting can't do: change "
                    "the table itself in the same way (ALTER TABLE), and promote then"
                )

    def _of_unwritten(self, table: PreviewedTable) -> Iterator[str]:
        """Of a clone to which no rows were written, but which may have been altered."""
        if not table.output.exists():
            return
        now = table.output.read()  # what is no Delta table is refused here
        if table.clone.source.version is None:
            return
        before = {one["name"] for one in table.columns_of_clone}
        if added := set(table.clone_now.schema.names) - before - set(now.schema.names):
            yield (
                f"{table.name}: the preview has added {', '.join(sorted(added))} and written no rows, so promoting does not add "
                "it: change the table itself in the same way (ALTER TABLE), and promote then"
            )
        yield from self._of_settings(table, now)

    def _of_columns(self, table: PreviewedTable, now: TableState) -> Iterator[str]:
        names = {} if table.clone.source.version is None else names_in_files(table.columns_of_clone)
        if renamed := now.renamed_columns(names, [names]):
            were = f"{', '.join(renamed)} {'was' if len(renamed) == 1 else 'were'} renamed or dropped"
            yield f"{table.name}: {were} since the preview began: create another preview"
            return
        if gone := sorted(names.keys() - set(table.rows().columns)):
            yield (
                f"{table.name}: the preview has renamed or dropped {', '.join(gone)}, which promoting can't do: change the "
                "table's columns, and create another preview"
            )
            return
        try:
            now.refuse_misfits(table.name, table.rows(), adds_columns=True)
        except InvalidInput as error:
            yield str(error)
            return
        if numbered := now.numbered_columns:
            yield (
                f"{table.name}: Delta numbers {', '.join(numbered)} itself (GENERATED ALWAYS AS IDENTITY), so rows of the "
                "preview can't be put in with their numbers"
            )
            return
        if numbered := [name for name in now.last_numbers if name in table.numbered]:
            yield (
                f"{table.name}: Delta has numbered {', '.join(numbered)} in the rows of the preview (GENERATED BY DEFAULT AS "
                "IDENTITY), and may give the table the same numbers again"
            )
            return
        then = table.columns_then()
        if then is not None and not self._rebase and not now.definition.has_columns(then):
            yield f"{table.name} has other columns than when the preview began; --rebase swaps the rows in all the same"

    def _of_commits(self, table: PreviewedTable, now: TableState) -> Iterator[str]:
        since = -1 if table.clone.source.version is None else table.clone.source.version
        try:
            touching = [at for at, actions in now.commits(since) if self._touches(table.parts, now, actions)]
        except Py4JJavaError as error:
            yield f"{table.name}: its log does not reach back to version {max(since, 0)} any more ({one_line(error)})"
            return
        path = table.clone.source.path
        if not touching or (path is not None and not table_swap.differ(self._spark, path, table.parts, since)):
            return
        named = ", ".join(map(str, touching[:MAX_NAMED])) + (", ..." if len(touching) > MAX_NAMED else "")
        then = f"version {since}" if since >= 0 else "the preview began, when it did not exist"
        which = f"{plural(len(touching), 'commit')} since {then} (version{'s' * (len(touching) > 1)} {named})"
        if table.parts.is_whole:
            yield f"{table.name} has {which}, and the preview can only replace it as a whole: create another preview"
        elif not self._rebase:
            yield f"{table.name} has {which} in the same intervals; --rebase swaps the preview's rows in all the same"

    def _touches(self, parts: Parts, now: TableState, actions: table_swap.Actions) -> bool:
        if table_swap.about_commit(actions).get(PROMOTES) == self._preview_id:
            return False
        return any(parts.may_hold(now.with_names(file)) for file in table_swap.changed_files(actions))


class PreviewedTable:
    """A clone with the writes that these runs have made to it, and its table."""

    def __init__(self, spark: SparkSession, clone: ClonedTable, runs: Collection[RunKey]) -> None:
        self.clone, self._spark = clone, spark
        self.name = clone.source.table
        self.output = OutputTable(spark, self.name)
        every = writes_to(spark, clone)
        self.writes = [one for one in every if (one.dag_id, one.run_id) in runs]
        self.last_write = max((one.version for one in every), default=0)
        self.is_written = bool(every)
        self.has_failed_writes = len(self.writes) < len(every)
        self.parts = Parts.of(self.writes) if all(one.replaced is not None for one in every) else Parts()

    @cached_property
    def columns_of_clone(self) -> list[dict[str, Any]]:
        """When it was made, as in Delta's log."""
        columns: list[dict[str, Any]] = json.loads(self.metadata_of_clone["schemaString"])["fields"]
        return columns

    @cached_property
    def metadata_of_clone(self) -> dict[str, Any]:
        """When it was made, as in Delta's log."""
        metadata = metadata_set_by(self.first_commit)
        assert metadata is not None, "the first commit of a table sets it"
        return metadata

    @cached_property
    def first_commit(self) -> table_swap.Actions:
        """But for the files, which may be many."""
        _, actions = next(self.clone_now.commits(-1))
        return [one for one in actions if "add" not in one]

    @cached_property
    def clone_now(self) -> TableState:
        return OutputTable(self._spark, self.clone.path).read()

    @cached_property
    def numbered(self) -> set[str]:
        """The columns in which Delta has numbered rows of the clone since it was made."""
        if not (numbers := self.clone_now.last_numbers):
            return set()
        first = last_numbers(self.columns_of_clone)
        return {name for name, last in numbers.items() if last != first.get(name)}

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self.clone.path).where(self.parts.condition)

    def columns_then(self) -> dict[str, Any] | None:
        """The columns of the table when the clone was made; None if there was no table."""
        if self.clone.source.version is None:
            return None
        reader = self._spark.read.format("delta").option("versionAsOf", 0)
        columns: dict[str, Any] = json.loads(reader.load(self.clone.path)._jdf.schema().json())
        return columns


def writes_to(spark: SparkSession, clone: ClonedTable) -> list[WriteOfTry]:
    """What tries have written into a clone, by its log: rows, and intervals and partitions without any. A commit of which nobody
    knows the run is a write without one."""
    state = OutputTable(spark, clone.path).read()
    writes: list[WriteOfTry] = []
    for version, actions in state.commits(0 if clone.source.version is not None else -1):
        of_commit = table_swap.writes_of(version, table_swap.about_commit(actions))
        has_rows = table_swap.changed_files(actions)
        writes += [one for one in of_commit if has_rows or one.replaced is not None]
    return writes
