"""Shortcuts, the command palette, favourites and the home page in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.browser_server import Living
from support.web_user import User, expect

from backfill_manager.execution.messages import Failed
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]
NAMES = ("flights", "weather", "weather_daily", "Größe")


@pytest.fixture
def in_memory() -> InMemoryManager:
    return InMemoryManager(*(dag_spec(name, "clean", schedule=None) for name in NAMES), clock=FakeClock())


def test_g_and_a_letter_lead_to_pages_but_not_while_typing_or_with_modifiers(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes("/")
    for key, heading in (("r", "Runs"), ("d", "DAGs"), ("b", "Backfills"), ("t", "Task instances"), ("h", "Home")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1, name=heading)).to_be_visible()
    ada.goes("/dags")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Search")
    expect(search).to_be_focused()
    page.keyboard.type("gr?/")
    expect(search).to_have_value("gr?/")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.locator("h1").click()
    page.keyboard.press("Alt+g")
    page.keyboard.press("Shift+?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    assert ada.barriers() == []
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert "/dags" in page.url


def test_the_palette_finds_pages_and_dags_and_gives_the_focus_back(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes("/dags")
    link = page.get_by_role("link", name="weather", exact=True)
    link.focus()
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Page or DAG")
    expect(field).to_be_focused()
    options = page.get_by_role("listbox", name="Pages and DAGs").get_by_role("option")
    expect(options.filter(has_text="Größe")).to_have_count(1)
    page.keyboard.type("wthr")
    expect(options).to_have_text([re.compile("^weather DAG"), re.compile("^weather_daily DAG")])
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(field).to_have_attribute("aria-activedescendant", "palette-1")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    assert ada.barriers() == []
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(link).to_be_focused()

    page.keyboard.press("Control+k")
    expect(field).to_have_value("")
    page.keyboard.type("xyz")
    expect(page.get_by_text("Nothing matches.")).to_be_visible()
    field.fill("GRÖ")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Größe")).to_be_visible()
    page.get_by_role("button", name="Go to a page or DAG").click()
    field.fill("pools")
    options.first.click()
    expect(page.get_by_role("heading", level=1, name="Pools")).to_be_visible()


def test_favourites_stay_in_the_browser_and_come_first(new_user: NewUser, url: str) -> None:
    ada, ben = new_user(url), new_user(url)
    page = ada.goes("/dags")
    names = page.locator("#dags a.name")
    expect(names).to_have_text(sorted(NAMES))
    for name in ("weather", "Größe"):
        star = page.get_by_role("button", name=f"Favourite: {name}", exact=True)
        star.click()
        expect(star).to_have_attribute("aria-pressed", "true")
        star.evaluate("star => star.setAttribute('aria-pressed', 'false')")  # as what was fetched before the click
        page.evaluate("document.dispatchEvent(new CustomEvent('bfm:morphed', {detail: {id: 'dags'}}))")
        expect(star).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(names).to_have_text(["Größe", "weather", "flights", "weather_daily"])
    assert ada.barriers() == []
    page.get_by_label("Show").select_option("Favourites")
    expect(names).to_have_text(["Größe", "weather"])
    page.get_by_role("button", name="Favourite: weather", exact=True).click()
    page.reload()
    expect(names).to_have_text(["Größe"])
    expect(ben.goes("/dags").locator("#dags a.name")).to_have_text(sorted(NAMES))


def test_the_home_page_shows_a_failure_as_it_happens(new_user: NewUser, url: str, manager: Living) -> None:
    ada = new_user(url)
    page = ada.goes("/")
    expect(page.get_by_role("heading", name="Nothing has run yet")).to_be_visible()
    ada.stays()
    manager.do(lambda it: setattr(it, "script", lambda _: Failed("ValueError: no such day", retryable=False)))
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 3)))
    manager.do(lambda it: it.drain())
    failed = page.locator("#home-failed tbody tr")
    expect(failed).to_contain_text("ValueError: no such day")
    expect(failed.locator("td.num")).to_have_text("3")
    assert ada.stayed
    failed.get_by_role("link", name="Log of clean").click()
    expect(page.get_by_role("heading", level=1, name="clean")).to_be_visible()


def test_back_from_a_search_leaves_a_page_that_works(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    page = ada.goes("/dags")
    page.get_by_role("searchbox", name="Search").fill("weather")
    expect(page).to_have_url(re.compile(r"q=weather"))
    expect(page.get_by_role("link", name="flights")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_visible()
    expect(page.get_by_role("searchbox", name="Search")).to_have_value("")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Time zone").select_option("utc")
    expect(page.get_by_role("combobox", name="Time zone")).to_have_value("utc")
    assert [one["value"] for one in ada.context.cookies() if one["name"] == "bfm-zone"] == ["utc"]
