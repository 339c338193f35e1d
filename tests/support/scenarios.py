"""Shared steps of the manager's stories: submit requests, let time pass, assert that nothing hangs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Cancelled, LaunchKey, Outcome, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Response, TaskInstance
from backfill_manager.model.transitions import Changes
from backfill_manager.number_ranges import Ranges
from backfill_manager.store.base import Leader
from backfill_manager.testing import InMemoryManager, dag_spec, days

JANUARY = days("2013-01-01", 5)
PIPELINE = dag_spec("d", "a", "b", upstream={"b": ["a"]})


def never(_: TaskLaunch) -> Outcome | None:
    """A task that runs until `finish` is called."""
    return None


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


FROM_2024 = {"start_date": at("2024-01-01"), "catchup": True}
PAST = {"a": {"depends_on_past": True}}


def next_due(manager: InMemoryManager) -> datetime | None:
    """When the manager would wake by itself."""
    return manager._decisions.next_due(manager.clock.now())


def play(manager: InMemoryManager, until: str) -> None:
    """Time passes as it would for a manager that sleeps until something is due."""
    end = at(until)
    manager.drain()
    while (due := next_due(manager)) is not None and due <= end:
        assert due > manager.clock.now(), "what is due has been done"
        manager.clock.advance(seconds=(due - manager.clock.now()).total_seconds())
        manager.drain()
    manager.clock.advance(seconds=(end - manager.clock.now()).total_seconds())
    manager.drain()
    nothing_hangs(manager)


def nothing_hangs(manager: InMemoryManager) -> None:
    """docs/semantics.md, S90: with no task running and no time to wait for, nothing is alive but what
    a person has paused, and every request has its answer."""
    manager.drain()
    if manager.running:
        return
    assert not manager.state.runs, [(run.row.run_id, run.row.state, run.tasks) for run in manager.state.runs.values()]
    assert not manager.store.unanswered()
    going_on = [live.row for live in manager.state.backfills.values() if not live.row.is_paused and not live.row.window]
    assert not going_on
    live = [run.run_id for run in manager.store.read(DagRun) if run.state in s.RUN_LIVE]
    assert not live, "the tables say what memory says"


def response_to(manager: InMemoryManager, kind: str, **payload: Any) -> Response:
    """Ask, and let everything happen that follows; the answer."""
    manager.ask(kind, **payload)
    manager.drain()
    request = manager.store.rows("request")[-1]
    (answer,) = [row for row in manager.store.read(Response) if row.request_id == request.request_id]  # type: ignore[attr-defined]
    return answer


def accepted(manager: InMemoryManager, kind: str, **payload: Any) -> Response:
    answer = response_to(manager, kind, **payload)
    assert answer.outcome == "accepted", answer.message
    return answer


def refused(manager: InMemoryManager, kind: str, **payload: Any) -> str:
    answer = response_to(manager, kind, **payload)
    assert answer.outcome == "refused", answer.message
    return answer.message


def clear(dag: str, **how: Any) -> dict[str, Any]:
    """The payload of a clear."""
    return {"ask": {"dag": dag, **how}}


def timeline(manager: InMemoryManager, dag_id: str) -> list[DagRun]:
    """The runs that stand, by date; that each points to the one before it is a rule that holds always."""
    apart = (s.EXTERNAL_RUN, s.PREVIEW_RUN)
    runs = [run for run in manager.runs(dag_id) if run.state != s.OVERRIDDEN and run.run_type not in apart]
    dated = [run for run in runs if run.logical_date is not None]
    assert [run.previous_run_id for run in dated] == [None, *(run.run_id for run in dated[:-1])][: len(dated)]
    return runs


def dates(runs: list[DagRun]) -> list[str]:
    """`01-31` each; with the hour where it is not midnight."""
    found = [run.logical_date for run in runs if run.logical_date is not None]
    return [f"{date:%m-%d}" if date.hour == 0 else f"{date:%m-%dT%H}" for date in found]


def task_of(manager: InMemoryManager, run_id: str, task_id: str) -> TaskInstance:
    (found,) = [ti for ti in manager.store.read(TaskInstance) if (ti.run_id, ti.task_id) == (run_id, task_id)]
    return found


def key_of(manager: InMemoryManager, part_of_run_id: str, task_id: str | None = None) -> LaunchKey:
    """The one running task of the run whose id holds this text."""
    (key,) = [key for key in manager.running if part_of_run_id in key[1] and task_id in (None, key[2])]
    return key


class Stubborn(InMemoryManager):
    """Tasks that have been told to stop go on until `give_in`: as Spark jobs may, for a while."""

    stubborn = True

    def finish(self, key: LaunchKey, outcome: Outcome, spark_jobs: Sequence[int] = ()) -> None:
        if not (self.stubborn and isinstance(outcome, Cancelled)):
            super().finish(key, outcome, spark_jobs)

    def give_in(self, part_of_run_id: str) -> None:
        super().finish(key_of(self, part_of_run_id), Cancelled("told to stop"))


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

    def move_items(self, backfill_id: str, was: str, state: str, reason: str, ordinals: Ranges | None = None) -> None:
        self._one_more()
        self._leader.move_items(backfill_id, was, state, reason, ordinals)


def a_third_kill_would_fail_a_task(manager: InMemoryManager) -> bool:
    """The rule of three losses in a row (`manager.crash_loops`) has its own tests; where kills come by chance it stays out."""
    return any((ti.losses or 0) >= 2 for _, ti in manager.state.tasks())


def dies_after(manager: InMemoryManager, tables: int) -> bool:
    """Let it go on until it has committed so many tables more, then kill it and start the next; False if it had come to
    rest before."""
    manager.leader = Mortal(manager.leader, tables)  # type: ignore[assignment]
    try:
        manager.drain()
    except Killed:
        manager.crash()
        return True
    manager.leader = manager.leader._leader  # type: ignore[attr-defined]
    return False
