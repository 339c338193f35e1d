"""After many commits the folders hold few files, and a tick still rewrites little."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from state_stories import AT, changes, request, run, takes_over, task

from backfill_manager.model.records import TaskInstance, TaskTry
from backfill_manager.store.delta_rs import DeltaRsStore
from backfill_manager.store.maintenance import BIG_ROWS, COMMITS, FEW_FILES, Span, tail
from backfill_manager.store.schema import LED_TABLES


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    """A state that keeps nothing of the past, so that what is done with it shows at once."""
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    for name in store.locations():
        zero = dict.fromkeys(("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 0 seconds")
        DeltaTable(store.tables.place(name)).alter.set_table_properties(zero)
    return store


def files(store: DeltaRsStore, table: str) -> tuple[int, int]:
    """Data files and log entries on disk."""
    place = Path(store.tables.place(table))
    return len(list(place.glob("*.parquet"))), len(list(place.glob("_delta_log/*.json")))


def test_hundreds_of_ticks_leave_a_handful_of_files(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    ticks = 5 * COMMITS // 2
    for seq in range(1, ticks + 1):
        ended = task("d", seq - 1, state="success", ended_at=AT + timedelta(seconds=seq)) if seq > 1 else task("d", 1)
        tried = TaskTry("d", f"run{seq}", "t", 1, 1, "success", seq, lead.term)
        lead.commit(changes(ended, task("d", seq), tried))
        if seq in (COMMITS // 2, 3 * COMMITS // 2):  # not due yet, and due
            lead.housekeep()
    before = state.read(TaskInstance, order_by=["run_seq"])
    left = lead.housekeep()
    assert set(left) == {"task_instance", "task_try"}  # the others had nothing to tidy
    for table, n in left.items():
        on_disk, log = files(state, table)
        assert n <= FEW_FILES + 3 and on_disk <= n + 1 and log <= 3, (table, n, on_disk, log)
    assert state.read(TaskInstance, order_by=["run_seq"]) == before
    assert state.count("task_try", []) == {(): ticks}
    assert lead.housekeep() == {}
    lead.commit(changes(task("d", ticks + 1)))
    successor = takes_over(DeltaRsStore(state.root))
    assert successor.next_seq() == ticks + 2


def test_requests_are_tidied_while_clients_may_ask(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for n in range(COMMITS + 1):
        state.ask(request(f"q{n}"))
    assert lead.housekeep()["request"] == 1
    state.ask(request("one more"))
    assert len(state.unanswered()) == COMMITS + 2


def test_the_lease_is_tidied_too(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for n in range(COMMITS + 1):
        lead.heartbeat(AT + timedelta(seconds=n))
    assert lead.housekeep() == {"manager": 1}
    lead.heartbeat(AT + timedelta(hours=1))
    assert state.lease() == lead.row


def test_every_table_that_is_led_can_be_tidied(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    lead.commit(changes(run("d", 1), task("d", 1)))
    for table in LED_TABLES:
        lead._housekeeping._tidied[table] = -COMMITS  # type: ignore[attr-defined]
    assert set(lead.housekeep()) >= set(LED_TABLES)
    assert [finding.message for finding in state.check() if not finding.ok] == []


@given(
    sizes=st.lists(st.sampled_from([1, 100, BIG_ROWS, 3 * BIG_ROWS]), max_size=40),
    hot=st.one_of(st.none(), st.integers(0, 2_000_000)),
)
def test_what_is_rewritten_is_cool_and_behind_the_big_files(sizes: list[int], hot: int | None) -> None:
    low, spans = 1, []
    for size in sizes:
        spans.append(Span(low, low + size - 1, size))
        low += size
    chosen = tail(spans, hot)
    if chosen is None:
        return
    begin, end = chosen
    assert end == hot
    touched = [span for span in spans if span.high >= begin and (end is None or span.low < end)]
    cool = [span for span in touched if end is None or span.high < end]
    assert len(cool) > FEW_FILES and all(span.rows < BIG_ROWS for span in cool)
