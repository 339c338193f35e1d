"""Backfills in batches whose tasks wait for tables and files, of which some come late and some never; managers are killed.

Whatever the batches, each day ends as it would in a run of its own: a day whose data came within the limit is done, and no other
day fails or is skipped with one whose data did not come.
"""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from support.scenarios import a_third_kill_would_fail_a_task

from backfill_manager import file
from backfill_manager.execution import messages as m
from backfill_manager.manager.services.wait_checker import WaitsChecked
from backfill_manager.model import states as s
from backfill_manager.planning.data.wait_conditions import Seen
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

WRITTEN = m.AccessedTable("write", "bronze.events", "s3a://lake/bronze/events", 1, 10, 100)
TABLE, FILE = "bronze.events", file("/in/{interval_start:%Y-%m-%d}")
LIMIT = timedelta(hours=1)
WAITS = ({"a": [TABLE]}, {"a": [FILE]}, {"a": [TABLE, FILE]}, {"a": [TABLE], "b": [FILE]})


class Story(InMemoryManager):
    """`silver` waits for the table that `bronze` writes, and for files."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.days = days("2024-01-01", chance.randint(1, 12))
        self.waits = chance.choice(WAITS)
        self.skips = chance.random() < 0.4
        self.late: dict[object, set[int]] = {}
        self.there: dict[object, set[int]] = {}
        for wait in (TABLE, FILE):
            come = {n for n in range(len(self.days)) if chance.random() < 0.75}
            self.late[wait] = {n for n in come if chance.random() < 0.2}
            self.there[wait] = come - self.late[wait]
        how = {"wait_limit": LIMIT.total_seconds(), "after_wait_limit": "skip" if self.skips else "fail"}
        how |= {"depends_on_past": True} if self.skips else {}  # a day that fails would keep the next ones
        silver = dag_spec(
            "silver", *self.waits, batchable=True, each={task: {"waits_for": w, **how} for task, w in self.waits.items()},
            upstream={"b": ["a"]} if "b" in self.waits and chance.random() < 0.5 else {},
        )  # fmt: skip
        super().__init__(dag_spec("bronze", "load"), silver, script=self.begins, clock=FakeClock())
        self.write(self.there[TABLE])

    def begins(self, launch: m.TaskLaunch) -> m.Outcome | None:
        if launch.ti.dag_id == "bronze":
            return None
        assert launch.run.interval_start and launch.run.interval_end
        taken = {n for n, day in enumerate(self.days) if launch.run.interval_start <= day[0] < launch.run.interval_end}
        assert all(taken <= self.there[wait] for wait in self.waits[launch.ti.task_id]), "it has not waited"
        return m.Succeeded()

    def write(self, which: set[int]) -> None:
        if which:
            self.backfill("bronze", [self.days[n] for n in sorted(which)], max_active_runs=12)
        while any(row.row.dag_id == "bronze" for row in self.state.backfills.values()):
            self.tick()
            for key in [key for key in self.running if key[0] == "bronze"]:
                self.finish(key, m.Succeeded(), tables=[WRITTEN])

    def look(self, share: float = 1.0) -> None:
        """What is looked for is seen, or this share of it."""
        looks = [look for look in self.state.open_wait_checks if self.chance.random() < share]
        found = {look: int(str(look.path)[-2:]) - 1 in self.there[FILE] for look in looks}
        self.events.put(
            WaitsChecked({look: Seen(is_there, None, self.clock.now()) for look, is_there in found.items()})
        )

    def play(self) -> None:
        """Until the backfill has ended. No time passes before everything that is looked for has been seen."""
        late_at = self.clock.now() + LIMIT / 2
        while self.state.backfills:
            assert self.clock.now() < late_at + 20 * LIMIT, "it ends"
            if self.chance.random() < 0.03 and not a_third_kill_would_fail_a_task(self):
                self.crash()
            if self.chance.random() < 0.5:
                self.look(0.8)
            if self.tick():
                continue
            self.look()
            if self.tick():
                continue
            if self.clock.now() >= late_at and any(self.late.values()):
                for wait, which in self.late.items():
                    self.there[wait] |= which
                late, self.late = self.late[TABLE], {}
                self.write(late)
                continue
            self.clock.advance(minutes=self.chance.choice([1, 5, 15]))


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 2000))])
def test_each_day_of_a_batch_ends_as_in_a_run_of_its_own(seed: int) -> None:
    story = Story(seed)
    order = story.days if story.skips or story.chance.random() < 0.8 else story.days[::-1]
    how = {"batch": story.chance.choice([1, 2, 3, 8, 12]), "max_active_runs": story.chance.choice([1, 2, 12])}
    backfill = story.backfill("silver", order, **how)
    story.play()
    of_run: dict[str | None, dict[str, str]] = {}
    for ti in story.tasks("silver"):
        of_run.setdefault(ti.run_id, {})[ti.task_id] = ti.state
    for item in story.items(backfill):
        n = [day[0] for day in story.days].index(item.interval_start)
        has_data = all(n in story.there[wait] for waits in story.waits.values() for wait in waits)
        is_done = item.state == s.SUCCESS and set(of_run[item.run_id].values()) == {s.SUCCESS}
        assert is_done == has_data, (n, item, of_run.get(item.run_id))
        assert has_data or item.state == (s.SUCCESS if story.skips else s.FAILED)
