"""The README's DAG loads and its commands and folders exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from backfill_manager.cli import main
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.settings import BundleSettings

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
DOCS = "".join(page.read_text(encoding="utf-8") for page in sorted((REPOSITORY / "docs").rglob("*.md")))
COMMANDS = sorted(set(re.findall(r"^\$ bfm (.+)$", README + DOCS, re.MULTILINE)))


def test_the_first_dag_loads_and_is_about_ten_lines(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "departures.py").write_text(block)
    scan = parse_bundle(BundleSettings(name="readme", path=str(bundle)), snapshots=tmp_path / "snapshots")
    assert scan.failed == ()
    (dag,) = scan.parsed[0].dags
    assert (dag.dag_id, [(task.task_id, task.kind, task.upstream) for task in dag.tasks]) == (
        "departures",
        [("on_time", "python", ()), ("check", "sql", ("on_time",))],
    )
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_readme_and_docs_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*shlex.split(command), "--help"]) == 0, capsys.readouterr().err


def test_there_are_commands_in_the_readme() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)|`([a-z_]+/[a-z_/]*)`", README))
def test_a_link_or_folder_of_the_readme_exists(link: tuple[str, str]) -> None:
    assert (REPOSITORY / (link[0] or link[1])).exists()
