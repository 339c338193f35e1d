"""Logs which write has kept others waiting for its table for long, as those that wait say nothing: they are not at work."""

from __future__ import annotations

from typing import Final

from backfill_manager.execution.output.table_turns import TableTurn, TableTurns
from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger
from backfill_manager.service import Service

TURNS_INTERVAL_S: Final = 30.0
LONG_TURN_S: Final = 300.0  # the first line; each further one of a turn comes after twice the time
SHOWN: Final = 5  # of those that wait

log = get_logger("table_turns")


class TurnMonitor(Service):
    """A turn is ended by nobody but its holder: a write may take hours. The `timeout` of its task ends it."""

    def __init__(self, turns: TableTurns) -> None:
        super().__init__("turn monitor")
        self._turns = turns
        self._looks: dict[TableTurn, int] = {}  # at which it was held, and others waited
        self._due: dict[TableTurn, float] = {}  # the seconds of its next line

    def run_once(self) -> float | None:
        queued = self._turns.queued()
        looks, due = self._looks, self._due
        self._looks = {turn: looks.get(turn, -1) + 1 for table in queued.values() for turn in table.held}
        self._due = {turn: due.get(turn, LONG_TURN_S) for turn in self._looks}
        for identity, table in queued.items():
            late = [turn for turn in table.held if self._looks[turn] * TURNS_INTERVAL_S >= self._due[turn]]
            if not late:
                continue
            seconds = max(self._looks[turn] for turn in late) * TURNS_INTERVAL_S
            self._due |= dict.fromkeys(late, 2 * seconds)
            waiting = [turn.holder.name for turn in table.waiting]
            log.warning(
                "writes of a table wait for one that has not ended", table=identity, since=duration(seconds),
                held_by=", ".join(sorted(turn.holder.name for turn in late)), waiting=len(waiting),
                first=", ".join(waiting[:SHOWN]),
            )  # fmt: skip
        return TURNS_INTERVAL_S
