"""`sql` tasks: parameters, several statements, and writing exactly once."""

from __future__ import annotations

import dataclasses

import pytest
from execution_stage import Stage, a_launch, rows_of, version_of

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.outcome import Failed, Launch, Succeeded
from backfill_manager.execution.sql_text import identifier, statements, string_literal


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
    assert statements(text) == parts


def test_names_and_texts_are_never_code(stage: Stage) -> None:
    awkward = 'a\'b\\c\n`d` "e" 😀 -- ; \u2028'
    row = stage.spark.sql(f"SELECT {string_literal(awkward)} AS {identifier('x`y; z')}").collect()[0]
    assert row.asDict() == {"x`y; z": awkward}


def test_a_task_spec_with_an_output_goes_through_json() -> None:
    spec = DagSpec("d", (TaskSpec("t", kind="sql", sql="SELECT 1", into="table", time_column="at"),))
    assert DagSpec.from_json(spec.to_json()) == spec


def a_sql_launch(text: str, **how: object) -> Launch:
    return a_launch(kind="sql", sql=text, **how)  # type: ignore[arg-type]


def again(launch: Launch, **changes: int) -> Launch:
    return dataclasses.replace(launch, ti=launch.ti.evolve(launch=launch.ti.launch + 1, **changes))


def test_the_last_statements_rows_go_into_the_output_exactly_once(stage: Stage, table: str) -> None:
    text = """
        CREATE OR REPLACE TEMPORARY VIEW factor AS SELECT 10 AS f;
        SELECT :interval_start AS at, :n * f AS value, :run_id AS run FROM factor
        WHERE :interval_end > :interval_start AND :logical_date = :interval_start
    """
    launch = a_sql_launch(text, run_id="r1", into=table, time_column="at", params={"n": 2})
    assert stage.play(launch) == Succeeded(None)
    assert stage.play(again(launch)) == Succeeded(None)
    assert [(value, run) for _, value, run in rows_of(stage.spark, table)] == [(20, "r1")]
    assert stage.play(again(again(dataclasses.replace(launch, params={"n": 3})), generation=1)) == Succeeded(None)
    assert [value for _, value, _ in rows_of(stage.spark, table)] == [30]


def test_statements_that_write_themselves_land_once_each_too(stage: Stage, table: str) -> None:
    text = f"""
        CREATE TABLE IF NOT EXISTS {table} (id INT, part STRING) USING delta;
        INSERT INTO {table} SELECT 1, :region;
        INSERT INTO {table} SELECT 2, element_at(:regions, 1);
        UPDATE {table} SET id = id + 10
    """
    launch = a_sql_launch(text, params={"region": "north", "regions": ["south"], "not an identifier": 1})
    assert stage.play(launch) == Succeeded(None)
    landed = version_of(stage.spark, table)
    assert stage.play(again(launch, try_number=2)) == Succeeded(None)
    assert rows_of(stage.spark, table) == [(11, "north"), (12, "south")]
    assert version_of(stage.spark, table) == landed


def test_a_query_that_checks_is_really_asked(stage: Stage) -> None:
    outcome = stage.play(a_sql_launch("SELECT assert_true(count(*) = 0, 'there are rows') FROM range(3)"))
    assert isinstance(outcome, Failed) and "there are rows" in outcome.error


def test_a_parameter_that_the_run_does_not_have_is_named(stage: Stage) -> None:
    outcome = stage.play(a_sql_launch("SELECT :interval_start", interval=None, partition="north", params={"n": 1}))
    assert outcome == Failed(
        "sql task 'work' uses :interval_start, which this run does not have; it has :n, :partition_key, :run_id",
        retryable=False,
    )


def test_a_text_without_a_statement_is_refused(stage: Stage) -> None:
    assert stage.play(a_sql_launch("-- later")) == Failed("sql task 'work' has no statement", retryable=False)
