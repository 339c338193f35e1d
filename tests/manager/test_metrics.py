"""What the manager tells of itself: ticks and commits, and how long they take."""

from __future__ import annotations

from backfill_manager.manager.tick import WINDOW, TickMetrics


def test_ticks_and_commits_are_counted_and_their_medians_shown() -> None:
    figures = TickMetrics()
    assert figures.columns() == {"ticks": 0, "commits": 0, "tick_ms": None, "commit_ms": None}
    for seconds in (0.010, 0.030, 0.020):
        figures.record_tick(seconds, None)
    figures.record_tick(0.020, 0.005)
    assert figures.columns() == {"ticks": 4, "commits": 1, "tick_ms": 20.0, "commit_ms": 5.0}


def test_the_medians_are_of_late() -> None:
    figures = TickMetrics()
    for _ in range(WINDOW):
        figures.record_tick(1.0, None)
    for _ in range(WINDOW):
        figures.record_tick(0.001, None)
    assert (figures.columns()["ticks"], figures.columns()["tick_ms"]) == (2 * WINDOW, 1.0)
