"""What `--help` prints."""

from __future__ import annotations

import re

import pytest
from support.bfm import Bfm


@pytest.mark.parametrize(
    "group", ["manager", "dags", "backfill", "runs", "tasks", "requests", "pools", "state", "config"]
)
def test_every_command_has_a_help_with_an_example(bfm: Bfm, group: str) -> None:
    import importlib

    commands = importlib.import_module(f"backfill_manager.cli.commands.{group}").group.commands
    for name in commands:
        result = bfm(group, name, "--help")
        assert result.code == 0
        assert f"bfm {group} {name}" in result.out or "Example" in result.out
        assert "--output" in result.out


@pytest.mark.parametrize("words", ["backfill create", "backfill set", "tasks clear", "dags trigger"])
def test_a_help_names_every_option_in_full_on_a_narrow_terminal(
    bfm: Bfm, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def help_at(columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        return bfm(*words.split(), "--help").out

    options = {name for name in re.findall(r"--[a-z-]+", help_at(250)) if not name.startswith("--no-")}
    narrow = help_at(80)
    # the first column, one row after the other: what is broken into lines is whole there
    names = "".join(
        row.strip("│ ").split()[0] for row in narrow.splitlines() if row.startswith("│ --") or row[2:3].isalpha()
    )
    assert "…" not in narrow
    assert options and {option for option in options if option not in names} == set()


def test_the_help_lists_the_groups_in_the_order_of_use(bfm: Bfm) -> None:
    result = bfm("--help")

    groups = [line.split()[1] for line in result.out.partition(" Commands ")[2].splitlines() if line.startswith("│ ")]
    named = [one for one in groups if one in {"manager", "dags", "backfill", "runs", "tasks", "state"}]
    assert named == ["manager", "dags", "backfill", "runs", "tasks", "state"]
