"""Loads the DAG files of a folder, and looks at the processes that did."""

from __future__ import annotations

from pathlib import Path

from backfill_manager.dags.bundles.files import read_bundle
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile
from support.bundle_folder import BundleFolder

# For a file that never ends: time enough for its process, which stands behind all others for a core, to come to that line.
SHORT_S = 2.0


def load(loader: DagLoader, bundle: BundleFolder, **settings: float) -> list[ParsedFile | FailedFile]:
    return loader.load(bundle.root, read_bundle(bundle.root).candidates, **settings)  # type: ignore[arg-type]


def only_file(loader: DagLoader, bundle: BundleFolder) -> ParsedFile:
    (result,) = load(loader, bundle)
    assert isinstance(result, ParsedFile), result
    return result


def only_failure(loader: DagLoader, bundle: BundleFolder, **settings: float) -> FailedFile:
    (failure,) = load(loader, bundle, **settings)
    assert isinstance(failure, FailedFile)
    assert "\n" not in failure.message
    return failure


def process_ids(loader: DagLoader) -> tuple[int, ...]:
    """Of the fork servers that are alive."""
    return tuple(one.pid for servers in loader._servers for one in list(servers._servers.values()) if one.is_alive)


def children_of(pids: tuple[int, ...]) -> list[int]:
    """On Linux; empty elsewhere."""
    lists = [Path(f"/proc/{pid}/task/{pid}/children") for pid in pids]
    return [int(child) for path in lists if path.exists() for child in path.read_text().split()]
