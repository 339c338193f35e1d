"""Tables on disk, written by delta-rs, and the runs and accesses that a state records of them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import DagRow, DagVersion, TableAccess
from backfill_manager.queries.data_gaps import GapReport, find_gaps, wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from support.sample_state import FilledState

DAY = timedelta(days=1)
MAY = datetime(2024, 5, 1, tzinfo=timezone.utc)
NOON = datetime(2024, 5, 10, 12, tzinfo=timezone.utc)
UTC_DAYS = DagSpec("flights", (TaskSpec("clean"), TaskSpec("sum")), schedule="@daily", start_date=MAY)


def _ours(**about: Any) -> CommitProperties:
    return CommitProperties(custom_metadata={"userMetadata": json.dumps({"state": "mine", **about})})


class Lake:
    """Tables on disk and what the state knows of them. Days count from 1."""

    def __init__(self, state: FilledState, folder: Path) -> None:
        self.state, self.folder, self._n, self._at = state, folder, 0, NOON  # the end of the last try
        state._leader = state.store.lead(state._lease(NOON).evolve(state_id="mine"))

    def dag(self) -> None:
        """The DAG of the runs, as the state has it."""
        spec = UTC_DAYS
        self.state.put(
            DagRow(
                dag_id=spec.dag_id, bundle="examples", file="flights.py", current_version=1, is_paused=False, is_active=True,
                schedule=json.dumps(spec.schedule), timezone=spec.timezone, updated_at=NOON,
            ),
            DagVersion(spec.dag_id, 1, "h1", spec.to_json(), "examples", "flights.py", "there", NOON),
        )  # fmt: skip

    def story(self) -> None:
        """Four days: the second is empty, somebody has rewritten the third, and an input of the fourth has changed since."""
        self.dag()
        then = self.rows("bronze", 1, 2, 3, 4)
        for day in (1, 3, 4):
            self.run(day, ("read", "bronze", then), ("write", "silver", self.rows("silver", day)))
        self.run(2, ("write", "silver", 0))
        self.rows("silver", 3, ours=False)
        self.rows("bronze", 4)

    def path(self, table: str) -> str:
        return f"file:{self.folder}/{table}"

    def rows(
        self,
        table: str,
        *days: int,
        n: int = 3,
        ours: bool = True,
        about: Any = None,
        kind: str = "timestamp",
        **more: Any,
    ) -> int:
        """Rows at noon of each day, a commit and a file for all of them; returns the version. `about`: what our commit says of
        itself."""
        times = [MAY + DAY * (day - 1) + timedelta(hours=12) for day in days for _ in range(n)]
        typed = {
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "timestamp_ntz": pa.array([at.replace(tzinfo=None) for at in times], pa.timestamp("us")),
            "date": pa.array([at.date() for at in times]), "string": pa.array([str(at) for at in times]),
        }[kind]  # fmt: skip
        properties = _ours(**(about or {})) if ours else None
        write_deltalake(
            self.folder / table, pa.table({"at": typed}), mode="append", commit_properties=properties, **more
        )
        return DeltaTable(self.folder / table).version()

    def run(
        self, day: int, *accesses: tuple[str, str, int | None], state: str = "success", days: int = 1, **more: Any
    ) -> str:
        """A run of `clean` with its accesses: (access, table, version)."""
        start, self._at = MAY + DAY * (day - 1), self._at + timedelta(minutes=1)
        run_id = self.state.run(on=f"2024-05-{day:02}T00:00Z", state=state, interval_end=start + DAY * days, **more)
        for access, table, version in accesses:
            self.access(run_id, day, access, table, version, days=days)
        return run_id

    def access(
        self, run_id: str, day: int, access: str, table: str, version: int | None, *, days: int = 1, **more: Any
    ) -> None:
        self._n += 1
        start = MAY + DAY * (day - 1)
        exists = DeltaTable.is_deltatable(str(self.folder / table))
        known = {
            "dag_id": "flights", "task_id": "clean", "launch": 1, "at": self._at, "table_name": table,
            "table_id": str(DeltaTable(self.folder / table).metadata().id) if exists else None,
            "interval_start": start, "interval_end": start + DAY * days,
            "interval_column": "at" if access == "write" else None, "rows_written": 3 if access == "write" else None,
        }  # fmt: skip
        self.state.put(
            TableAccess(
                run_id=run_id, number=self._n, access=access, run_seq=self._n, succeeded=True, dag_version=1,
                table_path=self.path(table), version=version, **{**known, **more},
            )
        )  # fmt: skip

    def gaps(self, days: int = 4, dag: DagSpec = UTC_DAYS, count: Any = None) -> GapReport:
        return find_gaps(self.state.store, dag, MAY, MAY + DAY * (days - 1), count)

    def wanted(self, **kind: Any) -> list[bool]:
        """Of the first three days, by a backfill of this kind."""
        command = CreateBackfill(dag_id="flights", start_date=MAY, end_date=MAY + 2 * DAY, **kind)
        found: list[bool] = wanted_by_data(self.state.store, None)(command, UTC_DAYS).is_wanted.tolist()
        return found

    def found(self, days: int = 4, dag: DagSpec = UTC_DAYS) -> list[tuple[str, int | None, str]]:
        """Table, day, finding."""
        return [
            (one["table"], one["interval_start"] and int(one["interval_start"][8:10]), one["finding"])
            for one in self.gaps(days, dag).to_json_document()
        ]
