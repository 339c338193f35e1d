"""Definitions as `dag_version` holds them. One that somebody else has damaged stops its DAG, and no manager."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from pydantic import TypeAdapter

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.schedule.timetable import timetable_of
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagVersion
from backfill_manager.model.stored_json import unreadable


@dataclass(frozen=True)
class UnreadableSpec(DagSpec):
    """Stands for a definition that can't be read where rows refer to it. No run is made of it, and no task of it starts. Its
    description says why."""

    @classmethod
    def of(cls, dag_id: str, problem: InvalidInput, task_ids: Iterable[str] = ()) -> UnreadableSpec:
        """`task_ids`: the tasks that a run of it has."""
        return cls(dag_id, tuple(map(TaskSpec, task_ids)), description=str(problem))


def definition_of(row: DagVersion) -> DagSpec:
    """`InvalidInput` for what is no definition, or none that a run could be made of."""
    try:
        _shape().validate_python(json.loads(row.definition_json))  # pydantic's own JSON is not as deep
        spec = DagSpec.from_json(row.definition_json)
        spec.in_order  # noqa: B018 - `KeyError` where a task waits for one that is not there, `ValueError` for a cycle
        timetable_of(spec)
    except (ValueError, TypeError, KeyError, RecursionError, InvalidInput):
        raise unreadable(row, "definition_json") from None
    return spec


def definition_or_why(row: DagVersion) -> DagSpec:
    """For lists and pages: its description says why it can't be read."""
    try:
        return definition_of(row)
    except InvalidInput as problem:
        return UnreadableSpec.of(row.dag_id, problem)


@cache
def _shape() -> TypeAdapter[DagSpec]:
    return TypeAdapter(DagSpec)
