"""Who waits for a table."""

from __future__ import annotations

from backfill_manager.execution.output.table_turns import TableTurns


def turns_waiting(turns: TableTurns, identity: str) -> int:
    """How many wait for their turn at this table."""
    queued = turns.queued().get(identity)
    return 0 if queued is None else len(queued.waiting)
