"""The version that the package tells is the one it was installed as."""

from __future__ import annotations

from importlib.metadata import version

import backfill_manager


def test_the_package_and_its_metadata_tell_one_version() -> None:
    assert backfill_manager.__version__ == version("backfill-manager")
