"""The graph and the grid of a DAG, code, and dates, as people use them: by pointer, keyboard and phone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from support.browser_server import Living, put
from support.web_user import PHONE, Route, User, expect

from backfill_manager.execution.messages import Failed, Succeeded, TaskLaunch
from backfill_manager.model.records import DagVersion, TaskLog
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]
MAPPED = [f"load.{one}" for one in ("at", "de", "es", "fr", "it", "uk", "us")]
RUN = "backfill__2013-01-0{}T00:00:00Z"
LARGE = [f"g{n // 30}.t{n}" for n in range(300)]


@pytest.fixture
def in_memory() -> InMemoryManager:
    shops = dag_spec(
        "shops", "start", *MAPPED, "report", upstream={**{one: ["start"] for one in MAPPED}, "report": MAPPED},
        each={one: {"mapped_from": "load", "mapped_json": '"x"'} for one in MAPPED},
    )  # fmt: skip
    large = dag_spec("large", *LARGE, upstream={after: [before] for before, after in pairwise(LARGE)}, schedule=None)
    return InMemoryManager(shops, large, script=lambda _: None, clock=FakeClock())


def of_three_days(in_memory: InMemoryManager) -> None:
    def script(launch: TaskLaunch) -> Failed | Succeeded:
        return Failed("ValueError: no such shop", retryable=False) if launch.ti.task_id == "load.it" else Succeeded()

    in_memory.script = script
    in_memory.backfill("shops", days("2013-01-01", 3), max_active_runs=3)
    in_memory.drain()


def scale(ada: User) -> float:
    """Of the graph, in px for one of its own."""
    return float(ada.page.evaluate("document.getElementById('graph-svg').getScreenCTM().a"))


def left(ada: User) -> float:
    return float(ada.page.evaluate("document.getElementById('graph-svg').viewBox.baseVal.x"))


def test_the_graph_fits_zooms_and_moves(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    ada = new_user(url)
    page = ada.goes("/dags/large/graph?open=g0&open=g1")
    view = page.locator("#graph-view").bounding_box()
    boxes = [box.bounding_box() for box in page.locator(".graph .node").all()]
    assert view and len(boxes) == 60 + 8
    for box in boxes:
        assert box and box["x"] >= view["x"] - 1 and box["x"] + box["width"] <= view["x"] + view["width"] + 1
    fitted = scale(ada)
    page.get_by_role("button", name="Zoom in").click()
    assert scale(ada) == pytest.approx(fitted * 1.25, rel=0.01)
    page.locator("#graph-view").focus()
    page.keyboard.press("-")
    assert scale(ada) == pytest.approx(fitted, rel=0.01)
    page.keyboard.press("+")
    page.keyboard.press("+")
    before = left(ada)
    page.keyboard.press("ArrowRight")
    assert left(ada) > before
    page.keyboard.press("0")
    assert scale(ada) == pytest.approx(fitted, rel=0.01)

    page.mouse.move(view["x"] + view["width"] / 3, view["y"] + view["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_function("was => document.getElementById('graph-svg').getScreenCTM().a > was * 2", arg=fitted)
    before, address = left(ada), page.url
    page.mouse.down()
    page.mouse.move(view["x"] + view["width"] / 3 - 120, view["y"] + view["height"] / 2, steps=4)
    page.mouse.up()
    assert left(ada) == pytest.approx(before + 120 / scale(ada), rel=0.02)
    assert page.url == address
    page.get_by_role("button", name="Fit").click()
    page.get_by_role("searchbox", name="Find a task").fill("t59")
    expect(page.locator(".node.is-found")).to_have_count(1)
    expect(page.locator("#box-g1\\.t59")).to_be_in_viewport()
    assert scale(ada) >= 1
    assert ada.barriers() == [] and ada.too_wide() == []


def test_a_group_opens_and_stays_open_while_the_run_goes_on(new_user: NewUser, url: str, manager: Living) -> None:
    manager.do(lambda it: it.backfill("shops", days("2013-01-01", 1)))
    manager.do(lambda it: it.drain())
    ada = new_user(url)
    page = ada.goes("/dags/shops/graph")
    ada.stays()
    box = page.locator("a[data-group=load]")
    expect(box).to_contain_text("7 not started")
    manager.finish("shops")
    expect(box).to_contain_text("7 running")
    box.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#box-load\\.de")).to_contain_text("running")
    expect(page.get_by_role("button", name="load, 7 tasks")).to_be_focused()
    page.get_by_role("button", name="Zoom in").click()
    zoomed = scale(ada)
    manager.let_all_succeed()
    expect(page.locator("#box-report")).to_contain_text("success")  # a refresh
    expect(page.locator("#box-load\\.de")).to_contain_text("success")
    expect(page.locator("#graph-tasks")).to_contain_text("load.de")
    assert scale(ada) == pytest.approx(zoomed, rel=0.01)
    page.get_by_role("button", name="load, 7 tasks").press(" ")
    expect(box).to_contain_text("7 success")
    expect(page.locator("#box-load\\.de")).to_have_count(0)
    assert ada.stayed


def cell(ada: User, day: int, task: str = "") -> str:
    of_task = f'[data-task="{task}"]' if task else ":not([data-task])"
    return f'.grid a[data-run="{RUN.format(day)}"]{of_task}'


def test_the_grid_fills_its_card_and_a_cell_opens_the_panel(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    of_three_days(in_memory)
    ada = new_user(url)
    page = ada.goes("/dags/shops")
    table, card = page.locator("table.grid").bounding_box(), page.locator("#grid").bounding_box()
    assert table and card and table["width"] > 0.95 * (card["width"] - 40)
    ada.stays()
    page.locator(cell(ada, 2, "load.it")).click()
    panel = page.get_by_role("complementary", name="Details")
    expect(panel.get_by_role("heading", name="load.it")).to_be_visible()
    expect(panel).to_contain_text("ValueError: no such shop")
    expect(page.locator(cell(ada, 2, "load.it"))).to_have_attribute("aria-current", "true")
    shared = page.url
    page.keyboard.press("ArrowRight")
    expect(panel).to_contain_text(RUN.format(3))
    page.keyboard.press("ArrowUp")
    expect(panel.get_by_role("heading", name="load.fr")).to_be_visible()
    expect(page.locator(cell(ada, 3, "load.fr"))).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator(cell(ada, 3, "load.fr"))).to_be_focused()
    assert "run=" not in page.url
    page.locator(f"thead .bar-cell {cell(ada, 1)[6:]}").click()
    expect(panel.get_by_role("heading", name=RUN.format(1))).to_be_visible()
    assert ada.barriers() == [] and ada.too_wide() == []
    page.go_back()
    expect(panel).to_be_hidden()
    page.go_forward()
    expect(panel.get_by_role("heading", name=RUN.format(1))).to_be_visible()
    assert ada.stayed

    ben = new_user(url)
    ben.goes(shared)
    expect(ben.page.get_by_role("complementary", name="Details").get_by_role("heading", name="load.it")).to_be_visible()
    ben.page.get_by_role("link", name="Open task page").click()
    expect(ben.page).to_have_url(f"{url}/dags/shops/runs/{RUN.format(2)}/tasks/load.it")


def test_the_panel_lives_and_its_buttons_return_to_it(new_user: NewUser, url: str, manager: Living) -> None:
    manager.do(lambda it: it.backfill("shops", days("2013-01-01", 1)))
    manager.do(lambda it: it.drain())
    ada = new_user(url)
    page = ada.goes("/dags/shops")
    ada.stays()
    page.locator(cell(ada, 1, "start")).click()
    panel = page.get_by_role("complementary", name="Details")
    expect(panel.locator(".panel-head")).to_contain_text("running")
    (ti,) = [one for one in manager.do(lambda it: it.tasks("shops")) if one.task_id == "start"]
    line = TaskLog(
        dag_id=ti.dag_id, run_id=ti.run_id, task_id="start", launch=1, try_number=1, line=0, level="WARNING",
        at=manager.in_memory.clock.now(), message="half done", run_seq=ti.run_seq,
    )  # fmt: skip
    manager.do(lambda it: put(it, line))
    expect(panel.locator(".panel-log")).to_contain_text("half done")
    manager.let_all_succeed()
    expect(panel.locator(".panel-head")).to_contain_text("success")
    # The focused cell, too.
    expect(page.locator(f"{cell(ada, 1, 'start')} [aria-label='start: success']")).to_be_visible()
    assert ada.stayed
    page.once("dialog", lambda dialog: dialog.accept())
    panel.get_by_role("button", name="Mark failed").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    expect(panel.locator(".panel-head")).to_contain_text("failed")


def test_the_panel_never_shows_another_cell_than_the_address(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    """While the details come slowly, the buttons of those before can't be pressed; where they don't come, that is said."""
    of_three_days(in_memory)
    ada = new_user(url)
    ada.allows.add(503)
    page, waiting = ada.goes("/dags/shops"), list[Route]()
    ada.stays()
    panel = page.get_by_role("complementary", name="Details")
    page.locator(cell(ada, 1, "start")).click()
    expect(panel.get_by_role("button", name="Mark failed")).to_be_visible()

    page.route("**/panel?*", lambda route: waiting.append(route))
    with page.expect_request("**/panel?*"):
        page.locator(cell(ada, 2, "report")).click()
    expect(panel.locator("[inert] button", has_text="Mark failed")).to_be_visible()
    expect(panel.locator(":not([inert]) > a", has_text="Close")).to_be_visible()
    waiting.pop().fulfill(status=503, body="The state can't be read now.")
    expect(panel.get_by_role("heading", name="report")).to_be_visible()
    expect(panel.get_by_role("status")).to_have_text("The server can’t be reached. Trying again…")
    expect(panel.get_by_role("button")).to_have_count(0)
    assert ada.barriers() == []

    with page.expect_request("**/panel?*"):
        page.locator(cell(ada, 3, "start")).click()
    expect(panel.locator("[inert][role=status]")).to_be_visible()
    waiting.pop().abort("connectionrefused")
    expect(panel.get_by_role("heading", name="start")).to_be_visible()
    expect(panel.get_by_role("status")).to_contain_text("can’t be reached")
    page.unroute("**/panel?*")
    expect(panel).to_contain_text(RUN.format(3))  # it was tried again
    expect(panel.get_by_role("button", name="Mark failed")).to_be_visible()
    assert ada.stayed
    ada.complaints = [one for one in ada.complaints if "ERR_CONNECTION_REFUSED" not in one]


def test_on_a_phone_the_panel_covers_the_page(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    of_three_days(in_memory)
    ada = new_user(url, viewport=PHONE)
    page = ada.goes("/dags/shops")
    page.locator(cell(ada, 3, "report")).click()
    close = page.get_by_role("link", name="Close")
    expect(close).to_be_focused()
    assert page.locator("#panel").bounding_box() == {"x": 0, "y": 0, **PHONE}
    assert ada.barriers() == [] and ada.too_wide() == []
    close.click()
    expect(page.locator("#panel")).to_be_hidden()


def test_code_has_numbers_and_links_to_lines(
    new_user: NewUser, url: str, in_memory: InMemoryManager, tmp_path: Path
) -> None:
    (tmp_path / "shops.py").write_text("".join(f"def f{n}():\n    return {n}  # <b>\n" for n in range(100)))
    (version,) = [one for one in in_memory.store.read(DagVersion) if one.dag_id == "shops"]
    put(in_memory, version.evolve(snapshot=str(tmp_path), file="shops.py"))
    for scheme in ("light", "dark"):
        ada = new_user(url, color_scheme=scheme)
        page = ada.goes("/dags/shops/code#L120")
        expect(page.locator("#L120")).to_be_in_viewport()
        assert page.locator("#L120").evaluate("line => line.matches(':target')")
        assert page.locator("#L120").inner_text().strip() == "return 59  # <b>"
        colours = page.locator("#L119 span").evaluate_all("all => all.map(one => getComputedStyle(one).color)")
        assert len(set(colours)) > 1
        page.locator("#L3 .line-link").click(force=True)
        expect(page).to_have_url(f"{url}/dags/shops/code#L3")
        assert ada.barriers() == []


def test_a_date_is_picked_or_typed_in_the_zone_of_the_page(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    ada = new_user(url, timezone_id="Asia/Tokyo")
    page = ada.goes("/dags/shops/trigger")
    page.get_by_label("Time zone of all times").select_option("mine")
    expect(page.get_by_text("Dates in Asia/Tokyo.")).to_be_visible()
    picker = page.locator("[data-picks=logical_date]")
    picker.fill("2013-02-05T09:00")
    expect(page.get_by_label("Logical date")).to_have_value("2013-02-05T09:00")
    page.get_by_role("button", name="Trigger").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    assert [run.run_id for run in in_memory.runs("shops")] == ["manual__2013-02-05T00:00:00Z"]

    page = ada.goes("/runs")
    page.locator("[data-picks=from]").fill("2013-02-01")
    expect(page).to_have_url(f"{url}/runs?dag=&state=&type=&by=&from=2013-02-01&to=&zone=Asia%2FTokyo")
    page.get_by_label("Time zone of all times").select_option("utc")
    expect(page.locator("[name=from]")).to_have_value("2013-01-31T15:00")

    page = ada.goes("/backfills/new?dag=shops&kind=dates")
    for day in ("2013-01-02", "2013-01-01", "2013-01-02"):
        page.locator("[data-picks=f-dates]").fill(day)
    expect(page.locator("#f-dates")).to_have_value("2013-01-02\n2013-01-01")
    page = ada.goes("/dags/shops/clear")
    page.locator("[data-picks=start]").fill("2013-01-05")
    page.locator("[data-picks=end]").focus()
    expect(page.locator("[data-picks=end]")).to_have_attribute("min", "2013-01-05")
    assert ada.barriers() == []
