"""A state in an object store: what the store has to promise, and what happens while it delays, repeats, drops and fails
requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.page_client import browser_of
from support.s3_server import BUCKET
from support.sample_state import StandingClock
from support.state_changes import changes, request, response, run, takes_over, task, unique
from support.store_proxy import FAULTS, StoreProxy, proxy_in_this_process, store_proxy

from backfill_manager.errors import LostLease, StateError
from backfill_manager.model.records import DagRun, Request, Response, TaskInstance
from backfill_manager.store.base import Condition, Leader, Store
from backfill_manager.store.delta_rs import tables as delta_tables
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.refresh_once import refresh_once

ATTEMPTS = 60


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[StoreProxy]:
    with store_proxy(s3) as made:
        yield made


@pytest.fixture
def state(proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeltaRsStore]:
    """A state that is reached through the proxy, which does nothing yet."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    proxy.plan()
    made = DeltaRsStore(f"s3://{BUCKET}/{unique('state')}")
    yield made
    proxy.plan()
    made.close()


def test_a_store_without_conditional_put_is_refused(proxy: StoreProxy, state: DeltaRsStore) -> None:
    proxy.plan(without_headers=("If-None-Match",))
    with pytest.raises(StateError, match=r"lets two writers make the same commit.*use one with conditional put"):
        state.init()
    assert not state.exists()
    with pytest.raises(StateError, match="two writers"):
        state.init()  # again, with what the first one has made
    with pytest.raises(StateError, match="two writers"):
        state.check_promises()


def test_a_store_that_is_configured_to_do_without_is_refused(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(StateError, match="conditional put is disabled"):
        state.init()


def test_a_local_disk_and_a_store_with_conditional_put_pass(state: DeltaRsStore, tmp_path: Path) -> None:
    for store in (state, DeltaRsStore(str(tmp_path / "state"))):
        store.init()
        store.check_promises()


def test_a_leader_and_clients_do_not_mind_a_race_of_the_probe(state: DeltaRsStore) -> None:
    state.init()
    leader = takes_over(state)
    state.append_request(request("before"))
    state.check_promises()
    leader.commit(changes(run("d", 1)))
    assert [row.request_id for row in state.unanswered()] == ["before"]


def test_other_threads_run_while_a_query_reads(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they answer its requests here, it would wait for ever."""
    state = DeltaRsStore(f"s3://{BUCKET}/{unique('state')}")
    state.init()
    takes_over(state).commit(changes(run("d", 1), run("d", 2)))
    state.close()
    with proxy_in_this_process(s3) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        assert [row.run_seq for row in state.read(DagRun, order_by=["run_seq"])] == [1, 2]
    state.close()


HISTORIES = [
    pytest.param(1, dict.fromkeys(FAULTS, 0.04), 5, id="all faults"),
    *(
        pytest.param(seed, {fault: 0.15}, 12, marks=pytest.mark.slow, id=f"{fault}, seed {seed}")
        for fault in FAULTS
        for seed in (2, 3)
    ),
]


@pytest.mark.parametrize(("seed", "faults", "requests"), HISTORIES)
def test_no_request_is_lost_or_answered_twice(
    proxy: StoreProxy, state: DeltaRsStore, seed: int, faults: dict[str, float], requests: int
) -> None:
    """A client asks, a manager answers each with a run; one that fails is followed by another, as its supervisor does it."""
    state.init()
    proxy.plan(seed=seed, faults=faults, delay_s=0.1)
    sent, leader = list[str](), None
    for n in range(requests):
        ask = f"ask{n}"
        if _appended(state, ask):
            sent.append(ask)
        leader = _answers_what_there_is(state, leader)
    seen = proxy.seen()
    proxy.plan()
    leader = _answers_what_there_is(state, leader)

    arrived = {row.request_id for row in state.read(Request)}
    assert set(sent) <= arrived, "what a client was promised is there"
    assert state.unanswered() == []
    assert Counter(row.request_id for row in state.read(Response)) == Counter(arrived)
    assert Counter(row.run_id for row in state.read(DagRun)) == Counter({f"run{int(ask[3:])}" for ask in arrived})
    assert len(state.read(TaskInstance)) == len(arrived)
    assert {what for _, _, what, _ in seen} == {"", *faults}, "requests met each of them"


def _appended(state: Store, ask: str) -> bool:
    try:
        state.append_request(request(ask))
    except StateError:
        return False
    return True


def _answers_what_there_is(state: DeltaRsStore, leader: Leader | None) -> Leader:
    """A tick for each request, by this leader or by its successors."""
    for _ in range(ATTEMPTS):
        try:
            if leader is None:
                state.close()  # a process of its own, which has read nothing yet
                leader = takes_over(state)
            for asked in state.unanswered():
                seq = int(asked.request_id[3:])
                there = state.read(DagRun, [Condition("run_seq", "=", seq)])
                rows = [] if there else [task("d", seq), run("d", seq)]
                leader.commit(changes(*rows, response(asked, leader.term)))
            return leader
        except (LostLease, StateError):
            leader = None
    raise AssertionError(f"not one of {ATTEMPTS} managers got through")


def test_one_look_lists_each_log_once_and_a_known_table_costs_two_requests(
    proxy: StoreProxy, state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_tables, "MAX_AGE_S", 60.0)  # a busy machine may take long to look
    state.init()
    leader = takes_over(DeltaRsStore(state.root))
    tables = ("request", "response", "dag_run")

    def looks() -> Counter[str]:
        with refresh_once():
            for _ in range(3):
                for table in tables:
                    state.version(table)
        seen = proxy.seen()
        proxy.plan()
        return Counter("listed" if "list-type" in path else "read" for _, path, _, _ in seen)

    proxy.plan()
    assert looks()["listed"] == len(tables)
    assert looks() == {"listed": len(tables), "read": len(tables)}, "and whether there is a new checkpoint"
    leader.commit(changes(run("d", 1)))
    proxy.plan()
    assert looks() == {"listed": len(tables), "read": len(tables) + 1}, "and the one commit that is new"
    for table in tables:
        state.version(table)
        state.version(table)
    assert len(proxy.seen()) == 4 * len(tables), "outside, each look is one of its own"


def test_what_was_read_of_a_version_is_not_read_again(proxy: StoreProxy, state: DeltaRsStore) -> None:
    state.init()
    leader = takes_over(DeltaRsStore(state.root))
    leader.commit(changes(run("d", 1)))

    def files_read(runs: int) -> int:
        proxy.plan()
        assert [row.run_id for row in state.read(DagRun, order_by=["run_seq"])] == [
            f"run{n}" for n in range(1, runs + 1)
        ]
        return sum(".parquet" in path for _, path, _, _ in proxy.seen())

    assert files_read(1) > 0
    assert files_read(1) == 0
    leader.commit(changes(run("d", 2)))
    assert files_read(2) > 0, "a new version"


def test_one_look_sees_what_its_own_process_has_written(state: DeltaRsStore) -> None:
    state.init()
    with refresh_once():
        assert state.unanswered() == []
        state.append_request(request("mine"))
        assert [row.request_id for row in state.unanswered()] == ["mine"]
        leader = takes_over(state)
        assert state.read(DagRun) == []
        leader.commit(changes(run("d", 1)))
        assert len(state.read(DagRun)) == 1, "a leader reads what it has just written"


def test_a_page_that_was_read_before_asks_two_requests_for_each_table(proxy: StoreProxy, state: DeltaRsStore) -> None:
    state.init()
    browser = browser_of(state, StandingClock())
    for path, most in (("/backfills", 28), ("/dags", 28)):
        assert browser.get(path).status_code == 200
        proxy.plan()
        assert browser.get(path).status_code == 200
        seen = Counter(path.split("?")[0].split("/")[-1] for _, path, _, _ in proxy.seen())
        assert set(seen) == {BUCKET, "_last_checkpoint"} and seen.total() <= most, seen
