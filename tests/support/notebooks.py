"""Executes a notebook of the repository, as `jupyter execute` does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

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
