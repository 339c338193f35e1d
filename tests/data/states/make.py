"""Writes `v<N>.tar.gz`: a state as a release wrote it, with work in progress. Run it with that release's package on the path.

    git worktree add /tmp/old COMMIT && PYTHONPATH=/tmp/old python tests/data/states/make.py tests/data/states

A backfill of three days has ended, with a failure; one of four days is in progress: a day has succeeded, one runs, two wait.
Its manager was killed. A request of a client waits for its answer.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import backfill_manager.testing as testing

try:
    from backfill_manager.execution.messages import Failed, Succeeded
except ImportError:  # before state version 4
    from backfill_manager.execution.outcome import Failed, Succeeded
try:
    from backfill_manager.store.delta_rs.store import DeltaRsStore
except ImportError:  # before state version 4
    from backfill_manager.store.delta_rs import DeltaRsStore
try:
    from backfill_manager.model.records import SCHEMA_VERSION
except ImportError:  # before state version 5
    from backfill_manager.store.table_properties import SCHEMA_VERSION
from backfill_manager.store.table_properties import arrow_schema

NOON = datetime(2024, 2, 1, 12, tzinfo=timezone.utc)


class OnDisk(DeltaRsStore):  # type: ignore[misc,valid-type]
    """With the one method more that the manager of tests uses of a store in memory."""

    def lead(self, row: Any) -> Any:
        self.led = super().lead(row)
        return self.led

    def write(self, rows: Any) -> None:
        import pyarrow as pa

        schema = arrow_schema(type(rows[0]))
        self.led.append_items(
            pa.table({name: [getattr(row, name) for row in rows] for name in schema.names}, schema=schema)
        )


def script(launch: Any) -> Any:
    day = launch.run.logical_date.day
    return None if day == 11 else Failed("boom") if day == 2 else Succeeded()


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "state"
        testing.MemoryStore = lambda: OnDisk(str(root))  # type: ignore[assignment,misc]
        manager_type = next(kind for kind in vars(testing).values() if hasattr(kind, "drain"))  # it had another name
        spec = testing.dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
        manager = manager_type(spec, script=script, clock=testing.FakeClock(NOON))
        manager.backfill("flights", testing.days("2024-01-01", 3))
        manager.drain()
        manager.backfill("flights", testing.days("2024-01-10", 4), max_active_runs=1)
        manager.drain()
        manager.ask("dag.pause", dag_id="flights")
        with tarfile.open(target / f"v{SCHEMA_VERSION}.tar.gz", "w:gz") as archive:
            archive.add(root, arcname="state", filter=anonymous)


def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main(Path(sys.argv[1]))
