"""One backfill, for the API and the pages: what is dear of it is read once for each change, whoever asks.

Its row changes seldom and its items often, so they are kept apart. Its pace (how fast it goes) is read from many runs and
is kept for some seconds, however often they change; the time left that follows from it goes with the items and the time.
"""

from __future__ import annotations

from typing import Any, Final

from backfill_manager.api.context import AppContext
from backfill_manager.queries.backfills import count_by_state, find_uncounted
from backfill_manager.queries.eta import Pace, at_pace, has_time_left, read_pace

OF_ROW: Final = ("backfill", "request", "response")
TABLES: Final = (*OF_ROW, "backfill_item")
PACE_KEPT_S: Final = 5


def known_backfill(house: AppContext, wanted: str) -> dict[str, Any]:
    """The backfill of this id, beginning of an id, or `latest`, its items not counted. Errors as of `find_backfill`."""
    return house.cached_by_version(OF_ROW, ("backfill", wanted), lambda: find_uncounted(house.store, wanted))


def counted_backfill(house: AppContext, wanted: str) -> dict[str, Any]:
    """The same with its items counted by state, and its time left."""
    known = known_backfill(house, wanted)
    return with_time_left(house, {**known, **count_by_state(house.store, known)})


def with_time_left(house: AppContext, backfill: dict[str, Any]) -> dict[str, Any]:
    """`backfill` has its items counted."""
    if not has_time_left(backfill):
        return backfill
    now = house.clock.now()
    moment = int(now.timestamp()) // PACE_KEPT_S
    pace: Pace = house.at_versions(
        (moment,), ("pace", backfill["backfill_id"]), lambda: read_pace(house.store, backfill, now)
    )
    return at_pace(backfill, pace, now)
