"""`ctx`, the context that a task's function gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.interval import Interval, bounds
from backfill_manager.execution.messages import Ended, TaskLaunch
from backfill_manager.execution.output.delta_write import Write
from backfill_manager.execution.output.exactly_once_writer import OutputWriter, check_arguments
from backfill_manager.execution.output.output_merge import Merge
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.execution.tasks.spark_executor_runtime import ExecutorTaskContext, TaskSkipped
from backfill_manager.model.states import WriteMode
from backfill_manager.schemas.checks import Check
from backfill_manager.store.sql_guard import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# What people look for who know Airflow's context.
_LOGICAL, _START, _END = "ctx.logical_date", "ctx.interval.start", "ctx.interval.end"
_INSTEAD: Final = {
    "ds": f'f"{{{_LOGICAL}:%Y-%m-%d}}"', "ds_nodash": f'f"{{{_LOGICAL}:%Y%m%d}}"', "ts": f"{_LOGICAL}.isoformat()",
    "execution_date": _LOGICAL, "data_interval_start": _START, "data_interval_end": _END,
    "next_execution_date": _END, "next_ds": f'f"{{{_END}:%Y-%m-%d}}"',
    "ti": "ctx itself", "task_instance": "ctx itself", "task": "ctx.task_id", "dag": "ctx.dag_id",
    "dag_run": "ctx.run_id, ctx.run_type, ctx.params", "conf": "ctx.params", "xcom_pull": "ctx.result(task_id)",
    "var": "ctx.params, or ctx.secret(name)", "conn": "ctx.secret(name)", "xcom_push": "the function's return value",
    "get": "its attributes (ctx.params, ctx.logical_date, ...)",
}  # fmt: skip


class TaskContext:
    """One try of one task. Instants are aware UTC; `interval` is half-open and unpacks to (start, end)."""

    def __init__(self, this: WriteContext) -> None:
        launch = this.launch
        self._launch, self._this = launch, this
        self.dag_id: str = launch.ti.dag_id
        self.task_id: str = launch.ti.task_id
        self.run_id: str = launch.ti.run_id
        self.run_type: str = launch.run.run_type
        self.logical_date: datetime | None = launch.run.logical_date
        self.partition_key: str | None = launch.run.partition_key
        self.params: dict[str, Any] = dict(launch.params)
        # Of a mapped task (`over`): the value that it is for; else None.
        self.mapped_value: Any = launch.task.mapped_value
        self.try_number: int = launch.ti.try_number
        self.ended: Ended | None = launch.ended  # in a callback: what it reports (task_id, state, error)
        self.log = this.log
        self.rows_written: int | None = None  # by this try so far; None: nothing, or Delta does not say
        self._output = OutputWriter(this)

    @property
    def spark(self) -> SparkSession:
        """A session of its own, with its own settings and temporary views."""
        return self._this.spark

    @property
    def interval(self) -> Interval:
        """`InvalidInput` for a run that has none (a partition's, or one without schedule)."""
        if self._launch.interval is None:
            what = f"; it is for partition {self.partition_key!r} (ctx.partition_key)" if self.partition_key else ""
            raise InvalidInput(f"run {self.run_id} of {self.dag_id!r} has no interval{what}")
        return self._launch.interval

    def in_interval(self, column: str | Column) -> Column:
        """True for rows whose time lies in the run's interval. TIMESTAMP compares instants; DATE and TIMESTAMP_NTZ are
        readings of the clock in the DAG's time zone (execution/interval.py has the rule). `column` is a column's name
        as it is, or an expression. The type is decided while the plan is optimised, so files and partitions are pruned
        as if the comparison had been written by hand."""
        from pyspark.sql import functions as F

        value = F.col(identifier(column)) if isinstance(column, str) else column
        kind = F.typeof(value)
        where = f"in_interval({column!r})" if isinstance(column, str) else "in_interval"
        message = f"{where}: needs a TIMESTAMP, TIMESTAMP_NTZ or DATE column (cast it first); this one is "
        cases: Any = F
        for name, (lower, upper) in bounds(self.interval, self._launch.dag.timezone).items():
            cases = cases.when(kind == name, (value >= F.expr(lower)) & (value < F.expr(upper)))
        wrong_type = F.raise_error(F.concat(F.lit(message), kind)).cast("boolean")
        chosen: Column = cases.otherwise(wrong_type)
        return chosen

    def write(
        self, df: DataFrame, table: str, time_column: str | None = None, partition_column: str | None = None,
        mode: WriteMode = "replace", schema: Literal["merge"] | None = None, checks: Sequence[str | Check] = (),
    ) -> int | None:  # fmt: skip
        """Write `df` into a Delta table (a name, or a path with a `/`), exactly once (exactly_once_writer.py). `replace`
        replaces the rows of the run's interval (by `time_column`) or partition (by `partition_column`), `overwrite` the whole
        table. `schema="merge"` adds columns that the table lacks. `checks` must hold of the rows, as those of the task, or
        nothing is written (`ChecksFailed`). The table, and the schema (database) of its name, are made when missing. Returns the
        number of rows written, or None if this run had written them before."""
        call = self._call(f"ctx.write(..., {table!r})")
        check_arguments(call, df, schema)
        write = Write.checked(call, self._launch, time_column, partition_column, mode, schema is not None)
        return self._land(df, table, write, checks)

    def merge(
        self, df: DataFrame, table: str, on: str | Sequence[str], schema: Literal["merge"] | None = None,
        checks: Sequence[str | Check] = (),
    ) -> int | None:  # fmt: skip
        """Upsert `df` into a Delta table, exactly once: rows whose key (the columns `on`) is in the table are updated, the others
        inserted. Two rows of `df` with one key are an error. Returns how many were inserted or updated, or None if this
        run had merged them before. The rest is as in `write`."""
        call = self._call(f"ctx.merge(..., {table!r})")
        check_arguments(call, df, schema)
        return self._land(df, table, Merge.checked(call, df, on, schema is not None), checks)

    def _call(self, call: str) -> str:
        """How errors name a write: in a SQL task by the setting that it has in the place of a call."""
        into = self._launch.task.into
        return call if into is None else f"into={into!r}"

    def _land(self, df: DataFrame, table: str, change: Write | Merge, checks: Sequence[str | Check]) -> int | None:
        rows = self._output.land(df, table, change, checks)
        self.count_rows(rows)
        return rows

    def count_rows(self, rows: int | None) -> None:
        """Add to what this try has written; None adds nothing."""
        if rows is not None:
            self.rows_written = (self.rows_written or 0) + rows

    def skip(self, reason: str) -> NoReturn:
        """End this task as `skipped`."""
        raise TaskSkipped(reason)

    def secret(self, name: str) -> str:
        """The value of a secret, from where the configuration's `secrets` says. It is masked from then on in all that the manager
        keeps and shows of this try. Asked for anew each time, so a long task gets what has changed."""
        return self._this.find_secret(name)

    def result(self, task_id: str) -> Any:
        """What an upstream task returned; None if it returned nothing or was skipped. Of a task with `over`: the results of all
        its mapped tasks, by key. A callback may also read the tasks that it watches."""
        if task_id not in self._launch.results:
            raise InvalidInput(
                f"task {self.task_id!r} needs the result of {task_id!r}, which is not upstream of it"
                f"{nearest(task_id, self._launch.results)}"
            )
        return self._launch.results[task_id]

    if not TYPE_CHECKING:  # a type checker shall go on telling what is missing

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(TaskContext, name):  # a property has raised an AttributeError: this raises it again
                object.__getattribute__(self, name)
            raise AttributeError(f"ctx has no {name!r}{self._what_it_has(name)}")

        def __getitem__(self, name: object) -> NoReturn:
            raise TypeError(f"ctx[{name!r}]: ctx is no dictionary{self._what_it_has(str(name))}")

    def _what_it_has(self, name: str) -> str:
        public = sorted(known for known in (*vars(self), *vars(TaskContext)) if not known.startswith("_"))
        if instead := f"ctx.{name}" if name in public else _INSTEAD.get(name):
            return f"; use {instead}"
        return nearest(name, public, 1) or "; it has " + ", ".join(public)

    def __repr__(self) -> str:
        return f"<ctx {self.dag_id}.{self.task_id} {self.run_id} try {self.try_number}>"


def executor_task_context(launch: TaskLaunch) -> ExecutorTaskContext:
    return ExecutorTaskContext(
        dag_id=launch.ti.dag_id, task_id=launch.ti.task_id, run_id=launch.ti.run_id, run_type=launch.run.run_type,
        logical_date=launch.run.logical_date, interval=launch.interval, partition_key=launch.run.partition_key,
        params=dict(launch.params), try_number=launch.ti.try_number, results=dict(launch.results),
        mapped_value=launch.task.mapped_value,
    )  # fmt: skip
