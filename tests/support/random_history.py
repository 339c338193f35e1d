"""Ninety days of random operations on a manager that is killed again and again, compared with a reference model.

`Calm(seed)` asks for one thing, lets everything that follows come to rest (tasks that stay running end in any
order, the manager is killed between any two table commits), tells the model, and goes on: all that stands in the tables is
what the model says. Half of the DAGs have callbacks, of which the model knows nothing: they must not change what comes
out; who is called, and who not, is a rule of its own. `Stormy(seed)` asks for everything at once: there the rules
are checked that no order of racing may break. Of both, after every tick: nothing runs twice at once, and no more than the
limits allow.

Neither kills a manager for the third time in a row under one task: such a task fails (`test_crash_loops.py`), and of which one it
happens to depends on racing, which the model does not know.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from backfill_manager.clock import UTC, format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Failed, LaunchKey, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.manager.decisions.callbacks import BY_HALVES, NOTHING_TO_REPORT
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, Response, TaskInstance, TaskTry
from backfill_manager.model.transitions import NOT_SELECTED
from backfill_manager.planning.runs.timeline import first_date
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec
from support.reference_model import PlainBackfill, PlainDag, PlainItem, PlainModel, PlainRun, fate_of_run
from support.scenarios import Killed, Mortal, a_third_kill_would_fail_a_task

BEGIN = datetime(2024, 1, 22, 12, 30, tzinfo=UTC)  # both clock changes of spring lie in the ninety days
DAYS = 90
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), BEGIN + timedelta(days=DAYS + 30)


def local_midnights(zone: str) -> list[datetime]:
    days = (LAST - FIRST).days
    first = FIRST.date()
    return [
        datetime.combine(first + timedelta(days=n), datetime.min.time(), ZoneInfo(zone)).astimezone(UTC)
        for n in range(days)
    ]


def every(step: timedelta, first: datetime = FIRST) -> list[datetime]:
    return [first + n * step for n in range((LAST - first) // step)]


def dags() -> list[tuple[PlainDag, dict[str, Any]]]:
    """Each DAG as the model knows it, and what else its definition says."""
    chain = {"load": (), "check": ("load",), "roll": ("load",)}
    pair, abc = {"load": (), "roll": ("load",)}, {"a": (), "b": ("a",), "c": ("a", "b")}
    daily = every(DAY)
    ten_past_five = FIRST + timedelta(hours=5, minutes=10)
    return [
        (PlainDag("caught_up", chain, local_midnights("Europe/Amsterdam"), {"load": 1}, start=BEGIN - 9 * DAY, catchup=True),
         {"timezone": "Europe/Amsterdam", "max_active_runs": 2,
          "callbacks": ("load.on_failure", "check.on_success", "check.on_failure", "on_success", "on_failure")}),
        (PlainDag("latest_only", {"a": (), "b": ("a",)}, every(6 * HOUR), retries={"a": 1}),
         {"schedule": "0 */6 * * *"}),
        (PlainDag("on_its_past", pair, daily, past=frozenset({"roll"}), start=BEGIN - 5 * DAY, catchup=True),
         {"max_active_runs": 3, "callbacks": ("roll.on_failure", "on_failure")}),
        (PlainDag("batched", abc, daily, batchable=True, start=BEGIN - 3 * DAY, catchup=True),
         {"batchable": True, "max_active_runs": 2, "callbacks": ("b.on_success", "on_failure")}),
        (PlainDag("looks_back", {"a": (), "b": ("a",)}, daily, lookback=2, start=BEGIN - 2 * DAY, catchup=True),
         {"lookback": 2, "max_active_runs": 1}),
        (PlainDag("by_duration", {"a": ()}, every(timedelta(days=1), ten_past_five), retries={"a": 1}, start=ten_past_five),
         {"schedule": {"seconds": 86400}, "timezone": "America/New_York"}),
    ]  # fmt: skip


class History(ABC):
    """A manager, the model beside it, and chance. `fragile` is how likely it is to be killed in the course of one
    operation."""

    def __init__(self, seed: int, *, fragile: float = 0.3, n_dags: int = 3, lasts: timedelta = DAYS * DAY) -> None:
        self.seed, self.chance, self.fragile, self.lasts = seed, random.Random(seed), fragile, lasts
        chosen = self.chance.sample(dags(), n_dags)
        self.model = PlainModel(seed, [dag for dag, _ in chosen], lambda: self.manager.clock.now())
        specs = []
        for dag, more in chosen:
            each = {
                task: {"retries": dag.retries.get(task, 0), "retry_delay": 5.0, "depends_on_past": task in dag.past}
                for task in dag.tasks
            }
            settings = {"start_date": dag.start, "catchup": dag.catchup, **more}
            specs.append(dag_spec(dag.dag_id, *dag.tasks, upstream=dag.tasks, each=each, **settings))
        self.manager = self.make_manager(*specs, script=self.script, clock=FakeClock(BEGIN), scheduled=True)
        self.specs = {spec.dag_id: spec for spec in specs}
        self.later: dict[LaunchKey, Outcome] = {}  # of tasks that stay running for a while
        self.marked: set[tuple[str, str]] = set()  # runs of which a person said how they, or a task of them, ended
        self.held: set[str] = set()  # DAGs whose tasks run until they are let go
        self.story: list[str] = []
        self.crashes = 0

    def make_manager(self, *specs: DagSpec, **how: Any) -> InMemoryManager:
        return InMemoryManager(*specs, **how)

    @abstractmethod
    def run(self, operations: int) -> None:
        """So many things happen."""

    # -- tasks --------------------------------------------------------------------------------------------------------
    def script(self, launch: TaskLaunch) -> Outcome | None:
        dag_id, run_id, task_id, _ = launch.key
        alike = [key for key in self.manager.running if key[:3] == (dag_id, run_id, task_id)]
        assert len(alike) == 1, f"{alike} run at once"
        if dag_id in self.held:
            return None
        outcome = self.outcome(launch)
        if self.chance.random() < 0.8:
            return outcome
        self.later[launch.key] = outcome
        return None

    def outcome(self, launch: TaskLaunch) -> Outcome:
        dag, run = self.model.dags[launch.ti.dag_id], launch.run
        grid = [at for at in dag.grid if run.interval_start and run.interval_start <= at < run.interval_end]  # type: ignore[operator]
        places = [run.partition_key] if run.partition_key else grid
        failures = fate_of_run(self.seed, dag.dag_id, launch.ti.task_id, places, self.model.worlds[dag.dag_id])
        if failures < 0:
            return Skipped("no data")
        return Failed("boom") if launch.ti.failures < failures else Succeeded()

    def release(self) -> None:
        self.held.clear()
        for launch in self.manager.running.values():
            self.later.setdefault(launch.key, self.outcome(launch))

    # -- what may be asked --------------------------------------------------------------------------------------------
    def some_dag(self) -> PlainDag:
        return self.chance.choice(list(self.model.dags.values()))

    def some_dates(self, dag: PlainDag) -> list[datetime]:
        """A few intervals round the present day, mostly in the past."""
        now = self.manager.clock.now() - timedelta(days=self.chance.choice([0, 2, 5, 10, 15]))
        at = min(dag.grid.index(dag.latest_complete(now)), len(dag.grid) - 8)
        n = self.chance.randint(1, 7)
        dates = dag.grid[max(0, at - n + 1 + self.chance.choice([0, 0, 0, 0, 2])) :][:n]
        return dates if self.chance.random() < 0.8 else sorted(self.chance.sample(dates, max(1, n // 2)))

    def new_backfill(self, dag: PlainDag, **fixed: Any) -> PlainBackfill:
        """Asked for in the manager and in the model; not carried out yet."""
        chance, places = self.chance, list[Any](self.some_dates(dag))
        if chance.random() < 0.1:
            places = chance.sample(["eu", "us", "asia", "a_b"], chance.randint(1, 3))
        elif chance.random() < 0.25 and not dag.past:
            places.reverse()
        stop = chance.choice([None, None, None, None, 1, 2])
        tasks = chance.choice(["", "", "", "", f"^{list(dag.tasks)[-1]}$"])
        one = stop is not None or (tasks and dag.past)
        fields: dict[str, Any] = {
            "reprocess": chance.choice(["none", "failed", "failed_tasks", "completed"]),
            "batch": chance.choice([1, 3, 4, 7]) if dag.batchable and self.may_batch(dag, places) else 1,
            "max_active_runs": 1 if one else chance.choice([1, 2, 4]),
            "stop_on_failure": stop,
            "tasks": tasks,
            "mark_success": chance.random() < 0.08,
            "retries": chance.choice([None, None, 0, 1, 2]),
            "is_paused": chance.random() < 0.1,
            "ignore_first_depends_on_past": chance.random() < 0.7,
            **fixed,
        }
        if fields["reprocess"] == "failed_tasks":
            fields |= {"tasks": "", "batch": 1, "mark_success": False}
        submitted = {name: value for name, value in fields.items() if name not in ("retries", "tasks")}
        submitted |= {"tasks": fields["tasks"] or None, "with_upstream": False}
        submitted |= {"overrides_json": f'{{"retries": {fields["retries"]}}}'} if fields["retries"] is not None else {}
        submitted |= {"state": s.PAUSED} if fields["is_paused"] else {}
        intervals = [(at, dag.end_of(at)) for at in places if isinstance(at, datetime)]
        keys = [key for key in places if isinstance(key, str)]
        backfill_id = self.manager.backfill(dag.dag_id, intervals, keys=keys, **submitted)
        self.record(f"backfill {backfill_id} of {dag.dag_id} over {[str(at)[:16] for at in places]} {fields}")
        items = [PlainItem(n, place) for n, place in enumerate(places, 1)]
        state = "paused" if fields["is_paused"] else "queued"
        made = PlainBackfill(dag, backfill_id, items, next(self.model.numbers), state=state, **fields)
        self.model.backfills[backfill_id] = made
        return made

    def may_batch(self, dag: PlainDag, places: list[Any]) -> bool:
        return True

    # -- time ---------------------------------------------------------------------------------------------------------
    def tick(self) -> bool:
        changed = self.manager.tick()
        self.check_limits()
        return changed

    def check_limits(self) -> None:
        """No more runs are going on than their DAG or backfill allows."""
        going_on: Counter[tuple[str, str | None]] = Counter()
        manager_state = self.manager.state
        for run in manager_state.runs.values():
            owner = run.row.backfill_id
            if owner is not None and owner not in manager_state.backfills:
                continue  # a batch that was cleared between its halves: its backfill may end before it
            if run.row.state == s.RUNNING and run.row.run_type != s.EXTERNAL_RUN:
                going_on[run.row.dag_id, owner] += 1
        for (dag_id, backfill_id), n in going_on.items():
            limit = (
                manager_state.backfills[backfill_id].row.max_active_runs
                if backfill_id
                else self.specs[dag_id].max_active_runs
            )
            in_order = bool(self.model.dags[dag_id].past)  # there an older one goes before all
            assert n <= limit or in_order, f"{n} runs of {backfill_id or dag_id}, where {limit} are allowed"

    def settle(self) -> None:
        """Until nothing follows any more; killed on the way, it may be."""
        if self.chance.random() < self.fragile and not a_third_kill_would_fail_a_task(self.manager):
            self.manager.leader = Mortal(self.manager.leader, self.chance.randint(0, 12))  # type: ignore[assignment]
        for _ in range(5_000):
            try:
                changed = self.tick()
            except Killed:
                self.crash()
                continue
            if changed:
                continue
            if self.later:
                key = self.chance.choice(list(self.later))
                if key in self.manager.running:
                    self.manager.finish(key, self.later[key])
                del self.later[key]
                continue
            waits = [ti.retry_at for _, ti in self.manager.state.tasks() if ti.state == s.UP_FOR_RETRY and ti.retry_at]
            if not waits:
                break
            self.manager.clock.advance(seconds=max(0.0, (min(waits) - self.manager.clock.now()).total_seconds()))
        else:
            raise AssertionError("it never comes to rest")
        if isinstance(self.manager.leader, Mortal):
            self.manager.leader = self.manager.leader._leader

    def check_callbacks(self, run: DagRun, tasks: list[TaskInstance]) -> None:
        """Those were called that had something to report, and no others."""
        if run.run_type == s.EXTERNAL_RUN or run.state in s.RUN_LIVE:
            return
        states = {ti.task_id: ti.state for ti in tasks}
        by_id = {ti.task_id: ti for ti in tasks}
        for callback in self.specs[run.dag_id].callbacks:
            ti = by_id[callback.task_id]
            assert ti.state in s.TASK_FINISHED
            outcome = run.state if callback.watches is None else states[callback.watches]
            nobody_asks = (run.dag_id, run.run_id) in self.marked or ti.error in (NOT_SELECTED, "marked success")
            if nobody_asks or s.CANCELLED in (ti.state, run.state) or outcome == s.OVERRIDDEN:
                continue
            assert (ti.error != NOTHING_TO_REPORT) == (outcome == callback.calls_back), f"{ti}, where it was {outcome}"
            assert ti.error != BY_HALVES or (run.backfill_id is not None and outcome == s.FAILED), ti

    def crash_if_it_may(self) -> None:
        """Chance kills it at this instant, unless the rule of three losses in a row would come into what is compared."""
        if not a_third_kill_would_fail_a_task(self.manager):
            self.crash()

    def crash(self) -> None:
        self.crashes += 1
        self.later.clear()
        self.manager.crash()

    def ask(self, kind: str, expected: bool = True, **payload: Any) -> Response:
        """Ask, come to rest, and be answered as the model says."""
        self.record(f"{kind} {payload}")
        self.manager.ask(kind, **payload)
        self.settle()
        request = self.manager.store.rows("request")[-1]
        (answer,) = [row for row in self.manager.store.rows("response") if row.request_id == request.request_id]  # type: ignore[attr-defined]
        assert isinstance(answer, Response)
        assert (answer.outcome == "accepted") == expected, answer.message
        return answer

    def record(self, what: str) -> None:
        self.story.append(f"{self.manager.clock.now():%m-%d %H:%M:%S} {what}")


class Calm(History):
    """One thing at a time."""

    midway_asks: tuple[str, ...] = ("cancel", "let finish", "pause", "cancel run", "mark run", "clear", "crash")

    def run(self, operations: int) -> None:
        self.settle()
        self.model.fire_schedules(self.manager.clock.now())
        self.compare()
        choices: list[tuple[int, Callable[[], None]]] = [
            (22, self.time_passes), (26, self.backfill), (7, self.midway), (8, self.steer), (7, self.retry), (9, self.clear),
            (4, self.mark_run), (4, self.mark_task), (6, self.trigger), (2, self.run_task), (4, self.pause_dag), (6, self.mend),
        ]  # fmt: skip
        weights, deeds = zip(*choices, strict=True)
        for n in range(operations):
            self.chance.choices(deeds, weights)[0]()
            if n % COMPARE_EVERY == 0:
                self.compare()
            if self.chance.random() < 0.03:
                self.record("crash")
                self.crash_if_it_may()
                self.settle()
        for dag in self.model.dags.values():
            if dag.is_paused:
                self.set_paused(dag, False)
        while paused := [backfill for backfill in self.model.backfills.values() if backfill.is_paused]:
            self.resume(paused[0])
        left = BEGIN + self.lasts - self.manager.clock.now()
        self.pass_time(max(left, HOUR))
        self.compare()
        self.check_rest()

    # -- operations ---------------------------------------------------------------------------------------------------
    def pass_time(self, span: timedelta) -> None:
        self.record(f"{span} pass")
        self.manager.clock.advance(seconds=span.total_seconds())
        self.settle()
        self.model.fire_schedules(self.manager.clock.now())

    def time_passes(self) -> None:
        now = self.manager.clock.now()
        here = now.replace(minute=30, second=0, microsecond=0)
        sixes = self.chance.choice([1, 2, 4, 4, 4, 8, 16])
        if self.chance.random() < 0.5:  # the manager was away
            self.pass_time(here + 6 * sixes * HOUR - now)
            return
        for n in range(1, sixes + 1):
            self.pass_time(here + 6 * n * HOUR - self.manager.clock.now())

    def backfill(self) -> None:
        backfill = self.new_backfill(self.some_dag())
        self.settle()
        self.model.go_on(backfill)

    def may_batch(self, dag: PlainDag, places: list[Any]) -> bool:
        """Not of dates at the newest end that had no run: between the halves of a batch that failed, the schedule may go on from
        the first half, or not yet."""
        line = [run for run in self.model.timeline(dag.dag_id) if self.model._carries(run)]
        done = {run.place for run in line if len(run.places) == 1}
        return bool(line) and all(isinstance(one, str) or one < line[-1].place or one in done for one in places)

    def midway(self) -> None:
        """Something is asked while the first runs of a backfill are going on."""
        chance, dag = self.chance, self.some_dag()
        what = chance.choice(self.midway_asks)
        few: dict[str, Any] = {"batch": 1} if what == "let finish" else {}
        if what in ("mark run", "mark task", "clear"):  # of a run that is new: nothing of it has finished
            few["reprocess"] = chance.choice(["none", "failed", "completed"])
        if dag.past:  # what failed of a run may be held by its past, so that nothing of it runs when something is asked
            few["reprocess"] = chance.choice(["none", "failed", "completed"])
        backfill = self.new_backfill(
            dag, **few, tasks="", stop_on_failure=None, mark_success=False, is_paused=False, max_active_runs=chance.randint(1, 3)
        )  # fmt: skip
        self.held.add(dag.dag_id)
        self.settle()
        runs = self.model.go_on(backfill, most_runs=backfill.max_active_runs)
        self.record(f"  {what} while {[run.run_id for run in runs]} run")
        if not runs:
            self.held.clear()
            return
        one, marked = chance.choice(runs), ""
        match what:
            case "cancel" | "let finish":
                self.ask("backfill.cancel", backfill_id=backfill.backfill_id, let_running_finish=what != "cancel")
                self.model.cancel(backfill)
                for run in runs if what == "cancel" else ():
                    self.model.stop(run)
            case "pause":
                self.ask("backfill.pause", backfill_id=backfill.backfill_id)
                backfill.is_paused, backfill.state = True, "paused"
            case "cancel run":
                self.ask("run.cancel", dag_id=dag.dag_id, run_id=one.run_id)
                self.model.stop(one)
            case "mark run":
                state = chance.choice(["success", "failed"])
                self.marked.add((dag.dag_id, one.run_id))
                self.ask("run.mark", dag_id=dag.dag_id, run_id=one.run_id, state=state)
                one.tasks = dict.fromkeys(one.tasks, state)
                one.has_launched = True
                self.model.play(one)
                one.has_begun = False  # so that a batch that is marked failed is not tried again in halves
                self.model.conclude(one)
            case "mark task":
                marked, state = chance.choice(list(one.tasks)), chance.choice(["success", "failed", "skipped"])
                self.marked.add((dag.dag_id, one.run_id))
                self.ask("task.mark", dag_id=dag.dag_id, run_id=one.run_id, task_id=marked, state=state)
                one.tasks[marked] = state
                one.has_launched = one.has_begun = True
            case "clear":
                self.ask("tasks.clear", ask={"dag": dag.dag_id, "run_ids": [one.run_id]})
            case _:
                self.crash_if_it_may()
                self.settle()
        self.release()
        self.settle()
        for run in runs:
            if run.state == "queued":
                self.model.play(run)
                if run is one and [task for task, state in run.tasks.items() if state == "failed"] == [marked]:
                    run.has_begun = False  # it failed by the mark alone: a batch is not tried again in halves
                self.model.conclude(run)
        self.model.go_on(backfill)

    def steer(self) -> None:
        """Of a backfill that is paused, if there is one."""
        chance = self.chance
        paused = [backfill for backfill in self.model.backfills.values() if backfill.is_paused]
        any_one = list(self.model.backfills.values())
        if not any_one:
            return
        backfill = chance.choice(paused or any_one)
        what = chance.choice(["resume", "resume", "cancel", "pause", "set"])
        if what == "resume":
            self.resume(backfill)
        elif what == "cancel":
            was_live = backfill.is_live
            self.ask(
                "backfill.cancel", was_live, backfill_id=backfill.backfill_id, let_running_finish=chance.random() < 0.5
            )
            if was_live:
                self.model.cancel(backfill)
        elif what == "pause":
            self.ask("backfill.pause", backfill.is_live, backfill_id=backfill.backfill_id)
        else:
            batch = chance.choice([1, 2, 5])
            may = backfill.is_live and (batch == 1 or (backfill.dag.batchable and backfill.reprocess != "failed_tasks"))
            self.ask("backfill.set", may, backfill_id=backfill.backfill_id, changes={"batch": batch, "priority": 3})
            if may:
                backfill.batch = batch

    def resume(self, backfill: PlainBackfill) -> None:
        was_live = backfill.is_live
        self.ask("backfill.unpause", was_live, backfill_id=backfill.backfill_id)
        if was_live:
            self.model.resume(backfill)

    def retry(self) -> None:
        ended = [backfill for backfill in self.model.backfills.values() if backfill.state == "failed"]
        others = list(self.model.backfills.values())
        if others:
            backfill = self.chance.choice(ended if ended and self.chance.random() < 0.9 else others)
            may = not backfill.is_live and backfill.count("failed") > 0
            self.ask("backfill.retry", may, backfill_id=backfill.backfill_id)
            self.model.retry(backfill)
            while may and backfill.dag.past and backfill.is_paused:
                self.resume(
                    backfill
                )  # later runs wait for the dates that it is to run again, which the model does not know

    def clear(self) -> None:
        chance, dag = self.chance, self.some_dag()
        dates = self.some_dates(dag)
        first, last = (None, None) if chance.random() < 0.05 else (dates[0], dates[-1])
        tasks = chance.choice(["", "", chance.choice(list(dag.tasks))])
        how = {"downstream": chance.random() < 0.5, "only_failed": chance.random() < 0.4}
        span = {"start": format_instant(first), "end": format_instant(last)} if first else {}
        ask = {"dag": dag.dag_id, **span, **({"tasks": tasks} if tasks else {}), **how}
        self.record(f"tasks.clear {ask}")
        self.manager.ask("tasks.clear", ask=ask)
        self.settle()
        may = self.model.clear(dag.dag_id, first, last, tasks, **how)
        answer = self.manager.store.rows("response")[-1]
        assert isinstance(answer, Response)
        assert (answer.outcome == "accepted") == may, answer.message

    def some_run(self) -> PlainRun | None:
        found = list(self.model.standing[self.some_dag().dag_id].values())
        return self.chance.choice(found) if found else None

    def mark_run(self) -> None:
        run = self.some_run()
        if run is not None:
            state = self.chance.choice(["success", "failed"])
            self.marked.add((run.dag.dag_id, run.run_id))
            self.ask("run.mark", dag_id=run.dag.dag_id, run_id=run.run_id, state=state)
            self.model.mark_run(run, state)

    def mark_task(self) -> None:
        run = self.some_run()
        chosen = sorted(set(run.tasks) - run.left_out) if run is not None else []
        if run is not None:
            task, state = self.chance.choice(chosen), self.chance.choice(["success", "failed", "skipped"])
            self.marked.add((run.dag.dag_id, run.run_id))
            self.ask("task.mark", dag_id=run.dag.dag_id, run_id=run.run_id, task_id=task, state=state)
            self.model.mark_task(run, task, state)

    def trigger(self) -> None:
        dag = self.some_dag()
        date = self.chance.choice([None, *self.some_dates(dag)])
        self.ask("dag.trigger", dag_id=dag.dag_id, logical_date=format_instant(date), conf={}, allow_future=True)
        run = self.model.make(dag, "manual", (date or dag.latest_complete(self.manager.clock.now()),))
        self.model.play(run)

    def run_task(self) -> None:
        dag = self.some_dag()
        date, task = self.some_dates(dag)[0], self.chance.choice(list(dag.tasks))
        answer = self.ask("task.run", dag_id=dag.dag_id, task_id=task, logical_date=format_instant(date))
        assert answer.object_id is not None
        self.model.run_task(dag.dag_id, answer.object_id, task, date)

    def pause_dag(self) -> None:
        dag = self.some_dag()
        self.set_paused(dag, not dag.is_paused)

    def set_paused(self, dag: PlainDag, paused: bool) -> None:
        self.ask("dag.pause" if paused else "dag.unpause", dag_id=dag.dag_id)
        dag.is_paused = paused
        self.model.fire_schedules(self.manager.clock.now())

    def mend(self) -> None:
        """Somebody mends what is broken, and breaks something else."""
        dag = self.some_dag()
        self.record(f"{dag.dag_id} is mended")
        self.model.worlds[dag.dag_id] += 1

    # -- what must have come out --------------------------------------------------------------------------------------
    def compare(self) -> None:
        """All that stands in the tables is what the model says."""
        # An operation may have opened a gap that the schedule fills.
        self.model.fire_schedules(self.manager.clock.now())
        self.settle()
        store, model = self.manager.store, self.model
        rows = {(run.dag_id, run.run_id): run for run in store.read(DagRun)}
        states = {key: (run.state, run.overridden_by) for key, run in rows.items() if run.run_type != s.EXTERNAL_RUN}
        expected = {key: (run.state, run.overridden_by) for key, run in model.runs.items()}
        same("runs", states, expected)
        same(
            "external runs",
            {key: run.state for key, run in rows.items() if run.run_type == s.EXTERNAL_RUN},
            model.external,
        )
        for dag_id in model.dags:
            line = [run.run_id for run in model.timeline(dag_id)]
            assert [rows[dag_id, run_id].previous_run_id for run_id in line] == [None, *line][: len(line)]
        for key, run in model.runs.items():
            first = run.place if isinstance(run.place, datetime) else None
            result = (rows[key].logical_date, rows[key].interval_end, rows[key].items, rows[key].backfill_id)
            assert result == (first, run.end, len(run.places), run.backfill), key
        tasks: dict[tuple[str, str], dict[str, str]] = {}
        instances: dict[tuple[str, str], list[TaskInstance]] = {}
        for ti in store.read(TaskInstance):
            instances.setdefault((ti.dag_id, ti.run_id), []).append(ti)
            if not self.specs[ti.dag_id].is_callback(ti.task_id):
                tasks.setdefault((ti.dag_id, ti.run_id), {})[ti.task_id] = ti.state
        for key in rows:
            self.check_callbacks(rows[key], instances[key])
        same(
            "task states", {key: tasks[key] for key in model.runs}, {key: run.tasks for key, run in model.runs.items()}
        )
        items = {(item.backfill_id, item.ordinal): (item.state, item.run_id) for item in store.read(BackfillItem)}
        plain = {
            (name, item.ordinal): (item.state, item.run_id)
            for name, backfill in model.backfills.items()
            for item in backfill.items
        }
        same("items", items, plain)
        backfills = {row.backfill_id: row.state for row in store.read(Backfill)}
        same("backfills", backfills, {name: backfill.state for name, backfill in model.backfills.items()})

    def check_rest(self) -> None:
        """At the end nothing is active, and everything has been reported once."""
        check_rest(self.manager)


class MarksMidway(Calm):
    """Also tasks of runs that are going on are marked, of which other tasks run or are still to run."""

    midway_asks = ("mark task", "mark task", "crash", "cancel run", "clear")


COMPARE_EVERY = 10


def same(what: str, found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    if found != expected:
        apart = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        result = [f"{key}: is {found.get(key)}, should be {expected.get(key)}" for key in apart[:6]]
        raise AssertionError(f"{len(apart)} {what} differ: {'; '.join(result)}")


def check_rest(manager: InMemoryManager) -> None:
    store = manager.store
    assert not manager.state.runs and not manager.state.backfills and not manager.running
    assert not [run for run in store.read(DagRun) if run.state in s.RUN_LIVE]
    tries = Counter((row.dag_id, row.run_id, row.task_id, row.launch) for row in store.read(TaskTry))
    assert max(tries.values(), default=1) == 1, "a try is recorded once"
    launches = {ti.key: ti.launch for ti in store.read(TaskInstance)}
    assert Counter(key[:3] for key in tries) == Counter({key: n for key, n in launches.items() if n})
    submitted = [row.request_id for row in store.rows("request")]  # type: ignore[attr-defined]
    assert sorted(submitted) == sorted(row.request_id for row in store.rows("response")), "answered once"  # type: ignore[attr-defined]


class Stormy(History):
    """Everything at once, and killed at any moment. What comes of it depends on who was quicker; so what is checked are
    the rules, by telling the runs over again in the order in which they were made."""

    def run(self, operations: int) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (30, self.some_ticks), (20, self.some_ends), (14, self.time_passes), (12, self.backfill), (16, self.ask_anything),
            (2, self.crash_if_it_may), (4, self.die_soon),
        ]  # fmt: skip
        weights, deeds = zip(*choices, strict=True)
        for _ in range(operations):
            self.chance.choices(deeds, weights)[0]()
        for dag_id in self.model.dags:
            self.manager.ask("dag.unpause", dag_id=dag_id)
        self.calm_down()
        while paused := [live.row.backfill_id for live in self.manager.state.backfills.values() if live.row.is_paused]:
            self.manager.ask("backfill.unpause", backfill_id=paused[0])
            self.calm_down()
        check_rest(self.manager)
        self.check_rules()

    def calm_down(self) -> None:
        self.release()
        self.settle()

    # -- what happens -------------------------------------------------------------------------------------------------
    def script(self, launch: TaskLaunch) -> Outcome | None:
        ended = super().script(launch)
        return ended if self.chance.random() < 0.5 else self.later.setdefault(launch.key, self.outcome(launch)) and None

    def try_tick(self) -> None:
        try:
            self.tick()
        except Killed:
            self.crash()

    def some_ticks(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            self.try_tick()

    def some_ends(self) -> None:
        for key in self.chance.sample(sorted(self.later), min(len(self.later), self.chance.randint(1, 4))):
            outcome = self.later.pop(key)
            if key in self.manager.running:
                self.manager.finish(key, outcome)
        self.try_tick()

    def time_passes(self) -> None:
        self.manager.clock.advance(
            hours=self.chance.choice([1, 5, 12, 24, 24, 50]), seconds=self.chance.randint(0, 3599)
        )
        self.try_tick()

    def die_soon(self) -> None:
        if not isinstance(self.manager.leader, Mortal) and not a_third_kill_would_fail_a_task(self.manager):
            self.manager.leader = Mortal(self.manager.leader, self.chance.randint(0, 8))  # type: ignore[assignment]

    def backfill(self) -> None:
        if isinstance(self.manager.leader, Mortal):  # the in-memory manager makes a backfill in commits of its own
            self.manager.leader = self.manager.leader._leader
        self.new_backfill(self.some_dag())

    def ask_anything(self) -> None:
        """Whatever a person may ask at this moment, sensible or not."""
        chance, dag = self.chance, self.some_dag()
        a_task = next(iter(dag.tasks))
        backfill_id = chance.choice([*self.model.backfills][-6:] or ["none"])
        runs = self.manager.runs(dag.dag_id)[-15:]
        run_id = chance.choice(runs).run_id if runs else "none"
        date = format_instant(chance.choice(self.some_dates(dag)))
        clear: dict[str, Any] = {
            "dag": dag.dag_id,
            "only_failed": chance.random() < 0.3,
            "downstream": chance.random() < 0.5,
        }
        span: dict[str, Any] = chance.choice([{"start": date, "end": date}, {"start": date}, {"run_ids": [run_id]}])
        of_run = {"dag_id": dag.dag_id, "run_id": run_id}
        submitted: list[tuple[str, dict[str, Any]]] = (
            [
                ("backfill.pause", {"backfill_id": backfill_id}),
                ("backfill.unpause", {"backfill_id": backfill_id}),
                ("backfill.cancel", {"backfill_id": backfill_id, "let_running_finish": chance.random() < 0.5}),
                ("backfill.retry", {"backfill_id": backfill_id}),
                ("backfill.retry", {"backfill_id": backfill_id}),
                ("backfill.set", {"backfill_id": backfill_id, "changes": {"batch": chance.choice([1, 4]), "priority": 2}}),
                ("tasks.clear", {"ask": {**clear, **span}}),
                ("tasks.clear", {"ask": {**clear, **span}}),
                ("run.mark", {**of_run, "state": chance.choice(["success", "failed"])}),
                ("task.mark", {**of_run, "task_id": a_task, "state": chance.choice(["success", "failed", "skipped"])}),
                ("run.cancel", of_run),
                ("dag.trigger", {"dag_id": dag.dag_id, "logical_date": chance.choice([None, date]), "conf": {}}),
                ("task.run", {"dag_id": dag.dag_id, "task_id": a_task, "logical_date": date}),
                (chance.choice(["dag.pause", "dag.unpause", "dag.unpause"]), {"dag_id": dag.dag_id}),
            ]
        )  # fmt: skip
        kind, payload = chance.choice(submitted)
        if kind.endswith(".mark"):
            self.marked.add((dag.dag_id, run_id))
        self.record(f"{kind} {payload}")
        self.manager.ask(kind, **payload)
        self.try_tick()

    # -- the rules ----------------------------------------------------------------------------------------------------
    def check_rules(self) -> None:
        for dag in self.model.dags.values():
            runs = sorted(self.manager.runs(dag.dag_id), key=lambda run: run.run_seq)
            inside = [run for run in runs if run.run_type != s.EXTERNAL_RUN]
            self.check_timeline(inside)
            self.check_schedule(dag, inside)
            tasks: dict[str, list[TaskInstance]] = {}
            for ti in self.manager.tasks(dag.dag_id):
                tasks.setdefault(ti.run_id, []).append(ti)
            for run in runs:
                self.check_run(dag, run, tasks[run.run_id])
        self.check_backfills()

    def check_timeline(self, runs: list[DagRun]) -> None:
        by_id = {run.run_id: run for run in runs}
        standing = [run for run in runs if run.state != s.OVERRIDDEN]
        dated = sorted((run for run in standing if run.logical_date), key=lambda run: run.logical_date)  # type: ignore[arg-type,return-value]
        places = Counter((run.logical_date, run.partition_key) for run in standing)
        assert max(places.values(), default=1) == 1, "a date has one run that stands"
        result, ids = {run.run_id: run.previous_run_id for run in dated}, [run.run_id for run in dated]
        same("previous runs", result, dict(zip(ids, [None, *ids], strict=False)))
        made: Counter[Any] = Counter()
        for run in runs:
            place = (first_date(run), run.partition_key)
            made[place] += 1
            number = run.run_id.rpartition("__")[2] if run.run_id.count("__") > 1 else "1"
            assert number == str(made[place]), f"{run.run_id} is number {made[place]} of its date"
            if run.state == s.OVERRIDDEN:
                by = by_id[run.overridden_by or ""]
                assert by.run_seq > run.run_seq and by.partition_key == run.partition_key
                assert run.logical_date is None or first_date(by) <= run.logical_date < by.interval_end  # type: ignore[operator]

    def check_schedule(self, dag: PlainDag, runs: list[DagRun]) -> None:
        """Told in order: each scheduled run is what comes next after what stood then; and in the end nothing is due."""
        seq = {run.run_id: run.run_seq for run in runs}
        redone = {run.overridden_by for run in runs if run.state == s.OVERRIDDEN}
        for run in runs:
            if run.interval_start is not None and run.interval_end is not None:
                assert run.items == sum(run.interval_start <= at < run.interval_end for at in dag.grid)
            if run.run_type != s.SCHEDULED_RUN or (dag.lookback and run.run_id in redone):
                continue
            then = [old for old in runs if old.run_seq < run.run_seq]
            gone = [old for old in then if old.state == s.OVERRIDDEN and seq[old.overridden_by or ""] < run.run_seq]
            assert run.logical_date == self.due(dag, then, gone, run.created_at), f"{run.run_id} was not what came next"
        gone = [run for run in runs if run.state == s.OVERRIDDEN]
        assert self.due(dag, runs, gone, self.manager.clock.now()) is None, "nothing is due any more"

    @staticmethod
    def due(dag: PlainDag, runs: list[DagRun], gone: list[DagRun], now: datetime) -> datetime | None:
        """What the schedule makes next: after the last whole run of its own or of a backfill that was made in time, or
        that did such a one over; dates that have a run of their own already, made in time, are passed over."""

        def in_time(run: DagRun) -> bool:
            return run.run_type == s.SCHEDULED_RUN or run.created_at >= run.interval_end  # type: ignore[operator]

        def by_itself(run: DagRun) -> bool:
            return run.run_type != s.MANUAL_RUN and not run.is_partial and in_time(run)

        dated = [run for run in runs if run.logical_date is not None]
        carried = {run.logical_date for run in dated if run in gone and by_itself(run)}
        standing = [run for run in dated if run not in gone]
        carriers = [run for run in standing if by_itself(run) or run.logical_date in carried]

        def is_passed_over(date: datetime) -> bool:
            of_date = [run for run in standing if run.logical_date <= date < run.interval_end]  # type: ignore[operator]
            there = max(of_date, key=lambda run: run.logical_date, default=None)  # type: ignore[arg-type,return-value]
            return there is not None and (there in carriers or (not there.is_partial and in_time(there)))

        begin = max([*(run.interval_end for run in carriers), *([dag.start] if dag.start else [])], default=None)  # type: ignore[type-var]
        start = dag.latest_complete(now)
        if begin is not None and (dag.catchup or start < begin):
            start = dag.first_from(begin)
        while is_passed_over(start):
            start = dag.end_of(start)
        return start if dag.end_of(start) <= now else None

    def check_run(self, dag: PlainDag, run: DagRun, tasks: list[TaskInstance]) -> None:
        """Its tasks ended as it was their fate, or as a person said; the run as its tasks."""
        self.check_callbacks(run, tasks)
        tasks = [ti for ti in tasks if not self.specs[dag.dag_id].is_callback(ti.task_id)]
        states = {ti.task_id: ti.state for ti in tasks}
        assert set(states) == set(dag.tasks) or run.run_type == s.EXTERNAL_RUN
        chosen = {ti.task_id for ti in tasks if ti.error != "left out by the backfill's tasks"}
        if run.state == s.SUCCESS:
            assert not {s.CANCELLED} & {states[task] for task in chosen}
        elif run.state == s.FAILED and run.run_type != s.EXTERNAL_RUN:
            assert {s.FAILED, s.UPSTREAM_FAILED} & set(states.values())
        elif run.state == s.CANCELLED:
            assert s.CANCELLED in states.values()
        if (run.dag_id, run.run_id) in self.marked:
            return
        places = [run.partition_key] if run.partition_key else [
            at for at in dag.grid if first_date(run) <= at < run.interval_end  # type: ignore[operator]
        ]  # fmt: skip
        for ti in tasks:
            assert ti.state in s.TASK_FINISHED
            failures = fate_of_run(self.seed, dag.dag_id, ti.task_id, places, 0)
            if ti.generation or not ti.launch:
                continue
            if ti.state == s.SUCCESS:
                assert 0 <= failures <= 2 and ti.failures == failures
            elif ti.state == s.FAILED:
                assert failures > 0 and ti.failures <= failures
            elif ti.state == s.SKIPPED:
                assert failures < 0

    def check_backfills(self) -> None:
        runs = {(run.dag_id, run.run_id): run for run in self.manager.store.read(DagRun)}
        for row in self.manager.store.read(Backfill):
            items = self.manager.items(row.backfill_id)
            states = {item.state for item in items}
            assert states <= set(s.ITEM_STATES) - set(s.ITEM_UNFINISHED)
            derived = s.FAILED if states & {s.FAILED, s.CANCELLED} else s.SUCCESS
            assert row.state == (s.CANCELLED if row.is_cancelled else derived), (
                f"backfill {row.backfill_id} is {row.state}, its items {states}"
            )
            for item in items:
                run = runs.get((row.dag_id, item.run_id or ""))
                if (
                    run is not None
                    and run.backfill_id == row.backfill_id  # its failed tasks may have run again for another one since
                    and run.state != s.OVERRIDDEN
                    and item.state != s.SKIPPED
                    and "deadlock" not in str(item.reason)
                ):
                    assert item.state == run.state or item.state == s.CANCELLED, f"{item} of {run}"
