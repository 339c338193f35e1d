"""The page of a task: its log as a file, the durations of its last runs, its result and its SQL."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.execution.messages import Succeeded
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web.pages import run

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"


def test_the_log_is_a_text_file_of_all_attempts_or_of_one(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOG_LINES", 2)  # so that it is read in pieces
    whole = busy.get(f"{RUN}/tasks/clean/log.txt")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    name = "shop-backfill__2024-01-13T00_00_00Z-clean"
    assert whole.headers["content-disposition"] == f'attachment; filename="{name}.log"'
    lines = whole.text.splitlines()
    assert [line.partition("Z ")[2] or line for line in lines] == [
        line
        for n in (1, 2)
        for line in (
            f"--- attempt {n}, start {n} ---", "INFO     336,776 rows read",
            "WARNING  3 rows <without> an order number", "INFO     written",
        )
    ]  # fmt: skip
    second = busy.get(f"{RUN}/tasks/clean/log.txt?try=2")
    assert second.text.splitlines() == lines[4:]
    assert f'filename="{name}-try-2.log"' in second.headers["content-disposition"]
    assert busy.get(f"{RUN}/tasks/nothing/log.txt").status_code == 404
    assert busy.get(f"{RUN}/tasks/publish/log.txt").text == ""


def test_a_file_of_too_many_lines_is_cut_and_says_so(busy: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOG_LINES", 2)
    monkeypatch.setattr(run, "MAX_DOWNLOAD", 4)
    *lines, last = busy.get(f"{RUN}/tasks/clean/log.txt").text.splitlines()
    assert last == "--- cut after 4 lines; download single attempts ---"
    assert len([line for line in lines if not line.startswith("---")]) == 4


def test_each_line_has_its_own_address(busy: TestClient, busy_ground_of_module: InMemoryManager) -> None:
    page = Page(busy.get(f"{RUN}/tasks/clean").text)
    numbers = [one for one in page.root.all() if one.attributes.get("class") == "line-number"]
    assert [one.attributes["href"] for one in numbers] == ["#L1", "#L2", "#L3", "#L2.1", "#L2.2", "#L2.3"]
    assert {f"#{one.attributes['id']}" for one in page.root.all() if one.attributes.get("id")} >= {
        one.attributes["href"] for one in numbers
    }


def test_the_durations_of_the_last_runs_lead_to_them(busy: TestClient) -> None:
    page = Page(busy.get(f"{RUN}/tasks/clean").text)
    (card,) = (one for one in page.root.all() if one.attributes.get("id") == "task-durations")
    (picture,) = card.find("svg")[:1]
    bars = picture.find("a")
    assert 1 < len(bars) <= run.MAX_DURATIONS
    links = [str(bar.attributes["href"]) for bar in bars]
    assert [row.find("a")[0].attributes["href"] for row in card.find("tbody")[0].find("tr")] == links[::-1]
    (here,) = (bar for bar in bars if bar.attributes.get("aria-current"))
    assert here.attributes["href"] == f"{RUN}/tasks/clean"
    assert str(here.attributes["aria-label"]).startswith("backfill__2024-01-13T00:00:00Z: success, ")
    assert {busy.get(link).status_code for link in links[:3]} == {200}


def test_a_result_is_a_tree_and_of_a_long_list_the_first_are_shown(busy: TestClient) -> None:
    page = Page(busy.get(f"{RUN}/tasks/publish").text)
    (card,) = (one for one in page.root.all() if one.attributes.get("id") == "task-result")
    top, *nested = card.find("details")
    assert ["open" in one.attributes for one in (top, *nested)] == [True, False, False]
    assert [one.find("summary")[0].whole_text for one in (top, *nested)] == [
        "4 keys", "by_country 2 keys", "files 250 elements"
    ]  # fmt: skip
    assert nested[1].whole_text.endswith('199 "part-199" 50 more, not shown')
    assert '"<b>"' in top.whole_text


def test_the_sql_of_a_run_has_its_values_and_no_secrets() -> None:
    where = "WHERE day = {{ interval.start | date }} AND at >= :interval_start"
    sql = f"SELECT *\nFROM read('x', password => 'hidden-one')\n{where}"
    spec = dag_spec(
        "d", "load", "after", each={"load": {"kind": "sql", "sql": sql}}, params={"api_token": "hidden-two"}
    )
    manager = InMemoryManager(spec, clock=FakeClock())
    manager.backfill("d", days("2013-01-05", 1))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    text = browser.get("/dags/d/runs/latest/tasks/load", follow_redirects=True).text
    page = Page(text)
    (card,) = (one for one in page.root.all() if one.attributes.get("id") == "task-sql")
    lines = [one.whole_text for one in card.find("span") if one.attributes.get("class") == "code-line"]
    assert lines == [
        "SELECT *", "FROM read('***', password => '***')", "WHERE day = DATE '2013-01-05' AND at >= :interval_start"
    ]  # fmt: skip
    values = [tuple(cell.whole_text for cell in row.find("td")) for row in card.find("tbody")[0].find("tr")]
    assert (":interval_start", "TIMESTAMP '2013-01-05T00:00:00Z'") in values
    assert (":api_token", "***") in values
    assert "hidden-" not in text and wrongs(page) == []
    assert "task-sql" not in browser.get("/dags/d/runs/latest/tasks/after", follow_redirects=True).text


def test_clear_takes_the_task_of_this_name_alone() -> None:
    manager = InMemoryManager(dag_spec("shops", "load.a", "load_a"), clock=FakeClock())
    manager.backfill("shops", days("2024-01-05", 1))
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    page = Page(browser.get("/dags/shops/runs/backfill__2024-01-05T00:00:00Z/tasks/load.a").text)
    (clear,) = [one.attributes["href"] for one in page.root.find("a") if one.whole_text == "Clear…"]
    assert "1 task of 1 run" in Page(browser.get(str(clear)).text).root.whole_text


def test_a_long_text_as_a_result_is_cut_as_in_a_tree() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: Succeeded(json.dumps("x" * 900_000)))
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    page = browser_of(manager.store, manager.clock).get("/dags/d/runs/backfill__2024-01-01T00:00:00Z/tasks/a").text
    assert "(900,002 characters)" in page and len(page) < 100_000


def test_upstream_tasks_that_the_run_has_not_are_no_links() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}), script=lambda _: Succeeded())
    manager.backfill("d", days("2024-01-01", 1))
    manager.ask("task.run", dag_id="d", task_id="b", logical_date="2024-01-02T00:00:00Z", conf={})
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    links = {}
    for run_id in [row.run_id for row in manager.runs("d")]:
        page = Page(browser.get(f"/dags/d/runs/{run_id}/tasks/b").text)
        (facts,) = (one for one in page.root.all() if one.attributes.get("id") == "task-facts")
        assert "Upstream a" in facts.whole_text
        links[run_id] = [one.attributes["href"] for one in facts.find("a") if one.whole_text == "a"]
    whole, of_one_task = links
    assert links == {whole: [f"/dags/d/runs/{whole}/tasks/a"], of_one_task: []}
