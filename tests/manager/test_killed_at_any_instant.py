"""The manager is killed between any two tables of any commit, again and again; what comes out is what would have come.

Random backfills, random task outcomes, crashes after a random number of table commits. Whatever happens: every item ends,
each date has one run that counts, every finished task has exactly one try of its last start, and what had finished before
a crash never ran again.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pytest

from backfill_manager.execution.outcome import Failed, Launch, Outcome, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.changes import Changes
from backfill_manager.model.records import BackfillItem, TaskTry
from backfill_manager.store.contract import Leader
from backfill_manager.testing import Playground, dag_spec, days

SEEDS = 150
SPEC = dag_spec(
    "d", "load", "check", "roll",
    upstream={"check": ["load"], "roll": ["load"]},
    each={"load": {"retries": 1, "retry_delay": 5.0}},
)  # fmt: skip


class Killed(Exception):
    """kill -9, as the code would see it if it could."""


class Mortal:
    """A leader that dies after so many more commits of single tables."""

    def __init__(self, leader: Leader, tables_left: int) -> None:
        self._leader, self.tables_left = leader, tables_left

    def __getattr__(self, name: str) -> object:
        return getattr(self._leader, name)

    def _one_more(self) -> None:
        if self.tables_left <= 0:
            raise Killed
        self.tables_left -= 1

    def commit(self, changes: Changes) -> None:
        for _, rows in changes.by_table():
            self._one_more()
            part = Changes()
            for row in rows:
                part.put(row)
            self._leader.commit(part)

    def move_items(self, backfill_id: str, was: str, state: str, reason: str) -> None:
        self._one_more()
        self._leader.move_items(backfill_id, was, state, reason)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_item_ends_as_it_would_have_and_nothing_finished_runs_again(seed: int) -> None:
    chance = random.Random(seed)
    fails_always = {n for n in range(8) if chance.random() < 0.2}
    flaky = {n for n in range(8) if chance.random() < 0.3}
    finished: set[tuple[str, str]] = set()

    def script(launch: Launch) -> Outcome | None:
        day, task = launch.run.logical_date.day, launch.task.task_id  # type: ignore[union-attr]
        assert (launch.run.run_id, task) not in finished, "what had finished runs again"
        if task == "load" and (day in fails_always or (day in flaky and launch.ti.failures == 0)):
            return Failed("boom")
        return Succeeded()

    ground = Playground(SPEC, script=script)
    first = ground.backfill("d", days("2024-01-01", 5), max_active_runs=chance.randint(1, 4))
    second = ground.backfill("d", days("2024-01-03", 5), reprocess="failed", max_active_runs=chance.randint(1, 4))
    for _ in range(chance.randint(1, 6)):
        ground.leader = Mortal(ground.leader, chance.randint(0, 25))  # type: ignore[assignment]
        with contextlib.suppress(Killed):
            ground.drain()
        finished |= {(ti.run_id, ti.task_id) for ti in ground.tasks("d") if ti.state in s.TASK_FINISHED}
        ground.crash()
    ground.drain()

    for backfill in (first, second):
        states = ground.states(backfill)
        assert set(states) <= {s.SUCCESS, s.FAILED, s.SKIPPED}, states
        assert ground.row(backfill).state == (s.FAILED if states.get(s.FAILED) else s.SUCCESS)
    standing = [run for run in ground.runs("d") if run.state != s.OVERRIDDEN]
    assert Counter(run.logical_date for run in standing).most_common(1)[0][1] == 1
    assert {run.logical_date.day for run in standing if run.logical_date} == set(range(1, 8))
    for run in standing:
        assert run.state == (s.FAILED if run.logical_date and run.logical_date.day in fails_always else s.SUCCESS)
    dates = [run.run_id for run in standing]
    assert [run.previous_run_id for run in standing] == [None, *dates[:-1]]
    tries = Counter((t.run_id, t.task_id, t.launch) for t in ground.store.read(TaskTry))
    assert not [key for key, n in tries.items() if n > 1], "a try is told once"
    for ti in ground.tasks("d"):
        assert ti.state in s.TASK_FINISHED
        assert ti.launch == 0 or tries[ti.run_id, ti.task_id, ti.launch] == 1
    made = {run.run_id for run in ground.runs("d")}
    assert {ti.run_id for ti in ground.tasks("d")} == made, "no task without its run"
    assert {item.run_id for item in ground.store.read(BackfillItem) if item.run_id} == made, "no run without its item"
