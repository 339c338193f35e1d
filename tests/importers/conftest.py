"""`drafted(text)`: the draft of an Airflow file, read by our own loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.drafted import Drafted, DraftOf

from backfill_manager.dags.importing.bundle_path import enter_bundle
from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.writer import write
from backfill_manager.testing import load_file


@pytest.fixture
def drafted(tmp_path: Path) -> Iterator[DraftOf]:
    """Leaves no folder of a test on `sys.path`."""

    def make(text: str) -> Drafted:
        draft = translate(text, "example.py")
        (tmp_path / "example.py").write_text(written := write(draft))
        return Drafted(draft, written, load_file(tmp_path / "example.py"))

    yield make
    enter_bundle(tmp_path).leave()
