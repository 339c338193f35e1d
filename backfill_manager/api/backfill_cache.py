"""One backfill, for the API and the pages: the expensive parts are read once for each change.

Its row changes seldom and its items often, so they are cached separately. Its pace is read from many runs and kept for some
seconds, however often they change; the time left is computed from it, the items and the time.
"""

from __future__ import annotations

from typing import Any, Final

from backfill_manager.api.context import AppContext
from backfill_manager.queries.backfill_items import Reverted, reverted_of
from backfill_manager.queries.backfills import count_by_state, find_uncounted
from backfill_manager.queries.eta import Pace, at_pace, has_time_left, read_pace

ROW_TABLES: Final = ("backfill", "request", "response")
TABLES: Final = (*ROW_TABLES, "backfill_item")
PACE_TTL_S: Final = 5


def known_backfill(context: AppContext, id_or_prefix: str) -> dict[str, Any]:
    """The backfill of this id, prefix of an id, or `latest`, without counted items. Raises as `find_backfill`."""
    return context.cached_by_version(
        ROW_TABLES, ("backfill", id_or_prefix), lambda: find_uncounted(context.store, id_or_prefix)
    )


def counted_backfill(context: AppContext, id_or_prefix: str) -> dict[str, Any]:
    """The same with its items counted by state, and its time left."""
    known = known_backfill(context, id_or_prefix)
    return with_time_left(context, {**known, **count_by_state(context.store, known)})


def reverted_runs(context: AppContext, backfill_id: str) -> Reverted:
    """Those of its DAG; read once for each response, as a revert has one, not for each change of a run."""
    return context.cached_by_version(
        ["response"], ("reverted", backfill_id), lambda: reverted_of(context.store, backfill_id)
    )


def with_time_left(context: AppContext, backfill: dict[str, Any]) -> dict[str, Any]:
    """Adds the time left to a backfill with counted items."""
    if not has_time_left(backfill):
        return backfill
    now = context.clock.now()
    period = int(now.timestamp()) // PACE_TTL_S
    pace: Pace = context.at_versions(
        (period,), ("pace", backfill["backfill_id"]), lambda: read_pace(context.store, backfill, now)
    )
    return at_pace(backfill, pace, now)
