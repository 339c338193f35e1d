"""Every page in a browser: light, dark and on a phone; no console message, no horizontal scrolling, no serious violation of
axe-core. Each leaves three screenshots (`build/screenshots`, or BFM_SCREENSHOTS)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from string import Formatter

import pytest
from fastapi import APIRouter
from starlette.routing import Route
from support.browser_server import PassingClock, busy_ground, empty_store, served, with_tokens
from support.web_user import DESKTOP, PHONE, User, expect, screenshots

from backfill_manager.execution.messages import Succeeded
from backfill_manager.model.records import Backfill, Request
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web import router
from backfill_manager.web.links import to

NewUser = Callable[..., User]

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"
# {shop}: the newest backfill of that DAG; {request}: the newest request.
PAGES = {
    "home": "/",
    "dags": "/dags",
    "dag-grid": "/dags/shop",
    "dag-grid-with-panel": "/dags/shop?run=backfill__2024-01-13T00:00:00Z&task=clean",
    "dag-grid-with-run": "/dags/shop?run=backfill__2024-01-12T00:00:00Z__2",
    "dag-grid-wide": "/dags/wide",
    "dag-grid-without-runs": "/dags/quiet",
    "dag-graph": "/dags/shop/graph?run=latest",
    "dag-timeline": "/dags/shop/timeline",
    "dag-calendar": "/dags/shop/calendar?year=2024",
    "dag-day": "/dags/shop/day/2024-01-12",
    "dag-gaps": "/dags/shop/gaps?start_date=2024-01-01&end_date=2024-01-19",
    "gaps": "/gaps?start_date=2024-01-01&end_date=2024-01-19",
    "gaps-selected": "/gaps/selected?cell=shop/2024-01-10&cell=wide/2024-01-12",
    "dag-versions": "/dags/shop/versions",
    "dag-code": "/dags/shop/code",
    "dag-render": "/dags/shop/render",
    "dag-trigger": "/dags/shop/trigger",
    "dag-clear": "/dags/shop/clear?dry_run=true&only=failed",
    "backfills": "/backfills",
    "backfill-ended": "/backfills/{shop}",
    "backfill-running": "/backfills/{wide}",
    "backfill-of-partitions": "/backfills/{regions}",
    "backfill-settings": "/backfills/{wide}/settings",
    "backfill-diff": "/backfills/{wide}/diff",
    "backfill-revert": "/backfills/{shop}/revert",
    "backfill-new": "/backfills/new",
    "backfill-new-of-a-dag": "/backfills/new?dag=shop",
    "runs": "/runs",
    "tasks": "/tasks?sort=-duration",
    "run": RUN,
    "run-revert": f"{RUN}/revert",
    "run-at-work": "/dags/wide/runs/latest",
    "task": f"{RUN}/tasks/clean",
    "task-with-result": f"{RUN}/tasks/publish",
    "task-failed": "/dags/shop/runs/backfill__2024-01-19T00:00:00Z/tasks/aggregate",
    "tables": "/tables",
    "table": "/tables/one?table=bronze.orders",
    "pools": "/pools",
    "import-errors": "/import-errors",
    "notifications": "/notifications",
    "requests": "/requests",
    "request": "/requests/{request}",
    "manager": "/manager",
    "rest-api": "/rest-api",
    "nothing-there": "/nothing/at/this/address",
}  # fmt: skip
NOT_FOUND = {"nothing-there"}
# Not pages of their own: parts, files and what only leads on.
PARTS = {
    "/login", "/logout", "/static/{digest}/{name:path}", "/fragments/status_bar", "/fragments/palette",
    "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log", "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log.txt",
    "/backfills/{backfill_id}/settings/notice", "/backfills/{backfill_id}/items/{ordinal}", "/runs/{run_id}",
    "/runs/{dag_id}/{run_id}", "/runs/{dag_id}/{run_id}/{task_id}", "/dags/{dag_id}/runs", "/dags/{dag_id}/panel",
    "/backfills/{backfill_id}/matching", "/backfills/{backfill_id}/selected", "/dags/{dag_id}/selected",
    "/dags/{dag_id}/clear/dry-run", "/docs", "/redoc",
}  # fmt: skip


@pytest.fixture(scope="module")
def in_memory() -> InMemoryManager:
    return busy_ground()


@pytest.fixture(scope="module")
def busy(in_memory: InMemoryManager) -> Iterator[str]:
    with served(in_memory.store, PassingClock(in_memory.clock)) as url:
        yield url


def address(page: str, in_memory: InMemoryManager) -> str:
    names = [name for _, name, _, _ in Formatter().parse(PAGES[page]) if name]
    newest = {row.dag_id: row.backfill_id for row in in_memory.store.read(Backfill, order_by=["created_at"])}
    (request,) = in_memory.store.read(Request, order_by=["-requested_at"], limit=1)
    there = {**newest, "request": request.request_id}
    return PAGES[page].format_map({name: there[name] for name in names})


def test_every_page_is_looked_at() -> None:
    parts = [one.router for one in vars(router).values() if isinstance(getattr(one, "router", None), APIRouter)]
    routes = [one for part in (*parts, router.router) for one in part.routes if isinstance(one, Route)]
    reading = [one for one in routes if "GET" in (one.methods or ())]

    def path_of(there: str) -> str:
        fits = [one.path for one in reading if one.path_regex.match(there.partition("?")[0])]
        return min(fits, key=lambda path: (":" in path, path.count("{")))  # `new` before any id, the last resort last

    assert {one.path for one in reading} - {path_of(there) for there in PAGES.values()} == PARTS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_light_and_dark_and_on_a_phone(
    new_user: NewUser, in_memory: InMemoryManager, busy: str, page: str
) -> None:
    ada, pictures = new_user(busy), screenshots()
    ada.allows |= {404} if page in NOT_FOUND else set()
    ada.goes(address(page, in_memory))
    wrong = []
    for theme in ("light", "dark"):
        ada.page.emulate_media(color_scheme=theme)
        ada.page.screenshot(path=pictures / f"{page}-{theme}.png", full_page=True)
        wrong += [f"{theme}: {shown}" for shown in ada.barriers()]
    ada.page.emulate_media(color_scheme="light")
    ada.page.set_viewport_size(PHONE)
    ada.page.screenshot(path=pictures / f"{page}-phone.png", full_page=True)
    wrong += [f"on a phone: {shown}" for shown in (*ada.too_wide(), *ada.barriers("scrollable-region-focusable"))]
    assert wrong == []


def test_names_as_long_as_they_may_be_fit_on_every_page(new_user: NewUser, exit_stack: ExitStack) -> None:
    name, key = "n" * 200, "k" * 900
    in_memory = InMemoryManager(dag_spec(name, "only", schedule=None), clock=FakeClock())
    backfill = in_memory.backfill(name, keys=[key], conf_json=json.dumps({"p": "v" * 900}))
    in_memory.drain()
    [run] = in_memory.runs(name)
    wrong = []
    ada = new_user(exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock))))
    for there in (
        "/dags", to("dags", name), to("dags", name, run=run.run_id, task="only"), to("dags", name, run=run.run_id),
        to("dags", name, "graph", run=run.run_id), to("dags", name, "calendar"),
        to("dags", name, "versions"), "/backfills", to("backfills", backfill), to("backfills", backfill, "settings"),
        to("backfills", "new", dag=name), to("runs", name, run.run_id), to("runs", name, run.run_id, "only"),
    ):  # fmt: skip
        page = ada.goes(there)
        for wide in (DESKTOP, {"width": 360, "height": 740}):
            page.set_viewport_size(wide)
            wrong += [f"{there[:30]}, {wide['width']} px: {shown}" for shown in (*ada.too_wide(), *ada.barriers())]
    assert wrong == []


def test_on_a_phone_the_current_tab_is_in_sight_and_tags_are_large_enough_to_touch(
    new_user: NewUser, busy: str
) -> None:
    ada = new_user(busy, viewport={"width": 360, "height": 740})
    page = ada.goes("/dags/shop/trigger")
    label = page.locator("label", has_text="Allow future").bounding_box()
    assert label and label["height"] < 30, "the words stand beside their box"
    for row in ("Views", "Main"):
        current = page.get_by_role("navigation", name=row).locator("[aria-current]")
        box = current.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= 361, row
    box = ada.goes("/manager").get_by_role("navigation", name="Main").locator("[aria-current]").bounding_box()
    assert box and box["x"] >= 0 and box["x"] + box["width"] <= 361
    for tag in ada.goes("/dags").locator("a.tag").all():
        box = tag.bounding_box()
        assert box and box["height"] >= 24


def test_on_a_phone_the_header_has_two_lines(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy, viewport={"width": 375, "height": 740})
    box = ada.goes("/pools").locator(".header-actions").bounding_box()
    assert box and box["height"] < 45, "state of the manager, zone and theme stand in one"


def test_lists_to_choose_from_are_not_as_wide_as_the_longest_id(new_user: NewUser, exit_stack: ExitStack) -> None:
    in_memory = InMemoryManager(
        dag_spec("n" * 200, "only", schedule=None), dag_spec("short", "only"), clock=FakeClock()
    )
    in_memory.backfill("n" * 200, keys=["k"])
    in_memory.drain()
    ada = new_user(exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock))))
    for there in ("/backfills", "/backfills/new", "/runs"):
        for one in ada.goes(there).locator("select, label:has(> select)").all():
            box = one.bounding_box()
            assert box and box["width"] < 400


def test_the_name_of_a_pool_is_in_one_line(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy)
    for width in (1280, 1000, 700):
        ada.page.set_viewport_size({"width": width, "height": 800})
        for cell in ada.goes("/pools").locator("td.name").all():
            assert cell.evaluate(LINES_OF_TEXT) == 1, (width, cell.inner_text())


def test_no_word_is_broken_and_nothing_lies_over_something_else(
    new_user: NewUser, in_memory: InMemoryManager, busy: str
) -> None:
    ada = new_user(busy)
    page = ada.goes(address("dag-grid-with-panel", in_memory))
    facts = page.locator("#panel dd")
    assert (
        facts.evaluate_all("all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)")
        == []
    )
    page.set_viewport_size(PHONE)
    name = ada.goes(address("dag-gaps", in_memory)).locator("#findings td.name").first
    expect(name).to_have_text("gold.orders")
    assert name.evaluate(LINES_OF_TEXT) == 1
    first = in_memory.store.read(Backfill, order_by=["created_at"])[0].backfill_id
    task = ada.goes(f"/backfills/{first}").locator("#backfill-reasons").get_by_role("link", name="aggregate")
    assert task.evaluate(LINES_OF_TEXT) == 1
    log = ada.goes(address("task-failed", in_memory)).locator("#task-tries").get_by_role("link", name="Log")
    box = log.bounding_box()
    assert box and box["x"] + box["width"] <= PHONE["width"], "without scrolling sideways"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("menu", ["Cancel…", "Promote…"])
def test_a_menu_opens_beside_its_button_and_within_the_page(
    new_user: NewUser, exit_stack: ExitStack, menu: str, size: dict[str, int]
) -> None:
    in_memory = InMemoryManager(
        dag_spec("shop", "only"), clock=FakeClock(), script=lambda _: Succeeded() if menu == "Promote…" else None
    )
    one = in_memory.backfill("shop", days("2024-01-01", 2))
    if menu == "Promote…":
        in_memory.state.put(in_memory.row(one).evolve(preview_id=one))
    in_memory.drain()
    ada = new_user(exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock))), viewport=size)
    button = ada.goes(f"/backfills/{one}").get_by_text(menu)
    button.click()
    shown = ada.page.locator(".menu[open] .menu-box")
    there, box = button.bounding_box(), shown.bounding_box()
    assert there and box
    assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"] and ada.too_wide() == []
    assert box["x"] <= there["x"] + there["width"] and there["x"] <= box["x"] + box["width"]
    assert there["width"] < 200


def test_the_newest_days_of_gaps_are_in_sight(new_user: NewUser, in_memory: InMemoryManager, busy: str) -> None:
    ada = new_user(busy, viewport=PHONE)
    columns = ada.goes(address("gaps", in_memory)).locator("#gaps th.date")
    expect(columns.last).to_be_in_viewport()
    expect(columns.first).not_to_be_in_viewport()


def test_a_running_task_has_the_time_so_far(new_user: NewUser, busy: str) -> None:
    page = new_user(busy).goes("/dags/wide/runs/backfill__2024-01-31T11:15:00Z")
    times = page.locator("#run-tasks time.elapsed")
    assert times.count() > 0
    before = times.first.inner_text()
    expect(times.first).not_to_have_text(before)  # it goes on
    page.locator("#run-tasks tr, #run-tasks li", has=page.locator("time.elapsed")).first.get_by_role(
        "link"
    ).first.click()
    of_task = page.locator("#task-head time.elapsed")
    before = of_task.inner_text()
    expect(of_task).not_to_have_text(before)


LINES_OF_TEXT = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getClientRects().length;
}"""
EMPTY = {
    "/": "bfm manager start",
    "/runs": "bfm dags trigger",
    "/dags": "bfm manager start",
    "/backfills": "bfm backfill create",
    "/backfills/new": "bfm manager start",
    "/pools": "bfm manager start",
    "/import-errors": "bfm bundles parse",
    "/requests": "bfm backfill create",
    "/manager": "bfm manager start",
}


def test_an_empty_system_says_what_to_do_first(new_user: NewUser, exit_stack: ExitStack) -> None:
    ada = new_user(exit_stack.enter_context(served(empty_store(), PassingClock(FakeClock()))))
    wrong = []
    for there, shown in EMPTY.items():
        page = ada.goes(there)
        expect(page.get_by_role("main")).to_contain_text(shown)
        expect(page.get_by_role("status").filter(has_text="No manager running.")).to_be_visible()
        wrong += [f"{there}: {shown}" for shown in ada.barriers()]
        page.screenshot(path=screenshots() / f"empty{there.replace('/', '-')}.png", full_page=True)
    assert wrong == []


def test_the_login_in_light_and_dark_and_on_a_phone(
    new_user: NewUser, in_memory: InMemoryManager, exit_stack: ExitStack
) -> None:
    url = exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock), with_tokens(ada="operator")))
    ada = new_user(url)
    page = ada.goes("/dags")
    expect(page.get_by_label("Token")).to_be_focused()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert (theme, ada.barriers()) == (theme, [])
        page.screenshot(path=screenshots() / f"login-{theme}.png", full_page=True)
    page.set_viewport_size(PHONE)
    assert ada.too_wide() == []


def test_the_theme_that_was_chosen_is_kept(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy, color_scheme="light")
    page = ada.goes("/dags")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    button = page.get_by_role("button", name="Theme:")
    for shown in ("Theme: light", "Theme: dark"):
        button.click()
        expect(button).to_have_accessible_name(shown)
    dark = background()
    assert dark != light
    page.get_by_role("link", name="Pools", exact=True).click()
    expect(page.get_by_role("heading", name="Pools", exact=True)).to_be_visible()
    assert background() == dark
    button.click()
    assert background() == light  # as the system has it


def test_the_zone_that_was_chosen_holds_for_all_times_of_every_page(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy, timezone_id="Asia/Tokyo")
    page = ada.goes(f"{RUN}/tasks/clean")
    created, logged = page.locator("#task-facts time").first, page.locator("#log time").first
    for choice, zone in (("mine", "JST"), ("utc", "UTC"), ("mine", "JST")):
        page.get_by_label("Time zone of all times").select_option(choice)
        expect(created).to_have_text(re.compile(rf" {zone}$"))
        expect(logged).to_have_text(re.compile(rf" {zone}$"))
    ada.goes("/manager")
    expect(page.locator("#leader time:not(.ago)").first).to_have_text(re.compile(" JST$"))
    expect(page.get_by_label("Time zone of all times")).to_have_value("mine")
    page.get_by_label("Time zone of all times").select_option("")
    expect(page.locator("#leader time:not(.ago)").first).to_have_text(re.compile(" UTC$"))


def test_the_zone_of_a_browser_that_has_travelled_is_the_new_one(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy, timezone_id="Asia/Tokyo")
    ada.context.add_cookies([{"name": "bfm-zone", "value": "mine:America/New_York", "url": busy}])
    expect(ada.goes("/manager").locator("#leader time:not(.ago)").first).to_have_text(re.compile(" JST$"))


def test_a_script_that_was_put_into_a_page_does_not_run(new_user: NewUser, busy: str) -> None:
    ada = new_user(busy)
    page = ada.goes("/dags")
    page.evaluate(
        """() => {
          const put = document.createElement("script");
          put.textContent = "window.ran = true";
          document.body.append(put);
        }"""
    )
    assert not page.evaluate("'ran' in window")
    (shown,) = ada.complaints
    assert "Content Security Policy" in shown
    ada.complaints.clear()
