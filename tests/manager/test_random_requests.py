"""Whatever is asked for in whatever order, with failures, new versions and crashes in between: all of it ends, the manager does
not tick without a pause, and the timeline is whole. Backfills in batches with tasks that depend on the past, clears, marks and
cancels meet here as no story has them."""

from __future__ import annotations

import pytest
from support.random_requests import RandomRequests
from support.scenarios import timeline

from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem
from backfill_manager.testing import InMemoryManager


def check(manager: InMemoryManager) -> None:
    dates = [run.logical_date for run in timeline(manager, "d") if run.logical_date is not None]
    assert dates == sorted(set(dates), key=str), "one current run a date"
    runs = {run.key: run for run in [*manager.runs("d"), *manager.runs("e")]}
    dag_of = {row.backfill_id: row.dag_id for row in manager.store.read(Backfill)}
    for item in manager.store.read(BackfillItem):
        run = runs.get((dag_of[item.backfill_id], item.run_id or ""))
        assert item.state not in s.ITEM_UNFINISHED, item
        # Else its failed tasks run again for another.
        is_of_item = run is not None and run.backfill_id == item.backfill_id
        if run is not None and is_of_item and run.state != s.OVERRIDDEN and item.state in (s.SUCCESS, s.FAILED):
            assert run.state == item.state, (item, run.state)


# In these a manager that restarts once held something else.
TOLD = (1559, 1678, 2085)


@pytest.mark.parametrize(
    "seed", [*range(60), *TOLD, *(pytest.param(n, marks=pytest.mark.slow) for n in range(60, 3000) if n not in TOLD)]
)
def test_whatever_is_asked_ends(seed: int) -> None:
    requests = RandomRequests(seed)
    requests.play()
    requests.end_all()
    check(requests.manager)
