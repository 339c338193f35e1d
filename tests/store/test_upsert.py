"""What a leader remembers of the rows that it wrote last is what the tables hold, whatever else it does to them in between."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.state_changes import backfill, changes, item, run, takes_over

from backfill_manager.model.records import BackfillItem, DagRun, Record
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_rs import upsert
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
