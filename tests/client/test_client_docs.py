"""The Python of docs/python-client.md runs, against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backfill_manager.model.records import Request
from backfill_manager.testing import InMemoryManager, days

PAGE = (Path(__file__).parents[2] / "docs" / "python-client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)


def test_the_examples_run_one_after_the_other(
    url: str, manager: InMemoryManager, capsys: pytest.CaptureFixture[str]
) -> None:
    manager.backfill("flights", days("2013-01-01", 2))
    names: dict[str, object] = {}

    assert len(BLOCKS) == 3
    for block in BLOCKS:
        exec(block.replace("http://127.0.0.1:8099", url), names)

    output = capsys.readouterr().out
    assert "flights queued waiting for the manager" in output
    assert "['flights', 'weather']" in output
    assert "dag.pause waiting" in output
    assert "only one that has ended is retried" in output
    assert [request.kind for request in manager.store.read(Request)] == ["backfill.create", "dag.pause"]
