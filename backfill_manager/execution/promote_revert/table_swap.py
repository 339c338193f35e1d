"""Replaces parts of a table by other rows, and finds who has written it: what promoting a preview and reverting a run share.

The commit carries an application transaction: however often the manager is killed in the middle, a table has its old rows or
the new ones, and the next attempt finds which.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from backfill_manager.errors import LostLease
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.promote_revert.preview_parts import Parts, WriteOfTry
from backfill_manager.execution.promote_revert.table_diff import same_rows
from backfill_manager.store.delta_spark.transaction import DeltaTransaction, can_overwrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
Actions = Sequence[Mapping[str, Any]]  # of a commit, as in the log


def begin(spark: SparkSession, table: OutputTable) -> DeltaTransaction | None:
    """Begun before the last look at a table: what others commit after that look is a conflict then. None for a table that is
    still to be made, and where this Delta does not have it; there, what is committed between look and commit is replaced."""
    return DeltaTransaction(spark, table.log(spark)) if table.exists() and can_overwrite(spark) else None


def refuse_unless_leader(is_leader: Callable[[], bool]) -> None:
    """`LostLease` where another manager may lead: it may have answered this request otherwise."""
    if not is_leader():
        raise LostLease("This manager is not sure that it still leads; it writes no more.")


def swap_in(
    table: OutputTable, rows: DataFrame, parts: Parts, transaction: str, about: Mapping[str, Any], since: int,
    delta: DeltaTransaction | None,
) -> int | None:  # fmt: skip
    """The parts get these rows, once. `about`: the user metadata of the commit, always the same for this transaction. `delta`:
    what `begin` has given. Returns its version; None if an attempt before has done it, and its commit is not in the log after
    `since` any more."""
    metadata = json.dumps({**about, "transaction": transaction}, ensure_ascii=False)
    if table.read().recorded(transaction) is None:
        how = {
            "mergeSchema": "true", "txnAppId": transaction, "txnVersion": "0", "userMetadata": metadata,
            "replaceWhere": parts.condition,
        }  # fmt: skip
        if delta is not None:
            return delta.overwrite(rows, how)
        table.save(rows.write.format("delta").mode("overwrite").options(**how))
    commit = table.read().find(metadata, since=since)
    return None if commit is None else commit.version


def rows_at(spark: SparkSession, path: str, version: int | None, parts: Parts) -> DataFrame:
    """Of the parts, as they were in this version of the table; None: as they are."""
    reader = spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    return reader.load(path).where(parts.condition)


def differ(spark: SparkSession, path: str, parts: Parts, one: int, other: int | None = None) -> bool:
    """Whether the parts have other rows in two versions of a table (None: the present one); also if that can't be known any
    more."""
    try:
        return not same_rows(*(rows_at(spark, path, version, parts) for version in (one, other)))
    except (PySparkException, Py4JJavaError) as error:
        _log.info("%s: versions %s and %s can't be compared: %s", path, one, other, one_line(error))
        return True


def changed_files(actions: Actions) -> list[Mapping[str, Any]]:
    """The files whose rows a commit has added or removed (the fields of Delta's `add` and `remove`)."""
    files = (action.get("add") or action.get("remove") for action in actions)
    return [file for file in files if file and file.get("dataChange")]


def about_commit(actions: Actions) -> dict[str, Any]:
    """The user metadata of a commit; empty of another writer's."""
    infos = [action["commitInfo"] for action in actions if "commitInfo" in action]
    try:
        about = json.loads(infos[0].get("userMetadata") or "{}") if infos else {}
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}


def is_of_state(about: Mapping[str, Any], state_id: str) -> bool:
    """Whether the state with this id has made a commit with this user metadata; one of several writes says so in each of them."""
    return any(one.get("state") == state_id for one in (about, *about.get("writes", ())[:1]))


def writes_of(version: int, about: Mapping[str, Any]) -> list[WriteOfTry]:
    """What tries have written by a commit with this user metadata. One that names no run is a write without one."""
    unknown = WriteOfTry(version, "", "", "", 0)
    return [WriteOfTry.of(version, one) if "run" in one else unknown for one in about.get("writes", [about])]


def described(writes: Iterable[WriteOfTry], state_id: str, *, whole: bool) -> list[dict[str, Any]]:
    """These writes for the user metadata of a commit that repeats them, so that `writes_of` finds them there."""
    return [{"state": state_id, **one.described(whole=whole)} for one in writes]
