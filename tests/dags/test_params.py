"""Params: plain defaults, and declared ones with type, default, choices and description."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill_manager import Param, dag, sql
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.yaml.reader import dags_of_yaml
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.params import ParamSpec


def spec_with(params: dict[str, Any], **settings: Any) -> DagSpec:
    @dag(dag_id="d", params=params, **settings)
    def made() -> None:
        sql("s", "SELECT 1")

    return made.spec


def yaml_spec(folder: Path, params: str) -> DagSpec:
    path = folder / "d.dag.yaml"
    path.write_text(f"dag_id: d\nparams: {params}\ntasks: {{s: {{sql: SELECT 1}}}}\n")
    (made,) = dags_of_yaml(path, folder, lambda name: pytest.fail(name))
    return made.spec


def test_plain_defaults_are_as_they_were() -> None:
    spec = spec_with({"region": "eu", "like_a_declaration": {"type": "string"}, "none": None})
    assert spec.params == {"region": "eu", "like_a_declaration": {"type": "string"}, "none": None}
    assert spec.declared_params == {}
    assert "declared_params" not in spec.to_json(), "the definition, and so the version, of such a DAG is as before"
    assert DagSpec.from_json(spec.to_json()) == spec


def test_a_declared_param_has_type_default_choices_and_description() -> None:
    spec = spec_with(
        {
            "region": Param("eu", choices=["eu", "us"], description="which one to copy"),
            "days": Param(type=int),
            "share": Param(1, type="number"),
            "until": Param(None, type=str),
            "any": Param(None),
            "plain": [1],
        }
    )
    assert spec.params == {"region": "eu", "share": 1, "until": None, "any": None, "plain": [1]}
    assert spec.declared_params == {
        "region": ParamSpec("string", ("eu", "us"), "which one to copy"),
        "days": ParamSpec("integer", is_required=True),
        "share": ParamSpec("number"),
        "until": ParamSpec("string", is_nullable=True),
        "any": ParamSpec(is_nullable=True),
    }
    assert DagSpec.from_json(spec.to_json()) == spec


def test_a_yaml_file_declares_the_same(tmp_path: Path) -> None:
    written = "{region: {type: string, default: eu, choices: [eu, us], description: which}, days: {type: integer}, plain: {a: 1}}"
    in_python = {
        "region": Param("eu", choices=["eu", "us"], description="which"), "days": Param(type="integer"), "plain": {"a": 1},
    }  # fmt: skip
    read, made = yaml_spec(tmp_path, written), spec_with(in_python)
    assert (read.params, read.declared_params) == (made.params, made.declared_params)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Param("eu", choices=["us"]), r"the default of 'p' must be one of \"us\", not \"eu\""),
        (lambda: Param("3", type=int), r"the default of 'p' must be of type integer, not \"3\""),
        (lambda: Param(True, type="integer"), "the default of 'p' must be of type integer, not true"),
        (lambda: Param(1, choices=[1, 2.5]), r"a choice of 'p' must be of type integer, not 2\.5; say which type"),
        (lambda: Param(1, type="interger"), "the type of 'p' is 'interger', which is no type; did you mean 'integer'"),
        (lambda: Param("a", choices="abc"), "the choices of 'p' must be a list of values, not 'abc'"),
        (lambda: Param("a", choices=[]), "the choices of 'p' must be a list of values"),
        (lambda: Param("a", description=1), "the description of 'p' must be text, not 1"),  # type: ignore[arg-type]
        (lambda: Param({1, 2}), "must be JSON values all through"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(made: Callable[[], Param], message: str) -> None:
    with pytest.raises(InvalidDag, match=f"DAG 'd': params .*{message}"):
        spec_with({"p": made()})


def test_a_yaml_mapping_that_declares_nothing_is_a_default(tmp_path: Path) -> None:
    for plain in ({"type": "parquet"}, {"default": 1, "mode": "x"}, {"description": "x"}, {}):
        assert yaml_spec(tmp_path, f"{{a: {json.dumps(plain)}}}").params == {"a": plain}


def test_a_yaml_declaration_with_an_unknown_key_is_refused_at_its_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidDag, match="'region' has no setting 'defualt'; did you mean 'default'"):
        yaml_spec(tmp_path, "{region: {type: string, defualt: eu}}")


def test_a_schedule_needs_a_default_for_every_param() -> None:
    with pytest.raises(InvalidDag, match="DAG 'd' has a schedule, whose runs set no params: give region a default"):
        spec_with({"region": Param(type=str)}, schedule="@daily", start_date="2013-01-01")
    assert spec_with({"region": Param(type=str)}).declared_params["region"].is_required
