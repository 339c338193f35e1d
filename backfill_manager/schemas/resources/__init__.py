"""Everything that is shown, a module per subject: what the API answers, what the client gives, and what docs/reference lists.

A new field is declared in its module and filled in `queries/`. Frozen; a newer server may send more fields, which are kept and
can be read as attributes.
Instants are aware UTC datetimes, in JSON ISO-8601 with `Z`; `_s` is seconds, `_ms` milliseconds.
"""

from __future__ import annotations

from backfill_manager.schemas.resources.backfills import Backfill, BackfillDetails, Item, PlannedItem
from backfill_manager.schemas.resources.base import Page, Resource
from backfill_manager.schemas.resources.dags import (
    BundleInfo,
    Dag,
    DagDetails,
    DagTask,
    DagVersion,
    DeclaredParam,
    ImportProblem,
    Interval,
    VersionDiff,
)
from backfill_manager.schemas.resources.manager import Health, ManagerStatus, Notification, Pool
from backfill_manager.schemas.resources.plans import (
    ClearedRun,
    ClearedTask,
    ClearPlan,
    MarkedRun,
    MarkPlan,
    MarkSummary,
    Plan,
    RenderedRun,
    RenderedTask,
)
from backfill_manager.schemas.resources.requests import Request, RequestDetails, Response
from backfill_manager.schemas.resources.runs import Cell, Grid, GridRun, GridTask, Run, RunDetails, TimelineRun
from backfill_manager.schemas.resources.tables import Gap, Lineage, LineageEdge, Table, TableInterval
from backfill_manager.schemas.resources.tasks import (
    CheckResult,
    Log,
    LogLine,
    RunningTask,
    RunTasks,
    SparkStage,
    SparkStages,
    TaskInstance,
    Try,
)

__all__ = [
    "Backfill", "BackfillDetails", "BundleInfo", "Cell", "CheckResult", "ClearPlan", "ClearedRun",
    "ClearedTask", "Dag", "DagDetails", "DagTask", "DagVersion", "DeclaredParam", "Gap", "Grid", "GridRun",
    "GridTask", "Health", "ImportProblem", "Interval", "Item", "Lineage", "LineageEdge", "Log", "LogLine",
    "ManagerStatus", "MarkPlan", "MarkSummary", "MarkedRun", "Notification", "Page", "Plan", "PlannedItem",
    "Pool", "RenderedRun", "RenderedTask", "Request", "RequestDetails", "Resource", "Response", "Run",
    "RunDetails", "RunTasks", "RunningTask", "SparkStage", "SparkStages", "Table", "TableInterval",
    "TaskInstance", "TimelineRun", "Try", "VersionDiff",
]  # fmt: skip
