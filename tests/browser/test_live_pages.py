"""Live updates: changes of the state appear without a reload. The delay (it should be two seconds) is printed, not asserted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from support.browser_server import Living, PassingClock, import_problem, living, put, served
from support.web_user import Route, User, expect

from backfill_manager.clock import SystemClock, parse_instant
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model.records import TaskLog
from backfill_manager.requests import submit
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.request_kinds import BACKFILL_CREATE
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

NewUser = Callable[..., User]


@pytest.fixture
def in_memory() -> InMemoryManager:
    spec = dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]})
    return InMemoryManager(spec, script=lambda _: None, clock=FakeClock())


@pytest.mark.parametrize(
    ("there", "place"),
    [
        ("/dags", "#dags"), ("/dags/flights", "#grid td"), ("/dags/flights/runs/{run}", "main"),
        ("/backfills", "#backfills"), ("/backfills/{backfill}", "#item-map"),
    ],
)  # fmt: skip
def test_a_change_appears_by_itself(new_user: NewUser, url: str, manager: Living, there: str, place: str) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    run = "backfill__2013-01-01T00:00:00Z"
    ada, clock = new_user(url), SystemClock()
    manager.do(lambda it: it.drain())
    page = ada.goes(there.format(backfill=backfill, run=run))
    done = page.locator(f"{place} .s-success")
    expect(done).to_have_count(0)
    ada.stays()

    begun = clock.monotonic()
    manager.let_all_succeed()
    expect(done).not_to_have_count(0)
    print(f"\n{there}: shown after {clock.monotonic() - begun:.2f} s")
    assert ada.stayed


def test_a_new_backfill_shows_its_items_and_its_failures_without_a_reload(
    new_user: NewUser, url: str, in_memory: InMemoryManager, exit_stack: ExitStack
) -> None:
    """The page is opened before the backfill is planned, when its parts are empty."""
    ask = CreateBackfill(dag_id="flights", kind="partitions", partitions=("emea", "apac"))
    backfill_id = f"{int(in_memory.clock.new_id(), 16) + 1:012x}"  # the next that the manager gives
    payload = {"backfill_id": backfill_id, "ask": ask.to_payload()}
    submit.submit(in_memory.store, in_memory.clock, BACKFILL_CREATE, payload, request_id="r1", requested_by="ada")
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill_id}")
    expect(page.get_by_text("not planned yet")).to_be_visible()
    expect(page.get_by_role("heading", name="Items", exact=True)).to_have_count(0)
    ada.stays()

    assert in_memory.backfill("flights", keys=("emea", "apac")) == backfill_id
    expect(page.locator("#item-map a")).to_have_count(2)
    expect(page.locator("#items tbody tr")).to_have_count(2)
    expect(page.locator("#backfill-reasons")).to_be_empty()
    manager = exit_stack.enter_context(living(in_memory))
    expect(page.locator("#item-map a[aria-label*=running], #items .s-running").first).to_be_visible()
    first_cell = page.locator("#item-map a").first
    first_cell.focus()
    manager.do(lambda it: it.drain())
    manager.finish("flights", outcome=Failed("ValueError: no rows", retryable=False))
    expect(page.locator("#backfill-reasons")).to_contain_text("2")
    expect(page.locator("#items tbody .s-failed")).to_have_count(2)
    expect(first_cell).to_be_focused()  # the map was repainted, and not drawn anew
    assert ada.stayed


def test_a_change_that_the_server_could_not_tell_at_first_appears_all_the_same(
    new_user: NewUser, url: str, manager: Living
) -> None:
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    manager.do(lambda it: it.drain())
    ada, refused = new_user(url), list[str]()
    ada.allows.add(503)
    page = ada.page

    def refuse_what_is_new_at_first(route: Route) -> None:
        answer = route.fetch()
        if "Z: success" in answer.text() and len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=503, body="The state can't be read now.")
        else:
            route.fulfill(response=answer)

    page.route(f"{url}/dags/flights", refuse_what_is_new_at_first)
    ada.goes("/dags/flights")
    ada.stays()
    manager.let_all_succeed()
    expect(page.locator("#grid [title$='Z: success']")).not_to_have_count(0)  # of a run: tasks may be shown so before
    assert ada.stayed
    assert len(refused) == 2


def test_a_list_is_sent_again_only_when_something_on_its_page_has_changed(
    new_user: NewUser, exit_stack: ExitStack
) -> None:
    """Of 60 DAGs the first 50 are shown. Clicks and typing meanwhile do not change that."""
    in_memory = InMemoryManager(
        *(dag_spec(f"dag_{n:02d}", "load", schedule=None) for n in range(60)), clock=FakeClock()
    )
    ada = new_user(exit_stack.enter_context(served(in_memory.store, PassingClock(in_memory.clock))))
    page, sent = ada.page, list[int]()
    page.on("response", lambda answer: sent.append(answer.status) if "x-live" in answer.request.headers else None)

    def runs(dag_id: str) -> None:
        in_memory.backfill(dag_id, days("2024-01-01", 1))
        in_memory.drain()

    with page.expect_response(lambda answer: "x-live" in answer.request.headers and answer.url.endswith("/dags")):
        ada.goes("/dags")
    expect(page.locator("#dags tbody tr")).to_have_count(50)
    ada.stays()
    with page.expect_response(lambda answer: answer.url.endswith("/dags") and answer.status == 304):
        runs("dag_55")
    runs("dag_01")
    expect(page.locator("#dag-dag_01 .state.s-success")).to_be_visible()
    with page.expect_response(lambda answer: answer.url.endswith("/dags") and answer.status == 304):
        runs("dag_56")
    page.get_by_role("searchbox").press_sequentially("dag_5")
    expect(page.locator("#dags tbody tr")).to_have_count(10)
    expect(page.locator("#dag-dag_55 .state.s-success")).to_be_visible()
    runs("dag_57")
    expect(page.locator("#dag-dag_57 .state.s-success")).to_be_visible()
    page.get_by_label("Last run", exact=True).select_option("success")
    page.get_by_label("Last run", exact=True).press("Enter")  # as whoever came to it by keys sends it
    expect(page.locator("#dags tbody tr")).to_have_count(3)
    assert page.url.endswith("/dags?q=dag_5&state=success")
    assert ada.stayed
    page.go_back()  # loads it anew
    expect(page.locator("#dags tbody tr")).to_have_count(10)
    assert set(sent) == {200, 304}


def test_a_change_leaves_focus_and_place_and_what_was_opened(new_user: NewUser, url: str, manager: Living) -> None:
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 40), max_active_runs=1))
    ada = new_user(url)
    page = ada.goes(f"/backfills/{backfill}")
    page.get_by_text("Show as table").click()
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


def test_a_manager_that_goes_and_a_file_that_breaks_are_reported_on_every_page(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    ada = new_user(url)
    ada.page.clock.install()
    page = ada.goes("/pools")
    light = page.locator("#manager-status")
    expect(light).to_contain_text("Manager running")
    ada.stays()
    put(in_memory, import_problem())
    in_memory.leader.resign(in_memory.clock.now())
    page.clock.fast_forward(6_000)  # it is looked at every five seconds
    expect(page.get_by_role("status").filter(has_text="No manager running.")).to_be_visible()
    expect(page.get_by_role("link", name="Import errors")).to_contain_text("1")
    assert ada.stayed


def test_a_server_that_does_not_answer_is_named_until_it_does(new_user: NewUser, url: str) -> None:
    ada = new_user(url)
    ada.allows.add(503)
    ada.page.clock.install()
    page = ada.goes("/pools")
    light, notice = page.locator("#manager-status"), page.get_by_role("alert").filter(has_text="doesn’t answer")
    expect(light).to_contain_text("Manager running")
    expect(notice).to_be_hidden()
    ada.stays()
    page.route("**/fragments/status_bar", lambda route: route.fulfill(status=503, body="gone"))
    page.clock.fast_forward(6_000)
    expect(notice).to_be_visible()
    expect(light).to_be_hidden()
    assert ada.barriers() == []
    page.unroute("**/fragments/status_bar")
    page.clock.fast_forward(6_000)
    expect(light).to_be_visible()
    expect(notice).to_be_hidden()
    assert ada.stayed


def test_the_head_of_a_page_hears_of_changes_without_waiting_for_its_next_look(
    new_user: NewUser, url: str, in_memory: InMemoryManager
) -> None:
    ada = new_user(url)
    ada.page.add_init_script("window.setInterval = () => 0")  # nothing is looked at every few seconds
    page = ada.goes("/pools")
    expect(page.locator("#manager-status")).to_contain_text("Manager running")
    put(in_memory, import_problem())
    expect(page.get_by_role("link", name="Import errors")).to_contain_text("1")
    in_memory.leader.resign(in_memory.clock.now())
    expect(page.get_by_role("status").filter(has_text="No manager running.")).to_be_visible()


def test_more_tabs_may_be_open_than_a_browser_has_connections(
    new_user: NewUser, url: str, manager: Living, in_memory: InMemoryManager
) -> None:
    """Emulates a hidden tab, which headless browsers don't have."""
    backfill = manager.do(lambda it: it.backfill("flights", days("2013-01-01", 2)))
    ada = new_user(url)
    ada.context.add_init_script(
        """{
          let covered = false;
          Object.defineProperty(document, "hidden", {get: () => covered});
          window.cover = (is) => { covered = is; document.dispatchEvent(new Event("visibilitychange")); };
        }"""
    )
    first = ada.goes(f"/backfills/{backfill}")
    state = first.locator(".title-line .state")
    expect(state).to_have_text("running")
    seen = first
    for _ in range(8):
        seen.evaluate("cover(true)")
        seen = ada.context.new_page()
        seen.goto("/pools")
        expect(seen.get_by_role("heading", name="Pools")).to_be_visible()
    manager.let_all_succeed()
    manager.do(lambda it: it.drain())
    seen.evaluate("cover(true)")
    first.evaluate("cover(false)")
    expect(state).to_have_text("success")


def test_a_log_goes_on_while_it_is_read(
    new_user: NewUser, url: str, manager: Living, in_memory: InMemoryManager
) -> None:
    manager.do(lambda it: it.backfill("flights", days("2013-01-01", 1)))
    manager.do(lambda it: it.drain())
    (ti,) = in_memory.tasks("flights", "clean")
    ada = new_user(url)
    page = ada.goes(f"/dags/flights/runs/{ti.run_id}/tasks/clean")
    log = page.get_by_role("log")
    expect(page.get_by_text("No log output yet")).to_be_visible()
    for n in range(1, 121):
        line = TaskLog(
            dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=1, try_number=1, line=n, level="INFO",
            at=parse_instant("2024-01-01T00:00:00Z"), message=f"file {n} of 120", run_seq=ti.run_seq,
        )  # fmt: skip
        manager.do(lambda it, line=line: put(it, line))
    last = log.get_by_text("file 120 of 120", exact=True)
    expect(last).to_be_attached()
    log.evaluate("one => one.scrollIntoView({block: 'end'})")
    expect(last).to_be_in_viewport()  # it has followed to its end
    manager.do(lambda it: it.finish(next(iter(it.running)), Succeeded()))
    expect(page.locator(".title-line .state")).to_have_text("success")
