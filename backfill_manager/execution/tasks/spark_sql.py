"""A `sql` task: Spark SQL statements with the run's values as named parameters.

Parameters: `:interval_start`, `:interval_end`, `:logical_date` (TIMESTAMP), `:run_id`, `:partition_key`, and every
entry of the run's params whose name is an identifier; `:mapped_value` in a mapped task. A run without interval has no
`:interval_start`; using it is an error. A text with `{{ ... }}` or `{% ... %}` has macros, too (dags/sql_macros.py).

Two ways to write, both exactly once:
- `into=` a table: the last statement is a query and its rows go through `ctx.write` (with `time_column` or
  `partition_column`, `mode`, `schema`), or with `merge_on` through `ctx.merge`; statements before it prepare.
- without `into`: the statements write themselves, each in its turn at the tables that it writes (sql_statement.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.error_format import unbound_parameter
from backfill_manager.execution.interval import instant_literal
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.execution.spark.catalog import with_new_tables
from backfill_manager.execution.tasks.sql_statement import StatementRunner
from backfill_manager.planning.backfills.rendering import sql_text, sql_values
from backfill_manager.store.sql_guard import spark_statements

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from backfill_manager.execution.tasks.context import TaskContext


def run_sql(this: WriteContext, ctx: TaskContext) -> None:
    task = this.launch.task
    run, launch = this.launch.run, this.launch
    # The same in every try: macros have the values of the run.
    text = sql_text(task, launch.dag, launch.params, run.run_id, run.logical_date, launch.interval, run.partition_key)
    parts = spark_statements(text)
    if not parts:
        raise InvalidInput(f"sql task {task.task_id!r} has no statement")
    values = parameters(this.launch)
    # Delta's parser loses the arguments otherwise (delta-io/delta#7640); here too, for a session that others built.
    ctx.spark.conf.set("spark.sql.legacy.parameterSubstitution.constantsOnly", "true")
    query = parts.pop() if task.into else None

    def execute(text: str) -> DataFrame:
        df = _execute(ctx, text, values)
        if this.preview is None:
            this.accesses.read_by(df)
        else:
            this.preview.note_reads(df)
        return df

    runner = StatementRunner(this, execute, parts, into=task.into)
    for number in range(1, len(parts) + 1):
        ctx.count_rows(runner.run(number))
    if query is not None:
        assert task.into is not None
        this.refuse_if_abandoned()
        if this.preview is not None:
            query = this.preview.statement(query, runner.evaluated, writes=False)
        rows = execute(query)
        if task.merge_on:
            ctx.merge(rows, task.into, on=task.merge_on, schema=task.schema)
            return
        ctx.write(rows, task.into, task.time_column, task.partition_column, mode=task.mode, schema=task.schema)


def _execute(ctx: TaskContext, text: str, values: dict[str, Any]) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return with_new_tables(ctx.spark, lambda: ctx.spark.sql(text, args=values))
    except AnalysisException as error:
        name = unbound_parameter(error)
        available = ", ".join(f":{key}" for key in sorted(values))
        raise InvalidInput(
            f"sql task {ctx.task_id!r} uses :{name}, which this run does not have; it has {available}"
        ) from None


def parameters(launch: TaskLaunch) -> dict[str, Any]:
    """Name -> value, as Spark takes them."""
    run = launch.run
    values = sql_values(launch.params, run.run_id, run.logical_date, launch.interval, run.partition_key, launch.task)
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Column:
    from pyspark.sql import functions as F

    if isinstance(value, datetime):
        return F.expr(instant_literal(value))
    if isinstance(value, dict):
        return F.create_map(*(part for key, item in value.items() for part in (F.lit(key), _value(item))))
    if isinstance(value, (list, tuple)):
        return F.array(*(_value(item) for item in value))
    return F.lit(value)
