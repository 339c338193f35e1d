"""Documents of runs, their tasks, tries and logs, of pools, requests and the leader."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager.errors import Ambiguous, NotFound, RunOfSeveralDags
from backfill_manager.model.records import DagRun, Manager, TaskInstance, TaskTry
from backfill_manager.process_info import manager_id
from backfill_manager.queries.managers import (
    has_active_manager,
    is_lease_live,
    manager_status,
    spark_pages,
    status_of_lease,
)
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.pools import list_pools
from backfill_manager.queries.requests import find_request, list_requests
from backfill_manager.queries.runs import list_runs, run_view
from backfill_manager.queries.tasks import find_task_instance, list_log_lines, list_task_instances, list_tries
from backfill_manager.store.base import matching
from backfill_manager.testing import MemoryStore

RUN_FIELDS = [
    "run_id",
    "dag_id",
    "run_type",
    "state",
    "logical_date",
    "interval_start",
    "interval_end",
    "partition_key",
    "previous_run_id",
    "overridden_by",
    "backfill_id",
    "dag_version",
    "started_at",
    "ended_at",
]
TASK_FIELDS = [
    "dag_id",
    "run_id",
    "task_id",
    "state",
    "try_number",
    "pool",
    "started_at",
    "ended_at",
    "duration_s",
    "error",
]
FIRST = "backfill__2013-01-01T05:00:00Z"


def test_a_run_has_the_fields_of_the_interface(state: FilledState) -> None:
    state.backfill("b1", {"success": 2, "failed": 1})

    listed = list_runs(state.store, backfill_id="b1").items

    assert [list(one)[: len(RUN_FIELDS)] for one in listed] == [RUN_FIELDS] * 3
    assert [one["state"] for one in listed] == ["failed", "success", "success"], "newest made first"
    assert listed[2]["run_id"] == FIRST
    assert listed[2]["duration_s"] == 2.0
    assert [one["state"] for one in list_runs(state.store, in_states=["failed"]).items] == ["failed"]
    assert len(list_runs(state.store, limit=2).items) == 2
    assert list_runs(state.store, dag_id="other").items == []


def test_a_run_is_found_by_id_beginning_date_or_as_the_latest(state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 3})

    assert find_run(state.store, FIRST).run_id == FIRST
    assert find_run(state.store, "backfill__2013-01-02", dag_id="flights").logical_date == NEW_YEAR + DAY
    assert find_run(state.store, "2013-01-02", dag_id="flights").logical_date == NEW_YEAR + DAY
    assert find_run(state.store, "latest").logical_date == NEW_YEAR + 2 * DAY
    with pytest.raises(Ambiguous, match="more than one run"):
        find_run(state.store, "backfill__2013", dag_id="flights")
    with pytest.raises(NotFound, match="did you mean 'backfill__2013-01-03"):
        find_run(state.store, "backfil__2013-01-03T05:00:00Z", dag_id="flights")


@pytest.mark.parametrize(
    ("typed", "dag_id", "found"),
    [
        pytest.param("d/x", None, ("d", "x"), id="the whole id, though others begin so"),
        pytest.param("d/x__", None, ("d", "x__2"), id="a beginning"),
        pytest.param("x", "e", ("e", "x"), id="of the DAG that is chosen"),
        pytest.param("e/x", "e", ("e", "x"), id="which may be named again"),
        pytest.param("d/latest", None, ("d", "x__2"), id="the newest of a DAG"),
        pytest.param("e/manual__a", None, ("f", "e/manual__a"), id="an id that holds a slash"),
        pytest.param("manual__eu/w", None, ("f", "manual__eu/west"), id="the beginning of one"),
        pytest.param("gone/x", None, None, id="no DAG"),
        pytest.param("d/x", "e", None, id="another DAG than the one that is chosen"),
        pytest.param("x", None, None, id="of two DAGs"),
    ],
)
def test_what_a_run_is_called_with_and_without_its_dag(
    typed: str, dag_id: str | None, found: tuple[str, str] | None
) -> None:
    store, conf = MemoryStore(), '{"full": true}'
    store.init()
    keys = [("d", "x"), ("d", "x__2"), ("e", "x"), ("e", "manual__a"), ("f", "e/manual__a"), ("f", "manual__eu/west")]
    store.write(
        [DagRun(*key, "manual", "success", 1, n, created_at=NEW_YEAR, conf_json=conf) for n, key in enumerate(keys)]
    )
    if found is None:
        with pytest.raises((NotFound, RunOfSeveralDags)):
            find_run(store, typed, dag_id=dag_id)
    else:
        run = find_run(store, typed, dag_id=dag_id)
        assert (run.key, run.conf_json) == (found, conf)


def test_a_run_is_found_by_its_partition_key_in_its_dag(state: FilledState) -> None:
    state.dag()
    for key in ("north", "manual", "2013-01-01", "eu/west"):
        state.run(None, run_id=f"manual__{key}", partition_key=key)
    state.run(None, run_id="old", partition_key="north", state="overridden", overridden_by="manual__north")

    for key in ("north", "manual", "2013-01-01", "eu/west"):
        assert find_run(state.store, key, dag_id="flights").run_id == f"manual__{key}"
    assert find_run(state.store, "flights/eu/west").run_id == "manual__eu/west"
    with pytest.raises(NotFound):
        find_run(state.store, "north")
    with pytest.raises(NotFound):
        find_run(state.store, "nort", dag_id="flights")


def test_a_day_finds_the_run_that_begins_on_it(state: FilledState) -> None:
    """Of a DAG whose intervals don't begin at midnight."""
    state.dag()  # in New York
    for at in ("2013-01-02T11:00:00Z", "2013-01-03T11:00:00Z", "2013-01-03T12:00:00Z", "2013-01-05T04:59:00Z"):
        state.run(at)
    state.run("2013-01-02T13:00:00Z", state="overridden", overridden_by="another")

    assert find_run(state.store, "2013-01-02", dag_id="flights").run_id.endswith("2013-01-02T11:00:00Z")
    assert find_run(state.store, "flights/2013-01-04").run_id.endswith("2013-01-05T04:59:00Z")
    with pytest.raises(Ambiguous, match="2013-01-03T11:00:00Z"):
        find_run(state.store, "2013-01-03", dag_id="flights")
    for without in ("2013-01-01", "2013-01-05", "2013-01-02T00:00"):
        with pytest.raises(NotFound):
            find_run(state.store, without, dag_id="flights")


def test_a_date_that_a_batch_took_is_answered_with_its_run(state: FilledState) -> None:
    state.dag()
    batch = state.run("2013-01-01", run_type="backfill", items=3, interval_end=NEW_YEAR + 3 * DAY)
    state.run("2013-01-04", run_type="backfill")
    state.run("2013-01-02", run_type="scheduled", state="overridden", overridden_by=batch)
    part = f"; this date is part of run {batch}, which takes 3 intervals together: name that run."

    assert find_run(state.store, "2013-01-01", dag_id="flights").run_id == batch
    for date in ("2013-01-02", "2013-01-03", "2013-01-03T12:00", "2013-01-04T04:59Z"):
        with pytest.raises(NotFound) as error:
            find_run(state.store, f"flights/{date}")
        assert str(error.value) == f"There is no run of DAG 'flights' with the id '{date}'{part}"
    assert find_run(state.store, "2013-01-04", dag_id="flights").items == 1, "the first instant after it"

    again = state.run("2013-01-02", run_type="manual")
    assert find_run(state.store, "2013-01-02", dag_id="flights").run_id == again, "a day of it that was run again alone"


def test_a_batch_that_was_overridden_or_is_a_previews_stands_for_no_date(state: FilledState) -> None:
    state.dag()
    for run_id, fields in (("old", {"state": "overridden"}), ("preview", {"run_type": "preview"})):
        state.run("2013-01-01", run_id=run_id, items=3, interval_end=NEW_YEAR + 3 * DAY, **fields)

    with pytest.raises(NotFound, match="with the id '2013-01-02'") as error:
        find_run(state.store, "2013-01-02", dag_id="flights")
    assert "part of" not in str(error.value)


def test_for_a_date_no_run_of_another_day_is_offered(state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 3})

    with pytest.raises(NotFound) as error:
        find_run(state.store, "2013-01-09", dag_id="flights")
    assert (str(error.value), error.value.hint) == (
        "There is no run of DAG 'flights' with the id '2013-01-09'.", "see_runs",
    )  # fmt: skip
    with pytest.raises(NotFound) as error:
        find_run(state.store, "2013-01-02")
    assert str(error.value) == "There is no run '2013-01-02'; a date needs its DAG: DAG/2013-01-02."


@pytest.mark.parametrize("dag_id", [None, "flights"])
def test_an_empty_text_is_not_the_only_run_that_there_is(state: FilledState, dag_id: str | None) -> None:
    state.dag()
    state.backfill("b1", {"running": 1})

    with pytest.raises(NotFound, match=r"There is no run .*''") as error:
        find_run(state.store, "", dag_id=dag_id)
    assert error.value.hint == "see_runs"


@pytest.mark.parametrize("run_id", ["latest", "2013-01-01", "x"])
def test_a_run_of_a_dag_that_there_is_not_names_the_dag(state: FilledState, run_id: str) -> None:
    state.dag()

    with pytest.raises(NotFound, match="There is no DAG 'flihgts'; did you mean 'flights'"):
        find_run(state.store, run_id, dag_id="flihgts")


def test_a_run_id_that_two_dags_have_needs_its_dag(state: FilledState) -> None:
    state.backfill("b1", {"success": 1})
    state.backfill("b2", {"failed": 1}, dag_id="other")

    with pytest.raises(Ambiguous, match=r"flights/\S+, other/\S+\. Name the DAG too"):
        find_run(state.store, FIRST)
    assert run_view(find_run(state.store, FIRST, dag_id="other"))["state"] == "failed"


def test_the_tasks_of_a_run_have_the_fields_of_the_interface(state: FilledState) -> None:
    state.backfill("b1", {"failed": 1})
    run = find_run(state.store, "latest")

    clean, delays = list_task_instances(state.store, run)

    assert list(clean)[: len(TASK_FIELDS)] == TASK_FIELDS
    assert (clean["task_id"], clean["state"], clean["error"]) == (
        "clean", "failed", "ValueError: no such [day]\nsecond line",
    )  # fmt: skip
    assert (delays["task_id"], delays["state"]) == ("delays", "upstream_failed")
    with pytest.raises(NotFound, match="did you mean 'clean'"):
        find_task_instance(state.store, run, "claen")


def test_tries_and_log_lines_are_listed_in_order(state: FilledState) -> None:
    state.backfill("b1", {"success": 1})
    run = find_run(state.store, "latest")
    state.logged(FIRST, "began", "one table")
    state.logged(FIRST, "again", launch=2)
    for launch, state_ in ((1, "failed"), (2, "success")):
        state.put(TaskTry("flights", FIRST, "clean", launch, launch, state_, run.run_seq, term=1))

    assert [one["message"] for one in list_log_lines(state.store, run, "clean")] == ["began", "one table", "again"]
    assert [one["message"] for one in list_log_lines(state.store, run, "clean", try_number=2)] == ["again"]
    assert [one["message"] for one in list_log_lines(state.store, run, "clean", after=(1, 0))] == ["one table", "again"]
    assert [(one["try_number"], one["state"]) for one in list_tries(state.store, run)] == [
        (1, "failed"),
        (2, "success"),
    ]


def test_a_try_tells_which_spark_jobs_it_ran_in_which_term(state: FilledState) -> None:
    state.backfill("b1", {"success": 1})
    run = find_run(state.store, "latest")
    first = TaskTry("flights", FIRST, "clean", 1, 1, "lost", run.run_seq, term=1)
    state.put(first, first.evolve(launch=2, term=4, state="success", spark_jobs_json="[3, 14]"))

    jobs = [(one["launch"], one["term"], one["spark_jobs"]) for one in list_tries(state.store, run)]

    assert jobs == [(1, 1, []), (2, 4, [3, 14])]


@pytest.mark.parametrize(
    ("spark_ui", "age_s", "shown"),
    [
        ("http://driver:4040", 1, "http://driver:4040"),
        ("https://driver/spark/", 1, "https://driver/spark"),
        ("http://driver:4040", 3600, None),
        (None, 1, None),
        ("", 1, None),
        ("javascript:alert(1)", 1, None),
    ],
)
def test_sparks_pages_are_those_of_a_manager_that_lives(
    state: FilledState, spark_ui: str | None, age_s: int, shown: str | None
) -> None:
    row = state.leader.row.evolve(spark_ui=spark_ui, lease_s=15)
    assert spark_pages(row, row.heartbeat_at + timedelta(seconds=age_s)) == shown
    assert spark_pages(row.evolve(state="stopped"), row.heartbeat_at) is None
    assert spark_pages(None, row.heartbeat_at) is None


def test_a_pool_tells_how_much_of_it_is_taken(state: FilledState) -> None:
    state.pools()
    state.backfill("b1", {"running": 3, "success": 1})

    backfill, scheduled = list_pools(state.store)

    assert (backfill["name"], backfill["used"], backfill["free"], backfill["running"]) == ("backfill", 3, 13, 3)
    assert (scheduled["used"], scheduled["weight"], scheduled["min_share"]) == (0, 4, 2)


def test_a_queued_task_takes_no_slot_yet(state: FilledState) -> None:
    state.pools()
    state.backfill("b1", {"running": 3})
    one, *_ = state.store.read(TaskInstance, matching(state="running"))
    state.put(one.evolve(state="queued", started_at=None))

    backfill = list_pools(state.store)[0]

    assert (backfill["used"], backfill["free"], backfill["running"], backfill["queued"]) == (2, 14, 2, 1)


def test_a_request_is_shown_beside_its_answer(state: FilledState) -> None:
    state.answers(state.requested("b1", request_id="aa1"), "refused", "no such dates")
    state.clock.at += DAY
    state.requested("b2", request_id="bb2")

    newest, oldest = list_requests(state.store).items

    assert (newest["request_id"], newest["outcome"], newest["message"]) == ("bb2", "waiting", None)
    assert (oldest["request_id"], oldest["outcome"], oldest["message"]) == ("aa1", "refused", "no such dates")
    found = find_request(state.store, "a")
    assert found == {**oldest, "payload": found["payload"], "result": None}
    assert "payload" not in oldest and oldest["about"] == {"dag_id": "flights", "backfill_id": "b1"}
    assert find_request(state.store, "latest")["payload"]["backfill_id"] == "b2"
    with pytest.raises(NotFound):
        find_request(state.store, "zz")


def test_a_leader_lives_as_long_as_its_lease(state: FilledState) -> None:
    assert manager_status(state.store, state.clock.now())["advice"] == "No manager has run here yet."
    state.leads()

    status = manager_status(state.store, state.clock.now())
    assert (status["leading"], status["term"], status["host"], status["pid"], status["advice"]) == (
        True,
        1,
        "here",
        4711,
        None,
    )

    now = state.clock.now()
    state.leader.heartbeat(now, slow_loop="tick", slow_loop_since=now - timedelta(minutes=4))
    status = manager_status(state.store, now)
    assert (status["slow_loop"], status["slow_loop_s"], status["advice"]) == (
        "tick",
        240.0,
        "Its loop `tick` has been at the same work for 4 min, or hangs; its log says where (`component=long_passes`).",
    )

    later = now + timedelta(seconds=3601)
    assert not has_active_manager(state.store, later)
    assert manager_status(state.store, later)["slow_loop_s"] is None, "nobody knows what became of it"
    assert manager_status(state.store, later)["advice"] == (
        "The last heartbeat was 1 h ago: the manager has ended, or this machine's clock is ahead; "
        "the next one continues where it stopped."
    )

    state.goes()
    status = manager_status(state.store, state.clock.now())
    assert (status["leading"], status["state"]) == (False, "stopped")


def test_a_leader_that_was_killed_on_this_machine_does_not_live_on_in_its_lease(state: FilledState) -> None:
    now = state.clock.now()
    died = Manager(1, manager_id("0123456789ab"), "here", 2**22 + 1, "leading", now, now, 15, "0")  # above any pid

    assert not is_lease_live(died, now)
    assert "without giving its lease back" in status_of_lease(died, now)["advice"]
    assert is_lease_live(replace(died, pid=os.getpid()), now)
    assert is_lease_live(replace(died, manager_id="0123456789ab.deadbeef"), now), "another machine's pids tell nothing"
