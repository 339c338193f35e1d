"""The files of versions are kept where it is configured, else in the state, else in the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from backfill_manager.manager.snapshots import own_snapshots, snapshots_folder
from backfill_manager.settings import Settings


def test_a_given_location_wins(tmp_path: Path) -> None:
    assert snapshots_folder(Settings(snapshots=str(tmp_path / "mine")), str(tmp_path / "state")) == tmp_path / "mine"


def test_a_state_that_is_a_folder_keeps_them_itself(tmp_path: Path) -> None:
    assert snapshots_folder(Settings(), str(tmp_path / "state")) == tmp_path / "state" / "snapshots"


@pytest.mark.parametrize("root", ["s3://bucket/state", "catalog.schema"])
def test_for_a_state_elsewhere_they_lie_in_this_users_cache(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert snapshots_folder(Settings(), root).is_relative_to(tmp_path)
    assert snapshots_folder(Settings(), root).name == "snapshots"


def test_only_snapshots_within_the_state_are_its_own(tmp_path: Path) -> None:
    """Another folder may hold the files of other states, too: nothing is deleted there."""
    state = str(tmp_path / "state")
    assert own_snapshots(Settings(), state) == tmp_path / "state" / "snapshots"
    assert own_snapshots(Settings(snapshots=str(tmp_path / "shared")), state) is None
    assert own_snapshots(Settings(), "s3://bucket/state") is None
