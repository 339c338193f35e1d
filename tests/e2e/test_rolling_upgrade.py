"""A manager of the next release takes over from one of this release, in the middle of a backfill."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.manager_process import TIMEOUT_S, rows_in, wait_for
from support.next_release import VERSION, make_next_release
from support.steady import Steady

from backfill_manager import __version__
from backfill_manager.errors import StateError
from backfill_manager.model import states as s
from backfill_manager.model.records import SCHEMA_VERSION, Manager
from backfill_manager.store import open_store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.slow
def test_one_that_stands_by_goes_on_when_the_leader_of_this_release_is_stopped(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    story, release = Steady(root), make_next_release(root / "next", changes_state=False)
    leader = managers()
    story.begin(24)  # more than the leader ends before the other one has started
    story.when_done(1)
    managers(environ=release)
    wait_for(lambda: "standing by" in story.log(1))
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(TIMEOUT_S) == 0
    story.end()
    assert [row.version for row in story.store.read(Manager, order_by=["term"])] == [__version__, VERSION]


@pytest.mark.slow
def test_one_that_changes_the_state_ends_the_leader_of_this_release_and_goes_on(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    story, release = Steady(root), make_next_release(root / "next", changes_state=True)
    leader = managers()
    story.begin(8)
    story.when_done(1)
    successor = managers("--until-idle", environ=release)
    assert leader.wait(TIMEOUT_S) == 1, "it can't write the state any more"
    assert successor.wait(TIMEOUT_S) == 0, story.log(1)
    states = "SELECT state, count(*) FROM dag_run GROUP BY state"
    assert rows_in(root / "state" / "dag_run", "dag_run", states) == [(s.SUCCESS, 8)]
    runs = dict(rows_in(root / "state" / "dag_run", "dag_run", "SELECT run_id, interval_start FROM dag_run"))
    story.check_tables(runs)
    with pytest.raises(StateError, match=f"state version {SCHEMA_VERSION + 1}.*Use the newer release"):
        open_store(str(root / "state")).lease()
