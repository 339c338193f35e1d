"""What a leader remembers of the rows that it wrote last is what the tables hold, whatever else it does to them in between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.state_changes import AT, backfill, changes, item, run, takes_over, task

from backfill_manager.errors import StateError
from backfill_manager.model.records import BackfillItem, DagRun, Notification, Record, TaskInstance
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_rs import leader, upsert
from backfill_manager.store.delta_rs.leader import DeltaRsLeader
from backfill_manager.store.delta_rs.store import DeltaRsStore

STEPS = 60
Model = dict[tuple[object, ...], Record]


@pytest.fixture
def state(tmp_path: Path) -> DeltaRsStore:
    store = DeltaRsStore(str(tmp_path / "state"))
    store.init()
    return store


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A table for each time that rows around changed ones were read."""
    seen, read = list[str](), upsert._read

    def counted(handle: DeltaTable, record: type[Record], spans: upsert.Spans) -> upsert._Known:
        seen.append(record.TABLE)
        return read(handle, record, spans)

    monkeypatch.setattr(upsert, "_read", counted)
    return seen


def test_ticks_that_work_on_read_the_table_once(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lead, reads = takes_over(state), reads_of(monkeypatch)
    for seq in range(1, 31):
        lead.commit(changes(run("d", seq), *([run("d", seq - 1, "success")] if seq > 1 else [])))
    assert reads == [DagRun.TABLE]
    states = [row.state for row in state.read(DagRun, order_by=["run_seq"])]
    assert states == ["success"] * 29 + ["running"]


def test_ticks_of_runs_with_many_tasks_do_not_read_them_again_and_again(
    state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "MAX_KEPT", 200)
    many = [task("d", seq, f"t{n}") for seq in range(1, 61) for n in range(10)]
    takes_over(state).commit(changes(run("d", 60), *many))
    lead, reads = takes_over(state), reads_of(monkeypatch)
    for seq in range(1, 11):
        lead.commit(changes(*(one.evolve(state="success") for one in many if one.run_seq == seq)))
    assert len(reads) <= 4
    assert state.count(TaskInstance.TABLE, ["state"]) == {("success",): 100, ("none",): 500}


def test_large_rows_are_not_kept(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert, "MAX_KEPT_BYTES", 100_000)
    lead, reads = takes_over(state), reads_of(monkeypatch)
    for seq in range(1, 6):
        lead.commit(changes(task("d", seq, result_json="0" * 60_000)))
    assert len(reads) == 3, "two of them are too much"
    assert state.count(TaskInstance.TABLE, [])[()] == 5


def test_rows_that_were_not_written_are_not_known(state: DeltaRsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    lead = takes_over(state)
    lead.commit(changes(run("d", 1)))

    def fails(*_: object, **__: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched, pytest.raises(StateError, match="no space left"):
        patched.setattr(upsert, "write_deltalake", fails)
        lead.commit(changes(run("d", 2)))
    lead.commit(changes(run("d", 1, "success"), run("d", 3)))
    assert [(row.run_seq, row.state) for row in state.read(DagRun, order_by=["run_seq"])] == [
        (1, "success"),
        (3, "running"),
    ]


@pytest.mark.parametrize("last", [[2, 300], [202, 208]])
def test_rows_beside_those_that_are_known_are_read(state: DeltaRsStore, last: list[int]) -> None:
    lead = takes_over(state)
    beside = [task("other", seq) for seq in (299, 300, 207)]
    lead.commit(changes(*beside))
    near = [task("d", seq) for seq in (1, 2)]
    lead.commit(changes(*near))  # known from now on: 1 to 202
    end = [task("d", seq, state="running") for seq in last]
    lead.commit(changes(*end))
    expected = {row.key: row for row in [*beside, *near, *end]}
    assert {row.key: row for row in state.read(TaskInstance)} == expected


@pytest.mark.parametrize("by", ["merge", "overwrite"])
def test_two_messages_of_a_deadline_that_has_passed_twice_are_both_kept(
    state: DeltaRsStore, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older releases gave them one key, and each a `run_seq`: of the first deadline, and after `expected_by` was lengthened."""

    def late(day: str, seq: int, now: str = "waiting") -> Notification:
        return Notification(f"late/d/{day}", "ops", "late", now, "d", "late", "...", seq, AT)

    if by == "merge":
        monkeypatch.setattr(leader, "narrow_spans", lambda _: None)
    lead = takes_over(state)
    lead.commit(changes(late("w", 10), late("x", 11), late("y", 12)))
    lead.commit(changes(late("w", 10, "sent"), late("x", 11, "sent")))
    lead.commit(changes(late("x", 14)))  # again
    lead.commit(changes(late("w", 10, "failed"), late("y", 12, "sent")))
    lead = takes_over(state)
    lead.commit(changes(late("v", 9)))
    lead.commit(changes(late("y", 12, "failed"), late("z", 15)))
    found = [
        (row.run_seq, row.notification_id[-1], row.state) for row in state.read(Notification, order_by=["run_seq"])
    ]
    assert found == [
        (9, "v", "waiting"), (10, "w", "failed"), (11, "x", "sent"), (12, "y", "failed"), (14, "x", "waiting"),
        (15, "z", "waiting"),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_leave_what_a_dict_holds(state: DeltaRsStore, seed: int) -> None:
    """Commits close together, far apart and at the same place, deletes, moves of items, compactions, take-overs."""
    drawn, model, lead = random.Random(seed), Model(), takes_over(state)
    lead.commit(changes(backfill("b", 10_000)))  # else its items are swept up by who takes over
    for step in range(STEPS):
        match drawn.choice(["commit"] * 6 + ["delete", "move", "compact", "take over"]):
            case "commit":
                _commit(lead, model, drawn, step)
            case "delete":
                low = drawn.randrange(15)
                lead.delete(DagRun.TABLE, [Condition("run_seq", ">=", low), Condition("run_seq", "<", low + 5)])
                for key in [
                    key for key, row in model.items() if isinstance(row, DagRun) and low <= row.run_seq < low + 5
                ]:
                    del model[key]
            case "move":
                lead.move_items("b", "pending", "cancelled", f"in step {step}")
                for key, row in model.items():
                    if isinstance(row, BackfillItem) and row.state == "pending":
                        model[key] = row.evolve(state="cancelled", reason=f"in step {step}")
            case "compact":
                assert isinstance(lead, DeltaRsLeader)
                lead.compact(everywhere=True)
            case "take over":
                lead = takes_over(state)
        for record in (DagRun, BackfillItem):
            expected = {key: row for key, row in model.items() if isinstance(row, record)}
            assert {(record.TABLE, *row.key): row for row in state.read(record)} == expected, step
            assert state.count(record.TABLE, [])[()] == len(expected), "no row is there twice"


def _commit(lead: Leader, model: Model, drawn: random.Random, step: int) -> None:
    base = drawn.choice([0, 0, 3, 6, 9, step, 300])
    seqs = sorted(drawn.sample(range(base, base + 12), drawn.randrange(2, 6)))
    state = drawn.choice(["pending", "running", "success"])
    rows: list[Record] = [row for seq in seqs for row in (run("d", seq, state), item("b", seq, seq, state))]
    lead.commit(changes(*rows))
    model |= {(row.TABLE, *row.key): row for row in rows}
