"""Which columns of tables each column of a query is computed from, by Spark's analysed plan.

Spark writes a plan as JSON: its nodes in the order parent, first child, second child, and in each its expressions, in the same
order. Each column has an id (`exprId`), by which the expressions above it name it. Conditions of filters and joins, groups and
orders don't count: they choose rows, and no value comes of them. Where a plan does not say where a column comes from (rows of
Python functions over whole frames, of RDDs), it has no sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
_LEFT_ONLY: Final = ("LeftSemi", "LeftAnti")


class SourceColumn(NamedTuple):
    table: str  # its name, or its path
    column: str


class Column(NamedTuple):
    """One that a node of a plan puts out."""

    id: int
    name: str
    sources: frozenset[SourceColumn] = frozenset()


def source_columns(plan: str, relations: Mapping[int, SourceColumn]) -> dict[str, tuple[SourceColumn, ...]]:
    """By column of the query with this plan. `relations`: what the ids of the columns of its relations stand for."""
    columns = _PlanReader(relations).read(iter(json.loads(plan)))
    return {column.name: tuple(sorted(column.sources)) for column in columns}


def relation_columns(relation: str) -> list[Column]:
    """Those that the JSON of a plan's leaf lists."""
    return _PlanReader({}).read(iter(json.loads(relation)))


class _PlanReader:
    def __init__(self, relations: Mapping[int, SourceColumn]) -> None:
        self._relations = relations
        self._common_tables: dict[int, list[Column]] = {}

    def read(self, nodes: Iterator[Json]) -> list[Column]:
        """The columns of the next node, which is read with all below it."""
        node = next(nodes)
        inputs = [self.read(nodes) for _ in range(node["num-children"])]
        below = [column for one in inputs for column in one]
        match _kind(node):
            case "Project":
                return self._made(node["projectList"], below)
            case "Aggregate":
                return self._made(node["aggregateExpressions"], below)
            case "Window":
                return below + self._made(node["windowExpressions"], below)
            case "Generate":
                sources = self._sources(node["generator"], below)
                return below + [column._replace(sources=sources) for column in self._made(node["generatorOutput"], [])]
            case "Expand":
                projections = [[self._sources(one, below) for one in row] for row in node["projections"]]
                return _joined(self._made(node["output"], []), *projections)
            case "Join":
                return inputs[0] if _kind(node["joinType"], "object").rstrip("$") in _LEFT_ONLY else below
            case "Union" | "Intersect" | "Except":
                return _joined(inputs[0], *([column.sources for column in one] for one in inputs[1:]))
            case "CTERelationDef":
                self._common_tables[node["id"]] = below
                return below
            case "CTERelationRef":
                defined = self._common_tables.get(node["cteId"], [])
                return _joined(self._made(node["output"], []), [column.sources for column in defined])
            case "WithCTE":
                return inputs[-1]
        if "output" in node:
            return self._made(node["output"], [])
        return below if len(inputs) == 1 else []

    def _made(self, expressions: Sequence[list[Json]], below: Sequence[Column]) -> list[Column]:
        """The columns of expressions, each an attribute or an alias."""
        named = [one for one in expressions if "exprId" in one[0]]
        return [Column(one[0]["exprId"]["id"], one[0]["name"], self._sources(one, below)) for one in named]

    def _sources(self, expression: Sequence[Json], below: Sequence[Column]) -> frozenset[SourceColumn]:
        known = {column.id: column.sources for column in below}
        found = set[SourceColumn]()
        for part in expression:
            if _kind(part) == "AttributeReference":
                number = part["exprId"]["id"]
                if number in known:
                    found |= known[number]
                elif number in self._relations:
                    found.add(self._relations[number])
            elif isinstance(part.get("plan"), list):  # a subquery
                found |= {source for column in self.read(iter(part["plan"])) for source in column.sources}
        return frozenset(found)


def _joined(columns: Sequence[Column], *others: Sequence[frozenset[SourceColumn]]) -> list[Column]:
    """With the sources of others too, which stand at the same places."""
    return [
        column._replace(sources=column.sources.union(*(one[at] for one in others if at < len(one))))
        for at, column in enumerate(columns)
    ]


def _kind(part: Json, key: str = "class") -> str:
    return str(part.get(key, "")).rpartition(".")[2]
