"""The project of docs/authoring.md is written to a folder and used as the page says: tests pass, DAGs and configuration load."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backfill_manager.model.states import TRIGGER_RULES

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "authoring.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```\w+\n(?:#|--) (?P<path>\S+/\S+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {found["path"]: found["text"] for found in FILE.finditer(PAGE)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def in_project(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def test_the_tests_of_the_guide_pass(project: Path) -> None:
    done = in_project(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests")
    written = sum(isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
                  for node in ast.walk(ast.parse(FILES["tests/test_orders.py"])))  # fmt: skip
    assert f"{written} passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", re.findall(r"^\$ bfm (bundles parse .+)$", PAGE, re.MULTILINE))
def test_the_files_of_the_guide_load(project: Path, command: str) -> None:
    done = in_project(project, "-m", "backfill_manager", *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    for dag_id in ("shop_tables", "orders", "prices", "regions"):
        assert dag_id in done.stdout


def test_the_dags_of_the_guide_run_in_its_own_project(project: Path) -> None:
    commands = re.findall(r"^\$ bfm (dags test .+)$", PAGE.partition("## A DAG")[0], re.MULTILINE)
    assert [command.split()[2] for command in commands] == ["shop_tables", "orders"]
    for command in commands:
        done = in_project(project, "-m", "backfill_manager", *command.split())
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_configuration_of_the_guide_is_valid(project: Path) -> None:
    done = in_project(project, "-m", "backfill_manager", "config", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_of_ctx_and_every_trigger_rule_is_in_the_guide() -> None:
    from backfill_manager.execution.tasks.context import TaskContext

    source = inspect.getsource(TaskContext)
    attributes = set(re.findall(r"self\.([a-z]\w+)\b(?:: [^=\n]+)? = ", source))
    names = attributes | {name for name in vars(TaskContext) if not name.startswith("_")}
    assert {"spark", "write", "merge", "result", "skip", "interval", "params"} <= names
    assert [name for name in sorted(names) if f"`ctx.{name}" not in PAGE] == []
    assert [rule for rule in TRIGGER_RULES if f"| `{rule}`" not in PAGE] == []
