"""Backfills in a browser: created, paused, cancelled, edited by two users at once, and used by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.browser_server import Living
from support.web_user import User, expect

from backfill_manager.clock import UTC, parse_instant
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import Backfill, Request
from backfill_manager.store.base import Condition
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]
NOON = parse_instant("2013-02-01T12:00:00Z")


@pytest.fixture
def in_memory() -> InMemoryManager:
    """Tasks run until the test ends them."""
    spec = dag_spec(
        "flights", "clean", "delays", upstream={"delays": ["clean"]}, start_date=parse_instant("2013-01-01T00:00:00Z")
    )
    return InMemoryManager(spec, script=lambda _: None, clock=FakeClock(NOON.astimezone(UTC)))


def state_of(person: User) -> object:
    return person.page.locator(".title-line .state")


def test_a_backfill_is_paused_and_goes_on(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 6), max_active_runs=2))
    ada = new_user(url)
    page = ada.goes("/backfills")
    page.get_by_role("link", name="flights").click()
    expect(state_of(ada)).to_have_text("running")

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    expect(state_of(ada)).to_have_text("paused")
    ada.stays()
    while manager.finish("flights"):  # the two that ran end, and no third starts
        manager.do(lambda it: it.drain())
    expect(page.get_by_text("2 of 6 items done")).to_be_visible()
    assert in_memory.states(backfill) == {"success": 2, "pending": 4}
    assert ada.stayed

    page.get_by_role("button", name="Unpause").click()
    expect(state_of(ada)).to_have_text("running")
    ada.stays()
    manager.let_all_succeed()
    expect(state_of(ada)).to_have_text("success")
    expect(page.get_by_text("6 of 6 items done")).to_be_visible()
    assert ada.stayed


def test_a_backfill_is_cancelled(new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 6), max_active_runs=2))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    page.get_by_text("Cancel…").click()
    expect(page.get_by_text("2 are running")).to_be_visible()
    page.get_by_role("button", name="Cancel and stop running items").click()
    expect(state_of(ada)).to_have_text("cancelled")
    assert in_memory.states(backfill) == {"cancelled": 6}
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)


def test_what_failed_is_retried(new_user: NewUser, url: str, manager: Living) -> None:
    manager.do(lambda it: setattr(it, "script", lambda _: Failed("ValueError: no such day", retryable=False)))
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 3)))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    expect(state_of(ada)).to_have_text("failed")
    expect(page.get_by_role("heading", name="Reasons")).to_be_visible()
    manager.let_all_succeed()
    page.get_by_role("button", name="Retry failed items").click()
    expect(state_of(ada)).to_have_text("success")


def test_a_setting_is_changed_while_it_runs(new_user: NewUser, url: str, manager: Living) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 9), max_active_runs=2))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    running = page.locator("#backfill-progress .counts-line .s-running")
    expect(running).to_have_text("2 running")
    page.get_by_role("link", name="Settings").click()
    page.get_by_label("Max active runs").fill("5")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    expect(running).to_have_text("5 running")


def test_two_people_change_the_same_backfill(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 9), max_active_runs=2, priority=0))
    ada, ben = new_user(url), new_user(url)
    for one in (ada, ben):
        one.goes(f"/backfills/{backfill}/settings")
    ada.page.get_by_label("Priority").fill("7")
    ada.page.get_by_role("button", name="Save").click()
    expect(ada.page.get_by_role("status").filter(has_text="Done")).to_be_visible()

    # ben is shown while he types, and what he has typed stays
    ben.page.get_by_label("Priority").fill("3")
    expect(ben.page.get_by_text("changed these settings")).to_be_visible()
    expect(ben.page.get_by_label("Priority")).to_have_value("3")

    ben.allows.add(409)
    ben.page.get_by_role("button", name="Save").click()
    row = ben.page.get_by_role("alert").get_by_role("row").filter(has_text="Priority")
    expect(row.get_by_role("cell")).to_have_text(["Priority", "0", "7", "3"])
    assert in_memory.row(backfill).priority == 7
    assert ben.barriers() == []

    ben.page.get_by_role("button", name="Save").click()
    expect(ben.page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    assert in_memory.row(backfill).priority == 3


def press_until(person: User, key: str, name: str, most: int = 80) -> None:
    """Presses Tab until the focused element has this name."""
    page = person.page
    for _ in range(most):
        page.keyboard.press(key)
        shown = page.evaluate(
            """() => {
              const one = document.activeElement;
              return (one.labels?.[0]?.textContent || one.getAttribute("aria-label") || one.textContent).trim();
            }"""
        )
        if shown == name:
            box = page.locator(":focus").bounding_box()
            assert box and box["width"] > 1, f"{name} has the focus and can't be seen"
            return
    raise AssertionError(f"{key} does not lead to {name!r}")


def test_a_backfill_is_asked_for_with_the_keyboard_alone(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    in_memory.leader.resign(in_memory.clock.now())  # nobody plans: what is asked for waits
    ada = new_user(url)
    page, keys = ada.goes("/dags"), ada.page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    press_until(ada, "Tab", "flights")
    keys.press("Enter")
    expect(page).to_have_url(re.compile("/dags/flights"))
    press_until(ada, "Tab", "New backfill")
    keys.press("Enter")
    expect(page).to_have_url(re.compile("/backfills/new"))
    press_until(ada, "Tab", "7 days")
    keys.press("Enter")
    expect(page.get_by_label("From", exact=True)).to_have_value("2013-01-25")
    expect(page.locator("#dry-run")).to_contain_text("No manager running")
    press_until(ada, "Tab", "Create backfill")
    keys.press("Enter")
    expect(state_of(ada)).to_have_text("waiting for the manager")
    (submitted,) = in_memory.store.read(Request, [Condition("kind", "=", "backfill.create")])
    assert '"start_date":"2013-01-25' in submitted.payload_json.replace(" ", "")


def test_a_range_that_is_wrong_is_reported_at_its_field(new_user: NewUser, url: str, manager: Living) -> None:
    ada = new_user(url)
    page = ada.goes("/backfills/new?dag=flights&start_date=2013-01-05&end_date=2013-01-01")
    ada.allows.add(422)
    page.get_by_role("button", name="Create backfill").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert manager.in_memory.store.read(Backfill) == []
    assert ada.barriers() == []


def test_the_map_is_walked_with_arrow_keys(new_user: NewUser, url: str, manager: Living) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 31), max_active_runs=3))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    cells = page.locator("#item-map a")
    expect(cells).to_have_count(31)
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#item-map a:focus")).to_have_accessible_name("2013-01-03, item 3: running")
    page.keyboard.press("End")
    expect(page.locator("#item-map a:focus")).to_have_accessible_name("2013-01-31, item 31: pending")
    expect(page.locator("#item-map-description")).to_have_text("2013-01-31, item 31: pending")

    # a change repaints cells; the one in focus stays it
    manager.do(lambda it: setattr(it, "script", lambda _: Succeeded()))
    manager.finish("flights")
    expect(page.locator("#item-map a:focus")).to_have_accessible_name("2013-01-31, item 31: success")


def test_who_goes_back_finds_the_filter_as_the_address_has_it(new_user: NewUser, url: str, manager: Living) -> None:
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 1)))
    ada = new_user(url)
    page = ada.goes("/backfills?state=cancelled")
    chosen = page.get_by_role("main").get_by_label("DAG")
    chosen.select_option("flights")
    expect(page).to_have_url(f"{url}/backfills?dag=flights&state=cancelled")
    page.go_back()
    expect(page).to_have_url(f"{url}/backfills?state=cancelled")
    expect(chosen).to_have_value("")
    page.go_forward()
    expect(chosen).to_have_value("flights")


def test_a_list_is_gone_through_with_arrow_keys_and_enter_chooses(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    for n in (2, 3):
        in_memory.add_dag(dag_spec(f"flights_{n}", "only"))
    in_memory.drain()
    ada = new_user(url)
    page = ada.goes("/backfills/new?dag=flights")
    chosen = page.get_by_label("DAG", exact=True)
    chosen.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(chosen).to_have_value("flights_3")
    expect(page.get_by_role("heading", name="New backfill of flights", exact=True)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New backfill of flights_3")).to_be_visible()
    expect(chosen).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")  # who leaves it has chosen, too
    expect(page.get_by_role("heading", name="New backfill of flights_2")).to_be_visible()


def test_filters_are_set_one_after_the_other_with_the_keyboard(new_user: NewUser, url: str, manager: Living) -> None:
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 1)))
    ada = new_user(url)
    page = ada.goes("/backfills")
    page.get_by_role("checkbox", name="Failed").focus()
    page.keyboard.press("Space")
    expect(page).to_have_url(re.compile("state=failed$"))
    expect(page.get_by_role("checkbox", name="Failed")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page).to_have_url(re.compile("state=failed&state=success$"))
