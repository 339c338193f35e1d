"""Items, days and runs are selected by a rectangle, keys, checkboxes and taps; and each action arrives as its request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from typing import Any

import pytest
from support.browser_server import Living, PassingClock, living, served, with_tokens
from support.web_user import PHONE, User, expect

from backfill_manager.clock import UTC, parse_instant
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import DagRun, Request
from backfill_manager.store.base import Condition
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]
NOON = parse_instant("2013-03-01T12:00:00Z").astimezone(UTC)
FAILING = {3, 4, 9, 21}


def some_fail(launch: TaskLaunch) -> Outcome:
    at = launch.run.logical_date
    return Failed("boom", retryable=False) if at is not None and at.day in FAILING else Succeeded()


@pytest.fixture
def in_memory() -> InMemoryManager:
    """A backfill of January, of which four days have failed."""
    spec = dag_spec(
        "flights", "clean", "delays", upstream={"delays": ["clean"]}, start_date=parse_instant("2013-01-01T00:00:00Z")
    )
    return InMemoryManager(spec, script=some_fail, clock=FakeClock(NOON))


@pytest.fixture
def backfill(in_memory: InMemoryManager) -> str:
    made = in_memory.backfill("flights", days("2013-01-01", 31), max_active_runs=4)
    in_memory.drain()
    return made


def rectangle(person: User, first: Any, last: Any) -> None:
    """Draws from the centre of one cell to that of another."""
    for cell in (last, first):
        cell.scroll_into_view_if_needed()
    ends = [cell.bounding_box() for cell in (first, last)]
    (x, y), to = ((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in ends)
    mouse = person.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move((x + to[0]) / 2, (y + to[1]) / 2)
    mouse.move(*to)
    mouse.up()


def count_of(person: User) -> Any:
    return person.page.locator(".selection-count")


def cells(person: User) -> Any:
    return person.page.locator("#item-map a")


def payloads(in_memory: InMemoryManager, kind: str) -> list[dict[str, Any]]:
    rows = in_memory.store.read(Request, [Condition("kind", "=", kind)], order_by=["requested_at"])
    return [json.loads(row.payload_json) for row in rows]


def days_in(in_memory: InMemoryManager, state: str) -> list[int]:
    runs = in_memory.store.read(DagRun, order_by=["logical_date"])
    return [run.logical_date.day for run in runs if run.state == state and run.logical_date]


def selected(person: User) -> str:
    return str(person.page.locator('#selection [name="selected"]').input_value())


def test_a_rectangle_selects_on_the_map_and_another_adds_or_takes_away(
    new_user: NewUser, url: str, backfill: str
) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    expect(cells(ada)).to_have_count(31)
    expect(page.locator("#selection")).to_be_hidden()
    rectangle(ada, cells(ada).nth(1), cells(ada).nth(3))
    expect(count_of(ada)).to_have_text("3 items selected")
    expect(page).to_have_url(re.compile(f"/backfills/{backfill}$"))  # no cell was opened
    assert selected(ada) == "2-4"
    columns = page.evaluate(
        "() => new Set([...document.querySelectorAll('#item-map .cell')].map((one) => one.getAttribute('x'))).size"
    )
    rectangle(ada, cells(ada).nth(columns), cells(ada).nth(columns + 1))
    assert selected(ada) == f"2-4,{columns + 1}-{columns + 2}"
    rectangle(ada, cells(ada).nth(2), cells(ada).nth(3))  # begun on a selected cell
    assert selected(ada) == f"2,{columns + 1}-{columns + 2}"
    assert ada.barriers() == []
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    cells(ada).nth(4).click()  # a click opens, as ever
    expect(page).to_have_url(re.compile("/runs/"))


def test_the_keyboard_selects_on_the_map(new_user: NewUser, url: str, backfill: str) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    keys = page.keyboard
    cells(ada).first.focus()
    keys.press("ArrowRight")
    keys.press("Space")
    assert selected(ada) == "2"
    for _ in range(3):
        keys.press("Shift+ArrowRight")
    expect(count_of(ada)).to_have_text("4 items selected")
    keys.press("Shift+ArrowLeft")
    assert selected(ada) == "2-4"
    expect(page.locator("#selection-status")).to_have_text("3 items selected")
    expect(page.locator("#item-map a:focus")).to_have_accessible_description("selected")
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    keys.press("Space")
    assert selected(ada) == "2-4,6"
    keys.press("Space")
    assert selected(ada) == "2-4"
    keys.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()


def test_checkboxes_select_rows_over_pages_and_all_that_match(new_user: NewUser, url: str, backfill: str) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    page.get_by_label("Select item 5", exact=True).click()
    page.get_by_label("Select item 8", exact=True).click(modifiers=["Shift"])
    assert selected(ada) == "5-8"
    expect(page.locator("#item-map a.is-selected")).to_have_count(4)  # one selection for map and list
    page.locator("#items").get_by_role("link", name="Next").click()
    page.get_by_label("Select item 30", exact=True).click()
    expect(count_of(ada)).to_have_text("5 items selected")
    assert selected(ada) == "5-8,30"
    page.get_by_label("Select all items on this page").click()
    assert selected(ada) == "5-8,26-31"
    page.get_by_role("button", name="Deselect all").click()

    page.locator("#items").get_by_role("link", name="Failed").click()
    page.get_by_role("button", name="Select all 4").click()
    expect(count_of(ada)).to_have_text("4 items selected")
    assert selected(ada) == "3-4,9,21"
    assert ada.barriers() == []


def test_a_live_refresh_keeps_the_selection(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    in_memory.script = lambda _: None
    backfill = in_memory.backfill("flights", days("2013-01-01", 9), max_active_runs=2)
    in_memory.drain()
    with living(in_memory) as manager:
        ada = new_user(url)
        page = ada.goes(f"/backfills/{backfill}")
        rectangle(ada, cells(ada).nth(0), cells(ada).nth(2))
        page.get_by_label("Select item 7", exact=True).click()
        assert selected(ada) == "1-3,7"
        ada.stays()
        manager.let_all_succeed()
        expect(page.get_by_text("9 of 9 items done")).to_be_visible()
        expect(page.locator("#item-map .s-success.cell")).to_have_count(9)
        assert ada.stayed
        assert selected(ada) == "1-3,7"
        expect(page.locator("#item-map a.is-selected")).to_have_count(4)
        expect(page.locator("#items tr.is-selected")).to_have_count(4)
        expect(page.get_by_label("Select item 7", exact=True)).to_be_checked()
        expect(page.get_by_label("Select item 8", exact=True)).not_to_be_checked()


def test_chosen_failed_items_are_retried(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living
) -> None:
    manager.do(lambda it: setattr(it, "script", lambda _: Succeeded()))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    rectangle(ada, cells(ada).nth(1), cells(ada).nth(3))
    page.get_by_role("button", name="Retry failed…").click()
    expect(page.get_by_role("heading", name="Retry 2 failed items")).to_be_visible()
    expect(page.get_by_text("3 items selected")).to_be_visible()
    assert ada.barriers() == []
    page.get_by_role("button", name="Retry 2 items").click()
    expect(page.locator("#backfill-progress .counts-line .s-failed")).to_have_text("2 failed")
    assert [one["items"] for one in payloads(in_memory, "backfill.retry")] == [["2-4"]]
    assert days_in(in_memory, "failed")[-2:] == [9, 21]


def test_chosen_items_are_cleared_after_a_dry_run(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living
) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    rectangle(ada, cells(ada).nth(0), cells(ada).nth(1))
    page.get_by_role("button", name="Clear…").click()
    expect(page.get_by_role("heading", name="4 tasks of 2 runs")).to_be_visible()
    expect(page.get_by_text(f"2 items of backfill {backfill}: 1 to 2")).to_be_visible()
    assert ada.barriers() == []
    page.get_by_label("Tasks").fill("^delays$")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_role("button", name="Clear 2 tasks").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    (payload,) = payloads(in_memory, "tasks.clear")
    assert (payload["ask"]["backfill_id"], payload["ask"]["items"]) == (backfill, ["1-2"])
    assert payload["ask"]["tasks"] == "^delays$"


@pytest.mark.parametrize(("state", "label"), [("success", "Mark success…"), ("failed", "Mark failed…")])
def test_chosen_items_are_marked(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living, state: str, label: str
) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    rectangle(ada, cells(ada).nth(1), cells(ada).nth(3))
    page.get_by_role("button", name=label).click()
    n = 2 if state == "success" else 1
    runs = "2 runs" if n == 2 else "1 run"
    expect(page.get_by_role("heading", name=f"Mark {runs} {state}")).to_be_visible()
    assert ada.barriers() == []
    page.get_by_role("button", name=f"Mark {runs} {state}").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    (payload,) = payloads(in_memory, "runs.mark")
    assert (payload["backfill_id"], payload["items"], payload["state"]) == (backfill, ["2-4"], state)
    assert {2, 3, 4} <= set(days_in(in_memory, state))


def test_a_backfill_is_made_of_chosen_items(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living
) -> None:
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    rectangle(ada, cells(ada).nth(1), cells(ada).nth(3))
    page.get_by_role("button", name="New backfill…").click()
    expect(page.get_by_label("From", exact=True)).to_have_value("2013-01-02")
    expect(page.get_by_label("To", exact=True)).to_have_value("2013-01-04")
    page.go_back()
    page.get_by_label("Select item 9", exact=True).click()
    page.get_by_role("button", name="New backfill…").click()
    expect(page.get_by_role("radio", name="Dates The logical dates you list.")).to_be_checked()
    dates = "2013-01-02\n2013-01-03\n2013-01-04\n2013-01-09"
    expect(page.get_by_label("Logical dates", exact=True).or_(page.locator('[name="dates"]')).first).to_have_value(
        dates
    )
    page.get_by_role("button", name="Create backfill").click()
    expect(page).to_have_url(re.compile(r"/backfills/(?!new)[0-9a-f]+"))
    (payload,) = payloads(in_memory, "backfill.create")
    assert payload["ask"]["kind"] == "dates"
    assert [one[:10] for one in payload["ask"]["dates"]] == dates.split("\n")
    assert payload["ask"]["reprocess"] == "completed"


def test_days_of_the_calendar_are_selected_and_those_without_a_run_too(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living
) -> None:
    ada = new_user(url)
    page = ada.goes("/dags/flights/calendar")

    def day(number: int) -> Any:
        return page.locator(f'.year [data-select="{date(2013, 1, number).toordinal()}"]')

    rectangle(ada, day(7), day(23))  # Monday to Wednesday of three weeks
    expect(count_of(ada)).to_have_text("9 days selected")
    expect(page.locator(".year .is-selected")).to_have_count(9)
    assert ada.barriers() == []
    page.keyboard.press("Escape")
    page.locator('.year a[aria-label^="2013-01-29"]').focus()
    page.keyboard.press("Space")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowRight")
    expect(count_of(ada)).to_have_text("12 days selected")
    page.get_by_role("button", name="New backfill…").click()
    expect(page.get_by_label("From", exact=True)).to_have_value("2013-01-29")
    expect(page.get_by_label("To", exact=True)).to_have_value("2013-02-09")


def test_runs_of_the_grid_are_selected_by_columns_and_what_failed_runs_again(
    new_user: NewUser, url: str, in_memory: InMemoryManager, backfill: str, manager: Living
) -> None:
    manager.do(lambda it: setattr(it, "script", lambda _: Succeeded()))
    ada = new_user(url)
    page = ada.goes("/dags/flights")
    heads = page.locator("table.grid .run-row td")
    expect(heads).to_have_count(30)
    rectangle(ada, heads.nth(6), page.locator("table.grid tbody tr").nth(1).locator("td").nth(9))
    expect(count_of(ada)).to_have_text("4 runs selected")
    expect(page.locator("table.grid thead th.is-selected")).to_have_count(4)
    heads.nth(9).locator("a").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert ada.barriers() == []
    page.get_by_role("button", name="Retry failed…").click()
    expect(page.get_by_role("heading", name="2 tasks of 1 run")).to_be_visible()  # 2013-01-09: one failed, one after it
    page.get_by_role("button", name="Clear 2 tasks").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    (payload,) = payloads(in_memory, "tasks.clear")
    assert payload["ask"]["only_failed"] and payload["ask"]["downstream"]
    assert "backfill__2013-01-09T00:00:00Z" in payload["ask"]["run_ids"]


def test_on_a_phone_a_tap_selects_in_the_mode(new_user: NewUser, url: str, backfill: str) -> None:
    ada = new_user(url, viewport=PHONE, has_touch=True)
    page = ada.goes(f"/backfills/{backfill}")
    page.get_by_role("button", name="Select", exact=True).tap()
    expect(page.get_by_role("button", name="Select", exact=True)).to_have_attribute("aria-pressed", "true")
    cells(ada).nth(2).tap()
    cells(ada).nth(5).tap()
    expect(count_of(ada)).to_have_text("2 items selected")
    cells(ada).nth(2).tap()
    assert selected(ada) == "6"
    assert ada.too_wide() == []
    assert ada.barriers() == []
    page.get_by_role("button", name="Select", exact=True).tap()
    cells(ada).nth(2).tap()
    expect(page).to_have_url(re.compile("/runs/"))


def test_a_viewer_selects_nothing(
    new_user: NewUser, in_memory: InMemoryManager, backfill: str, exit_stack: ExitStack
) -> None:
    guarded = exit_stack.enter_context(
        served(in_memory.store, PassingClock(in_memory.clock), with_tokens(ben="viewer"))
    )
    ben = new_user(guarded)
    page = ben.goes("/login")
    page.get_by_label("Token").fill("token of ben")
    page.get_by_role("button", name="Log in").click()
    for address in (f"/backfills/{backfill}", "/dags/flights", "/dags/flights/calendar"):
        ben.goes(address)
        expect(page.locator("#selection, .select-box, [data-select-mode], [data-select-all]")).to_have_count(0)
