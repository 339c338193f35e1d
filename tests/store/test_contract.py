"""One suite for all engines: what `store/base.py` promises, as stories."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from support.leader_contract import Leadership
from support.state_changes import AT, backfill, changes, item, keys, manager, request, response, run, task, unique

from backfill_manager.errors import InvalidInput, LostLease
from backfill_manager.model.records import (
    RECORDS,
    TABLES,
    Backfill,
    BackfillItem,
    DagRun,
    ImportProblem,
    Manager,
    Pool,
    Request,
    TaskInstance,
    TaskTry,
    columns,
)
from backfill_manager.store.base import Condition, Store
from backfill_manager.store.table_properties import arrow_schema

WICKED = (
    "it's \"quoted\" \\ back\\'slashed\nover\r\nlines\t; -- DROP TABLE dag_run "
    "/* \N{SNOWMAN} \U0001f98a ${x} :x ? %s {y} `"
)


def test_a_state_is_made_once_and_making_it_again_is_harmless(store: Store) -> None:
    assert store.exists()
    assert not any(store.init())
    assert set(store.locations()) == set(TABLES)


def test_a_healthy_state_has_nothing_to_be_found(store: Store) -> None:
    scan_results = store.check()
    assert [finding.table for finding in scan_results] == [record.TABLE for record in RECORDS]
    assert [finding for finding in scan_results if not finding.ok] == []


def test_what_is_committed_can_be_read_as_it_was(store: Store, leader: Leadership) -> None:
    dag, lead = unique("d"), leader()
    first = lead.next_seq(3)
    conf = json.dumps({"text": WICKED}, indent=2)  # JSON, as other tests check the whole state
    rows = [
        run(dag, first, logical_date=AT, interval_start=datetime(1, 1, 1, tzinfo=timezone.utc), conf_json=conf),
        run(dag, first + 1, logical_date=AT.astimezone(timezone(timedelta(hours=-5))), partition_key=""),
        run(dag, first + 2, partition_key=WICKED),
    ]
    lead.commit(changes(*rows))
    found = store.read(DagRun, [Condition("dag_id", "=", dag)], order_by=["run_seq"])
    assert found == rows
    for same in (Condition("partition_key", "=", WICKED), Condition("partition_key", "starts_with", WICKED[:-1])):
        assert store.read(DagRun, [Condition("dag_id", "=", dag), same]) == [rows[2]]
    assert found[2].logical_date is None and found[1].partition_key == ""
    assert found[0].logical_date is not None and found[0].logical_date.tzinfo is timezone.utc


def test_a_tick_changes_rows_and_adds_rows_in_one_go(store: Store, leader: Leadership) -> None:
    dag, lead = unique("d"), leader()
    first = lead.next_seq(2)
    lead.commit(changes(task(dag, first, "a"), task(dag, first, "b")))
    ended = task(dag, first, "a", "success", started_at=AT, ended_at=AT, duration_s=0.25, result_json="1")
    lead.commit(
        changes(
            ended,
            task(dag, first + 1, "a"),
            TaskTry(dag, f"run{first}", "a", 1, 1, "success", first, lead.term),
        )
    )
    assert store.count("task_instance", ["run_id", "state"], [Condition("dag_id", "=", dag)]) == {
        (f"run{first}", "success"): 1,
        (f"run{first}", "none"): 1,
        (f"run{first + 1}", "none"): 1,
    }
    assert store.read(TaskInstance, [Condition("dag_id", "=", dag), Condition("state", "=", "success")]) == [ended]
    assert keys(store.read(TaskTry, [Condition("dag_id", "=", dag)])) == [(dag, f"run{first}", "a", 1)]


@pytest.fixture
def runs(store: Store, leader: Leadership) -> tuple[str, int]:
    """A DAG with four runs, made once for all that only read: its id, and its first run's number."""
    if id(store) not in _runs:
        lead, dag = leader(), unique("d")
        first = lead.next_seq(4)
        lead.commit(
            changes(
                run(dag, first, partition_key="eu-west", logical_date=AT, ordinal=2),
                run(dag, first + 1, "queued", partition_key="eu-east", logical_date=AT + timedelta(microseconds=1)),
                run(dag, first + 2, "running", partition_key="us%", ordinal=1),
                run(dag, first + 3, "failed", ordinal=2),
            )
        )
        _runs[id(store)] = (dag, first)
    return _runs[id(store)]


_runs: dict[int, tuple[str, int]] = {}


def test_columns_that_are_left_out_are_none_and_may_still_order_and_choose(store: Store, runs: tuple[str, int]) -> None:
    dag, first = runs
    where = [Condition("dag_id", "=", dag), Condition("partition_key", "starts_with", "eu-")]
    whole = store.read(DagRun, where, order_by=["partition_key"])
    found = store.read(DagRun, where, order_by=["partition_key"], limit=1, without=("conf_json", "partition_key"))
    assert found == [whole[0].evolve(conf_json=None, partition_key=None)]
    assert found[0].run_seq == first + 1
    with pytest.raises(InvalidInput, match="has no column 'conf'"):
        store.read(DagRun, where, without=("conf",))


def test_conditions_mean_what_sql_means(store: Store, runs: tuple[str, int]) -> None:
    dag, first = runs

    def met(*where: Condition) -> list[int]:
        rows = store.read(DagRun, [Condition("dag_id", "=", dag), *where], order_by=["run_seq"])
        return [row.run_seq - first for row in rows]

    assert met(Condition("state", "in", ("queued", "running"))) == [0, 1, 2]
    assert met(Condition("state", "in", ())) == []
    assert met(Condition("partition_key", "in", ("us%", None))) == [2]
    assert met(Condition("state", "!=", "running")) == [1, 3]
    assert met(Condition("partition_key", "!=", "eu-west")) == [1, 2]
    assert met(Condition("partition_key", "=", None)) == []
    assert met(Condition("partition_key", "is_null")) == [3]
    assert met(Condition("ordinal", "not_null")) == [0, 2, 3]
    assert met(Condition("partition_key", "starts_with", "eu-")) == [0, 1]
    assert met(Condition("partition_key", "starts_with", "us%")) == [2]
    assert met(Condition("partition_key", "starts_with", "_s")) == []
    assert met(Condition("partition_key", "shorter_than", 4)) == [2]
    assert met(Condition("partition_key", "shorter_than", 8)) == [0, 1, 2]
    assert met(Condition("logical_date", ">", AT)) == [1]
    assert met(Condition("logical_date", "<=", AT)) == [0]
    assert met(Condition("run_seq", ">=", first + 1), Condition("run_seq", "<", first + 3)) == [1, 2]
    assert met(Condition("run_seq", ">", -5)) == [0, 1, 2, 3]


def test_rows_come_in_the_order_asked_for_with_nulls_last(store: Store, runs: tuple[str, int]) -> None:
    dag, first = runs
    mine = [Condition("dag_id", "=", dag)]
    assert [r.run_seq - first for r in store.read(DagRun, mine, order_by=["ordinal", "-run_seq"])] == [2, 3, 0, 1]
    assert [r.run_seq - first for r in store.read(DagRun, mine, order_by=["-ordinal", "run_seq"], limit=3)] == [0, 3, 2]
    assert store.read(DagRun, mine, limit=0) == []


def test_a_condition_that_makes_no_sense_is_reported(store: Store) -> None:
    with pytest.raises(InvalidInput, match="no column 'stat'; did you mean 'state'"):
        store.read(DagRun, [Condition("stat", "=", "x")])
    with pytest.raises(InvalidInput, match=r"dag_run\.run_seq holds int"):
        store.read(DagRun, [Condition("run_seq", "=", "x")])
    with pytest.raises(InvalidInput, match="no time zone"):
        store.read(DagRun, [Condition("created_at", ">", datetime(2024, 1, 1))])
    with pytest.raises(InvalidInput, match="no table 'dagrun'; did you mean 'dag_run'"):
        store.count("dagrun", [])


def test_items_go_in_and_come_out_as_arrow(store: Store, leader: Leadership) -> None:
    mine, lead = unique("b"), leader()
    first = lead.next_seq(6)
    plan = [
        item(mine, 1, first, logical_date=AT, interval_start=AT, interval_end=AT + timedelta(days=1)),
        item(mine, 2, first + 1, "skipped", partition_key=WICKED, reason="already exists"),
    ]
    lead.append_items(_arrow(plan))
    # The first attempt broke off before its backfill was written.
    lead.append_items(_arrow([*plan, item(mine, 3, first + 2)]))
    lead.commit(changes(backfill(mine, first + 3, planned=3)))
    where = [Condition("backfill_id", "=", mine)]
    assert store.read(BackfillItem, where, order_by=["ordinal"]) == [*plan, item(mine, 3, first + 2)]
    found = store.read_arrow("backfill_item", ["ordinal", "logical_date", "partition_key"], where).sort_by("ordinal")
    assert found.schema.types == [pa.int64(), pa.timestamp("us", tz="UTC"), pa.string()]
    assert found.to_pydict() == {
        "ordinal": [1, 2, 3],
        "logical_date": [AT, None, None],
        "partition_key": [None, WICKED, None],
    }
    assert store.count("backfill_item", [], where) == {(): 3}
    assert store.read(Backfill, where) == [backfill(mine, first + 3, planned=3)]
    assert store.count("backfill_item", [], [Condition("backfill_id", "=", "nobody's")]) == {(): 0}


def test_all_items_of_a_backfill_in_one_state_are_moved_at_once(store: Store, leader: Leadership) -> None:
    mine, other, lead = unique("b"), unique("b"), leader()
    first = lead.next_seq(6)
    lead.append_items(_arrow([item(mine, 1, first, "running"), item(mine, 2, first + 1), item(mine, 3, first + 2)]))
    lead.append_items(_arrow([item(other, 1, first + 3)]))
    lead.commit(changes(backfill(mine, first + 4), backfill(other, first + 5)))
    lead.move_items(mine, "pending", "cancelled", WICKED)
    lead.move_items(unique("b"), "pending", "cancelled", "there is none")
    moved = store.read(BackfillItem, [Condition("backfill_id", "in", (mine, other))], order_by=["run_seq"])
    assert [(one.state, one.reason) for one in moved] == [
        ("running", None),
        ("cancelled", WICKED),
        ("cancelled", WICKED),
        ("pending", None),
    ]


def test_chosen_items_in_one_state_are_moved_and_read_by_ranges(store: Store, leader: Leadership) -> None:
    mine, lead = unique("b"), leader()
    first = lead.next_seq(31)
    states = ["failed" if n % 2 else "success" for n in range(1, 31)]
    lead.append_items(_arrow([item(mine, n, first + n - 1, state) for n, state in enumerate(states, 1)]))
    lead.commit(changes(backfill(mine, first + 30)))
    ranges = ((1, 1), (3, 4), (8, 20), (29, 40))
    lead.move_items(mine, "failed", "pending", "retried", ranges)
    lead.move_items(mine, "failed", "cancelled", "of no item", ())
    moved = [Condition("backfill_id", "=", mine), Condition("state", "=", "pending")]
    expected = [1, 3, 9, 11, 13, 15, 17, 19, 29]
    assert [one.ordinal for one in store.read(BackfillItem, moved, order_by=["ordinal"])] == expected
    within = [*moved, Condition("ordinal", "in_ranges", ((2, 10), (29, 29)))]
    assert [one.ordinal for one in store.read(BackfillItem, within, order_by=["ordinal"])] == [3, 9, 29]
    with pytest.raises(InvalidInput, match="range"):
        store.read(BackfillItem, [Condition("state", "in_ranges", ((1, 2),))])


def test_rows_are_deleted_by_their_conditions(store: Store, leader: Leadership) -> None:
    dag, lead = unique("d"), leader()
    first = lead.next_seq(3)
    lead.commit(changes(*(run(dag, first + n) for n in range(3)), *(task(dag, first + n) for n in range(3))))
    of_it = Condition("dag_id", "=", dag)
    lead.delete("task_instance", [of_it, Condition("run_seq", "in", (first, first + 1))])
    lead.delete("dag_run", [of_it, Condition("run_id", "in", ())])
    lead.delete("dag_run", [of_it, Condition("run_seq", "=", first), Condition("created_at", "<=", AT)])
    assert keys(store.read(TaskInstance, [of_it])) == [(dag, f"run{first + 2}", "t")]
    assert store.count("dag_run", [], [of_it]) == {(): 2}
    lead.commit(changes(run(dag, first + 2, "success")))
    assert store.count("dag_run", ["state"], [of_it]) == {("running",): 1, ("success",): 1}


def test_requests_are_deleted_while_clients_append_more(store: Store, leader: Leadership) -> None:
    gone, stays, later = request(), request(), request()
    for one in (gone, stays):
        store.append_request(one)
    ids = [one.request_id for one in (gone, stays, later)]
    leader().delete("request", [Condition("request_id", "in", (gone.request_id, unique("ask")))])
    store.append_request(later)
    left = store.read(Request, [Condition("request_id", "in", ids)])
    assert {one.request_id for one in left} == {stays.request_id, later.request_id}


def _arrow(items: list[BackfillItem]) -> pa.Table:
    names = list(columns(BackfillItem))
    return pa.table({name: [getattr(one, name) for one in items] for name in names}, schema=arrow_schema(BackfillItem))


def test_a_request_waits_until_it_is_answered(store: Store, leader: Leadership) -> None:
    early, late, twice = request(), request(payload_json=WICKED), request()
    before = store.requests_version()
    for one in (late, twice, early, dataclasses.replace(twice, requested_at=twice.requested_at + timedelta(hours=1))):
        store.append_request(one)
    assert store.requests_version() != before

    def waiting() -> list[Request]:
        return [one for one in store.unanswered() if one in (early, late, twice)]

    assert waiting() == [early, late, twice]
    lead = leader()
    lead.commit(changes(response(late, lead.term)))
    assert waiting() == [early, twice]


def test_a_tables_version_moves_when_the_table_does(store: Store, leader: Leadership) -> None:
    lead = leader()
    before = {table: store.version(table) for table in ("pool", "dag_run", "request")}
    assert before == {table: store.version(table) for table in before}

    lead.commit(changes(Pool(name=unique("p"), slots=1, weight=1, min_share=0)))
    store.append_request(request())

    after = {table: store.version(table) for table in before}
    assert [table for table in before if after[table] != before[table]] == ["pool", "request"]
    with pytest.raises(InvalidInput, match="no table 'pols'; did you mean 'pool'"):
        store.version("pols")


def test_a_successor_sweeps_up_and_the_overtaken_is_refused(store: Store, leader: Leadership) -> None:
    dag, mine, old = unique("d"), unique("b"), leader()
    seq = old.next_seq(2)
    assert old.next_seq() == seq + 2
    old.append_items(_arrow([item(mine, 1, seq)]))
    old.commit(changes(run(dag, seq), task(dag, seq), backfill(mine, seq + 1)))
    orphan = old.next_seq(2)  # a crash in the middle of a tick: children whose parents never came
    old.append_items(_arrow([item(unique("b"), 1, orphan)]))
    old.commit(changes(task(dag, orphan), TaskTry(dag, f"run{orphan}", "t", 1, 1, "failed", orphan, old.term)))

    new = leader.take_over()
    assert new.next_seq() > orphan
    with pytest.raises(LostLease):
        old.commit(changes(task(dag, seq, state="scheduled"), run(dag, seq, "success")))
    with pytest.raises(LostLease):
        old.heartbeat(AT + timedelta(hours=1))
    with pytest.raises(LostLease):
        old.append_items(_arrow([item(dag, 1, seq)]))
    with pytest.raises(LostLease):
        old.move_items(mine, "pending", "cancelled", "too late")
    with pytest.raises(LostLease):
        old.compact()
    for table in ("dag_run", "request"):
        with pytest.raises(LostLease):
            old.delete(table, [Condition("run_seq", ">=", seq)] if table == "dag_run" else [])
    later = [Condition("run_seq", ">=", seq)]
    assert store.read(TaskInstance, later) == [task(dag, seq)]
    assert store.read(TaskTry, later) == []
    assert store.read(DagRun, later) == [run(dag, seq)]
    assert keys(store.read(BackfillItem, later)) == [(mine, 1)]
    assert store.lease() == new.row
    assert store.read(Manager, [Condition("term", "=", old.term)])[0].heartbeat_at == old.row.heartbeat_at
    new.commit(changes(run(dag, seq, "success")))
    assert store.count("dag_run", ["state"], [Condition("dag_id", "=", dag)]) == {("success",): 1}


def test_a_term_can_be_taken_only_once(store: Store, leader: Leadership) -> None:
    lead = leader()
    for wrong in (lead.term, lead.term + 2):
        with pytest.raises(LostLease):
            store.lead(manager(wrong))
    assert store.lease() == lead.row


def test_a_leader_says_that_it_lives_and_gives_the_lease_back(store: Store, leader: Leadership) -> None:
    lead = leader()
    lead.heartbeat(AT + timedelta(seconds=5), application_id="app-1")
    lead.heartbeat(AT + timedelta(seconds=10))
    row = store.lease()
    assert row is not None and row == lead.row
    assert (row.heartbeat_at, row.application_id, row.state) == (AT + timedelta(seconds=10), "app-1", "leading")
    lead.resign(AT + timedelta(seconds=11))
    row = store.lease()
    assert row is not None and (row.state, row.ended_at) == ("stopped", AT + timedelta(seconds=11))
    with pytest.raises(LostLease, match="given back"):
        lead.commit(changes(Pool("backfill", 1, 1, 0)))


def test_small_tables_are_changed_by_key(store: Store, leader: Leadership) -> None:
    bundle, lead = unique("bundle"), leader()
    problem = ImportProblem(bundle, "a.py", 3, WICKED, "", True, AT, AT)
    lead.commit(changes(problem, problem.evolve(file="b.py", line=None)))
    lead.commit(changes(problem.evolve(is_current=False)))
    found = store.read(ImportProblem, [Condition("bundle", "=", bundle)], order_by=["file"])
    assert found == [problem.evolve(is_current=False), problem.evolve(file="b.py", line=None)]


def test_sql_reads_the_tables_by_their_names(store: Store, runs: tuple[str, int]) -> None:
    dag, first = runs
    sql = f"""
        -- how far is it?
        SELECT state, count(*) AS n, min(run_seq) AS low FROM dag_run
        WHERE dag_id = '{dag}' AND state <> 'queued' AND conf_json <> ';' GROUP BY state ORDER BY state DESC;
    """
    assert store.query(sql) == (["state", "n", "low"], [("running", 2, first), ("failed", 1, first + 3)])
    with_it = (
        f"WITH mine AS (SELECT created_at FROM dag_run WHERE dag_id = '{dag}') SELECT created_at FROM mine LIMIT 1"
    )
    assert store.query(with_it)[1] == [(AT,)]
    assert store.query("SELECT run_id FROM dag_run WHERE dag_id = 'nobody''s'")[1] == []


def test_sql_gives_results_of_tasks_as_they_are_shown(store: Store, leader: Leadership) -> None:
    dag, lead = unique("dag"), leader()
    first = lead.next_seq(1)
    one = task(dag, first, "a", "success", result_json='"hunter2"', result_shown_json='"***"')
    lead.commit(changes(one, task(dag, first, "b", "success", result_json="7")))
    of_it = f"FROM task_instance WHERE dag_id = '{dag}' ORDER BY task_id"
    for sql in (
        f"SELECT result_json {of_it}",
        f"-- a comment\nWITH t AS (SELECT * {of_it}) SELECT result_json FROM t ORDER BY task_id",
    ):
        assert store.query(sql) == (["result_json"], [('"***"',), ("7",)])
    assert store.query(f"SELECT substr(result_json, 2, 3) AS part {of_it} LIMIT 1")[1] == [("***",)]
    found = store.read(TaskInstance, [Condition("dag_id", "=", dag)], order_by=["task_id"])
    assert [row.result_json for row in found] == ['"hunter2"', "7"], "the tasks after it get what it was"


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "DELETE FROM pool",
        "DROP TABLE pool",
        "INSERT INTO pool VALUES ('x', 1, 1, 1)",
        "UPDATE pool SET slots = 0",
        "SELECT 1; DROP TABLE pool",
        "SELECT 1; SELECT 2",
        "WITH x AS (SELECT 'x', 1, 1, 1) INSERT INTO pool SELECT * FROM x",
        "SELECT * FROM (DELETE FROM pool) q",
        "SELECT * FROM (INSERT INTO pool VALUES ('x', 1, 1, 1)) q",
        "SELECT 1) q; DROP TABLE pool; SELECT (1",
        "COPY pool TO 'stolen.csv'",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "CREATE EXTERNAL TABLE stolen STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE TABLE stolen AS SELECT 1",
        "CREATE VIEW stolen AS SELECT 1",
        "EXPLAIN ANALYZE INSERT INTO pool VALUES ('x', 1, 1, 1)",
        "SET TimeZone = 'Asia/Tokyo'",
        "PRAGMA query_only = 0",
        "ATTACH DATABASE 'stolen.db' AS stolen",
        "VACUUM pool",
        "FROM pool INSERT INTO pool SELECT *",
        "SELECT java_method('java.lang.System', 'setProperty', 'a', 'b')",
        "SELECT load_extension('x')",
        "SELECT * FROM",
    ],
)
def test_sql_can_do_nothing_but_read(store: Store, sql: str) -> None:
    before = store.count("pool", [])
    with pytest.raises(InvalidInput) as refused:
        store.query(sql)
    assert "\n" not in str(refused.value)
    assert store.count("pool", []) == before


def test_sql_with_a_wrong_name_is_answered_with_a_right_one(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"no (such )?table:? '?dagrun.*did you mean 'dag_run'") as refused:
        store.query("SELECT * FROM dagrun")
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidInput, match="state") as refused:
        store.query("SELECT stat FROM dag_run")
    assert "\n" not in str(refused.value)


def test_compact_and_vacuum_leave_every_row_as_it_was(store: Store, runs: tuple[str, int], leader: Leadership) -> None:
    before = store.read(DagRun, order_by=["run_seq"])
    leader().compact()
    assert store.read(DagRun, order_by=["run_seq"]) == before


@pytest.mark.slow  # a minute of Spark; for delta-rs see test_compaction.py
def test_asked_to_it_tidies_every_table_and_leaves_every_row(
    store: Store, runs: tuple[str, int], leader: Leadership
) -> None:
    before = {table: store.count(table, []) for table in TABLES}
    assert set(leader().compact(everywhere=True)) == set(TABLES)
    assert {table: store.count(table, []) for table in TABLES} == before
