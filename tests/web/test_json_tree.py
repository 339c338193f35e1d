"""JSON values as trees."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.web.json_tree import MAX_CHILDREN, MAX_DEPTH, MAX_NODES, Node, json_tree

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30,
)  # fmt: skip


def nodes(node: Node) -> list[Node]:
    return [node, *(one for child in node.children for one in nodes(child))]


def counted(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(counted, below))


@given(values)
def test_of_a_small_value_nothing_is_left_out(value: Any) -> None:
    assert len(nodes(json_tree(value))) == counted(value)


def test_a_large_value_is_bounded_in_every_direction() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    depth, node = 0, json_tree(deep)
    while node.children:
        depth, (node,) = depth + 1, node.children
    assert (depth, node.left_out, node.text) == (MAX_DEPTH, 1, "1 element")

    wide = json_tree(list(range(5000)))
    assert (len(wide.children), wide.left_out, wide.is_open) == (MAX_CHILDREN, 5000 - MAX_CHILDREN, False)

    many = json_tree({f"k{n}": list(range(150)) for n in range(150)})
    assert len(nodes(many)) == MAX_NODES
    assert len(many.children) == 150 and many.children[-1].left_out == 150

    assert json_tree("x" * 5000).text.endswith("… (5,002 characters)")
