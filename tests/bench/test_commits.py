"""What a commit of a tick costs the longer a manager works: CPU of each hundred. Figures to print, never a timed assertion.

./tests/run tests/bench/test_commits.py --bench -s
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.state_changes import changes, run, takes_over

from backfill_manager.model.records import DagRun
from backfill_manager.store.delta_rs.store import DeltaRsStore

COMMITS, HUNDRED, RUNS = 1000, 100, 16  # `RUNS` start in each commit, and those of the commit before end


def cpu_of_commits(state: DeltaRsStore, commits: int, hundred: int) -> list[float]:
    """Milliseconds of CPU of a commit, of all threads, for each hundred of them."""
    lead, took = takes_over(state), list[float]()
    for first in range(0, commits, hundred):
        began = time.process_time()
        for n in range(first, first + hundred):
            ended = [run("d", seq, "success") for seq in range((n - 1) * RUNS, n * RUNS)] if n else []
            lead.commit(changes(*ended, *[run("d", seq) for seq in range(n * RUNS, (n + 1) * RUNS)]))
            lead.compact()  # as each tick does, when it is due
        took.append((time.process_time() - began) * 1000 / hundred)
    return took


def test_each_commit_starts_runs_and_ends_those_of_the_one_before(tmp_path: Path) -> None:
    state = DeltaRsStore(str(tmp_path / "state"))
    state.init()
    assert len(cpu_of_commits(state, 4, 2)) == 2
    states = [row.state for row in state.read(DagRun, order_by=["run_seq"])]
    assert states == ["success"] * 3 * RUNS + ["running"] * RUNS


@pytest.mark.bench
def test_commits_of_a_busy_manager(tmp_path: Path) -> None:
    state = DeltaRsStore(str(tmp_path / "state"))
    state.init()
    print(f"\nCPU of a commit that starts {RUNS} runs and ends {RUNS}, in milliseconds:")
    for n, each in enumerate(cpu_of_commits(state, COMMITS, HUNDRED), start=1):
        print(f"{n * HUNDRED:>6} {each:6.1f}")
