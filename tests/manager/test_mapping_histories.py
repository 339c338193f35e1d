"""Random histories of tasks that are mapped over a result: results that change, clears, marks, settings, versions, crashes.

Thirty histories always, a thousand with `--slow`. A failing seed tells its story: what was done, in order.
"""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from support.scenarios import Killed, Mortal, accepted, clear, nothing_hangs

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days

SEEDS = [*range(30), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(30, 1_000))]
RESULTS = (["a"], ["a", "b"], ["b", "c"], [], {"c": 1})
PATTERNS = ("^find$", "^load$", "^(find|load)$", "^(find|load|sum)$", "^load.a$", "^sum$", None)


class History:
    """`load` is mapped over the result of `find`, `post` over that of `find` or `sum`, or over those of all that are mapped from
    `load`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.done: list[str] = []
        one_of = self.random.choice
        self.load = {"over_result_of": "find", "retries": one_of([0, 1])}
        rule = one_of(["all_success", "all_done", "one_success"])
        self.post = {"over_result_of": one_of(["find", "sum", "load"]), "trigger_rule": rule}
        self.callbacks = one_of([(), ("load.on_failure", "load.on_success", "on_failure")])
        self.manager = InMemoryManager(self.version(0), script=self.outcome)

    def version(self, number: int) -> DagSpec:
        return dag_spec(
            "d", "find", "load", "sum", "post",
            upstream={"load": ["find"], "sum": ["load"], "post": sorted({"sum", str(self.post["over_result_of"])})},
            each={"load": self.load, "post": self.post, "sum": {"retries": number}}, callbacks=self.callbacks,
        )  # fmt: skip

    def outcome(self, _: TaskLaunch) -> Outcome | None:
        chance = self.random.random()
        if chance < 0.25:
            return None  # it runs on
        if chance < 0.4:
            return Failed("boom")
        if chance < 0.45:
            return Skipped("nothing to do")
        result: Any = "no list" if self.random.random() < 0.05 else self.random.choice(RESULTS)
        return Succeeded(json.dumps(result))

    def play(self) -> None:
        self.manager.backfill("d", days("2024-01-01", 2))
        steps = (
            self.clear, self.clear, self.clear, self.mark_run, self.mark_task, self.set_priority, self.cancel,
            self.finish, self.finish, self.crash, self.kill, self.new_version,
        )  # fmt: skip
        for _ in range(self.random.randint(3, 12)):
            step = self.random.choice(steps)
            self.done.append(step.__name__)
            step()
            if self.random.random() < 0.6:
                self.manager.drain(500)
            else:
                self.manager.tick()
        self.end()

    def end(self) -> None:
        """What runs ends well, until nothing does."""
        while True:
            self.manager.drain(500)
            if not self.manager.running:
                self.manager.clock.advance(minutes=10)  # what waits to be retried
                self.manager.drain(500)
            if not self.manager.running:
                return
            for key in list(self.manager.running):
                self.manager.finish(key, Succeeded('["a"]'))

    def ask(self, kind: str, **payload: Any) -> None:
        self.done.append(json.dumps(payload))
        self.manager.ask(kind, **payload)

    def of_a_run(self, kind: str, **payload: Any) -> None:
        if runs := self.manager.runs("d"):
            self.ask(kind, dag_id="d", run_id=self.random.choice(runs).run_id, **payload)

    def clear(self) -> None:
        if self.manager.runs("d"):
            tasks = self.random.choice(PATTERNS)
            how = {"latest_version": self.random.random() < 0.3, "only_failed": self.random.random() < 0.2}
            downstream = tasks is not None and self.random.random() < 0.4
            self.ask(request_kinds.TASKS_CLEAR, **clear("d", tasks=tasks, downstream=downstream, **how))

    def mark_run(self) -> None:
        self.of_a_run(request_kinds.RUN_MARK, state=self.random.choice(["success", "failed"]))

    def mark_task(self) -> None:
        task = self.random.choice(["load", "load.a", "find", "sum"])
        self.of_a_run(request_kinds.TASK_MARK, task_id=task, state=self.random.choice(["success", "failed"]))

    def set_priority(self) -> None:
        if runs := self.manager.runs("d"):
            changes = {"priority": self.random.randint(0, 9)}
            self.ask(request_kinds.BACKFILL_SET, backfill_id=runs[0].backfill_id, changes=changes)

    def cancel(self) -> None:
        if self.random.random() < 0.4:
            self.of_a_run(request_kinds.RUN_CANCEL)

    def finish(self) -> None:
        for key in list(self.manager.running):
            if self.random.random() < 0.6:
                self.manager.finish(key, Succeeded('["a", "b"]'))

    def new_version(self) -> None:
        self.manager.add_dag(self.version(len(self.done)))

    def tasks_by_run(self) -> list[dict[str, TaskInstance]]:
        """By id; without callbacks and without what was removed."""
        found: dict[str, dict[str, TaskInstance]] = {run.run_id: {} for run in self.manager.runs("d")}
        for ti in self.manager.store.read(TaskInstance):
            if ti.state != s.REMOVED and "on_" not in ti.task_id:
                found[ti.run_id][ti.task_id] = ti
        return list(found.values())

    def crash(self) -> None:
        self.manager.crash()
        self.manager.clock.advance(minutes=5)

    def kill(self) -> None:
        """Between two commits."""
        self.manager.leader = Mortal(self.manager.leader, self.random.randint(0, 6))
        with suppress(Killed):
            self.manager.drain()
        self.crash()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_everything_ends_and_can_be_done_again(seed: int) -> None:
    history = History(seed)
    history.play()
    nothing_hangs(history.manager)
    for tasks in history.tasks_by_run():
        for mapped_from in ("load", "post"):
            ti = tasks[mapped_from]
            if ti.state == s.SUCCESS and ti.result_json:  # else it was marked, or never came to be mapped again
                made = {id for id in tasks if id.startswith(f"{mapped_from}.")}
                assert made == {f"{mapped_from}.{key}" for key in json.loads(ti.result_json)}, history.done
    history.manager.script = lambda _: Succeeded('["a", "d"]')
    accepted(history.manager, request_kinds.TASKS_CLEAR, **clear("d", latest_version=seed % 2 == 0))
    nothing_hangs(history.manager)
    every = {"find", "load", "load.a", "load.d", "sum", "post", "post.a", "post.d"}
    for tasks in history.tasks_by_run():
        assert {id: ti.state for id, ti in tasks.items()} == dict.fromkeys(every, s.SUCCESS), history.done
