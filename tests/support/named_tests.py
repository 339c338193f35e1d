"""Tests that the documentation names (`tests/file.py::test_name`): which ones, and whether they exist.

Found with `ast`: nothing is imported and nothing runs.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_NAMED = re.compile(r"`(tests/[^`]+::[^`]+)`")


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """The tests that pytest finds in a file of the repository, by name; none where there is no such file."""
    path = REPOSITORY / file
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def named_tests(text: str) -> list[str]:
    found: list[str] = _NAMED.findall(text)
    return found


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    return name in names_in(file)
