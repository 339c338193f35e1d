"""`bfm init`: the project that it makes is right, and works by its own README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.bfm import Bfm

FILES = [".gitignore", "README.md", "conf/manager.yaml", "dags/sales.py", "tests/test_sales.py"]


def test_a_project_is_made_and_its_dag_can_be_read(bfm: Bfm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bfm("init", "shop")
    assert (made.code, made.out) == (0, f"Made in shop: {', '.join(FILES)}.\n")
    assert "cd shop && bfm doctor" in made.err
    monkeypatch.chdir(tmp_path / "shop")
    assert bfm("config", "check").code == 0
    assert "sales" in bfm("bundles", "parse", "main", "--dry-run").out
    assert "cd 'my shop' && bfm doctor" in bfm("init", "my shop").err


def test_the_commands_of_its_readme_exist(bfm: Bfm, tmp_path: Path) -> None:
    assert bfm("init").code == 0
    commands = re.findall(r"^    bfm (.*?)(?: +#.*)?$", (tmp_path / "README.md").read_text(), re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words = [word for word in command.split() if not word.startswith("-")][:2]
        assert bfm(*(words[:1] if words == ["doctor"] else words), "--help").code == 0, command


def test_nothing_that_is_there_is_changed(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "sales.py").write_text("mine")
    refused = bfm("init")
    assert (refused.code, refused.error) == (
        2, "dags/sales.py: there already. `bfm init` makes a project in an empty folder."
    )  # fmt: skip
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["sales.py"]
    assert (tmp_path / "dags" / "sales.py").read_text() == "mine"
    assert "Not a directory" in bfm("init", "dags/sales.py/shop").error


def test_the_test_of_its_dag_passes(bfm: Bfm, tmp_path: Path) -> None:
    assert bfm("init").code == 0
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
