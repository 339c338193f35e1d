"""The functions that a version of a DAG runs, from the snapshot that it was stored with, in the process of one try."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.bundle_path import enter_bundle
from backfill_manager.dags.importing.dag_file import load_dags
from backfill_manager.dags.importing.import_failure import explain
from backfill_manager.errors import InvalidDag, StateError
from backfill_manager.model.records import DagVersion

OUTSIDE: Final = "does it depend on the date, the machine, or something else outside of its bundle?"


def load_dag(version: DagVersion, snapshots: Path | None) -> Dag:
    """The DAG as this version stored it (`spec`), with the functions of its snapshot, which is on this process's import
    path from then on. `StateError` when the snapshot is gone, `InvalidDag` when its file can't be executed any more or
    makes something else than it did. `snapshots`: see `snapshot_folder`. PySpark is loaded before, so that functions which go
    to Spark's workers take modules of the bundle along."""
    who = f"DAG {version.dag_id!r} version {version.version}"
    folder = snapshot_folder(version, snapshots)
    if not (folder / version.file).is_file():
        raise StateError(
            f"The code of {who} is gone: there is no {version.file} "
            f"under {folder}. Put the snapshot back, or clear the run with the latest version."
        )
    bundle = enter_bundle(folder, by_value=True)
    try:
        by: dict[str, Any] = json.loads(version.reader_json or "{}")
        made = load_dags(by.get("reader", ""), bundle, version.file, by.get("options", {}))
    except (Exception, SystemExit) as error:
        raise InvalidDag(f"{who}: {explain(error, bundle.root, version.file)}") from error
    dag = next((dag for dag in made if dag.dag_id == version.dag_id), None)
    if dag is None:
        raise InvalidDag(f"{who}: {version.file} makes no such DAG now; {OUTSIDE}")
    spec = DagSpec.from_json(version.definition_json)
    lost = [
        task.task_id for task in spec.tasks if task.kind in ("python", "executor") and task.task_id not in dag.functions
    ]
    if lost:
        raise InvalidDag(f"{who}: {version.file} makes it without {', '.join(lost)} now; {OUTSIDE}")
    return dataclasses.replace(dag, spec=spec)


def snapshot_folder(version: DagVersion, snapshots: Path | None) -> Path:
    """Where the version's snapshot lies now: a state that was moved or copied still names the place where it lay then, and
    `snapshots` is the folder that holds them all now."""
    folder = Path(version.snapshot)
    if snapshots is None or folder.is_dir():
        return folder
    return snapshots.absolute() / folder.name
