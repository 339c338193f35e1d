"""SQL in a DAG file: its files, statements, parameters, conditions and checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backfill_manager import Dag, bash_task, condition, dag, sql, task
from backfill_manager.dags.authoring import collecting
from backfill_manager.errors import InvalidDag

any_task: Any = task  # for calls that a type checker would refuse too
any_sql: Any = sql


def _work(ctx: Any) -> None: ...


def test_a_sql_file_is_read_from_beside_the_dags_file(tmp_path: Path) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "delays.sql").write_text("SELECT 1\n")
    with collecting(tmp_path, tmp_path / "flights.py"):

        @dag
        def flights() -> None:
            sql("delays", "queries/delays.sql")

    assert flights.spec.task("delays").sql == "SELECT 1\n"


def test_a_byte_order_mark_is_no_part_of_a_statement_or_a_command(tmp_path: Path) -> None:
    """Editors of Windows write one; bash would take it for the first letter of a command's name."""
    (tmp_path / "delays.sql").write_bytes(b"\xef\xbb\xbfSELECT 1")
    (tmp_path / "copy.sh").write_bytes(b"\xef\xbb\xbfcp a b")
    with collecting(tmp_path, tmp_path / "flights.py"):

        @dag
        def flights() -> None:
            sql("delays", "delays.sql")
            bash_task("copy", "copy.sh")

    assert (flights.spec.task("delays").sql, flights.spec.task("copy").bash) == ("SELECT 1", "cp a b")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.sql", "nothing.sql can't be read from the DAG file's folder: No such file or directory"),
        ("../outside.sql", "../outside.sql must lie in the bundle"),
        ("empty.sql", "empty.sql is empty"),
        ("binary.sql", "not UTF-8 text"),
        ("", "needs a statement, or the name of a .sql file"),
    ],
)
def test_a_sql_file_that_cannot_be_used_is_reported(tmp_path: Path, name: str, message: str) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (tmp_path / "outside.sql").write_text("SELECT 1")
    (bundle / "empty.sql").write_text(" \n")
    (bundle / "binary.sql").write_bytes(b"\xff\xfe")
    with collecting(bundle, bundle / "flights.py"), pytest.raises(InvalidDag) as error:

        @dag
        def flights() -> None:
            sql("delays", name)

    assert message in str(error.value)
    assert str(error.value).startswith("DAG 'flights', task 'delays': ")


def test_sql_outside_of_a_dag_is_reported() -> None:
    with pytest.raises(InvalidDag, match="call it in the body of a @dag function"):
        sql("s", "SELECT 1")


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("SELECT 1\n WHERE d = :interval_strat", {}, "line 2 of its text: :interval_strat is no param"),
        ("SELECT :regio", {}, "did you mean ':region'?"),
        (
            "SELECT :x",
            {},
            "; there are :region, :interval_end, :interval_start, :logical_date, :partition_key, :run_id",
        ),
        ("SELECT {{\n interval.start }}\n{% if run_id %}, :x{% endif %}", {}, "line 3 of its text: :x is no"),
        ("wrong.sql", {}, "wrong.sql, line 3: :to is no param"),
        ("SELECT :mapped_value", {}, "only a mapped task, one with over=..., has it"),
        ("SELECT :mapped_value, :region, :interval_end, :run_id, :logical_date, :partition_key", {"over": ["a"]}, None),
        ("SELECT ':x', `:y`, a:b, a::int -- :z\n, CAST(a AS STRUCT<b:int, date:date>), '12:30' /* :c */", {}, None),
    ],
)
def test_a_named_parameter_that_no_run_has_is_reported(
    tmp_path: Path, text: str, settings: dict[str, Any], message: str | None
) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT 1\nWHERE at >= :interval_start\n  AND at < :to\n")

    def make(**of_dag: Any) -> None:
        with collecting(tmp_path, tmp_path / "d.py"):

            @dag(**of_dag)
            def d() -> None:
                any_sql("s", text, **settings)

    make()  # without params and schedule: each run sets what it likes
    of_dags: list[dict[str, Any]] = [{"params": {"region": "eu"}}, {"params": {"region": "eu"}, "schedule": "@daily"}]
    for of_dag in of_dags:
        if message is None:
            make(**of_dag)
            continue
        with pytest.raises(InvalidDag) as error:
            make(**of_dag)
        assert str(error.value).startswith("DAG 'd', task 's': ")
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "into", "message"),
    [
        ("SELECT 'x", None, "a quotation mark or a comment does not end"),
        ("SELECT 1 /* why", None, "a quotation mark or a comment does not end"),
        ("-- nothing\n/* at all */ ;", None, "it has no statement"),
        (
            "SELECT 1; insert INTO t SELECT 1",
            "u",
            "its last statement begins with INSERT, and with into=... it is a query",
        ),
        ("INSERT INTO t SELECT 1", None, None),
        ("CREATE TEMP VIEW v AS SELECT 1; WITH x AS (SELECT 1) SELECT created_at -- it's", "u", None),
        ("BEGIN INSERT INTO t SELECT 1; SELECT 2; END", "u", None),
        ("SELECT 'it\\'s', r'\\', \"'\", `a'b`", "u", None),
        ("FROM t SELECT 1", "u", None),
    ],
)
def test_a_text_that_can_be_no_statement_is_reported(text: str, into: str | None, message: str | None) -> None:
    def make() -> Dag:
        return dag("d")(lambda: any_sql("s", text, into=into))

    if message is None:
        assert make().spec.tasks[0].sql == text
    else:
        with pytest.raises(InvalidDag) as error:
            make()
        assert str(error.value).startswith(f"DAG 'd', task 's': {message}")


def test_a_schedule_without_params_takes_none_in_its_sql_either() -> None:
    with pytest.raises(InvalidDag, match=":x is no param of the DAG, and no value that every run has"):

        @dag(schedule="@daily")
        def d() -> None:
            sql("s", "SELECT :x")

    with pytest.raises(InvalidDag, match="every run has; did you mean ':interval_start'"):

        @dag(schedule="@daily")
        def e() -> None:
            sql("s", "SELECT :interval_strat")


def test_a_condition_to_wait_for_has_the_values_of_its_interval_alone() -> None:
    with pytest.raises(InvalidDag, match="waits_for: a condition has no value :region; there are :interval_end, "):

        @dag(params={"region": "eu"})
        def d() -> None:
            sql("s", "SELECT :region", waits_for=[condition("SELECT count(*) > 0 FROM t WHERE r = :region")])


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("delay >", "check 'delay >': it is no condition in Spark SQL: it can't be read at '>'"),
        ("(delay > 1", "it can't be read at '1'"),
        ("delay > 1 and", "it can't be read at 'and'"),
        ("a && b", "it can't be read at '&&'"),
        ("name = 'x", "a quotation mark or a comment does not end"),
        ("a > 1; b > 1", "it is one condition, and has no semicolon"),
        ("SELECT a > 1", "it is a condition that each row has to meet, such as `delay > 0`, and no query"),
        ("day >= :interval_start", "it has no parameters or macros, such as :interval_start"),
        ("day >= {{ interval.start }}", "it has no parameters or macros, such as {{ ... }}"),
        ("max(delay) < 100", "each row has to meet it by itself, and max(...) is of many rows"),
    ],
)
def test_a_check_that_can_be_no_condition_is_reported_when_the_file_is_read(check: str, message: str) -> None:
    for make in (
        lambda: any_task(checks=[check])(_work)(),
        lambda: any_sql("_work", "SELECT 1", into="t", checks=[check]),
    ):
        with pytest.raises(InvalidDag) as error:
            dag("d")(make)
        assert str(error.value).startswith("DAG 'd', task '_work': check ")
        assert message in str(error.value)


@pytest.mark.parametrize(
    "check",
    [
        "event:user.id::int > 0", "values > 1", "range < 1", "a >>> 1 = 0", "a = X '1C'", "my_function(a) IS NOT NULL",
        "forall(transform(a, (x, i) -> x + i), y -> y > 0)", "a NOT RLIKE ALL ('x', 'y')", "a COLLATE UTF8_LCASE = 'x'",
        "id IN (SELECT max(id) FROM t)", "`max` > 1", "day >= DATE'2020-01-01' -- since then", "CASE WHEN a THEN b ELSE c END",
    ],
)  # fmt: skip
def test_a_check_that_only_spark_can_judge_is_taken(check: str) -> None:
    @dag
    def d() -> None:
        sql("s", "SELECT 1", into="t", checks=[check])

    assert [one.condition for one in d.spec.tasks[0].checks] == [check]
