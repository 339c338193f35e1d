"""From a backfill as asked for to its items: kinds, order, what is left out and why, and the forms a plan takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import BackfillItem, DagRun, Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan, existing_runs, plan_backfill
from backfill_manager.planning.backfills.backfill_range import read_range
from backfill_manager.planning.backfills.sql_queries import query
from backfill_manager.planning.batches.batch_coverage import covered_ranges
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.memory import MemoryStore
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.testing import dag_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAILY = DagSpec("flights", (TaskSpec("clean"),), schedule="@daily", timezone="America/New_York", max_active_runs=8)
UNSCHEDULED = DagSpec("regions", (TaskSpec("clean"),))
INSTANT = pa.timestamp("us", tz="UTC")
LATER = parse_instant("2014-01-01T05:00:00Z")  # the present, when nothing else is said


def day(number: int) -> datetime:
    return parse_instant(f"2013-01-{number:02}T05:00:00Z")


def runs(
    *rows: tuple[str | None, datetime | None, str | None], version: int = 1, is_partial: bool | None = False
) -> pa.Table:
    """Runs that exist: state, logical date, partition key."""
    dates = [row[1] for row in rows]
    return pa.table(
        {
            "run_id": pa.array([f"run-{n}" for n in range(len(rows))], pa.string()),
            "run_type": pa.array(["scheduled"] * len(rows), pa.string()),
            "state": pa.array([row[0] for row in rows], pa.string()),
            "logical_date": pa.array(dates, INSTANT),
            "partition_key": pa.array([row[2] for row in rows], pa.string()),
            "dag_version": pa.array([version] * len(rows), pa.int64()),
            "interval_start": pa.array(dates, INSTANT),
            "interval_end": pa.array([None if at is None else at + timedelta(days=1) for at in dates], INSTANT),
            "items": pa.array([1] * len(rows), pa.int64()),
            "is_partial": pa.array([is_partial] * len(rows), pa.bool_()),
        }
    )


def batch_run(state: str | None, start: datetime, end: datetime, items: int, version: int = 1) -> pa.Table:
    """One run that took several items."""
    one = runs((state, start, None), version=version).to_pylist()[0]
    return pa.Table.from_pylist([{**one, "interval_end": end, "items": items}], schema=runs().schema)


def together(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


def plan(
    spark: SparkSession,
    dag: DagSpec,
    existing: pa.Table | None = None,
    version: int = 1,
    now: datetime = LATER,
    **result: Any,
) -> BackfillPlan:
    ask = CreateBackfill(dag_id=dag.dag_id, **result)
    return plan_backfill(spark, ask, dag, version, runs() if existing is None else existing, now)


def column(made: BackfillPlan, name: str) -> list[Any]:
    values: list[Any] = made.items[name].to_pylist()
    return values


def reasons(made: BackfillPlan) -> dict[int, tuple[str, str | None]]:
    rows = zip(column(made, "logical_date"), column(made, "state"), column(made, "reason"), strict=True)
    return {at.day: (state, reason) for at, state, reason in rows}


def test_a_schedule_becomes_items_numbered_from_the_oldest(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(1), end_date=day(31))
    assert column(made, "ordinal") == list(range(1, 32))
    assert column(made, "logical_date") == column(made, "interval_start") == [day(n) for n in range(1, 32)]
    assert column(made, "interval_end")[:30] == [day(n) for n in range(2, 32)]
    assert set(column(made, "state")) == {"pending"} and set(column(made, "reason")) == {None}


def test_backwards_the_newest_comes_first(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(1), end_date=day(3), run_backwards=True)
    assert column(made, "ordinal") == [1, 2, 3]
    assert column(made, "logical_date") == [day(3), day(2), day(1)]


def test_a_range_off_the_grid_begins_at_the_first_interval_that_starts_in_it(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(1) + timedelta(seconds=1), end_date=day(3) + timedelta(hours=7))
    assert column(made, "logical_date") == [day(2), day(3)]


def test_a_backfill_reaches_before_the_dags_start_date(spark: SparkSession) -> None:
    dag = DagSpec("d", DAILY.tasks, schedule="@daily", timezone=DAILY.timezone, start_date=day(10), end_date=day(12))
    assert column(plan(spark, dag, start_date=day(8), end_date=day(20)), "logical_date")[0] == day(8)
    left_out = plan(spark, dag)
    assert column(left_out, "logical_date") == [day(10), day(11), day(12)]
    assert (left_out.command.start_date, left_out.command.end_date) == (day(10), day(12))


def test_single_is_one_run_over_the_whole_range(spark: SparkSession) -> None:
    made = plan(spark, UNSCHEDULED, kind="single", start_date=day(1), end_date=day(31))
    assert made.items.num_rows == 1
    assert column(made, "logical_date") == column(made, "interval_start") == [day(1)]
    assert column(made, "interval_end") == [day(31)]


@pytest.mark.parametrize(
    ("state", "end", "reason"),
    [("success", 2, None), ("failed", 2, None), ("running", 2, "in flight"), ("success", 31, "already exists")],
)
def test_a_single_run_exists_already_where_a_run_covers_its_whole_range(
    spark: SparkSession, state: str, end: int, reason: str | None
) -> None:
    existing = batch_run(state, day(1), day(end), items=1)
    for kind_of_run in (existing, batch_run(state, day(1), day(end), items=end - 1)):
        made = plan(spark, DAILY, kind_of_run, kind="single", start_date=day(1), end_date=day(31))
        assert column(made, "reason") == [reason]


def test_a_single_run_counts_for_its_first_date_in_later_plans(spark: SparkSession) -> None:
    whole = batch_run("success", day(1), day(5), items=1)
    made = plan(spark, DAILY, whole, start_date=day(1), end_date=day(4))
    assert column(made, "state") == ["skipped", "pending", "pending", "pending"]


def test_dates_are_sorted_and_folded_and_end_at_the_next_firing(spark: SparkSession) -> None:
    off_the_grid = day(3) + timedelta(hours=6)
    made = plan(spark, DAILY, kind="dates", dates=(day(5), off_the_grid, day(1), day(5)))
    assert column(made, "logical_date") == [day(1), off_the_grid, day(5)]
    assert column(made, "interval_end") == [day(2), day(4), day(6)]
    assert column(plan(spark, DAILY, kind="dates", dates=(day(1), day(5)), run_backwards=True), "logical_date") == [
        day(5),
        day(1),
    ]


def test_dates_of_a_dag_without_a_schedule_have_an_empty_interval(spark: SparkSession) -> None:
    made = plan(spark, UNSCHEDULED, kind="dates", dates=(day(1), day(5)))
    assert column(made, "interval_start") == column(made, "interval_end") == [day(1), day(5)]


def test_partitions_keep_their_order_and_have_no_interval(spark: SparkSession) -> None:
    odd = 'it\'s "x"; DROP TABLE {runs} :reprocess --'
    made = plan(spark, UNSCHEDULED, kind="partitions", partitions=("south", "north", "south", odd))
    assert column(made, "partition_key") == ["south", "north", odd]
    assert column(made, "ordinal") == [1, 2, 3]
    for name in ("logical_date", "interval_start", "interval_end"):
        assert column(made, name) == [None, None, None]
    assert made.summary["first"] is None


EXISTING: tuple[tuple[str, datetime | None, str | None], ...] = (
    ("success", day(1), None),
    ("failed", day(2), None),
    ("running", day(3), None),
    ("queued", day(4), None),
    ("cancelled", day(5), None),
    ("success", day(6), "another-partition"),
    ("success", None, None),
    ("failed", day(7), None),
    ("success", day(7), None),
    ("success", day(8), None),
    ("running", day(8), None),
)
SKIP, GO, LIVE = ("skipped", "already exists"), ("pending", None), ("skipped", "in flight")


@pytest.mark.parametrize(
    ("reprocess", "judged"),
    [
        ("none", (SKIP, SKIP, LIVE, LIVE, SKIP, GO, SKIP, LIVE, GO)),
        ("failed", (SKIP, GO, LIVE, LIVE, GO, GO, SKIP, LIVE, GO)),
        ("failed_tasks", (SKIP, GO, LIVE, LIVE, GO, GO, SKIP, LIVE, GO)),
        ("completed", (GO, GO, LIVE, LIVE, GO, GO, GO, LIVE, GO)),
    ],
)
def test_what_exists_is_left_out_unless_reprocess_says_otherwise(
    spark: SparkSession, reprocess: str, judged: Sequence[tuple[str, str | None]]
) -> None:
    made = plan(spark, DAILY, runs(*EXISTING), start_date=day(1), end_date=day(9), reprocess=reprocess)
    assert reasons(made) == dict(enumerate(judged, 1))
    assert column(made, "ordinal") == list(range(1, 10))
    assert made.summary["pending"] == sum(state == "pending" for state, _ in judged)
    assert made.summary["skipped"] == {
        reason: n for reason in ("already exists", "in flight") if (n := sum(r == reason for _, r in judged))
    }


@pytest.mark.parametrize(
    ("fields", "judged"),
    [
        ({}, ("pending", None)),
        ({"kind": "missing"}, ("pending", None)),
        ({"kind": "stale"}, ("pending", None)),
        ({"tasks": "clean", "with_upstream": False}, SKIP),
    ],
)
def test_a_partial_run_stands_for_its_date_in_a_backfill_of_chosen_tasks_only(
    spark: SparkSession, fields: dict[str, Any], judged: tuple[str, str | None]
) -> None:
    dag = DagSpec("flights", (TaskSpec("clean"), TaskSpec("load")), schedule="@daily", timezone="America/New_York")
    existing = together(
        runs(("success", day(1), None), is_partial=True),
        runs(("running", day(2), None), is_partial=True),
    )
    made = plan(spark, dag, existing, start_date=day(1), end_date=day(2), **fields)
    assert reasons(made) == {1: judged, 2: LIVE}


def test_partitions_meet_runs_of_their_own_key_only(spark: SparkSession) -> None:
    existing = runs(("success", None, "south"), ("running", None, "east"), ("success", day(1), "north"))
    made = plan(spark, UNSCHEDULED, existing, kind="partitions", partitions=("north", "south", "east"))
    assert column(made, "reason") == [None, "already exists", "in flight"]


def test_the_summary_says_what_the_plan_holds(spark: SparkSession) -> None:
    made = plan(spark, DAILY, runs(*EXISTING), start_date=day(1), end_date=day(9))
    assert made.summary == {
        "dag_id": "flights", "kind": "schedule", "items": 9, "pending": 2, "runs": 2,
        "skipped": {"already exists": 4, "in flight": 3}, "first": "2013-01-01T05:00:00Z",
        "last": "2013-01-09T05:00:00Z", "reprocess": "none", "max_active_runs": 8, "existing_not_succeeded": 2,
    }  # fmt: skip
    assert plan(spark, DAILY, start_date=day(1), end_date=day(1), max_active_runs=2).summary["max_active_runs"] == 2


@pytest.mark.parametrize(
    ("how", "reprocess"),
    [({"preview": True}, "completed"), ({"kind": "missing"}, "failed"), ({"kind": "stale"}, "completed")],
)
def test_the_summary_says_which_runs_are_done_again_as_the_backfill_will(
    spark: SparkSession, how: dict[str, Any], reprocess: str
) -> None:
    assert plan(spark, DAILY, start_date=day(1), end_date=day(1), **how).summary["reprocess"] == reprocess


def test_the_summary_says_how_many_items_start_before_the_dag(spark: SparkSession) -> None:
    dag = dataclasses.replace(DAILY, start_date=day(3))
    made = plan(spark, dag, runs(("success", day(1), None)), start_date=day(1), end_date=day(4))
    assert (made.summary["pending"], made.summary["before_start_date"]) == (3, 1)
    assert "before_start_date" not in plan(spark, dag, start_date=day(3), end_date=day(4)).summary


def test_the_rows_of_a_plan_have_the_tables_columns_and_run_seq_goes_with_the_ordinal(spark: SparkSession) -> None:
    made = plan(spark, DAILY, runs(("success", day(2), None)), start_date=day(1), end_date=day(3))
    rows = made.rows_for("abc123", 100)
    assert rows.schema == arrow_schema(BackfillItem)
    items = [BackfillItem(**row) for row in rows.to_pylist()]
    assert [(item.backfill_id, item.ordinal, item.run_seq) for item in items] == [
        ("abc123", 1, 100),
        ("abc123", 2, 101),
        ("abc123", 3, 102),
    ]
    assert [(item.state, item.reason, item.run_id) for item in items] == [(*GO, None), (*SKIP, None), (*GO, None)]
    assert [item.logical_date for item in items] == [day(1), day(2), day(3)]


def test_a_dry_run_prints_the_items_that_the_real_one_makes(spark: SparkSession) -> None:
    made = plan(spark, DAILY, runs(("failed", day(1), None)), start_date=day(1), end_date=day(2))
    document = json.loads(json.dumps(made.to_json_document()))
    assert document["items"] == [
        {
            "ordinal": 1, "logical_date": "2013-01-01T05:00:00Z", "interval_start": "2013-01-01T05:00:00Z",
            "interval_end": "2013-01-02T05:00:00Z", "partition_key": None, "state": "skipped",
            "reason": "already exists", "run_id": None, "batch": None,
        },
        {
            "ordinal": 2, "logical_date": "2013-01-02T05:00:00Z", "interval_start": "2013-01-02T05:00:00Z",
            "interval_end": "2013-01-03T05:00:00Z", "partition_key": None, "state": "pending", "reason": None,
            "run_id": None, "batch": None,
        },
    ]  # fmt: skip
    assert document["summary"] == made.summary
    assert [format_instant(row["logical_date"]) for row in made.rows_for("b", 1).to_pylist()] == [
        item["logical_date"] for item in document["items"]
    ]


def test_parts_of_a_second_are_printed_where_there_are_any(spark: SparkSession) -> None:
    made = plan(spark, UNSCHEDULED, kind="dates", dates=(day(1), day(2) + timedelta(microseconds=5)))
    dates = [item["logical_date"] for item in made.to_json_document()["items"]]
    assert dates == ["2013-01-01T05:00:00Z", "2013-01-02T05:00:00.000005Z"]


def test_an_empty_range_gives_an_empty_plan(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(1) + timedelta(hours=1), end_date=day(1) + timedelta(hours=2))
    assert made.items.num_rows == 0 and made.rows_for("b", 1).num_rows == 0
    assert made.to_json_document() == {"items": [], "summary": made.summary, "downstream": [], "first_item": None}
    assert made.summary["pending"] == 0 and made.summary["first"] is None


# -- missing and stale -------------------------------------------------------------------------------------------------


def test_missing_are_the_intervals_without_a_successful_run(spark: SparkSession) -> None:
    made = plan(spark, DAILY, runs(*EXISTING), kind="missing", start_date=day(1), end_date=day(9))
    assert reasons(made) == {2: GO, 3: LIVE, 4: LIVE, 5: GO, 6: GO, 8: LIVE, 9: GO}
    assert column(made, "ordinal") == list(range(1, 8))
    assert made.summary["pending"] == 4 and made.summary["skipped"] == {"in flight": 3}


def test_nothing_is_missing_where_all_has_succeeded(spark: SparkSession) -> None:
    existing = runs(("success", day(1), None), ("success", day(2), None))
    assert plan(spark, DAILY, existing, kind="missing", start_date=day(1), end_date=day(2)).items.num_rows == 0


def test_stale_are_the_intervals_that_an_older_version_made(spark: SparkSession) -> None:
    old, new = runs(*EXISTING, version=2), runs(("success", day(9), None), ("failed", day(10), None), version=3)
    result = {"kind": "stale", "start_date": day(1), "end_date": day(11)}
    made = plan(spark, DAILY, together(old, new), version=3, **result)
    assert reasons(made) == {1: GO, 3: LIVE, 4: LIVE, 7: GO, 8: LIVE}
    assert column(made, "ordinal") == [1, 2, 3, 4, 5]
    before = plan(spark, DAILY, together(old, new), version=2, **result)
    assert set(reasons(before).values()) == {LIVE}


def test_the_newest_missing_interval_comes_first_when_asked_so(spark: SparkSession) -> None:
    existing = runs(("success", day(2), None))
    made = plan(spark, DAILY, existing, kind="missing", start_date=day(1), end_date=day(3), run_backwards=True)
    assert column(made, "logical_date") == [day(3), day(1)] and column(made, "ordinal") == [1, 2]


# -- runs that took several items --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "reprocess", "judged"),
    [
        ("success", "none", SKIP),
        ("success", "failed", SKIP),
        ("success", "completed", GO),
        ("failed", "none", SKIP),
        ("failed", "failed", GO),
        ("queued", "completed", LIVE),
    ],
)
def test_a_run_of_several_items_stands_for_every_date_in_its_interval(
    spark: SparkSession, state: str, reprocess: str, judged: tuple[str, str | None]
) -> None:
    existing = batch_run(state, day(1), day(5), items=4)
    made = plan(spark, DAILY, existing, start_date=day(3), end_date=day(6), reprocess=reprocess)
    assert reasons(made) == {3: judged, 4: judged, 5: GO, 6: GO}


def test_a_date_with_a_run_of_its_own_is_judged_by_that_one_unless_the_batch_is_live(spark: SparkSession) -> None:
    own = runs(("failed", day(3), None))
    result = {"start_date": day(1), "end_date": day(5), "reprocess": "failed"}
    done = plan(spark, DAILY, together(own, batch_run("success", day(1), day(5), items=4)), **result)
    assert reasons(done) == {1: SKIP, 2: SKIP, 3: GO, 4: SKIP, 5: GO}
    cleared = plan(spark, DAILY, together(own, batch_run("running", day(1), day(5), items=4)), **result)
    assert reasons(cleared) == {1: LIVE, 2: LIVE, 3: LIVE, 4: LIVE, 5: GO}


def test_a_date_of_a_batch_whose_own_run_counts_as_none_is_missing(spark: SparkSession) -> None:
    reverted = runs((None, day(2), None))
    partial = runs(("success", day(3), None), is_partial=True)
    around = batch_run("success", day(1), day(5), items=4)
    result = {"start_date": day(1), "end_date": day(4)}
    for existing in (
        together(around, reverted, partial),
        together(around, partial, batch_run(None, day(2), day(3), 2)),
    ):
        assert reasons(plan(spark, DAILY, existing, **result)) == {1: SKIP, 2: GO, 3: GO, 4: SKIP}
        assert reasons(plan(spark, DAILY, existing, kind="missing", **result)) == {2: GO, 3: GO}
    two = dataclasses.replace(DAILY, tasks=(TaskSpec("clean"), TaskSpec("load")))
    of_chosen = plan(spark, two, together(around, partial), tasks="clean", **result)
    assert of_chosen.skipped == {"already exists": 4}, "a run that left nothing out of what is chosen"


def test_missing_stale_and_dates_know_what_a_batch_has_done(spark: SparkSession) -> None:
    existing = together(
        batch_run("success", day(1), day(4), items=3),
        batch_run("failed", day(6), day(8), items=2),
        runs(("success", day(8), None), version=2),
    )
    result = {"start_date": day(2), "end_date": day(9)}
    missing = plan(spark, DAILY, existing, kind="missing", run_backwards=True, **result)
    assert [at.day for at in column(missing, "logical_date")] == [9, 7, 6, 5, 4]
    assert reasons(plan(spark, DAILY, existing, version=2, kind="stale", **result)) == {2: GO, 3: GO}
    dates = plan(spark, DAILY, existing, kind="dates", dates=(day(3) + timedelta(hours=5), day(4)))
    assert column(dates, "reason") == ["already exists", None]


def test_a_date_of_an_old_batch_that_the_current_version_has_done_again_is_not_stale(spark: SparkSession) -> None:
    again = runs(("success", day(3), None), version=2)
    existing = together(batch_run("success", day(1), day(5), items=4), again)
    made = plan(spark, DAILY, existing, version=2, kind="stale", start_date=day(1), end_date=day(5))
    assert reasons(made) == {1: GO, 2: GO, 4: GO}


def test_batches_before_the_range_are_read_when_they_reach_into_it(spark: SparkSession) -> None:
    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "host", 1, "leading", day(1), day(1), 15, "0"))
    changes = Changes()
    for name, start, end in (("reaches", day(1), day(4)), ("ends", day(4), day(5)), ("before", day(1), day(2))):
        run = DagRun("flights", name, "backfill", "success", 1, leader.next_seq(), day(1), items=3)
        changes.put(run.evolve(logical_date=start, interval_start=start, interval_end=end))
    leader.commit(changes)
    ask = CreateBackfill(dag_id="flights", start_date=day(3), end_date=day(5))
    existing = existing_runs(store, ask, DAILY)
    assert sorted(existing["run_id"].to_pylist()) == ["ends", "reaches"]
    assert reasons(plan_backfill(spark, ask, DAILY, 1, existing, LATER)) == {3: SKIP, 4: SKIP, 5: GO}


def test_covering_runs_are_met_without_a_shuffle_or_a_join_by_range(spark: SparkSession) -> None:
    from backfill_manager.planning.backfills import backfill_plan

    ask = CreateBackfill(dag_id="flights", start_date=day(1), end_date=day(9))
    covers = covered_ranges(batch_run("success", day(1), day(4), items=3), 1)
    relations = {"asked": backfill_plan._asked(ask, DAILY), "covers": covers}
    expected = backfill_plan._one_statement(spark, relations, query("batch_coverage"))
    executed = expected._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in executed and "Join" not in executed


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_which_items_make_one_run(spark: SparkSession) -> None:
    dag = DagSpec("flights", DAILY.tasks, schedule="@daily", timezone=DAILY.timezone, batchable=True)
    existing = runs(("success", day(4), None))
    made = plan(spark, dag, existing, start_date=day(1), end_date=day(8), batch=3)
    document = made.to_json_document()
    assert [item["batch"] for item in document["items"]] == [1, 1, 1, None, 5, 5, 5, 8]
    assert made.summary["pending"] == 7 and made.summary["runs"] == 3
    assert set(made.rows_for("b", 1)["batch"].to_pylist()) == {None}
    backwards = plan(spark, dag, existing, start_date=day(1), end_date=day(8), batch=3, run_backwards=True)
    assert [item["batch"] for item in backwards.to_json_document()["items"]] == [1, 1, 1, 4, None, 6, 6, 6]


# -- reading the runs that exist --------------------------------------------------------------------------------------


def state_with_runs(*rows: tuple[str, str, str, datetime | None, str | None]) -> MemoryStore:
    """dag_id, run_type, state, logical_date, partition_key."""
    store = MemoryStore()
    store.init()
    at = day(1)
    leader = store.lead(Manager(1, "m", "host", 1, "leading", at, at, 15, "0"))
    changes = Changes()
    for n, (dag_id, run_type, state, logical_date, key) in enumerate(rows):
        run = DagRun(dag_id, f"r{n}", run_type, state, 1, leader.next_seq(), at)
        end = None if logical_date is None else logical_date + timedelta(days=1)
        changes.put(
            run.evolve(logical_date=logical_date, interval_start=logical_date, interval_end=end, partition_key=key)
        )
    leader.commit(changes)
    return store


def found(store: MemoryStore, dag: DagSpec, **result: Any) -> list[str]:
    names: list[str] = existing_runs(store, CreateBackfill(dag_id=dag.dag_id, **result), dag)["run_id"].to_pylist()
    return sorted(names)


def test_only_runs_that_may_be_met_are_read() -> None:
    store = state_with_runs(
        ("flights", "scheduled", "success", day(1), None),
        ("flights", "manual", "failed", day(2), None),
        ("flights", "backfill", "overridden", day(2), None),
        ("flights", "external", "success", day(2), None),
        ("flights", "scheduled", "success", day(9), None),
        ("other", "scheduled", "success", day(1), None),
        ("flights", "backfill", "running", None, "south"),
        ("flights", "backfill", "success", None, "north"),
    )
    assert found(store, DAILY, start_date=day(1), end_date=day(3)) == ["r0", "r1"]
    assert found(store, DAILY, kind="missing", start_date=day(2), end_date=day(3)) == ["r0", "r1"]  # r0 ends there
    assert found(store, DAILY, start_date=day(3) + timedelta(hours=1), end_date=day(8)) == []
    assert found(store, DAILY, kind="single", start_date=day(2), end_date=day(20)) == ["r0", "r1", "r4"]
    assert found(store, DAILY, kind="dates", dates=(day(9), day(2))) == ["r0", "r1", "r4"]
    assert found(store, DAILY, kind="partitions", partitions=("south", "east")) == ["r6"]
    assert found(store, DAILY, kind="partitions", partitions=tuple(f"p{n}" for n in range(2000))) == ["r6", "r7"]


def test_runs_as_the_store_reads_them_are_met(spark: SparkSession) -> None:
    store = state_with_runs(("flights", "scheduled", "failed", day(2), None))
    ask = CreateBackfill(dag_id="flights", start_date=day(1), end_date=day(3))
    made = plan_backfill(spark, ask, DAILY, 1, existing_runs(store, ask, DAILY), LATER)
    assert column(made, "state") == ["pending", "skipped", "pending"]


# -- what has not ended ------------------------------------------------------------------------------------------------

NOT_YET = ("skipped", "not complete yet")
NOON = day(4) + timedelta(hours=12)


def test_intervals_that_have_not_ended_are_skipped_and_say_so(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(1), end_date=day(6), now=NOON)
    assert reasons(made) == {1: GO, 2: GO, 3: GO, 4: NOT_YET, 5: NOT_YET, 6: NOT_YET}
    assert made.summary["pending"] == 3 and made.summary["skipped"] == {"not complete yet": 3}
    backwards = plan(spark, DAILY, start_date=day(1), end_date=day(6), now=NOON, run_backwards=True)
    assert column(backwards, "state") == ["skipped"] * 3 + ["pending"] * 3
    at_its_end = plan(spark, DAILY, start_date=day(3), end_date=day(4), now=day(5))
    assert reasons(at_its_end) == {3: GO, 4: GO}, "an interval is complete at its very end"


def test_who_asks_for_the_future_gets_it(spark: SparkSession) -> None:
    made = plan(spark, DAILY, start_date=day(3), end_date=day(6), now=NOON, allow_future=True)
    assert reasons(made) == {3: GO, 4: GO, 5: GO, 6: GO}
    assert made.command.config()["allow_future"] is True
    assert "allow_future" not in plan(spark, DAILY, start_date=day(3), end_date=day(3)).command.config()


def test_an_end_that_is_left_out_is_the_last_complete_interval(spark: SparkSession) -> None:
    dag = DagSpec("d", DAILY.tasks, schedule="@daily", timezone=DAILY.timezone, start_date=day(1), end_date=day(30))
    made = plan(spark, dag, now=NOON)
    assert reasons(made) == {1: GO, 2: GO, 3: GO}
    assert made.command.end_date == day(3), "what is kept is what was planned"


def test_every_kind_leaves_out_what_has_not_ended(spark: SparkSession) -> None:
    existing = runs(
        ("failed", day(2), None), ("success", day(3), None), ("failed", day(4), None), ("success", day(5), None)
    )
    range_of: dict[str, Any] = {"start_date": day(1), "end_date": day(6), "now": NOON}
    missing = plan(spark, DAILY, existing, kind="missing", **range_of)
    assert reasons(missing) == {1: GO, 2: GO, 4: NOT_YET, 6: NOT_YET}
    stale = plan(spark, DAILY, existing, version=2, kind="stale", **range_of)
    assert reasons(stale) == {3: GO, 5: NOT_YET}
    dates = plan(spark, DAILY, kind="dates", dates=(day(3), day(4), day(9)), now=NOON)
    assert reasons(dates) == {3: GO, 4: NOT_YET, 9: NOT_YET}
    by_hand = plan(spark, UNSCHEDULED, kind="dates", dates=(day(4), day(5)), now=NOON)
    assert reasons(by_hand) == {4: GO, 5: NOT_YET}
    whole = plan(spark, UNSCHEDULED, kind="single", start_date=day(1), end_date=day(5), now=NOON)
    assert reasons(whole) == {1: NOT_YET}
    assert reasons(plan(spark, UNSCHEDULED, kind="single", start_date=day(1), end_date=day(4), now=NOON)) == {1: GO}
    keyed = plan(spark, UNSCHEDULED, kind="partitions", partitions=("south",), now=NOON)
    assert column(keyed, "state") == ["pending"]


def test_what_stands_there_is_reported_before_that_it_has_not_ended(spark: SparkSession) -> None:
    existing = runs(("running", day(4), None), ("success", day(5), None), ("failed", day(6), None))
    made = plan(spark, DAILY, existing, start_date=day(4), end_date=day(6), now=NOON, reprocess="failed")
    assert reasons(made) == {4: LIVE, 5: SKIP, 6: NOT_YET}


def test_a_batch_never_includes_an_interval_that_has_not_ended(spark: SparkSession) -> None:
    dag = DagSpec("flights", DAILY.tasks, schedule="@daily", timezone=DAILY.timezone, batchable=True)
    made = plan(spark, dag, start_date=day(1), end_date=day(8), batch=7, now=NOON)
    assert made.batches.to_pylist() == [1, 1, 1, None, None, None, None, None]
    assert made.summary["runs"] == 1


def test_february_of_an_hourly_dag_is_672_items_in_sql_too(spark: SparkSession) -> None:
    hourly = DagSpec("hours", DAILY.tasks, schedule="@hourly", timezone="America/New_York")
    for first, last, items in (("2013-02-01", "2013-02-28", 672), ("2013-03-10", "2013-03-10", 23)):
        made = plan(spark, hourly, **read_range(hourly, "schedule", first, last))
        assert made.items.num_rows == items


def test_a_plan_of_chosen_tasks_names_those_that_run() -> None:
    dag = dag_spec("d", "a", "b", "c", upstream={"b": ["a"], "c": ["b"]}, callbacks=["b.on_failure"])

    def named(**result: Any) -> list[str] | None:
        items = pa.Table.from_pylist([], schema=arrow_schema(BackfillItem))
        found: list[str] | None = BackfillPlan(CreateBackfill(dag_id="d", **result), dag, 1, items).summary.get("tasks")
        return found

    assert named() is None, "all of them"
    assert named(tasks="^b$") == ["a", "b"]
    assert named(tasks="^b$", with_upstream=False) == ["b"]
    assert named(tasks="^b$", with_upstream=False, with_downstream=True) == ["b", "c"]
    assert named(tasks="^b$", with_downstream=True) == ["a", "b", "c"]
