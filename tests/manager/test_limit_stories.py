"""Limits, pools and priority: what may run at once, and what goes first, decided without Spark, Delta or a JVM."""

from __future__ import annotations

import json

from support.scenarios import JANUARY, never

from backfill_manager.execution.messages import (
    Succeeded,
)
from backfill_manager.model import states as s
from backfill_manager.model.records import Response
from backfill_manager.requests.checked_payloads import set_pool
from backfill_manager.settings import Settings
from backfill_manager.testing import InMemoryManager, dag_spec, days


def test_a_task_that_waits_for_a_slot_waits_for_a_run_that_is_inserted_before_its_own() -> None:
    spec = dag_spec("d", "t", each={"t": {"depends_on_past": True}})
    manager = InMemoryManager(dag_spec("other", "t"), spec, script=never, slots=1)
    manager.backfill("other", JANUARY[:3], priority=5)
    manager.backfill("d", JANUARY[1:2], priority=1, ignore_first_depends_on_past=False)
    manager.drain()
    assert [ti.state for ti in manager.tasks("d")] == [s.SCHEDULED]
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    while manager.running:
        manager.finish(next(iter(manager.running)), Succeeded())
        manager.drain()
    assert [launch.run.run_id[15:20] for launch in manager.launched if launch.ti.dag_id == "d"] == ["01-01", "01-02"]


def test_higher_priority_goes_first_then_older() -> None:
    manager = InMemoryManager(dag_spec("low", "t"), dag_spec("high", "t"), script=never, slots=2)
    manager.backfill("low", JANUARY[:2], priority=0)
    manager.backfill("high", JANUARY[:2], priority=5)
    manager.drain()
    assert [launch.ti.dag_id for launch in manager.launched] == ["high", "high", "low", "low"], "two slots, two ahead"


def test_limits_of_dag_and_task_hold() -> None:
    manager = InMemoryManager(
        dag_spec("d", "t", max_active_tasks=3), dag_spec("e", "t", each={"t": {"max_active_tis": 1}}), script=never
    )
    manager.backfill("d", JANUARY)
    manager.backfill("e", JANUARY)
    manager.drain()
    assert sorted(launch.ti.dag_id for launch in manager.launched) == ["d", "d", "d", "e"]


def test_a_backfill_never_takes_a_scheduled_runs_slots() -> None:
    manager = InMemoryManager(dag_spec("d", "t", each={"t": {"pool": "scheduled"}}), script=never)
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    assert manager.launched[0].pool == "backfill"


def test_limits_of_a_process_are_those_of_the_task_else_of_its_pool_else_by_what_made_its_run() -> None:
    spec = dag_spec("d", "own", "plain", each={"own": {"memory": 2048, "nice": 1}})
    manager = InMemoryManager(spec)

    def limits() -> dict[str, tuple[int | None, int]]:
        manager.drain()
        launches = [manager.launched.pop() for _ in range(len(manager.launched))]
        return {launch.ti.task_id: (launch.memory_mb, launch.nice) for launch in launches}

    manager.backfill("d", JANUARY[:1])
    assert limits() == {"own": (2048, 1), "plain": (None, 10)}
    manager.ask("dag.trigger", dag_id="d", logical_date=None, conf={})
    assert limits() == {"own": (2048, 1), "plain": (None, 5)}

    manager.ask("pool.set", name="backfill", slots=16, weight=1, min_share=0, memory_mb="1.5 GB", nice="15")
    manager.backfill("d", JANUARY[2:3], overrides_json=json.dumps({"own.memory": "512 MB"}))
    assert limits() == {"own": (512, 1), "plain": (1536, 15)}
    manager.ask("pool.set", name="backfill", slots=8, weight=1, min_share=0)
    assert manager.state.pools["backfill"].memory_mb == 1536, "a release that does not know of limits leaves them"
    manager.ask("pool.set", name="backfill", slots=8, weight=1, min_share=0, memory_mb=None, nice=None)
    manager.backfill("d", JANUARY[3:4])
    assert limits() == {"own": (2048, 1), "plain": (None, 10)}
    answers = [row.message for row in manager.store.read(Response) if row.kind == "pool.set"]
    assert sorted(answers) == [
        "pool backfill has 16 slots, 1,536 MB of memory a task, nice 15",
        "pool backfill has 8 slots",
        "pool backfill has 8 slots, no limit of memory, the default nice",
    ]


def test_two_changes_of_a_pool_that_waited_are_both_made() -> None:
    manager = InMemoryManager(dag_spec("d", "own"))
    first, second = (
        set_pool(manager.store, Settings(), "backfill", **change)
        for change in ({"slots": 3, "nice": "7"}, {"weight": 9})
    )  # both made before the manager took either
    manager.ask("pool.set", **first)
    manager.ask("pool.set", **second)
    manager.drain()
    pool = manager.state.pools["backfill"]
    assert (pool.slots, pool.weight, pool.nice) == (3, 9, 7)


def test_a_heavy_task_is_not_overtaken_by_lighter_ones_for_ever() -> None:
    heavy = dag_spec("h", "w", each={"w": {"weight": 4, "priority": 100}}, schedule=None)
    manager = InMemoryManager(dag_spec("d", "a", schedule=None), heavy, script=lambda _: None, slots=4)
    manager.backfill("d", days("2013-01-01", 100), max_active_runs=100)
    manager.drain()
    manager.backfill("h", days("2013-01-01", 1), priority=100)
    manager.drain()
    ended = 0
    while not any(launch.task.task_id == "w" for launch in manager.launched):
        manager.finish(next(iter(manager.running)), Succeeded())
        manager.drain()
        ended += 1
        assert ended < 20, "the tasks that had a slot, and those that were handed over before it came"
