"""`over=` another task: what is mapped in a run, of what that one has returned."""

from __future__ import annotations

import dataclasses
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from backfill_manager import Dag, dag, sql, task
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.mapping import spec_with_tasks, values_of, with_mapped, without_mapped
from backfill_manager.dags.overrides import known_overrides, with_overrides
from backfill_manager.dags.yaml.reader import dags_of_yaml
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.model.records import TaskInstance


def files() -> Dag:
    @dag(schedule="@daily", start_date="2024-01-01")
    def files() -> None:
        @task
        def find(ctx: Any) -> list[str]:
            return ["a", "b"]

        def tell(ctx: Any) -> None: ...

        @task(retries=2, on_failure=tell)
        def load(ctx: Any) -> Any:
            return ctx.mapped_value

        @task(trigger_rule="one_success")
        def report(ctx: Any) -> None: ...

        load.expand(over=find()) >> report()

    return files


def test_it_is_one_task_after_the_one_whose_result_it_is_mapped_over() -> None:
    spec = files().spec
    assert [one.task_id for one in spec.work] == ["find", "load", "report"]
    assert spec.task("load").upstream == ("find",)
    assert spec.mapped_over_results == ("load",)
    assert DagSpec.from_json(spec.to_json()) == spec
    by_id = {one["task_id"]: one for one in json.loads(spec.to_json())["tasks"]}
    assert "over_result_of" not in by_id["find"], "definitions without it have the text that they had"


def test_in_a_run_each_value_is_a_task_and_what_came_after_it_comes_after_all() -> None:
    spec = files().spec
    mapped = with_mapped(spec, {"load": {"a": "a", "b": {"rows": 3}}})
    assert mapped.mapped == {"load": {"a": "load.a", "b": "load.b"}}
    assert mapped.task("load.b").mapped_value == {"rows": 3} and mapped.task("load.b").retries == 2
    assert mapped.task("load.a").upstream == ("load",) and mapped.task("report").upstream == ("load.a", "load.b")
    assert {(one.task_id, one.watches) for one in mapped.callbacks} == {
        ("load.on_failure", "load"), ("load.a.on_failure", "load.a"), ("load.b.on_failure", "load.b"),
    }  # fmt: skip
    mapped.check()
    assert without_mapped(mapped, ["load"]) == spec == without_mapped(spec, ["load"])
    assert with_mapped(spec, {"load": {}}) == spec


def test_the_definition_of_a_run_follows_from_its_task_instances() -> None:
    spec = files().spec
    results = {"result_json": '{"a": "secret"}', "result_shown_json": '{"a": "***"}'}
    instance = TaskInstance("files", "r", "load", "success", 1, **results)  # type: ignore[arg-type]
    found = spec_with_tasks(spec, {"load": instance})
    assert found.task("load.a").mapped_value == "secret"
    assert spec_with_tasks(spec, {"load": instance}, shown=True).task("load.a").mapped_value == "***"
    for other in (instance.evolve(state="none"), instance.evolve(result_json=None), instance.evolve(task_id="find")):
        assert spec_with_tasks(spec, {other.task_id: other}) == spec


def test_a_version_that_has_such_a_task_by_itself_has_no_mapped_ones() -> None:
    spec = files().spec
    done = TaskInstance("files", "r", "load", "success", 1, result_json='{"a": 1, "b": 2}')
    twin = dataclasses.replace(spec, tasks=(*spec.tasks, dataclasses.replace(spec.task("find"), task_id="load.a")))
    assert spec_with_tasks(twin, {"load": done}) == twin


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (["a", 7], {"a": "a", "7": 7}),
        ({"a": {"rows": 1}, "b": None}, {"a": {"rows": 1}, "b": None}),
        ([], {}),
        ({}, {}),
    ],
)
def test_a_result_is_a_list_of_names_or_values_by_name(result: Any, values: dict[str, Any]) -> None:
    assert values_of(files().spec.task("load"), result) == values


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("text", "it is mapped over the result of 'find', which must be text or integers that name each task"),
        ([["a"]], "has no name"),
        (["a/b"], "unlike 'a/b'"),
        (["a", "a"], "'a' twice"),
        (list(range(1001)), "must have 0 to 1,000 values, not 1,001"),
    ],
)
def test_another_result_is_refused_in_one_line(result: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        values_of(files().spec.task("load"), result)


def test_an_id_that_is_too_long_is_refused() -> None:
    @dag(schedule=None)
    def long() -> None:
        @task
        def find(ctx: Any) -> None: ...

        sql("s" * 150, "SELECT 1", over=find())

    with pytest.raises(InvalidInput, match="more than 200 characters"):
        with_mapped(long.spec, {"s" * 150: {"k" * 60: 1}})


def test_an_id_that_is_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"mapping 'load' makes the id 'load.on_failure', which another task has"):
        with_mapped(files().spec, {"load": {"on_failure": 1}})


def test_over_a_mapped_task_it_comes_after_all_that_are_mapped_from_that() -> None:
    @dag(schedule=None)
    def twice() -> None:
        @task
        def find(ctx: Any) -> None: ...

        @task
        def load(ctx: Any) -> None: ...

        load.override(task_id="again").expand(over=load.expand(over=find()))

    twice.spec.check()
    assert twice.spec.task("again").upstream == ("load",)
    mapped = with_mapped(with_mapped(twice.spec, {"again": {"a": 7}}), {"load": {"a": 1, "b": 2}})
    assert mapped.task("again").upstream == ("load.a", "load.b")
    assert (mapped.task("again.a").upstream, mapped.task("again.a").mapped_value) == (("again",), 7)

    @dag(schedule=None)
    def known() -> None:
        @task
        def load(ctx: Any) -> None: ...

        load.override(task_id="again").expand(over=load.expand(over=["a", "b"]))

    known.spec.check()
    assert known.spec.task("again").upstream == ("load.a", "load.b")


def test_yaml_maps_over_a_task_that_is_mapped_further_down(tmp_path: Path) -> None:
    file = tmp_path / "files.dag.yaml"
    file.write_text(
        """
dag_id: files
tasks:
  check:
    bash: ls
    over: {result_of: load}
  load:
    sql: SELECT :mapped_value
    over: [a, b]
"""
    )
    (found,) = dags_of_yaml(file, tmp_path, import_module)
    assert found.spec.task("check").upstream == ("load.a", "load.b")
    assert found.spec.task("check").over_result_of == "load"


def test_a_setting_for_one_that_is_mapped_in_a_run_comes_over_that_for_all() -> None:
    spec = with_overrides(files().spec, {"load.a.retries": 7, "load.retries": 3, "load.a.timeout": 60, "retries": 1})
    assert DagSpec.from_json(spec.to_json()) == spec
    mapped = with_mapped(spec, {"load": {"a": 1, "b": 2}})
    assert [mapped.task(one).retries for one in ("find", "load.a", "load.b")] == [1, 7, 3]
    assert [mapped.task(one).timeout for one in ("load.a", "load.b")] == [60, None]
    with pytest.raises(InvalidInput, match=r"lode\.a"):
        with_overrides(files().spec, {"lode.a.retries": 1})
    with pytest.raises(InvalidInput, match="retries must be"):
        with_overrides(files().spec, {"load.a.retries": "many"})


def test_a_version_takes_the_settings_of_tasks_that_it_has() -> None:
    @dag(schedule=None)
    def shops() -> None:
        sql("load", "SELECT 1", over=["de"])
        sql("find", "SELECT 1")
        sql("of_result", "SELECT 1", over={"result_of": "find"})

    known = ["retries", "load.retries", "load.de.retries", "find.retries", "of_result.x.retries"]
    gone = ["gone.retries", "load.fr.retries"]
    assert list(known_overrides(shops.spec, dict.fromkeys(known + gone, 1))) == known


def test_yaml_names_the_task(tmp_path: Path) -> None:
    file = tmp_path / "files.dag.yaml"
    file.write_text(
        """
dag_id: files
tasks:
  find:
    bash: ls
  load:
    sql: SELECT :mapped_value
    over: {result_of: find}
"""
    )
    (made,) = dags_of_yaml(file, tmp_path, import_module)
    assert made.spec.task("load").over_result_of == "find" and made.spec.task("load").upstream == ("find",)
    file.write_text(file.read_text().replace("result_of: find", "result_of: fnid"))
    with pytest.raises(InvalidDag, match="task 'load' waits for 'fnid', which does not exist"):
        dags_of_yaml(file, tmp_path, import_module)
