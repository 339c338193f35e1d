"""Drafts of Airflow's DAG files: settings, schedules and params."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import DraftOf

from backfill_manager.importers.airflow.translate import translate
from backfill_manager.importers.files import convert


def test_settings_of_a_dag(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
default_args = {{
    "owner": "sales",
    "retries": 2,
    "retry_delay": timedelta(minutes=5),
    "retry_exponential_backoff": True,
    "execution_timeout": timedelta(hours=1),
    "depends_on_past": True,
    "priority_weight": 3,
    "start_date": datetime(2024, 5, 1, tzinfo=pendulum.timezone("Europe/Berlin")),
}}
dag = DAG(
    dag_id="orders.daily",
    schedule_interval="0 6 * * *",
    end_date=datetime(2025, 1, 1),
    default_args=default_args,
    catchup=True,
    max_active_runs=2,
    tags=["sales"],
    description="Orders of a day",
    params={{"full": False, "region": Param("eu", type="string", enum=["eu", "us"], description="where")}},
)
EmptyOperator(task_id="a", dag=dag, retries=0, pool_slots=2, wait_for_downstream=True, trigger_rule=TriggerRule.ALL_DONE)
"""
    )
    spec = made.dag.spec
    assert (spec.dag_id, spec.schedule, spec.timezone) == ("orders.daily", "0 6 * * *", "Europe/Berlin")
    assert (spec.owner, spec.tags, spec.description) == ("sales", ("sales",), "Orders of a day")
    assert (spec.catchup, spec.max_active_runs) == (True, 2)
    assert spec.start_date == datetime(2024, 4, 30, 22, tzinfo=timezone.utc)
    assert spec.params == {"full": False, "region": "eu"} and spec.declared_params["region"].choices == ("eu", "us")
    task = spec.task("a")
    assert (task.retries, task.retry_delay, task.retry_backoff, task.timeout, task.priority) == (0, 300, 2, 3600, 3)
    assert (task.weight, task.wait_for_downstream, task.depends_on_past, task.trigger_rule) == (
        2,
        True,
        True,
        "all_done",
    )
    assert made.remarks == ["catchup=True"] and "default_args = {" not in made.text


@pytest.mark.parametrize(
    ("schedule", "expected", "remark"),
    [
        ('schedule="@daily"', "@daily", None),
        ("schedule=timedelta(hours=6)", {"seconds": 21600}, None),
        ("schedule=None", None, None),
        ('timetable=CronDataIntervalTimetable("0 5 * * *", timezone="Europe/Berlin")', "0 5 * * *", None),
        ('schedule=CronTriggerTimetable("0 5 * * *", timezone="UTC")', "0 5 * * *", "CronTriggerTimetable"),
        ('schedule="@continuous"', None, "schedule='@continuous'"),
        ("schedule=[Dataset('s3://x')]", None, "schedule=[Dataset(\"s3://x\")]"),
        ("schedule=MultipleCronTriggerTimetable('0 5 * * *')", None, "schedule=MultipleCronTriggerTimetable(\"0 5 * * *\")"),
    ],
)  # fmt: skip
def test_schedules(drafted: DraftOf, schedule: str, expected: object, remark: str | None) -> None:
    text = file_of('EmptyOperator(task_id="a")', f"{schedule}, catchup=False")
    more = "from airflow.timetables.interval import CronDataIntervalTimetable\nfrom airflow.datasets import Dataset\n"
    more += "from airflow.timetables.trigger import CronTriggerTimetable, MultipleCronTriggerTimetable\n"
    made = drafted(more + text)
    assert made.dag.spec.schedule == expected
    assert made.remarks == ([remark] if remark else [])


def test_a_setting_of_a_dag_that_is_lost_is_said(drafted: DraftOf) -> None:
    """What the file changes after it has assigned it, zones of other files, and settings without an equal."""
    made = drafted(
        f"""{IMPORTS}
from datetime import timezone

ARGS = {{"retries": 1}}
ARGS["retries"] = 5
MORE = {{"retries": 1}}
MORE.update(pool="etl")
JST = timezone(timedelta(hours=9))
with DAG("one", schedule=None, start_date=datetime(2024, 5, 1, tzinfo=JST), default_args=ARGS, max_consecutive_failed_dag_runs=3):
    EmptyOperator(task_id="a")
with DAG("two", schedule=None, start_date=pendulum.parse("2024-05-01", tz="Europe/Berlin"), default_args=MORE):
    EmptyOperator(task_id="a")
"""
    )
    assert made.remarks == ["`ARGS`", "the time zone JST", "max_consecutive_failed_dag_runs of the DAG", "`MORE`"]
    one, two = (dag.spec for dag in made.dags)
    assert (one.task("a").retries, two.task("a").retries) == (0, 0)
    assert two.start_date == datetime(2024, 4, 30, 22, tzinfo=timezone.utc)


def test_params_of_default_args_are_the_dags(drafted: DraftOf) -> None:
    settings = 'schedule=None, params={"a": 1, "b": 1}, default_args={"params": {"b": 2, "c": 2}}'
    assert drafted(file_of('EmptyOperator(task_id="a")', settings)).dag.spec.params == {"a": 1, "b": 2, "c": 2}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xef\xbb\xbf" + file_of('EmptyOperator(task_id="a")').encode())
    [converted] = convert(tmp_path, translate)
    assert converted.error is None and converted.has_dags


def test_a_retry_waits_as_long_as_in_airflow(drafted: DraftOf) -> None:
    text = file_of(
        'EmptyOperator(task_id="a", retries=2)\nEmptyOperator(task_id="b", retries=2, retry_delay=timedelta(seconds=7))'
    )
    spec = drafted(text).dag.spec
    assert [spec.task(one).retry_delay for one in "ab"] == [300, 7]
    args = 'schedule=None, start_date=datetime(2024, 5, 1), default_args={"retries": 1}'
    spec = drafted(file_of('EmptyOperator(task_id="a")', args)).dag.spec
    assert spec.task("a").retry_delay == 300


def test_settings_from_a_dict_are_taken_or_named(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
COMMON = {{"retries": 4, "trigger_rule": "all_done"}}

def make(task_id, **more):
    return EmptyOperator(task_id=task_id, **more)

with DAG("one", **{{"schedule": None, "start_date": datetime(2024, 5, 1)}}):
    @task(**COMMON)
    def a():
        pass
    a() >> EmptyOperator(task_id="b", **dict(retries=2)) >> make("c", retries=7)
"""
    )
    tasks = [made.dag.spec.task(one) for one in "abc"]
    assert [(one.retries, one.trigger_rule) for one in tasks] == [
        (4, "all_done"),
        (2, "all_success"),
        (0, "all_success"),
    ]
    assert made.remarks == ["`more`"]


def test_names_that_ours_need_are_changed(drafted: DraftOf) -> None:
    made = drafted(
        f"""{IMPORTS}
sql = "SELECT 1"
dag = DAG("example", schedule=None)
file = BashOperator(task_id="file", bash_command="true", dag=dag)
for sql_of in [sql]:
    SparkSqlOperator(task_id="sql", sql=sql, dag=dag) >> file
"""
    )
    assert made.order == {"file": ("sql",), "sql": ()}
