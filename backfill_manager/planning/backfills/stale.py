"""What `stale` makes of the runs that exist: by content, not by number.

- A version whose definition and code equal the current one's is as good as that: an edit that was taken back, and a file that
  the DAG does not read, make nothing stale.
- A run of a stale backfill that failed has taken the place of a success; its date is wanted still.

Which files a DAG reads is not known for certain, as its tasks may read and import until they end: beside its own file those that
it, or one of these, mentions in any way. A file counts as mentioned when its name, its folder, or of data its suffix occurs as a
word; all files do where names are made at run time (`glob`, `importlib`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.dags.bundles.files import read_snapshot
from backfill_manager.dags.bundles.manifest import MANIFEST
from backfill_manager.dags.definition import DagSpec
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, DagVersion
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Condition, Store, matching

_WORD: Final = re.compile(r"[^\W_]+")  # `daily_flights` is two: a mention may join them in another way
_FINDS_BY_ITSELF: Final = frozenset({"glob", "rglob", "iterdir", "listdir", "scandir", "walk", "importlib", "pkgutil"})
_NO_NAME: Final = frozenset({"init", "main"})  # of a package: its folder is its name


def runs_for_stale(runs: pa.Table, store: Store, dag: DagSpec, dag_version: int) -> pa.Table:
    """`runs` as `existing_runs` reads them: those of an equal version with the current number, and those that a stale backfill
    left behind as a success of an older version."""
    versions, run_states = runs["dag_version"], runs["state"].cast(pa.string())
    equal = pa.array(_equal_versions(store, dag.dag_id, dag_version, set(versions.to_pylist())), pa.int64())
    left = pa.array(_left_behind(store, dag.dag_id), pa.string())
    is_left = pc.and_(pc.is_in(runs["run_id"].cast(pa.string()), left), pc.is_valid(run_states))
    seen = pc.if_else(pc.is_in(versions, equal), dag_version, versions)
    columns = {"dag_version": pc.if_else(is_left, 0, seen), "state": pc.if_else(is_left, states.SUCCESS, run_states)}
    for name, column in columns.items():
        runs = runs.set_column(runs.column_names.index(name), name, column)
    return runs


def _left_behind(store: Store, dag_id: str) -> list[str]:
    """Ids of runs of stale backfills that have not succeeded, whatever stands on their date now."""
    of_kind = Condition("config_json", "starts_with", CreateBackfill.config_begins("stale"))
    ids = tuple(row.backfill_id for row in store.read(Backfill, [*matching(dag_id=dag_id), of_kind]))
    if not ids:
        return []
    where = matching(dag_id=dag_id, backfill_id=ids, state=(states.FAILED, states.CANCELLED))
    found: list[str] = store.read_arrow("dag_run", ("run_id",), where)["run_id"].to_pylist()
    return found


def _equal_versions(store: Store, dag_id: str, current: int, numbers: set[int]) -> list[int]:
    """Those of the versions that define and run what the current one does."""
    rows = {
        row.version: row for row in store.read(DagVersion, matching(dag_id=dag_id, version=tuple(numbers | {current})))
    }
    now = rows.get(current)
    return [] if now is None else [number for number, row in rows.items() if _are_equal(row, now)]


def _are_equal(one: DagVersion, other: DagVersion) -> bool:
    if one.content_hash == other.content_hash:
        return True
    both = (one, other)
    if len({(row.definition_json, row.bundle, row.file, row.reader_json, row.python) for row in both}) > 1:
        return False
    if one.reader_json is not None or not all(row.snapshot and Path(row.snapshot).is_dir() for row in both):
        return False  # a parser of one's own may read anything; what was in a snapshot that is gone is not known
    first, second = (_code(Path(row.snapshot), row.file) for row in both)
    return first == second


@lru_cache(maxsize=64)  # a snapshot never changes
def _code(snapshot: Path, file: str) -> dict[str, str]:
    """The files that the DAG made by `file` may read -> their SHA-256."""
    files = {name: digest for name, digest in read_snapshot(snapshot).files.items() if name != MANIFEST}
    read, todo = {file}, [file]
    for one in todo:
        words = (
            set(_WORD.findall((snapshot / one).read_text(encoding="utf-8", errors="replace")))
            if one in files
            else set()
        )
        found = {other for other in files.keys() - read if words & _FINDS_BY_ITSELF or _is_mentioned(other, words)}
        read |= found
        todo += sorted(found)
    return {name: digest for name, digest in files.items() if name in read}


def _is_mentioned(file: str, words: set[str]) -> bool:
    path = PurePosixPath(file)
    names = [path.stem, *(part for part in path.parts[:-1])]
    if path.suffix != ".py":
        names.append(path.suffix)
    parts = ({*_WORD.findall(name)} - _NO_NAME for name in names)
    return any(part and part <= words for part in parts)
