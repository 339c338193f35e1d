"""`over=`: one declaration, a task for each value."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from backfill_manager import Dag, bash_task, dag, sql, task
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.overrides import with_overrides
from backfill_manager.dags.yaml.reader import dags_of_yaml
from backfill_manager.errors import InvalidDag, InvalidInput

any_task: Any = task


def shops() -> Dag:
    @dag(schedule="@daily", start_date="2024-01-01")
    def shops() -> None:
        @task
        def find(ctx: Any) -> None: ...

        @task(retries=2)
        def load(ctx: Any) -> Any:
            return ctx.mapped_value

        @task
        def report(ctx: Any) -> None: ...

        check = load.override(task_id="check").expand(over={"eu": {"shops": [1, 2]}, "us": None})
        find() >> load.expand(over=["de", "fr", 7]) >> check >> report()

    return shops


def test_each_value_is_a_task_and_all_of_them_are_in_order_as_one() -> None:
    spec = shops().spec
    loads, checks = ("load.de", "load.fr", "load.7"), ("check.eu", "check.us")
    assert [one.task_id for one in spec.tasks] == [*checks, "find", *loads, "report"]
    assert {one: spec.task(one).upstream for one in (*loads, *checks, "report")} == {
        **dict.fromkeys(loads, ("find",)), **dict.fromkeys(checks, loads), "report": checks,
    }  # fmt: skip
    assert [spec.task(one).mapped_value for one in (*loads, *checks)] == ["de", "fr", 7, {"shops": [1, 2]}, None]
    assert {spec.task(one).retries for one in loads} == {2}
    assert spec.mapped == {
        "load": {"de": "load.de", "fr": "load.fr", "7": "load.7"}, "check": {"eu": "check.eu", "us": "check.us"},
    }  # fmt: skip
    assert set(shops().functions) == {"find", "report", *loads, *checks}


def test_a_definition_with_mapped_tasks_goes_through_json_and_others_stay_as_they_were() -> None:
    spec = shops().spec
    assert DagSpec.from_json(spec.to_json()) == spec
    by_id = {one["task_id"]: one for one in json.loads(spec.to_json())["tasks"]}
    assert by_id["load.de"]["mapped_from"] == "load"
    assert not {"mapped_from", "mapped_json"} & by_id["find"].keys()


def test_callbacks_are_of_each_mapped_task() -> None:
    def notify(ctx: Any) -> None: ...

    @dag
    def watched() -> None:
        @task(on_failure=notify, over=["a", "b"])
        def work(ctx: Any) -> None: ...

        work()

    assert [(one.task_id, one.watches) for one in watched.spec.callbacks] == [
        ("work.a.on_failure", "work.a"), ("work.b.on_failure", "work.b"),
    ]  # fmt: skip


def test_settings_of_a_backfill_are_for_all_that_are_mapped_from_one_or_for_one() -> None:
    changed = with_overrides(shops().spec, {"load.de.retries": 9, "load.retries": 5, "retries": 1})
    retries = {one.task_id: one.retries for one in changed.tasks}
    assert retries == {
        "find": 1, "report": 1, "check.eu": 1, "check.us": 1, "load.de": 9, "load.fr": 5, "load.7": 5,
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="has no task 'lode'"):
        with_overrides(shops().spec, {"lode.retries": 5})


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ([], "over must have 1 to 1,000 values, not 0"),
        (list(range(1001)), "over must have 1 to 1,000 values, not 1,001"),
        (["a", "a"], "must have each name once, not 'a' twice"),
        (["1", 1], "must have each name once, not '1' twice"),
        (["a b"], "1 to 100 letters, digits, `_` or `-`, unlike 'a b'"),
        (["a.b"], "unlike 'a.b'"),
        ([{"a": 1}], "{'a': 1} has no name"),
        ([True], "True has no name"),
        ([1.5], "1.5 has no name"),
        ({"a": {1, 2}}, "must have JSON values .*; 'a' has {1, 2}"),
        ({"a": float("nan")}, "must have JSON values .*; 'a' has nan"),
        ({1: 1}, "unlike 1"),
        ("abc", "must be text or integers that name each task, .*, not 'abc'"),
    ],
)
def test_values_that_make_no_tasks_are_refused_with_what_would_be_right(over: Any, message: str) -> None:
    with pytest.raises(InvalidDag, match=message.replace("(", r"\(").replace(")", r"\)")) as refused:

        @dag
        def d() -> None:
            @task
            def work(ctx: Any) -> None: ...

            work.expand(over)

    assert str(refused.value).startswith("DAG 'd', task 'work': over ")


def test_an_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidDag, match=r"over makes the id 'x+\.y+', which has more than 200 characters"):

        @dag
        def d() -> None:
            sql("x" * 120, "SELECT 1", over=["y" * 90])


@pytest.mark.parametrize(("first", "second"), [(None, ["a"]), (["a"], None), (["a"], ["b"])])
def test_a_task_and_mapped_tasks_have_different_ids(first: Any, second: Any) -> None:
    with pytest.raises(InvalidDag, match=r"the id 'work'.*give one of them another with task_id="):

        @dag
        def d() -> None:
            for over in (first, second):
                sql("work", "SELECT 1", **({} if over is None else {"over": over}))


def test_in_yaml_over_is_a_list_or_a_map(tmp_path: Path) -> None:
    file = tmp_path / "shops.dag.yaml"
    file.write_text(
        """
dag_id: shops
tasks:
  load:
    sql: SELECT :mapped_value
    over: [de, fr]
  call:
    bash: echo $BFM_MAPPED_VALUE
    over: {eu: {limit: 3}}
    after: load
"""
    )
    (made,) = dags_of_yaml(file, tmp_path, import_module)
    assert made.spec.mapped == {"load": {"de": "load.de", "fr": "load.fr"}, "call": {"eu": "call.eu"}}
    assert made.spec.task("call.eu").upstream == ("load.de", "load.fr")
    file.write_text(file.read_text().replace("[de, fr]", "[de, de]"))
    with pytest.raises(InvalidDag, match=r"DAG 'shops', task 'load': over must have each name once, not 'de' twice"):
        dags_of_yaml(file, tmp_path, import_module)


def test_a_bash_task_is_mapped_too() -> None:
    @dag
    def d() -> None:
        bash_task("export", "echo $BFM_MAPPED_VALUE", over=["a"])

    assert d.spec.task("export.a").mapped_value == "a"
