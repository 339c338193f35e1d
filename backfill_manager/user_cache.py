"""The folder of this user's cache: jars, environments of bundles, snapshots of a state that is no folder."""

from __future__ import annotations

import os
from pathlib import Path

from backfill_manager.errors import InvalidInput


def cache_folder() -> Path:
    """`$BFM_CACHE`, else `backfill_manager` under `$XDG_CACHE_HOME` or `~/.cache`."""
    if named := os.environ.get("BFM_CACHE"):
        return Path(named)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backfill_manager"
    except RuntimeError:  # a container's user without a line in /etc/passwd
        raise InvalidInput(
            f"User {os.getuid()} has no home, where its cache would be: set HOME or BFM_CACHE."
        ) from None
