"""What changes in the state appears by itself: within two seconds, without a reload."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from browser_stage import Living, PassingClock, import_problem, living, put, served
from web import Person, expect

from backfill_manager.clock import SystemClock, parse_instant
from backfill_manager.execution.outcome import Succeeded
from backfill_manager.model.records import TaskLog
from backfill_manager.testing import FakeClock, Playground, dag_spec, days

Somebody = Callable[..., Person]
SOON_MS = 5_000  # it must be two seconds; a machine that does much else at once may take longer, and is told


@pytest.fixture
def ground() -> Playground:
    spec = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
    return Playground(spec, script=lambda _: None, clock=FakeClock())


@pytest.fixture
def url(ground: Playground, stage: ExitStack) -> str:
    return stage.enter_context(served(ground.store, PassingClock(ground.clock)))


@pytest.fixture
def manager(ground: Playground, stage: ExitStack) -> Living:
    return stage.enter_context(living(ground))


@pytest.mark.parametrize(
    ("there", "place"),
    [
        ("/dags", "#dags"), ("/dags/flights", "#grid td"), ("/runs/flights/{run}", "main"),
        ("/backfills", "#backfills"), ("/backfills/{backfill}", "#item-map"),
    ],
)  # fmt: skip
def test_a_change_appears_within_two_seconds(
    somebody: Somebody, url: str, manager: Living, there: str, place: str
) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    run = "backfill__2013-01-01T00:00:00Z"
    ada, clock = somebody(url), SystemClock()
    manager.do(lambda it: it.drain())
    page = ada.goes(there.format(backfill=backfill, run=run))
    done = page.locator(f"{place} .s-success")
    expect(done).to_have_count(0)
    ada.stays()

    begun = clock.monotonic()
    manager.let_all_succeed()
    expect(done).not_to_have_count(0, timeout=SOON_MS)
    print(f"\n{there}: shown after {clock.monotonic() - begun:.2f} s")
    assert ada.stayed


def test_a_change_leaves_focus_and_place_and_what_was_opened(somebody: Somebody, url: str, manager: Living) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 40), max_active_runs=1))
    ada = somebody(url)
    page = ada.goes(f"/backfills/{backfill}")
    page.get_by_text("The map as a table").click()
    place = page.locator("#items-title")
    place.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    theme = page.get_by_role("button", name="Theme:")
    theme.focus()
    manager.let_all_succeed()
    expect(page.get_by_text("40 of 40 items done")).to_be_visible()
    expect(page.locator("#map-as-table")).to_have_attribute("open", "")
    expect(theme).to_be_focused()
    assert page.evaluate("scrollY") == before


def test_a_manager_that_goes_and_a_file_that_breaks_are_told_on_every_page(
    somebody: Somebody, url: str, ground: Playground
) -> None:
    ada = somebody(url)
    ada.page.clock.install()
    page = ada.goes("/pools")
    light = page.locator("#manager-light")
    expect(light).to_contain_text("manager leads")
    ada.stays()
    put(ground, import_problem())
    ground.leader.resign(ground.clock.now())
    page.clock.fast_forward(6_000)  # it is looked at every five seconds
    expect(page.get_by_role("status").filter(has_text="No manager leads.")).to_be_visible()
    expect(page.get_by_role("link", name="Import errors")).to_contain_text("1")
    assert ada.stayed


def test_a_log_goes_on_while_it_is_read(somebody: Somebody, url: str, manager: Living, ground: Playground) -> None:
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 1)))
    manager.do(lambda it: it.drain())
    (ti,) = ground.tasks("flights", "clean")
    ada = somebody(url)
    page = ada.goes(f"/runs/flights/{ti.run_id}/clean")
    log = page.get_by_role("log")
    expect(page.get_by_text("Nothing logged yet")).to_be_visible()
    for n in range(1, 121):
        line = TaskLog(
            dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=1, try_number=1, line=n, level="INFO",
            at=parse_instant("2024-01-01T00:00:00Z"), message=f"file {n} of 120", run_seq=ti.run_seq,
        )  # fmt: skip
        manager.do(lambda it, line=line: put(it, line))
    last = log.get_by_text("file 120 of 120", exact=True)
    expect(last).to_be_attached(timeout=SOON_MS)
    log.evaluate("one => one.scrollIntoView({block: 'end'})")
    expect(last).to_be_in_viewport()  # it has followed to its end
    manager.do(lambda it: it.finish(next(iter(it.running)), Succeeded()))
    expect(page.locator(".title-line .state")).to_have_text("success")
