"""Run parameters that are wrong, unknown or missing are refused, and the nearest name is offered."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.run_params import check_conf
from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.params import ParamSpec

DECLARED = DagSpec(
    dag_id="copy", tasks=(TaskSpec("a"),), params={"region": "eu", "full": False, "until": None, "plain": 1},
    declared_params={
        "region": ParamSpec("string", ("eu", "us")), "full": ParamSpec("boolean"),
        "until": ParamSpec("string", is_nullable=True), "share": ParamSpec("number", is_required=True),
        "api_key": ParamSpec("string", is_required=True),
    },
)  # fmt: skip
NEEDED: dict[str, Any] = {"share": 0.5, "api_key": "s3cr3t"}


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"fulll": True}, "conf 'fulll' is no parameter of DAG 'copy'; did you mean 'full'?"),
        ({"x": 1}, "conf 'x' is no parameter of DAG 'copy'; it has region, full, until, plain, share, api_key"),
        ({"region": "uk"}, 'conf \'region\' must be one of "eu", "us", not "uk"; did you mean \'us\'?'),
        ({"region": "moon"}, 'conf \'region\' must be one of "eu", "us", not "moon"'),
        ({"full": "false"}, "conf 'full' must be of type boolean, not \"false\""),
        ({"full": 1}, "conf 'full' must be of type boolean, not 1"),
        ({"full": None}, "conf 'full' must be of type boolean, not null"),
        ({"share": True}, "conf 'share' must be of type number, not true"),
        ({"api_key": 12345}, "conf 'api_key' must be of type string, not what was given"),
    ],
)
def test_a_param_that_does_not_fit_is_refused(conf: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_conf({**NEEDED, **conf}, DECLARED)
    assert (str(refused.value), refused.value.field) == (message, "conf")


def test_a_required_param_must_be_set() -> None:
    with pytest.raises(
        InvalidInput, match=r"conf must set 'share' \(number, required\): DAG 'copy' has no default for it"
    ):
        check_conf({}, DECLARED)


@pytest.mark.parametrize("conf", [{"region": "us"}, {"until": None}, {"until": "x"}, {"share": 2}, {"plain": "any"}])
def test_a_param_that_fits_is_taken(conf: dict[str, Any]) -> None:
    check_conf({**NEEDED, **conf}, DECLARED)


def test_a_dag_without_params_takes_all() -> None:
    check_conf({"anything": [1]}, DagSpec(dag_id="old", tasks=(TaskSpec("a"),)))
