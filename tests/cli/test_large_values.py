"""Run parameters and settings are small on the command line too, and its lists do not repeat them."""

from __future__ import annotations

import json

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.model.records import DagRun, Request
from backfill_manager.schemas.json_values import MAX_BYTES

LARGE = "x" * MAX_BYTES
TOLD = "must not be larger than 64 kB as JSON"
JANUARY = ("flights", "--from", "2013-01-01", "--to", "2013-01-31")


def fill(state: FilledState) -> None:
    state.dag()
    state.pools()
    state.backfill("b1", {"success": 1, "pending": 3})


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


@pytest.mark.parametrize(
    "words",
    [
        ("backfill", "create", *JANUARY, "--conf", json.dumps({"a": LARGE})),
        ("backfill", "create", *JANUARY, "--set", f"pool={LARGE}"),
        ("backfill", "set", "b1", "--conf", json.dumps({"a": LARGE})),
        ("backfill", "set", "b1", "--set", f"pool={LARGE}"),
        ("dags", "trigger", "flights", "--conf", json.dumps({"a": LARGE})),
    ],
    ids=lambda words: " ".join([*words[:2], words[-2]]),
)
def test_large_parameters_and_settings_are_refused_in_one_line(
    bfm: Bfm, filled: FilledState, words: tuple[str, ...]
) -> None:
    result = bfm(*words)
    assert (result.code, result.error.startswith(words[-2]), TOLD in result.error) == (2, True, True)
    assert len(result.error) < 300
    assert filled.store.read(Request) == []


def test_lists_as_json_leave_out_parameters_and_payloads_and_show_has_them(bfm: Bfm, filled: FilledState) -> None:
    filled.requested("b2")
    [run] = bfm("runs", "list", "--output", "json").document
    [submitted] = bfm("requests", "list", "--output", "json").document
    waiting, _ = bfm("backfill", "list", "--output", "json").document
    assert "conf" not in run and "payload" not in submitted and {"conf", "overrides"}.isdisjoint(waiting)
    assert submitted["about"] == {"dag_id": "flights", "backfill_id": "b2"}
    [row] = filled.store.read(DagRun)
    assert bfm("runs", "show", row.run_id, "--output", "json").document["conf"] == {}
    assert bfm("requests", "show", "latest", "--output", "json").document["payload"]["backfill_id"] == "b2"
    assert bfm("backfill", "show", "b1", "--output", "json").document["conf"] == {}
