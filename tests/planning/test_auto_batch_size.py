"""How large the next batch is: by what runs have cost, never beyond its bounds; and how a dry run foresees it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.clock import UTC, parse_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import DagRun
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.past_costs import past_run
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.planning.batches.auto_batch_size import (
    GROWTH,
    MOST,
    BatchLimits,
    Cost,
    PastRun,
    cost_of,
    growth_limit,
    simulate,
    size_of_next,
    waiting_factor,
    why_so_large,
)
from backfill_manager.planning.batches.joined_items import batches_of, stretches
from backfill_manager.schemas.backfill_options import CreateBackfill

LIMITS = BatchLimits(slots=8, target_s=600.0)


def runs(*sizes_and_seconds: tuple[int, float], **more: Any) -> list[PastRun]:
    return [PastRun(items, seconds, **more) for items, seconds in sizes_and_seconds]


# -- what a run costs -------------------------------------------------------------------------------------------------


def test_runs_of_two_sizes_tell_the_fixed_part_from_the_part_of_each_item() -> None:
    cost = cost_of(runs((1, 10.5), (4, 12.0), (4, 12.0), (16, 18.0)))
    assert cost is not None and cost.runs == 4
    assert (cost.fixed_s, cost.per_item_s) == (pytest.approx(10.0), pytest.approx(0.5))


@pytest.mark.parametrize(
    ("past", "per_item_s"),
    [
        (runs((1, 3.0)), 3.0),  # one run
        (runs((2, 6.0), (2, 8.0), (2, 100.0)), 4.0),  # all of one size: the middle one
        (runs((1, 30.0), (10, 20.0)), 2.0),  # larger ones took no longer: the first ones were cold
        (runs((1, 20.0), (10, 20.0)), 2.0),
        (runs((1, 1.0), (10, 100.0)), 11.0),  # a line that begins below zero: no fixed part is less than nothing
    ],
)
def test_where_nothing_tells_the_parts_apart_all_of_it_counts_for_the_items(
    past: list[PastRun], per_item_s: float
) -> None:
    cost = cost_of(past)
    assert cost is not None and (cost.fixed_s, cost.per_item_s) == (0.0, pytest.approx(per_item_s))


def test_nothing_is_known_before_a_run_has_succeeded() -> None:
    assert cost_of([]) is None and cost_of(runs((1, 3.0), failed=True)) is None


def test_when_all_has_become_slower_the_newest_runs_count() -> None:
    past = runs(*[(1, 2.0)] * 9, *[(11, 3.0)] * 9, *[(11, 30.0)] * 5)
    cost = cost_of(past)
    assert cost is not None and cost.seconds(11) == pytest.approx(30.0)


def test_one_slow_run_among_many_changes_nothing() -> None:
    past = runs((1, 2.0), (1, 500.0), (1, 2.0), (11, 400.0), (11, 3.0), (11, 3.0))
    cost = cost_of(past)
    assert cost is not None and cost.per_item_s == pytest.approx(0.1)


def test_the_backfills_own_runs_come_first_once_they_are_of_two_sizes() -> None:
    others = runs((1, 100.0), (10, 1000.0), own=False)
    alone, both = cost_of(others), cost_of([*others, *runs((1, 1.0), (1, 1.0))])
    assert alone is not None and both is not None and both.per_item_s > 50
    own = cost_of([*others, *runs((1, 1.0), (11, 2.0))])
    assert own is not None and own.per_item_s == pytest.approx(0.1)


def test_an_item_counts_by_its_rows_as_the_newest_runs_have_them() -> None:
    """Ten seconds for 1,000 rows; the days have become ten times as large, so an item takes ten times as long."""
    past = [PastRun(n, 5 + n * rows / 100, n * rows) for n, rows in [(1, 100), (4, 100), *[(2, 1000)] * 5]]
    cost = cost_of(past)
    assert cost is not None
    assert (cost.fixed_s, cost.per_item_s) == (pytest.approx(5.0), pytest.approx(10.0))


def test_rows_say_nothing_where_some_run_wrote_none() -> None:
    past = [PastRun(1, 2.0, 10), PastRun(2, 3.0, 0), PastRun(3, 4.0, 999)]
    cost = cost_of(past)
    assert cost is not None and cost.per_item_s == pytest.approx(1.0)


def test_a_run_takes_the_time_of_the_longest_way_through_its_tasks() -> None:
    tasks = (
        TaskSpec("a"), TaskSpec("b"), TaskSpec("c", upstream=("a", "b")), TaskSpec("after", calls_back="success"),
    )  # fmt: skip
    spec = DagSpec("d", tasks, schedule="@daily")
    at = parse_instant("2024-01-01T00:00:00Z").astimezone(UTC)
    run = DagRun("d", "r", "backfill", "success", 1, 1, at, started_at=at, ended_at=at, items=3)
    took = {"a": 2.0, "b": 5.0, "c": 1.0, "after": 60.0}
    assert past_run(run, spec, took, 7, own=True) == PastRun(3, 6.0, 7)
    assert past_run(run, spec, {}, 0, own=True) is None  # nothing of it ran
    assert past_run(run.evolve(state="cancelled"), spec, took, 7, own=True) is None
    failed = past_run(run.evolve(state="failed"), spec, took, 0, own=False)
    assert failed is not None and failed.failed


def test_a_batch_leaves_each_task_half_of_its_timeout() -> None:
    tasks = TaskSpec("a", timeout=20.0), TaskSpec("b", upstream=("a",), timeout=100.0), TaskSpec("c", upstream=("b",))
    spec = DagSpec("d", tasks, schedule="@daily")
    at = parse_instant("2024-01-01T00:00:00Z").astimezone(UTC)
    row = DagRun("d", "r", "backfill", "success", 1, 1, at, started_at=at, ended_at=at)
    one = past_run(row, spec, {"a": 3.0, "b": 5.0, "c": 12.0}, 0, own=True)
    four = past_run(row.evolve(items=4), spec, {"a": 6.0, "b": 20.0, "c": 24.0}, 0, own=True)
    assert one is not None and four is not None and (one.of_timeout, four.of_timeout) == (0.15, 0.3)
    cost = cost_of([one, four])
    assert cost is not None and (cost.fixed_s, cost.per_item_s) == (pytest.approx(10.0), pytest.approx(10.0))
    assert size_of_next(cost, MOST, LIMITS, 365).items == 5, "a takes 10 s of a run of 67 s"
    small = cost_of([dataclasses.replace(one, of_timeout=0.9)])
    assert small is not None and size_of_next(small, MOST, LIMITS, 365).items == 1


def test_how_long_runs_wait_is_estimated_from_the_newest() -> None:
    assert waiting_factor([]) == waiting_factor(runs((1, 5.0))) == 1.0
    assert waiting_factor(runs((1, 0.0), lasted_s=5.0)) == 1.0, "of a run that took no time nothing is learnt"
    assert waiting_factor(runs(*[(1, 5.0)] * 9, lasted_s=5.0) + runs(*[(1, 5.0)] * 5, lasted_s=20.0)) == 4.0


# -- how large the next one is ----------------------------------------------------------------------------------------


def test_it_grows_from_one_item_by_four_times_what_has_succeeded_and_shrinks_after_a_failure() -> None:
    assert growth_limit([]) == 1
    assert growth_limit(runs((1, 1.0))) == GROWTH
    assert growth_limit(runs((1, 1.0), (4, 1.0))) == GROWTH * 4
    failed = [*runs((4, 1.0)), *runs((16, 1.0), failed=True)]
    assert growth_limit(failed) == 8
    assert growth_limit([*failed, *runs((1, 1.0), failed=True)]) == 1
    assert growth_limit([*failed, *runs((8, 1.0))]) == 32
    assert growth_limit(runs((MOST, 1.0))) == MOST


@pytest.mark.parametrize(
    ("cost", "limit", "limits", "pending", "size", "bound"),
    [
        (None, 1, LIMITS, 365, 1, "growth"),  # nothing is known
        (None, 100, LIMITS, 16, 2, "slots"),
        (Cost(10.0, 0.1), 16, LIMITS, 365, 16, "growth"),
        (Cost(10.0, 0.1), MOST, LIMITS, 365, 46, "slots"),  # so that eight end together
        (Cost(10.0, 0.1), MOST, BatchLimits(1, 600.0), 365, 365, "slots"),
        (Cost(10.0, 50.0), MOST, LIMITS, 365, 11, "target"),
        (Cost(0.1, 0.1), MOST, BatchLimits(1, 0.7), 365, 6, "target"),  # just as long as it may take
        (Cost(700.0, 50.0), MOST, LIMITS, 365, 1, "target"),  # one item alone takes longer
        (Cost(10.0, 10.0), MOST, BatchLimits(8, 600.0, window_s=95.0), 365, 8, "window"),
        (Cost(10.0, 10.0, longest_s=60.0), MOST, BatchLimits(8, 600.0, window_s=95.0), 365, 5, "timeout"),
        (Cost(10.0, 0.0001), MOST, BatchLimits(1, 600.0), 1_000_000, MOST, "most"),
        (Cost(10.0, 0.1), MOST, LIMITS, 3, 1, "slots"),
    ],
)
def test_the_size_is_the_smallest_of_its_bounds(
    cost: Cost | None, limit: int, limits: BatchLimits, pending: int, size: int, bound: str
) -> None:
    made = size_of_next(cost, limit, limits, pending)
    assert (made.items, made.bound) == (size, bound)


def test_what_is_left_is_split_over_the_slots_that_are_free_or_soon_will_be() -> None:
    cost, limits = Cost(10.0, 1.0), BatchLimits(4, 600.0)
    assert size_of_next(cost, MOST, limits, 40, [500.0] * 3).items == 40  # the others run on long after it
    assert size_of_next(cost, MOST, limits, 40, [500.0] * 2).items == 20
    assert size_of_next(cost, MOST, limits, 40, [0.0] * 3).items == 10  # they are over in this moment
    assert size_of_next(cost, MOST, limits, 40, [0.0, 4.0, 500.0]).items == 15  # 15 + 15 + 11, and all are done
    assert size_of_next(cost, MOST, limits, 40, [0.0, 10.0, 14.0]).items == 16  # 16 + 16 + 6 + 2
    assert size_of_next(cost, MOST, limits, 40, [0.0] * 9).items == 10  # more runs than slots
    assert size_of_next(cost, MOST, limits, 40, [100.0] * 4).items == 10  # it begins when one of them ends


PAST_RUNS = st.builds(
    PastRun, st.integers(1, 64), st.floats(0.01, 100), st.integers(0, 5), st.booleans(), st.booleans()
)
COSTS = st.builds(
    Cost, st.floats(0, 1000), st.floats(1e-6, 1000), st.just(1), st.just(math.inf) | st.floats(0.01, 2000)
)


@given(
    st.none() | COSTS, st.integers(1, MOST), st.integers(1, 64), st.floats(1, 7200), st.none() | st.floats(0, 86400),
    st.integers(1, 100_000), st.lists(st.floats(0, 1000), max_size=70),
)  # fmt: skip
def test_a_batch_never_exceeds_a_bound_and_never_is_empty(
    cost: Cost | None, limit: int, slots: int, target: float, window: float | None, pending: int, busy: list[float]
) -> None:
    made = size_of_next(cost, limit, BatchLimits(slots, target, window), pending, busy).items
    assert 1 <= made <= min(limit, MOST, pending)
    if cost is not None and made > 1:
        most = min(target, math.inf if window is None else window, cost.longest_s)
        assert cost.seconds(made) <= most * 1.000001 + 1e-6
        free = slots - len(busy)
        if free > 1:  # no slot stands empty while there is something to run
            assert made <= -(-pending // free)


# -- what a dry run foresees ------------------------------------------------------------------------------------------


@given(
    st.lists(PAST_RUNS, max_size=8), st.lists(st.integers(0, 80), max_size=6), st.integers(1, 9), st.integers(1, 9),
)  # fmt: skip
def test_a_dry_run_covers_each_item_once_and_joins_nothing_across_a_gap(
    past: list[PastRun], parts: list[int], slots: int, at_once: int
) -> None:
    made = simulate(past, parts, BatchLimits(slots, 600.0), at_once)
    left = list(made.sizes)
    for part in parts:
        while part:
            assert 1 <= left[0] <= part
            part -= left.pop(0)
    assert left == []
    assert (made.total_s is None) == (cost_of(past) is None)


def test_a_dry_run_of_a_million_items_is_quick_and_whole() -> None:
    made = simulate(runs((1, 700.0)), [1_000_000], LIMITS, 8)
    assert sum(made.sizes) == 1_000_000 and max(made.sizes) == 1
    assert made.total_s == pytest.approx(700.0 * 125_000)


def test_a_dry_run_foresees_no_more_runs_at_work_than_slots() -> None:
    past = runs((1, 10.0))
    assert simulate(past, [100], BatchLimits(1, 600.0), 8).total_s == pytest.approx(1000.0)
    for slots, took in ((1, 1000.0), (2, 500.0), (8, 130.0)):
        made = simulate(past, [100], BatchLimits(slots, 600.0), 8)
        assert made.total_s == pytest.approx(took, rel=0.2) and made.total_s >= 1000.0 / slots


def test_a_dry_run_foresees_that_runs_grow_with_those_that_have_ended_before_them() -> None:
    past, limits = runs((1, 1.0)), BatchLimits(1, 600.0)
    assert simulate(past, [365], limits, 1).sizes == (4, 16, 64, 256, 25)
    assert simulate(past, [365], limits, 2).sizes == (4, 4, 16, 16, 64, 64, 197), (
        "two are made before the first has ended"
    )


def test_a_dry_run_says_what_it_will_do_and_why() -> None:
    past = runs((1, 10.5), (4, 12.0), (16, 18.0))
    made = simulate(past, [365], LIMITS, 8)
    assert why_so_large(made, past, LIMITS) == (
        "Batches size themselves: by 3 past runs one takes about 10 s and 0.5 s for each item, so runs take "
        f"{min(made.sizes)} to {max(made.sizes)} items: so that 8 slots end together."
    )
    assert max(made.sizes) == 46 and made.total_s == pytest.approx(10 + 46 * 0.5, rel=0.1)
    slow = runs((1, 200.0))
    assert why_so_large(simulate(slow, [9], LIMITS, 2), slow, LIMITS).endswith(
        "by 1 past run one takes about 0 s and 200 s for each item, so runs take 1 to 2 items: so that 8 slots end together."
    )
    slower = runs((1, 700.0))
    assert why_so_large(simulate(slower, [9], LIMITS, 2), slower, LIMITS).endswith(
        "so runs take 1 item: so that none takes longer than 10 min."
    )
    unknown = why_so_large(simulate([], [365], LIMITS, 8), [], LIMITS)
    assert (
        "no complete run of this DAG has succeeded yet, so the first runs take 1 item each" in unknown
        and "10 min" in unknown
    )


def test_the_runs_of_a_plan_are_those_foreseen() -> None:
    days = [parse_instant(f"2024-01-{day:02}T00:00:00Z") for day in range(1, 12)]
    state = ["pending"] * 3 + ["skipped"] + ["pending"] * 6
    n = len(state)
    instant = pa.timestamp("us", tz="UTC")
    items = pa.table({
        "ordinal": pa.array(range(1, n + 1), pa.int64()),
        "logical_date": pa.array(days[:n], instant), "interval_start": pa.array(days[:n], instant),
        "interval_end": pa.array(days[1 : n + 1], instant), "partition_key": pa.nulls(n, pa.string()),
        "state": pa.array(state), "reason": pa.array([None if one == "pending" else "in flight" for one in state], pa.string()),
    })  # fmt: skip
    assert stretches(items, run_backwards=False) == [3, 6]
    assert stretches(items[:1], run_backwards=False) == [1] and stretches(items[:0], run_backwards=False) == []
    assert batches_of(items, [2, 1, 5, 1]).to_pylist() == [1, 1, 3, None, 5, 5, 5, 5, 5, 10]
    plan = BackfillPlan(
        CreateBackfill(dag_id="d", batch="auto", max_active_runs=2), DagSpec("d", (TaskSpec("a"),), schedule="@daily"), 1,
        items, past=tuple(runs((8, 1.0))), limits=BatchLimits(2, 600.0),
    )  # fmt: skip
    assert plan.batches.to_pylist() == [1, 1, 1, None, 5, 5, 5, 5, 5, 10]
    assert plan.summary["runs"] == 3 and "Batches size themselves" in plan.summary["batching"]
    nothing = dataclasses.replace(plan, items=items[3:4])
    assert nothing.summary["pending"] == 0 and "batching" not in nothing.summary
    alone = BackfillPlan(CreateBackfill(dag_id="d", batch=3), plan.dag, 1, items)
    assert "batching" not in alone.summary and alone.summary["runs"] == 3


@pytest.mark.parametrize(
    ("window", "at", "left_s"),
    [
        ("20:00-06:00", "2024-01-10T21:00:30Z", 9 * 3600 - 30),
        ("20:00-06:00", "2024-01-10T05:59:00Z", 60),
        ("00:00-24:00", "2024-01-10T05:59:00Z", None),
        ("20:00-06:00", "2024-03-30T23:30:00Z", 4.5 * 3600),  # 00:30 in Amsterdam; the clocks skip an hour that night
    ],
)
def test_how_long_a_time_window_stays_open(window: str, at: str, left_s: float | None) -> None:
    zone = "Europe/Amsterdam" if "-03-" in at else "UTC"
    assert TimeWindow.parse(window).seconds_left(parse_instant(at), zone) == left_s
