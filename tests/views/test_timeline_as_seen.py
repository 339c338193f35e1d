"""The timeline as views tell it: what stands where, what was overridden, and from where the scheduler goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from filled_state import FilledState

from backfill_manager.clock import UTC
from backfill_manager.model.records import DagRun
from backfill_manager.testing import MemoryStore
from backfill_manager.views.timeline import latest_run, latest_runs, timeline

FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def a_run(dag_id: str, run_id: str, day: int | None, seq: int, **fields: Any) -> DagRun:
    at = None if day is None else FIRST + timedelta(days=day)
    plain = {"run_type": "scheduled", "state": "success", "dag_version": 1}
    return DagRun(dag_id=dag_id, run_id=run_id, run_seq=seq, created_at=FIRST, logical_date=at, **{**plain, **fields})


RUNS = [
    a_run("a", "late", 9, 1, state="failed"),
    a_run("a", "put in later", 3, 2, run_type="backfill"),
    a_run("a", "overridden", 12, 3, state="overridden", overridden_by="late"),
    a_run("a", "by hand", 15, 4, run_type="external"),
    a_run("a", "of a partition", None, 5, partition_key="emea"),
    a_run("b", "late", 2, 6),
    a_run("b", "early", 1, 7),
    a_run("c", "only by hand", 1, 8, run_type="external"),
]


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.init()
    made.write(RUNS)
    return made


def test_the_latest_run_is_that_of_the_last_date_whatever_made_it(store: MemoryStore) -> None:
    found = {dag_id: latest_run(store, dag_id) for dag_id in "abcd"}

    assert {dag_id: run and run.run_id for dag_id, run in found.items()} == {
        "a": "late", "b": "late", "c": None, "d": None,
    }  # fmt: skip
    assert latest_runs(store) == {dag_id: run for dag_id, run in found.items() if run is not None}


def test_the_latest_runs_are_the_same_on_disk(state: FilledState) -> None:
    assert latest_runs(state.store) == {}
    state.put(*RUNS)

    assert {dag_id: run.run_id for dag_id, run in latest_runs(state.store).items()} == {"a": "late", "b": "late"}


def test_the_timeline_leaves_out_what_has_no_place_in_it(store: MemoryStore) -> None:
    told = timeline(store, "a")

    assert [one["run_id"] for one in told] == ["put in later", "late"]
    assert [one["run_id"] for one in told[1]["overridden"]] == ["overridden"]
    assert timeline(store, "a", limit=1) == told[1:]
    assert timeline(store, "c") == []
