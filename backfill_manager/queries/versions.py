"""Versions of a DAG, and what differs between two of them: settings, tasks, and the files that they run."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.dags.bundles.files import read_snapshot
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.import_failure import to_utf8
from backfill_manager.dags.stored_definition import definition_of
from backfill_manager.errors import InvalidInput
from backfill_manager.masking import mask_code, mask_text, mask_values, secrets_in
from backfill_manager.model.records import DagRow, DagVersion
from backfill_manager.queries.dags import dag_row
from backfill_manager.queries.documents import document
from backfill_manager.schemas import resources
from backfill_manager.store.base import Store, matching

CONTEXT_LINES = 3
CODE = (".py", ".sql")


def list_versions(store: Store, dag_id: str) -> list[dict[str, Any]]:
    """Newest first. `NotFound` for a DAG that never was."""
    row = dag_row(store, dag_id)
    fields = resources.DagVersion.model_fields
    found = store.read(DagVersion, matching(dag_id=dag_id), order_by=("-version",))
    return [document(fields, one, is_current=one.version == row.current_version) for one in found]


def diff_versions(store: Store, dag_id: str, before: int, after: int) -> dict[str, Any]:
    """`{"settings": [{"name", "before", "after"}], "tasks": [{"task_id", "change", "settings"}], "files": [{"file",
    "change", "diff"}]}`; `files` is None when one of the snapshots can't be seen from here."""
    row = dag_row(store, dag_id)
    old, new = (_version(store, dag_id, number) for number in (before, after))
    was, now = map(definition_of, (old, new))
    others = {other.file for other in store.read(DagRow, matching(bundle=row.bundle))} - {old.file, new.file}
    settings = _settings(was, now, without=("tasks", "dag_id"))
    if old.python != new.python:
        settings.append({"name": "python", "before": old.python, "after": new.python})
    return {
        "dag_id": dag_id,
        "before": before,
        "after": after,
        "settings": settings,
        "tasks": _tasks(was, now),
        "files": _files(Path(old.snapshot), Path(new.snapshot), others, secrets_in([was.params, now.params])),
    }


def code_of(store: Store, dag_id: str, version: int) -> dict[str, Any]:
    """The file that the version was made by: `{"file", "text"}`; text None when its snapshot can't be seen from here."""
    found = _version(store, dag_id, version)
    secrets = secrets_in(definition_of(found).params)
    text = _text(Path(found.snapshot), found.file, secrets) if found.snapshot else None
    return {"dag_id": dag_id, "version": version, "file": found.file, "text": text}


def _version(store: Store, dag_id: str, number: int) -> DagVersion:
    found = store.first(DagVersion, matching(dag_id=dag_id, version=number))
    if found is None:
        known = sorted(version["version"] for version in list_versions(store, dag_id))
        if not known:
            raise InvalidInput(f"DAG {dag_id!r} has no versions")
        raise InvalidInput(f"DAG {dag_id!r} has no version {number}; it has {known[0]} to {known[-1]}")
    return found


def _settings(was: DagSpec | TaskSpec, now: DagSpec | TaskSpec, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    names = [field.name for field in dataclasses.fields(was) if field.name not in without]
    return [
        {"name": name, **mask_values({"before": _plain(getattr(was, name)), "after": _plain(getattr(now, name))})}
        for name in names
        if getattr(was, name) != getattr(now, name)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return format_instant(value) if hasattr(value, "tzinfo") else value


def _tasks(was: DagSpec, now: DagSpec) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for task_id in dict.fromkeys((*was.by_id, *now.by_id)):
        old, new = was.by_id.get(task_id), now.by_id.get(task_id)
        if old is None or new is None:
            found.append({"task_id": task_id, "change": "removed" if new is None else "added", "settings": []})
        elif old != new:
            found.append({"task_id": task_id, "change": "changed", "settings": _settings(old, new)})
    return found


def _files(old: Path, new: Path, others: set[str], secrets: tuple[str, ...]) -> list[dict[str, Any]] | None:
    if not old.is_dir() or not new.is_dir():
        return None
    found: list[dict[str, Any]] = []
    was, now = (read_snapshot(snapshot).files for snapshot in (old, new))
    for file in sorted({*was, *now} - others):
        if was.get(file) == now.get(file):
            continue
        before, after = (_text(snapshot, file, secrets) for snapshot in (old, new))
        change = "added" if before is None else "removed" if after is None else "changed"
        name = to_utf8(file)
        lines = difflib.unified_diff(
            (before or "").splitlines(), (after or "").splitlines(), name, name, n=CONTEXT_LINES, lineterm=""
        )
        found.append({"file": name, "change": change, "diff": "\n".join(lines)})
    return found


def _text(snapshot: Path, file: str, secrets: tuple[str, ...]) -> str | None:
    """Without these secrets, and what looks like one: also where it needs no quotes, as in YAML. None for what can't be read,
    or leads out of the snapshot (`../../etc/passwd`, a link): that is nobody's DAG."""
    try:
        path = (snapshot / file).resolve()
        if not path.is_relative_to(snapshot.resolve()) or not path.is_file():
            return None
        mask = mask_code if path.suffix in CODE else mask_text
        return mask(path.read_text(encoding="utf-8", errors="replace"), secrets)
    except (OSError, ValueError, RuntimeError):  # not allowed; no path at all (a null byte); links that go round
        return None
