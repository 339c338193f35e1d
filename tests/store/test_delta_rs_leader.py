"""Which of two managers of one state commits; and what a commit costs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from support.manager_process import wait_for
from support.state_changes import AT, changes, item, manager, request, rows_rewritten, run, takes_over, task

from backfill_manager.clock import SystemClock
from backfill_manager.errors import LostLease, StateError, StateUnavailable
from backfill_manager.model.records import BackfillItem, DagRun, Manager, Request, TaskInstance
from backfill_manager.store.base import Condition
from backfill_manager.store.delta_rs import leader, upsert
from backfill_manager.store.delta_rs.compaction import COMPACT_AFTER, CompactionTarget, Compactor
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import LEADER_APP_ID, LED_TABLES, arrow_schema

TIMEOUT_S = 120.0


class LateClock(SystemClock):
    """The machine's clock, put forward by hand."""

    ahead = timedelta()

    def now(self) -> Any:
        return super().now() + self.ahead


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    return store


def items(n: int, first_seq: int = 1, backfill_id: str = "b") -> pa.Table:
    columns: dict[str, Any] = {
        "backfill_id": pa.repeat(pa.scalar(backfill_id), n),
        "ordinal": pa.array(range(1, n + 1), pa.int64()),
        "state": pa.repeat(pa.scalar("pending"), n),
        "run_seq": pa.array(range(first_seq, first_seq + n), pa.int64()),
        "partition_key": pa.array((f"{k % 977:x}/{k * 7919:x}" for k in range(n)), pa.string()),
    }
    schema = arrow_schema(BackfillItem)
    empty = {field.name: pa.nulls(n, field.type) for field in schema}
    return pa.table({name: columns.get(name, empty[name]) for name in schema.names}, schema=schema)


def test_every_table_leaders_write_knows_the_term(state: DeltaRsStore) -> None:
    takes_over(state)
    takes_over(state)
    assert {state.tables.open(name).transaction_version(LEADER_APP_ID) for name in (*LED_TABLES, "manager")} == {2}
    assert state.tables.open("request").transaction_version(LEADER_APP_ID) is None


def test_of_many_candidates_for_one_term_one_leads(state: DeltaRsStore) -> None:
    at_once = threading.Barrier(6)

    def candidate(n: int) -> str | None:
        mine = DeltaRsStore(state.root)
        at_once.wait()
        try:
            return mine.lead(manager(1, host=f"host{n}")).row.host
        except LostLease:
            return None

    with ThreadPoolExecutor(6) as threads:
        winners = [host for host in threads.map(candidate, range(6)) if host]
    lease = state.lease()
    assert lease is not None and winners == [lease.host]
    assert state.count("manager", []) == {(): 1}


def test_one_that_begins_to_lead_while_another_looks_is_no_broken_import(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = DeltaRsStore(state.root)
    was_led = mine.tables.was_led

    def another_leads_first() -> bool:
        takes_over(state)
        return was_led()

    monkeypatch.setattr(mine.tables, "was_led", another_leads_first)
    with pytest.raises(LostLease):
        mine.lead(manager(1))


def test_a_take_over_in_the_middle_of_anothers_ticks_stops_it_for_good(state: DeltaRsStore) -> None:
    old = takes_over(state)
    committed: list[int] = []
    busy, lost = threading.Event(), threading.Event()

    def tick_until_lost() -> None:
        seq = 0
        try:
            while True:
                seq = old.next_seq()
                old.commit(changes(task("d", seq), run("d", seq)))
                committed.append(seq)
                busy.set()
        except LostLease:
            lost.set()

    worker = threading.Thread(target=tick_until_lost)
    worker.start()
    assert busy.wait(TIMEOUT_S)
    new = takes_over(DeltaRsStore(state.root))
    assert lost.wait(TIMEOUT_S)
    worker.join()
    runs = {row.run_seq for row in state.read(DagRun)}
    # Its last tick may have been whole but for the telling.
    assert runs >= set(committed) and len(runs - set(committed)) <= 1
    assert {row.run_seq for row in state.read(TaskInstance)} == runs
    assert new.next_seq() > max(runs)
    new.commit(changes(run("d", max(runs) + 1)))


def test_a_manager_that_slept_until_the_log_was_cleaned_is_still_refused(state: DeltaRsStore) -> None:
    clock = LateClock()
    sleeper = takes_over(DeltaRsStore(state.root, clock=clock))
    awake = takes_over(state)
    for seq in range(1, 4):
        awake.commit(changes(run("d", seq)))
    table = DeltaTable(state.tables.location("dag_run"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    table.cleanup_metadata()
    assert len(list(Path(state.tables.location("dag_run"), "_delta_log").glob("*.json"))) == 1
    clock.ahead = timedelta(hours=1)
    with pytest.raises(LostLease):
        sleeper.commit(changes(run("d", 99)))
    assert {row.run_seq for row in state.read(DagRun)} == {1, 2, 3}


def test_a_leader_that_is_idle_for_long_and_alone_goes_on(state: DeltaRsStore) -> None:
    clock = LateClock()
    lead = takes_over(DeltaRsStore(state.root, clock=clock))
    clock.ahead = timedelta(hours=1)
    lead.commit(changes(run("d", 1)))
    lead.heartbeat(AT)
    assert state.count("dag_run", []) == {(): 1}


LOST_ANSWERS = [CommitFailedError("the version is there already"), OSError("connection closed"), Exception("store")]


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, error: Exception, after: Callable[[DeltaTable], None]) -> None:
    """The next commit arrives, and its writer gets `error`, and its handle stays where it was."""
    lost = []

    def write(handle: DeltaTable, rows: Any, **options: Any) -> None:
        if lost:
            write_deltalake(handle, rows, **options)
            return
        lost.append(handle.table_uri)
        other = DeltaTable(handle.table_uri)
        write_deltalake(other, rows, **options)
        after(other)
        raise error

    for module in (leader, upsert):
        monkeypatch.setattr(module, "write_deltalake", write)


@pytest.mark.parametrize("error", LOST_ANSWERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("exists", [False, True], ids=["append", "update"])
def test_a_commit_that_arrived_without_an_answer_is_no_lost_lease(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch, error: Exception, exists: bool
) -> None:
    lead = takes_over(state)
    if exists:
        lead.commit(changes(run("d", 1)))
    lose_the_answer(monkeypatch, error, lambda _: None)
    lead.commit(changes(run("d", 1, "success")))
    lead.commit(changes(run("d", 2)))
    lead.heartbeat(AT)
    runs = state.read(DagRun, order_by=["run_seq"])
    assert [(row.run_seq, row.state) for row in runs] == [(1, "success"), (2, "running")]


def test_a_commit_of_others_in_its_place_is_a_lost_lease(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lead = takes_over(state)
    lose_the_answer(monkeypatch, LOST_ANSWERS[0], lambda _: takes_over(DeltaRsStore(state.root)) and None)
    with pytest.raises(LostLease):
        lead.commit(changes(run("d", 1)))
    with pytest.raises(LostLease):
        lead.heartbeat(AT)


def test_an_optimize_of_others_right_after_it_is_a_lost_lease(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = takes_over(state)
    for seq in (1, 2, 3):
        lead.commit(changes(run("d", seq)))
    term = CommitProperties(max_commit_retries=0)
    lose_the_answer(monkeypatch, LOST_ANSWERS[0], lambda other: other.optimize.compact(commit_properties=term) and None)
    with pytest.raises(LostLease):
        lead.commit(changes(run("d", 9)))


def test_a_commit_of_which_nothing_could_be_seen_is_looked_for_before_the_next(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = takes_over(state)
    lose_the_answer(monkeypatch, LOST_ANSWERS[1], lambda _: None)
    with monkeypatch.context() as away:
        away.setattr(state.tables, "open", lambda table: (_ for _ in ()).throw(StateUnavailable(f"{table} is away")))
        with pytest.raises(StateError):
            lead.commit(changes(run("d", 1, "success")))
    lead.commit(changes(run("d", 2)))
    assert [row.run_seq for row in state.read(DagRun, order_by=["run_seq"])] == [1, 2]


def test_a_compaction_that_fails_is_put_off_and_ends_nobody(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def breaks_off(compactor: Compactor, target: CompactionTarget, thoroughly: bool = False) -> int:
        if target.table != DagRun.TABLE:
            return 1
        tried.append(thoroughly)
        target.handle.vacuum(dry_run=False, full=True, **target.commit)
        raise OSError("a file can't be deleted")

    lead = takes_over(state)
    for seq in range(1, COMPACT_AFTER + 1):
        lead.commit(changes(run("d", seq)))
    monkeypatch.setattr(Compactor, "compact", breaks_off)
    for seq in (101, 102, 103):
        assert DagRun.TABLE not in lead.compact()
        lead.commit(changes(run("d", seq)))
    assert tried == [False], "not in every tick"
    assert "table dag_run is not compacted" in caplog.text and "can't be deleted" in caplog.text
    with pytest.raises(StateError, match="can't be deleted"):
        lead.compact(everywhere=True)
    lead.commit(changes(run("d", 104)))


def test_taking_over_reads_no_rows_of_runs(state: DeltaRsStore) -> None:
    """Over a slow store that would take longer than a lease lasts."""
    takes_over(state).commit(changes(run("d", 7), task("d", 7)))
    for table in (DagRun.TABLE, TaskInstance.TABLE):
        for file in Path(state.tables.location(table)).glob("*.parquet"):
            file.unlink()
    assert takes_over(state).next_seq() == 8


def test_who_needs_long_to_take_over_keeps_the_lease_meanwhile(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = leader._fenced

    def slow(tables: Any, table: str, term: int) -> DeltaTable:
        if table == LED_TABLES[0]:
            wait_for(lambda: (lease := state.lease()) is not None and lease.heartbeat_at > lease.started_at)
        return fence(tables, table, term)

    monkeypatch.setattr(leader, "_fenced", slow)
    monkeypatch.setattr(leader, "TAKE_OVER_BEAT_S", 0.05)
    row = manager(1)
    lead = DeltaRsStore(state.root).lead(row)
    assert lead.row.heartbeat_at > row.heartbeat_at
    lead.commit(changes(run("d", 1)))


@pytest.mark.parametrize("error", LOST_ANSWERS, ids=lambda error: type(error).__name__)
def test_a_term_whose_answer_was_lost_is_taken(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    lose_the_answer(monkeypatch, error, lambda _: None)
    lead = takes_over(state)
    lead.commit(changes(run("d", 1)))
    lead.heartbeat(AT)
    lease = state.lease()
    assert lease == lead.row and state.count("manager", []) == {(): 1}


def test_the_heartbeat_of_an_overtaken_leader_is_refused_even_as_its_first_sign(state: DeltaRsStore) -> None:
    old = takes_over(state)
    new = takes_over(state)
    with pytest.raises(LostLease):
        old.heartbeat(AT + timedelta(hours=1))
    assert state.read(Manager, order_by=["term"]) == [old.row, new.row]


def test_an_overtaken_leader_tidies_nothing_away(state: DeltaRsStore) -> None:
    old = takes_over(state)
    for seq in range(1, 110):
        old.commit(changes(run("d", seq)))
    new = takes_over(state)
    new.commit(changes(run("d", 110)))
    with pytest.raises(LostLease):
        old.compact()
    assert state.count("dag_run", []) == {(): 110}
    new.commit(changes(run("d", 111)))


def test_two_threads_may_use_the_lease_and_the_tables_at_once(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    beats, done = 20, threading.Event()

    def beat() -> None:
        for n in range(beats):
            lead.heartbeat(AT + timedelta(seconds=n))
        done.set()

    threading.Thread(target=beat).start()
    for seq in range(1, 31):
        lead.commit(changes(run("d", seq)))
        lead.compact()
    assert done.wait(TIMEOUT_S)
    lease = state.lease()
    assert lease is not None and lease.heartbeat_at == AT + timedelta(seconds=beats - 1)


def test_reading_goes_on_in_many_threads_while_the_leader_commits(state: DeltaRsStore) -> None:
    lead, stop = takes_over(state), threading.Event()
    lead.commit(changes(*(task("d", 1, f"t{n}") for n in range(10))))

    def read() -> int:
        rounds = 0
        while not stop.is_set() or rounds == 0:
            states = state.count("task_instance", ["state"])  # a tick is all or nothing: ten of one state
            assert sum(states.values()) == 10 and len(states) == 1, states
            rounds += 1
        return rounds

    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read) for _ in range(4)]
        for n in range(30):
            lead.commit(changes(*(task("d", 1, f"t{k}", "scheduled" if n % 2 else "none") for k in range(10))))
        stop.set()
        assert min(reader.result(TIMEOUT_S) for reader in readers) >= 1


def test_a_commit_in_a_big_table_rewrites_the_files_it_must_and_no_others(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for part in range(20):
        lead.append_items(items(10_000, first_seq=1 + part * 10_000, backfill_id=f"b{part}"))
    hot = [item("b19", 9_990 + n, 199_990 + n, "running", partition_key="x") for n in range(10)]
    assert rows_rewritten(lead, BackfillItem, hot) <= 20_000
    old = [item("b3", 1 + n, 30_001 + n, "running") for n in range(10)]
    assert rows_rewritten(lead, BackfillItem, old) <= 20_000
    assert rows_rewritten(lead, BackfillItem, [hot[0], old[0]]) <= 40_000
    assert state.count("backfill_item", ["state"]) == {("pending",): 199_980, ("running",): 20}


def test_rows_far_apart_are_changed_without_the_files_between(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for part in range(20):
        lead.append_items(items(10_000, first_seq=1 + part * 10_000, backfill_id=f"b{part}"))
    far = [item(f"b{part}", 5_000, 5_000 + part * 10_000, "running") for part in range(0, 20, 4)]
    apart = [item("b2", 1 + n * 400, 20_001 + n * 400, "running") for n in range(20)]
    assert rows_rewritten(lead, BackfillItem, [*far, *apart]) <= 60_000
    assert state.count("backfill_item", ["state"]) == {("pending",): 199_975, ("running",): 25}


def test_a_commit_leaves_other_rows_of_the_same_number_alone(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    before = [task("d", seq, f"t{n}") for seq in (1, 2, 3) for n in range(4)]
    lead.commit(changes(*before, task("other", 2)))
    ended = task("d", 2, "t1", "success", ended_at=AT, error="half a character \ud800", result_json='{"a": "\u00e9"}')
    lead.commit(changes(ended, task("d", 2, "new"), task("d", 4)))
    there = {row.key: row for row in state.read(TaskInstance)}
    expected = {row.key: row for row in [*before, task("other", 2), task("d", 2, "new"), task("d", 4)]}
    expected[ended.key] = ended.evolve(error="half a character ?")
    assert there == expected
    schema = state.tables.open("task_instance").schema()
    assert [field.nullable for field in schema.fields if field.name in ("run_id", "error")] == [False, True]


def test_a_big_plan_is_cut_into_files_that_a_tick_can_afford_to_rewrite(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    lead.append_items(items(300_000))
    assert rows_rewritten(lead, BackfillItem, [item("b", 1, 1, "running"), item("b", 2, 2, "running")]) < 150_000
    assert state.count("backfill_item", []) == {(): 300_000}


def test_answers_are_counted_per_request_not_per_row(state: DeltaRsStore) -> None:
    submitted = request("q1")
    for _ in range(3):
        state.append_request(submitted)
    assert state.unanswered() == [submitted]
    assert state.count("request", [], [Condition("request_id", "=", "q1")]) == {(): 3}
    assert state.read(Request, limit=1) == [submitted]
