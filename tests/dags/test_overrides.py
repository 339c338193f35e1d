"""Settings of a DAG and its tasks that one backfill sets for its own runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from backfill_manager.dags.overrides import with_overrides
from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.dag_settings import DagSettings, TaskSettings, overridable
from backfill_manager.testing import dag_spec

OF_DAG, OF_TASK = overridable(DagSettings), overridable(TaskSettings)
SPEC = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"retries": 1}})


def test_nothing_to_set_leaves_the_definition_as_it_is() -> None:
    assert with_overrides(SPEC, {}) is SPEC


def test_a_name_alone_sets_every_task() -> None:
    changed = with_overrides(SPEC, {"retries": 5, "timeout": 60})
    assert [(task.retries, task.timeout) for task in changed.tasks] == [(5, 60.0)] * 2
    assert [task.retries for task in SPEC.tasks] == [1, 0], "the definition itself is untouched"


def test_a_tasks_own_setting_comes_after_every_tasks_in_whatever_order_they_are_given() -> None:
    for overrides in ({"retries": 5, "a.retries": 2}, {"a.retries": 2, "retries": 5}):
        assert [task.retries for task in with_overrides(SPEC, overrides).tasks] == [2, 5]


def test_a_setting_of_the_dag() -> None:
    assert with_overrides(SPEC, {"max_active_tasks": 3}).max_active_tasks == 3


def test_everything_else_stays() -> None:
    changed = with_overrides(SPEC, {"b.pool": "nightly"})
    assert changed.task("a") == SPEC.task("a")
    assert dataclasses.replace(changed.task("b"), pool=None) == SPEC.task("b")
    assert dataclasses.replace(changed, tasks=SPEC.tasks) == SPEC


def test_a_task_whose_id_has_dots_is_split_at_the_last_one() -> None:
    spec = dag_spec("d", "load.raw", "load")
    assert with_overrides(spec, {"load.raw.retries": 3}).task("load.raw").retries == 3
    assert with_overrides(spec, {"load.retries": 4}).task("load").retries == 4


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("retries", 0, 0), ("retry_delay", 5, 5.0), ("retry_backoff", 2, 2.0), ("max_retry_delay", 9, 9.0),
        ("timeout", None, None), ("depends_on_past", True, True), ("wait_for_downstream", True, True),
        ("trigger_rule", "all_done", "all_done"),
        ("pool", "nightly", "nightly"), ("priority", -3, -3), ("weight", 2, 2), ("max_active_tis", 1, 1),
        ("memory", "2 GB", 2048), ("nice", 19, 19), ("reuse_process", True, True),
        ("wait_limit", 3600, 3600.0), ("after_wait_limit", "skip", "skip"),
    ],
)  # fmt: skip
def test_each_setting_of_a_task(name: str, value: Any, expected: Any) -> None:
    assert [getattr(task, name) for task in with_overrides(SPEC, {name: value}).tasks] == [expected] * 2


def test_every_setting_there_is_has_been_tried_above() -> None:
    tried = test_each_setting_of_a_task.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {name for name, *_ in tried} == set(OF_TASK)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retires": 1}, "did you mean 'retries'"),
        ({"a.time_out": 1}, "did you mean 'timeout'"),
        ({"sql": "select 1"}, f"There are {', '.join((*OF_DAG, *OF_TASK))}."),
        ({"max_active_runs": 3}, "a backfill has its own max_active_runs"),
        ({"params": {}}, "run parameters are given with conf"),
        ({"schedule": "@daily"}, "which intervals are run is set by kind, start_date and end_date"),
        ({"c.retries": 1}, "overrides c.retries: DAG 'd' has no task 'c'"),
        ({"retries": -1}, "overrides retries: retries must be 0 or more, not -1"),
        ({"retries": True}, "must be a whole number, not True"),
        ({"a.retries": "3"}, "overrides a.retries: retries must be a whole number, not '3'"),
        ({"timeout": 0}, "must be more than 0"),
        ({"timeout": float("nan")}, "must be seconds or a timedelta, not nan"),
        ({"trigger_rule": "all_good"}, "must be a trigger rule"),
        ({"depends_on_past": "yes"}, "must be true or false"),
        ({"pool": "no such/pool"}, "must be 1 to 200 letters"),
        ({"weight": 0}, "must be 1 or more"),
        ({"memory": "much"}, "overrides memory: memory must be MB, or a size such as `512 MB` or `2 GB`, not 'much'"),
        ({"nice": 20}, "must be 19 or less"),
        ({"max_active_tasks": 0}, "must be 1 or more"),
        ({"a.max_active_tasks": 2}, "overrides a.max_active_tasks: "),
        ({"": 1}, "is not a setting"),
        ({"a.": 1}, "is not a setting"),
        ({".retries": 1}, "has no task ''"),
    ],
)
def test_what_can_not_be_set_is_refused_in_one_line_with_what_would_be_right(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        with_overrides(SPEC, overrides)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_setting_of_the_dag_given_to_one_task_is_reported_as_what_it_is() -> None:
    with pytest.raises(InvalidInput, match="of the whole DAG"):
        with_overrides(SPEC, {"a.max_active_tasks": 2})


def test_a_pool_that_is_scheduled_runs_own_can_be_named_but_is_not_taken() -> None:
    """The manager sends a backfill's tasks elsewhere (docs/semantics.md, "Pools and priority")."""
    assert with_overrides(SPEC, {"pool": "scheduled"}).task("a").pool == "scheduled"


TELLING = dag_spec("d", "a", callbacks=("a.on_failure", "on_failure"))


def test_a_callback_is_set_by_its_own_id_only() -> None:
    changed = with_overrides(TELLING, {"retries": 5, "a.on_failure.retries": 2, "on_failure.timeout": 60})
    assert [(task.task_id, task.retries, task.timeout) for task in changed.tasks] == [
        ("a", 5, None), ("a.on_failure", 2, None), ("on_failure", 0, 60.0)
    ]  # fmt: skip


def test_what_a_callback_can_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a callback waits only for what it reports on; it has no depends_on_past"):
        with_overrides(TELLING, {"a.on_failure.depends_on_past": True})
    assert not with_overrides(TELLING, {"depends_on_past": True}).task("on_failure").depends_on_past
