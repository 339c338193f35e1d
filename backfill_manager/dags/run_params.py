"""The check of a run's parameters (`conf`) against what its DAG declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import nearest
from backfill_manager.humanise import name_list
from backfill_manager.masking import is_secret
from backfill_manager.schemas import errors
from backfill_manager.schemas.params import as_json


def check_conf(conf: Mapping[str, Any], dag: DagSpec) -> None:
    """`InvalidInput` for a param that the DAG does not have, one with a value that is not of its type or choices, and one
    that is missing. A DAG without params says nothing about them, and takes all."""
    known = (*dag.params, *(name for name in dag.declared_params if name not in dag.params))
    for name, value in conf.items():
        if known and name not in known:
            near = nearest(name, known)
            has = "" if near else f"; it has {name_list(known)}"
            raise errors.UNKNOWN_PARAM(name=name, dag_id=dag.dag_id, nearest=near or has)
        declared = dag.declared_params.get(name)
        if declared is not None and (problem := declared.problem(value)):
            near = nearest(str(value), [str(choice) for choice in declared.choices], n=1)
            given = "what was given" if is_secret(name) else f"{as_json(value)}{near}"
            raise errors.WRONG_PARAM(name=name, problem=problem, given=given)
    for name, declared in dag.declared_params.items():
        if declared.is_required and name not in conf:
            raise errors.MISSING_PARAM(name=name, dag_id=dag.dag_id, what=declared.describe())
