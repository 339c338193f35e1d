"""Where the files of DAG versions are kept."""

from __future__ import annotations

from pathlib import Path

from backfill_manager.settings import Settings
from backfill_manager.store.uri import is_local
from backfill_manager.user_cache import cache_folder


def snapshots_folder(settings: Settings, root: str) -> Path:
    """Where the files of DAG versions are kept: as configured, else in a state that is a folder, else in this user's cache."""
    if settings.snapshots:
        return Path(settings.snapshots)
    return Path(root) / "snapshots" if is_local(root) else cache_folder() / "snapshots"


def own_snapshots(settings: Settings, root: str) -> Path | None:
    """The folder of snapshots if it lies in the state's own folder; another one may be shared with other states."""
    folder = snapshots_folder(settings, root).absolute()
    return folder if is_local(root) and folder.is_relative_to(Path(root).absolute()) else None
