"""Histories on storage that fails, is slow, half-writes, is full, or is lost after a commit end as a plain model says.

Sixty always, a thousand with `--slow`; of these three and twenty on real Delta tables.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.faulty_store import OF_WRITES, Faults, FaultyDeltaStore, FaultyManager, FaultyMemoryStore
from support.random_history import Calm

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import StateError
from backfill_manager.model.records import Backfill
from backfill_manager.testing import InMemoryManager, dag_spec, days

IN_MEMORY = [*range(57), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(57, 980))]
IN_DELTA = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 20))]


class OnFaultyStorage(Calm):
    def __init__(self, seed: int, rate: float, folder: Path | None = None) -> None:
        self._rate, self._folder = rate, folder
        small: dict[str, Any] = {"n_dags": 1, "lasts": timedelta()} if folder else {}
        super().__init__(seed, fragile=0.1, **small)

    def make_manager(self, *specs: DagSpec, **how: Any) -> InMemoryManager:
        clock = how["clock"]
        self.faults = FaultyManager.faults = Faults(self.seed, clock, self._rate)
        memory = FaultyMemoryStore(self.faults)
        return FaultyManager(
            *specs, **how, store=FaultyDeltaStore(self._folder, self.faults, clock) if self._folder else memory
        )

    def tell(self, operations: int) -> Counter[str]:
        try:
            self.run(operations)
        except Exception as error:
            last = "\n".join(self.story[-25:])
            raise AssertionError(f"seed {self.seed}, {dict(self.faults.seen)}: {error}\n{last}") from error
        return self.faults.seen


@pytest.mark.parametrize("seed", IN_MEMORY)
def test_a_history_on_storage_that_fails_ends_as_a_plain_model_predicts(seed: int) -> None:
    assert OnFaultyStorage(seed, rate=0.02).tell(30).total() > 0


@pytest.mark.parametrize("seed", IN_DELTA)
def test_so_does_one_on_real_delta_tables(seed: int, tmp_path: Path) -> None:
    OnFaultyStorage(seed, rate=0.02, folder=tmp_path / "state").tell(2)  # so short that a few meet no fault


def test_every_kind_of_fault_comes_in_a_few_histories() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1000, 1003):
        seen += OnFaultyStorage(seed, rate=0.03).tell(30)
    assert set(seen) == set(OF_WRITES)


def test_a_request_is_not_refused_because_storage_failed() -> None:
    """Its handler reads the backfill that it names; the manager ends, and the next one answers."""
    manager = InMemoryManager(dag_spec("d", "t"))
    ended = manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.ask("backfill.pause", backfill_id=ended)
    read = manager.store.read

    def failing(record: type[Any], *args: Any, **how: Any) -> Any:
        if record is Backfill:
            raise StateError("Table backfill can't be read: Connection timed out")
        return read(record, *args, **how)

    manager.store.read = failing  # type: ignore[method-assign]
    with pytest.raises(StateError):
        manager.tick()
    assert not [row for row in manager.store.rows("response") if row.kind == "backfill.pause"]  # type: ignore[attr-defined]

    manager.store.read = read  # type: ignore[method-assign]
    manager.crash()
    manager.drain()
    (answer,) = manager.store.rows("response")
    assert "is success already" in answer.message  # type: ignore[attr-defined]
