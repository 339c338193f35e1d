"""Batches that size themselves (`batch=auto`): in memory, with tasks that take as long as the test says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.fake_tables import FakeTables
from support.scenarios import accepted, at, dies_after, key_of, nothing_hangs, refused, timeline

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import AccessedTable, Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.decisions.item_outcomes import ENDED_EARLY
from backfill_manager.model import states as s
from backfill_manager.model.records import AUTO_BATCH, Pool, TaskInstance
from backfill_manager.planning.backfills.past_costs import read_past
from backfill_manager.planning.batches.auto_batch_size import GROWTH
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days

SPEC = dag_spec("d", "a", batchable=True)
Seconds = Callable[[TaskLaunch], float]


def taking(fixed_s: float, per_item_s: float) -> Seconds:
    return lambda launch: fixed_s + per_item_s * launch.run.items


def ground_with(*, slots: int = 16, spec: object = SPEC) -> InMemoryManager:
    return InMemoryManager(spec, script=lambda _: None, slots=slots)  # type: ignore[arg-type]


def run_through(
    manager: InMemoryManager, seconds: Seconds, outcome: Callable[[TaskLaunch], Outcome] = lambda _: Succeeded(),
    until: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Time goes on from the end of one task to the end of the next."""
    ends = {key: None for key in ()}  # type: ignore[var-annotated]
    for _ in range(10_000):
        manager.drain()
        for key, launch in manager.running.items():
            ends.setdefault(key, manager.clock.monotonic() + seconds(launch))
        live = {key: at for key, at in ends.items() if key in manager.running}
        if not live or until():
            return
        key = min(live, key=lambda one: live[one])
        manager.clock.advance(seconds=max(0.0, live[key] - manager.clock.monotonic()))
        manager.finish(key, outcome(manager.running[key]))
    raise AssertionError("still busy")


def made(manager: InMemoryManager) -> list[int]:
    """Items of each run, in the order of making."""
    return [run.items for run in sorted(manager.runs("d"), key=lambda run: (run.created_at, run.run_seq))]


def auto(manager: InMemoryManager, n: int, **more: object) -> str:
    return manager.backfill("d", days("2013-01-01", n), batch=AUTO_BATCH, **{"max_active_runs": 4, **more})


def test_a_backfill_grows_its_batches_until_its_slots_end_together() -> None:
    manager = ground_with()
    backfill = auto(manager, 365)
    run_through(manager, taking(10.0, 0.1))
    assert manager.states(backfill) == {s.SUCCESS: 365}
    sizes = made(manager)
    assert sizes[:4] == [1] * 4 and sizes[4] == 4 and max(sizes) > 40 and len(sizes) <= 20
    assert all(size <= GROWTH * max(sizes[:place]) for place, size in enumerate(sizes) if place)
    last = [run for run in manager.runs("d") if run.started_at == max(one.started_at for one in manager.runs("d"))]  # type: ignore[type-var]
    ended = sorted(run.ended_at for run in manager.runs("d") if run.ended_at is not None)[-4:]
    assert last and (ended[-1] - ended[0]).total_seconds() < 10.0  # one fixed part
    timeline(manager, "d")


def test_no_run_takes_longer_than_the_target() -> None:
    manager = ground_with()
    auto(manager, 200, max_active_runs=2, batch_target=60.0)
    run_through(manager, taking(10.0, 5.0))
    assert max(made(manager)) == 10  # 10 + 10 * 5 seconds


def test_no_task_is_given_more_than_it_does_in_half_of_its_timeout() -> None:
    manager = ground_with(spec=dag_spec("d", "a", batchable=True, each={"a": {"timeout": 60.0}}))
    auto(manager, 60, max_active_runs=2)
    run_through(manager, taking(10.0, 5.0))
    assert max(made(manager)) == 4  # 10 + 4 * 5 seconds


def test_the_target_of_the_configuration_counts_where_the_backfill_has_none() -> None:
    manager = ground_with()
    manager.state.batch_target_s = 30.0
    auto(manager, 100, max_active_runs=2)
    run_through(manager, taking(10.0, 5.0))
    assert max(made(manager)) == 4


def test_it_shrinks_when_runs_become_slow() -> None:
    """From 2015 on an item takes a hundred times as long."""
    manager = ground_with()
    auto(manager, 3000, max_active_runs=1, batch_target=60.0)

    def seconds(launch: TaskLaunch) -> float:
        start = launch.run.interval_start
        assert start is not None
        return 1 + launch.run.items * (5.0 if start.year >= 2015 else 0.05)

    run_through(manager, seconds)
    sizes = made(manager)
    largest = max(sizes)
    after = sizes[sizes.index(largest) + 1 :]
    assert largest == 1000 and len(after) > 20 and max(after[-20:]) <= 13


def test_it_ends_within_its_time_window() -> None:
    """From 22:00 to 23:00; a run of all would take two hours."""
    manager = ground_with()
    manager.clock.advance(hours=22)
    auto(manager, 300, max_active_runs=1, window="22:00-23:00", batch_target=86_400.0)
    run_through(manager, taking(60.0, 25.0))
    for run in manager.runs("d"):
        assert run.started_at is not None and run.ended_at is not None
        closes = run.started_at.replace(hour=23, minute=0, second=0, microsecond=0)
        assert run.started_at.hour == 22 and (run.items == 1 or run.ended_at <= closes)


def test_after_a_failure_batches_are_smaller_and_it_is_halved_down_to_the_day() -> None:
    manager = ground_with()
    backfill = auto(manager, 120, max_active_runs=1)
    poison = "2013-01-31"

    def outcome(launch: TaskLaunch) -> Outcome:
        start, end = launch.run.interval_start, launch.run.interval_end
        assert start is not None and end is not None
        return Failed("poison") if f"{start:%Y-%m-%d}" <= poison < f"{end:%Y-%m-%d}" else Succeeded()

    run_through(manager, taking(10.0, 0.1), outcome)
    assert manager.states(backfill) == {s.SUCCESS: 119, s.FAILED: 1}
    by_start = sorted(manager.runs("d"), key=lambda run: run.run_seq)
    failed = next(run.items for run in manager.runs("d") if run.state == s.OVERRIDDEN)
    assert failed == 64
    (at,) = [place for place, run in enumerate(by_start) if run.items == failed and run.state == s.OVERRIDDEN]
    assert by_start[at].items > max(run.items for run in by_start[at + 1 :])
    timeline(manager, "d")


def test_a_dag_with_past_runs_starts_large() -> None:
    manager = ground_with()
    auto(manager, 100)
    run_through(manager, taking(10.0, 0.1))
    largest, before = max(made(manager)), len(manager.runs("d"))
    manager.backfill("d", days("2014-01-01", 300), batch=AUTO_BATCH, max_active_runs=4)
    run_through(manager, taking(10.0, 0.1))
    assert made(manager)[before] == min(GROWTH * largest, 75)


def test_runs_that_are_no_backfills_count_too_and_partial_ones_previews_and_tasks_run_by_hand_do_not() -> None:
    manager = ground_with()
    backfill = auto(manager, 4, max_active_runs=1)
    run_through(manager, taking(10.0, 0.5))
    (first, *_), (task, *_) = manager.runs("d"), manager.tasks("d")
    by_schedule = first.evolve(run_id="scheduled__1", backfill_id=None, run_seq=901)
    partial = first.evolve(run_id="partial", backfill_id="other", is_partial=True, run_seq=902)
    by_hand = first.evolve(run_id="external", run_type=s.EXTERNAL_RUN, backfill_id=None, is_partial=None, run_seq=903)
    preview = first.evolve(run_id="preview", run_type=s.PREVIEW_RUN, backfill_id="another", run_seq=904)
    others = (by_schedule, partial, by_hand, preview)
    manager.store.write(others)
    manager.store.write([task.evolve(run_id=run.run_id, run_seq=run.run_seq) for run in others])
    of_another_dag = task.evolve(dag_id="other", run_id=by_schedule.run_id, run_seq=901, duration_s=99.0)
    manager.store.write([of_another_dag])
    assert [(run.items, run.own) for run in read_past(manager.store, SPEC)] == [(1, False), (1, False), (3, False)]
    own = read_past(manager.store, SPEC, backfill)
    assert [(run.items, run.seconds, run.own) for run in own] == [(1, 10.5, False), (1, 10.5, True), (3, 11.5, True)]


def test_of_more_past_runs_than_are_looked_at_the_newest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = ground_with()
    backfill = auto(manager, 4, max_active_runs=1)
    run_through(manager, taking(10.0, 0.5))
    monkeypatch.setattr("backfill_manager.planning.backfills.past_costs.MAX_PAST", 1)
    for own in (None, backfill):
        assert [(run.items, run.own) for run in read_past(manager.store, SPEC, own)] == [(3, own is not None)]


@pytest.mark.parametrize("rows", [None, 7])
def test_a_leader_remembers_of_runs_what_a_new_one_would_read(rows: int | None) -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True)
    manager = ground_with(spec=spec)
    backfill = auto(manager, 40, max_active_runs=1)
    run_through(
        manager, taking(10.0, 0.5), lambda launch: Succeeded(rows_written=rows and rows * launch.run.items),
        until=lambda: len(made(manager)) == 3,
    )  # fmt: skip
    past = manager.state.backfills[backfill].past
    assert past == read_past(manager.store, spec, backfill)
    assert [(run.items, run.rows) for run in past or ()] == [(1, 14 if rows else 0), (4, 56 if rows else 0)]


def test_a_mark_is_no_work_that_is_remembered() -> None:
    manager = ground_with()
    backfill = auto(manager, 40, max_active_runs=1)
    run_through(manager, taking(10.0, 0.5), until=lambda: len(made(manager)) == 3)
    first = manager.runs("d")[0]
    accepted(manager, "task.mark", dag_id="d", run_id=first.run_id, task_id="a", state="success")
    assert manager.state.backfills[backfill].past == read_past(manager.store, SPEC, backfill)


def test_a_new_leader_goes_on_with_what_the_tables_tell_of_past_runs() -> None:
    manager = ground_with()
    backfill = auto(manager, 365)
    run_through(manager, taking(10.0, 0.1), until=lambda: max(made(manager)) >= 16)
    known = len(made(manager))
    manager.crash()
    run_through(manager, taking(10.0, 0.1))
    assert min(made(manager)[known : known + 3]) >= 16
    assert manager.states(backfill) == {s.SUCCESS: 365}
    timeline(manager, "d")


def test_slots_of_the_pool_count_where_there_are_fewer_than_active_runs() -> None:
    manager = ground_with(slots=2)
    manager.state.put(Pool(name="backfill", slots=2, weight=1, min_share=0))
    manager.commit()
    auto(manager, 400, max_active_runs=16)
    run_through(manager, taking(10.0, 0.1))
    assert made(manager)[-4:] == [16, 32, 24, 8], "each takes half of what is left"
    wide = ground_with()
    auto(wide, 400, max_active_runs=16)
    run_through(wide, taking(10.0, 0.1))
    assert made(wide)[-17:] == [16, *[4] * 16], "each takes a sixteenth"


def test_runs_that_wait_for_each_other_are_not_split_over_slots() -> None:
    """All tasks depend on the past: only one run at a time can work."""
    spec = dag_spec("d", "a", batchable=True, each={"a": {"depends_on_past": True}})
    manager = ground_with(spec=spec)
    auto(manager, 1000)
    run_through(manager, taking(10.0, 0.1))
    assert made(manager)[-3:] == [256, 256, 148], "each takes as much as it may"
    order = [run for run in manager.runs("d")]
    for before, after in pairwise(order):
        assert before.ended_at is not None and after.started_at is not None and before.ended_at <= after.started_at


def test_a_task_that_waits_for_the_past_inside_a_batch_is_one_task() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True, each={"b": {"depends_on_past": True}})
    manager = ground_with(spec=spec)
    backfill = auto(manager, 100)
    run_through(manager, taking(10.0, 0.1))
    assert manager.states(backfill) == {s.SUCCESS: 100}
    of_b = [ti for ti in manager.tasks("d", "b")]
    assert len(of_b) == len(manager.runs("d"))
    ends = [ti.ended_at for ti in sorted(of_b, key=lambda ti: ti.run_id)]
    assert ends == sorted(ends, key=lambda at: (at is None, at))


def test_runs_that_wait_for_each_other_do_not_cut_the_rest_into_crumbs() -> None:
    """Eight runs at once, whose last task waits for the run before: a run lasts several times as long as its tasks take."""
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True, each={"b": {"depends_on_past": True}})
    manager = ground_with(spec=spec)
    backfill = auto(manager, 365, max_active_runs=8)
    run_through(manager, lambda launch: 8.0 + 0.005 * launch.run.items)
    assert manager.states(backfill) == {s.SUCCESS: 365}
    assert len(made(manager)) <= 32


def test_it_can_be_switched_on_and_off_while_it_runs() -> None:
    manager = ground_with()
    backfill = manager.backfill("d", days("2013-01-01", 300), max_active_runs=2)
    run_through(manager, taking(10.0, 0.1), until=lambda: len(manager.runs("d")) >= 6)
    assert max(made(manager)) == 1
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"batch": "auto", "batch_target": "2 min"})
    assert (manager.row(backfill).batch, manager.row(backfill).batch_target) == (AUTO_BATCH, 120.0)
    run_through(manager, taking(10.0, 0.1), until=lambda: max(made(manager)) >= 16)
    known = len(made(manager))
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"batch": 1})
    run_through(manager, taking(10.0, 0.1))
    assert set(made(manager)[known:]) == {1}
    assert manager.states(backfill) == {s.SUCCESS: 300}


def test_it_is_refused_for_a_dag_that_is_not_batchable() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: None)
    backfill = manager.backfill("d", days("2013-01-01", 3), max_active_runs=1)
    manager.drain()
    message = refused(manager, "backfill.set", backfill_id=backfill, changes={"batch": "auto"})
    assert "does not say batchable=True" in message
    with pytest.raises(InvalidInput, match="batch must be a whole number, or `auto`, not null"):
        manager.ask("backfill.set", backfill_id=backfill, changes={"batch": None})


def test_a_backfill_that_marks_success_learns_nothing_and_ends() -> None:
    manager = ground_with()
    backfill = auto(manager, 50, mark_success=True)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 50}


@pytest.mark.parametrize("tables", range(0, 22, 3))
def test_a_crash_anywhere_changes_nothing_in_what_comes_out(tables: int) -> None:
    manager = ground_with()
    backfill = auto(manager, 40)
    run_through(manager, taking(10.0, 0.1), until=lambda: max(made(manager)) >= 4)
    dies_after(manager, tables)
    run_through(manager, taking(10.0, 0.1))
    assert manager.states(backfill) == {s.SUCCESS: 40}
    assert sum(run.items for run in timeline(manager, "d")) == 40


# -- pools that scheduled runs use, too -------------------------------------------------------------------------------


def a_shared_pool(*callbacks: str, b_waits_for: tuple[str, ...] = (), c_too: bool = False) -> InMemoryManager:
    """Both tasks of the DAG (with callbacks, its one) run in a pool of their own, one of each at a time. A batch of 64 days is in
    its first task."""
    ids = ("a",) if callbacks else ("a", "b", "c") if c_too else ("a", "b")
    each: dict[str, dict[str, Any]] = {
        task_id: {"pool": "shared", "max_active_tis": 1} for task_id in (*ids, *callbacks)
    }
    if b_waits_for:
        each["b"]["waits_for"] = b_waits_for
    upstream = {task_id: ["a"] for task_id in ids[1:]}
    spec = dag_spec(
        "d", *ids, upstream=upstream, each=each, callbacks=callbacks, batchable=True, start_date=at("2024-01-01")
    )
    manager = InMemoryManager(spec, script=lambda _: None, scheduled=True)
    manager.state.put(Pool(name="shared", slots=1, weight=1, min_share=0))
    manager.commit()
    if b_waits_for:
        manager.add_dag(dag_spec("w", "x", schedule=None))
        manager.backfill("w", [(at("2013-01-01"), at("2014-01-01"))])
        manager.drain()
        written = [AccessedTable("write", table, f"file:/w/{table}", 1, 24, 100, "id", "at") for table in b_waits_for]
        manager.finish(key_of(manager, "backfill__", "x"), Succeeded(), tables=written)
        manager.drain()
    auto(manager, 200, max_active_runs=1)
    run_through(manager, taking(1.0, 1.0), until=lambda: max(made(manager)) == 64)
    assert [launch.run.items for launch in manager.running.values()] == [64]
    return manager


def a_scheduled_run_waits(manager: InMemoryManager, seconds: float) -> None:
    midnight = at("2024-01-02") - manager.clock.now()
    manager.clock.advance(seconds=midnight.total_seconds())
    manager.drain()
    manager.clock.advance(seconds=seconds)
    manager.drain()
    assert [launch.run.items for launch in manager.running.values()] == [64], "what runs goes on"


def test_a_batch_ends_early_between_its_tasks_when_a_scheduled_run_has_waited() -> None:
    manager = a_shared_pool()
    (backfill,) = manager.state.backfills
    a_scheduled_run_waits(manager, 30.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    (early,) = [run for run in manager.runs("d") if run.items == 64]
    assert early.state == s.OVERRIDDEN and "ended early" in (early.reason or "")  # by the first of the smaller ones
    of_early = {ti.task_id: (ti.state, ti.error) for ti in manager.tasks("d") if ti.run_id == early.run_id}
    assert of_early == {"a": (s.SUCCESS, None), "b": (s.CANCELLED, ENDED_EARLY)}
    assert key_of(manager, "scheduled__2024-01-01", "a")
    known = len(made(manager)) - 1  # the first of the smaller ones is there
    run_through(manager, taking(1.0, 1.0))
    assert max(made(manager)[known:]) == 14  # two tasks of 15 seconds
    assert manager.states(backfill) == {s.SUCCESS: 200}
    assert manager.row(backfill).state == s.SUCCESS
    timeline(manager, "d")


def test_a_batch_whose_work_is_done_is_no_batch_that_ends_early_while_its_callback_waits() -> None:
    manager = a_shared_pool("on_success")
    (backfill,) = manager.state.backfills
    a_scheduled_run_waits(manager, 30.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    (batch,) = [run for run in manager.runs("d") if run.items == 64]
    assert batch.state == s.RUNNING, "its callback is left to do, and nothing else"
    run_through(manager, taking(1.0, 1.0))
    (batch,) = [run for run in manager.runs("d") if run.items == 64]
    tasks = {ti.task_id: ti.state for ti in manager.store.read(TaskInstance) if ti.run_id == batch.run_id}
    assert (batch.state, tasks) == (s.SUCCESS, {"a": s.SUCCESS, "on_success": s.SUCCESS})
    assert manager.states(backfill) == {s.SUCCESS: 200}


@pytest.mark.parametrize("has_other_work", [False, True])
def test_a_batch_that_waits_for_data_does_not_end_early(has_other_work: bool) -> None:
    manager = a_shared_pool(b_waits_for=("t",), c_too=has_other_work)
    FakeTables(manager)
    accepted(
        manager, request_kinds.RUN_REVERT, dag_id="w", run_id="backfill__2013-01-01T00:00:00Z", dry_run=False
    )  # the rows that `b` waits for are gone
    a_scheduled_run_waits(manager, 30.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    (batch,) = [run for run in manager.runs("d") if run.items == 64]
    if has_other_work:
        assert ENDED_EARLY in (batch.reason or "")
    else:
        assert (batch.state, batch.reason) == (s.RUNNING, "waits for t")


def test_a_batch_goes_on_when_a_scheduled_run_has_just_come() -> None:
    manager = a_shared_pool()
    a_scheduled_run_waits(manager, 29.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    assert key_of(manager, "scheduled__2024-01-01", "a") and key_of(manager, "backfill__", "b")
    run_through(manager, taking(1.0, 1.0))
    assert {run.state for run in manager.runs("d")} == {s.SUCCESS}


def test_batches_are_large_again_when_no_scheduled_run_has_waited_for_a_while() -> None:
    manager = a_shared_pool()
    a_scheduled_run_waits(manager, 30.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    run_through(manager, taking(1.0, 1.0), until=lambda: made(manager)[-1] == 14)
    manager.clock.advance(seconds=600.0)
    known = len(made(manager))
    run_through(manager, taking(1.0, 1.0))
    assert max(made(manager)[known:]) > 14


def test_a_batch_does_not_end_early_for_a_pool_that_it_does_not_use() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True, start_date=at("2030-01-01"))
    own = {"pool": "shared", "max_active_tis": 1}
    other = dag_spec("other", "a", start_date=at("2023-12-31"), catchup=True, each={"a": own})
    manager = InMemoryManager(spec, other, script=lambda _: None, scheduled=True)
    manager.state.put(Pool(name="shared", slots=1, weight=1, min_share=0))
    auto(manager, 200, max_active_runs=1)
    manager.drain()
    holds_the_pool = key_of(manager, "scheduled__2023-12-31")

    def seconds(launch: TaskLaunch) -> float:
        return 1e9 if launch.key == holds_the_pool else 1.0 + launch.run.items

    run_through(manager, seconds, until=lambda: max(made(manager)) == 64)
    for waited_s in (25 * 3600.0, 30.0):
        manager.clock.advance(seconds=waited_s)
        manager.drain()
    assert [ti.state for ti in manager.tasks("other")] == [s.RUNNING, s.SCHEDULED]
    assert list(manager.state.waited_for) == ["shared"]
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    assert key_of(manager, "backfill__", "b")


def test_a_first_run_whose_cost_nobody_knows_goes_on_while_a_scheduled_run_waits() -> None:
    each = {"a": {"pool": "shared", "max_active_tis": 1}}
    spec = dag_spec("d", "a", each=each, batchable=True, start_date=at("2024-01-01"))
    manager = InMemoryManager(spec, script=lambda _: None, scheduled=True)
    manager.state.put(Pool(name="shared", slots=1, weight=1, min_share=0))
    manager.commit()
    backfill = auto(manager, 20, max_active_runs=1)
    manager.drain()
    manager.clock.advance(days=1)
    manager.drain()
    manager.clock.advance(seconds=30)
    manager.drain()
    assert list(manager.state.waited_for) == ["shared"]
    assert key_of(manager, "backfill__")
    other = manager.backfill("d", days("2014-01-01", 20), batch=4, max_active_runs=1)
    accepted(manager, "backfill.set", backfill_id=other, changes={"batch": "auto"})  # what runs cost is not read yet
    run_through(manager, taking(1.0, 1.0))
    assert manager.states(backfill) == manager.states(other) == {s.SUCCESS: 20}


@pytest.mark.parametrize("tables", range(0, 22, 3))
def test_a_crash_while_a_batch_ends_early_loses_no_item(tables: int) -> None:
    manager = a_shared_pool()
    (backfill,) = manager.state.backfills
    a_scheduled_run_waits(manager, 30.0)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    dies_after(manager, tables)
    run_through(manager, taking(1.0, 1.0))
    assert manager.states(backfill) == {s.SUCCESS: 200}
    timeline(manager, "d")


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("backfill.pause", {}),
        ("backfill.cancel", {"let_running_finish": True}),
        ("backfill.set", {"changes": {"window": "12:00-13:00"}}),
    ],
)
def test_a_backfill_that_starts_nothing_else_keeps_the_batch_that_runs(kind: str, how: dict[str, Any]) -> None:
    manager = a_shared_pool()
    (backfill,) = manager.state.backfills
    a_scheduled_run_waits(manager, 30.0)
    accepted(manager, kind, backfill_id=backfill, **how)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    manager.drain()
    assert [run.state for run in manager.runs("d") if run.items == 64] == [s.RUNNING]


def test_a_task_of_an_old_run_has_waited_since_it_was_cleared_and_no_longer() -> None:
    each = {task_id: {"pool": "shared"} for task_id in ("a", "b")}
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each=each, batchable=True, schedule=None)
    manager = InMemoryManager(spec, script=lambda _: None, scheduled=True)
    manager.state.put(Pool(name="shared", slots=16, weight=1, min_share=0))
    manager.commit()
    nightly = {"start_date": at("2023-12-31"), "catchup": True, "schedule": "0 0 * * *"}
    manager.add_dag(dag_spec("other", "x", each={"x": {"pool": "shared"}}, **nightly))  # type: ignore[arg-type]
    manager.drain()
    manager.finish(key_of(manager, "scheduled__"), Succeeded())
    manager.drain()
    auto(manager, 200, max_active_runs=1)
    run_through(manager, taking(1.0, 1.0), until=lambda: max(made(manager)) == 64)
    manager.clock.advance(seconds=300)
    manager.finish(key_of(manager, "backfill__", "a"), Succeeded())
    accepted(manager, "tasks.clear", ask={"dag": "other"})
    assert [run.state for run in manager.runs("d") if run.items == 64] == [s.RUNNING]
