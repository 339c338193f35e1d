"""The example of docs/how-to/find-gaps-by-data.md is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

from support.bfm import Bfm
from support.lake import Lake
from support.sample_state import FilledState

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "find-gaps-by-data.md"


def test_the_example_is_what_the_command_prints(bfm: Bfm, state: FilledState, tmp_path: Path) -> None:
    Lake(state, tmp_path / "lake").story()
    block = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    command, *expected = block.splitlines()
    shown = bfm(*command.removeprefix("$ bfm ").split(), environ={"COLUMNS": "170"}).out.splitlines()
    assert [line.split() for line in shown if not set(line) <= set("─ ")] == [line.split() for line in expected]
