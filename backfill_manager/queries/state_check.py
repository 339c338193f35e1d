"""What is wrong with a state. A store checks its files and rows; definitions of DAGs are above it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from backfill_manager.dags.stored_definition import UnreadableSpec, definition_or_why
from backfill_manager.errors import StateError
from backfill_manager.humanise import name_list, plural
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRow, DagRun, DagVersion
from backfill_manager.model.stored_json import is_readable
from backfill_manager.planning.backfills.unusable_backfill import unreadable_text
from backfill_manager.store.base import Finding, Store, matching
from backfill_manager.store.wrong_rows import BACK_UP

ACTIVE: Final = (s.QUEUED, s.RUNNING, s.PAUSED)
ANEW: Final = "a manager that reads the bundle makes a new version for new runs; what belongs to the old one fails"


def check_state(store: Store) -> list[Finding]:
    found, wrong = store.check(), list[Finding]()
    with suppress(StateError):  # of a table that is damaged, which the store has named
        wrong += (
            Finding(DagVersion.TABLE, False, what) for what in (*_no_definitions(store), *_missing_versions(store))
        )
        wrong += (Finding(Backfill.TABLE, False, f"{why}: {BACK_UP}") for why in _unreadable_texts(store))
    tables = {one.table for one in wrong}
    return [*(one for one in found if not one.ok or one.table not in tables), *wrong]


def _unreadable_texts(store: Store) -> list[str]:
    rows = store.read(Backfill, matching(state=ACTIVE))
    return [str(problem).partition(";")[0] for row in rows if (problem := unreadable_text(row))]


def _no_definitions(store: Store) -> list[str]:
    """Those that are no JSON object at all are named by the store."""
    rows = (row for row in store.read(DagVersion) if is_readable("definition_json", row.definition_json))
    wrong = [row.key for row in rows if isinstance(definition_or_why(row), UnreadableSpec)]
    return [f"definition_json of {plural(len(wrong), 'row')} is no DAG {_named(wrong)}"] if wrong else []


def _missing_versions(store: Store) -> list[str]:
    there = set(store.count(DagVersion.TABLE, ["dag_id", "version"]))
    needed = {(row.dag_id, row.current_version) for row in store.read(DagRow)}
    needed |= {(row.dag_id, row.dag_version) for row in store.read(DagRun, matching(state=sorted(s.RUN_LIVE)))}
    needed |= {(row.dag_id, row.dag_version) for row in store.read(Backfill, matching(state=ACTIVE))}
    gone = needed - there
    return (
        [f"{plural(len(gone), 'row')} that others name {'is' if len(gone) == 1 else 'are'} missing {_named(gone)}"]
        if gone
        else []
    )


def _named(keys: Collection[tuple[object, ...]]) -> str:
    return f"({name_list(sorted('/'.join(map(str, key)) for key in keys))}): {ANEW}; or {BACK_UP}"
