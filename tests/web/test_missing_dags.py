"""A DAG whose file was removed keeps its runs and their pages; a run keeps the definition of its version."""

from __future__ import annotations

from urllib.parse import urldefrag, urljoin

import pytest
from fastapi.testclient import TestClient
from support.busy_state import put
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.model.records import ImportProblem, Pool, Response
from backfill_manager.store.base import Condition
from backfill_manager.testing import InMemoryManager, dag_spec, days

RUN = "/dags/etl/runs/backfill__2024-01-01T00:00:00Z"
TABS = (
    "",
    "/graph",
    "/timeline",
    "/calendar",
    "/calendar?year=2024",
    "/day/2024-01-01",
    "/gaps",
    "/versions",
    "/code",
    "/clear",
)
NOTE = "is gone or no longer defines it, since 20"


@pytest.fixture
def manager() -> InMemoryManager:
    """`etl` ran with two tasks, got a third and lost its first, and then its file was deleted."""
    manager = InMemoryManager(
        dag_spec("etl", "fetch", "clean", upstream={"clean": ["fetch"]}), dag_spec("stays", "only")
    )
    manager.backfill("etl", days("2024-01-01", 2))
    manager.drain()
    manager.add_dag(dag_spec("etl", "read", "clean", "publish", upstream={"clean": ["read"], "publish": ["clean"]}))
    manager.drain()
    return manager


@pytest.fixture
def gone(manager: InMemoryManager) -> InMemoryManager:
    row = manager.state.catalog.dags["etl"]
    manager.state.put(row.evolve(is_active=False, file="etl.py", updated_at=manager.clock.now()))
    manager.tick()
    return manager


def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, manager.clock)


def boxes(page: Page) -> set[str]:
    return {one.attributes["aria-label"] or "" for one in page.root.find("svg") if one.attributes.get("aria-label")} | {
        text.whole_text
        for svg in page.root.find("svg")
        for text in svg.find("text")
        if "kind" not in str(text.attributes)
    }


def test_the_graph_of_a_run_is_of_the_version_that_it_ran_by(manager: InMemoryManager) -> None:
    here = browser(manager)
    [graph] = [link for link in Page(here.get(RUN).text).links if "/graph?" in link]
    page = Page(here.get(graph).text)
    assert {"fetch", "clean"} <= boxes(page)
    assert not {"read", "publish"} & boxes(page)
    assert "version 1 (current version: 2)" in page.root.whole_text
    assert "fetch → clean" in {one.whole_text for one in page.root.find("title")}
    assert any("/code?version=1" in link for link in Page(here.get(RUN).text).links)
    today = Page(here.get("/dags/etl/graph").text)
    assert {"read", "clean", "publish"} <= boxes(today)


def test_the_graph_of_a_run_whose_version_is_gone_shows_its_tasks_and_says_so(manager: InMemoryManager) -> None:
    [run] = [one for one in manager.runs("etl") if one.run_id == "backfill__2024-01-01T00:00:00Z"]
    put(manager, run.evolve(dag_version=99))
    page = Page(browser(manager).get("/dags/etl/graph?run=backfill__2024-01-01T00:00:00Z").text)
    assert {"fetch", "clean"} <= boxes(page)
    assert "definition not available" in page.root.whole_text
    assert wrongs(page) == []


@pytest.mark.parametrize("tab", TABS)
def test_every_page_of_a_dag_that_is_gone_is_there_and_says_so(gone: InMemoryManager, tab: str) -> None:
    answer = browser(gone).get(f"/dags/etl{tab}")
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    assert "Inactive: etl.py of the bundle" in page.root.whole_text
    assert NOTE in page.root.whole_text
    offered = [one for one in page.links if "/trigger" in one or one.startswith("/backfills/new")]
    assert offered == []
    assert [form for form in page.forms if str(form.attributes.get("action")).endswith(("/pause", "/unpause"))] == []


def test_every_link_from_a_run_of_a_dag_that_is_gone_leads_somewhere(gone: InMemoryManager) -> None:
    here = browser(gone)
    waiting, seen, dead = [RUN], set[str](), dict[str, int]()
    while waiting:
        address = waiting.pop()
        answer = here.get(address)
        if answer.status_code not in (200, 303):
            dead[address] = answer.status_code
            continue
        for link in Page(answer.text).links:
            there = urldefrag(urljoin(f"http://localhost{address}", link)).url.removeprefix("http://localhost")
            if there not in seen and "/etl" in there:
                seen.add(there)
                waiting.append(there)
    assert dead == {}
    assert len(seen) > 15


def test_what_makes_no_sense_for_it_is_refused_in_one_line(gone: InMemoryManager) -> None:
    here = browser(gone)
    backfill = gone.runs("etl")[0].backfill_id
    assert "New backfill" not in here.get(f"/backfills/{backfill}").text
    for address, form in (
        ("/dags/etl/trigger", {"logical_date": "2024-01-05"}), ("/dags/etl/pause", {}), ("/dags/etl/unpause", {}),
        ("/backfills/new", {"dag": "etl", "sent": "1", "kind": "single", "do": "create"}),
    ):  # fmt: skip
        answer = here.post(address, data=form, headers={"origin": "http://localhost"})
        assert (answer.status_code, "DAG &#39;etl&#39; is not active" in answer.text) == (409, True), address
    for address in ("/dags/etl/trigger", "/backfills/new?dag=etl"):
        assert here.get(address).status_code == 409
    for name, payload in (
        ("backfills", {"dag_id": "etl", "start_date": "2024-01-01", "end_date": "2024-01-02"}), ("dags/etl/runs", {}),
    ):  # fmt: skip
        shown = here.post(f"/api/v1/{name}", json=payload)
        assert (shown.status_code, "is not active" in shown.json()["detail"]) == (409, True)
    assert here.patch("/api/v1/dags/etl", json={"is_paused": False}).status_code == 409


def test_a_manager_that_reads_such_a_request_refuses_it_with_the_same_line(gone: InMemoryManager) -> None:
    for kind, more in (("dag.pause", {}), ("dag.unpause", {}), ("dag.trigger", {"logical_date": None, "conf": {}})):
        gone.ask(kind, dag_id="etl", **more)
        gone.drain()
        shown = gone.store.read(Response, [Condition("kind", "=", kind)])[-1]
        assert (shown.outcome, "'etl' is not active" in shown.message) == ("refused", True)


def test_of_a_file_that_can_no_longer_be_read_the_import_error_is_the_reason(gone: InMemoryManager) -> None:
    """As with `keep_last_good: false`, which lets its DAGs end."""
    now, bundle = gone.clock.now(), gone.state.catalog.dags["etl"].bundle
    problem = ImportProblem(bundle, "etl.py", 3, "NameError: name 'x' is not defined", "", True, now, now)
    gone.state.put(problem)
    gone.tick()
    why = f"etl.py of the bundle {bundle!r} can't be read (line 3: {problem.message}); inactive since {now:%Y}"
    here = browser(gone)
    listed = here.get("/api/v1/dags?active=false").json()["items"][0]["inactive_reason"]
    assert [why in one for one in (listed, here.get("/api/v1/dags/etl").json()["inactive_reason"])] == [True, True]
    assert why in here.post("/api/v1/dags/etl/runs", json={}).json()["detail"]
    gone.ask("dag.pause", dag_id="etl")
    gone.drain()
    assert why in gone.store.read(Response, [Condition("kind", "=", "dag.pause")])[-1].message
    gone.state.put(problem.evolve(is_current=False))
    gone.tick()
    assert NOTE in here.get("/api/v1/dags/etl").json()["inactive_reason"], "it was mended, and makes other DAGs now"


def test_the_api_tells_of_it_and_lists_it_when_asked(gone: InMemoryManager) -> None:
    here = browser(gone)
    one = here.get("/api/v1/dags/etl").json()
    assert (one["is_active"], one["next_due_at"]) == (False, None)
    assert "is gone or no longer defines it" in one["inactive_reason"]
    assert one["inactive_since"] == one["updated_at"]

    def listed(query: str) -> list[str]:
        return [dag["dag_id"] for dag in here.get(f"/api/v1/dags{query}").json()["items"]]

    assert (listed(""), listed("?active=true")) == (["stays"], ["stays"])
    assert (listed("?active=false"), listed("?active=all")) == (["etl"], ["etl", "stays"])
    assert here.get("/api/v1/dags?active=maybe").status_code == 422
    for part in ("runs", "grid", "timeline", "versions", "next"):
        assert here.get(f"/api/v1/dags/etl/{part}").status_code == 200, part
    assert here.get("/api/v1/dags/etl/next?n=5").json() == []
    assert here.get("/api/v1/dags/nope").status_code == 404


def test_a_pool_that_does_not_exist_is_shown_on_the_page_of_a_dag_that_names_it() -> None:
    manager = InMemoryManager(dag_spec("etl", "fetch", "clean", each={"fetch": {"pool": "slow"}}))
    pages = browser(manager)
    note = "Tasks that name it fail when they start: fetch."
    assert note in pages.get("/dags/etl").text
    manager.state.put(Pool(name="slow", slots=1, weight=1, min_share=0))
    manager.tick()
    assert note not in pages.get("/dags/etl").text
