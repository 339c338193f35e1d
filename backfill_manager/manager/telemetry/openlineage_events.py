"""OpenLineage events of what a tick has committed.

    committed rows ─► started and ended tries and runs, with the tables of the tries ─► events of the OpenLineage client

A DAG is a job, and each of its tasks is one (`dag.task`); a run of the DAG is a run, and each try of a task is one, whose parent
it is. Ids of runs follow from the state's identity and the keys of the rows, so an event that is sent twice names the same run. A
table is the dataset at its place in storage; its name in the catalog is a symlink to that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState, set_producer
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
    tags_run,
)
from openlineage.client.uuid import generate_static_uuid

from backfill_manager import __version__
from backfill_manager.manager.telemetry.sent_once import SentOnce
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, RunKey, TableAccess, TaskInstance, TaskTry
from backfill_manager.model.transitions import Changes

PRODUCER: Final = f"urn:backfill-manager:{__version__}"  # a URI, as the specification wants it
INTEGRATION: Final = "BACKFILL_MANAGER"
_ENDS: Final = {
    s.SUCCESS: RunState.COMPLETE,
    s.SKIPPED: RunState.COMPLETE,
    s.FAILED: RunState.FAIL,
    s.UP_FOR_RETRY: RunState.FAIL,
}  # any other end (cancelled, lost): ABORT
_ENDS_OF_RUNS: Final = (s.SUCCESS, s.FAILED, s.CANCELLED)
_S3: Final = ("s3a", "s3n")  # Hadoop's names of s3


Facets = dict[str, RunFacet]


class _Found(NamedTuple):
    at: datetime
    rank: int  # among those of one instant
    event: RunEvent


class Dataset(NamedTuple):
    namespace: str
    name: str


class LineageEvents:
    """Makes the events of one manager. `namespace` is that of its jobs, `state_id` the identity of its state; `since`: see
    `SentOnce`."""

    def __init__(self, namespace: str, state_id: str, spark_version: str, since: datetime) -> None:
        set_producer(PRODUCER)  # of facets
        self._namespace, self._state_id = namespace, state_id
        self._sent = SentOnce(since)
        self._engine = processing_engine_run.ProcessingEngineRunFacet(spark_version, "spark", __version__)

    def of(self, changes: Changes, run_of: Callable[[RunKey], DagRun | None]) -> Iterator[RunEvent]:
        """In the order in which things began and ended. `run_of`: runs that have not changed in this tick."""
        runs: dict[RunKey, DagRun] = {(run.dag_id, run.run_id): run for run in changes.rows(DagRun)}
        tables: defaultdict[tuple[Any, ...], list[TableAccess]] = defaultdict(list)
        for access in changes.rows(TableAccess):
            tables[access.key[:-1]].append(access)
        found: list[_Found] = []
        for run in runs.values():
            if run.started_at is not None and run.state in (s.RUNNING, *_ENDS_OF_RUNS):
                found += self._begun(run.key, run.started_at, 0, (self._run(run), self._job(run)))
            at = run.ended_at
            if at is not None and run.state in _ENDS_OF_RUNS and self._sent.is_new((run.key, at, run.state), at):
                found.append(_Found(at, 3, self._end_of_run(run, at)))
        both: list[TaskInstance | TaskTry] = [*changes.rows(TaskInstance), *changes.rows(TaskTry)]
        for row in both:
            run_row = runs.get((row.dag_id, row.run_id)) or run_of((row.dag_id, row.run_id))
            key = (row.dag_id, row.run_id, row.task_id, row.launch)
            if run_row is None:
                continue
            if row.started_at is not None and (row.state == s.RUNNING or isinstance(row, TaskTry)):
                found += self._begun(key, row.started_at, 1, self._try(run_row, row))
            if isinstance(row, TaskTry) and row.ended_at is not None:
                found.append(_Found(row.ended_at, 2, self._end_of_try(run_row, row, row.ended_at, tables[key])))
        return (one.event for one in sorted(found, key=lambda one: (one.at, one.rank)))

    def _begun(self, key: tuple[Any, ...], at: datetime, rank: int, run_and_job: tuple[Run, Job]) -> Iterator[_Found]:
        """Once for each; what begins and ends in one tick has a start too."""
        if self._sent.is_new((key, at), at):
            yield _Found(at, rank, _event(RunState.START, at, *run_and_job))

    def _end_of_run(self, run: DagRun, at: datetime) -> RunEvent:
        error = run.reason if run.state == s.FAILED else None
        return _event(_ENDS.get(run.state, RunState.ABORT), at, self._run(run, facets=_error(error)), self._job(run))

    def _end_of_try(self, run: DagRun, row: TaskTry, at: datetime, tables: Sequence[TableAccess]) -> RunEvent:
        datasets = {table.table_name or table.table_path or "": _dataset(table) for table in tables}
        kind = _ENDS.get(row.state, RunState.ABORT)
        return _event(
            kind, at, *self._try(run, row, _error(None if kind == RunState.COMPLETE else row.error)),
            [InputDataset(*_dataset(table), facets=_facets(table)) for table in tables if table.access == "read"],
            [_output(table, datasets) for table in tables if table.access == "write"],
        )  # fmt: skip

    def _try(self, run: DagRun, row: TaskInstance | TaskTry, error: Facets | None = None) -> tuple[Run, Job]:
        of = parent_run.Run(self._run_id(run)), parent_run.Job(self._namespace, run.dag_id)
        facets = {**(error or {}), "parent": parent_run.ParentRunFacet(*of), "processing_engine": self._engine}
        return self._run(run, row.task_id, row.launch, facets), self._job(run, row.task_id)

    def _run(self, run: DagRun, task_id: str = "", launch: int = 0, facets: Facets | None = None) -> Run:
        tags = {"run_id": run.run_id, "run_type": run.run_type, "dag_version": str(run.dag_version)}
        if run.backfill_id is not None:
            tags["backfill_id"] = run.backfill_id
        if run.partition_key is not None:
            tags["partition_key"] = run.partition_key
        fields = [tags_run.TagsRunFacetFields(key, value, INTEGRATION) for key, value in tags.items()]
        facets = {**(facets or {}), "tags": tags_run.TagsRunFacet(fields)}
        if run.interval_start is not None and run.interval_end is not None:
            start, end = run.interval_start.isoformat(), run.interval_end.isoformat()
            facets["nominalTime"] = nominal_time_run.NominalTimeRunFacet(start, end)
        return Run(self._run_id(run, task_id, launch), facets)

    def _job(self, run: DagRun, task_id: str | None = None) -> Job:
        kind = job_type_job.JobTypeJobFacet("BATCH", INTEGRATION, "DAG" if task_id is None else "TASK")
        return Job(self._namespace, run.dag_id if task_id is None else f"{run.dag_id}.{task_id}", {"jobType": kind})

    def _run_id(self, run: DagRun, task_id: str = "", launch: int = 0) -> str:
        key = json.dumps([self._state_id, run.dag_id, run.run_id, task_id, launch])
        return str(generate_static_uuid(run.created_at, key.encode()))


def _event(
    kind: RunState, at: datetime, run: Run, job: Job, inputs: list[InputDataset] | None = None,
    outputs: list[OutputDataset] | None = None,
) -> RunEvent:  # fmt: skip
    return RunEvent(
        eventTime=at.isoformat(), producer=PRODUCER, eventType=kind, run=run, job=job, inputs=inputs or [],
        outputs=outputs or [],
    )  # fmt: skip


def _error(message: str | None) -> Facets:
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(message, "Python")} if message else {}


def _output(table: TableAccess, datasets: dict[str, Dataset]) -> OutputDataset:
    facets = _facets(table)
    fields = {
        column["name"]: column_lineage_dataset.Fields([
            column_lineage_dataset.InputField(
                *datasets[of], name, [column_lineage_dataset.Transformation("DIRECT")]
            )
            for of, name in column["from"] if of in datasets
        ])
        for column in json.loads(table.columns_json or "[]") if column.get("from")
    }  # fmt: skip
    if fields:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields)
    counts: dict[str, Any] = {}
    if table.rows_written is not None or table.bytes_written is not None:
        counts["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            table.rows_written, table.bytes_written
        )
    return OutputDataset(*_dataset(table), facets=facets, outputFacets=counts)


def _facets(table: TableAccess) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if table.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(table.version))
    if columns := json.loads(table.columns_json or "[]"):
        fields = [schema_dataset.SchemaDatasetFacetFields(column["name"], column["type"]) for column in columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if table.table_name is not None and table.table_path is not None:
        name = symlinks_dataset.Identifier(_dataset(table).namespace, table.table_name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([name])
    return facets


def _dataset(table: TableAccess) -> Dataset:
    """As OpenLineage names datasets: `file` and a path, `s3://bucket` and a key, `abfss://container@account` and a path."""
    if table.table_path is None:
        return Dataset("spark", table.table_name or "")
    place = urlsplit(table.table_path)
    path = place.path.rstrip("/") or "/"
    if place.scheme in ("", "file"):
        return Dataset("file", path)
    scheme = "s3" if place.scheme in _S3 else place.scheme
    return Dataset(f"{scheme}://{place.netloc}", path.lstrip("/"))
