"""Temporary: `task_code` for the executor's threads, with `import_scope`. Both go when tasks have processes of their own.

The only place in the manager's process that executes DAG files, and only such as have been loaded before in a process
of their own. Each snapshot is a package of its own (`bundle_imports`), so versions that differ in their helper
modules run side by side. Loaded once, from any thread; a file that takes long holds up only those who want the
same file.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final

from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.dag_file import load_dags
from backfill_manager.dags.importing.import_failure import explain
from backfill_manager.dags.importing.import_scope import ImportScope, open_scope
from backfill_manager.errors import InvalidDag, StateError
from backfill_manager.model.records import DagVersion

OUTSIDE: Final = "does it depend on the date, the machine, or something else outside of its bundle?"
MAX_SNAPSHOTS: Final = 50  # snapshots; one takes some hundred kilobytes


class CodeCache:
    """`snapshots`: where snapshots lie now. A state that was moved or copied still names the place where they lay then."""

    def __init__(self, snapshots: Path | None = None, *, kept: int = MAX_SNAPSHOTS) -> None:
        self._snapshots, self._kept = snapshots, kept
        self._lock = Lock()
        self._users: Counter[str] = Counter()  # by snapshot
        self._file_locks: dict[tuple[str, str], Lock] = {}
        self._bundles: dict[str, ImportScope] = {}
        self._dags: dict[tuple[str, int, str], Dag] = {}

    def dag(self, version: DagVersion) -> Dag:
        """The DAG as this version stored it (`spec`), with the functions of its snapshot. `StateError` when the
        snapshot is gone, `InvalidDag` when its file can't be executed any more or makes something else than it did."""
        key = (version.dag_id, version.version, version.snapshot)  # numbers begin anew in another state
        with self._lock:
            if key in self._dags:
                return self._dags[key]
            file_lock = self._file_locks.setdefault((version.snapshot, version.file), Lock())
        with file_lock:
            dag = _load(self._bundle(version), version)
        with self._lock:
            return self._dags.setdefault(key, dag)

    @contextmanager
    def using(self, version: DagVersion) -> Iterator[None]:
        """For as long as a task of the version runs, which may import more at any time: its snapshot stays loaded. Of
        those that nobody uses, the ones used last are kept, so that months of edits don't fill the memory."""
        with self._lock:
            self._users[version.snapshot] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[version.snapshot] -= 1
                self._users += Counter()  # without those at zero
                if version.snapshot in self._bundles:
                    self._bundles[version.snapshot] = self._bundles.pop(version.snapshot)  # the one used last
                unused = [snapshot for snapshot in self._bundles if snapshot not in self._users]
                for snapshot in unused[: max(0, len(self._bundles) - self._kept)]:
                    self._bundles.pop(snapshot).close()
                    self._dags = {key: dag for key, dag in self._dags.items() if key[2] != snapshot}
                    self._file_locks = {key: lock for key, lock in self._file_locks.items() if key[0] != snapshot}

    def folder(self, version: DagVersion) -> Path:
        folder = Path(version.snapshot)
        if self._snapshots is None or folder.is_dir():
            return folder
        return self._snapshots.absolute() / folder.name

    def _bundle(self, version: DagVersion) -> ImportScope:
        folder = self.folder(version)
        if not (folder / version.file).is_file():
            raise StateError(
                f"The code of DAG {version.dag_id!r} version {version.version} is gone: there is no {version.file} "
                f"under {folder}. Put the snapshot back, or clear the run with the latest version."
            )
        with self._lock:
            if version.snapshot not in self._bundles:
                self._bundles[version.snapshot] = open_scope(folder)
            return self._bundles[version.snapshot]


def _load(bundle: ImportScope, version: DagVersion) -> Dag:
    who = f"DAG {version.dag_id!r} version {version.version}"
    try:
        by: dict[str, Any] = json.loads(version.reader_json or "{}")
        made = load_dags(by.get("reader", ""), bundle, version.file, by.get("options", {}))  # type: ignore[arg-type]
    except (Exception, SystemExit) as error:
        raise InvalidDag(f"{who}: {explain(error, bundle.root, version.file)}") from error
    dag = next((dag for dag in made if dag.dag_id == version.dag_id), None)
    if dag is None:
        raise InvalidDag(f"{who}: {version.file} makes no such DAG now; {OUTSIDE}")
    spec = DagSpec.from_json(version.definition_json)
    lost = [task.task_id for task in spec.tasks if task.kind != "sql" and task.task_id not in dag.functions]
    if lost:
        raise InvalidDag(f"{who}: {version.file} makes it without {', '.join(lost)} now; {OUTSIDE}")
    return dataclasses.replace(dag, spec=spec, modules=bundle.modules())
