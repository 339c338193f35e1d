"""What only the Spark engine has: a metastore, sessions with settings, a history to look into."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from delta.exceptions import captured
from pyspark.errors.exceptions.captured import CapturedException
from support.leader_contract import Leadership
from support.state_changes import AT, backfill, changes, manager, request, run, task, unique

from backfill_manager.errors import LostLease, StateError, StateNotInitialised
from backfill_manager.model.records import SCHEMA_VERSION, BundleRow, DagRun, Manager, Request, TaskInstance
from backfill_manager.store import Condition, open_store
from backfill_manager.store.base import Term
from backfill_manager.store.delta_spark.leader import DeltaSparkLeader, Writer
from backfill_manager.store.delta_spark.store import DeltaSparkStore
from backfill_manager.store.delta_spark.tables import DEFAULT_PROPERTIES
from backfill_manager.store.delta_spark.transaction import DeltaTransaction
from backfill_manager.store.table_properties import ENGINE_PROPERTY, VERSION_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def is_conflict(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, CapturedException) and kind is not CapturedException


def test_a_schema_without_a_state_is_reported_with_the_command_that_makes_it(spark: SparkSession) -> None:
    store = open_store(f"spark_catalog.{unique('nothing')}", spark=spark)
    assert isinstance(store, DeltaSparkStore) and not store.exists()
    for submitted in (store.unanswered, store.lease, store.requests_version, lambda: store.append_request(request())):
        with pytest.raises(StateNotInitialised, match="There is no state at"):
            submitted()


def test_a_catalog_that_does_not_exist_is_reported_in_one_line(spark: SparkSession) -> None:
    store = open_store("no_such_catalog.jobs", spark=spark)
    for submitted in (store.exists, store.init, store.lease):
        with pytest.raises(StateError) as refused:
            submitted()
        assert "\n" not in str(refused.value) and "no_such_catalog" in str(refused.value)


def test_tables_of_the_other_engine_or_a_newer_version_are_left_alone(spark: SparkSession) -> None:
    schema = unique("other")
    spark.sql(f"CREATE SCHEMA spark_catalog.{schema}")
    for table, engine, version in (("pool", "delta-rs", SCHEMA_VERSION), ("bundle", "delta-spark", SCHEMA_VERSION + 1)):
        spark.sql(
            f"CREATE TABLE spark_catalog.{schema}.{table} (name STRING) USING delta "
            f"TBLPROPERTIES ('{ENGINE_PROPERTY}' = '{engine}', '{VERSION_PROPERTY}' = '{version}')"
        )
    store = DeltaSparkStore(f"spark_catalog.{schema}", spark)
    with pytest.raises(StateError, match="engine delta-rs"):
        store.count("pool", [])
    with pytest.raises(StateError, match="newer release"):
        store.count("bundle", [])


def test_the_stores_settings_are_not_those_of_tasks(spark: SparkSession, spark_state: DeltaSparkStore) -> None:
    assert spark_state.tables.spark.conf.get("spark.scheduler.pool") == "control"
    assert spark.conf.get("spark.scheduler.pool", "unset") == "unset"
    assert spark.catalog.currentDatabase() == "default"


def test_what_a_site_has_all_tables_made_with_is_not_for_those_of_the_state(spark: SparkSession) -> None:
    site: Any = spark.sparkContext._jsc.sc().conf()
    defaults = {"appendOnly": "true", "columnMapping.mode": "name", "enableChangeDataFeed": "true"}
    for name, value in defaults.items():
        site.set(f"{DEFAULT_PROPERTIES}{name}", value)
    try:
        schema = unique("defaults")
        tables = DeltaSparkStore(f"spark_catalog.{schema}", spark).tables
    finally:
        for name in defaults:
            site.remove(f"{DEFAULT_PROPERTIES}{name}")
    spark.sql(f"CREATE SCHEMA spark_catalog.{schema}")
    tables.create(BundleRow)
    made = tables.delta(BundleRow.TABLE).detail().first()
    assert made is not None and (made.minReaderVersion, made.minWriterVersion) == (1, 2)
    assert not {f"delta.{name}" for name in defaults} & set(made.properties)


def test_the_version_is_the_same_by_the_log_as_by_the_history(spark_state: DeltaSparkStore) -> None:
    row = spark_state.tables.delta("pool").history(1).select("version").first()
    assert row is not None and spark_state.tables.version("pool") == row[0]


def test_a_table_is_tidied_by_the_engines_own_means(spark_state: DeltaSparkStore) -> None:
    submitted = [request(unique("tidy")) for _ in range(3)]
    for one in submitted:
        spark_state.append_request(one)
    assert Writer(spark_state.tables, manager(1), iter(()), Term(1)).compact("request") == 1
    mine = [Condition("request_id", "in", [one.request_id for one in submitted])]
    assert spark_state.read(Request, mine, order_by=["requested_at"]) == submitted


def test_spark_refuses_what_a_leader_of_an_older_term_writes(spark_state: DeltaSparkStore) -> None:
    """The same that the contract's story tells, seen from beneath: an older number is skipped, and that is noticed."""
    table, mine = "bundle", unique("bundle")
    last = spark_state.lease()
    term = last.term if last else 0  # the next leader still has higher numbers
    Writer(spark_state.tables, manager(term), iter([term * 2**40 + 2**30]), Term(term)).fence(table)
    older = Writer(spark_state.tables, manager(term), iter([term * 2**40 + 1, term * 2**40 + 2]), Term(term))
    with pytest.raises(LostLease):
        older.merge(BundleRow, [BundleRow(mine, "p", "standard", "x", AT)])
    older.term = Term(term)
    with pytest.raises(LostLease):
        older.append(BundleRow, [BundleRow(mine, "p", "standard", "x", AT)])
    assert spark_state.count(table, [], [Condition("name", "=", mine)]) == {(): 0}


@pytest.mark.parametrize("kind", [kind for kind in vars(captured).values() if is_conflict(kind)])
def test_every_conflict_of_commits_means_that_another_manager_leads(
    spark_state: DeltaSparkStore, kind: type[Exception]
) -> None:
    """PySpark has them without a base of their own."""
    writer = Writer(spark_state.tables, manager(1), itertools.count(), Term(1))
    with pytest.raises(LostLease), writer._committing("bundle"):
        raise kind("[DELTA_CONCURRENT] another commit was quicker", "the stack trace")


class _Steps:
    """What the transactions of a leader do, in order, with the table of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[tuple[str, str]] = []
        self.fails_at: str | None = None  # writing files for this table
        for name in ("write_files", "commit"):
            monkeypatch.setattr(DeltaTransaction, name, self._noting(name, getattr(DeltaTransaction, name)))

    def _noting(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def noting(transaction: DeltaTransaction, *args: Any, **kwargs: Any) -> Any:
            table = transaction.folder.rpartition("/")[2]
            if (name, table) == ("write_files", self.fails_at):
                raise StateError("no space")
            done = step(transaction, *args, **kwargs)
            self.taken.append((name, table))
            return done

        return noting


def test_the_files_of_all_tables_are_written_before_the_first_is_committed_and_these_go_in_order(
    spark_state: DeltaSparkStore, spark_leader: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead, steps, dag_id = spark_leader(), _Steps(monkeypatch), unique("dag")
    seqs = [lead.next_seq() for _ in range(2)]
    several = changes(
        *(row for seq in seqs for row in (run(dag_id, seq), task(dag_id, seq), backfill(unique("b"), seq)))
    )
    tables = [table for table, _ in several.by_table()]
    lead.commit(several)
    assert steps.taken[len(tables) :] == [("commit", table) for table in tables]
    assert sorted(steps.taken[: len(tables)]) == sorted(("write_files", table) for table in tables)
    of_dag = [Condition("dag_id", "=", dag_id)]
    assert len(spark_state.read(DagRun, of_dag)) == len(spark_state.read(TaskInstance, of_dag)) == 2

    steps.taken.clear()
    steps.fails_at = tables[-1]
    with pytest.raises(StateError, match="no space"):
        lead.commit(
            changes(run(dag_id, seqs[0], "success"), task(dag_id, seqs[0], state="success"), backfill("b", seqs[0]))
        )
    assert not [table for step, table in steps.taken if step == "commit"]
    steps.fails_at = None
    lead.commit(changes(run(dag_id, seqs[0], "failed"), task(dag_id, seqs[0], state="failed")))
    assert {row.run_seq: row.state for row in spark_state.read(DagRun, of_dag)} == {
        seqs[0]: "failed",
        seqs[1]: "running",
    }


def test_the_heartbeat_goes_on_while_the_table_of_leases_is_compacted(
    spark_state: DeltaSparkStore, spark_leader: Leadership
) -> None:
    """Its MERGE and our OPTIMIZE can't both be committed: it comes again."""
    lead = spark_leader()
    assert isinstance(lead, DeltaSparkLeader)
    for n in range(2):
        lead._lease_writer.append(Manager, [manager(-n)])  # a small file more
    later = AT + timedelta(hours=1)
    with ThreadPoolExecutor(1) as heart:
        beat = heart.submit(lead.heartbeat, later)
        lead._writer.compact(Manager.TABLE)
        beat.result()
    last = spark_state.lease()
    assert last is not None and (last.term, last.heartbeat_at) == (lead.term, later)
    lead.heartbeat(later)
