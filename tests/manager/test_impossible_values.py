"""Whatever another program writes into a column of what is live: no manager ends, works forever, or waits without an end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pytest
from support.scenarios import clear, never, nothing_hangs, response_to

from backfill_manager.clock import FIRST_INSTANT, UTC
from backfill_manager.execution import messages as m
from backfill_manager.manager.maintenance.retention import Sweep
from backfill_manager.model import states as s
from backfill_manager.model.records import TABLES, Record, columns
from backfill_manager.settings import RetentionSettings
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

LAST_INSTANT: Final = datetime.max.replace(tzinfo=UTC)
LIVE: Final = ("dag_run", "task_instance", "backfill", "backfill_item", "dag", "dag_version", "pool")
VALUES: Final[dict[type, list[Any]]] = {
    bool: [], datetime: [FIRST_INSTANT, LAST_INSTANT], int: [-1, 0, 10**15], float: [-1.0, float("nan"), 1e300],
    str: ["foo", "", "("],
}  # fmt: skip
JSON: Final = ["[1]", "{", "7", '{"x": 1}', '{"retries": "x"}', '["a"]']
AGES: Final = RetentionSettings(**dict.fromkeys(("runs", "tries", "logs", "requests"), 3600.0))


def cases() -> list[tuple[str, str, Any, int]]:
    found = []
    for table in LIVE:
        for name, (kind, may_be_null) in columns(TABLES[table]).items():
            values = [*VALUES[kind], *(JSON if name.endswith("_json") else []), *([None] if may_be_null else [])]
            found += [(table, name, value, which) for value in values for which in (0, -1)]
    return found


def is_live(row: Record) -> bool:
    finished = s.TASK_FINISHED | s.RUN_FINISHED | s.BACKFILL_FINISHED
    return getattr(row, "state", None) not in finished


def finish_all(manager: InMemoryManager) -> None:
    manager.drain(400)
    while manager.running:
        manager.finish(next(iter(manager.running)), m.Succeeded("1"))
        manager.drain(400)


@pytest.mark.parametrize(("table", "column", "value", "which"), cases())
def test_no_value_ends_a_manager_or_holds_it_up(table: str, column: str, value: Any, which: int) -> None:
    clock = FakeClock(datetime(2024, 1, 5, tzinfo=UTC))
    of_schedule = dag_spec(
        "s", "x", "y", upstream={"y": ["x"]}, start_date=datetime(2024, 1, 3, tzinfo=UTC), expected_by=3600.0,
        each={"x": {"retries": 2, "depends_on_past": True}},
    )  # fmt: skip
    batchable = dag_spec("d", "x", "y", upstream={"y": ["x"]}, each={"x": {"retries": 2}}, batchable=True)
    manager = InMemoryManager(of_schedule, batchable, script=never, clock=clock, scheduled=True)
    manager.state.put(manager.state.catalog.dags["d"].evolve(is_paused=True))
    first = manager.backfill("d", days("2023-06-01", 4), max_active_runs=2)
    manager.backfill("d", days("2023-07-01", 4), max_active_runs=1, batch=0, parents_json=f'["{first}"]')
    manager.drain()
    for outcome in (m.Succeeded("1"), m.Failed("boom")):
        manager.finish(next(key for key in manager.running if key[0] == "d"), outcome)
        manager.tick()
    row = [row for row in manager.store.read(TABLES[table]) if is_live(row)][which]

    manager.store.write([row.evolve(**{column: value})])
    manager.crash()
    finish_all(manager)
    clock.advance(days=1)
    finish_all(manager)
    response_to(manager, "tasks.clear", **clear("d", only_failed=True))
    manager.crash()
    finish_all(manager)
    Sweep(manager.store, AGES, clock.now(), leader=manager.leader).run()
    nothing_hangs(manager)
