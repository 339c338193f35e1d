"""The page *Backfills*."""

from __future__ import annotations

from fastapi.testclient import TestClient
from support.backfill_pages import (
    page_of,
    partitions,
    run_some,
)

from backfill_manager.testing import InMemoryManager


def test_an_empty_list_says_how_to_make_one(empty: TestClient) -> None:
    page = page_of(empty, "/backfills")
    assert "No backfills yet" in page.root.whole_text
    assert "/backfills/new" in page.links
    assert "No DAGs yet" in page_of(empty, "/backfills/new").root.whole_text


def test_the_list_tells_of_each_how_far_it_is_and_who_asked(manager: InMemoryManager, browser: TestClient) -> None:
    done = run_some(manager)
    failed = run_some(manager, "2013-02-01", n=4, failing=1)
    live = partitions(manager, "north", "south/west")
    manager.tick()
    page = page_of(browser, "/backfills")
    assert {f"/backfills/{one}" for one in (done, failed, live)} <= set(page.links)
    rows = {one.attributes.get("id"): one for one in page.root.find("tr")}
    assert "6 of 6 items" in rows[f"b-{done}"].whole_text
    assert "1 failed" in rows[f"b-{failed}"].whole_text
    assert "2 partitions" in rows[f"b-{live}"].whole_text
    (bar,) = [one for one in rows[f"b-{failed}"].find("svg") if one.attributes.get("class") == "progress"]
    assert bar.attributes["aria-label"] == "items: 3 success, 1 failed"
    assert [one.attributes["class"] for one in bar.find("rect")] == ["rail", "s-success", "s-failed"]


def test_the_list_is_filtered_by_dag_and_state(manager: InMemoryManager, browser: TestClient) -> None:
    done, live = run_some(manager), manager.backfill("regions", keys=["north"])
    manager.tick()
    assert f"/backfills/{live}" not in page_of(browser, "/backfills?dag=flights").links
    running = page_of(browser, "/backfills?state=running&state=paused")
    assert f"/backfills/{live}" in running.links
    assert f"/backfills/{done}" not in running.links
    assert "No matching backfills" in page_of(browser, "/backfills?dag=flights&state=failed").root.whole_text
    assert "'nonsense'" in page_of(browser, "/backfills?state=nonsense", 422).root.whole_text
    assert "cursor" in page_of(browser, "/backfills?after=nonsense", 422).root.whole_text


def test_the_list_goes_on_page_by_page(manager: InMemoryManager, browser: TestClient) -> None:
    made = [run_some(manager, n=1) for _ in range(30)]
    seen, address = [], "/backfills"
    while True:
        page = page_of(browser, address)
        seen += [str(one.attributes["id"])[2:] for one in page.root.find("tr") if one.attributes.get("id")]
        following = [one for one in page.root.find("a") if one.attributes.get("rel") == "next"]
        if not following:
            break
        address = str(following[0].attributes["href"])
    assert sorted(seen) == sorted(made)


def test_one_that_waits_for_the_manager_is_shown_as_such(manager: InMemoryManager, browser: TestClient) -> None:
    ask = {
        "dag_id": "flights",
        "kind": "schedule",
        "start_date": "2013-01-01T05:00:00Z",
        "end_date": "2013-01-31T05:00:00Z",
    }
    manager.ask("backfill.create", backfill_id="asked1", ask=ask)
    page = page_of(browser, "/backfills")
    assert "waiting for the manager" in page.root.whole_text
    assert "queued 1" in " ".join(page.root.whole_text.split()), "it is counted, too"
    assert [one.attributes["value"] for one in page.root.find("option")][-2:] == ["", "flights"]
    page = page_of(browser, "/backfills/asked1")
    assert "not planned yet" in page.root.whole_text
    assert "every interval from 2013-01-01 to 2013-01-31" in page.root.whole_text
