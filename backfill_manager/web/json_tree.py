"""A JSON value as a tree that a page can open and close; bounded, whatever a task returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

MAX_NODES: Final = 1000
MAX_CHILDREN: Final = 200  # of one node
MAX_DEPTH: Final = 12
MAX_TEXT: Final = 500  # characters of one value
OPEN_CHILDREN: Final = 20  # the first level is open unless it has more


class Node(NamedTuple):
    name: str  # key or number; empty at the top
    text: str  # the value, of an object or a list how many it holds
    children: tuple[Node, ...] = ()
    left_out: int = 0  # children that are not shown
    is_open: bool = False


def json_tree(value: Any) -> Node:
    """What is deeper than `MAX_DEPTH`, or beyond `MAX_NODES`, is counted, not shown."""
    return _node("", value, 0, iter(range(MAX_NODES - 1)))


def _node(name: str, value: Any, depth: int, left: Iterator[int]) -> Node:
    """`left` yields once for each node that may still be made."""
    if not isinstance(value, dict | list) or not value:
        text = json.dumps(value, ensure_ascii=False)
        return Node(name, text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text):,} characters)")
    parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    shown = islice(parts, MAX_CHILDREN if depth < MAX_DEPTH else 0)
    # All of one level, then what is below.
    mine = [(str(key), part) for (key, part), _ in zip(shown, left, strict=False)]
    children = tuple(_node(key, part, depth + 1, left) for key, part in mine)
    word = ("key", "keys") if isinstance(value, dict) else ("element", "elements")
    is_open = depth == 0 and len(value) <= OPEN_CHILDREN
    return Node(name, f"{len(value):,} {word[len(value) != 1]}", children, len(value) - len(children), is_open)
