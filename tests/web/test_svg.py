"""Layouts of graph, Gantt and calendar, with random inputs."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.clock import UTC, format_instant
from backfill_manager.web.svg.calendar import SHADES, quantiles, shade_of, year_of_days
from backfill_manager.web.svg.durations import HEIGHT, TOP, durations
from backfill_manager.web.svg.gantt import MAX_TICKS, MIN_WIDTH, gantt, ticks
from backfill_manager.web.svg.graph import MAX_LABEL_LENGTH, Node, layered

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


@st.composite
def dags(draw: st.DrawFn) -> dict[str, list[str]]:
    """Tasks that depend on earlier ones only."""
    n = draw(st.integers(1, 14))
    return {
        f"t{k}": [f"t{j}" for j in sorted(draw(st.sets(st.integers(0, k - 1), max_size=3)))] if k else []
        for k in range(n)
    }


def overlap(one: Node, other: Node) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    above = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
    return not beside and not above


@given(dags())
def test_tasks_stand_apart_inside_the_picture_each_right_of_what_it_waits_for(upstream: dict[str, list[str]]) -> None:
    drawn = layered(upstream)
    nodes = {node.task_id: node for node in drawn.nodes}
    assert set(nodes) == set(upstream)
    assert not [(a, b) for a, b in combinations(drawn.nodes, 2) if overlap(a, b)]
    for node in drawn.nodes:
        assert node.x >= 0 and node.y >= 0
        assert node.x + node.width <= drawn.width and node.y + node.height <= drawn.height
    for task, ups in upstream.items():
        assert all(nodes[up].x + nodes[up].width < nodes[task].x for up in ups)
    assert {(edge.start, edge.end) for edge in drawn.edges} == {
        (up, task) for task, ups in upstream.items() for up in ups
    }


def test_a_diamond_is_drawn_as_one() -> None:
    nodes = {node.task_id: node for node in layered({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}).nodes}
    assert nodes["b"].x == nodes["c"].x
    assert nodes["a"].y == nodes["d"].y == pytest.approx((nodes["b"].y + nodes["c"].y) / 2)


def test_an_edge_over_several_layers_passes_by_the_tasks_between() -> None:
    drawn = layered({"a": [], "b": ["a"], "c": ["a", "b"]})
    (b,) = (node for node in drawn.nodes if node.task_id == "b")
    (direct,) = (edge for edge in drawn.edges if (edge.start, edge.end) == ("a", "c"))
    heights = [float(pair.rpartition(",")[2]) for pair in direct.path.replace("L", "").replace("C", "").split()]
    assert not b.y <= heights[len(heights) // 2] <= b.y + b.height


def test_crossings_are_undone_where_they_can_be() -> None:
    nodes = {node.task_id: node for node in layered({"a": [], "b": [], "x": ["b"], "y": ["a"]}).nodes}
    assert (nodes["a"].y < nodes["b"].y) == (nodes["y"].y < nodes["x"].y)


def test_a_long_name_is_cut_and_nothing_is_drawn_of_nothing() -> None:
    (node,) = layered({"n" * 200: []}).nodes
    assert (len(node.label), node.task_id) == (MAX_LABEL_LENGTH, "n" * 200)
    assert layered({}).nodes == ()
    with pytest.raises(ValueError, match="cycle"):
        layered({"a": ["b"], "b": ["a"]})


# -- Gantt ------------------------------------------------------------------------------------------------------------


def row(task_id: str, *spans: tuple[float, float]) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "state": "success",
        "spans": [
            {"from": format_instant(NOON + timedelta(seconds=a)), "to": format_instant(NOON + timedelta(seconds=b))}
            for a, b in spans
        ],
    }


def test_bars_stand_where_their_time_is() -> None:
    drawn = gantt([row("a", (0, 25)), row("b", (50, 100)), row("c")])
    assert [(bar.x, bar.width, bar.duration_s) for one in drawn.rows for bar in one.bars] == [(0, 25, 25), (50, 50, 50)]
    assert (drawn.begin, drawn.length_s) == (NOON, 100)


def test_what_took_no_time_can_still_be_seen() -> None:
    drawn = gantt([row("a", (0, 1000)), row("b", (1000, 1000))])
    assert [(bar.x, bar.width) for bar in drawn.rows[1].bars] == [(100 - MIN_WIDTH, MIN_WIDTH)]
    assert gantt([row("a", (5, 5))]).rows[0].bars[0].width == MIN_WIDTH


def test_nothing_has_begun() -> None:
    drawn = gantt([row("a")])
    assert (drawn.begin, drawn.ticks, drawn.rows[0].bars) == (None, (), ())


@given(st.floats(0.001, 3e8))
def test_a_scale_has_few_round_ticks(length_s: float) -> None:
    found = ticks(length_s)
    assert 1 <= len(found) <= MAX_TICKS + 4
    assert found[0].x == 0
    assert all(0 <= tick.x <= 100.001 for tick in found)


# -- year -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("year", "n"), [(2023, 365), (2024, 366), (1, 365), (9999, 365)])
def test_a_year_has_a_square_for_each_of_its_days(year: int, n: int) -> None:
    drawn = year_of_days(year, {})
    places = [(one.x, one.y) for one in drawn.squares]
    assert (len(drawn.squares), len(set(places)), len(drawn.months)) == (n, n, 12)
    assert max(x for x, _ in places) < drawn.width
    assert max(y for _, y in places) < drawn.height


def test_shades_go_by_rank_so_that_one_long_day_does_not_pale_the_others() -> None:
    limits = quantiles([1.0, 2.0, 3.0, 4.0, 36_000.0])
    assert [shade_of(value, limits) for value in (1.0, 2.0, 3.0, 4.0, 36_000.0)] == [1, 2, 3, 4, 5]
    assert quantiles([]) == ()
    assert shade_of(7.0, quantiles([7.0] * 9)) <= SHADES


def test_a_day_shows_what_was_found_of_it() -> None:
    found = {"state": "failed", "states": {"failed": 1}, "runs": 1, "duration_s": None}
    (square,) = (one for one in year_of_days(2024, {"2024-02-29": found}).squares if one.summary)
    assert (square.day, square.shade) == ("2024-02-29", None)


def lasted(*rows: tuple[str, float | None]) -> list[dict[str, Any]]:
    """Rows of a task, newest first, from those that are given oldest first."""
    return [
        {
            "run_id": f"r{n}", "state": state, "duration_s": seconds,
            "started_at": None if state == "none" else format_instant(NOON),
        }
        for n, (state, seconds) in reversed(list(enumerate(rows)))
    ]  # fmt: skip


def test_durations_stand_oldest_first_with_the_time_so_far_and_the_median_of_those_that_succeeded() -> None:
    rows = lasted(("success", 10.0), ("failed", 100.0), ("none", None), ("success", 30.0), ("running", None))
    drawn = durations(rows, NOON + timedelta(seconds=50))
    assert [(bar.row["run_id"], bar.duration_s) for bar in drawn.bars] == [
        ("r0", 10.0), ("r1", 100.0), ("r3", 30.0), ("r4", 50.0)
    ]  # fmt: skip
    assert (drawn.median_s, drawn.longest_s) == (20.0, 100.0)
    assert [bar.height for bar in drawn.bars] == [7.2, 72.0, 21.6, 36.0]
    assert durations(lasted(("none", None)), NOON).bars == ()
    assert durations(lasted(("failed", 0.0)), NOON).median_s is None


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=30))
def test_bars_of_durations_stand_apart_inside_the_picture(seconds: list[float]) -> None:
    bars = durations(lasted(*(("success", one) for one in seconds)), NOON).bars
    assert all(one.x + one.width <= other.x for one, other in pairwise(bars))
    assert bars[0].x >= 0 and bars[-1].x + bars[-1].width <= 100
    assert all(bar.y >= TOP and bar.y + bar.height <= TOP + HEIGHT + 0.2 and bar.height >= 2 for bar in bars)
