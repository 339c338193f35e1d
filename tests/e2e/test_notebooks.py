"""The notebooks run from an empty folder, in a kernel of this interpreter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.notebooks import NOTEBOOKS, executed


def test_the_quickstart_backfills_and_plots(tmp_path: Path) -> None:
    cells = executed("quickstart", tmp_path)
    watched = next(text for text in cells if "Backfill" in text and "7 success" in text)
    assert "of sales" in watched
    assert "(7, 14)" in cells
    assert sum("Axes" in text or "Figure" in text for text in cells) == 3
    assert any("rows now;" in text for text in cells)
    assert "already" in cells[-1]


def test_a_dag_of_airflow_becomes_a_draft_that_can_be_read(tmp_path: Path) -> None:
    cells = executed("migrating", tmp_path)
    assert "TODO" in cells[-2]
    assert "('0 0 * * *'" in cells[-1] or "('@daily'" in cells[-1]
    assert "totals" in cells[-1]


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
