"""Tasks that wait for what no run of ours writes: what the tick looks for, what it makes of what was seen, and who looks."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from support.page_client import browser_of
from support.scenarios import accepted, clear, next_due

from backfill_manager import condition, file, rows
from backfill_manager.clock import UTC, SystemClock
from backfill_manager.execution import messages as m
from backfill_manager.execution.inputs.wait_checks import Found
from backfill_manager.manager.decisions.task_readiness import MAX_SHOWN
from backfill_manager.manager.services.wait_checker import WaitChecker, WaitCheckers, WaitsChecked
from backfill_manager.model import states as s
from backfill_manager.planning.data.wait_conditions import MAX_OPEN, Seen, WaitCheck
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

DAY = days("2024-01-02", 1)
ORDERS = rows("partner.orders", time_column="at")
SUCCESS = file("/in/{interval_start:%Y-%m-%d}/_SUCCESS")
RATES = condition("SELECT count(*) > 0 FROM rates WHERE day = :interval_start")
NOON = datetime(2024, 1, 3, 12, 3, tzinfo=UTC)


class Ground(InMemoryManager):
    """One DAG, whose task waits; what is seen is the test's."""

    def __init__(self, *waits_for: Any, schedule: str = "@daily", timezone: str = "UTC", **settings: Any) -> None:
        each = {"clean": {"waits_for": waits_for, **settings}}
        spec = dag_spec("silver", "clean", schedule=schedule, timezone=timezone, batchable=True, each=each)
        super().__init__(spec, script=lambda _: None, clock=FakeClock())

    def see(self, *looks: WaitCheck, problem: str | None = None) -> None:
        self.events.put(WaitsChecked({look: Seen(problem is None, problem, NOON) for look in looks}))
        self.drain()

    def see_missing(self, *looks: WaitCheck) -> None:
        self.events.put(WaitsChecked({look: Seen(False, None, NOON) for look in looks}))
        self.drain()

    @property
    def looks(self) -> list[WaitCheck]:
        return self.state.open_wait_checks

    @property
    def reason(self) -> str | None:
        return self.runs("silver")[0].reason


def test_a_run_waits_for_all_of_them_and_takes_no_slot() -> None:
    manager = Ground(ORDERS, SUCCESS, RATES)
    manager.backfill("silver", DAY)
    manager.drain()
    orders, success, rates = manager.looks
    assert (orders.wait, orders.start, orders.end) == (ORDERS, *DAY[0])
    assert (success.path, success.start) == ("/in/2024-01-02/_SUCCESS", None)
    assert (rates.wait, rates.start) == (RATES, DAY[0][0])
    assert manager.reason == f"waits for partner.orders, /in/2024-01-02/_SUCCESS, {rates.label}"
    manager.see(orders, rates)
    assert (manager.reason, manager.looks, manager.running) == ("waits for /in/2024-01-02/_SUCCESS", [success], {})
    assert not manager.tick(), "waiting changes nothing"
    manager.see(success)
    assert (len(manager.running), manager.reason, manager.looks, manager.state.wait_checks_seen) == (1, None, [], {})


def test_tables_of_ours_and_of_others_together() -> None:
    manager = Ground("bronze.events", SUCCESS)
    manager.add_dag(dag_spec("bronze", "load"))
    manager.backfill("silver", DAY)
    manager.drain()
    manager.see(*manager.looks)
    assert manager.reason == "waits for bronze.events" and not manager.running
    manager.backfill("bronze", DAY)
    manager.drain()
    (key,) = manager.running
    manager.finish(key, m.Succeeded(), tables=[m.AccessedTable("write", "bronze.events", None)])
    manager.drain()
    assert [dag_id for dag_id, *_ in manager.running] == ["silver"]


def test_a_look_that_fails_is_seen_at_the_run_and_the_wait_goes_on() -> None:
    manager = Ground(ORDERS, wait_limit=3600.0)
    manager.backfill("silver", DAY)
    manager.drain()
    (look,) = manager.looks
    manager.see(look, problem="table not found")
    assert manager.reason == "waits for partner.orders: table not found, looked at 2024-01-03 12:03 UTC"
    assert manager.looks == [look]
    manager.clock.advance(seconds=3600)
    manager.drain()
    (ti,) = manager.tasks("silver")
    assert (ti.state, manager.looks) == (s.FAILED, [])
    assert ti.error == "waited 1 h for partner.orders: table not found, looked at 2024-01-03 12:03 UTC"


def test_a_batch_waits_for_each_of_its_intervals() -> None:
    manager = Ground(ORDERS, SUCCESS)
    manager.backfill("silver", days("2024-01-01", 3), batch=3)
    manager.drain()
    paths = [look.path for look in manager.looks if look.path]
    assert paths == [f"/in/2024-01-0{day}/_SUCCESS" for day in (1, 2, 3)]
    of_rows = [look for look in manager.looks if not look.path]
    assert [(look.start, look.end) for look in of_rows] == days("2024-01-01", 3)
    manager.see_missing(*manager.looks)
    manager.see(*of_rows, *(look for look in manager.looks if look.path == paths[0]))
    assert manager.reason == f"waits for {paths[1]}"
    manager.see(*manager.looks)
    assert len(manager.running) == 1


def test_hours_of_a_day_share_its_file_and_paths_are_of_the_zone() -> None:
    manager = Ground(SUCCESS, schedule="@hourly", timezone="America/New_York")
    start = datetime(2024, 1, 2, 3, tzinfo=UTC)  # 22:00 of the day before
    hours = [(start + timedelta(hours=n), start + timedelta(hours=n + 1)) for n in range(4)]
    manager.backfill("silver", hours, max_active_runs=4)
    manager.drain()
    assert [look.path for look in manager.looks] == ["/in/2024-01-01/_SUCCESS", "/in/2024-01-02/_SUCCESS"]


def spans(manager: Ground) -> list[tuple[int, int]]:
    """The first day of each run, and how many it takes."""
    runs = [run for run in manager.runs("silver") if run.logical_date is not None]
    return [(run.logical_date.day, run.items) for run in runs]  # type: ignore[union-attr]


def days_of(manager: Ground, *numbers: int) -> list[WaitCheck]:
    return [look for look in manager.looks if look.path and int(look.path[12:14]) in numbers]


def test_a_day_whose_file_is_missing_holds_back_no_other_of_a_batch() -> None:
    manager = Ground(SUCCESS)
    backfill = manager.backfill("silver", days("2024-01-01", 8), batch=8, max_active_runs=8)
    manager.drain()
    assert spans(manager) == [] and len(manager.looks) == 8, "first somebody looks"
    manager.see(*days_of(manager, 1, 2, 3, 4, 5))
    assert spans(manager) == []
    missing = days_of(manager, 6)
    manager.see_missing(*missing)
    manager.see(*days_of(manager, 7, 8))
    assert spans(manager) == [(1, 5), (6, 1), (7, 2)]
    for key in list(manager.running):
        manager.finish(key, m.Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 7, s.RUNNING: 1}
    manager.see(*missing)
    assert len(manager.running) == 1


def test_a_batch_that_nobody_looks_for_is_made_after_five_minutes() -> None:
    manager = Ground(SUCCESS, RATES)
    manager.backfill("silver", days("2024-01-01", 8), batch=8)
    manager.drain()
    manager.see(*days_of(manager, *range(9)))
    began = manager.clock.now()
    assert spans(manager) == [] and next_due(manager) == began + timedelta(minutes=5), (
        "the condition has not been asked"
    )
    manager.clock.advance(minutes=5)
    manager.drain()
    assert spans(manager) == [(1, 8)] and not manager.running and next_due(manager) is None


def test_the_five_minutes_count_anew_after_a_pause() -> None:
    manager = Ground(SUCCESS)
    backfill = manager.backfill("silver", days("2024-01-01", 8), batch=8)
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=backfill)
    assert (manager.looks, next_due(manager)) == ([], None)
    manager.clock.advance(hours=1)
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert spans(manager) == [] and next_due(manager) == manager.clock.now() + timedelta(minutes=5)
    manager.see(*manager.looks)
    assert spans(manager) == [(1, 8)]


def test_of_more_missing_days_than_are_looked_for_at_a_time_those_are_joined_that_were_looked_for() -> None:
    n = MAX_OPEN + 20
    manager = Ground(SUCCESS)
    manager.backfill("silver", days("2024-01-01", n), batch=n, max_active_runs=2)
    manager.drain()
    manager.see_missing(*manager.looks)
    manager.see_missing(*manager.looks)
    assert [run.items for run in manager.runs("silver")] == [MAX_OPEN, 20]


def test_nobody_looks_for_days_that_are_there_already() -> None:
    manager = Ground(SUCCESS)
    manager.backfill("silver", days("2024-01-01", 6), batch=6, mark_success=True)
    backfill = manager.backfill("silver", days("2024-01-01", 8), batch=8)
    manager.drain()
    assert manager.states(backfill) == {s.SKIPPED: 6, s.PENDING: 2}
    assert [look.path for look in manager.looks] == ["/in/2024-01-07/_SUCCESS", "/in/2024-01-08/_SUCCESS"]


def test_nobody_looks_for_days_that_are_only_marked() -> None:
    manager = Ground(SUCCESS)
    backfill = manager.backfill("silver", days("2024-01-01", 8), batch=8, mark_success=True)
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 8} and manager.looks == []


def test_another_leader_looks_anew_and_a_clear_too() -> None:
    manager = Ground(SUCCESS, ORDERS)
    manager.backfill("silver", DAY)
    manager.drain()
    manager.see(*manager.looks[:1])
    manager.crash()
    manager.drain()
    assert (len(manager.looks), manager.reason) == (2, "waits for /in/2024-01-02/_SUCCESS, partner.orders")
    manager.see(*manager.looks)
    (key,) = manager.running
    manager.finish(key, m.Failed("no", retryable=False))
    manager.drain()
    accepted(manager, "tasks.clear", **clear("silver", run_ids=[manager.runs("silver")[0].run_id]))
    manager.drain()
    assert len(manager.looks) == 2 and not manager.running


def test_a_limit_that_passed_while_nobody_led_leaves_time_for_a_look() -> None:
    manager = Ground(SUCCESS, wait_limit=3600.0)
    manager.backfill("silver", DAY)
    manager.drain()
    manager.clock.advance(seconds=7200)
    manager.crash()
    manager.drain()
    assert (manager.tasks("silver")[0].state, len(manager.looks)) == (s.NONE, 1), "nobody has looked yet"
    manager.see(*manager.looks)
    assert len(manager.running) == 1

    manager = Ground(SUCCESS, wait_limit=3600.0)
    manager.backfill("silver", DAY)
    manager.drain()
    manager.clock.advance(seconds=7200)
    manager.crash()
    manager.drain()
    manager.clock.advance(seconds=300)
    manager.drain()
    (clean,) = manager.tasks("silver")
    assert (clean.state, clean.error) == (s.FAILED, "waited 1 h for /in/2024-01-02/_SUCCESS")


def test_halves_of_a_batch_whose_wait_has_ended_end_with_the_first_look_at_what_is_missing() -> None:
    manager = Ground(SUCCESS, wait_limit=3600.0)
    backfill = manager.backfill("silver", days("2024-01-01", 8), batch=8)
    manager.drain()
    missing = "/in/2024-01-06/_SUCCESS"
    manager.see_missing(*manager.looks)
    manager.see(*(look for look in manager.looks if look.path != missing))
    assert [look.path for look in manager.looks] == [missing]
    manager.clock.advance(seconds=3600)
    manager.drain()
    for _ in range(6):  # more often than halves have halves
        there = [look for look in manager.looks if look.path != missing]
        manager.see(*there)
        manager.see(*(look for look in manager.looks if look.path == missing), problem="not found")
        for key in list(manager.running):
            manager.finish(key, m.Succeeded())
        manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 7, s.FAILED: 1}
    (failed,) = (item for item in manager.items(backfill) if item.state == s.FAILED)
    assert failed.interval_start.day == 6


def test_many_runs_say_in_bounded_text_what_they_wait_for() -> None:
    manager = Ground(*(file(f"/in/{n}/{'x' * 400}") for n in range(30)))
    manager.backfill("silver", DAY)
    manager.drain()
    assert manager.reason is not None and len(manager.reason) < 4000 and manager.reason.endswith(" and 20 more")
    exactly = Ground(*(file(f"/in/{n}") for n in range(MAX_SHOWN)))
    exactly.backfill("silver", DAY)
    exactly.drain()
    assert exactly.reason == f"waits for {', '.join(f'/in/{n}' for n in range(MAX_SHOWN))}"


def test_of_a_long_batch_only_the_next_intervals_are_looked_for() -> None:
    n = 2 * MAX_OPEN
    manager = Ground(SUCCESS)
    manager.backfill("silver", days("2023-01-01", n), batch=n)
    manager.drain()
    assert len(manager.looks) == MAX_OPEN and manager.looks[0].path == "/in/2023-01-01/_SUCCESS"
    manager.see(*manager.looks[:50])
    assert len(manager.looks) == MAX_OPEN and manager.looks[0].path == "/in/2023-02-20/_SUCCESS"


def test_the_timeline_says_what_a_run_waits_for() -> None:
    manager = Ground(SUCCESS)
    manager.backfill("silver", DAY)
    manager.drain()
    text = browser_of(manager.store, manager.clock).get("/dags/silver/timeline").text
    assert "waits for /in/2024-01-02/_SUCCESS" in text


# -- wait_checkers ----------------------------------------------------------------------------------------------------------
class Storage:
    """A look that the test answers."""

    def __init__(self, clock: FakeClock, takes_s: float = 0.0) -> None:
        self.there: set[WaitCheck] = set()
        self.looked: list[WaitCheck] = []
        self.error: Exception | None = None
        self._clock, self._takes_s = clock, takes_s

    def __call__(self, looks: Sequence[WaitCheck]) -> Found:
        self.looked += looks
        self._clock.advance(seconds=self._takes_s)
        if self.error:
            raise self.error
        return {look: look in self.there for look in looks}


def checker(takes_s: float = 0.0) -> tuple[WaitChecker, Storage, FakeClock, list[WaitsChecked]]:
    clock, reports = FakeClock(), list[WaitsChecked]()
    storage = Storage(clock, takes_s)
    return WaitChecker("waits", clock, 30.0, reports.append, storage, lambda look: look), storage, clock, reports


def test_a_checker_reports_changes_alone_and_looks_in_intervals() -> None:
    subject, storage, clock, reports = checker()
    one, other = WaitCheck(ORDERS, *DAY[0]), WaitCheck(RATES, *DAY[0])
    assert subject.run_once() is None, "nothing is wanted"
    subject.want([one, other])
    assert subject.run_once() == 30.0
    assert [seen.is_there for seen in reports[-1].seen.values()] == [False] and len(reports) == 2
    assert subject.run_once() == 30.0 and len(storage.looked) == 2, "not before its time"
    clock.advance(seconds=30)
    subject.run_once()
    assert len(storage.looked) == 4 and len(reports) == 2, "nothing has changed"
    storage.there.add(one)
    clock.advance(seconds=30)
    subject.run_once()
    assert {look: seen.is_there for look, seen in reports[-1].seen.items()} == {one: True}


def test_what_is_wanted_again_is_looked_for_and_reported_again() -> None:
    subject, storage, _, reports = checker()
    look = WaitCheck(ORDERS, *DAY[0])
    storage.there.add(look)
    for _ in range(2):
        subject.want([look])
        subject.run_once()
        subject.want([])
    assert len(reports) == 2


def test_a_look_takes_a_tenth_of_the_time_at_most() -> None:
    subject, storage, clock, _ = checker(takes_s=20.0)
    subject.want([WaitCheck(ORDERS, *DAY[0])])
    assert subject.run_once() == 180.0
    clock.advance(seconds=179)
    subject.run_once()
    assert len(storage.looked) == 1


def test_a_look_that_raises_is_what_was_seen_and_the_next_one_may_find() -> None:
    subject, storage, clock, reports = checker()
    look = WaitCheck(ORDERS, *DAY[0])
    storage.error = OSError("no permission")
    subject.want([look])
    subject.run_once()
    assert reports[-1].seen[look] == Seen(False, "OSError: no permission", clock.now())
    storage.error = None
    storage.there.add(look)
    clock.advance(seconds=30)
    subject.run_once()
    assert reports[-1].seen[look].is_there


def test_each_kind_is_looked_for_in_a_thread_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    reports: queue.SimpleQueue[WaitsChecked] = queue.SimpleQueue()
    gone: list[str] = []
    success, reached, orders = looks = [
        WaitCheck(file("/x"), path=str(tmp_path / "_SUCCESS")), WaitCheck(condition("SELECT :interval_start < now()"), *DAY[0]),
        WaitCheck(rows(str(tmp_path / "orders"), time_column="at"), *DAY[0]),
    ]  # fmt: skip
    wait_checkers = WaitCheckers(spark, SystemClock(), 0.05, on_seen=reports.put, on_spark_gone=gone.append)

    def next_reports(n: int) -> dict[WaitCheck, Seen]:
        return {look: seen for _ in range(n) for look, seen in reports.get(timeout=60).seen.items()}

    for service in wait_checkers.services:
        service.start()
    try:
        wait_checkers.want(looks)
        first = next_reports(3)
        assert [first[look].is_there for look in looks] == [False, True, False]
        assert first[orders].problem == "table not found"
        wait_checkers.want([success, orders])
        (tmp_path / "_SUCCESS").touch()
        spark.sql("SELECT TIMESTAMP'2024-01-02 10:00:00' AS at").write.format("delta").save(str(tmp_path / "orders"))
        then = next_reports(2)
        while not (then[orders].is_there):  # it may have been seen while it was made
            then |= next_reports(1)
        assert then[success].is_there and reached not in then
    finally:
        for service in wait_checkers.services:
            service.stop()
    assert not gone
