"""When a task of a run that may start (`runs.py`) may start itself; slots and limits come after it (task_slots.py). Pure
decisions over `ManagerState`.

A task becomes ready when all of this allows it, asked in this order:

1. its upstream: its trigger rule (trigger_rules.py), and the tasks that it is mapped over have ended;
2. the run before: `depends_on_past`, `wait_for_downstream` (past_runs.py);
3. the data that it waits for: `waits_for`, up to its `wait_limit` (data_waits.py).

Then it is `scheduled`. Which of those get a slot is in task_slots.py.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, partial
from typing import Final

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.errors import shorten
from backfill_manager.humanise import duration
from backfill_manager.manager.decisions.data_waits import forget_wait_ends, missing_data, wait_ends_at
from backfill_manager.manager.decisions.map_tasks import map_tasks, over_tasks
from backfill_manager.manager.decisions.past_runs import ACTIVE, past_obstacle, repeating_before, wait_of
from backfill_manager.manager.decisions.trigger_rules import Verdict, counted_state, evaluate
from backfill_manager.manager.state import ActiveRun
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance

MAX_SHOWN: Final = 10  # of what a run waits for
MAX_SHOWN_LENGTH: Final = 300


def schedule_tasks(tick: Tick, run: ActiveRun) -> dict[str, str]:
    """Schedules the tasks of a run that may start now; returns those that are blocked for ever, with the reason, when nothing
    else of the run waits for data."""
    while (blocked := _Readiness(tick, run).schedule()) is None:
        pass
    return blocked


class _Readiness:
    """One look at all tasks of a run."""

    def __init__(self, tick: Tick, run: ActiveRun) -> None:
        self._tick, self._run = tick, run
        self._repeating = cache(partial(repeating_before, tick.state, run))  # the same for all of its tasks
        self._mapped_again = {
            task_id for task_id in run.spec.mapped_over_results
            if task_id in run.selected and task_id in run.tasks and run.tasks[task_id].state not in s.TASK_FINISHED
        }  # fmt: skip
        self._blocked: dict[str, str] = {}  # for ever, with the reason
        self._awaited: dict[str, None] = {}  # what the run is said to wait for
        self._waiting = set[str]()  # tasks that wait for data

    def schedule(self) -> dict[str, str] | None:
        """Tasks that are blocked; None: the run has other tasks now, and what comes after them waits for others."""
        tick, run = self._tick, self._run
        run.waits_for_past = False
        mapped_now: list[TaskSpec] = []
        for task in run.spec.in_order:
            ti = run.tasks.get(task.task_id)
            if ti is None:
                continue
            if ti.state == s.UP_FOR_RETRY and (ti.retry_at is None or ti.retry_at <= tick.now):
                tick.put(c.scheduled(ti))
            elif ti.state == s.SCHEDULED and ti.queued_at is None and self._past_obstacle(task) is not None:
                ti = c.held_back(ti)  # a run has come before this one while it waited for its first slot
                tick.put(ti)
            if ti.state != s.NONE or task.is_callback or not self._is_ready(task, ti):
                continue
            if task.over_result_of is None:
                tick.put(c.scheduled(ti))
            else:
                mapped_now.append(task)
        if mapped_now and map_tasks(tick, run, mapped_now):
            return None
        self._note_waits()
        return {} if self._waiting else self._blocked

    def _is_ready(self, task: TaskSpec, ti: TaskInstance) -> bool:
        verdict = self._verdict_of_upstream(task)
        if verdict == "skip":
            self._tick.put(c.skipped(ti, self._tick.now, c.SKIPPED_BY_UPSTREAM))
        elif verdict == "upstream_failed":
            self._tick.put(c.upstream_failed(ti, self._tick.now))
        return verdict == "start" and self._past_allows(task) and self._data_is_there(task, ti)

    def _verdict_of_upstream(self, task: TaskSpec) -> Verdict:
        run = self._run
        if self._mapped_again and any(run.spec.task(up).mapped_from in self._mapped_again for up in task.upstream):
            return "wait"  # for those that are mapped then
        upstream = {counted_state(run, up) for up in task.upstream if up in run.selected and up in run.tasks}
        verdict = evaluate(task.trigger_rule, upstream)
        if verdict != "start" or task.over_result_of is None:
            return verdict
        has_values = all(over.state in s.TASK_FINISHED for over in over_tasks(run, task).values())
        return "start" if has_values else "wait"  # whatever its rule says

    def _past_obstacle(self, task: TaskSpec) -> str | None:
        return past_obstacle(self._tick.state, self._run, task, self._repeating)

    def _past_allows(self, task: TaskSpec) -> bool:
        obstacle = self._past_obstacle(task)
        if obstacle == ACTIVE:
            self._run.waits_for_past = True
            if (repeating := self._repeating()) is not None and (waits := wait_of(repeating.row)):
                self._awaited[f"backfill {repeating.row.backfill_id}, which {waits}"] = None
        elif obstacle is not None:
            self._blocked[task.task_id] = obstacle
        return obstacle is None

    def _data_is_there(self, task: TaskSpec, ti: TaskInstance) -> bool:
        """If not, it goes on waiting, or ends with its limit."""
        tick, run = self._tick, self._run
        missing = missing_data(tick.state, run, task)
        if not missing:
            return True
        ends_at = wait_ends_at(tick.state, run, task, ti, tick.now)
        if ends_at is None or tick.now < ends_at:
            self._awaited |= dict.fromkeys(missing)
            self._waiting.add(task.task_id)
            if ti.wait_ends_at is None and ends_at is not None:
                tick.put(ti.evolve(wait_ends_at=ends_at))  # the next manager counts on
        else:
            why = f"waited {duration(task.wait_limit or 0)} for {_listed(missing)}"
            # some intervals of a batch may have their data: its halves show which, or, where it is not split, its failure
            is_skipped = task.after_wait_limit == "skip" and run.row.items == 1
            tick.put(c.skipped(ti, tick.now, why) if is_skipped else c.failed(ti, tick.now, why))
        return False

    def _note_waits(self) -> None:
        run = self._run
        run.waits_for_data = bool(self._waiting)
        forget_wait_ends(self._tick, run, self._waiting)
        reason = f"waits for {_listed(self._awaited)}" if self._awaited else None
        if run.row.reason != reason:
            self._tick.put(run.row.evolve(reason=reason))


def _listed(awaited: Collection[str]) -> str:
    """As text of a bounded length: a run shows it."""
    shown = list(awaited)[:MAX_SHOWN]
    more = f" and {len(awaited) - MAX_SHOWN} more" if len(awaited) > MAX_SHOWN else ""
    return ", ".join(shorten(one, MAX_SHOWN_LENGTH) for one in shown) + more
