"""Asks for this and that, in random order, of a manager whose tasks end as they like: failures, new versions and crashes in
between. After each step the manager must hold what its tables say, and what one that restarts would."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import BackfillManagerError
from backfill_manager.execution.messages import (
    AccessedTable,
    Failed,
    LaunchKey,
    Lost,
    Outcome,
    Postponed,
    PutBack,
    Skipped,
    Succeeded,
)
from backfill_manager.manager.decisions.notification_rules import DEADLOCK
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, TableAccess, TaskInstance
from backfill_manager.planning.data.written_intervals import read_written
from backfill_manager.planning.runs.timeline import timeline_key
from backfill_manager.testing import InMemoryManager, dag_spec, days
from support.fake_tables import PATH, FakeTables
from support.scenarios import at, dies_after, next_due, timeline

MAX_TICKS = 2000  # without anything new
OUTCOMES: tuple[tuple[int, Outcome], ...] = (
    (14, Succeeded()), (7, Failed("x")), (7, Failed("y", retryable=False)), (7, Skipped("not today")), (1, Lost("no Spark")),
    (1, Lost("no Spark", alone=True)), (1, Postponed("no process left")), (1, PutBack("the manager stops")),
)  # fmt: skip
WRITE = AccessedTable("write", "lake.events", PATH, 1, table_id="id")  # for which tasks wait
MAPPED: tuple[Any, ...] = (
    [],
    ["x"],
    ["x", "y"],
    {"y": 1, "z": 2},
    7,
)  # what the task returns that another is mapped over
CLEARS: tuple[dict[str, Any], ...] = (
    {}, {"only_failed": True}, {"tasks": "b"}, {"only_running": True}, {"latest_version": True},
    {"tasks": "b", "downstream": True}, {"tasks": "b", "upstream": True}, {"dates": ["2023-12-22/2023-12-26"]},
)  # fmt: skip
CHANGES: tuple[dict[str, Any], ...] = (
    {"batch": 3}, {"max_active_runs": 2}, {"priority": 5}, {"stop_on_failure": 1}, {"window": "22:00-04:00"}, {"window": None},
)  # fmt: skip


def a_dag(rnd: random.Random) -> DagSpec:
    def of_task() -> dict[str, Any]:
        settings: dict[str, Any] = {"retries": 1, "retry_delay": 30.0} if rnd.random() < 0.3 else {}
        settings |= {"depends_on_past": True} if rnd.random() < 0.3 else {}
        rules = ["all_done", "none_failed", "one_success", "one_failed"]
        settings |= {"trigger_rule": rnd.choice(rules)} if rnd.random() < 0.2 else {}
        settings |= {"waits_for": ("lake.events",), "wait_limit": 50.0} if rnd.random() < 0.15 else {}
        return settings | ({"max_active_tis": 1} if rnd.random() < 0.2 else {})

    ids = rnd.choice(["abc", "abc", "ab", "acd", "bc"])  # versions gain and lose tasks
    waits = {"b": "a", "c": rnd.choice("ab"), "d": "c"}
    upstream = {task: [before] for task, before in waits.items() if task in ids and before in ids}
    each = {task_id: of_task() for task_id in ids}
    if upstream.get("b") and rnd.random() < 0.25:
        each["b"]["over_result_of"] = "a"
    return dag_spec(
        "d", *ids, upstream=upstream, each=each,
        callbacks=["on_failure"] if rnd.random() < 0.3 else [], batchable=True, start_date=at("2023-12-28"),
        catchup=rnd.random() < 0.7, max_active_runs=rnd.choice([1, 2, 5]), lookback=rnd.choice([0, 0, 0, 1]),
        schedule=rnd.choice(["0 0 * * *", "0 0 * * *", "0 6 * * *", "0 */12 * * *"]),
    )  # fmt: skip


class RandomRequests:
    def __init__(self, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.manager = InMemoryManager(
            a_dag(self.rnd),
            dag_spec("e", "x"),
            script=lambda _: None,
            scheduled=self.rnd.random() < 0.5,
            slots=self.rnd.choice([1, 3, 16]),
        )
        self.tables = FakeTables(self.manager, is_slow=True)

    def play(self) -> None:
        for _ in range(self.rnd.randrange(5, 40)):
            try:
                self.step()
            except BackfillManagerError:  # refused at once, as a client is
                continue

    def attach_tables(self) -> None:
        if self.manager._loop._table_jobs is None:  # a new manager: the work of the former one is lost
            self.tables = FakeTables(self.manager, is_slow=True)

    def step(self) -> None:
        self.attach_tables()
        rnd, manager = self.rnd, self.manager
        runs, backfills = [run.run_id for run in manager.runs("d")], [row.backfill_id for row in self.backfills()]
        day = f"2023-12-{rnd.randrange(20, 31)}T00:00:00Z"
        steps: list[tuple[float, Any]] = [
            (0.35, self.end_some), (0.05, lambda: self.tables.end_all()), (0.03, self.preview),
            (0.07, self.backfill), (0.03, self.new_version), (0.03, manager.crash),
            (0.07, lambda: self.ask("tasks.clear", ask={"dag": "d", **rnd.choice(CLEARS)})),
            (0.04, lambda: self.ask("dag.trigger", dag_id="d", logical_date=day, conf={})),
            (0.04, lambda: self.ask(rnd.choice(["dag.pause", "dag.unpause"]), dag_id="d")),
            (0.02, lambda: dies_after(manager, rnd.randrange(15))),
            (0.02, lambda: self.ask("task.run", dag_id="d", task_id=rnd.choice("abc"), logical_date=day, conf={})),
            (0.01, lambda: self.ask("dag.deactivate", dag_id="d")),
            (0.10, lambda: manager.clock.advance(seconds=rnd.choice([10, 40, 3600, 86_400]))),
        ]  # fmt: skip
        if runs:
            run: dict[str, Any] = {"dag_id": "d", "run_id": rnd.choice(runs)}
            every: dict[str, Any] = {"dag_id": "d", "run_ids": rnd.sample(runs, 1), "dates": [], "items": []}
            task: dict[str, Any] = {"task_id": rnd.choice("abc"), "state": rnd.choice(["success", "failed", "skipped"])}
            steps += [
                (0.06, lambda: self.ask("run.mark", **run, state=rnd.choice(["success", "failed"]))),
                (0.06, self.revert),
                (0.05, lambda: self.ask("task.mark", **run, **task)), (0.04, lambda: self.ask("run.cancel", **run)),
                (0.03, lambda: self.ask("runs.mark", **every, state=rnd.choice(["success", "failed"]))),
            ]  # fmt: skip
        if backfills:
            backfill = {"backfill_id": rnd.choice(backfills)}
            steps += [
                (0.05, lambda: self.ask(rnd.choice(["backfill.pause", "backfill.unpause"]), **backfill)),
                (0.02, lambda: self.ask("backfill.cancel", **backfill, let_running_finish=rnd.random() < 0.5)),
                (0.05, lambda: self.ask("backfill.retry", **backfill, latest_version=rnd.random() < 0.3)),
                (0.02, lambda: self.ask("backfill.retry", **backfill, items=[rnd.choice(["1", "2-3", "1-9"])])),
                (0.01, lambda: self.ask("backfill.hide", **backfill)),
                (0.02, lambda: self.ask("backfill.revert", **backfill, dry_run=False)),
                (0.05, self.end_preview),
                (0.02, lambda: self.ask("tasks.clear", ask={"dag": "d", **backfill, "items": ["1-2"]})),
                (0.02, lambda: self.ask("runs.mark", dag_id="d", state="success", **backfill, items=["2-3"])),
                (0.05, lambda: self.below(backfill["backfill_id"])),
                (0.04, lambda: self.ask("backfill.set", **backfill, changes=rnd.choice(CHANGES))),
            ]
        (chosen,) = rnd.choices([do for _, do in steps], [weight for weight, _ in steps])
        chosen()
        if rnd.random() < 0.7:
            self.tick()

    def revert(self) -> None:
        written = {
            (row.dag_id, row.run_id) for row in self.manager.store.read(TableAccess)
        } - self.manager.state.runs.keys()
        if written:
            dag_id, run_id = self.rnd.choice(sorted(written))
            self.ask("run.revert", dag_id=dag_id, run_id=run_id, dry_run=self.rnd.random() < 0.2)

    def backfills(self) -> list[Backfill]:
        return self.manager.store.read(Backfill)

    def ask(self, kind: str, **payload: Any) -> None:
        self.manager.ask(kind, **payload)

    def end_some(self) -> None:
        for key in list(self.manager.running):
            if self.rnd.random() < 0.6:
                (outcome,) = self.rnd.choices([one for _, one in OUTCOMES], [weight for weight, _ in OUTCOMES])
                writes = isinstance(outcome, Succeeded) and self.rnd.random() < 0.7
                self.manager.finish(key, self.with_result(key, outcome), tables=[WRITE] * writes)

    def with_result(self, key: LaunchKey, outcome: Outcome) -> Outcome:
        """Of a task that another is mapped over, what it is mapped over."""
        is_mapped_over = any(task.over_result_of == key[2] for task in self.manager.state.current_spec("d").tasks)
        if not is_mapped_over or not isinstance(outcome, Succeeded):
            return outcome
        return Succeeded(json.dumps(self.rnd.choice(MAPPED)))

    def backfill(self) -> None:
        rnd, first = self.rnd, f"2023-12-{self.rnd.randrange(20, 29)}"
        reprocess = rnd.choice(["none", "failed", "completed", "failed_tasks"])
        of_new_runs = {
            "batch": rnd.choice([1, 2, 4]), "tasks": rnd.choice([None, None, None, "b|c"]),
            "with_upstream": rnd.random() < 0.5, "mark_success": rnd.random() < 0.05,
        }  # fmt: skip
        self.manager.backfill(
            "d", days(first, rnd.randrange(1, 9)), max_active_runs=rnd.choice([1, 1, 2]), reprocess=reprocess,
            stop_on_failure=rnd.choice([None, None, 1, 2]), is_polite=rnd.random() < 0.2,
            ignore_first_depends_on_past=rnd.random() < 0.5, **({} if reprocess == "failed_tasks" else of_new_runs),
        )  # fmt: skip

    def preview(self) -> None:
        first = f"2023-12-{self.rnd.randrange(20, 29)}"
        preview_id = self.manager.backfill("d", days(first, self.rnd.randrange(1, 5)), reprocess="completed")
        live = self.manager.state.backfills[preview_id]
        self.manager.state.put(live.row.evolve(preview_id=preview_id))
        self.manager.commit()
        refill(live, self.manager.store)

    def end_preview(self) -> None:
        if ids := [row.backfill_id for row in self.backfills() if row.preview_id]:
            kind, more = self.rnd.choice([("promote", {"partial": True}), ("diff", {}), ("discard", {})])
            self.ask(f"backfill.{kind}", backfill_id=self.rnd.choice(ids), **more)

    def below(self, parent: str) -> None:
        """A backfill downstream, of the same days."""
        found = [(item.interval_start, item.interval_end) for item in self.manager.items(parent)]
        rows = [(a, b) for a, b in found if a is not None and b is not None]
        self.manager.backfill("e", rows, parents_json=json.dumps([parent]), max_active_runs=2)

    def new_version(self) -> None:
        self.manager.add_dag(a_dag(self.rnd))
        self.manager.commit()

    def check_memory(self) -> None:
        """What the manager holds is what the tables say, and the timeline is whole at all times."""
        manager, state = self.manager, self.manager.state
        rows = {run.key: run for run in [*manager.runs("d"), *manager.runs("e")]}
        assert {run.key: run.row for run in state.runs.values()} == {
            key: run for key, run in rows.items() if run.state in s.RUN_LIVE
        }
        tasks = {ti.key: ti for ti in [*manager.tasks("d"), *manager.tasks("e")]}
        assert all(ti == tasks[ti.key] for _, ti in state.tasks())
        for live in state.backfills.values():
            items = manager.items(live.row.backfill_id)
            assert live.row == manager.row(live.row.backfill_id)
            assert +live.counts == Counter(item.state for item in items)
            running = [item for taken in live.running.values() for item in taken]
            assert {item.key: item for item in running} == {one.key: one for one in items if one.state == s.RUNNING}
            assert all(item in items for item in live.pending)
        from_tables = read_written(manager.store, state.written)
        assert {name: vars(one) for name, one in state.written.items()} == {
            name: vars(one) for name, one in from_tables.items()
        }
        for dag_id, recent in state.recent.items():
            standing = timeline(manager, dag_id)
            known = [
                run
                for run in standing
                if recent.floor is None or (run.logical_date or at("2000-01-01")) >= recent.floor
            ]
            held = [recent.current_at(timeline_key(run.logical_date, None)) for run in known if run.logical_date]
            assert held == [run for run in known if run.logical_date]

    def check_restart(self) -> None:
        """A manager that restarted now would hold what this one holds."""
        manager, state = self.manager, self.manager.state
        is_resting = not self.tables.is_working and not manager.store.unanswered()
        if not is_resting or any(ti.state in s.TASK_STARTED for _, ti in state.tasks()):
            return
        fresh = restore_state(manager.store, term=99, now=manager.clock.now())
        for row in [row for _, rows in fresh.changes.by_table() for row in rows]:
            # What was mapped from a result that maps to nothing else now is removed when its task is mapped, or at a restart.
            # Cleared after a deadlock, a backfill has its reason again.
            is_mapped = isinstance(row, TaskInstance) and row.state == s.REMOVED
            assert is_mapped or (isinstance(row, Backfill) and (row.reason or "").startswith(DEADLOCK)), row

        def runs(of: ManagerState) -> dict[Any, Any]:
            return {
                key: (run.row, {id: ti for id, ti in run.tasks.items() if ti.state != s.REMOVED}, run.selected, run.marked_failed)
                for key, run in of.runs.items()
            }  # fmt: skip

        def backfills(of: ManagerState) -> dict[str, Any]:
            return {
                key: (live.row.evolve(reason=None), live.spec, +live.counts, live.running, live.window_is_short)
                for key, live in of.backfills.items()
            }

        if not any(ti.state == s.REMOVED for ti in fresh.changes.rows(TaskInstance)):
            assert runs(fresh) == runs(state)
        assert backfills(fresh) == backfills(state)
        assert (fresh.catalog.dags, fresh.pools) == (state.catalog.dags, state.pools)

    def tick(self) -> None:
        """Until nothing is left to do but to wait."""
        self.attach_tables()
        for _ in range(MAX_TICKS):
            if not self.manager.tick():
                break
        else:
            raise AssertionError(f"busy: {self.describe()}")
        due = next_due(self.manager)
        may_all = all(run.may_start for run in self.manager.state.runs.values())
        assert due is None or due > self.manager.clock.now() or not may_all, (
            f"it ticks without a pause: {self.describe()}"
        )
        self.check_memory()
        self.check_restart()
        state = self.manager.state
        if self.tables.is_working:
            return
        assert not (state.is_idle and self.manager.running), f"idle with tasks: {self.describe()}"
        if not self.manager.running and due is None and not self.manager.store.unanswered():
            assert state.is_idle, f"--until-idle does not end: {self.describe()}"

    def end_all(self) -> None:
        manager = self.manager
        for _ in range(600):
            for row in self.backfills():
                if row.state == s.PAUSED:
                    self.ask("backfill.unpause", backfill_id=row.backfill_id)
            self.tick()
            if self.tables.is_working:
                self.tables.end_all()
            elif manager.running:
                for key in list(manager.running):
                    manager.finish(key, self.with_result(key, Succeeded()))
            elif manager.state.runs or manager.state.backfills or manager.store.unanswered():
                due = next_due(manager)
                is_paused = any(row.state == s.PAUSED for row in self.backfills())
                assert due is not None or is_paused or manager.store.unanswered(), f"it hangs: {self.describe()}"
                if due is not None:
                    manager.clock.advance(seconds=max(1.0, (due - manager.clock.now()).total_seconds()))
            else:
                return
        raise AssertionError(f"endless: {self.describe()}")

    def describe(self) -> str:
        state = self.manager.state
        runs = {key: (run.may_start, {t: ti.state for t, ti in run.tasks.items()}) for key, run in state.runs.items()}
        return f"{runs} {[(one.row.backfill_id, one.row.state, dict(one.counts)) for one in state.backfills.values()]}"
