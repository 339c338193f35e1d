"""A state that an older release made gets the columns that were added since, and nothing of it is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from backfill_manager.errors import StateError
from backfill_manager.model.records import (
    SCHEMA_VERSION,
    TABLES,
    Backfill,
    BundleRow,
    DagRow,
    DagRun,
    DagVersion,
    Pool,
    Record,
    Response,
    TaskInstance,
    TaskTry,
)
from backfill_manager.schemas.errors import refusal
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.delta_rs.tables import DeltaRsTables
from backfill_manager.store.delta_spark.store import DeltaSparkStore
from backfill_manager.store.delta_spark.tables import DeltaSparkTables
from backfill_manager.store.sql_text import arrow_table
from backfill_manager.store.table_properties import STATISTICS_COLUMNS, VERSION_PROPERTY, properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = DagRow(
    dag_id="flights", bundle="examples", file="flights.py", current_version=3, is_paused=True, is_active=True,
    schedule="@daily", timezone="UTC", updated_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
)  # fmt: skip


def test_columns_are_added_when_the_state_is_opened_to_lead_and_the_rows_stay(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    place = store.tables.location("dag")
    now = DeltaTable(place)
    then = Schema([field for field in now.schema().fields if field.name != "deactivated_by"])
    DeltaTable.create(
        place, schema=then, mode="overwrite", configuration={**properties(DeltaRsTables.ENGINE), VERSION_PROPERTY: "1"},
        raise_if_key_not_exists=False,
    )  # fmt: skip
    write_deltalake(place, arrow_table(DagRow, [ROW]).drop_columns(["deactivated_by"]), mode="append")

    store = DeltaRsStore(str(tmp_path))
    with pytest.raises(StateError, match="has state version 1"):
        store.read(DagRow)
    assert store.init() == ([], ["dag"])
    assert store.read(DagRow) == [ROW]
    assert all(finding.ok for finding in store.check())
    assert DeltaTable(place).metadata().configuration[VERSION_PROPERTY] == str(SCHEMA_VERSION)
    assert not any(store.init())


def test_managers_that_start_at_the_same_time_bring_it_up_to_date_together(tmp_path: Path) -> None:
    """As the leader and its standby do after an upgrade: none of them stops because another was quicker."""
    store = DeltaRsStore(str(tmp_path))
    store.init()
    for name in TABLES:
        made = DeltaTable(store.tables.location(name))
        made.alter.set_table_properties({VERSION_PROPERTY: "2"}, raise_if_not_exists=False)
    with ThreadPoolExecutor(4) as managers:
        changed = list(managers.map(lambda _: DeltaRsStore(str(tmp_path)).init(), range(4)))
    assert {name for one in changed for name in one.upgraded} == set(TABLES)
    assert all(finding.ok for finding in store.check())


def test_so_are_they_in_a_metastore(spark: SparkSession, spark_state: DeltaSparkStore) -> None:
    table = spark_state.tables.location("bundle")
    spark.sql(f"DROP TABLE {table}")
    properties_ = ", ".join(
        f"'{key}' = '{value}'" for key, value in {**properties(DeltaSparkTables.ENGINE), VERSION_PROPERTY: "1"}.items()
    )
    spark.sql(
        f"CREATE TABLE {table} (name STRING NOT NULL, path STRING NOT NULL, parser STRING NOT NULL, content_hash STRING "
        f"NOT NULL, refreshed_at TIMESTAMP NOT NULL) USING delta TBLPROPERTIES ({properties_})"
    )
    spark.sql(f"INSERT INTO {table} VALUES ('examples', 'jobs', 'standard', 'abc', TIMESTAMP'2026-01-01 00:00:00')")

    store = DeltaSparkStore(spark_state.root, spark)
    assert store.init() == ([], ["bundle"])
    assert [(row.name, row.commit_id) for row in store.read(BundleRow)] == [("examples", None)]
    assert not any(store.init())


def test_a_state_of_version_4_gets_the_columns_of_errors_and_its_refusals_keep_their_message(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    place = store.tables.location("response")
    added = {"error_code", "error_field", "error_params"}
    then = Schema([field for field in DeltaTable(place).schema().fields if field.name not in added])
    DeltaTable.create(
        place, schema=then, mode="overwrite", configuration={**properties(DeltaRsTables.ENGINE), VERSION_PROPERTY: "4"},
        raise_if_key_not_exists=False,
    )  # fmt: skip
    refused = Response(
        request_id="r", kind="backfill.create", outcome="refused", object_id=None, message="--from is after --to",
        payload_json=None, answered_at=ROW.updated_at, term=1,
    )  # fmt: skip
    write_deltalake(place, arrow_table(Response, [refused]).drop_columns(sorted(added)), mode="append")

    store = DeltaRsStore(str(tmp_path))
    assert store.init() == ([], ["response"])
    assert store.read(Response) == [refused]
    assert str(refusal(refused)) == "--from is after --to"


def test_a_state_of_version_7_gets_the_column_of_version_8_and_its_rows_stay(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    row = TaskInstance(dag_id="flights", run_id="r", task_id="t", state="success", run_seq=1, result_json='"x"')
    place = store.tables.location("task_instance")
    then = Schema([field for field in DeltaTable(place).schema().fields if field.name != "result_shown_json"])
    had = {name: value for name, value in properties(DeltaRsTables.ENGINE).items() if "IndexedCols" not in name}
    DeltaTable.create(
        place, schema=then, mode="overwrite", configuration={**had, VERSION_PROPERTY: "7"},
        raise_if_key_not_exists=False,
    )  # fmt: skip
    write_deltalake(place, arrow_table(TaskInstance, [row]).drop_columns(["result_shown_json"]), mode="append")

    store = DeltaRsStore(str(tmp_path))
    assert store.init() == ([], ["task_instance"])
    assert store.read(TaskInstance) == [row]
    assert DeltaTable(place).metadata().configuration["delta.dataSkippingNumIndexedCols"] == str(STATISTICS_COLUMNS)


def test_a_state_of_version_6_gets_the_columns_of_version_7_and_its_rows_stay(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    row = Backfill(
        backfill_id="b1", dag_id="flights", state="queued", config_json="{}", reprocess="none", max_active_runs=1, priority=0,
        pool="backfill", is_paused=False, created_at=ROW.updated_at, run_seq=1, window="20:00-06:00",
    )  # fmt: skip
    place = store.tables.location("backfill")
    then = Schema([field for field in DeltaTable(place).schema().fields if field.name != "waits_until"])
    DeltaTable.create(
        place, schema=then, mode="overwrite", configuration={**properties(DeltaRsTables.ENGINE), VERSION_PROPERTY: "6"},
        raise_if_key_not_exists=False,
    )  # fmt: skip
    write_deltalake(place, arrow_table(Backfill, [row]).drop_columns(["waits_until"]), mode="append")

    store = DeltaRsStore(str(tmp_path))
    assert store.init() == ([], ["backfill"])
    assert store.read(Backfill) == [row]


def test_a_state_of_version_5_gets_the_limits_of_pools_and_the_interpreters_of_versions(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    pool = Pool(name="backfill", slots=4, weight=1, min_share=0)
    version = DagVersion(
        dag_id="flights", version=3, content_hash="abc", definition_json="{}", bundle="examples", file="flights.py",
        snapshot="abc", created_at=ROW.updated_at,
    )  # fmt: skip
    older: list[tuple[Record, set[str]]] = [(pool, {"memory_mb", "nice"}), (version, {"python"})]
    for row, added in older:
        place = store.tables.location(row.TABLE)
        then = Schema([field for field in DeltaTable(place).schema().fields if field.name not in added])
        DeltaTable.create(
            place, schema=then, mode="overwrite", raise_if_key_not_exists=False,
            configuration={**properties(DeltaRsTables.ENGINE), VERSION_PROPERTY: "5"},
        )  # fmt: skip
        write_deltalake(place, arrow_table(type(row), [row]).drop_columns(sorted(added)), mode="append")

    store = DeltaRsStore(str(tmp_path))
    with pytest.raises(StateError, match="has state version 5"):
        store.read(Pool)
    assert sorted(store.init().upgraded) == ["dag_version", "pool"]
    assert (store.read(Pool), store.read(DagVersion)) == ([pool], [version])
    assert all(finding.ok for finding in store.check())


def test_a_state_of_version_11_gets_the_columns_of_notes_and_stages_and_its_rows_stay(tmp_path: Path) -> None:
    store = DeltaRsStore(str(tmp_path))
    store.init()
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    notes = ("note", "note_by", "note_at")
    run = DagRun("flights", "r", "manual", "success", dag_version=1, run_seq=2, created_at=at)
    backfill = Backfill(
        "b", "flights", "success", "{}", "none", 1, 0, "backfill", is_paused=False, created_at=at, run_seq=3
    )
    attempt = TaskTry("flights", "r", "t", 1, 1, "success", 2, 1, spark_jobs_json="[3]")
    rows: tuple[tuple[Record, tuple[str, ...]], ...] = (
        (run, notes), (backfill, notes), (attempt, ("spark_stages_json",)),
    )  # fmt: skip
    for row, added in rows:
        place = store.tables.location(row.TABLE)
        then = Schema([field for field in DeltaTable(place).schema().fields if field.name not in added])
        DeltaTable.create(
            place, schema=then, mode="overwrite", raise_if_key_not_exists=False,
            configuration={**properties(DeltaRsTables.ENGINE), VERSION_PROPERTY: "11"},
        )  # fmt: skip
        write_deltalake(place, arrow_table(type(row), [row]).drop_columns(list(added)), mode="append")

    store = DeltaRsStore(str(tmp_path))
    assert sorted(store.init()[1]) == ["backfill", "dag_run", "task_try"]
    assert (store.read(DagRun), store.read(Backfill), store.read(TaskTry)) == ([run], [backfill], [attempt])
