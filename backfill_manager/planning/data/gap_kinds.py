"""What `missing` by data and `outdated` make of the runs that exist: as if each interval had the run that its data speak of.

Which intervals are wanted is found elsewhere (`queries.data_gaps`), by the tables; what is live stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.dags.definition import DagSpec
from backfill_manager.model import states
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.data_tables.places import Numbers


@dataclass(frozen=True)
class Wanted:
    """The intervals of a range, in epoch micros, and which of them are to be done."""

    starts: Numbers
    ends: Numbers
    is_wanted: np.typing.NDArray[np.bool_]


FindWanted = Callable[[CreateBackfill, DagSpec], Wanted]


def runs_implied_by_data(existing: pa.Table, wanted: Wanted, command: CreateBackfill, dag_version: int) -> pa.Table:
    """`existing` as `existing_runs` reads them. To `missing` what is not wanted has succeeded, and what is has no run; to
    `outdated` all have succeeded, those that are wanted by an older version of the DAG."""
    live = existing.filter(pc.is_in(existing["state"].cast(pa.string()), pa.array(sorted(states.RUN_LIVE))))
    is_made = np.ones(len(wanted.starts), np.bool_) if command.kind == "outdated" else ~wanted.is_wanted
    n = int(is_made.sum())
    starts, ends = (pa.array(side[is_made]).cast(pa.timestamp("us", tz="UTC")) for side in (wanted.starts, wanted.ends))
    values = {
        "run_id": pa.repeat("by data", n), "run_type": pa.repeat(states.BACKFILL_RUN, n), "state": pa.repeat(states.SUCCESS, n),
        "logical_date": starts, "interval_start": starts, "interval_end": ends, "partition_key": pa.nulls(n),
        "dag_version": pa.array(np.where(wanted.is_wanted[is_made], 0, dag_version)), "items": pa.repeat(1, n),
        "is_partial": pa.repeat(False, n),
    }  # fmt: skip
    columns = [values[one.name].cast(one.type) for one in existing.schema]
    return pa.concat_tables([live, pa.table(columns, schema=existing.schema)])
