"""Operators of Airflow whose task has to be written: it is in the draft, with its order and settings, and fails until then."""

from __future__ import annotations

import pytest
from support.airflow_files import IMPORTS, file_of
from support.drafted import DraftOf

from backfill_manager.importers.airflow.operators import READERS

UNWRITTEN = [
    "PythonOperator()", "BashOperator()", "SparkSubmitOperator()", "SQLExecuteQueryOperator()",
    'SQLExecuteQueryOperator(sql="totals.sql")', "SQLExecuteQueryOperator(sql=read())",
    'SQLExecuteQueryOperator(sql="{{ x }} {% endraw %}")', 'BigQueryInsertJobOperator(configuration={"load": {}})',
    'FileSensor(filepath="relative.csv")', 'FileSensor(filepath="/in/{{ params.x }}")',
    'S3KeySensor(bucket_key="a*", bucket_name="b")', 'SqlSensor(sql="SELECT 1", success=print)',
    "SqlSensor(sql='SELECT {{ params.x }}')", 'SqlSensor(sql="wait.sql")', 'SqlSensor(sql="SELECT 1; SELECT 2")', "SqlSensor()",
    'SqlSensor(sql="SELECT 1", failure=print)', "ExternalTaskSensor()",
    "PythonSensor()", "TimeDeltaSensor()", "BranchSQLOperator()",
    "TriggerDagRunOperator()", "EmailOperator()", "HttpOperator()", "KubernetesPodOperator(env_vars=[x])", "SubDagOperator()",
    "DatabricksRunNowOperator(job_id=1)",
]  # fmt: skip


@pytest.mark.parametrize("operator", UNWRITTEN)
def test_an_operator_that_is_not_converted_fails_in_its_place(drafted: DraftOf, operator: str) -> None:
    name, _, arguments = operator.partition("(")
    made = drafted(
        f"from airflow.operators.any import {name}\n"
        + file_of(
            f"""
def read():
    return 1

x = None
first = EmptyOperator(task_id="first")
first >> {name}(task_id="it", retries=3, trigger_rule="all_done", pool_slots=2, {arguments} >> EmptyOperator(task_id="last")
"""
        )
    )
    task = made.dag.spec.task("it")
    assert (task.upstream, task.retries, task.trigger_rule, task.weight) == (("first",), 3, "all_done", 2)
    assert made.dag.spec.task("last").upstream == ("it",)
    with pytest.raises(NotImplementedError, match=f"{name} of Airflow"):
        made.run("it")
    assert f"# {name}(" in made.text and f"{name} has no equal" in made.remarks


def test_operators_with_remarks(drafted: DraftOf) -> None:
    made = drafted(
        f"""from airflow.operators.python import ExternalPythonOperator
from airflow.sensors.external_task import ExternalTaskMarker
from airflow.providers.amazon.aws.sensors.s3 import S3KeySensor
from contextlib import suppress as fetch
{IMPORTS}
VALUES = [1, 2]
with DAG("example", schedule=None):
    ExternalPythonOperator(task_id="a", python="/usr/bin/python3", python_callable=lambda x, y: x + y, op_args=VALUES)
    ExternalTaskMarker(task_id="b", external_dag_id="x", external_task_id="y", retries=2)
    BashOperator(task_id="c", bash_command="scripts/run.sh ", skip_on_exit_code=len("ab"))
    PythonOperator(task_id="d", python_callable=fetch, op_args=VALUES)
    S3KeySensor(task_id="e", bucket_name="b", bucket_key="in/{{{{ ds }}}}", timeout=60)
    EmptyOperator(task_id="f ü")
"""
    )
    assert made.remarks == [
        "ExternalPythonOperator", "ExternalTaskMarker",
        "the script scripts/run.sh", 'skip_on_exit_code=len("ab")', "fetch comes from another file", "the task id 'f ü'",
    ]  # fmt: skip


def test_functions_of_taskflow_with_remarks(drafted: DraftOf) -> None:
    made = drafted(
        file_of(
            """
@task.sensor(timeout=5)
def is_there():
    return False

@task.kafka
def other():
    return 1

@task.pyspark
def by_spark(spark, sc, table):
    return spark, sc, table

@task
def needs(x, y):
    return x, y

@task_group(default_args={"retries": 1})
def group(x=1):
    "What it does."
    needs.override(task_id="in_group")(x, 2)

@task.branch_virtualenv
def choose():
    return "needs"

is_there()
other()
choose() >> needs(1)
group()
group.expand(x=[1, 2])
for one in [needs(1, 2)]:
    one >> EmptyOperator(task_id="last")
"""
        )
    )
    for task_id, error in (("is_there", RuntimeError), ("other", NotImplementedError), ("group", NotImplementedError)):
        with pytest.raises(error):
            made.run(task_id)
    assert made.run("group.in_group") == (1, 2)
    assert set(made.remarks) == {
        "@task.sensor", "@task.kafka has no equal", "@task.branch_virtualenv", "default_args of a task group",
        "the mapped task group group",
    }  # fmt: skip


def test_every_operator_is_in_one_table() -> None:
    assert {
        "PythonOperator",
        "BashOperator",
        "SparkSubmitOperator",
        "SqlSensor",
        "KubernetesPodOperator",
    } < READERS.keys()
