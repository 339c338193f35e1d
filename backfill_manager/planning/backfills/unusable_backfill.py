"""Why no run can be made of a backfill, where somebody else has written its row: it is paused, and nothing of it starts."""

from __future__ import annotations

import re

from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Backfill
from backfill_manager.model.stored_json import unreadable, unreadable_options
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.schemas.regex import searcher


def why_unusable(row: Backfill) -> InvalidInput | None:
    """None for one that a manager has written."""
    if problem := unreadable_options(row):
        return problem
    if row.max_active_runs < 1:  # it would start nothing, for ever
        return unreadable(row, "max_active_runs")
    return unreadable_text(row)


def unreadable_text(row: Backfill) -> InvalidInput | None:
    """What a store can't check."""
    if row.window is not None:
        try:
            TimeWindow.parse(row.window)
        except InvalidInput:
            return unreadable(row, "window")
    try:
        searcher(row.tasks or "")
    except re.error:
        return unreadable(row, "tasks")
    return None
