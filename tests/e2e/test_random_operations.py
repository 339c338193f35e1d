"""A real manager under commands that are chosen by chance, and `kill -9`; see `support/random_operations.py`."""

from __future__ import annotations

import faulthandler
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.random_operations import RandomOperations


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    ("seed", "days", "steps"),
    [(1, 4, 6), *(pytest.param(seed, 24, 45, marks=pytest.mark.slow) for seed in range(2, 7))],
)
def test_whatever_is_requested_state_and_tables_agree_at_the_end(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]], seed: int, days: int, steps: int
) -> None:
    faulthandler.cancel_dump_traceback_later()  # pytest's limit for a test is shorter than the long ones take
    story = RandomOperations(root, seed, days, managers)
    try:
        story.run(steps)
        story.end()
    finally:
        print(*story.said, sep="\n")
    assert list(story.problems()) == []
