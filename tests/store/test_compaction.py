"""After many commits the folders hold few files, and a tick still rewrites little."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from support.state_changes import AT, changes, request, rows_rewritten, run, takes_over, task

from backfill_manager.model.records import TABLES, Response, TaskInstance, TaskTry
from backfill_manager.store.delta_rs import append_turn, compaction, leader
from backfill_manager.store.delta_rs.compaction import (
    BIG_ROWS,
    COMPACT_AFTER,
    MAX_ROWS_REWRITTEN,
    MAX_SMALL_FILES,
    SLICE_ROWS,
    VACUUM_AFTER,
    Compactor,
    Span,
    what_to_rewrite,
)
from backfill_manager.store.delta_rs.leader import DeltaRsLeader
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import LED_TABLES
from backfill_manager.store.whole_tables import batch_of


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    """A state that keeps nothing of the past, so that what is done with it shows at once."""
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    for name in store.locations():
        zero = dict.fromkeys(("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 0 seconds")
        DeltaTable(store.tables.location(name)).alter.set_table_properties(zero)
    return store


def files(store: DeltaRsStore, table: str) -> tuple[int, int]:
    """Data files and log entries on disk."""
    place = Path(store.tables.location(table))
    return len(list(place.glob("*.parquet"))), len(list(place.glob("_delta_log/*.json")))


def test_hundreds_of_ticks_leave_a_handful_of_files(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    ticks = VACUUM_AFTER + COMPACT_AFTER + 5
    for seq in range(1, ticks + 1):
        ended = task("d", seq - 1, state="success", ended_at=AT + timedelta(seconds=seq)) if seq > 1 else task("d", 1)
        tried = TaskTry("d", f"run{seq}", "t", 1, 1, "success", seq, lead.term)
        lead.commit(changes(ended, task("d", seq), tried))
        lead.compact()
    for table in ("task_instance", "task_try"):
        on_disk, log = files(state, table)
        assert on_disk <= VACUUM_AFTER and log <= VACUUM_AFTER + 3, (table, on_disk, log)
        assert len(state.tables.open(table).file_uris()) <= MAX_SMALL_FILES + COMPACT_AFTER
    assert state.count("task_instance", ["state"]) == {("success",): ticks - 1, ("none",): 1}
    assert state.count("task_try", []) == {(): ticks}
    lead.commit(changes(task("d", ticks + 1)))
    successor = takes_over(DeltaRsStore(state.root))
    assert successor.next_seq() == ticks + 2


def test_a_tick_copies_as_little_after_a_long_time_as_at_the_beginning(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    assert isinstance(lead, DeltaRsLeader)
    table, ticks, per_tick = lead._writer.handles["task_instance"], 80, 400
    copied = []
    for tick in range(ticks):
        first = 1 + tick * per_tick
        rows = [task("d", seq) for seq in range(first, first + per_tick)]
        rows += [task("d", seq, state="success") for seq in range(max(1, first - per_tick), first)]
        if tick > 2:  # and a run of long ago that is still at work
            rows.append(task("d", 7, state="running" if tick % 2 else "none"))
        copied.append(rows_rewritten(lead, TaskInstance, rows) - sum(row.run_seq < first for row in rows))
        lead.compact()
    assert state.count("task_instance", []) == {(): ticks * per_tick}
    assert max(copied) <= COMPACT_AFTER * per_tick + 2 * SLICE_ROWS, copied
    actions = table.get_add_actions(flatten=True)
    widths = [
        high - low
        for low, high in zip(actions["min.run_seq"].to_pylist(), actions["max.run_seq"].to_pylist(), strict=True)
    ]
    assert len(widths) >= 3 and sum(width < 2 * SLICE_ROWS for width in widths) >= len(widths) - 1, widths


@pytest.mark.parametrize("rows_per_file", [3_000, 4_000, 6_000])
def test_no_two_slices_have_run_seqs_in_common(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch, rows_per_file: int
) -> None:
    monkeypatch.setattr(compaction, "SLICE_ROWS", rows_per_file)
    monkeypatch.setattr(compaction, "BIG_ROWS", rows_per_file)
    lead = takes_over(state)
    for first in range(1, 40_000, 1_300):
        lead.commit(changes(*(task("d", seq) for seq in range(first, first + 1_300))))
    lead.compact(everywhere=True)
    actions = state.tables.open("task_instance").get_add_actions(flatten=True)
    spans = sorted(zip(actions["min.run_seq"].to_pylist(), actions["max.run_seq"].to_pylist(), strict=True))
    assert len(spans) > 5 and all(high < low for (_, high), (low, _) in pairwise(spans)), spans


def test_requests_are_tidied_while_clients_may_ask(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for n in range(COMPACT_AFTER + 1):
        state.append_request(request(f"q{n}"))
    assert lead.compact()["request"] == 1
    state.append_request(request("one more"))
    assert len(state.unanswered()) == COMPACT_AFTER + 2


def test_a_large_table_without_a_span_is_rewritten_as_rarely_as_it_is_large(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is rewritten at once: every few commits, each would cost the more the longer the history."""
    monkeypatch.setattr(compaction, "COMPACT_AFTER", 4)

    def responses(first: int, number: int, size: int) -> list[Response]:
        payloads = (base64.b64encode(os.urandom(size)).decode() for _ in range(number))
        return [
            Response(f"{first + n}", "backfill.dry_run", "accepted", None, "", payload, AT, 1)
            for n, payload in enumerate(payloads)
        ]

    def large(table: str) -> Iterator[pa.RecordBatch]:
        if table == Response.TABLE:
            yield from (batch_of(table, responses(first, 1_000, 1_900)) for first in range(0, 16_000, 1_000))

    state.fill(large)
    lead = takes_over(state)
    for n in range(30):
        lead.commit(changes(*responses(20_000 + n, 1, 10)))
        lead.compact()
    log = state.tables.open(Response.TABLE).history()
    rewrites = [entry for entry in log if entry.get("operationParameters", {}).get("mode") == "Overwrite"]
    assert len(state.tables.open(Response.TABLE).file_uris()) > MAX_SMALL_FILES
    assert 1 <= len(rewrites) <= 3
    assert state.count(Response.TABLE, []) == {(): 16_030}


def test_a_table_without_a_span_is_never_in_memory_whole(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each part the rows are in order, so that a row is found in one file of each."""
    monkeypatch.setattr(compaction, "PART_BYTES", 200_000)
    pulled: list[int] = []
    ids = [f"{n * 7919 % 10_000:05}" for n in range(10_000)]

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, len(ids), 100):
            pulled.append(first)
            yield batch_of(Response.TABLE, [answer(one) for one in ids[first : first + 100]])

    def answer(request_id: str) -> Response:
        return Response(request_id, "backfill.dry_run", "accepted", None, "", "x" * 100, AT, 1)

    first = next(compaction._parts_in_order(batches(), Response.KEY))
    assert 1 < len(pulled) < 30
    assert (part := first["request_id"].to_pylist()) == sorted(ids[: len(part)])

    state.fill(lambda table: batches() if table == Response.TABLE else iter(()))
    lead = takes_over(state)
    for n in range(COMPACT_AFTER + 1):
        lead.commit(changes(answer(f"{20_000 + n}")))
    lead.compact()
    assert len(state.tables.open(Response.TABLE).file_uris()) <= 2
    stored = state.read_arrow(Response.TABLE, ["request_id", "payload_json"])
    assert sorted(stored["request_id"].to_pylist()) == [
        *sorted(ids),
        *(f"{20_000 + n}" for n in range(COMPACT_AFTER + 1)),
    ]
    assert set(stored["payload_json"].to_pylist()) == {"x" * 100}


def entries_of(store: DeltaRsStore, table: str) -> set[str]:
    return {entry.name for entry in Path(store.tables.location(table), "_delta_log").glob("*.json")}


def test_a_client_leaves_the_log_to_the_leader(state: DeltaRsStore) -> None:
    """Of two processes that clean up a log at the same time one fails, and its commit has landed by then."""
    for n in range(VACUUM_AFTER // 2):
        state.append_request(request(f"q{n}"))
    state.tables.open("request").create_checkpoint()
    expired = entries_of(state, "request")
    for n in range(VACUUM_AFTER // 2, 2 * VACUUM_AFTER):
        state.append_request(request(f"q{n}"))
    assert expired <= entries_of(state, "request")
    takes_over(state).compact()
    assert not expired & entries_of(state, "request")


def test_some_that_shorten_a_log_at_the_same_time_all_go_on(state: DeltaRsStore) -> None:
    """As managers of releases before did, and a manager that was overtaken may."""
    for n in range(2 * VACUUM_AFTER):
        state.append_request(request(f"q{n}"))
    state.tables.open("request").create_checkpoint()
    expired = entries_of(state, "request")
    with ThreadPoolExecutor(4) as threads:
        handles = [state.tables.open("request") for _ in range(4)]
        assert list(threads.map(lambda handle: Compactor()._shorten_log("request", handle), handles)) == [None] * 4
    assert len(state.unanswered()) == 2 * VACUUM_AFTER, "whatever is left of the log"
    Compactor()._shorten_log("request", state.tables.open("request"))
    assert len(expired & entries_of(state, "request")) <= 1, "the last version, at most"


def test_the_log_of_requests_is_shortened_where_clients_are_always_quicker(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for n in range(VACUUM_AFTER + 1):
        state.append_request(request(f"q{n}"))
    handle = state.tables.open("request")
    state.append_request(request("quicker"))
    compactor = lead._writer.compactor  # type: ignore[attr-defined]
    assert compactor.compact_shared("request", handle) > 1, "not compacted"
    assert not compactor.is_due("request", state.tables.open("request")), "and not again in each tick"
    assert [*Path(state.root, "request", "_delta_log").glob("*.checkpoint.parquet")]
    assert len(state.unanswered()) == VACUUM_AFTER + 2


def test_a_client_that_appends_lets_the_compaction_of_requests_have_its_turn(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = takes_over(state)
    for n in range(COMPACT_AFTER + 1):
        state.append_request(request(f"q{n}"))
    waits, sleep = threading.Event(), time.sleep

    def note(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(append_turn.time, "sleep", note)
    monkeypatch.setattr(leader, "MAX_WAIT_FOR_TURN_S", 60.0)
    with ThreadPoolExecutor(1) as thread:
        with append_turn.turn_to_append(state.tables.location("request")):
            compacted = thread.submit(lead.compact)
            assert waits.wait(60) and not compacted.done()
        assert compacted.result(60)["request"] == 1


def test_the_lease_is_tidied_too(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for n in range(COMPACT_AFTER + 1):
        lead.heartbeat(AT + timedelta(seconds=n))
    assert lead.compact() == {"manager": 1}
    lead.heartbeat(AT + timedelta(hours=1))
    assert state.lease() == lead.row


def test_every_table_that_is_led_can_be_tidied(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    lead.commit(changes(run("d", 1), task("d", 1)))
    compactor = lead._writer.compactor  # type: ignore[attr-defined]
    for table in LED_TABLES:
        compactor._compacted[table] = compactor._vacuumed[table] = -VACUUM_AFTER  # type: ignore[attr-defined]
    assert set(lead.compact()) >= set(LED_TABLES)
    assert [finding.message for finding in state.check() if not finding.ok] == []


def test_asked_to_everything_is_tidied_down_to_a_file_or_two(state: DeltaRsStore) -> None:
    lead = takes_over(state)
    for seq in range(1, 8):
        lead.commit(changes(run("d", seq), task("d", seq)))
    tables = ("dag_run", "task_instance")
    assert min(len(state.tables.open(table).file_uris()) for table in tables) > 2
    before = [state.read(TABLES[table], order_by=["run_seq"]) for table in tables]
    found = lead.compact(everywhere=True)
    assert set(found) == set(TABLES)
    assert [found[table] for table in tables] == [1, 1]
    assert [files(state, table)[0] for table in tables] == [1, 1]  # what was rewritten is gone
    assert [state.read(TABLES[table], order_by=["run_seq"]) for table in tables] == before
    lead.commit(changes(run("d", 9)))  # and on it goes
    assert state.count("dag_run", []) == {(): 8}


def test_what_is_rewritten_is_still_text_for_pyarrow(state: DeltaRsStore) -> None:
    """Else pandas can't read only some of the rows."""
    lead = takes_over(state)
    for seq in range(1, 8):
        lead.commit(changes(run("d", seq), task("d", seq)))
    lead.compact(everywhere=True)
    third = run("d", 3).run_id
    for table in ("dag_run", "task_instance"):
        assert len(state.tables.open(table).to_pandas(filters=[("run_id", "=", third)])) == 1


@given(
    sizes=st.lists(st.sampled_from([1, 100, SLICE_ROWS, 2 * SLICE_ROWS, BIG_ROWS, 3 * BIG_ROWS]), max_size=60),
    hot=st.one_of(st.none(), st.integers(0, 1_000_000)),
)
def test_what_is_rewritten_is_affordable_and_leaves_the_big_files_alone(sizes: list[int], hot: int | None) -> None:
    low, spans = 1, []
    for size in sizes:
        spans.append(Span(low, low + size - 1, size))
        low += size
    work = what_to_rewrite(spans, hot)
    if work is None:
        return
    touched = [span for span in spans if span.high >= work.begin and (work.end is None or span.low < work.end)]
    assert sum(span.rows for span in touched) <= MAX_ROWS_REWRITTEN
    assert len(touched) > MAX_SMALL_FILES or any(hot is not None and span.low < hot <= span.high for span in touched)
    cool = [span for span in touched if hot is None or span.high < hot]
    assert all(span.rows < BIG_ROWS for span in cool)
    if work.end is not None:
        assert touched == cool  # slices become big files only where no tick works
