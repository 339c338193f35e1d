"""Pages and the API show what they can of rows whose JSON another program has damaged."""

from __future__ import annotations

from typing import Final

import pytest
from support.page_client import browser_of

from backfill_manager.execution import messages as m
from backfill_manager.model.records import TABLES, columns
from backfill_manager.testing import InMemoryManager, dag_spec, days

RUN: Final = "backfill__2024-01-01T00:00:00Z"
ADDRESSES: Final = (
    "/", "/dags", "/backfills", "/backfills/{backfill}", "/runs", f"/dags/d/runs/{RUN}", f"/dags/d/runs/{RUN}/tasks/x",
    "/pools", "/requests", "/api/v1/dags", "/api/v1/backfills", "/api/v1/backfills/{backfill}", "/api/v1/runs",
    f"/api/v1/dags/d/runs/{RUN}", f"/api/v1/dags/d/runs/{RUN}/tasks", "/api/v1/bundles", "/api/v1/dags/d/versions", "/metrics",
)  # fmt: skip
COLUMNS: Final = [
    (table, name)
    for table, record in TABLES.items()
    for name in columns(record)
    if name.endswith("_json") and table not in ("request", "response")
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_json_of_the_wrong_kind_is_no_error_of_a_page(table: str, column: str) -> None:
    manager = InMemoryManager(dag_spec("d", "x", "y", upstream={"y": ["x"]}), script=lambda _: None)
    backfill = manager.backfill("d", days("2024-01-01", 2), max_active_runs=1)
    manager.drain()
    manager.finish(next(iter(manager.running)), m.Succeeded('"r"'), spark_jobs=[1])
    manager.drain()
    rows = manager.store.read(TABLES[table])
    for text in ("[1]", '{"x": 1}', "7", "null", "{", '[{"a": 1}]'):
        manager.store.write([row.evolve(**{column: text}) for row in rows])
        browser = browser_of(manager.store, manager.clock)
        shown = {at: browser.get(at.format(backfill=backfill)).status_code for at in ADDRESSES}
        assert set(shown.values()) == {200}, (text, shown)
