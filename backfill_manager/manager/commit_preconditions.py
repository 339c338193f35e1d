"""What a commit needs: file descriptors, and space on the disk of the state.

A commit that lacks one ends the manager, as any that fails. So a tick does not begin without them, and the manager waits; its
heartbeat and requests of clients are small, and go on for long in what is kept free.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from backfill_manager import file_descriptors
from backfill_manager.store.uri import canonical_place

COMMIT_BYTES: Final = 32_000_000  # a commit writes far less, a compaction up to that
MAX_PART: Final = 4  # of a small disk a quarter is enough


def why_no_commit(root: str) -> str | None:
    """Why a commit to the state at `root` would fail now; None when nothing is missing."""
    if not file_descriptors.are_free():
        return f"too few file descriptors are free; the limit is {file_descriptors.limit()}"
    if not _has_space(root):
        return f"the disk of the state at {root} is full; make space, or stop the manager"
    return None


def _has_space(root: str) -> bool:
    """True also for a state that is on no disk."""
    place = canonical_place(root)
    if not place.startswith("/") or not Path(place).exists():
        return True
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize >= min(COMMIT_BYTES, disk.f_blocks * disk.f_frsize // MAX_PART)
