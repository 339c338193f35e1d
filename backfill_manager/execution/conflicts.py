"""Doing once more what another writer's commit has kept from landing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tenacity

ATTEMPTS: Final = 8  # against writers outside; with the waits below about 20 s


def repeated_on_conflict(log: logging.Logger, what: str) -> tenacity.Retrying:
    """For a `for` loop round one commit. A conflict means that Delta has refused this commit: nothing of it is there, and
    it may be done anew from the table as it is now."""
    import tenacity

    from backfill_manager.store.delta_spark.tables import CONFLICTS

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(CONFLICTS),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        before_sleep=lambda state: log.info(
            "another writer was quicker at %s; trying again (%d)", what, state.attempt_number
        ),
        reraise=True,
    )
