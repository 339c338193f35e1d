"""A DAG's tasks in layers from left to right: each as far left as what it waits for allows, few crossings, no overlaps.

The usual three steps (Sugiyama): layers by the longest way from a root; order within a layer by the middle of the
neighbours, swept a few times to and fro; then heights, pulled towards the neighbours. An edge over several layers runs
through a place of its own in each, so that it passes no other task's box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

LETTER: Final = 7.3  # px, of the 12 px monospaced labels
HEIGHT: Final = 34
GAP_X: Final = 56
GAP_Y: Final = 16
MARGIN: Final = 8
WIDEST: Final = 30  # letters; a longer name is cut, its whole is the title
ICON: Final = 30  # px left of the label
SWEEPS: Final = 4

Place = tuple[str, int]  # (task, layer) of a task; (edge's name, layer) of an edge that passes by


@dataclass(frozen=True)
class Box:
    task_id: str
    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Edge:
    start: str
    end: str
    path: str  # of an SVG <path>


@dataclass(frozen=True)
class Graph:
    width: float
    height: float
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def layered(upstream: Mapping[str, Sequence[str]]) -> Graph:
    """`upstream`: every task, in any order, and what it waits for. It must have no cycle (`DagSpec.check` sees to it)."""
    layer_of = _layers(upstream)
    edges = [(up, task) for task, ups in upstream.items() for up in ups]
    links = {edge: _way(edge, layer_of) for edge in edges}
    layers = _in_order(_members(upstream, layer_of, links), links)
    heights = _heights(layers, links)
    xs, widths = _columns(layers, upstream)
    boxes = tuple(
        Box(task, _label(task), xs[layer], heights[task, layer], widths[layer], HEIGHT)
        for task, layer in layer_of.items()
    )
    drawn = tuple(Edge(up, task, _path(links[up, task], xs, widths, heights)) for up, task in edges)
    bottom = max((y for y in heights.values()), default=0) + HEIGHT
    right = xs[-1] + widths[-1] if xs else 0
    return Graph(right + MARGIN, bottom + MARGIN, boxes, drawn)


def _layers(upstream: Mapping[str, Sequence[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    waiting = list(upstream)
    while waiting:
        ready = [task for task in waiting if all(up in found for up in upstream[task])]
        if not ready:
            raise ValueError(f"a cycle among {', '.join(waiting)}")
        for task in ready:
            found[task] = max((found[up] + 1 for up in upstream[task]), default=0)
        waiting = [task for task in waiting if task not in found]
    return {task: found[task] for task in upstream}


def _way(edge: tuple[str, str], layer_of: Mapping[str, int]) -> list[Place]:
    """The places that an edge goes through, its ends included."""
    up, task = edge
    begin, end = layer_of[up], layer_of[task]
    return [(up, begin), *((f"{up}\0{task}", layer) for layer in range(begin + 1, end)), (task, end)]


def _members(
    upstream: Mapping[str, Sequence[str]], layer_of: Mapping[str, int], links: Mapping[tuple[str, str], list[Place]]
) -> list[list[Place]]:
    layers: list[list[Place]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for task in upstream:
        layers[layer_of[task]].append((task, layer_of[task]))
    for way in links.values():
        for place in way[1:-1]:
            layers[place[1]].append(place)
    return layers


def _neighbours(
    links: Mapping[tuple[str, str], list[Place]],
) -> tuple[dict[Place, list[Place]], dict[Place, list[Place]]]:
    before: dict[Place, list[Place]] = {}
    after: dict[Place, list[Place]] = {}
    for way in links.values():
        for left, right in pairwise(way):
            before.setdefault(right, []).append(left)
            after.setdefault(left, []).append(right)
    return before, after


def _in_order(layers: list[list[Place]], links: Mapping[tuple[str, str], list[Place]]) -> list[list[Place]]:
    before, after = _neighbours(links)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for n in range(1, len(layers)) if forth else range(len(layers) - 2, -1, -1):
            fixed = {place: at for at, place in enumerate(layers[n - 1 if forth else n + 1])}
            near = before if forth else after
            at_now = {place: at for at, place in enumerate(layers[n])}
            layers[n].sort(key=lambda one: _middle([fixed[p] for p in near.get(one, ())], at_now[one]))
    return layers


def _middle(places: Sequence[float], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _heights(layers: list[list[Place]], links: Mapping[tuple[str, str], list[Place]]) -> dict[Place, float]:
    """The y of each place's upper edge: as near to its neighbours as its order and the gaps allow."""
    step = HEIGHT + GAP_Y
    tallest = max(map(len, layers), default=0)
    y = {place: (n + (tallest - len(layer)) / 2) * step for layer in layers for n, place in enumerate(layer)}
    before, after = _neighbours(links)
    for near, sweep in ((before, layers), (after, layers[::-1]), (before, layers)):
        for layer in sweep:
            wanted = [_middle([y[p] for p in near.get(place, ())], y[place]) for place in layer]
            for place, at in zip(layer, _apart(wanted, step), strict=True):
                y[place] = at
    top = min(y.values(), default=0.0)
    return {place: at - top + MARGIN for place, at in y.items()}


def _apart(wanted: Sequence[float], step: float) -> list[float]:
    """Rising places at least `step` apart that are, as a whole, as near as can be to what was wanted."""
    placed: list[float] = []
    for at in wanted:
        placed.append(max(at, placed[-1] + step) if placed else at)
    shift = sum(w - p for w, p in zip(wanted, placed, strict=True)) / max(1, len(placed))
    return [at + shift for at in placed]


def _columns(layers: list[list[Place]], upstream: Mapping[str, Sequence[str]]) -> tuple[list[float], list[float]]:
    widths = [
        max((ICON + 12 + LETTER * len(_label(name)) for name, _ in layer if name in upstream), default=60.0)
        for layer in layers
    ]
    xs, x = [], float(MARGIN)
    for width in widths:
        xs.append(x)
        x += width + GAP_X
    return xs, widths


def _path(way: Sequence[Place], xs: list[float], widths: list[float], heights: Mapping[Place, float]) -> str:
    middle = HEIGHT / 2
    points = [(xs[way[0][1]] + widths[way[0][1]], heights[way[0]] + middle)]
    for place in way[1:-1]:
        y = heights[place] + middle
        points += [(xs[place[1]], y), (xs[place[1]] + widths[place[1]], y)]
    points.append((xs[way[-1][1]] - 5, heights[way[-1]] + middle))  # room for the arrow's head
    parts = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (x0 + x1) / 2
        parts.append(
            f"L{x1:.1f},{y1:.1f}" if y0 == y1 else f"C{bend:.1f},{y0:.1f} {bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
        )
    return " ".join(parts)


def _label(task_id: str) -> str:
    return task_id if len(task_id) <= WIDEST else f"{task_id[: WIDEST - 1]}…"
