"""`sql` tasks: parameters, several statements, and writing exactly once."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest
from support.executor_fixture import PATIENCE, TaskRunner, a_launch, again, day, rows_of, version_of
from support.manager_process import wait_for
from support.waiting_turns import turns_waiting

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.lineage.written_tables import written_by
from backfill_manager.execution.messages import Cancelled, Failed, Succeeded, TaskLaunch
from backfill_manager.execution.output.clones import Clones
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.execution.output.write_context import StateIdentity
from backfill_manager.execution.tasks.spark_sql import parameters
from backfill_manager.planning.backfills.rendering import PlannedRun, render
from backfill_manager.store.sql_guard import identifier, spark_statements, string_literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;;\n SELECT 2 ; -- done;\n", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';', \";\", `;` ; SELECT 2", ["SELECT ';', \";\", `;`", "SELECT 2"]),
        (r"SELECT 'it\'s; ' ; SELECT r'\' ; SELECT 3", [r"SELECT 'it\'s; '", r"SELECT r'\'", "SELECT 3"]),
        ("SELECT /* a; /* b; */ c; */ 1; SELECT 2", ["SELECT /* a; /* b; */ c; */ 1", "SELECT 2"]),
        ("BEGIN DECLARE x INT = 1; SELECT x; END", ["BEGIN DECLARE x INT = 1; SELECT x; END"]),
        ("/* nothing */ ; -- at all", []),
    ],
)
def test_statements_are_parted_outside_of_quotes_and_comments(text: str, parts: list[str]) -> None:
    assert spark_statements(text) == parts


def test_names_and_texts_are_never_code(runner: TaskRunner) -> None:
    awkward = 'a\'b\\c\n`d` "e" 😀 -- ; \u2028'
    row = runner.spark.sql(f"SELECT {string_literal(awkward)} AS {identifier('x`y; z')}").collect()[0]
    assert row.asDict() == {"x`y; z": awkward}


def test_macros_give_the_values_of_the_run_and_no_code(runner: TaskRunner, table: str) -> None:
    awkward = "it's \\ ${env:HOME} ${spark.app.name}; DROP TABLE x -- 😀"
    text = """
        CREATE TABLE IF NOT EXISTS {{ params.table | identifier }} 
            (v STRING, n INT, at TIMESTAMP, day DATE, key STRING) USING delta;
        INSERT INTO {{ params.table | identifier }}
        SELECT {{ params.v }}, 1 -{{ params.n }}, {{ interval.start }}, {{ interval.start | date }}, :run_id -- {{ params.v }}
        WHERE 2 IN ({{ params.ids | values }}) {% if params.v == 'none' %} AND false {% endif %}
    """
    params = {"table": table, "v": awkward, "n": -2, "ids": [1, 2]}
    launch = a_launch(kind="sql", sql=text, params=params, timezone="America/New_York")
    assert isinstance(runner.run(launch), Succeeded)
    (row,) = runner.spark.table(table).collect()
    assert (row.v, row.n, row.key) == (awkward, 3, launch.ti.run_id)
    assert (row.at.timestamp(), str(row.day)) == (day(1).timestamp(), "2012-12-31"), "a day of the DAG's zone"
    again = dataclasses.replace(launch, ti=dataclasses.replace(launch.ti, launch=2, try_number=2))
    assert isinstance(runner.run(again), Succeeded)
    assert runner.spark.table(table).count() == 1, "each try has the same text, so it lands once"
    failed = runner.run(a_launch(kind="sql", sql="SELECT {{ interval.start }}", interval=None, partition="emea"))
    assert failed == Failed(
        "sql task 'work': 'interval' is undefined; this run has dag_id, params, partition_key, run_id, task_id",
        retryable=False,
    )


def test_a_statement_that_is_no_sql_is_not_tried_again(runner: TaskRunner) -> None:
    failed = runner.run(a_launch(kind="sql", sql="SELECT 1; SELECT 1 FROM t WHERE v >", retries=3))
    assert isinstance(failed, Failed) and not failed.retryable
    assert failed.error.startswith("sql task 'work': ParseException: [PARSE_SYNTAX_ERROR] Syntax error at"), failed


def test_a_task_spec_with_an_output_goes_through_json() -> None:
    spec = DagSpec("d", (TaskSpec("t", kind="sql", sql="SELECT 1", into="table", time_column="at"),))
    assert DagSpec.from_json(spec.to_json()) == spec
    assert not {"mode", "schema", "merge_on"} & json.loads(spec.to_json())["tasks"][0].keys(), (
        "an older definition stays the same"
    )
    append = DagSpec("d", (TaskSpec("t", kind="sql", sql="SELECT 1", into="table", mode="append", schema="merge"),))
    assert DagSpec.from_json(append.to_json()) == append
    merge = DagSpec("d", (TaskSpec("t", kind="sql", sql="SELECT 1 AS id", into="table", merge_on=("id",)),))
    assert DagSpec.from_json(merge.to_json()) == merge


def a_sql_launch(text: str, **how: object) -> TaskLaunch:
    return a_launch(kind="sql", sql=text, **how)  # type: ignore[arg-type]


def test_the_last_statements_rows_go_into_the_output_exactly_once(runner: TaskRunner, table: str) -> None:
    text = """
        CREATE OR REPLACE TEMPORARY VIEW factor AS SELECT 10 AS f;
        SELECT :interval_start AS at, :n * f AS value, :run_id AS run FROM factor
        WHERE :interval_end > :interval_start AND :logical_date = :interval_start
    """
    launch = a_sql_launch(text, run_id="r1", into=table, time_column="at", params={"n": 2})
    assert runner.run(launch) == Succeeded(None)
    assert runner.run(again(launch)) == Succeeded(None)
    assert [(value, run) for _, value, run in rows_of(runner.spark, table)] == [(20, "r1")]
    assert runner.run(again(again(dataclasses.replace(launch, params={"n": 3})), generation=1)) == Succeeded(None)
    assert [value for _, value, _ in rows_of(runner.spark, table)] == [30]


def test_the_outputs_mode_and_schema_are_those_of_ctx_write(runner: TaskRunner, table: str) -> None:
    overwrites = a_sql_launch("SELECT 1 AS id", run_id="r1", into=table, mode="overwrite")
    assert runner.run(overwrites) == Succeeded(None)
    appends = a_sql_launch("SELECT 2 AS id, 'b' AS name", run_id="r2", into=table, mode="append")
    outcome = runner.run(appends)
    assert isinstance(outcome, Failed) and outcome.error.startswith(f"into={table!r}: ")
    assert "the table has no column 'name'; schema='merge' adds it" in outcome.error
    appends = a_sql_launch("SELECT 2 AS id, 'b' AS name", run_id="r2", into=table, mode="append", schema="merge")
    assert runner.run(again(appends)) == Succeeded(None)
    assert runner.run(again(again(appends))) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1, None), (2, "b")]
    by_hand = a_sql_launch("SELECT 3 AS id", run_id="r3", into=table, mode="overwrite", interval=(day(1), day(1)))
    assert runner.run(by_hand) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(3, None)]


def test_rows_outside_of_the_interval_are_refused_with_a_condition_of_sql(runner: TaskRunner, table: str) -> None:
    text = "SELECT TIMESTAMP'2020-01-01 00:00:00Z' AS at"
    outcome = runner.run(a_sql_launch(text, run_id="r1", into=table, time_column="at"))
    assert isinstance(outcome, Failed)
    assert "Leave them out first, as with WHERE at >= :interval_start AND at < :interval_end." in outcome.error, (
        outcome.error
    )


def test_with_merge_on_rows_are_updated_by_their_key_exactly_once(runner: TaskRunner, table: str) -> None:
    def merges(run_id: str, query: str, **more: object) -> TaskLaunch:
        return a_sql_launch(query, run_id=run_id, into=table, merge_on=("id",), **more)

    first = merges("r1", "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(id, name)")
    assert runner.run(first) == Succeeded(None), "there was no table yet"
    assert runner.run(merges("r2", "SELECT * FROM VALUES (2, 'c'), (3, 'd') AS t(id, name)")) == Succeeded(None)
    assert runner.run(again(first)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1, "a"), (2, "c"), (3, "d")], "what had landed is not merged again"
    twice = runner.run(merges("r3", "SELECT * FROM VALUES (4, 'a'), (4, 'b') AS t(id, name)"))
    assert isinstance(twice, Failed) and "2 rows have the key id=4" in twice.error
    by_region = merges("r4", "SELECT 4 AS id, 'e' AS name, 'x' AS region", schema="merge")
    assert runner.run(by_region) == Succeeded(None)
    assert (4, "e", "x") in rows_of(runner.spark, table)


def test_statements_that_write_themselves_land_once_each_too(runner: TaskRunner, table: str) -> None:
    text = f"""
        CREATE TABLE IF NOT EXISTS {table} (id INT, part STRING) USING delta;
        INSERT INTO {table} SELECT 1, :region;
        INSERT INTO {table} SELECT 2, element_at(:regions, 1);
        UPDATE {table} SET id = id + 10
    """
    launch = a_sql_launch(text, params={"region": "north", "regions": ["south"], "not an identifier": 1})
    assert runner.run(launch) == Succeeded(None)
    landed = version_of(runner.spark, table)
    assert runner.run(again(launch, try_number=2)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(11, "north"), (12, "south")]
    assert version_of(runner.spark, table) == landed


def test_a_query_that_checks_is_really_asked(runner: TaskRunner) -> None:
    outcome = runner.run(a_sql_launch("SELECT assert_true(count(*) = 0, 'there are rows') FROM range(3)"))
    assert isinstance(outcome, Failed) and "there are rows" in outcome.error


def test_a_parameter_that_the_run_does_not_have_is_named(runner: TaskRunner) -> None:
    outcome = runner.run(a_sql_launch("SELECT :interval_start", interval=None, partition="north", params={"n": 1}))
    assert outcome == Failed(
        "sql task 'work' uses :interval_start, which this run does not have; it has :n, :partition_key, :run_id",
        retryable=False,
    )


def test_parameters_are_shown_as_the_values_that_spark_gets(runner: TaskRunner) -> None:
    params = {
        "text": "it's \\ é\n",
        "n": 2,
        "share": 0.5,
        "yes": True,
        "list": ["a", "b"],
        "map": {"k": 1},
        "none": None,
    }
    launch = a_sql_launch("SELECT 1", params=params)
    run = PlannedRun(launch.run.run_id, launch.interval, None, params)
    shown = render(launch.dag, run, ["work"])["sql_parameters"]
    columns = ", ".join(f":{name} AS {name}_a, {text} AS {name}_b" for name, text in shown.items())
    row = runner.spark.sql(f"SELECT {columns}", args=parameters(launch))
    types = dict(row.dtypes)
    values = row.collect()[0]
    assert {"interval_start", "interval_end", "logical_date", "run_id", *params} == set(shown)
    for name in shown:
        assert (values[f"{name}_a"], types[f"{name}_a"]) == (values[f"{name}_b"], types[f"{name}_b"]), name


@pytest.mark.parametrize("has_output", [False, True])
def test_a_statement_that_takes_too_long_leaves_no_stack_of_java_in_the_log(
    runner: TaskRunner, table: str, has_output: bool
) -> None:
    text, into = (
        "SELECT sum(sqrt(id)) AS total FROM range({})",
        {"into": table, "mode": "overwrite"} if has_output else {},
    )
    assert isinstance(runner.run(a_sql_launch(text.format(1))), Succeeded)  # the JVM knows the way
    launch = runner.start(a_sql_launch(text.format(100_000_000_000_000), run_id="long", timeout=5.0, **into))
    assert runner.recorder.outcome(launch) == Failed("timed out after 5 s")
    lines = runner.recorder.lines(launch)
    assert "cancelled" in lines[-2] and not any("\n" in line for line in lines)


def test_a_text_without_a_statement_is_refused(runner: TaskRunner) -> None:
    assert runner.run(a_sql_launch("-- later")) == Failed("sql task 'work' has no statement", retryable=False)


# -- writers of one table ---------------------------------------------------------------------------------------------

MERGE = """
    CREATE TABLE IF NOT EXISTS {table} (id INT, runs INT, note STRING) USING delta;
    MERGE INTO {table} AS t USING (SELECT explode(array(0, :n)) AS id) AS s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET runs = t.runs + 1 WHEN NOT MATCHED THEN INSERT (id, runs) VALUES (s.id, 1)
"""


def test_parallel_merges_of_a_table_that_none_has_made_yet_cost_no_try(runner: TaskRunner, table: str) -> None:
    launches = [
        runner.start(a_sql_launch(MERGE.format(table=table), run_id=f"r{n}", params={"n": n})) for n in range(1, 11)
    ]
    assert [runner.recorder.outcome(launch) for launch in launches] == [Succeeded(None)] * 10
    assert {row["id"]: row["runs"] for row in runner.spark.table(table).collect()} == {0: 10} | dict.fromkeys(
        range(1, 11), 1
    )
    assert all(runner.recorder.rows_of(launch) == 2 for launch in launches)
    assert "another writer was first" not in "".join(runner.log_of(launch) for launch in launches)
    assert version_of(runner.spark, table) == 10


def test_a_statement_and_ctx_write_stand_in_one_queue(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    identity = OutputTable(runner.spark, table).identity
    with TurnHolder(PROCESS_TURNS).acquire(identity):
        texts = (
            f"DELETE FROM {table}",
            f"TRUNCATE TABLE default.{table}",
            f"UPDATE spark_catalog.default.`{table}` SET id = 2",
        )
        waiting = [runner.start(a_sql_launch(text, run_id=text)) for text in texts]
        wait_for_waiting(identity, 3)
        assert runner.executor.cancel(waiting[0].key, "cancelled by hand")
        assert runner.recorder.outcome(waiting[0]) == Cancelled("cancelled by hand")
    assert [runner.recorder.outcome(launch) for launch in waiting[1:]] == [Succeeded(None)] * 2
    operations = [row["operation"] for row in runner.spark.sql(f"DESCRIBE HISTORY {table}").collect()]
    assert "DELETE" not in operations


def test_statements_over_several_tables_take_their_turns_in_one_order(runner: TaskRunner, table: str) -> None:
    other = f"{table}_more"
    for name in (table, other):
        runner.spark.sql(f"CREATE TABLE {name} (id INT) USING delta")
    try:
        text = "FROM range(1) INSERT OVERWRITE {} SELECT :n INSERT OVERWRITE {} SELECT :n"
        texts = [text.format(table, other), text.format(other, table)] * 2
        launches = [runner.start(a_sql_launch(text, run_id=f"r{n}", params={"n": n})) for n, text in enumerate(texts)]
        assert [runner.recorder.outcome(launch) for launch in launches] == [Succeeded(None)] * 4
        assert rows_of(runner.spark, table) == rows_of(runner.spark, other)
    finally:
        runner.spark.sql(f"DROP TABLE {other}")


def test_plain_inserts_go_side_by_side(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    identity = OutputTable(runner.spark, table).identity
    with TurnHolder(PROCESS_TURNS).acquire(identity, shared=True):  # one that has begun
        assert runner.run(a_sql_launch(f"INSERT INTO {table} SELECT 1", run_id="r1")) == Succeeded(None)
        merging = runner.start(a_sql_launch(f"INSERT OVERWRITE {table} SELECT 2", run_id="r2"))
        wait_for_waiting(identity, 1)
    assert runner.recorder.outcome(merging) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(2,)]


def opened_by_both(fifo: Path) -> BinaryIO:
    """Returns when a reader has come."""
    writers: list[BinaryIO] = []
    opening = threading.Thread(target=lambda: writers.append(fifo.open("wb")), daemon=True)
    opening.start()
    opening.join(PATIENCE)
    assert writers, f"nobody reads {fifo.name}"
    return writers[0]


def test_a_statement_that_another_process_was_quicker_than_is_repeated_alone(
    runner: TaskRunner, table: str, tmp_path: Path
) -> None:
    """The MERGE begins, and then waits in its source's `reflect` until another process has changed the table."""
    runner.spark.sql(f"CREATE TABLE {table} USING delta AS SELECT 1 AS id, 0 AS n")
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    reading = ", ".join(f"reflect('scala.io.Source', 'fromFile', '{fifo}', 'UTF-8')" for fifo in (begun, go_on))
    launch = runner.start(
        a_sql_launch(
            f"""
            UPDATE {table} SET n = n + 1;
            MERGE INTO {table} AS t USING (SELECT 1 AS id, concat({reading}) AS read) AS s ON t.id = s.id AND s.read != ''
            WHEN MATCHED THEN UPDATE SET n = t.n + 10;
            UPDATE {table} SET n = n + 100
            """
        )
    )
    with opened_by_both(begun):
        runner.spark.sql(f"UPDATE {table} SET n = n + 1000")
        with opened_by_both(go_on):  # open from now on: the second time, nothing waits
            assert runner.recorder.outcome(launch) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1, 1111)]
    assert runner.log_of(launch).count("another writer was first at statement 2") == 1


def test_a_statement_that_had_landed_is_reported_and_counts_no_rows(runner: TaskRunner, table: str) -> None:
    launch = a_sql_launch(MERGE.format(table=table) + f"; DELETE FROM {table} WHERE id = 12345", params={"n": 3})
    assert runner.run(launch) == Succeeded(None)
    assert runner.recorder.rows_of(launch) == 2
    assert f"statement 2: 2 rows into {table}, version 1" in runner.log_of(launch)
    assert f"statement 3: nothing to change in {table}" in runner.log_of(launch)
    second = again(launch)
    assert runner.run(second) == Succeeded(None)
    assert runner.recorder.rows_of(second) is None
    assert "statement 2: an earlier try of this run has completed it; it is not run again" in runner.log_of(second)
    assert "rows into" not in runner.log_of(second)
    assert rows_of(runner.spark, table) == [(0, 1, None), (3, 1, None)]


def test_an_insert_into_a_table_of_another_format_warns_that_it_is_repeated(runner: TaskRunner, table: str) -> None:
    launch = a_sql_launch(f"CREATE TABLE IF NOT EXISTS {table} (id INT) USING parquet; INSERT INTO {table} SELECT 2")
    assert runner.run(launch) == Succeeded(None)
    assert f"statement 2: {table} is not a Delta table (`USING delta` makes one)" in runner.log_of(launch)
    assert runner.run(again(launch)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(2,), (2,)]


def test_a_table_that_was_made_with_its_rows_before_a_crash_is_not_made_again(runner: TaskRunner, table: str) -> None:
    launch = a_sql_launch(f"CREATE TABLE {table} USING delta AS SELECT 1 AS id; INSERT INTO {table} SELECT 2")
    assert runner.run(launch) == Succeeded(None)
    assert runner.run(again(launch)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1,), (2,)]


@pytest.mark.parametrize("emptying", ["DELETE FROM {0} WHERE id > 0", "TRUNCATE TABLE {0}"])
def test_what_empties_a_table_before_its_rows_are_written_is_not_done_again_without_them(
    runner: TaskRunner, table: str, emptying: str
) -> None:
    """A DELETE that finds nothing, and a TRUNCATE, leave no transaction: only the INSERT after them tells that they are done."""
    text = f"""
        DECLARE OR REPLACE VARIABLE n INT DEFAULT 7;
        CREATE TABLE IF NOT EXISTS {table} (id INT) USING delta;
        {emptying.format(table)};
        INSERT INTO {table} SELECT n;
        SELECT assert_true(:complete AND n = 7, 'not yet')
    """
    launch = a_sql_launch(text, params={"complete": False})
    failed = runner.run(launch)
    assert isinstance(failed, Failed) and "not yet" in failed.error
    assert runner.run(again(dataclasses.replace(launch, params={"complete": True}))) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(7,)]
    cleared = again(again(dataclasses.replace(launch, params={"complete": True})), generation=1)
    assert runner.run(cleared) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(7,)]


@pytest.mark.parametrize("previewed", [False, True], ids=["", "in a preview"])
def test_what_comes_before_the_query_is_not_done_again_once_its_rows_have_landed(
    runner: TaskRunner, clones: Clones, table: str, previewed: bool
) -> None:
    """The first DELETE finds nothing, so it leaves no transaction; the second one would find the rows of the query."""
    runner.spark.sql(f"CREATE TABLE {table} (id INT, run STRING) USING delta")
    view = f"{table}_rows"
    text = f"""
        CREATE OR REPLACE {"TEMPORARY" if previewed else ""} VIEW {view} AS SELECT 7 AS id;
        DELETE FROM {table} WHERE run = :run_id;
        SELECT id, :run_id AS run FROM {view}
    """
    launch = a_sql_launch(text, run_id="r1", into=table, mode="append")
    if previewed:
        launch = dataclasses.replace(launch, preview_id=clones.preview_id)

    def rows() -> list[tuple[object, ...]]:
        (clone,) = clones.all() if previewed else [None]
        found: list[tuple[object, ...]] = rows_of(runner.spark, table if clone is None else f"delta.`{clone.path}`")
        return found

    assert runner.run(launch) == Succeeded(None)
    runner.spark.sql(f"DROP VIEW IF EXISTS {view}")  # as it is after a restart without a metastore
    assert runner.run(again(launch)) == Succeeded(None)
    assert rows() == [(7, "r1")]
    assert "statement 2: skipped, as an earlier try has completed statement 3" in runner.log_of(again(launch))
    assert runner.run(again(again(launch), generation=1)) == Succeeded(None)
    assert rows() == [(7, "r1")]
    runner.spark.sql(f"DROP VIEW IF EXISTS {view}")


def test_a_try_of_before_a_clear_changes_nothing_any_more(runner: TaskRunner, table: str) -> None:
    launch = a_sql_launch(f"CREATE TABLE IF NOT EXISTS {table} (id INT) USING delta; INSERT INTO {table} SELECT 1")
    assert runner.run(again(launch, generation=1)) == Succeeded(None)
    late = runner.run(launch)
    assert isinstance(late, Failed) and "this task was cleared and has written anew" in late.error
    assert rows_of(runner.spark, table) == [(1,)]


@pytest.mark.parametrize(
    "text",
    [
        "FROM range(2) INSERT INTO {0} SELECT 1 INSERT INTO default.{0} SELECT 2",
        "BEGIN INSERT INTO {0} SELECT 1; INSERT INTO {0} SELECT 2; END",
        "BEGIN TRUNCATE TABLE {0}; INSERT INTO {0} SELECT 1; END",
        "BEGIN DECLARE n INT = 0; WHILE n < 2 DO INSERT INTO {0} SELECT n; SET n = n + 1; END WHILE; END",
    ],
)
def test_a_second_write_of_a_statement_that_delta_would_leave_out_is_refused(
    runner: TaskRunner, table: str, text: str
) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    outcome = runner.run(a_sql_launch(text.format(table)))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert outcome.error.startswith("sql task 'work', statement 1: it writes ") and "more than once" in outcome.error
    assert rows_of(runner.spark, table) == []


def test_a_script_that_writes_each_table_once_lands_once(runner: TaskRunner, table: str) -> None:
    script = f"""
        BEGIN
          CREATE TABLE IF NOT EXISTS {table} (id INT) USING delta;
          IF 2 > 1 THEN INSERT INTO {table} SELECT 7; ELSE INSERT INTO {table} SELECT 0; END IF;
        END
    """
    launch = a_sql_launch(script)
    assert runner.run(launch) == Succeeded(None)
    assert runner.run(again(launch)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(7,)]


def test_the_same_run_of_another_state_does_its_statements_anew(
    runner: TaskRunner, runner_of: Callable[[StateIdentity], TaskRunner], table: str
) -> None:
    launch = a_sql_launch(MERGE.format(table=table), run_id="r1", params={"n": 1})
    other = runner_of(StateIdentity("ba9876543210"))
    assert runner.run(launch) == other.run(launch) == other.run(again(launch)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(0, 2, None), (1, 2, None)]


def test_what_a_statement_had_done_before_its_state_was_upgraded_is_not_done_again(
    runner: TaskRunner, runner_of: Callable[[StateIdentity], TaskRunner], table: str
) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    old = runner.spark.sql("SELECT 1 AS id").write.format("delta").mode("append")
    old.option("txnAppId", "bfm/work_dag/work/r1/sql-1").option("txnVersion", "0").saveAsTable(table)
    upgraded = runner_of(StateIdentity("ba9876543210", upgraded_at=day(2)))
    assert upgraded.run(a_sql_launch(f"INSERT INTO {table} SELECT 2", run_id="r1")) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1,)]


def wait_for_waiting(identity: str, n: int) -> None:
    wait_for(lambda: turns_waiting(PROCESS_TURNS, identity) == n, PATIENCE)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("INSERT INTO s.t SELECT * FROM a JOIN b", ["s.t"]),
        ("WITH x AS (SELECT 1) INSERT OVERWRITE t SELECT * FROM x", ["t"]),
        ("INSERT INTO t REPLACE WHERE id = 1 SELECT 1", ["t"]),
        ("MERGE INTO c.s.t AS x USING b ON x.id = b.id WHEN MATCHED THEN DELETE", ["c.s.t"]),
        ("MERGE INTO IDENTIFIER(:schema || '.t') USING b ON true WHEN MATCHED THEN DELETE", ["main.t"]),
        ("INSERT INTO IDENTIFIER(:schema) SELECT '😀'", ["main"]),
        ("UPDATE delta.`/a/path` SET id = 1", ["delta./a/path"]),
        ("DELETE FROM t WHERE id IN (SELECT id FROM b)", ["t"]),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", ["t"]),
        ("CREATE OR REPLACE TABLE t AS SELECT * FROM b", ["t"]),
        ("CREATE TABLE t LIKE b", ["t"]),
        ("CREATE TABLE t SHALLOW CLONE b", ["t"]),
        ("ALTER TABLE t ADD COLUMNS (x INT)", ["t"]),
        ("OPTIMIZE t", ["t"]),
        ("RESTORE TABLE t TO VERSION AS OF 1", ["t"]),
        ("DROP TABLE t", ["t"]),
        ("FROM a INSERT INTO t SELECT 1 INSERT INTO u SELECT 2", ["t", "u"]),
        ("BEGIN UPDATE t SET id = 1; IF true THEN DELETE FROM u; END IF; END", ["t", "u"]),
        ("SELECT * FROM a JOIN b", []),
        ("SELECT * FROM IDENTIFIER(:schema) UNION SELECT 1", []),
        ("DROP TABLE IDENTIFIER(:schema)", ["main"]),
        ("ALTER TABLE IDENTIFIER(:schema) ADD COLUMNS (x INT)", ["main"]),
        ("DESCRIBE HISTORY a", []),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM a", []),
        ("SET x = 1", []),
        ("DECLARE VARIABLE t INT", []),
        ("CREATE TEMPORARY FUNCTION t() RETURNS INT RETURN 1", []),
        ("CACHE TABLE t", []),
        ("not SQL", []),
    ],
)
def test_the_tables_that_a_statement_writes_are_read_from_its_plan(
    spark: SparkSession, text: str, names: list[str]
) -> None:
    def evaluated(expression: str) -> str:
        return str(spark.sql(f"SELECT {expression}", args={"schema": "main"}).collect()[0][0])

    written = written_by(spark, text, evaluated)
    assert sorted(".".join(name) for name in (written.names if written else ())) == names


def test_a_task_finds_the_table_that_it_makes_by_the_settings_of_its_session(runner: TaskRunner, table: str) -> None:
    own = "SET spark.sql.caseSensitive = true"
    launch = a_sql_launch(f"{own}; SELECT 1 AS id", run_id="r1", into=table.upper(), mode="append")
    assert runner.run(launch) == Succeeded(None)
    assert runner.recorder.rows_of(launch) == 1
    assert runner.run(a_sql_launch(f"{own}; DROP TABLE {table.upper()}", run_id="r2")) == Succeeded(None)
