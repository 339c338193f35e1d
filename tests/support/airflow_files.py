"""DAG files of Airflow for tests of drafts: imports, and a file with a DAG of which only the body is given."""

from __future__ import annotations

IMPORTS = """
from datetime import datetime, timedelta

import pendulum
from airflow import DAG
from airflow.decorators import dag, task, task_group
from airflow.models.baseoperator import chain, cross_downstream
from airflow.models.param import Param
from airflow.operators.bash import BashOperator
from airflow.operators.empty import EmptyOperator
from airflow.operators.latest_only import LatestOnlyOperator
from airflow.operators.python import BranchPythonOperator, PythonOperator, ShortCircuitOperator
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.apache.spark.operators.spark_sql import SparkSqlOperator
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.postgres.operators.postgres import PostgresOperator
from airflow.sensors.external_task import ExternalTaskSensor
from airflow.sensors.filesystem import FileSensor
from airflow.utils.task_group import TaskGroup
from airflow.utils.trigger_rule import TriggerRule
"""


def file_of(body: str, settings: str = 'schedule=None, start_date=pendulum.datetime(2024, 5, 1, tz="UTC")') -> str:
    indented = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return f'{IMPORTS}\nwith DAG("example", {settings}) as dag:\n{indented}\n'
