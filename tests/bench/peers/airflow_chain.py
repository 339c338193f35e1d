"""For Airflow: three no-op tasks, one after another."""

from datetime import datetime, timezone

from airflow.sdk import DAG, task

with DAG(
    dag_id="chain", schedule="@daily", start_date=datetime(2023, 1, 1, tzinfo=timezone.utc), catchup=False, max_active_runs=16,
    max_active_tasks=16,
):  # fmt: skip

    @task
    def extract():
        return None

    @task
    def transform():
        return None

    @task
    def load():
        return None

    extract() >> transform() >> load()
