"""`make_tasks`: which part writes the tasks that a call makes."""

from __future__ import annotations

import ast

from backfill_manager.importers.airflow.groups import group_call
from backfill_manager.importers.airflow.mapping import expanded
from backfill_manager.importers.airflow.symbols import Value
from backfill_manager.importers.airflow.taskflow import task_call
from backfill_manager.importers.airflow.tasks import operator_task
from backfill_manager.importers.airflow.walk import Walk


def make_tasks(walk: Walk, node: ast.Call) -> Value | None:
    """A call that makes a task; None: it is another."""
    if walk.facts.is_operator(node) or walk.dag_of_call(node):
        return operator_task(walk, node)
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("expand", "expand_kwargs"):
        return expanded(walk, node, node.func.value)
    if function := walk.task_function(node.func):
        return group_call(walk, function, node) if function.kind == "group" else task_call(walk, function, node)
    return None
