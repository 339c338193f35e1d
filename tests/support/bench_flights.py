"""Measures a backfill of the example DAG `flights` as runs of one day, and with batches that size themselves.

Each in a state of its own, so that nothing is known of past runs, on one Spark session; the tables are made anew each time and
compared. Compare the ratios.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from backfill_manager.clock import SystemClock, parse_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRow, DagRun, Pool
from backfill_manager.requests.submit import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Store, matching
from support.bench_overhead import running_manager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = Path(__file__).parents[2] / "jobs"
RESULTS = ("clean_flights", "daily_delays", "rolling_delays")
ACTIVE_RUNS = 8  # as the DAG says


def measure_flights(spark: SparkSession, last_day: str, *, rounds: int = 1) -> dict[str, Any]:
    """Returns seconds from the request to the end, the sizes of the runs, and whether the tables were equal."""
    warehouse = Path(urlparse(str(spark.conf.get("spark.sql.warehouse.dir"))).path)
    sys.path.insert(0, str(JOBS))
    import raw_flights

    raw_flights.prepare(str(warehouse))
    _backfill(spark, warehouse, "2013-01-04", "auto")  # warm-up
    took: dict[str, list[float]] = {"one": [], "auto": []}
    sizes: list[int] = []
    prints = set()
    for _ in range(rounds):
        for name, batch in (("one", 1), ("auto", "auto")):
            seconds, made, contents = _backfill(spark, warehouse, last_day, batch)
            took[name].append(seconds)
            prints.add(contents)
            sizes = made if name == "auto" else sizes
    one, auto = (statistics.median(took[name]) for name in ("one", "auto"))
    return {
        "last_day": last_day,
        "one_s": round(one, 1),
        "auto_s": round(auto, 1),
        "ratio": round(one / auto, 2),
        "auto_runs": len(sizes),
        "auto_sizes": sizes,
        "same_tables": len(prints) == 1,
    }


def _backfill(
    spark: SparkSession, warehouse: Path, last_day: str, batch: int | str
) -> tuple[float, list[int], tuple[Any, ...]]:
    for name in RESULTS:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        shutil.rmtree(warehouse / name, ignore_errors=True)
    files = {path.name: path.read_text() for path in (JOBS / "bundles").glob("*") if path.suffix in (".py", ".sql")}
    pools = [Pool(name=name, slots=16, weight=1, min_share=0) for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN)]
    clock = SystemClock()
    with running_manager(files, pools, spark) as (store, session):
        _wait(lambda: bool(store.read(DagRow, matching(dag_id="flights"))))
        backfill_id = clock.new_id()
        command = CreateBackfill(
            dag_id="flights", start_date=parse_instant("2013-01-01T05:00:00Z"),
            end_date=parse_instant(f"{last_day}T05:00:00Z"), batch=batch, max_active_runs=ACTIVE_RUNS,
        )  # fmt: skip
        began = clock.now()
        submit(store, clock, request_kinds.BACKFILL_CREATE, {"backfill_id": backfill_id, "ask": command.to_payload()})
        _wait(lambda: _has_ended(store, backfill_id))
        (row,) = store.read(Backfill, matching(backfill_id=backfill_id))
        if row.state != s.SUCCESS or row.completed_at is None:
            raise RuntimeError(f"the backfill is {row.state}: {row.reason}")
        runs = store.read(DagRun, matching(backfill_id=backfill_id), order_by=("run_seq",))
        contents = tuple(
            tuple(session.sql(f"SELECT '{name}', count(*), sum(xxhash64(*) % 1000000007) FROM {name}").first() or ())
            for name in RESULTS
        )
        return (row.completed_at - began).total_seconds(), [run.items for run in runs], contents


def _has_ended(store: Store, backfill_id: str) -> bool:
    return any(row.state in s.BACKFILL_FINISHED for row in store.read(Backfill, matching(backfill_id=backfill_id)))


def _wait(until: Any) -> None:
    sleeper = threading.Event()
    while not until():
        sleeper.wait(0.5)  # polling takes CPU from the manager
