"""`waits_for`: what an author may declare, in Python and in YAML."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator

from backfill_manager import condition, dag, file, rows, task
from backfill_manager.dags.importing.loader import load_file
from backfill_manager.dags.yaml import json_schema
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.waits import label, read_waits

WAITS = [
    "bronze.events", rows("partner.orders", time_column="at", at_least=10),
    file("s3://in/{interval_start:%Y/%m/%d}/{{x}}/_SUCCESS"), condition("SELECT count(*) > 0 FROM t WHERE day = :interval_start"),
]  # fmt: skip
YAML = """
dag_id: silver
schedule: "@daily"
waits_for:
  - bronze.events
  - {rows: partner.orders, time_column: at, at_least: 10}
  - file: s3://in/{interval_start:%Y/%m/%d}/{{x}}/_SUCCESS
  - condition: SELECT count(*) > 0 FROM t WHERE day = :interval_start
tasks:
  clean: {sql: SELECT 1}
"""


def silver(waits_for: Any) -> Any:
    @dag(schedule="@daily")
    def silver() -> None:
        @task(waits_for=waits_for)
        def clean(ctx: Any) -> None: ...

        clean()

    return silver.spec


def test_python_and_yaml_declare_the_same_and_a_version_keeps_it(tmp_path: Path) -> None:
    spec = silver([*WAITS, WAITS[1]])
    assert spec.task("clean").waits_for == tuple(WAITS), "each once"
    assert type(spec).from_json(spec.to_json()) == spec
    path = tmp_path / "silver.dag.yaml"
    path.write_text(YAML)
    (of_yaml,) = load_file(path)
    assert of_yaml.spec.task("clean").waits_for == tuple(WAITS)
    items = json_schema.schema()["properties"]["waits_for"]["items"]["anyOf"]
    names = [frozenset(one.get("required", ())) for one in items]
    assert names == [frozenset(), frozenset({"rows", "time_column"}), frozenset({"file"}), frozenset({"condition"})]


def test_how_each_is_named() -> None:
    assert [label(wait) for wait in WAITS] == [
        "bronze.events", "10 rows in partner.orders", "s3://in/{interval_start:%Y/%m/%d}/{{x}}/_SUCCESS",
        "condition SELECT count(*) > 0 FROM t WHERE day = :interval_start",
    ]  # fmt: skip
    assert "secret" not in label(file("s3://me:secret@in/x"))


def test_a_path_is_filled_in_from_the_interval_alone() -> None:
    start, end = (datetime(2024, 1, day, tzinfo=timezone.utc) for day in (2, 3))
    assert file("/in/{interval_start:%Y-%m-%d}_{interval_end:%d}/{{x}}").path(start, end) == "/in/2024-01-02_03/{x}"
    assert file("/in/done").path(None, None) == "/in/done"
    with pytest.raises(ValueError, match="the run has no interval_start"):
        file("/in/{interval_start:%Y}").path(None, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("bronze.events", "must be a list"),
        ([""], "must be text"),
        ([7], "must be text"),
        ([rows("", time_column="at")], "the table must be text"),
        ([rows("t", time_column="")], "time_column must be text"),
        ([rows("t", time_column="at", at_least=0)], "at_least must be a number of rows"),
        ([rows("t", time_column="at", at_least=True)], "at_least must be a number of rows"),
        ([file("in/_SUCCESS")], "neither an absolute path nor a URI"),
        ([file("{interval_start:%Y}/x")], "neither an absolute path nor a URI"),
        ([file("/in/{interval_start}/x")], "needs the form of its date: {interval_start:%Y-%m-%d}"),
        ([file("/in/{interval_start!r:%Y}")], "needs the form of its date"),
        ([file("/in/{interval_start:{interval_end}}")], "needs the form of its date"),
        ([file("/in/{interval_stat:%Y}")], "did you mean 'interval_start'"),
        ([file("/in/{interval_start.__class__:%Y}")], "is not filled in"),
        ([file("/in/{0:%Y}")], "is not filled in"),
        ([file("/in/{run_id}")], "there are interval_start and interval_end"),
        ([file("/in/{x")], "a brace itself is written twice"),
        ([condition(" ")], "condition must be text"),
        ([{"file": "/x", "condition": "SELECT true"}], "exactly one of rows, file, condition"),
        ([{"fil": "/x"}], "exactly one of rows, file, condition"),
        ([{"file": "/x", "after": 1}], "has no 'after'"),
        ([{"rows": "t"}], "needs time_column"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("{", r"\{").replace("}", r"\}")):
        read_waits(wrong)
    with pytest.raises(InvalidDag, match="waits_for"):
        silver(wrong)


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM t", "SELECT 1 > 0; DROP TABLE t", "INSERT INTO t SELECT 1", "-- nothing", "VACUUM t",
        "/* SELECT */ UPDATE t SET a = 1", "EXECUTE IMMEDIATE 'DROP TABLE t'",
    ],
)  # fmt: skip
def test_a_condition_is_one_query(query: str) -> None:
    with pytest.raises(InvalidDag, match="a condition is one query, such as SELECT"):
        silver([condition(query)])


def test_a_condition_may_begin_and_end_as_queries_do() -> None:
    for query in (
        "select 1 > 0;",
        "WITH x AS (SELECT 1 AS a) SELECT a > 0 FROM x",
        "(SELECT ';' = ';')",
        "VALUES (true)",
    ):
        silver([condition(query)])
    assert json.loads(silver([condition("SELECT true")]).to_json())["tasks"][0]["waits_for"] == [
        {"condition": "SELECT true"}
    ]


# -- schedule=on(...) -------------------------------------------------------------------------------------------------

EVENTS_DAG = '@dag(schedule="@hourly", timezone="Europe/Berlin", writes=["bronze.events"])\ndef events(): a()\n'
HEAD = "from backfill_manager import dag, file, on, rows, sql, task\n@task\ndef a(ctx): ...\n"


def dags_of(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "silver.py"
    path.write_text(HEAD + text)
    return {each.dag_id: each.spec for each in load_file(path)}


def test_a_schedule_of_data_is_the_schedule_of_its_intervals_with_waits(tmp_path: Path) -> None:
    (made,) = dags_of(
        tmp_path,
        '@dag(schedule=on("bronze.events", rows("x", time_column="at"), every="0 6 * * *"))\n'
        "def silver(): a() >> a.override(task_id='b')()\n",
    ).values()
    path = tmp_path / "silver.dag.yaml"
    path.write_text(
        "dag_id: silver\nschedule:\n  waits_for: [bronze.events, {rows: x, time_column: at}]\n  every: 0 6 * * *\n"
        "tasks: {a: {sql: SELECT 1}, b: {sql: SELECT 1, after: a}}\n"
    )
    (of_yaml,) = load_file(path)
    for spec in (made, of_yaml.spec):
        assert spec.schedule == "0 6 * * *"
        assert spec.task("a").waits_for == ("bronze.events", rows("x", time_column="at"))
        assert spec.task("b").waits_for == ()
        assert type(spec).from_json(spec.to_json()) == spec
    Draft202012Validator(json_schema.schema()).validate(yaml.safe_load(path.read_text()))


def test_without_every_the_intervals_are_those_of_the_dags_above_that_write_the_tables(tmp_path: Path) -> None:
    zone = 'timezone="Europe/Berlin"'
    made = dags_of(
        tmp_path,
        EVENTS_DAG
        + f'@dag(schedule="@hourly", {zone})\ndef places(): sql("p", "SELECT 1", into="bronze.places")\n'
        + f'@dag(schedule=on("bronze.events", "bronze.places", file("/in/done")), {zone})\ndef silver(): a()\n',
    )
    assert made["silver"].schedule == "@hourly"
    assert made["silver"].task("a").waits_for == ("bronze.events", "bronze.places", file("/in/done"))


@pytest.mark.parametrize(
    "silver",
    [
        '@dag(schedule=on("bronze.events"))',  # in another zone
        '@dag(schedule=on("bronze.events", "bronze.places"), timezone="Europe/Berlin")',  # of which one is unknown
        '@dag(schedule=on(file("/in/done")), timezone="Europe/Berlin")',
        '@dag(schedule=on("daily.and.hourly", "bronze.events"), timezone="Europe/Berlin")',
        '@dag(schedule=on("every.two.hours"), timezone="Europe/Berlin")',  # counts from a start of its own
        '@dag(schedule=on("never"), timezone="Europe/Berlin")',
    ],
)
def test_where_the_intervals_are_not_known_every_is_needed(tmp_path: Path, silver: str) -> None:
    others = [
        ("daily", '"@daily"', "daily.and.hourly"),
        ("two", "timedelta(hours=2)", "every.two.hours"),
        ("no", None, "never"),
    ]
    above = "from datetime import timedelta\n" + "".join(
        f'@dag(schedule={schedule}, timezone="Europe/Berlin", writes=["{table}"])\ndef {name}(): a()\n'
        for name, schedule, table in others
    )
    with pytest.raises(
        InvalidDag,
        match=r"^silver.py, line \d+: DAG 'silver': schedule needs `every`, .*: on\(.*every='@daily'\); .*`writes=`",
    ):
        dags_of(tmp_path, above + EVENTS_DAG + silver + "\ndef silver(): a()\n")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('schedule=on("t", every="@daily"), waits_for=["x"]', "waits_for and schedule=on(...) say the same; give all of it"),
        ('schedule=on("t", every="@dayly")', "schedule: every: there is no preset '@dayly'; did you mean '@daily'"),
        ('schedule=on("t", every="@once")', "schedule: every must be a schedule that repeats, such as '@daily'"),
        ('schedule=on(every="@daily")', "schedule must name what its runs wait for: on('bronze.events', every='@daily')"),
        ('schedule=on(["t"], every="@daily")', "schedule is wrong: [0]: a table's name, rows(...), file(...) or condition(...)"),
        ('schedule=on(file("in/x"), every="@daily")', "schedule is wrong: [0]: 'in/x' is neither an absolute path nor a URI"),
        ('schedule={"on": ["t"]}', "schedule must be such as {waits_for: [bronze.events], every: '@daily'}; it has no 'on'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_schedule_of_data_is_one_line(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(InvalidDag) as caught:
        dags_of(tmp_path, f"@dag({settings})\ndef silver(): a()\n")
    assert f"DAG 'silver': {message}" in str(caught.value)
