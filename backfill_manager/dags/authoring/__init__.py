"""How people write a DAG: `@dag`, `@task`, `@task.executor`, `sql(...)`, `>>` and `<<`.

    @dag(schedule="@daily", start_date="2013-01-01", timezone="America/New_York")
    def flights():
        @task(retries=2)
        def clean(ctx): ...

        clean() >> sql("delays", "delays.sql", into="delays")

Decorating runs the body, once, and gives a `Dag`: the plain value that is stored and decided from (`spec`), beside
the functions that run. Airflow's habit of calling `flights()` at the end of the file does no harm: it gives the same
`Dag`. The body runs at decoration, not at the end of the file, because a DAG made in a loop (`for region in regions:
@dag(...)`) must see the loop's variable as it is then; a helper that the *body* needs is defined above it, one that a
task needs anywhere.

Inside a DAG's body a task function that is called makes a task; anywhere else it is the plain function that it was, so
that a unit test calls it with a `ctx` of its own. Every mistake is an `InvalidDag` that names DAG, task and keyword.

`on_success` and `on_failure` are plain functions `def notify(ctx)`: each becomes a task of its own, `clean.on_failure`,
or `on_failure` for the whole DAG, that runs when its outcome has come about (manager/decisions/callbacks.py).

    decorators (`@dag`, `@task`), sql_and_bash (`sql`, `bash_task`), times ─► building (the DAG being made)
"""

from backfill_manager.dags.authoring.building import Dag, Task, TaskFunction, check_settings, collecting
from backfill_manager.dags.authoring.decorators import ONLY_SHOWN, dag, task
from backfill_manager.dags.authoring.sql_and_bash import bash_task, sql
from backfill_manager.dags.authoring.times import parse_times
from backfill_manager.schemas.checks import Check
from backfill_manager.schemas.params import Param
from backfill_manager.schemas.waits import condition, file, on, rows

__all__ = [
    "ONLY_SHOWN", "Check", "Dag", "Param", "Task", "TaskFunction", "bash_task", "check_settings", "collecting", "condition",
    "dag", "file", "on", "parse_times", "rows", "sql", "task",
]  # fmt: skip
