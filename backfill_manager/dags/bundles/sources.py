"""Which source a bundle's settings mean."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from backfill_manager.dags.bundles.archive import ArchiveSource
from backfill_manager.dags.bundles.files import PYTHON_AND_YAML, DagFiles
from backfill_manager.dags.bundles.git_repository import GitSource
from backfill_manager.dags.bundles.source import BundleSource, FolderSource
from backfill_manager.settings import BundleSettings

ARCHIVES: Final = frozenset({".zip", ".whl"})


def source_of(settings: BundleSettings, *, cache: Path, dag_files: DagFiles = PYTHON_AND_YAML) -> BundleSource:
    """`cache` is a folder of ours, for clones and unpacked archives; it need not exist yet. `dag_files` belong to the
    bundle beside the usual files."""
    if settings.git is not None:
        return GitSource(settings.git, settings.ref, settings.path, cache=cache, dag_files=dag_files)
    path = Path(settings.path)
    if path.suffix.lower() in ARCHIVES:
        return ArchiveSource(path, cache=cache, dag_files=dag_files)
    return FolderSource(path)
