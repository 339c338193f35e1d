"""A mapped task gets its value, whatever it runs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from backfill_manager import bash_task, dag, sql, task
from backfill_manager.task_testing import run_task


def test_the_value_comes_to_python_sql_macros_bash_and_executors(spark: SparkSession, schema: str) -> None:
    values = {"plain": "it's", "number": 7, "rich": {"limit": 3}}

    @dag(schedule="@daily", start_date="2024-01-01")
    def mapped() -> None:
        @task(over=values)
        def python(ctx: Any) -> Any:
            return ctx.mapped_value

        @task.executor(over=values)
        def executor(ctx: Any) -> Any:
            return [ctx.mapped_value, ctx.result("python")]

        @task
        def after(ctx: Any) -> Any:
            return ctx.result("executor")

        named = sql("named", "SELECT :mapped_value AS v", into=f"{schema}.n", mode="overwrite", over=["n1"])
        macro = sql(
            "macro",
            "SELECT {{ mapped_value.limit + 1 }} AS v",
            into=f"{schema}.m",
            mode="overwrite",
            over={"a": {"limit": 3}},
        )
        python() >> executor() >> after() >> [named, macro, bash_task("bash", 'echo "$BFM_MAPPED_VALUE"', over=values)]

    def result(task_id: str, **run: Any) -> Any:
        return run_task(spark, mapped, task_id, logical_date="2024-01-01", **run).result

    assert [result(f"python.{key}") for key in values] == ["it's", 7, {"limit": 3}]
    assert result("executor.rich", results={"python": {"plain": 1}}) == [{"limit": 3}, {"plain": 1}]
    assert result("after", results={"executor": {"plain": 2}}) == {"plain": 2}
    assert [result(f"bash.{key}") for key in values] == ["it's", "7", '{"limit": 3}']
    for task_id, name, value in (("named.n1", f"{schema}.n", "n1"), ("macro.a", f"{schema}.m", 4)):
        result(task_id)
        assert [row.v for row in spark.table(name).collect()] == [value]
