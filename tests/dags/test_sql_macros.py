"""Macros in SQL: values become literals and nothing else, what can be wrong is said when the file is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import tokenize

from backfill_manager import dag, sql
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.loader import load_file
from backfill_manager.dags.sql_macros import MacroError, MacroInterval, check_macros, render_macros, sql_literal
from backfill_manager.errors import InvalidDag
from backfill_manager.planning.backfills.rendering import PlannedRun, render

UTC = timezone.utc
START, END = datetime(2024, 4, 30, 22, tzinfo=UTC), datetime(2024, 5, 1, 22, tzinfo=UTC)  # a day of Berlin
VALUES: dict[str, Any] = {
    "run_id": "r",
    "dag_id": "d",
    "task_id": "t",
    "logical_date": START,
    "interval": MacroInterval(START, END),
}


def rendered(text: str, **params: Any) -> str:
    check_macros(text, params)
    return render_macros(text, {**VALUES, "params": params}, "Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ interval.start }}", "TIMESTAMP '2024-04-30T22:00:00Z'"),
        ("{{ interval.end | date }}", "DATE '2024-05-02'"),
        ("{{ logical_date | date }}", "DATE '2024-05-01'"),
        ("{{ logical_date | date('%Y%m%d') }}", "'20240501'"),
        ("{{ '2024-02-29' | date }}", "DATE '2024-02-29'"),
        ("{{ dag_id }}.{{ run_id }} {{ task_id }}", "'d'.'r' 't'"),
        ("{{ params.n }} {{ params.minus }} {{ params.f }}", "7 (-7) 1.5D"),
        ("{{ params.yes }} {{ params.none }}", "true NULL"),
        ("{{ params.ids }}", "array(1, 'b')"),
        ("IN ({{ params.ids | values }}) ({{ params.empty | values }})", "IN (1, 'b') (NULL)"),
        ("{{ params.map }}", "map('k', 1)"),
        ("{{ params.items }}", "'a param of this name'"),
        ("FROM {{ params.table | identifier }}", "FROM `mart`.`a``b`"),
        ("FROM {{ ('sales_' ~ params.n) | identifier }} t", "FROM `sales_7` t"),
        ("a{% if params.n > 3 %} AND n = {{ params.n }}{% endif %}", "a AND n = 7"),
        ("{% for id in params.ids %}{{ id }}{% if not loop.last %}, {% endif %}{% endfor %}", "1, 'b'"),
        ("{% set x = params.n * 2 %}{{ x }}", "14"),
        ("{{ params.missing | default('x') }}", None),
        ("-- {{ params.evil }}\n/* {{ params.evil }} */ {{ 1 }}", "-- ?\n/* ? */ 1"),
        ("{% raw %}'{{ }}'{% endraw %}", "'{{ }}'"),
        ("3 -{{ params.minus }}", "3 -(-7)"),
    ],
)
def test_values_come_out_as_literals(text: str, expected: str | None) -> None:
    params = {
        "n": 7, "minus": -7, "f": 1.5, "yes": True, "none": None, "ids": [1, "b"], "empty": [], "map": {"k": 1},
        "items": "a param of this name", "table": "mart.a`b", "evil": "x\nDROP TABLE t */",
    }  # fmt: skip
    if expected is None:
        with pytest.raises(MacroError, match="the DAG has no param 'missing'"):
            rendered(text, **params)
    else:
        assert rendered(text, **params) == expected.replace(
            "'a param of this name'", sql_literal("a param of this name")
        )


@given(
    st.text()
    | st.sampled_from(["a' OR 1=1 --", "\\", "\\'", "${env:HOME}", "'''", "`", "*/ x", "\n--", "{{ 1 }}", "{% raw %}"])
)
def test_whatever_a_value_holds_it_is_one_literal_and_no_code(value: str) -> None:
    text = rendered(
        "SELECT {{ params.x }} AS a, {{ params.xs | values }}, {{ params.xs }} -- {{ params.x }}", x=value, xs=[value]
    )
    kinds = [token.token_type for token in tokenize(text, read="spark")]
    plain = [token.token_type for token in tokenize("SELECT 'v' AS a, 'v', array('v')", read="spark")]
    assert kinds == plain
    assert not any(sign in text for sign in ("${", "\n", ";"))


@given(st.text(min_size=1))
def test_whatever_a_name_holds_it_is_one_name(value: str) -> None:
    try:
        text = rendered("SELECT * FROM {{ params.x | identifier }} WHERE b", x=value)
    except MacroError as error:
        assert "identifier is for a name" in str(error)
        return
    plain = f"SELECT * FROM {'.'.join('`a`' for _ in value.split('.'))} WHERE b"
    kinds, expected = ([token.token_type for token in tokenize(one, read="spark")] for one in (text, plain))
    assert kinds == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("SELECT 1\nWHERE d = '{{ logical_date }}'", 2, "within quotation marks, and brings its own"),
        ('SELECT "{{ params.x }}"', 1, "within quotation marks"),
        ("SELECT `{{ params.x }}`", 1, "within quotation marks"),
        ("FROM events_{{ params.x }}", 1, "within a name"),
        ("{{ params.x }}{{ params.x }}", 1, "beside another"),
        ("\n\nSELECT {{ params.x", 3, "unexpected end of template"),
        ("SELECT 1\n{% if params.x %}", 2, "Unexpected end of template"),
        ("{{ params.y }}", 1, "the DAG has no param 'y'"),
        ("{{ params.x | safe }}", 1, "No filter named 'safe'"),
        ("{{ params.x | random }}", 1, "No filter named 'random'"),
        ("\n{{ ds }}", 2, r"there is no 'ds' here; write {{ logical_date \| date }}"),
        ("{{ intervall.start }}", 1, "there is no 'intervall' here; did you mean"),
        ("{{ range(9) }}", 1, "there is no 'range' here"),
        ("{% macro m() %}{% endmacro %}", 1, "{% macro %} is not among the macros"),
        ("{% include 'x' %}", 1, "{% include %} is not among the macros"),
        ("{% set x %}a{% endset %}", 1, "{% set %}"),
        ("SELECT 'a {{ params.x }}", None, "a quotation mark or a comment does not end"),
        ("SELECT __bfm_value_0__ {{ 1 }}", None, "__bfm_value_ is a name of ours"),
    ],
)
def test_what_is_wrong_with_a_text_is_known_when_it_is_read(text: str, line: int | None, message: str) -> None:
    with pytest.raises(MacroError, match=message) as raised:
        check_macros(text, ["x"])
    assert raised.value.line == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ params.get.__self__ }}", "unsafe"),
        ("{{ 'a' * 1000000000 }}", r"\* is for numbers"),
        ("{{ 9 ** 9 ** 9 }}", "for none"),
        ("{{ '%1000000000d' % 1 }}", "% is for numbers"),
        ("{{ '{:1000000000}'.format(1) }}", "unsafe"),
        ("{{ params.clear() }}", "unsafe"),
        ("{{ interval }}", "this is an interval; write"),
        ("{{ params.get }}", "is no value of SQL"),
        ("{{ 1 if params.no }}", "an `if` without `else` has no value"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ partition_key }}", "'partition_key' is undefined; this run has dag_id, interval, logical_date, params"),
        ("{{ params.no | date }}", "date is for instants"),
        ("{{ 'monday' | date }}", "Invalid isoformat"),
        ("{{ 'a..b' | identifier }}", "identifier is for a name"),
        ("{{ 'a${env:HOME}' | identifier }}", "identifier is for a name"),
        ("{% for a in params.many %}{% for b in params.many %}{% for c in params.many %} x x x {% endfor %}{% endfor %}{% endfor %}", "more than 1,000,000 characters"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_a_text_does_is_bounded(text: str, message: str) -> None:
    with pytest.raises(MacroError, match=message):
        rendered(text, no=False, many=list(range(100)))


def test_what_is_no_value_of_sql_is_refused() -> None:
    for value in (object(), float("inf"), datetime(2024, 1, 1), b"x"):
        with pytest.raises(MacroError, match="is no value of SQL"):
            sql_literal(value)
    assert sql_literal(date(2024, 1, 1)) == "DATE '2024-01-01'"


# -- in DAGs ----------------------------------------------------------------------------------------------------------------


def made(text: str, write: Callable[[Path], None] = lambda folder: None) -> str:
    @dag(schedule=None, params={"region": "eu"})
    def shop() -> None:
        sql("totals", text)

    return shop.spec.tasks[0].sql or ""


def test_the_text_is_stored_as_it_is_written() -> None:
    """So a version is one of the text, and each run has values of its own."""
    assert made("SELECT {{ params.region }}") == "SELECT {{ params.region }}"
    assert TaskSpec("x", "sql", sql="SELECT {{ 1 }}").has_macros
    assert not TaskSpec("x", "sql", sql="SELECT '{', '}', :region").has_macros


def test_a_mistake_is_an_error_of_the_file_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidDag, match=r"DAG 'shop', task 'totals': line 2 of its text: the DAG has no param 'regio'; did you mean 'region'"):  # noqa: E501  # fmt: skip
        made("SELECT 1\nWHERE {{ params.regio }}")
    (tmp_path / "totals.sql").write_text("SELECT 1\n\nWHERE d = '{{ logical_date }}'")
    (tmp_path / "a.py").write_text(
        "from backfill_manager import dag, sql\n@dag(schedule=None)\ndef a():\n    sql('t', 'totals.sql')\n"
    )
    with pytest.raises(InvalidDag, match=r"a\.py.*line 4.*totals\.sql, line 3: a value stands within quotation marks"):
        load_file(tmp_path / "a.py")
    (tmp_path / "b.dag.yaml").write_text("dag_id: b\ntasks:\n  t:\n    sql: SELECT {{ params.x }}\n")
    with pytest.raises(InvalidDag, match=r"b\.dag\.yaml.*line 4.*the DAG has no param 'x'"):
        load_file(tmp_path / "b.dag.yaml")


def test_what_is_shown_has_the_values_of_the_run_without_secrets() -> None:
    text = "SELECT {{ params.region }}, {{ params.api_token }}, {{ interval.start | date }}"
    params = {"region": "eu", "api_token": "hunter2hunter2"}
    spec = DagSpec("shop", (TaskSpec("totals", "sql", sql=text),), params=params, timezone="Europe/Berlin")
    document = render(spec, PlannedRun("r", (START, END), None, {"region": "us"}), ["totals"])
    assert document["tasks"][0]["sql"] == f"SELECT 'us', {sql_literal('***')}, DATE '2024-05-01'"
    of_partition = render(spec, PlannedRun("r", None, "emea", {}), ["totals"])["tasks"][0]["sql"]
    assert of_partition.startswith(
        "-- sql task 'totals': 'interval' is undefined; this run has dag_id, params, partition_key"
    )
    assert of_partition.endswith(text)
    plain = dataclasses.replace(spec, tasks=(TaskSpec("totals", "sql", sql="SELECT :region"),))
    assert render(plain, PlannedRun("r", None, None, {}), ["totals"])["tasks"][0]["sql"] == "SELECT :region"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("SELECT a{% if params.x %}, b{% endif %}\nFROM t", "SELECT a\nFROM t"),
        ("SELECT a -- {% if params.x %}all{% endif %}\nFROM t", "SELECT a --\nFROM t"),
        ("SELECT a {# all #}\nFROM t", "SELECT a \nFROM t"),
        (
            "SELECT {% for c in ['a', 'b'] %}{{ c | identifier }}{% if not loop.last %}, {% endif %}{% endfor %}\nFROM t",
            "SELECT `a`, `b`\nFROM t",
        ),
        (
            "{% set x = 1 %}\nSELECT {{ x }}\n{# why #}\n  {% if x %}\n  , 2\n  {% endif %}\nFROM t",
            "SELECT 1\n  , 2\nFROM t",
        ),
        ("SELECT 1\n{%- if params.x %}, 2{% endif %}\nFROM t", "SELECT 1\nFROM t"),
    ],
)
def test_the_end_of_a_line_with_a_block_stays_unless_nothing_else_is_on_it(text: str, written: str) -> None:
    check_macros(text, ["x"])
    rendered = render_macros(text, {"params": {"x": False}}, "UTC")
    assert [line.rstrip() for line in rendered.splitlines()] == [line.rstrip() for line in written.splitlines()]
