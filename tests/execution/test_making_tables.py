"""How a table that tasks write to is made, found again, and made after all where a killed writer had begun to."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType
from support.executor_fixture import (
    TaskRunner,
    a_launch,
    again,
    version_of,
)
from support.hourly_rows import HOURS, values, writes

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.execution.output import output_table
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.spark import catalog
from backfill_manager.execution.spark.catalog import folder_of, hadoop_path, register_table, register_tables, warehouse

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

COMMIT_0 = f"{0:020}.json"


@pytest.mark.parametrize("place", ["by name", "by name, after a restart", "by path"])
def test_a_table_that_no_write_has_reached_gets_the_columns_of_the_first_that_does(
    runner: TaskRunner, table: str, tmp_path: Path, place: str
) -> None:
    written = str(tmp_path / "written") if place == "by path" else table
    read = f"delta.`{written}`" if place == "by path" else table

    def attempt(columns: str, **how: Any) -> Any:
        def merge(ctx: Any) -> Any:
            return ctx.merge(ctx.spark.sql(f"SELECT 1 AS id, {columns}"), written, on=["id"], **how)

        return runner.run(a_launch(run_id=f"{columns} {how}", interval=None), merge)

    for columns in ("1 AS kept", "'x' AS kept, 'y' AS other"):
        refused = attempt(columns, checks=["rows = 2"])
        assert isinstance(refused, Failed) and "rows = 2" in refused.error
        if place == "by name, after a restart":
            _forget(runner.spark, table)
    assert attempt("DATE'2013-01-01' AS kept") == Succeeded("1")
    assert version_of(runner.spark, read) == 3
    assert runner.spark.table(read).dtypes == [("id", "int"), ("kept", "date")]
    runner.spark.sql(f"DELETE FROM {read}")
    emptied = attempt("1 AS kept")
    assert isinstance(emptied, Failed) and "'kept' is int here and date in the table; cast it, or drop" in emptied.error


def test_a_table_that_somebody_has_made_keeps_its_columns(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (value BIGINT) USING delta")
    refused = runner.run(a_launch(interval=None), lambda ctx: ctx.write(ctx.spark.sql("SELECT 'x' AS value"), table))
    assert isinstance(refused, Failed)
    assert (
        "'value' is string here and bigint in the table; cast it, or drop the table, which has no rows" in refused.error
    )
    assert version_of(runner.spark, table) == 0


def test_a_table_that_was_made_but_never_filled_is_filled(runner: TaskRunner, table: str) -> None:
    OutputTable(runner.spark, table).create(runner.spark.sql(HOURS.format(start=0, value=1, n=1)).schema)
    assert runner.run(a_launch(), writes(table)) == Succeeded("3")


def test_a_table_that_another_task_registers_at_the_same_moment_is_found(
    runner: TaskRunner, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.run(a_launch(), writes(table, 1))
    monkeypatch.setattr(type(runner.spark.catalog), "tableExists", lambda *_: False)  # as it was a moment ago
    assert register_table(runner.spark, table)


def test_tables_are_found_again_after_a_restart_with_an_in_memory_catalog(runner: TaskRunner, table: str) -> None:
    launch = a_launch()
    runner.run(launch, writes(table, 1))
    _forget(runner.spark, table)
    assert not runner.spark.catalog.tableExists(table)
    assert f"default.{table}" in register_tables(runner.spark)
    assert register_tables(runner.spark) == []
    assert runner.run(again(launch), writes(table, 2)) == Succeeded(None)
    assert values(runner.spark, table) == [1, 1, 1]


def test_folders_of_the_warehouse_that_are_named_by_digits_are_tables_like_others(runner: TaskRunner) -> None:
    """`default.2024` is no name to Spark's parser without quotation marks."""
    spark, where = runner.spark, Path(warehouse(runner.spark).removeprefix("file:"))
    (where / "1e6").mkdir(parents=True)
    for path in ("2024", "12.db/7"):
        runner.run(a_launch(run_id=path), writes(f"{where}/{path}", 1))
    assert {"default.2024", "12.7"} <= {*register_tables(spark)} and register_tables(spark) == []
    assert spark.table("default.`2024`").count() == spark.table("`12`.`7`").count() == 3
    spark.sql("DROP TABLE `2024`")
    spark.sql("DROP SCHEMA `12` CASCADE")
    for path in ("1e6", "2024"):
        shutil.rmtree(where / path)


def test_a_warehouse_that_spark_cannot_read_is_a_fault_of_the_configuration(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one without a scheme where Hadoop's `fs.defaultFS` is another machine's."""
    monkeypatch.setattr(catalog, "warehouse", lambda spark: "hdfs://namenode.invalid:8020/w")
    with pytest.raises(
        InvalidConfig, match=r"read the warehouse hdfs://namenode.invalid:8020/w: .*UnknownHost.* `file:///"
    ):
        register_tables(spark)


def _forget(spark: SparkSession, table: str) -> None:
    """Take a table out of the catalog and leave its folder, as a restart does."""
    where = Path(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"].removeprefix("file:"))
    aside = where.with_name(f"{table} aside")
    where.rename(aside)
    spark.sql(f"DROP TABLE {table}")
    aside.rename(where)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("a path", ".00000000000000000000.json.1a2b.tmp"),
        ("half_made_table", ".00000000000000000000.json.1a2b.tmp"),
        ("a path", "00000000000000000000.crc"),  # another writer has removed the log, and the killed one went on
        ("a path", "_staged_commits/"),
        ("a path", "..00000000000000000000.json.1a2b.tmp.crc"),  # which Hadoop hides
        ("another_half_made_table", "_staged_commits/"),
    ],
)
def test_a_table_whose_making_was_killed_half_way_is_made_after_all(
    runner: TaskRunner, tmp_path: Path, name: str, left: str
) -> None:
    if name == "a path":
        name = str(tmp_path / "table")
        folder = Path(name)
    else:
        folder = Path(str(folder_of(runner.spark, name)).removeprefix("file:"))
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    (log / left).mkdir() if left.endswith("/") else (log / left).write_text("{")
    assert runner.run(a_launch(), writes(name)) == Succeeded("3")
    again_there = folder / "_delta_log" / COMMIT_0
    assert again_there.exists()


@pytest.fixture
def half_made(spark: SparkSession, tmp_path: Path) -> tuple[OutputTable, Callable[[], None]]:
    """A table that a killed writer has begun to make, and a function by which its commit lands and somebody stages a file."""
    other = OutputTable(spark, str(tmp_path / "other"))
    other.create(spark.range(1).schema)
    folder = tmp_path / "table"
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / ".00000000000000000000.json.1a2b.tmp").write_text("{")

    def land() -> None:
        shutil.copy(tmp_path / "other" / "_delta_log" / COMMIT_0, folder / "_delta_log")
        (folder / "part-00000.parquet").write_text("staged by another writer")

    return OutputTable(spark, str(folder)), land


def is_whole(table: OutputTable) -> bool:
    table.create(StructType([StructField("id", LongType())]))
    return table.exists() and table.read().schema.names == ["id"]


def test_a_commit_that_lands_while_what_came_before_it_is_removed_stays(
    half_made: tuple[OutputTable, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a writer that was killed while it created the table: the JVM goes on. Without its commit, what others have staged by
    then would be files in a folder that is no table, and every later try would fail."""
    table, land = half_made
    unlink, removed = Path.unlink, list[str]()

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        removed.append(self.name)
        land()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlinked)
        table.remove_unfinished_log()
    assert len(removed) == 1, "what was there before"
    assert [file.name for file in Path(table.name, "_delta_log").iterdir()] == [COMMIT_0]
    assert is_whole(table)


def test_so_does_one_on_a_file_system_that_only_hadoop_knows(
    half_made: tuple[OutputTable, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, land = half_made

    class Foreign:
        """The local one under another scheme; the commit lands once its log is listed."""

        def __init__(self, files: Any) -> None:
            self._files = files

        def __getattr__(self, name: str) -> Any:
            return getattr(self._files, name)

        def makeQualified(self, path: Any) -> Any:
            class Uri:
                def toUri(self) -> Any:
                    return self

                def getScheme(self) -> str:
                    return "abfss"

            return Uri()

        def listStatus(self, folder: Any) -> Any:
            found = self._files.listStatus(folder)
            if folder.getName() == "_delta_log":
                land()
            return found

    def foreign(spark: SparkSession, path: str) -> tuple[Any, Any]:
        where, files = hadoop_path(spark, path)
        return where, Foreign(files)

    with monkeypatch.context() as patched:
        patched.setattr(output_table, "hadoop_path", foreign)
        table.remove_unfinished_log()
    assert [file.name for file in Path(table.name, "_delta_log").iterdir() if file.suffix != ".crc"] == [COMMIT_0]
    assert is_whole(table)


def test_a_folder_with_anything_else_in_it_is_not_taken_for_a_half_made_table(
    runner: TaskRunner, tmp_path: Path
) -> None:
    folder = tmp_path / "other files"
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "letters.txt").write_text("dear")
    outcome = runner.run(a_launch(), writes(str(folder)))
    assert isinstance(outcome, Failed)
    assert (folder / "letters.txt").read_text() == "dear" and (folder / "_delta_log").exists()
