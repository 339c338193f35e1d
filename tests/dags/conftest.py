"""Fixtures of the tests of `dags`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.importing.loader import DagLoader


@pytest.fixture(scope="session")
def warm_loader() -> Iterator[DagLoader]:
    """One for all: its workers stay warm."""
    with DagLoader(workers=1) as loader:
        yield loader


@pytest.fixture
def bundle(tmp_path: Path, warm_loader: DagLoader) -> BundleFolder:
    return BundleFolder(tmp_path / "bundle", tmp_path / "snapshots", warm_loader)
