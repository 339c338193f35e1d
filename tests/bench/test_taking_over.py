"""How long a new manager of a large state takes to its first tick, and what a clear of a thousand runs costs the tick that
carries it out: figures to print, never a timed assertion.

./tests/run tests/bench/test_taking_over.py --bench -s
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import write_deltalake
from support.s3_server import BUCKET, s3_in_environ, upload
from support.store_proxy import store_proxy

from backfill_manager.clock import SystemClock
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.tick_decisions import Decisions
from backfill_manager.model.records import DagRow, DagRun, DagVersion, Manager, Record, Response, TaskInstance
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.store import open_store
from backfill_manager.store.base import Store
from backfill_manager.store.sql_text import arrow_table
from backfill_manager.testing import dag_spec

DAGS, RUNS, CLEARED = 2000, 200, 1000
LATENCIES_S = (0.0, 0.03, 0.1)
NOW = datetime(2024, 1, 1, tzinfo=timezone.utc)
SCHEDULES = {"*/15 * * * *": timedelta(minutes=15), "@hourly": timedelta(hours=1), "@daily": timedelta(days=1)}


def large_state(root: str, dags: int, runs: int) -> Store:
    """`dags` DAGs that have each had `runs` runs of one task, and one is due; the first one had `CLEARED` of them."""
    store = open_store(root)
    store.init()
    schedules = list(SCHEDULES)
    rows: dict[type[Record], list[Record]] = {DagRow: [], DagVersion: [], DagRun: [], TaskInstance: []}
    for n in range(dags):
        spec = dag_spec(f"d{n}", "t", schedule=schedules[n % len(schedules)], start_date=NOW - timedelta(days=9000))
        rows[DagVersion].append(DagVersion(spec.dag_id, 1, "1", spec.to_json(), "b", "f.py", "/nowhere", NOW))
        rows[DagRow].append(DagRow(spec.dag_id, "b", "f.py", 1, False, True, str(spec.schedule), "UTC", NOW))
        step = SCHEDULES[str(spec.schedule)]
        for back in range(2, 2 + (runs if n else CLEARED)):  # the last interval has none yet
            at = NOW - back * step
            ends = {"started_at": at, "ended_at": at}
            run_id, seq = f"scheduled__{at:%Y-%m-%dT%H:%M:%SZ}", len(rows[DagRun])
            rows[DagRun].append(
                DagRun(spec.dag_id, run_id, "scheduled", "success", 1, seq, at, at, at, at + step, **ends)  # type: ignore[arg-type]
            )
            rows[TaskInstance].append(
                TaskInstance(spec.dag_id, run_id, "t", "success", seq, try_number=1, launch=1, **ends)  # type: ignore[arg-type]
            )
    places = store.locations()
    for record, made in rows.items():
        write_deltalake(places[record.TABLE], arrow_table(record, made), mode="append")
    return open_store(root)


def take_over_and_clear(store: Store) -> tuple[int, dict[str, float]]:
    """Number of runs that the first tick makes, and the seconds that each step took."""
    clock, took = SystemClock(), dict[str, float]()
    began = clock.monotonic()

    def lap(name: str) -> None:
        nonlocal began
        took[name], began = clock.monotonic() - began, clock.monotonic()

    leader = store.lead(Manager(1, "m", "host", 1, "leading", NOW, NOW, 15, "0"))
    lap("take the lease")
    state = restore_state(store, term=1, now=NOW)
    lap("read what lives")
    decisions = Decisions(state, store, leader)
    decisions.prefetch(NOW)
    lap("read the timelines")
    todo = decisions.decide([], [], {}, NOW)
    lap("decide")
    decisions.commit(todo)
    lap("commit")
    made = len(state.runs)
    submit.submit(
        store,
        clock,
        request_kinds.TASKS_CLEAR,
        {"ask": {"dag": "d0", "end": "2023-12-31T23:30:00Z"}},
        requested_by="bench",
    )
    began = clock.monotonic()
    decisions.prefetch(NOW)
    todo = decisions.decide([], store.unanswered(), {}, NOW)
    lap("decide on the clear")
    decisions.commit(todo)
    lap("commit the clear")
    (answer,) = store.read(Response)
    assert answer.outcome == "accepted", answer.message
    return made, took


def test_each_dag_of_the_state_goes_on_with_its_schedule(tmp_path: Path) -> None:
    made, _ = take_over_and_clear(large_state(str(tmp_path / "state"), dags=9, runs=3))
    assert made == 9


@pytest.mark.bench
def test_taking_over_two_thousand_dags_and_clearing_a_thousand_runs(tmp_path: Path) -> None:
    made, took = take_over_and_clear(large_state(str(tmp_path / "state"), DAGS, RUNS))
    print(f"\n{DAGS} DAGs with {RUNS} runs each, {made} runs due; {CLEARED} runs cleared, in milliseconds:")
    print("\n".join(f"{name:>22} {seconds * 1000:6.0f}" for name, seconds in took.items()))


@pytest.mark.bench
@pytest.mark.parametrize("latency", LATENCIES_S)
def test_taking_over_a_state_in_a_slow_store(latency: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`latency` for each request to the store."""
    folder = tmp_path / "state"
    large_state(str(folder), dags=9, runs=3).close()
    with s3_in_environ() as address, store_proxy(address) as proxy:
        upload(folder, address, "state")
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        proxy.plan(latency_s=latency)
        made, took = take_over_and_clear(open_store(f"s3://{BUCKET}/state"))
        asked = len(proxy.seen())
    assert made == 9
    print(f"\n{latency * 1000:g} ms a request, {asked} requests, in milliseconds:")
    print("\n".join(f"{name:>22} {seconds * 1000:6.0f}" for name, seconds in took.items()))
