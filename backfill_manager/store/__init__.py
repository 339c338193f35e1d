"""The state tables, and the only package with Delta: one contract, three engines (memory, delta-rs, delta-spark).

May import `errors`, `clock`, `settings`, `logging`, `model`. `open_store(root)` picks the engine by the look of the
root.
"""

from __future__ import annotations

from typing import Any

from backfill_manager.errors import StateError
from backfill_manager.store.base import Condition, Leader, Store

__all__ = ["Condition", "Leader", "Store", "open_like", "open_store"]


def open_store(root: str, *, spark: Any = None) -> Store:
    """The store at `root`: `catalog.schema` through Spark (`spark` is its session), anything else (a path, `s3://`,
    `abfss://`, `gs://`) through delta-rs. Engines are imported only when used: a CLI that reads must start in no
    time."""
    from backfill_manager.store.uri import is_a_file, is_catalog_schema

    if is_a_file(root):
        raise StateError(f"{root} is a file, and a state needs a folder.")
    if is_catalog_schema(root):
        from backfill_manager.store.delta_spark.store import DeltaSparkStore

        return DeltaSparkStore(root, spark=spark)
    from backfill_manager.store.delta_rs.store import DeltaRsStore

    return DeltaRsStore(root)


def open_like(store: Store, root: str) -> Store:
    """The state at another root, reached as this one is. `StateError` if it can't be."""
    return open_store(root, spark=getattr(getattr(store, "tables", None), "spark", None))
