"""The notebooks run from an empty folder, in a kernel of this interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def executed(name: str, folder: Path) -> list[str]:
    """What each cell printed and showed. A cell that fails, fails the test, with what it said."""
    binaries = Path(sys.executable).parent
    mine = {name: value for name, value in os.environ.items() if not name.startswith("BFM_") or name == "BFM_CACHE"}
    own = {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "IPYTHONDIR": str(folder / ".ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".jupyter"), "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }  # fmt: skip
    copy = folder / f"{name}.ipynb"
    shutil.copy(NOTEBOOKS / copy.name, copy)
    command = [sys.executable, str(binaries / "jupyter-execute"), "--inplace", "--timeout=240", str(copy)]
    ran = subprocess.run(command, cwd=folder, env=mine | own, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    return ["".join(map(_text, cell["outputs"])) for cell in cells if cell["cell_type"] == "code"]


def _text(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))


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
