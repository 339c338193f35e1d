"""Tables: who writes and reads them, their intervals and gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from backfill_manager.schemas.findings import FINDINGS
from backfill_manager.schemas.resources.base import Instant, Resource


class Table(Resource):
    """A table that tasks have read or written."""

    table: str = Field(description="Name of the table in the catalog, or its path.")
    path: str | None = Field(description="Location of the table, as a URI.")
    written_by: tuple[str, ...] = Field(
        description="Tasks that write the table, as `dag.task`, in the newest version of their DAG that has run."
    )
    read_by: tuple[str, ...] = Field(description="Tasks that read the table, likewise.")
    version: int | None = Field(description="Delta version of the last write by a task.")
    written_at: Instant | None = Field(description="When that version was written.")


class TableInterval(Resource):
    """The last write of an interval or a partition of a table."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id of the run.")
    task_id: str = Field(description="Id of the task.")
    interval_start: Instant | None = Field(description="Start of the data interval of the run. null: it has none.")
    interval_end: Instant | None = Field(description="End of the data interval of the run (exclusive).")
    partition_key: str | None = Field(description="Partition key of the run, if it is for a partition.")
    dag_version: int = Field(description="Version of the DAG.")
    version: int | None = Field(description="Delta version of the table that the write created.")
    rows_written: int | None = Field(description="Number of rows written. null: not known.")
    bytes_written: int | None = Field(description="Bytes of the files written. null: not known.")
    at: Instant = Field(description="When the try ended.")
    reverted_run_id: str | None = Field(
        description="Id of the run whose revert restored these rows, with `version`. If it is this run itself, there were "
        "no rows before it."
    )


class LineageEdge(Resource):
    """A task that reads or writes a table."""

    direction: str = Field(
        description="Where the edge is, relative to the DAG or table.",
        json_schema_extra={"enum": ["upstream", "own", "downstream"]},
    )
    table: str = Field(description="Name of the table.")
    dag_id: str = Field(description="Id of the task's DAG.")
    task_id: str = Field(description="Id of the task.")
    task: str = Field(description="DAG and task as `dag.task`.")
    access: str = Field(
        description="Whether the task reads or writes the table.", json_schema_extra={"enum": ["read", "write"]}
    )


class Lineage(Resource):
    """The tables and tasks from which a DAG or a table is made, and those made from it."""

    of: str = Field(description="The DAG or table.")
    edges: tuple[LineageEdge, ...] = Field(description="Reads and writes: upstream, the DAG's own, and downstream.")


class Gap(Resource):
    """A difference, in one interval, between the content of a table and what the runs of a DAG should have written."""

    dag_id: str = Field(description="Id of the DAG that writes the table.")
    table: str = Field(description="Name of the table.")
    interval_start: Instant | None = Field(
        description="Start of the interval. null: the finding is about the whole table."
    )
    interval_end: Instant | None = Field(description="End of the interval (exclusive).")
    finding: str = Field(description="Kind of the finding.", json_schema_extra={"enum": list(FINDINGS)})
    because: str = Field(description="Reason in words.")
    rows: int | None = Field(description="Number of rows in the interval. null: not known.")
    usual_rows: int | None = Field(
        description="Usual number of rows: the median of the same weekday and hour in the weeks around it, else of the "
        "intervals around it. null: too few are known."
    )
    run_id: str | None = Field(description="Id of the run that last wrote the interval. null: none is recorded.")


def gap_place(gap: Mapping[str, Any]) -> str:
    """Tells two gaps of one table apart, and sorts them: first what holds of the whole table, then interval by interval."""
    return f"{gap['interval_start'] or ''}\n{FINDINGS.index(gap['finding'])}"
