"""Runs and task instances of all DAGs: filters, orders, pages and addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.model.records import Backfill, DagRun, TaskInstance
from backfill_manager.queries.paging import Order, Slice
from backfill_manager.queries.runs import list_runs
from backfill_manager.store.base import matching
from backfill_manager.testing import InMemoryManager, dag_spec, days
from backfill_manager.web.pages import runs

Links = Callable[[str], list[str]]


@pytest.fixture
def links(busy: TestClient) -> Links:
    """The addresses of the rows of a list, over all its pages."""

    def read(address: str) -> list[str]:
        found: list[str] = []
        while address:
            answer = busy.get(address)
            page = Page(answer.text)
            assert (answer.status_code, wrongs(page)) == (200, []), address
            found += re.findall(r'<a class="name" href="([^"]*)"', answer.text)
            following = re.search(r'rel="next" href="([^"]*)"', answer.text)
            address = unescape(following[1]) if following else ""
        return found

    return read


def test_pages_of_runs_hold_every_run_once_in_any_order(
    busy_ground_of_module: InMemoryManager, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PER_PAGE", 7)
    rows = busy_ground_of_module.store.read(DagRun)
    for sort in ("-created", "created", "-started", "date", "dag", "-state"):
        found = links(f"/runs?sort={sort}")
        assert len(found) == len(set(found)) == len(rows), sort
    assert links("/runs?dag=regions")[::-1] == links("/runs?dag=regions&sort=created")


def test_pages_of_task_instances_hold_each_once(
    busy_ground_of_module: InMemoryManager, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PER_PAGE", 40)
    rows = busy_ground_of_module.store.read(TaskInstance, matching(dag_id="shop"))
    found = links("/tasks?dag=shop")
    assert len(found) == len(set(found)) == len(rows)
    failed = [row for row in rows if row.state == "failed"]
    assert len(links("/tasks?dag=shop&state=failed")) == len(failed) > 0


def test_other_orders_of_task_instances_say_where_they_end(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_WITHOUT_PAGES", 5)
    text = busy.get("/tasks?sort=-duration").text
    assert text.count('<a class="name"') == 5 and "The first 5 in this order." in text and 'rel="next"' not in text


def test_runs_are_filtered_by_state_type_and_day(links: Links) -> None:
    assert [re.findall(r"\d{4}-\d\d-\d\d", one) for one in links("/runs?dag=shop&state=failed&sort=date")] == [
        ["2024-01-12"], ["2024-01-19"],
    ]  # fmt: skip
    assert [one.split("/")[2] for one in links("/runs?type=manual")] == ["quiet"]
    everything = links("/runs?dag=shop")
    assert links("/runs?dag=shop&from=1999-01-01&to=2024-12-31") == everything
    assert links("/runs?dag=shop&to=1999-01-01") == links("/runs?dag=shop&from=2024-12-31") == []
    before = links("/runs?dag=shop&to=2024-01-31")
    assert before == everything and links("/runs?dag=shop&from=2024-01-31") == links("/runs?type=scheduled")


@pytest.mark.parametrize("page", ["runs", "tasks"])
def test_another_filter_keeps_several_states(busy: TestClient, links: Links, page: str) -> None:
    address = f"/{page}?state=failed&state=running"
    assert 0 < len(links(address)) < len(links(f"/{page}"))
    (form,) = [one for one in Page(busy.get(address).text).forms if one.attributes.get("role") == "search"]
    [chosen] = [
        option.attributes
        for select in form.find("select")
        if select.attributes["name"] == "state"
        for option in select.find("option")
        if "selected" in option.attributes
    ]
    assert "disabled" not in chosen, "a browser would leave it out"
    assert links(f"/{page}?state={chosen['value']}") == links(address)
    assert links(f"/{page}?state={chosen['value']}&dag=shop") == links(f"{address}&dag=shop")


def test_runs_are_filtered_by_who_triggered_them(
    links: Links, busy: TestClient, busy_ground_of_module: InMemoryManager
) -> None:
    store = busy_ground_of_module.store
    people = set(re.findall(r"by ([^<]+)</div>", busy.get("/runs").text))
    assert len(people) == 1
    (name,) = people
    made = [row for row in store.read(DagRun) if row.backfill_id or row.request_id]
    assert len(links(f"/runs?by={name}")) == len(made) < len(store.read(DagRun))
    assert links("/runs?by=nobody") == []


def test_a_person_s_runs_come_page_by_page_from_backfills_and_requests() -> None:
    manager = InMemoryManager(dag_spec("a", "only"), dag_spec("b", "only", schedule=None))
    manager.backfill("a", days("2024-01-01", 5))
    manager.ask("dag.trigger", dag_id="b", logical_date=None, conf={})
    manager.drain()
    manager.backfill("a", days("2024-02-01", 5))
    manager.drain()
    (name,) = {row.created_by for row in manager.store.read(Backfill)}
    order = Order("run_seq", "run_seq", descending=True)
    after, found = None, []
    while True:
        page = list_runs(manager.store, created_by=name, order=order, limit=3, after=after)
        found += [one["run_id"] for one in page.items]
        if (after := page.after) is None:
            break
    assert found == [row.run_id for row in manager.store.read(DagRun, order_by=("-run_seq",))]


def test_parts_are_put_in_order_with_rows_without_a_value_last() -> None:
    manager = InMemoryManager(dag_spec("a", "only"), dag_spec("b", "only"), script=lambda _: None)
    manager.backfill("a", days("2024-01-01", 3))
    manager.backfill("b", days("2024-01-01", 3))
    manager.tick()
    for order in (Order("started_at", "run_seq"), Order("started_at", "run_seq", descending=True)):
        one = Slice(order).read(manager.store, DagRun, [])[0]
        two = Slice(order).read_any(manager.store, DagRun, [matching(dag_id="a"), matching(dag_id="b")])[0]
        assert one == two and len(one) > 3


@pytest.mark.parametrize(
    ("address", "status", "word"),
    [
        ("/runs?state=nonsense", 422, "is no state of a run"), ("/runs?from=yesterday", 422, "is not a date"),
        ("/runs?after=nonsense", 422, "cursor"), ("/runs?type=other", 422, "type"),
        ("/tasks?state=nonsense", 422, "is no state of a task"), ("/tasks?to=9999-12-31", 422, "out of range"),
        ("/runs?state=&dag=&by=", 200, "Runs of all DAGs"),
    ],
)  # fmt: skip
def test_invalid_filters_are_named(busy: TestClient, address: str, status: int, word: str) -> None:
    answer = busy.get(address)
    assert (answer.status_code, word in Page(answer.text).root.whole_text) == (status, True)


def test_days_are_those_of_the_zone_that_the_user_has_chosen() -> None:
    manager = InMemoryManager(dag_spec("a", "only"))
    manager.backfill("a", days("2024-01-01", 1))
    manager.drain()
    (run,) = manager.store.read(DagRun)
    late = run.created_at.replace(hour=23, minute=30)
    manager.state.put(run.evolve(created_at=late))
    manager.tick()
    browser = browser_of(manager.store, manager.clock)
    next_day = (late + timedelta(days=1)).date().isoformat()
    assert "No matching runs" in browser.get(f"/runs?from={next_day}").text
    browser.cookies.set("bfm-zone", "mine:Asia/Tokyo")
    assert "No matching runs" not in browser.get(f"/runs?from={next_day}").text
