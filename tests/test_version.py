"""The version of the package is the one it was installed as."""

from __future__ import annotations

from importlib.metadata import version

import backfill_manager


def test_package_and_metadata_have_the_same_version() -> None:
    assert backfill_manager.__version__ == version("backfill-manager")
