"""Fixtures of the tests of `dags`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.loaded_files import children_of, process_ids

from backfill_manager.dags.importing.loader import DagLoader


@pytest.fixture(scope="session")
def warm_loader() -> Iterator[DagLoader]:
    """One for all: its workers stay warm."""
    with DagLoader(workers=1) as loader:
        yield loader


@pytest.fixture
def bundle(tmp_path: Path, warm_loader: DagLoader) -> BundleFolder:
    return BundleFolder(tmp_path / "bundle", tmp_path / "snapshots", warm_loader)


@pytest.fixture(scope="module")
def shared_loader() -> Iterator[DagLoader]:
    """One for most tests of a file: the next one would notice what a DAG file does to its fork server."""
    with DagLoader(workers=2) as loader:
        yield loader


@pytest.fixture
def loader(shared_loader: DagLoader) -> Iterator[DagLoader]:
    yield shared_loader
    assert children_of(process_ids(shared_loader)) == []
