"""The timeline as views tell it: what stands where, what was overridden, and from where the scheduler goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.sample_state import FilledState

from backfill_manager.clock import UTC
from backfill_manager.model.records import DagRow, DagRun
from backfill_manager.queries.dags import schedules_reached
from backfill_manager.queries.runs import MAX_NESTED, timeline
from backfill_manager.store.base import Store
from backfill_manager.testing import MemoryStore

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


def reached(store: Store) -> dict[str, str | None]:
    """By DAG the run from which its schedule goes on."""
    rows = [DagRow(dag_id, "b", "f.py", 1, False, True, "@daily", "UTC", FIRST) for dag_id in "abcd"]
    found = schedules_reached(store, rows, FIRST + timedelta(days=20))
    return {dag_id: one.last_scheduled and one.last_scheduled.run_id for dag_id, one in found.items()}


def test_the_schedule_goes_on_from_the_last_date_that_it_or_a_backfill_did(store: MemoryStore) -> None:
    assert reached(store) == {"a": "late", "b": "late", "c": None, "d": None}
    store.write([a_run("a", "by a person", 17, 9, run_type="manual")])
    store.write([a_run("b", "ahead of its time", 18, 10, run_type="backfill")])
    assert reached(store) == {"a": "late", "b": "late", "c": None, "d": None}


def test_how_far_schedules_have_come_is_the_same_on_disk(state: FilledState) -> None:
    assert reached(state.store) == dict.fromkeys("abcd")
    state.put(*RUNS)
    assert reached(state.store) == {"a": "late", "b": "late", "c": None, "d": None}


def test_the_timeline_leaves_out_what_has_no_place_in_it(store: MemoryStore) -> None:
    shown = timeline(store, "a")

    assert [one["run_id"] for one in shown] == ["put in later", "late"]
    assert [one["run_id"] for one in shown[1]["overridden"]] == ["overridden"]
    assert timeline(store, "a", limit=1) == shown[1:]
    assert timeline(store, "c") == []


def test_runs_of_a_date_that_was_run_very_often_are_all_shown(store: MemoryStore) -> None:
    number = 3 * MAX_NESTED
    store.write(
        [
            a_run("often", f"{n}", 1, 100 + n, state="overridden", overridden_by=f"{n + 1}")
            for n in range(number)
        ]
        + [a_run("often", f"{number}", 1, 100 + number)]
    )  # fmt: skip
    shown, at_once = timeline(store, "often"), 1
    ids = [shown[0]["run_id"]]
    while at_once == 1:
        shown = shown[0]["overridden"]
        at_once = len(shown)
        ids += [one["run_id"] for one in shown]
    assert ids == [f"{n}" for n in range(number, -1, -1)]
    assert at_once == number - MAX_NESTED
    assert all(one["overridden"] == [] for one in shown)
