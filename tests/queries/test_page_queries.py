"""The views that pages are made of: grid, calendar, last runs, spans of a run, waiting tasks, terms, the end of a log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from support.page_client import browser_of
from support.scenarios import accepted

from backfill_manager.clock import UTC
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import Record, TaskLog
from backfill_manager.model.transitions import Changes
from backfill_manager.queries.calendar import calendar, count_runs_of_day, rows_by_day, runs_of_day, weeks_of, years
from backfill_manager.queries.gantt import spans_of_run
from backfill_manager.queries.grid import grid
from backfill_manager.queries.managers import list_terms
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.pools import waiting_by_pool
from backfill_manager.queries.requests import list_responses
from backfill_manager.queries.runs import newest_runs, recent_runs
from backfill_manager.queries.tasks import log_tail
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

FLIGHTS = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}, each={"clean": {"retries": 1}})
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def played(*, script: Any = None, n: int = 5, **fields: Any) -> InMemoryManager:
    manager = InMemoryManager(FLIGHTS, script=script)
    manager.backfill("flights", days("2023-12-01", n), **fields)
    manager.drain()
    return manager


def dates(found: dict[str, Any]) -> list[str]:
    return [run["logical_date"][:10] for run in found["runs"]]


def put(manager: InMemoryManager, *rows: Record) -> None:
    changes = Changes()
    for row in rows:
        changes.put(row)
    manager.leader.commit(changes)


# -- grid -------------------------------------------------------------------------------------------------------------


def test_the_grid_has_the_newest_runs_with_the_states_of_their_tasks() -> None:
    manager = played()
    found = grid(manager.store, FLIGHTS, limit=2)
    assert dates(found) == ["2023-12-04", "2023-12-05"]
    assert [task["task_id"] for task in found["tasks"]] == ["clean", "delays"]
    assert {task: cell["state"] for task, cell in found["runs"][0]["cells"].items()} == {
        "clean": "success", "delays": "success",
    }  # fmt: skip
    assert found["older"] == {"before_date": "2023-12-04T00:00:00Z"}


def test_tasks_that_are_mapped_in_runs_are_rows_below_the_one_that_they_are_mapped_from() -> None:
    spec = dag_spec(
        "d",
        "find",
        "load",
        "sum",
        upstream={"load": ["find"], "sum": ["load"]},
        each={"load": {"over_result_of": "find"}},
        callbacks=("load.on_failure",),
    )
    manager = InMemoryManager(spec, script=lambda launch: Succeeded('["b", "a"]'))
    manager.backfill("d", days("2024-01-05", 1))
    manager.drain()
    found = grid(manager.store, spec)
    assert [tuple(one.values()) for one in found["tasks"]] == [
        ("find", True, None), ("load", True, None), ("load.a", True, "load"), ("load.b", True, "load"), ("sum", True, None),
        ("load.on_failure", True, None), ("load.a.on_failure", True, "load.on_failure"),
        ("load.b.on_failure", True, "load.on_failure"),
    ]  # fmt: skip


def test_pages_of_the_grid_follow_each_other_to_the_first_run() -> None:
    manager = played()
    by_date = grid(manager.store, FLIGHTS, limit=3, before_date=datetime(2023, 12, 3, tzinfo=UTC))
    assert (dates(by_date), by_date["older"]) == (["2023-12-01", "2023-12-02"], None)
    newest = grid(manager.store, FLIGHTS, order="made", limit=3)
    rest = grid(manager.store, FLIGHTS, order="made", limit=3, **newest["older"])
    assert dates(rest) + dates(newest) == [f"2023-12-0{n}" for n in range(1, 6)]
    assert rest["older"] is None


def test_the_grid_by_date_leaves_out_what_was_overridden() -> None:
    manager = played(n=2)
    manager.backfill("flights", days("2023-12-01", 1), reprocess="completed")
    manager.drain()
    assert len(grid(manager.store, FLIGHTS)["runs"]) == 2
    made = grid(manager.store, FLIGHTS, order="made")["runs"]
    assert [run["state"] for run in made] == ["overridden", "success", "success"]


def test_a_task_that_the_definition_has_no_more_keeps_its_row() -> None:
    manager = played()
    found = grid(manager.store, dag_spec("flights", "clean", "report"))
    assert [(task["task_id"], task["is_current"]) for task in found["tasks"]] == [
        ("clean", True), ("report", True), ("delays", False),
    ]  # fmt: skip


def test_the_grid_of_a_dag_that_never_ran_has_its_tasks() -> None:
    found = grid(InMemoryManager(FLIGHTS).store, FLIGHTS)
    assert (found["runs"], found["older"], len(found["tasks"])) == ([], None, 2)


# -- last runs --------------------------------------------------------------------------------------------------------


def test_the_last_runs_of_every_dag_oldest_first() -> None:
    manager = InMemoryManager(FLIGHTS, dag_spec("other", "one"), dag_spec("never", "one"))
    manager.backfill("flights", days("2023-12-01", 5))
    manager.backfill("other", days("2023-12-01", 1))
    manager.drain()
    newest = newest_runs(manager.store, 3)
    found = recent_runs(manager.store, newest, sorted(newest))
    assert [run["logical_date"][:10] for run in found["flights"]] == ["2023-12-03", "2023-12-04", "2023-12-05"]
    assert (len(found["other"]), "never" in found) == (1, False)
    assert newest_runs(InMemoryManager(FLIGHTS).store) == recent_runs(manager.store, {}, ["flights"]) == {}


# -- calendar ---------------------------------------------------------------------------------------------------------


def test_a_day_of_the_calendar_shows_the_worst_of_its_runs_and_how_long_they_took() -> None:
    clock = FakeClock()

    def script(launch: TaskLaunch) -> Outcome:
        clock.advance(seconds=30)
        is_late = launch.run.logical_date is not None and launch.run.logical_date.hour == 6
        return Failed("no", retryable=False) if is_late else Succeeded()

    manager = InMemoryManager(dag_spec("hourly", "one", schedule="0 */6 * * *"), script=script, clock=clock)
    start = datetime(2023, 12, 1, tzinfo=UTC)
    hours = [(start + timedelta(hours=6 * n), start + timedelta(hours=6 * n + 6)) for n in range(5)]
    manager.backfill("hourly", hours, max_active_runs=1)
    manager.drain()
    found = calendar(manager.store, "hourly", "UTC", 2023)
    assert {day: (one["state"], one["runs"], one["states"]) for day, one in found.items()} == {
        "2023-12-01": ("failed", 4, {"failed": 1, "success": 3}),
        "2023-12-02": ("success", 1, {"success": 1}),
    }
    assert found["2023-12-02"]["duration_s"] == pytest.approx(30)


def test_days_are_those_of_the_dags_zone() -> None:
    manager = played(n=1)  # 2023-12-01T00:00Z
    assert list(calendar(manager.store, "flights", "America/New_York", 2023)) == ["2023-11-30"]
    assert list(calendar(manager.store, "flights", "Asia/Tokyo", 2023)) == ["2023-12-01"]
    the_day = datetime(2023, 11, 30, 15, tzinfo=UTC)
    assert len(runs_of_day(manager.store, "flights", "America/New_York", the_day)) == 1
    assert runs_of_day(manager.store, "flights", "UTC", the_day) == []


@pytest.mark.parametrize(
    ("zone", "day", "hours"), [("America/Havana", "2023-11-05", 25), ("America/Asuncion", "2023-10-01", 23)]
)
def test_a_day_whose_midnight_is_repeated_or_skipped_has_the_runs_that_the_calendar_counts(
    zone: str, day: str, hours: int
) -> None:
    manager = InMemoryManager(dag_spec("flights", "one", schedule="@hourly", timezone=zone))
    first = datetime.fromisoformat(day).replace(tzinfo=UTC)
    each = [first + timedelta(hours=n) for n in range(36)]
    manager.backfill("flights", [(at, at + timedelta(hours=1)) for at in each])
    manager.drain()
    at = parse_date(day, zone, name="day")
    assert calendar(manager.store, "flights", zone, 2023)[day]["runs"] == hours
    assert len(runs_of_day(manager.store, "flights", zone, at)) == hours


def test_pages_of_a_day_joined_are_its_runs_also_with_a_batch_from_the_day_before() -> None:
    manager = InMemoryManager(dag_spec("flights", "one", schedule="@hourly", batchable=True))
    hours = [(at, at + timedelta(hours=1)) for at in (NOON + timedelta(hours=n) for n in range(8, 18))]
    manager.backfill("flights", hours[:6], batch=6)  # until two o'clock
    manager.backfill("flights", hours[6:])
    manager.drain()
    of_day = (manager.store, "flights", "UTC", NOON + timedelta(days=1))
    whole = runs_of_day(*of_day)
    assert len(whole) == count_runs_of_day(*of_day) == 5
    assert [run["logical_date"][8:13] for run in whole] == ["01T20", "02T02", "02T03", "02T04", "02T05"]
    assert [run for first in (0, 2, 4) for run in runs_of_day(*of_day, first=first, limit=2)] == whole


def test_the_years_to_choose_from_have_that_in_which_the_last_batch_ends() -> None:
    manager = InMemoryManager(dag_spec("flights", "one", batchable=True))
    manager.backfill("flights", days("2022-12-30", 1))
    manager.backfill("flights", days("2023-12-28", 7), batch=7)
    manager.drain()
    assert years(manager.store, "flights", "UTC") == [2024, 2023, 2022]
    whole = InMemoryManager(dag_spec("flights", "one", batchable=True))
    whole.backfill("flights", days("2023-12-28", 4), batch=4)
    whole.drain()
    assert years(whole.store, "flights", "UTC") == [2023], "it ends with the first instant of the next"


def test_a_batch_is_a_run_of_each_of_its_days() -> None:
    manager = InMemoryManager(dag_spec("flights", "one", batchable=True))
    manager.backfill("flights", days("2023-12-28", 14), batch=7)
    manager.drain()
    december, january = (calendar(manager.store, "flights", "UTC", year) for year in (2023, 2024))
    assert list(december) == [f"2023-12-{day}" for day in range(28, 32)]
    assert list(january) == [f"2024-01-{day:02}" for day in range(1, 11)]
    assert {(one["runs"], one["state"]) for one in (december | january).values()} == {(1, "success")}
    ids = [run["run_id"] for run in runs_of_day(manager.store, "flights", "UTC", datetime(2024, 1, 5, tzinfo=UTC))]
    assert ids == ["backfill__2024-01-04T00:00:00Z"]
    assert runs_of_day(manager.store, "flights", "UTC", datetime(2024, 1, 11, tzinfo=UTC)) == []


def test_a_day_on_which_nothing_has_ended_has_no_duration() -> None:
    manager = InMemoryManager(FLIGHTS, script=lambda _: None)
    manager.backfill("flights", days("2023-12-01", 1))
    manager.drain()
    assert calendar(manager.store, "flights", "UTC", 2023)["2023-12-01"]["duration_s"] is None


def test_the_rows_that_a_days_runs_wrote_are_summed_over_their_tasks() -> None:
    manager = InMemoryManager(
        FLIGHTS, script=lambda launch: Succeeded(rows_written=100 if launch.run.ordinal != 2 else None)
    )
    manager.backfill("flights", days("2023-12-01", 3))
    manager.drain()
    tasks = len(FLIGHTS.work)
    assert rows_by_day(manager.store, "flights", "UTC", 2023) == {"2023-12-01": 100 * tasks, "2023-12-03": 100 * tasks}
    assert rows_by_day(manager.store, "flights", "UTC", 1999) == {}


def test_the_years_that_have_runs_newest_first() -> None:
    manager = InMemoryManager(FLIGHTS)
    manager.backfill("flights", [*days("2021-06-01", 1), *days("2023-12-31", 1)])
    manager.drain()
    assert years(manager.store, "flights", "UTC") == [2023, 2022, 2021]
    assert years(manager.store, "flights", "Asia/Tokyo") == [2023, 2022, 2021]
    assert years(InMemoryManager(FLIGHTS).store, "flights", "UTC") == []
    assert calendar(manager.store, "flights", "UTC", 1999) == {}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_runs_at_the_ends_of_the_calendar_are_in_their_year_or_are_not_shown(zone: str) -> None:
    """The command line and the API refuse such dates; a request that is written by hand may have them."""
    manager = InMemoryManager(FLIGHTS)
    for date in ("9999-12-30T12:00:00Z", "0024-01-05T12:00:00Z"):
        accepted(manager, "dag.trigger", dag_id="flights", logical_date=date, conf={}, allow_future=True)
    manager.drain()
    shown = years(manager.store, "flights", zone)
    assert (shown[0], shown[-1]) == (9999, 100)
    assert list(calendar(manager.store, "flights", zone, 9999)) == ["9999-12-30"]
    page = browser_of(manager.store, manager.clock).get("/dags/flights/calendar?year=9999")
    assert page.status_code == 200 and "1 day with runs" in page.text


def test_a_batch_that_reaches_into_another_year_has_days_in_both() -> None:
    manager = InMemoryManager(dag_spec("flights", "clean", batchable=True))
    manager.backfill("flights", days("2023-12-20", 20), batch=20)
    manager.drain()
    assert years(manager.store, "flights", "UTC") == [2024, 2023]
    assert len(calendar(manager.store, "flights", "UTC", 2024)) == 8
    manager.backfill("flights", days("2024-01-09", 2), batch=2)
    manager.backfill("flights", days("2024-12-31", 1))
    manager.drain()
    assert years(manager.store, "flights", "UTC") == [2024, 2023]


def test_the_weeks_of_a_year_begin_on_monday() -> None:
    weeks = weeks_of(2024)  # 1 January 2024 was a Monday
    assert (len(weeks), str(weeks[0][0]), weeks[-1][2:]) == (53, "2024-01-01", [None] * 5)


# -- spans of a run ---------------------------------------------------------------------------------------------------


def test_every_try_of_a_run_has_its_span() -> None:
    clock, tries = FakeClock(), []

    def script(launch: TaskLaunch) -> Outcome:
        tries.append(launch)
        clock.advance(seconds=10)
        return Failed("once more") if len(tries) == 1 else Succeeded()

    manager = InMemoryManager(FLIGHTS, script=script, clock=clock)
    manager.backfill("flights", days("2023-12-01", 1))
    manager.drain()
    found = spans_of_run(manager.store, find_run(manager.store, "latest"), FLIGHTS, clock.now())
    assert [(row["task_id"], row["state"], [s["state"] for s in row["spans"]]) for row in found] == [
        ("clean", "success", ["failed", "success"]), ("delays", "success", ["success"]),
    ]  # fmt: skip
    assert [span["try_number"] for span in found[0]["spans"]] == [1, 2]
    assert not any(span["is_live"] for row in found for span in row["spans"])


def test_what_runs_has_a_span_up_to_now() -> None:
    manager = InMemoryManager(FLIGHTS, script=lambda _: None)
    manager.backfill("flights", days("2023-12-01", 1))
    manager.drain()
    manager.clock.advance(seconds=42)
    clean, delays = spans_of_run(manager.store, find_run(manager.store, "latest"), FLIGHTS, manager.clock.now())
    (live,) = [span for span in clean["spans"] if span["is_live"]]
    assert (live["state"], live["to"]) == ("running", "2024-01-01T00:00:42Z")
    assert (delays["state"], delays["spans"]) == ("none", [])


def test_spans_without_a_definition_are_by_name() -> None:
    manager = played(n=1)
    found = spans_of_run(manager.store, find_run(manager.store, "latest"), None, manager.clock.now())
    assert [row["task_id"] for row in found] == ["clean", "delays"]


# -- pools, terms, log ------------------------------------------------------------------------------------------------


def test_tasks_that_may_start_are_counted_by_the_pool_they_wait_for() -> None:
    own = dag_spec("own", "one", each={"one": {"pool": "heavy"}})
    closed = dag_spec("closed", "one", each={"one": {"pool": "scheduled"}})
    manager = InMemoryManager(FLIGHTS, own, closed, script=lambda _: None, slots=1)
    for dag_id in ("flights", "own", "closed"):
        manager.backfill(dag_id, days("2023-12-01", 9))
    manager.drain()
    waiting = waiting_by_pool(manager.store)
    ready = manager.store.count("task_instance", ("state",))[("scheduled",)]
    assert ready > 0
    assert sum(waiting.values()) == ready
    assert "scheduled" not in waiting  # closed to a backfill's tasks
    assert waiting_by_pool(InMemoryManager(FLIGHTS).store) == {}


def test_every_term_is_listed_and_one_leads() -> None:
    manager = InMemoryManager(FLIGHTS)
    manager.crash()
    lease = manager.store.lease()
    assert lease is not None
    found = list_terms(manager.store, lease.heartbeat_at)
    assert [(one["term"], one["leads"]) for one in found] == [(2, True), (1, False)]
    assert not any(one["leads"] for one in list_terms(manager.store, lease.heartbeat_at + timedelta(hours=1)))


def test_the_last_answers_newest_first() -> None:
    manager = InMemoryManager(FLIGHTS)
    for kind in ("dag.unpause", "dag.pause"):
        manager.ask(kind, dag_id="flights")
        manager.clock.advance(seconds=1)
        manager.drain()
    assert [one["kind"] for one in list_responses(manager.store)] == ["dag.pause", "dag.unpause"]
    assert len(list_responses(manager.store, 1)) == 1


def test_the_end_of_a_log_and_whether_there_is_more() -> None:
    manager = played(n=1)
    run = find_run(manager.store, "latest")
    put(manager, *(
        TaskLog(
            dag_id="flights", run_id=run.run_id, task_id="clean", launch=launch, try_number=launch, line=n, at=NOON,
            level="INFO", message=f"{launch}.{n}", run_seq=run.run_seq,
        )
        for launch in (1, 2) for n in (1, 2, 3)
    ))  # fmt: skip
    lines, more = log_tail(manager.store, run, "clean", limit=4)
    assert ([one["message"] for one in lines], more) == (["1.3", "2.1", "2.2", "2.3"], True)
    lines, more = log_tail(manager.store, run, "clean", try_number=1, limit=4)
    assert ([one["message"] for one in lines], more) == (["1.1", "1.2", "1.3"], False)
    assert log_tail(manager.store, run, "delays") == ([], False)
