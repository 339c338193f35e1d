"""The items of a plan, as the planner gives them."""

from __future__ import annotations

import pyarrow as pa

from backfill_manager.testing import days

DAYS = days("2024-01-01", 2)
INSTANT = pa.timestamp("us", tz="UTC")
TWO_DAYS = pa.table({
    "ordinal": [1, 2], "logical_date": pa.array([start for start, _ in DAYS], INSTANT),
    "interval_start": pa.array([start for start, _ in DAYS], INSTANT),
    "interval_end": pa.array([end for _, end in DAYS], INSTANT), "partition_key": pa.nulls(2, pa.string()),
    "state": ["pending"] * 2, "reason": pa.nulls(2, pa.string()),
})  # fmt: skip
