"""Params that a DAG does not have, and values that they can't have, on every command that takes `--conf`; and runs of a
partition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.model.records import Request
from backfill_manager.schemas.params import ParamSpec

JANUARY = ("backfill", "create", "flights", "--from", "2013-01-01", "--to", "2013-01-31")
DAG_FILE = """
from backfill_manager import Param, dag, sql


@dag(params={"region": Param("eu", choices=["eu", "us"]), "full": Param(False)})
def copy():
    sql("show", "SELECT assert_true(:region = 'us' AND :partition_key = 'north' AND NOT :full)")
"""
TASK = ("tasks", "run", "flights", "clean", "2013-01-05")
WRONG = {
    "an unknown name": ('{"regoin": "us"}', "--conf 'regoin' is no parameter of DAG 'flights'; did you mean 'region'"),
    "no choice": ('{"region": "uk"}', '--conf \'region\' must be one of "eu", "us", not "uk"; did you mean \'us\''),
    "another type": ('{"full": "false"}', "--conf 'full' must be of type boolean, not \"false\""),
}


def fill(state: FilledState) -> None:
    declared = {"region": ParamSpec("string", ("eu", "us"), "which one"), "full": ParamSpec("boolean")}
    state.dag(params={"region": "eu", "full": False}, declared_params=declared)
    state.pools()
    state.backfill("b1", {"pending": 3})


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "command",
    [JANUARY, (*JANUARY, "-n"), ("backfill", "set", "b1"), ("dags", "trigger", "flights"), TASK],
    ids=" ".join,
)
def test_a_param_that_does_not_fit_is_refused(
    bfm: Bfm, filled: FilledState, command: tuple[str, ...], wrong: str
) -> None:
    conf, message = WRONG[wrong]
    result = bfm(*command, "--conf", conf)
    assert (result.code, result.out) == (2, "")
    assert message in " ".join(result.err.split())
    assert filled.store.read(Request) == []


def test_a_param_that_fits_is_taken(bfm: Bfm, filled: FilledState) -> None:
    for command in (JANUARY, ("backfill", "set", "b1"), ("dags", "trigger", "flights")):
        assert bfm(*command, "--conf", '{"region": "us", "full": true}').code == 0
    assert len(filled.store.read(Request)) == 3


def test_a_task_by_hand_has_params(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()  # it never answers
    bfm(*TASK, "--conf", '{"region": "us"}')
    [request] = filled.store.read(Request)
    assert json.loads(request.payload_json)["conf"] == {"region": "us"}


def test_a_task_by_hand_without_a_required_param_is_refused(bfm: Bfm, state: FilledState) -> None:
    state.dag(declared_params={"days": ParamSpec("integer", is_required=True)})
    result = bfm(*TASK)
    assert (result.code, state.store.read(Request)) == (2, [])
    assert "'days'" in result.err and "required" in result.err


def test_show_lists_the_params(bfm: Bfm, filled: FilledState) -> None:
    shown = bfm("dags", "show", "flights").out
    assert '"eu", "us"' in shown and "which one" in shown and "boolean" in shown
    declared = bfm("dags", "show", "flights", "--output", "json").document["declared_params"]
    assert declared["region"] == {
        "type": "string", "choices": ["eu", "us"], "description": "which one", "is_required": False, "is_nullable": False,
    }  # fmt: skip


def test_a_run_of_a_partition_is_triggered(bfm: Bfm, filled: FilledState) -> None:
    assert bfm("dags", "trigger", "flights", "--partition", "north", "--conf", '{"region": "us"}').code == 0
    [request] = filled.store.read(Request)
    assert json.loads(request.payload_json) == {
        "dag_id": "flights", "logical_date": None, "conf": {"region": "us"}, "partition_key": "north",
    }  # fmt: skip


@pytest.mark.parametrize("command", [("dags", "trigger"), ("dags", "test")], ids=" ".join)
def test_a_run_has_a_date_or_a_partition(bfm: Bfm, filled: FilledState, command: tuple[str, ...]) -> None:
    made_file(Path.cwd())
    of = ["copy", "flights"][command[1] == "trigger"]
    both = bfm(*command, of, "--partition", "north", "--logical-date", "2013-01-05T00:00:00Z")
    assert (both.code, "--logical-date and --partition don't go together" in both.err) == (2, True)
    blank = bfm(*command, of, "--partition", " ")
    assert (blank.code, "--partition ' ' must be a text of 1 to 1000" in blank.err) == (2, True)


def made_file(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "manager.yaml").write_text("bundles: [{name: tests, path: ../dags}]\n")
    (folder / "dags").mkdir()
    (folder / "dags" / "copy.py").write_text(DAG_FILE)


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ('{"regoin": "us"}', "--conf 'regoin' is no parameter of DAG 'copy'; did you mean 'region'"),
        ('{"region": "uk"}', '--conf \'region\' must be one of "eu", "us", not "uk"; did you mean \'us\''),
        ("{", "--conf is not JSON"),
    ],
)
def test_dags_test_refuses_a_param_that_does_not_fit(bfm: Bfm, tmp_path: Path, conf: str, message: str) -> None:
    made_file(tmp_path)
    result = bfm("dags", "test", "copy", "--partition", "north", "--conf", conf)
    assert result.code == 2
    assert message in " ".join(result.err.split())
