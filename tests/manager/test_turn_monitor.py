"""A write that keeps others waiting for its table for long is in the manager's log."""

from __future__ import annotations

import pytest

from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.manager.services.turn_monitor import LONG_TURN_S, TURNS_INTERVAL_S, TurnMonitor

LOOKS = int(LONG_TURN_S / TURNS_INTERVAL_S)


@pytest.fixture
def turns() -> TableTurns:
    return TableTurns()


def lines_of(monitor: TurnMonitor, looks: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    for _ in range(looks):
        monitor.run_once()
    return [line for line in capsys.readouterr().err.splitlines() if "component=table_turns" in line]


def test_it_is_named_with_those_that_wait_at_growing_intervals(
    turns: TableTurns, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = TurnMonitor(turns)
    TurnHolder(turns, "sales/r1/load/1").acquire("t")
    for n in range(7):
        TurnHolder(turns, f"sales/r2/load/{n}").request("t")
    assert lines_of(monitor, LOOKS, capsys) == [], "it may be at work"
    (line,) = lines_of(monitor, 1, capsys)
    for part in ("level=warning", "table=t", 'since="5 min"', "held_by=sales/r1/load/1", "waiting=7"):
        assert part in line
    assert "sales/r2/load/4" in line and "sales/r2/load/5" not in line
    assert lines_of(monitor, LOOKS - 1, capsys) == []
    assert len(lines_of(monitor, 1, capsys)) == 1, "after ten minutes"
    assert lines_of(monitor, 2 * LOOKS - 1, capsys) == []
    assert len(lines_of(monitor, 1, capsys)) == 1, "after twenty"


def test_a_turn_for_which_nobody_waits_may_take_as_long_as_it_likes(
    turns: TableTurns, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = TurnMonitor(turns)
    TurnHolder(turns).acquire("t")
    assert lines_of(monitor, 3 * LOOKS, capsys) == []
    TurnHolder(turns).request("t")
    assert lines_of(monitor, LOOKS, capsys) == [], "the wait counts, and not the turn"


def test_turns_that_come_one_after_another_are_no_reason_for_a_line(
    turns: TableTurns, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor, holders = TurnMonitor(turns), [TurnHolder(turns) for _ in range(8)]
    for holder in holders:
        holder.request("t")
    for holder in holders[:-1]:
        assert lines_of(monitor, LOOKS, capsys) == []
        holder.release_all()
