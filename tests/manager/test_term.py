"""How a term ends, and with which exit code: a supervisor starts a manager again after 1, and not after 2."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from backfill_manager.errors import BackfillManagerError, StateLost, StateUnavailable
from backfill_manager.execution.spark.session import SparkProvider
from backfill_manager.manager import manager as composition
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.manager import Term
from backfill_manager.settings import Settings
from backfill_manager.testing import FakeClock, MemoryStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def term(clock: FakeClock) -> Term:
    store = MemoryStore()
    store.init()
    leader, settings = LeaderElector(store, clock, lease_s=15).run_once(), Settings()
    assert leader is not None
    return Term(settings, store, leader, SparkProvider(settings, None), clock, threading.Event())


def ends_by(error: BackfillManagerError, before: Any = lambda: None) -> type:
    """A manager whose run ends so."""

    class Ending:
        def __init__(self, _: Term) -> None: ...

        def run(self, *_: object, **__: object) -> None:
            before()
            raise error

    return Ending


def test_a_state_that_goes_away_is_no_wrong_input(term: Term, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "Manager", ends_by(StateUnavailable("Table dag_run can't be read: timed out")))
    with pytest.raises(StateLost, match=r"can't be read: timed out. This manager has ended") as ended:
        term.lead(threading.Event(), False)
    assert ended.value.exit_code == 1


def test_a_leader_that_stood_still_may_find_its_tables_gone(
    term: Term, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files that it knew of were vacuumed by the next leader, or its connections were closed meanwhile."""
    gone = StateUnavailable("Table dag_run can't be read: not found")
    monkeypatch.setattr(composition, "Manager", ends_by(gone, lambda: clock.advance(seconds=16)))
    assert term.lead(threading.Event(), False) == 1
    assert "stopping: the lease is lost" in capfd.readouterr().err
