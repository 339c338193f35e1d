"""The identity of a state, and whether another state has the same one.

A state is given an id by the first manager that leads it; each term's row in `manager` carries the id on, and where the
state was. The id is part of every output transaction (execution/output/write_context.py). So a copy of a state, with the same
id, would take the other's output for its own, and report success where it wrote nothing. A manager whose state is
not where its last manager left it therefore checks that place first:

| at the last place is | it is | what follows |
|---|---|---|
| the very same folder (a link, a mount) | the same | it is led |
| nothing, nothing that is visible from here, or another state | moved | it is led; the new place goes into the lease row |
| a state of the same id | a copy | `StateCopied`: a person says which one keeps the identity |
| something that can't be read | perhaps a copy | the same |

A state that has lost all its runs (`bfm state init` makes their table anew) gets a new id, as new ones of the same dates have
the same run ids.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Final, Literal

from backfill_manager.clock import Clock
from backfill_manager.errors import StateError
from backfill_manager.execution.output.write_context import StateIdentity
from backfill_manager.model.records import Backfill, DagRun, Manager
from backfill_manager.store import open_like
from backfill_manager.store.base import CHILDREN, Condition, Store
from backfill_manager.store.uri import is_local

Adopted = Literal["copy", "original"]
COPY: Final = "copy"
ORIGINAL: Final = "original"


def identity_fields(store: Store, last: Manager | None, clock: Clock, adopted: Adopted | None = None) -> dict[str, Any]:
    """`state_id`, `state_id_since` and `state_root` for the lease row that follows `last`."""
    is_kept = adopted != COPY and not _has_lost_its_runs(store)
    if last is not None and last.state_id is not None and is_kept:
        return {"state_id": last.state_id, "state_id_since": last.state_id_since, "state_root": store.place}
    since = clock.now()
    if last is not None:  # by its clock it may have made runs later than now
        since = max(since, last.heartbeat_at)
    return {"state_id": clock.new_id(), "state_id_since": since, "state_root": store.place}


def _has_lost_its_runs(store: Store) -> bool:
    """There is none, but a row of one, or a backfill that has begun. (A leader deletes the rows; it has the new id by then.)"""
    if store.count(DagRun.TABLE, [])[()]:
        return False
    begun = store.count(Backfill.TABLE, [], [Condition("started_at", "not_null")])[()]
    return bool(begun) or any(store.count(table, [])[()] for table in CHILDREN[DagRun.TABLE])


def identity_of(store: Store, row: Manager) -> StateIdentity:
    assert row.state_id is not None
    first = store.first(Manager, [Condition("state_id", "=", row.state_id)], ["term"])
    assert first is not None, "this row at least"
    before = store.first(Manager, [Condition("term", "<", first.term)], ["-term"])
    was_upgraded = before is not None and before.state_id is None  # a release without ids led it before
    return StateIdentity(row.state_id, first.state_id_since if was_upgraded else None)


def other_place(store: Store, last: Manager) -> tuple[str, str] | None:
    """Another place where the same state is, or may be, and why; None if this is the only one."""
    there = last.state_root
    if there is None or last.state_id is None or there == store.place:
        return None
    if is_local(there):
        try:
            os.stat(Path(there) / Manager.TABLE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return there, f"can't be read from here ({error.strerror})"
        if is_local(store.place) and _are_one_folder(Path(there), Path(store.place)):
            return None
    try:
        other = open_like(store, there)
        lease = other.lease() if other.exists() else None
    except StateError as error:
        return there, f"can't be read from here ({str(error).rstrip('.')})"
    if lease is None or lease.state_id != last.state_id:
        return None
    return there, "still holds the same state"


def _are_one_folder(one: Path, other: Path) -> bool:
    """Whether a file written in one appears in the other: also for two mounts of one share, whose device numbers differ
    (those of a snapshot do, too)."""
    if os.path.samefile(one, other):
        return True
    probe = f".bfm-probe-{uuid.uuid4().hex}"
    try:
        (other / probe).touch(exist_ok=False)
    except OSError:
        return False
    try:
        return (one / probe).exists()
    finally:
        (other / probe).unlink(missing_ok=True)
