"""Callbacks that a DAG file declares."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backfill_manager import dag, sql, task
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.errors import InvalidDag

any_dag: Any = dag  # for calls that a type checker would refuse too


def notify(ctx: Any) -> None:
    raise AssertionError("a callback never runs in the parser")


def notify_more(ctx: Any) -> None:
    raise AssertionError("a callback never runs in the parser")


def test_callbacks_of_dag_task_and_sql_become_tasks_of_their_own() -> None:
    @dag(on_success=notify)
    def flights() -> None:
        @task(on_failure=notify, priority=4, retries=3, depends_on_past=True, pool="heavy")
        def clean(ctx: Any) -> None: ...

        clean() >> sql("delays", "SELECT 1", on_success=notify_more, on_failure=notify)

    spec = flights.spec
    assert [(one.task_id, one.watches, one.calls_back) for one in spec.callbacks] == [
        ("clean.on_failure", "clean", "failed"),
        ("delays.on_success", "delays", "success"),
        ("delays.on_failure", "delays", "failed"),
        ("on_success", None, "success"),
    ]
    message = spec.task("clean.on_failure")
    assert (message.kind, message.upstream, message.retries, message.timeout, message.pool) == (
        "python",
        (),
        0,
        600.0,
        None,
    )
    assert (message.priority, message.depends_on_past) == (4, False), "as urgent as its task, and nothing else of it"
    assert flights.functions["clean.on_failure"] is notify and flights.functions["delays.on_success"] is notify_more
    assert ([one.task_id for one in spec.work], spec.leaves_of(spec.by_id)) == (["clean", "delays"], ("delays",))
    assert [one.task_id for one in spec.in_order][:2] == ["clean", "delays"], "callbacks come last"
    assert DagSpec.from_json(spec.to_json()) == spec


def test_default_args_give_every_task_a_callback_but_those_that_opt_out() -> None:
    @dag(default_args={"on_failure": notify})
    def flights() -> None:
        @task
        def clean(ctx: Any) -> None: ...

        @task(on_failure=None)
        def quiet(ctx: Any) -> None: ...

        @task.executor(on_failure=notify_more)
        def fetch(ctx: Any) -> None: ...

        clean(), quiet(), fetch(), clean.override(task_id="again", on_failure=None)()

    assert [one.task_id for one in flights.spec.callbacks] == ["clean.on_failure", "fetch.on_failure"]
    assert (flights.functions["clean.on_failure"], flights.functions["fetch.on_failure"]) == (notify, notify_more)


def test_a_callback_may_have_some_of_its_arguments_already() -> None:
    def notify(channel: str, ctx: Any) -> None: ...

    @dag(on_failure=partial(notify, "#ops"))
    def flights() -> None:
        sql("s", "SELECT 1")

    assert [one.task_id for one in flights.spec.callbacks] == ["on_failure"]


def _async_callback() -> Any:
    async def late(ctx: Any) -> None: ...

    return late


@pytest.mark.parametrize("value", ["notify", [notify], 5, task(notify), _async_callback(), lambda: None, Path])
def test_a_callback_that_is_no_plain_function_is_reported(value: Any) -> None:
    for keyword in ("on_success", "on_failure"):
        with pytest.raises(InvalidDag, match=f"DAG 'd': {keyword} must be a plain function that takes one argument"):
            any_dag("d", **{keyword: value})(lambda: None)
        with pytest.raises(InvalidDag, match=f"task 's': {keyword} must be a plain function"):
            any_dag("d")(lambda keyword=keyword: sql("s", "SELECT 1", **{keyword: value}))


def test_a_task_with_the_id_of_a_callback_is_reported() -> None:
    def body() -> None:
        sql("s", "SELECT 1", on_failure=notify)
        sql("s.on_failure", "SELECT 1")

    with pytest.raises(
        InvalidDag, match=r"DAG 'd', callback 's\.on_failure' has the id of a task; give the task another"
    ):
        any_dag("d")(body)
    with pytest.raises(InvalidDag, match="callback 'on_failure' has the id of a task"):
        any_dag("d", on_failure=notify)(lambda: sql("on_failure", "SELECT 1"))


def test_nothing_waits_for_a_callback() -> None:
    work = TaskSpec("a", upstream=("b.on_failure",))
    message = TaskSpec("b.on_failure", calls_back="failed", watches="b")
    with pytest.raises(
        InvalidDag, match=r"task 'a' waits for 'b\.on_failure', which is a callback: nothing can wait for it"
    ):
        DagSpec("d", (TaskSpec("b"), work, message)).check()
    with pytest.raises(InvalidDag, match=r"callback 'b\.on_failure' watches 'b', which does not exist"):
        DagSpec("d", (TaskSpec("a"), message)).check()
    with pytest.raises(InvalidDag, match="is a plain function that waits only for what it reports on"):
        DagSpec("d", (TaskSpec("b"), dataclasses.replace(message, depends_on_past=True))).check()
    with pytest.raises(InvalidDag, match="DAG 'd' has no task"):
        DagSpec("d", (TaskSpec("on_failure", calls_back="failed"),)).check()
