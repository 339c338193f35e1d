"""A manager's life in short: days of a clock that the program moves, with real Delta tables and DAGs that are due every hour.

    python -m support.long_life DAYS DAGS

Real ticks, commits, compactions and prunings; the tasks end at once, without Spark. Prints one line of JSON for every six hours
of that clock: what the process holds, and what lies in its state. What Delta keeps for ten minutes of real time for its readers
it keeps for three seconds here, as the clock of files is the machine's.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from backfill_manager.clock import UTC
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.tick import TickLoop
from backfill_manager.model.pools import BACKFILL_POOL, SCHEDULED_POOL
from backfill_manager.model.records import DagRow, DagVersion, Pool
from backfill_manager.settings import RetentionSettings
from backfill_manager.store import open_store, table_properties
from backfill_manager.testing import FakeClock, dag_spec
from support.bench_orchestration import ScriptedExecutor

BEGIN = datetime(2024, 1, 1, 0, 30, tzinfo=UTC)
HOURS_PER_REPORT = 6
SLOTS = 64
RETENTION = RetentionSettings.model_validate({"runs": "1 day", "tries": "1 day", "logs": "1 day", "requests": "1 day"})


def held(root: Path) -> dict[str, Any]:
    """Of this process, and of the state at `root`."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    files = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return {
        "rss_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1), "objects": len(gc.get_objects()),
        "threads": threading.active_count(), "native_threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")), "files": len(files), "state_mb": round(sum(files) / 1e6, 2),
    }  # fmt: skip


def live(days: int, dags: int) -> None:
    properties = {**table_properties.TABLE_PROPERTIES}
    for name in ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"):
        properties[name] = "interval 3 seconds"
    table_properties.TABLE_PROPERTIES = properties  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="bfm-long-life-") as folder:
        root, clock, events = Path(folder) / "state", FakeClock(BEGIN), EventQueue()
        store = open_store(str(root))
        store.init()
        leader = LeaderElector(store, clock, lease_s=3600).run_once()
        assert leader is not None
        state = restore_state(store, term=leader.term, now=clock.now())
        for name in (SCHEDULED_POOL, BACKFILL_POOL):
            state.put(Pool(name, SLOTS, 1, 0))
        for n in range(dags):
            dag_id = f"dag{n}"
            spec = dag_spec(
                dag_id, "first", "second", upstream={"second": ["first"]}, schedule="0 * * * *", start_date=BEGIN
            )
            state.put(
                DagVersion(dag_id, 1, f"hash{n}", spec.to_json(), "life", f"{dag_id}.py", "/nowhere", clock.now())
            )
            state.put(DagRow(dag_id, "life", f"{dag_id}.py", 1, False, True, "0 * * * *", "UTC", clock.now()))
        leader.commit(state.take_changes())
        loop = TickLoop(
            state,
            store,
            leader,
            clock=clock,
            executor=ScriptedExecutor(events, SLOTS, clock),
            events=events,
            retention=RETENTION,
        )
        loop.has_parsed_all = True
        for hour in range(1, days * 24 + 1):
            clock.advance(seconds=timedelta(hours=1).total_seconds())
            while loop.run_once() == 0.0:
                pass
            leader.heartbeat(clock.now())
            if hour % HOURS_PER_REPORT == 0:
                done = store.count("dag_run", ["state"], [])
                runs = {str(key[0]): n for key, n in done.items()}
                print(json.dumps({"hour": hour, "runs": runs, **held(root)}), flush=True)


if __name__ == "__main__":
    live(int(sys.argv[1]), int(sys.argv[2]))
