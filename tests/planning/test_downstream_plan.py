"""A backfill with all that reads what it writes: which DAGs, in which order, over which intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from backfill_manager.clock import parse_instant
from backfill_manager.dags.definition import DagSpec, TableRead, TaskSpec
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRun, Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.downstream_plan import tree, with_downstream
from backfill_manager.planning.backfills.make_plan import make_plan
from backfill_manager.queries.data_gaps import wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.memory import MemoryStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)


def dag(dag_id: str, reads: Sequence[str] = (), writes: Sequence[str] = (), **result: Any) -> DagSpec:
    tasks = result.pop("tasks", (TaskSpec("only"),))
    return DagSpec(
        dag_id, tasks, reads=tuple(TableRead(table) for table in reads), writes=tuple(writes),
        **{"schedule": "@daily", **result},
    )  # fmt: skip


def at(text: str) -> datetime:
    return parse_instant(f"{text}T00:00:00Z" if len(text) == 10 else text)


# -- the tree ----------------------------------------------------------------------------------------------------------


def test_all_that_reads_directly_or_not_stands_below_each_after_those_it_waits_for() -> None:
    raw = dag("raw", writes=["raw"])
    dags = [
        raw,
        dag("a_report", reads=["clean", "lookup"], writes=["report"]),  # first by name, last by what it waits for
        dag("clean", reads=["raw"], writes=["clean", "rejected"]),
        dag("lookup", reads=["raw", "elsewhere"], writes=["lookup"]),
        dag("other", reads=["elsewhere"], writes=["other"]),
        dag("upstream", writes=["elsewhere"]),
    ]
    found = tree(raw, dags)
    assert found == {"clean": ("raw",), "lookup": ("raw",), "a_report": ("clean", "lookup")}
    assert list(found) == ["clean", "lookup", "a_report"]


def test_a_table_is_the_same_whatever_the_case_of_its_name() -> None:
    root = dag("root", writes=["Main.Flights"])
    assert tree(root, [root, dag("reader", reads=["main.FLIGHTS"]), dag("other", reads=["flights"])]) == {
        "reader": ("root",)
    }


def of_sql(dag_id: str, *texts: str, reads: Sequence[str] = ()) -> DagSpec:
    return dag(dag_id, reads, tasks=tuple(TaskSpec(f"t{n}", "sql", sql=text) for n, text in enumerate(texts)))


READS = {
    "from": "SELECT * FROM Sales.Orders WHERE at >= :interval_start",
    "join": "SELECT * FROM other AS o LEFT ANTI JOIN `sales`.orders USING (id)",
    "comma": "INSERT INTO out BY NAME SELECT * FROM other, sales.orders",
    "subquery": "SELECT 1 WHERE EXISTS (SELECT * FROM (SELECT * FROM sales.orders))",
    "merge": "MERGE INTO out USING sales.orders AS o ON out.id = o.id WHEN MATCHED THEN UPDATE SET *",
    "made table": "CREATE OR REPLACE TABLE out USING delta CLUSTER BY (id) AS SELECT * FROM sales.orders",
    "with": "WITH a AS (SELECT * FROM sales.orders), b AS (SELECT * FROM a) SELECT * FROM b UNION SELECT * FROM a",
    "its own name in with": "WITH flat AS (SELECT * FROM flat) SELECT * FROM flat",
    "view": "CREATE TEMP VIEW v AS SELECT * FROM sales.orders; INSERT INTO out SELECT * FROM v",
    "view with columns": "CREATE TEMP VIEW v (a, b) AS SELECT * FROM sales.orders; INSERT INTO out SELECT * FROM v",
    "beside a function": "CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x; SELECT f(id) FROM sales.orders",
    "quoted": "SELECT * FROM `sales`.`order-items`",
    "beside what can't be read": "OPTIMIZE out ZORDER BY (id); SELECT FROM WHERE; SELECT * FROM sales.orders",
    "macros": "SELECT * FROM sales.orders WHERE day = {{ interval.start | date }} {% if params.x %} AND x {% endif %}",
    "path": "SELECT * FROM delta.`/lake/Orders` VERSION AS OF 3",
}
READS_NOT = {
    "with": "WITH flat AS (SELECT 1) SELECT * FROM flat",
    "with, of INSERT": "WITH flat AS (SELECT 1), b AS (SELECT * FROM flat) INSERT INTO out SELECT * FROM b, FLAT",
    "with, within": "INSERT INTO out WITH flat AS (SELECT 1) SELECT * FROM (SELECT * FROM flat)",
    "recursive": "WITH RECURSIVE flat AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM flat) SELECT * FROM flat",
    "temporary view": "CREATE OR REPLACE TEMP VIEW flat AS SELECT 1; INSERT INTO out SELECT * FROM flat",
    "temporary view with columns": "CREATE TEMPORARY VIEW flat (id INT) USING csv OPTIONS (path 'x'); SELECT * FROM flat",
    "targets": "INSERT INTO flat SELECT 1; DELETE FROM flat WHERE id = 1; UPDATE flat SET id = 1; ALTER TABLE flat DROP x",
    "target of MERGE": "MERGE INTO flat USING out ON flat.id = out.id WHEN NOT MATCHED THEN INSERT *",
    "other schema": "SELECT * FROM main.flat, orders.sales",
    "column": "SELECT flat FROM sales JOIN orders ON flat = 'sales.orders' -- FROM flat",
    "what can't be read": "SELECT * FROM flat WHERE (a >>> 2",
    "wrong macro": "SELECT * FROM flat WHERE {{ nothing }}",
    "name of a macro": "SELECT * FROM {{ params.flat | identifier }}",
    "script": "BEGIN DECLARE x INT; SELECT * FROM flat; END",
}


@pytest.mark.parametrize("text", READS.values(), ids=READS)
def test_a_dag_that_declares_no_reads_reads_what_its_sql_tasks_read(text: str) -> None:
    root = dag("root", writes=["sales.orders", "flat", "delta.`/lake/orders`", "sales.`order-items`"])
    assert tree(root, [root, of_sql("reader", "SELECT 1", text)]) == {"reader": ("root",)}
    assert tree(root, [root, of_sql("reader", text, reads=["elsewhere"])]) == {}, "else what it declares"


@pytest.mark.parametrize("text", READS_NOT.values(), ids=READS_NOT)
def test_what_sql_does_not_read_and_what_can_not_be_known_of_it_makes_no_dag_downstream(text: str) -> None:
    root = dag("root", writes=["sales.orders", "flat"])
    assert tree(root, [root, of_sql("reader", text)]) == {}


def test_a_dag_that_reads_its_own_output_is_not_below_itself() -> None:
    root = dag("root", reads=["totals"], writes=["totals"])
    assert tree(root, [root]) == {}
    below = dag("below", reads=["totals", "own"], writes=["own"])
    assert tree(root, [root, below]) == {"below": ("root",)}


@pytest.mark.parametrize(
    ("dags", "circle"),
    [
        ([dag("root", reads=["b"], writes=["a"]), dag("below", reads=["a"], writes=["b"])], {"root", "below"}),
        (
            [
                dag("root", writes=["a"]),
                dag("one", reads=["a", "three"], writes=["one"]),
                dag("two", reads=["one"], writes=["two"]),
                dag("three", reads=["two"], writes=["three"]),
            ],
            {"one", "two", "three"},
        ),
    ],
)
def test_dags_that_read_in_a_circle_are_refused_by_name(dags: list[DagSpec], circle: set[str]) -> None:
    with pytest.raises(InvalidInput, match="in a circle") as refused:
        tree(dags[0], dags)
    result = str(refused.value).split(": ")[1].split(" read each")[0].split(" >> ")
    assert set(result) == circle and result[0] == result[-1]


def test_a_circle_elsewhere_is_nobodys_business() -> None:
    root = dag("root", writes=["a"])
    circle = [dag("x", reads=["y"], writes=["x"]), dag("y", reads=["x"], writes=["y"])]
    assert tree(root, [root, *circle, dag("reader", reads=["a"])]) == {"reader": ("root",)}


# -- the plans ---------------------------------------------------------------------------------------------------------


def state_with(*runs: tuple[str, str, datetime, datetime]) -> MemoryStore:
    """dag_id, state, interval."""
    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "host", 1, "leading", at("2024-01-01"), at("2024-01-01"), 15, "0"))
    changes = Changes()
    for n, (dag_id, state, start, end) in enumerate(runs):
        run = DagRun(dag_id, f"r{n}", "scheduled", state, 1, leader.next_seq(), start)
        changes.put(run.evolve(logical_date=start, interval_start=start, interval_end=end))
    leader.commit(changes)
    return store


def no_items() -> pa.Table:
    instant = pa.timestamp("us", "UTC")
    kinds = {
        "ordinal": pa.int64(), "logical_date": instant, "interval_start": instant, "interval_end": instant,
        "partition_key": pa.string(), "state": pa.string(), "reason": pa.string(),
    }  # fmt: skip
    return pa.schema(list(kinds.items())).empty_table()


def plan(
    spark: SparkSession,
    root: DagSpec,
    below: Iterable[DagSpec],
    store: MemoryStore | None = None,
    now: str = "2026-01-01",
    **result: Any,
) -> BackfillPlan:
    others = {one.dag_id: (one, version) for version, one in enumerate([root, *below], 7)}
    ask = CreateBackfill(dag_id=root.dag_id, downstream=True, **result)
    return make_plan(
        spark, store or state_with(), ask, root, 7, others, at(now), wanted_by_data(store or state_with(), None)
    )


def dates(made: BackfillPlan) -> list[str]:
    return [date.isoformat()[:16] for date in made.items["logical_date"].to_pylist()]


def test_each_dag_below_does_the_intervals_that_overlap_an_item_it_waits_for(spark: SparkSession) -> None:
    root = dag("hourly", writes=["raw"], schedule="@hourly")
    below = [
        dag("daily", reads=["RAW"], writes=["clean"], max_active_runs=3),
        dag("monthly", reads=["clean"], schedule="@monthly"),
        dag("weekly", reads=["clean"], schedule="0 0 * * 1", batchable=True),
    ]
    made = plan(
        spark, root, below, start_date=at("2024-03-09T22:00:00Z"), end_date=at("2024-03-11T00:00:00Z"),
        pool="heavy", priority=3, window="20:00-06:00", is_polite=True,
    )  # fmt: skip
    daily, monthly, weekly = made.downstream
    assert [p.dag.dag_id for p in made.downstream] == ["daily", "monthly", "weekly"]
    assert [p.dag_version for p in (made, daily, monthly, weekly)] == [7, 8, 9, 10]
    assert (daily.parents, monthly.parents, weekly.parents) == (("hourly",), ("daily",), ("daily",))
    assert dates(daily) == ["2024-03-09T00:00", "2024-03-10T00:00", "2024-03-11T00:00"]
    assert dates(monthly) == ["2024-03-01T00:00"]
    assert dates(weekly) == ["2024-03-04T00:00", "2024-03-11T00:00"]
    assert daily.items["ordinal"].to_pylist() == [1, 2, 3]
    assert daily.command == CreateBackfill(
        dag_id="daily", start_date=at("2024-03-09"), end_date=at("2024-03-11"), reprocess="completed", pool="heavy",
        priority=3, window="20:00-06:00", is_polite=True, batch=1,
    )  # fmt: skip
    assert (monthly.command.batch, weekly.command.batch) == (1, "auto")
    assert daily.summary["max_active_runs"] == 3 and "left_out" not in daily.summary


def test_what_lies_outside_of_the_dates_of_a_dag_below_is_skipped_and_so_is_not_written(spark: SparkSession) -> None:
    root = dag("root", writes=["a"], start_date=at("2024-01-03"))
    below = [
        dag("below", reads=["a"], writes=["b"], start_date=at("2024-01-02"), end_date=at("2024-01-03")),
        dag("last", reads=["b"]),
    ]
    made = plan(spark, root, below, start_date=at("2024-01-01"), end_date=at("2024-01-04"))
    assert made.summary["before_start_date"] == 2, "of the backfill itself the start was asked for"
    first, last = made.downstream
    assert first.items["reason"].to_pylist() == ["before start_date", None, None, "after end_date"]
    assert first.items["state"].to_pylist() == ["skipped", "pending", "pending", "skipped"]
    assert first.summary["skipped"] == {"before start_date": 1, "after end_date": 1}
    assert "before_start_date" not in first.summary and dates(last) == ["2024-01-02T00:00", "2024-01-03T00:00"]


def test_what_has_not_ended_is_skipped_in_the_whole_tree_whatever_the_grain(spark: SparkSession) -> None:
    root = dag("root", writes=["a"])
    below = [dag("hours", reads=["a"], schedule="@hourly"), dag("weeks", reads=["a"], schedule="0 0 * * 1")]
    result = {"start_date": at("2024-03-09"), "end_date": at("2024-03-13"), "now": "2024-03-12"}
    made = plan(spark, root, below, **result)
    assert made.items["reason"].to_pylist() == [None, None, None, "not complete yet", "not complete yet"]
    hours, weeks = made.downstream
    assert hours.summary["pending"] == hours.items.num_rows == 72, "those of the days that run, and no more"
    assert dates(weeks) == ["2024-03-04T00:00", "2024-03-11T00:00"]
    assert weeks.items["reason"].to_pylist() == [None, "not complete yet"]
    hours, weeks = plan(spark, root, below, allow_future=True, ignore_first_depends_on_past=False, **result).downstream
    assert (hours.summary["pending"], weeks.summary["pending"]) == (120, 2)
    assert weeks.command.allow_future and not weeks.command.ignore_first_depends_on_past


def test_what_an_item_left_out_would_write_is_not_read_again(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"]), dag("reader", reads=["a"], schedule="0 */12 * * *")
    store = state_with(
        ("root", "success", at("2024-01-02"), at("2024-01-03")),
        ("reader", "success", at("2024-01-01"), at("2024-01-01T12:00:00Z")),
        ("reader", "running", at("2024-01-03"), at("2024-01-03T12:00:00Z")),
    )
    made = plan(spark, root, [reader], store, start_date=at("2024-01-01"), end_date=at("2024-01-03"))
    (below,) = made.downstream
    assert dates(below) == ["2024-01-01T00:00", "2024-01-01T12:00", "2024-01-03T00:00", "2024-01-03T12:00"]
    assert below.items["ordinal"].to_pylist() == [1, 2, 3, 4]
    assert below.items["reason"].to_pylist() == [None, None, "in flight", None]


def test_a_dag_that_waits_for_two_does_the_intervals_of_both(spark: SparkSession) -> None:
    root = dag("root", writes=["a"])
    ahead = dag("ahead", reads=["a"], writes=["b"], schedule="0 0 * * 1")
    both = dag("both", reads=["a", "b"])
    (_, made) = plan(spark, root, [both, ahead], start_date=at("2024-01-03"), end_date=at("2024-01-03")).downstream
    assert made.parents == ("root", "ahead")
    assert dates(made) == [f"2024-01-{day:02}T00:00" for day in range(1, 8)]


def test_what_can_not_be_planned_is_left_out_and_says_why(spark: SparkSession) -> None:
    root = dag("root", writes=["a"])
    below = [
        dag("by_hand", reads=["a"], writes=["b"], schedule=None),
        dag("once", reads=["a"], schedule="@once"),
        dag("below_by_hand", reads=["b"]),
        dag("fine", reads=["a", "b"]),
    ]
    made = plan(spark, root, below, start_date=at("2024-01-01"), end_date=at("2024-01-02"))
    assert [(p.dag.dag_id, p.parents) for p in made.downstream] == [("fine", ("root",))]
    assert made.summary["left_out"] == {
        "by_hand": "it has no schedule, so nothing tells which of its runs read what changes",
        "once": "it has the schedule '@once', so nothing tells which of its runs read what changes",
        "below_by_hand": "nothing that it reads would be written",
    }


def test_nothing_follows_from_a_backfill_that_has_nothing_to_do(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"]), dag("reader", reads=["a"])
    store = state_with(("root", "success", at("2024-01-01"), at("2024-01-02")))
    made = plan(spark, root, [reader], store, start_date=at("2024-01-01"), end_date=at("2024-01-01"))
    assert made.downstream == () and made.summary["left_out"] == {"reader": "nothing that it reads would be written"}
    by_key = plan(spark, dag("root", writes=["a"], schedule=None), [reader], kind="partitions", partitions=("south",))
    assert by_key.downstream == () and by_key.summary["left_out"] == {
        "reader": "nothing that it reads would be written by interval, only by partition"
    }


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (
            dag("root", writes=["a", "b"]),
            "no active DAG declares that it reads a, b (reads=[...]) or reads it in a SQL task",
        ),
        (dag("root"), "DAG 'root' does not declare which tables it writes (writes=[...])"),
        (
            dag("root", tasks=(TaskSpec("s", into="a"), TaskSpec("t", into="a"))),
            "no active DAG declares that it reads a (reads=[...]) or reads it in a SQL task",
        ),
    ],
)
def test_a_tree_of_one_dag_says_why_nothing_is_below_it(root: DagSpec, why: str) -> None:
    command = CreateBackfill(dag_id="root", downstream=True, batch=1)
    alone = BackfillPlan(command, root, 1, no_items())
    others = {"root": (root, 1), "other": (dag("other", reads=["c"]), 1)}
    made = with_downstream(alone, others, lambda *_: pytest.fail("nothing else is planned"))
    assert made.summary["no_downstream"] == why
    below = dag("below", reads=["a"], schedule=None)
    if root.output_tables:
        made = with_downstream(alone, {**others, "below": (below, 1)}, lambda *_: pytest.fail("it has no schedule"))
        assert "no_downstream" not in made.summary and list(made.summary["left_out"]) == ["below"]


def test_how_a_backfill_is_to_run_holds_for_all_below_it() -> None:
    asked: dict[str, Any] = {
        "max_active_runs": 2, "pool": "heavy", "priority": 3, "window": "20:00-06:00", "is_polite": True, "notify": "ops",
        "allow_future": True, "batch_target": 300.0, "ignore_first_depends_on_past": False,
    }  # fmt: skip
    start, end = at("2024-01-01"), at("2024-01-02")
    item = {"ordinal": 1, "logical_date": start, "interval_start": start, "interval_end": end, "state": "pending"}
    root, reader = dag("root", writes=["a"]), dag("reader", reads=["a"])
    command = CreateBackfill(dag_id="root", downstream=True, batch=1, **asked)
    above = BackfillPlan(command, root, 1, pa.Table.from_pylist([item], schema=no_items().schema))
    commands: list[CreateBackfill] = []

    def plan_one(command: CreateBackfill, dag: DagSpec, version: int) -> BackfillPlan:
        commands.append(command)
        return BackfillPlan(command, dag, version, no_items())

    with_downstream(above, {"root": (root, 1), "reader": (reader, 1)}, plan_one)
    (below,) = commands
    assert (below.start_date, below.end_date, below.reprocess) == (start, start, "completed")
    assert {name: getattr(below, name) for name in asked} == asked


def test_far_apart_dates_don_t_drag_along_what_lies_between(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"], schedule=None), dag("reader", reads=["a"], schedule="@hourly")
    two = (at("2024-01-01T05:30:00Z"), at("2024-06-01"))
    made = plan(spark, root, [reader], kind="dates", dates=two)  # without a length: the instants that they are
    assert dates(made.downstream[0]) == ["2024-01-01T05:00", "2024-06-01T00:00"]


def test_newest_first_holds_for_all_but_those_whose_tasks_need_the_past(spark: SparkSession) -> None:
    root = dag("root", writes=["a"])
    below = [dag("free", reads=["a"]), dag("past", reads=["a"], tasks=(TaskSpec("t", depends_on_past=True),))]
    made = plan(spark, root, below, start_date=at("2024-01-01"), end_date=at("2024-01-02"), run_backwards=True)
    free, past = made.downstream
    assert dates(free) == ["2024-01-02T00:00", "2024-01-01T00:00"]
    assert dates(past) == ["2024-01-01T00:00", "2024-01-02T00:00"]


def test_more_intervals_than_one_backfill_holds_are_refused_by_name(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"], schedule="@yearly"), dag("reader", reads=["a"], schedule={"seconds": 1})
    with pytest.raises(InvalidInput, match="'reader' has about 31,622,400 intervals"):
        plan(spark, root, [reader], start_date=at("2024-01-01"), end_date=at("2024-01-01"))


def test_the_dry_run_shows_the_whole_tree(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"]), dag("reader", reads=["a"])
    made = plan(spark, root, [reader], start_date=at("2024-01-01"), end_date=at("2024-01-02"), overrides={"retries": 3})
    document = json.loads(json.dumps(made.to_json_document()))
    (below,) = document["downstream"]
    assert (below["dag_id"], below["waits_for"]) == ("reader", ["root"])
    assert [item["logical_date"] for item in below["items"]] == ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"]
    assert below["summary"] == made.downstream[0].summary
    assert document["summary"]["left_out"] == {}
    assert made.dag.task("only").retries == 3  # the override is the root's alone
    assert made.downstream[0].dag.task("only").retries == 0


def test_without_downstream_others_are_not_looked_at(spark: SparkSession) -> None:
    root, reader = dag("root", writes=["a"]), dag("reader", reads=["a"])
    ask = CreateBackfill(dag_id="root", start_date=at("2024-01-01"), end_date=at("2024-01-02"))
    store = state_with()
    others = {"reader": (reader, 1)}
    made = make_plan(spark, store, ask, root, 1, others, at("2026-01-01"), wanted_by_data(store, None))
    assert made.to_json_document()["downstream"] == [] and "left_out" not in made.summary
