"""Layout of a DAG's tasks in layers from left to right, by Sugiyama's method.

Each task is in the leftmost layer that its upstream tasks allow; the order within a layer follows the mean position of the
neighbours, in several sweeps; then the y positions are pulled towards the neighbours. An edge over several layers passes through
a slot of its own in each, so that it crosses no other task's node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Final, NamedTuple

CHARACTER: Final = 7.3  # px, of the 12 px monospaced labels
SMALL_CHARACTER: Final = 6.2  # px, of the 11 px text below them
HEIGHT: Final = 44
EDGE_HEIGHT: Final = 16  # of an edge that passes between tasks, with its gap
GAP_X: Final = 56
GAP_Y: Final = 16
MARGIN: Final = 8
MAX_LABEL_LENGTH: Final = 30  # characters; a longer name is cut, and complete in the title
ICON: Final = 30  # px left of the label
ARROW: Final = 5
SWEEPS: Final = 4

Slot = tuple[str, int]  # (task, layer) of a task; (edge's name, layer) of an edge that passes through
Neighbours = Mapping[Slot, Sequence[Slot]]


class Node(NamedTuple):
    task_id: str
    label: str
    x: float
    y: float
    width: float
    height: float


class Edge(NamedTuple):
    start: str
    end: str
    path: str  # of an SVG <path>


class Graph(NamedTuple):
    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def layered(upstream: Mapping[str, Sequence[str]], texts: Mapping[str, str] | None = None) -> Graph:
    """Lays out the tasks, each with its upstream tasks; `texts` are written below their labels. `graphlib.CycleError` for a
    cycle (`DagSpec.check` excludes it)."""
    layer_of: dict[str, int] = {}
    for task in TopologicalSorter(upstream).static_order():
        layer_of[task] = max((layer_of[up] + 1 for up in upstream[task]), default=0)

    def slots_of(up: str, task: str) -> list[Slot]:
        """The slots of an edge, its ends included."""
        begin, end = layer_of[up], layer_of[task]
        return [(up, begin), *((f"{up}\0{task}", layer) for layer in range(begin + 1, end)), (task, end)]

    routes = {(up, task): slots_of(up, task) for task, ups in upstream.items() for up in ups}
    layers: list[list[Slot]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for task in upstream:
        layers[layer_of[task]].append((task, layer_of[task]))
    for slot in (slot for route in routes.values() for slot in route[1:-1]):
        layers[slot[1]].append(slot)
    before: dict[Slot, list[Slot]] = {}
    after: dict[Slot, list[Slot]] = {}
    for left, right in (pair for route in routes.values() for pair in pairwise(route)):
        before.setdefault(right, []).append(left)
        after.setdefault(left, []).append(right)
    _sort_layers(layers, before, after)
    ys = _y_positions(layers, before, after)
    xs, widths = _columns(layers, upstream, texts or {})
    nodes = tuple(
        Node(task, _label(task), xs[layer_of[task]], ys[task, layer_of[task]], widths[layer_of[task]], HEIGHT)
        for task in upstream
    )
    edges = tuple(Edge(up, task, _path(route, xs, widths, ys)) for (up, task), route in routes.items())
    right_end = xs[-1] + widths[-1] if xs else 0
    return Graph(right_end + MARGIN, max(ys.values(), default=0) + HEIGHT + MARGIN, nodes, edges)


def _sort_layers(layers: list[list[Slot]], before: Neighbours, after: Neighbours) -> None:
    for sweep in range(SWEEPS):
        step, neighbours = (1, before) if sweep % 2 == 0 else (-1, after)
        for n in range(1, len(layers)) if step == 1 else range(len(layers) - 2, -1, -1):
            fixed = {slot: at for at, slot in enumerate(layers[n - step])}
            own = {slot: at for at, slot in enumerate(layers[n])}
            means = {slot: _mean([fixed[other] for other in neighbours.get(slot, ())], own[slot]) for slot in own}
            layers[n].sort(key=means.__getitem__)


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _y_positions(layers: list[list[Slot]], before: Neighbours, after: Neighbours) -> dict[Slot, float]:
    """The y of each slot's upper edge: as near to its neighbours as order and gaps allow."""
    y: dict[Slot, float] = {}
    for layer in layers:
        placed = _spread([0.0] * len(layer), steps := _steps(layer))
        y.update((slot, at - sum(steps) / 2) for slot, at in zip(layer, placed, strict=True))
    for neighbours, sweep in ((before, layers), (after, layers[::-1]), (before, layers)):
        for layer in sweep:
            preferred = [_mean([y[other] for other in neighbours.get(slot, ())], y[slot]) for slot in layer]
            y.update(zip(layer, _spread(preferred, _steps(layer)), strict=True))
    top = min(y.values(), default=0.0)
    return {slot: at - top + MARGIN for slot, at in y.items()}


def _steps(layer: Sequence[Slot]) -> list[float]:
    """From each slot to the next at least. An edge that passes through is lower than a task."""
    sizes = [EDGE_HEIGHT if "\0" in name else HEIGHT + GAP_Y for name, _ in layer]
    return [(one + other) / 2 for one, other in pairwise(sizes)]


def _spread(preferred: Sequence[float], steps: Sequence[float]) -> list[float]:
    """Rising positions at least `steps` apart, on average at the preferred ones."""
    placed: list[float] = []
    for at, step in zip(preferred, (0.0, *steps), strict=False):
        placed.append(max(at, placed[-1] + step) if placed else at)
    shift = sum(a - b for a, b in zip(preferred, placed, strict=True)) / max(1, len(placed))
    return [at + shift for at in placed]


def _columns(
    layers: list[list[Slot]], tasks: Mapping[str, object], texts: Mapping[str, str]
) -> tuple[list[float], list[float]]:
    """The x and the width of each layer."""

    def width_of(name: str) -> float:
        return ICON + 12 + max(CHARACTER * len(_label(name)), SMALL_CHARACTER * len(texts.get(name, "")))

    xs, widths, x = [], [], float(MARGIN)
    for layer in layers:
        width = max((width_of(name) for name, _ in layer if name in tasks), default=60.0)
        xs.append(x)
        widths.append(width)
        x += width + GAP_X
    return xs, widths


def _path(route: Sequence[Slot], xs: list[float], widths: list[float], ys: Mapping[Slot, float]) -> str:
    def middle(slot: Slot) -> float:
        return ys[slot] + HEIGHT / 2

    first, last = route[0], route[-1]
    points = [(xs[first[1]] + widths[first[1]], middle(first))]
    for slot in route[1:-1]:
        points += [(xs[slot[1]], middle(slot)), (xs[slot[1]] + widths[slot[1]], middle(slot))]
    points.append((xs[last[1]] - ARROW, middle(last)))
    parts = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(points):
        bend = (x0 + x1) / 2
        parts.append(
            f"L{x1:.1f},{y1:.1f}" if y0 == y1 else f"C{bend:.1f},{y0:.1f} {bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
        )
    return " ".join(parts)


def _label(task_id: str) -> str:
    return task_id if len(task_id) <= MAX_LABEL_LENGTH else f"{task_id[: MAX_LABEL_LENGTH - 1]}…"
