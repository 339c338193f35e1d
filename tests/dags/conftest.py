"""What the tests of this room share."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_folder import BundleFolder


@pytest.fixture
def bundle(tmp_path: Path) -> BundleFolder:
    return BundleFolder(tmp_path / "bundle", tmp_path / "snapshots")
