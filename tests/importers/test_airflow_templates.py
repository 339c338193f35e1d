"""Jinja of Airflow as Python over `ctx`, as Spark SQL and as paths: what each template becomes, and what has no equal."""

from __future__ import annotations

import ast
import shlex
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from support.drafted import FakeContext

from backfill_manager.importers.airflow.templates import as_path, as_python, as_sql, with_values


def rendered(text: str, *, shell: bool = False) -> object:
    written, problems = as_python(text, shell=shell)
    assert problems == []
    context = FakeContext(params={"a": 1, "b": {"c": "x y"}}, results={"t": {"k": 2}})
    return eval(written, {"ctx": context, "timedelta": timedelta, "shlex": shlex, "ZoneInfo": ZoneInfo})


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ ds }}", "2024-05-01"),
        ("{{ macros.ds_format(ds, '%Y-%m-%d', '%d.%m.%Y') }}", "01.05.2024"),
        ("{{ macros.ds_format(macros.ds_add(ds, -1), '%Y-%m-%d', '%Y/%m') }}", "2024/04"),
        ("{{ data_interval_end | ds_nodash }}/{{ logical_date | ts_nodash }}", "20240502/20240501T000000"),
        (
            "{{ execution_date.strftime('%H:%M') }} {{ data_interval_start.isoformat() }}",
            "00:00 2024-05-01T00:00:00+00:00",
        ),
        ("{{ logical_date.to_date_string() }} {{ yesterday_ds_nodash }}", "2024-05-01 20240430"),
        ("{{ (execution_date - macros.timedelta(days=1)).strftime('%d.%m.') }}", "30.04."),
        (
            "{{ logical_date + macros.timedelta(1) }} {{ next_execution_date | ds }}",
            "2024-05-02T00:00:00+00:00 2024-05-02",
        ),
        (
            "{{ data_interval_end.subtract(weeks=1) | ds }}/{{ execution_date.add(days=2) | ds_nodash }}",
            "2024-04-25/20240503",
        ),
        ("{{ data_interval_start.in_timezone('America/New_York') | ds }}", "2024-04-30"),
        ("{{ logical_date.in_tz('Europe/Berlin').strftime('%H') }} {{ ts }}", "02 2024-05-01T00:00:00+00:00"),
        ("{{ params.b.c }}", "x y"),
        ("{{ params['b']['c'] }}-{{ params.get('z', 3) }}", "x y-3"),
        ("{{ ti.xcom_pull('t')['k'] }}", 2),
        ("{{ task_instance.xcom_pull(task_ids='t', key='k') }}", 2),
        ("{{ 'text' }} {{ 5 }}{# a comment #}", "text 5"),
        ("{{ dag_run.run_id }} '\"\\ {{ ds }}", "scheduled__1 '\"\\ 2024-05-01"),
        ('"""{{ ds }}"""\n\\', '"""2024-05-01"""\n\\'),
        ("no template", "no template"),
    ],
)
def test_python(template: str, expected: object) -> None:
    assert rendered(template) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ prev_ds }}", "{{ var.value.x }}", "{{ conn.c.host }}", "{{ ds | upper }}", "{{ execution_date.hour }}", "{{ ds.x }}",
        "{{ macros.ds_format(ds, '%Y', '%m') }}", "{{ macros.random() }}", "{{ ti.xcom_pull() }}", "{{ ds.strftime('%Y') }}",
        "{{ params.get(ds) }}", "{{ }}", "{{ logical_date + macros.timedelta(hours=1) }}", "{{ ds + macros.timedelta(days=1) }}",
        "{{ logical_date.in_timezone('Europe/Berlin').isoformat() }}", "{{ logical_date.in_timezone('Europe/Berlin') | ts }}",
        "{{ logical_date.in_timezone(params.a) | ds }}", "{{ logical_date.in_timezone('Europe/Berlin').add(days=1) | ds }}",
        "{{ logical_date.add(n) }}", "{{ logical_date.in_tz('Nowhere') }}", "{{ logical_date.in_tz([]) }}",
        "{{ logical_date.in_tz() }}", "{% if ds %}x{% endif %}",
    ],
)  # fmt: skip
def test_what_has_no_equal_is_named_and_stays(template: str) -> None:
    written, problems = as_python(template)
    assert len(problems) == 1
    assert ast.literal_eval(written) == template


def test_values_are_quoted_for_the_shell() -> None:
    assert rendered("echo '{{ params.b.c }}' \"it's \" \\' {{ params.a }}", shell=True) == "echo 'x y' \"it's \" \\' 1"
    _, problems = as_python("echo 'in \\'{{ params.a }} here'", shell=True)
    assert problems == []
    _, problems = as_python('echo "in {{ params.a }} here"', shell=True)
    assert problems == ['`ctx.params["a"]` is quoted for the shell, within other quotes']


def test_values_in_an_f_string() -> None:
    [statement] = ast.parse("f'{name!r} {{{{ ds }}}} {f\"{1}{{{{ ts }}}}\"} {2:>3}'").body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.JoinedStr)
    written, problems = with_values(statement.value)
    assert problems == []
    assert eval(written, {"ctx": FakeContext(), "name": "n"}) == "'n' 2024-05-01 12024-05-01T00:00:00+00:00   2"


@pytest.mark.parametrize(
    ("template", "expected", "problems"),
    [
        ("SELECT {{ data_interval_end }}, {{ yesterday_ds }}",
         "SELECT :interval_end, date_format((:logical_date + INTERVAL '-1' DAY), 'yyyy-MM-dd')", 0),
        ("FROM {{ params.table }} WHERE x = \"a {{ params.b }}\"", 'FROM IDENTIFIER(:table) WHERE x = concat("a ", :b)', 0),
        ("SELECT '{{ data_interval_end.in_timezone(\"Asia/Seoul\") | ds }}'",
         "SELECT date_format(from_utc_timestamp(:interval_end, 'Asia/Seoul'), 'yyyy-MM-dd')", 0),
        ("SELECT {{ logical_date.in_timezone('Asia/Seoul') }}", "SELECT {{ logical_date.in_timezone('Asia/Seoul') }}", 1),
        ("SELECT '{{ logical_date.strftime(\"%Y week\") }}'", "SELECT date_format(:logical_date, \"yyyy' week'\")", 0),
        ("SELECT '{{ logical_date.strftime(\"%A\") }}'", "SELECT '{{ logical_date.strftime(\"%A\") }}'", 1),
        ("FROM t_{{ params.x }} /* {{ ds }} */", "FROM t_{{ params.x }} /* ds */", 1),
        ("SELECT `a{{ params.x }}`, '{{ ti.xcom_pull(\"a\") }}'", "SELECT `a{{ params.x }}`, '{{ ti.xcom_pull(\"a\") }}'", 2),
        ("SELECT {{ params['a b'] }}", "SELECT {{ params['a b'] }}", 1),
    ],
)  # fmt: skip
def test_sql(template: str, expected: str, problems: int) -> None:
    written, found = as_sql(template)
    assert (written, len(found)) == (expected, problems)


def test_paths() -> None:
    assert as_path("/in/{{ ds }}/{x}/{{ data_interval_end | ds_nodash }}") == (
        "/in/{interval_start:%Y-%m-%d}/{{x}}/{interval_end:%Y%m%d}", []
    )  # fmt: skip
    for without in (
        "{{ params.x }}",
        "{{ data_interval_start }}",
        "{{ tomorrow_ds }}",
        "{{ logical_date.in_tz('UTC') | ds }}",
    ):
        assert as_path(f"/in/{without}") == ("/in/", [f"`{without}` in a template"])
