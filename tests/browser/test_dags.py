"""DAGs in a browser: the pause switch, a manual run, a clear, an import error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.browser_server import Living, import_problem, put
from support.web_user import Route, User, expect

from backfill_manager.clock import parse_instant
from backfill_manager.execution.messages import Failed
from backfill_manager.model.records import DagRow
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]


@pytest.fixture
def in_memory() -> InMemoryManager:
    spec = dag_spec(
        "flights", "clean", "delays", upstream={"delays": ["clean"]}, params={"full": False},
        start_date=parse_instant("2013-01-01T00:00:00Z"), end_date=parse_instant("2013-12-31T00:00:00Z"),
    )  # fmt: skip
    return InMemoryManager(spec, clock=FakeClock())


def test_the_switch_unpauses_and_pauses(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    ada = new_user(url)
    switch = ada.goes("/dags").get_by_role("switch", name="Schedule of flights")
    for paused in (False, True):
        expect(switch).to_have_attribute("aria-checked", "true" if paused else "false")
        switch.click()
        expect(ada.page.get_by_role("status").filter(has_text="Done")).to_be_visible()
        expect(switch).to_have_attribute("aria-checked", "false" if paused else "true")
        (row,) = in_memory.store.read(DagRow)
        assert row.is_paused == paused


def test_a_run_is_triggered_by_hand(new_user: NewUser, url: str, manager: Living) -> None:
    ada = new_user(url)
    page = ada.goes("/dags/flights")
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.get_by_role("link", name="Trigger").first.click()

    ada.allows.add(422)
    page.get_by_label("Parameters (JSON)").fill("{")
    page.get_by_role("button", name="Trigger").click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    page.get_by_label("Parameters (JSON)").fill('{"full": true}')
    page.get_by_label("Logical date").fill("2013-02-05")
    page.get_by_role("button", name="Trigger").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()

    page.get_by_role("link", name="manual__2013-02-05T00:00:00Z: success", exact=True).click()
    page.get_by_role("link", name="Open run page").click()
    expect(page.get_by_role("main").locator("dl")).to_contain_text('"full": true')
    expect(page.get_by_role("heading", name="2 tasks")).to_be_visible()


def test_what_failed_is_cleared_and_runs_again(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    manager.do(lambda it: setattr(it, "script", lambda _: Failed("ValueError: no such day", retryable=False)))
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 3)))
    manager.do(lambda it: it.drain())
    manager.let_all_succeed()

    ada = new_user(url)
    page = ada.goes("/dags/flights")
    page.get_by_role("link", name="Clear", exact=True).click()
    page.get_by_label("Task state").select_option("failed")
    page.get_by_label("To (inclusive)").fill("2013-01-02")
    page.get_by_role("checkbox", name="Downstream").check()
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("heading", name="4 tasks of 2 runs")).to_be_visible()
    page.get_by_role("button", name="Clear 4 tasks").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    expect(page.get_by_role("link", name="backfill__2013-01-02T00:00:00Z: success", exact=True)).to_be_visible()
    assert [run.state for run in in_memory.runs("flights")] == ["success", "success", "failed"]

    page.get_by_role("link", name="backfill__2013-01-02T00:00:00Z: success", exact=True).click()
    page.get_by_role("link", name="Open run page").click()
    page.get_by_role("link", name="clean").last.click()
    expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
    expect(page.locator("#task-tries tbody").get_by_text("ValueError: no such day")).to_be_visible()


def test_a_run_is_marked_after_a_question(
    new_user: NewUser, url: str, in_memory: InMemoryManager, manager: Living
) -> None:
    manager.do(lambda it: setattr(it, "script", lambda _: Failed("ValueError: no such day", retryable=False)))
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 1)))
    manager.do(lambda it: it.drain())
    ada = new_user(url)
    page = ada.goes("/dags/flights/runs/latest")
    submitted: list[str] = []
    page.once("dialog", lambda dialog: (submitted.append(dialog.message), dialog.dismiss()))
    page.get_by_role("button", name="Mark success").click()
    assert submitted == ["Mark this run as success?"]
    assert [run.state for run in in_memory.runs("flights")] == ["failed"]
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Mark success").click()
    expect(page.get_by_role("status").filter(has_text="Done")).to_be_visible()
    assert [run.state for run in in_memory.runs("flights")] == ["success"]


def test_a_file_that_can_not_be_read_is_reported(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    put(in_memory, import_problem())
    ada = new_user(url)
    page = ada.goes("/dags")
    page.get_by_role("link", name="View import errors").click()
    expect(page.get_by_role("heading", name="Import errors", exact=True)).to_be_visible()
    for shown in ("broken.py", "line 3", "SyntaxError: '(' was never closed <here>"):
        expect(page.get_by_text(shown).first).to_be_visible()


def test_dags_are_searched_while_one_types(new_user: NewUser, url: str, in_memory: InMemoryManager) -> None:
    in_memory.add_dag(dag_spec("hotels", "load", description="Nights in beds"))
    in_memory.commit()
    ada = new_user(url)
    page = ada.goes("/dags")
    search = page.get_by_role("searchbox")
    search.press_sequentially("bed")
    expect(page.get_by_role("link", name="flights", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="hotels", exact=True)).to_be_visible()
    expect(search).to_be_focused()
    expect(page).to_have_url(f"{url}/dags?q=bed")
    search.fill("nothing like it")
    page.get_by_role("link", name="Clear filters").click()
    expect(page.get_by_role("link", name="flights", exact=True)).to_be_visible()


def test_a_look_at_the_state_that_comes_late_does_not_undo_a_search(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    in_memory.add_dag(dag_spec("hotels", "load", description="Nights in beds"))
    in_memory.commit()
    ada, late = new_user(url), list[Route]()
    page = ada.page
    page.route(
        f"{url}/dags", lambda route: late.append(route) if "x-live" in route.request.headers else route.continue_()
    )
    with page.expect_request(lambda request: "x-live" in request.headers and request.url == f"{url}/dags"):
        ada.goes("/dags")
    page.get_by_role("searchbox").press_sequentially("bed")
    expect(page).to_have_url(f"{url}/dags?q=bed")
    with page.expect_request(lambda request: "x-live" in request.headers and request.url.endswith("?q=bed")):
        late[0].continue_()
    expect(page.get_by_role("link", name="hotels", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="flights", exact=True)).to_have_count(0)
