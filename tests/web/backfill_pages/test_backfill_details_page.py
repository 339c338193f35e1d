"""The page of one backfill: its items, what can be done, what is read for it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    followed,
    map_of,
    page_of,
    partitions,
    put,
    queued_request,
    run_some,
    sent,
    text_of,
)
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.clock import SystemClock
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRun,
    Manager,
)
from backfill_manager.schemas.errors import KIND_IMPLIES_REPROCESS
from backfill_manager.store.base import Condition
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.testing import InMemoryManager, dag_spec, days
from backfill_manager.web.page import message_of
from backfill_manager.web.pages.backfills import rate


def buttons(page: Page) -> list[str]:
    return [one.whole_text for one in page.root.find("button") if one.whole_text]


class Readings:
    """Counts reads by table since the last call."""

    def __init__(self, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seen: Counter[str] = Counter()
        self._inside = False
        for name in ("read", "read_arrow", "count"):
            monkeypatch.setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, reading: Callable[..., Any]) -> Callable[..., Any]:
        def counted(what: Any, *more: Any, **named: Any) -> Any:
            if self._inside:  # the store in memory reads Arrow by way of rows
                return reading(what, *more, **named)
            self._seen[what if isinstance(what, str) else what.TABLE] += 1
            self._inside = True
            try:
                return reading(what, *more, **named)
            finally:
                self._inside = False

        return counted

    def __call__(self) -> dict[str, int]:
        seen = dict(self._seen)
        self._seen.clear()
        return seen


def test_a_running_backfill_shows_its_items_and_what_can_be_done(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 12), max_active_runs=3)
    manager.tick()
    page = page_of(browser, f"/backfills/{one}")
    assert "0 of 12 items done" in page.root.whole_text
    assert {"Pause", "Cancel and stop running items", "Cancel, let running items finish"} <= set(buttons(page))
    assert "Retry failed items" not in buttons(page)
    drawn = json.loads(map_of(page))
    assert (drawn["per"], len(drawn["cells"]), drawn["begins"][0]) == (1, 12, "2012-12-31 19:00 EST")
    assert sum(counts[drawn["states"].index("running")] for counts in drawn["cells"]) == 3
    assert "1 to 12" in page.root.whole_text


def test_a_failed_backfill_says_why_and_can_be_retried(manager: InMemoryManager, browser: TestClient) -> None:
    one = run_some(manager, n=5, failing=2)
    page = page_of(browser, f"/backfills/{one}")
    assert "Retry failed items" in buttons(page)
    assert "Pause" not in buttons(page)
    assert "Reasons" in text_of(page, "backfill-reasons")
    (log,) = [link for link in page.root.all() if link.attributes.get("title") == "The log of the first of them"]
    assert "/tasks/" in (log.attributes["href"] or "")
    failed = page_of(browser, f"/backfills/{one}?state=failed")
    assert text_of(failed, "items").count("failed") >= 2
    assert "success" not in [cell.whole_text for cell in failed.root.find("td")]
    where, back = followed(browser, f"/backfills/{one}/retry", back=f"/backfills/{one}")
    assert queued_request(manager) == (
        "backfill.retry",
        {"backfill_id": one, "latest_version": False, "downstream": False},
    )
    assert where.startswith(f"/backfills/{one}?request_id=")
    assert "Submitted, waiting for the manager" in back.root.whole_text


def test_a_cancelled_backfill_and_a_partition_with_a_slash(manager: InMemoryManager, browser: TestClient) -> None:
    one = partitions(manager, "north", "south/west", "<b>50%</b>")
    manager.ask("backfill.cancel", backfill_id=one, let_running_finish=False)
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "cancelled" in text_of(page, "backfill-head")
    assert "<b>50%</b>" in text_of(page, "items")
    assert "Cancel…" not in page.root.whole_text
    assert "Retry failed items" not in buttons(page)  # none has failed
    assert json.loads(map_of(page))["begins"] == ["north", "south/west", "<b>50%</b>"]


def test_an_empty_plan_has_nothing_to_run(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", [])
    assert "No items to run" in page_of(browser, f"/backfills/{one}").root.whole_text


def test_a_cell_leads_to_its_run_or_to_the_item_without_one(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4), max_active_runs=1)
    manager.tick()
    there = browser.get(f"/backfills/{one}/items/1").headers["location"]
    assert there.startswith("/dags/flights/runs/backfill__2013-01-01")
    assert browser.get(f"/backfills/{one}/items/4").headers["location"] == f"/backfills/{one}?from=4&to=4#items"
    assert "Items 4" in text_of(page_of(browser, f"/backfills/{one}?from=4&to=4"), "items")
    assert "'99'" in page_of(browser, f"/backfills/{one}/items/99", 404).root.whole_text


def test_a_range_that_is_not_there_is_reported(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    assert "1 to 4" in page_of(browser, f"/backfills/{one}?from=9", 422).root.whole_text
    assert page_of(browser, f"/backfills/{one}?from=many", 422)
    assert page_of(browser, f"/backfills/{one}?state=nonsense", 422)
    assert "There is no backfill 'nobody'" in page_of(browser, "/backfills/nobody", 404).root.whole_text


def test_the_beginning_of_an_id_and_latest_lead_to_the_whole_address(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    for expected in ("latest", one[:11]):
        assert browser.get(f"/backfills/{expected}").headers["location"] == f"/backfills/{one}"


@pytest.mark.parametrize("kind", ["missing", "stale", "outdated"])
def test_a_kind_that_chooses_among_runs_says_which_it_does_again(
    manager: InMemoryManager, browser: TestClient, kind: str
) -> None:
    form = {"dag": "flights", "kind": kind, "start_date": "2013-01-01", "end_date": "2013-01-03", "do": "create"}
    address, _ = followed(browser, "/backfills/new", **form)
    manager.drain()
    facts = [one.whole_text for one in page_of(browser, address.partition("?")[0]).root.find("div")]
    assert f"Reprocess reprocessed if {kind}" in facts


def test_a_cascade_links_both_ways(manager: InMemoryManager, browser: TestClient) -> None:
    parent = manager.backfill("flights", days("2013-01-01", 2))
    child = manager.backfill("regions", keys=["north"], parents_json=json.dumps([parent]))
    assert f"/backfills/{child}" in page_of(browser, f"/backfills/{parent}").links
    assert f"/backfills/{parent}" in page_of(browser, f"/backfills/{child}").links


@pytest.mark.parametrize(
    ("verb", "form", "kind", "payload"),
    [
        ("pause", {}, "backfill.pause", {}),
        ("unpause", {}, "backfill.unpause", {}),
        ("cancel", {"running": "stop"}, "backfill.cancel", {"let_running_finish": False}),
        ("cancel", {"running": "finish"}, "backfill.cancel", {"let_running_finish": True}),
    ],
)
def test_the_buttons_ask_the_manager(
    manager: InMemoryManager, browser: TestClient, verb: str, form: dict[str, str], kind: str, payload: dict[str, Any]
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    followed(browser, f"/backfills/{one}/{verb}", **form)
    assert queued_request(manager) == (kind, {"backfill_id": one, **payload})


def test_a_retry_offers_the_current_version_and_the_backfills_below_that_failed(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = run_some(manager, n=2, failing=1)
    below = manager.backfill("regions", keys=["north"], parents_json=json.dumps([one]))
    manager.add_dag(dag_spec("flights", "fixed"))
    manager.drain()
    put(manager.leader, manager.row(below).evolve(state="failed"))
    page = page_of(browser, f"/backfills/{one}")
    version = manager.row(one).dag_version
    assert f"with version {version} of flights" in text_of(page, "retry")
    assert f"With version {version + 1}, the current one" in text_of(page, "retry")
    assert "Downstream backfills that failed, too: regions" in text_of(page, "retry")
    followed(browser, f"/backfills/{one}/retry", latest_version="true", downstream="true")
    assert queued_request(manager) == (
        "backfill.retry",
        {"backfill_id": one, "latest_version": True, "downstream": True},
    )


def test_paused_and_unpaused_it_says_so(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4), max_active_runs=1)
    manager.tick()
    where, _ = followed(browser, f"/backfills/{one}/pause")
    manager.drain()
    page = page_of(browser, where)
    assert "Done" in text_of(page, "flash")
    assert "paused" in text_of(page, "backfill-head")
    assert "Unpause" in buttons(page)
    followed(browser, f"/backfills/{one}/unpause")
    manager.drain()
    assert "Pause" in buttons(page_of(browser, f"/backfills/{one}"))


@pytest.mark.parametrize(("running", "word"), [("stop", "cancelling"), ("finish", "running")])
def test_one_that_was_paused_and_is_cancelled_is_not_shown_as_paused(
    manager: InMemoryManager, browser: TestClient, running: str, word: str
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4), max_active_runs=1)
    manager.drain()
    manager.ask("backfill.pause", backfill_id=one)
    manager.drain()
    followed(browser, f"/backfills/{one}/cancel", running=running)
    manager.tick()
    page = page_of(browser, f"/backfills/{one}")
    assert not {"Pause", "Unpause"} & set(buttons(page))
    for there, place in (("", "backfill-head"), ("/settings", "content")):
        shown = text_of(page_of(browser, f"/backfills/{one}{there}"), place)
        assert word in shown and "paused" not in shown
    for there, place in (("/", "home-backfills"), ("/backfills", "backfills")):
        assert word in text_of(page_of(browser, there), place)


def test_what_can_not_be_done_any_more_is_refused_on_a_page(manager: InMemoryManager, browser: TestClient) -> None:
    one = run_some(manager)
    for verb in ("pause", "unpause", "cancel", "retry"):
        page = sent(browser, f"/backfills/{one}/{verb}", 409)
        assert "there is nothing to" in page.root.whole_text
    assert "has ended" in page_of(browser, f"/backfills/{one}/settings").root.whole_text


def test_every_link_of_these_pages_leads_somewhere(manager: InMemoryManager, browser: TestClient) -> None:
    run_some(manager, n=30, failing=2)
    parent = partitions(manager, "north", "south/west", "50% off?")
    manager.backfill("flights", days("2013-06-01", 3), parents_json=json.dumps([parent]), max_active_runs=1)
    manager.tick()
    waiting, seen, dead = ["/backfills"], set[str](), dict[str, int]()
    while waiting:
        here = waiting.pop()
        answer = browser.get(here, follow_redirects=True)
        if answer.status_code != 200:
            dead[here] = answer.status_code
        if here.startswith("/backfills"):
            links = {urldefrag(urljoin(f"http://localhost{here}", link)).url for link in Page(answer.text).links}
            found = {link.removeprefix("http://localhost") for link in links}
            waiting += found - seen
            seen |= found
    assert dead == {}
    assert len(seen) > 60


def big_state(place: Path, items: int) -> tuple[DeltaRsStore, str]:
    """A backfill of so many hours, two thirds of them done: one failed, some are running."""
    clock = SystemClock()
    store = DeltaRsStore(str(place), clock=clock)
    store.init()
    now = clock.now()
    leader = store.lead(
        Manager(term=1, manager_id="m", host="here", pid=1, state="leading", started_at=now, heartbeat_at=now, lease_s=600,
                version="test")
    )  # fmt: skip
    seq = leader.next_seq(items + 1)
    ordinals = np.arange(1, items + 1)
    at_work = 2 * items // 3
    states = np.where(ordinals <= at_work, "success", "pending").astype(object)
    states[at_work : at_work + 16], states[items // 2] = "running", "failed"
    at = pa.array(ordinals * 60_000_000, pa.timestamp("us", tz="UTC"))
    columns: dict[str, Any] = {
        "backfill_id": pa.repeat("big", items), "ordinal": ordinals, "state": pa.array(states, pa.string()),
        "run_seq": seq + ordinals - 1, "logical_date": at, "interval_start": at, "interval_end": at,
    }  # fmt: skip
    schema = arrow_schema(BackfillItem)
    table = [columns.get(field.name, pa.nulls(items, field.type)) for field in schema]
    leader.append_items(pa.table(table, schema=schema))
    config = {"type": "schedule", "start_date": "1970-01-01T00:01:00Z", "end_date": None, "run_backwards": False}
    put(
        leader,
        Backfill(backfill_id="big", dag_id="hours", state="running", config_json=json.dumps(config), reprocess="none",
                 max_active_runs=16, priority=0, pool="backfill", is_paused=False, created_at=now, started_at=now,
                 run_seq=seq + items, planned=items, dag_version=1, created_by="ada"),
    )  # fmt: skip
    return store, "big"


@pytest.mark.parametrize("items", [100_000, 1_000_000])
def test_a_backfill_of_very_many_items_is_drawn_in_some_hundred_cells(tmp_path: Path, items: int) -> None:
    store, one = big_state(tmp_path / "state", items)
    browser = browser_of(store, SystemClock())
    for look in ("first", "again"):
        begun = time.perf_counter()
        answer = browser.get(f"/backfills/{one}")
        print(f"{items:,} items, {look}: {time.perf_counter() - begun:.3f} s, {len(answer.content):,} bytes")
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    drawn = json.loads(map_of(page))
    per = items // 1000
    assert (drawn["per"], len(drawn["cells"])) == (per, 1000)
    assert sum(map(sum, drawn["cells"])) == items
    (failed,) = [n for n, counts in enumerate(drawn["cells"]) if counts[drawn["states"].index("failed")]]
    assert len(answer.content) < 300_000

    first = failed * per + 1
    closer = page_of(browser, f"/backfills/{one}?from={first}&to={first + per - 1}")
    drawn = json.loads(map_of(closer))
    assert (drawn["per"], len(drawn["cells"])) == (1, per)
    assert f"/backfills/{one}" in closer.links  # and back to all
    begun = time.perf_counter()
    last = page_of(browser, f"/backfills/{one}?state=failed&after={items // 2 - 1}")
    print(f"{items:,} items, the failed one: {time.perf_counter() - begun:.3f} s")
    assert f"{items // 2 + 1:,}" in text_of(last, "items")


@pytest.mark.parametrize(
    ("per_minute", "text"),
    [(None, ""), (600.0, "10 per second"), (60.0, "1 per second"), (12.0, "12 per minute"), (0.5, "30 per hour"),
     (0.001, "one in 16 h 40 min")],
)  # fmt: skip
def test_a_rate(per_minute: float | None, text: str) -> None:
    assert rate(per_minute) == text


def test_messages_name_fields_by_their_labels() -> None:
    error = KIND_IMPLIES_REPROCESS(kind="missing", reprocess="completed")
    assert "“Reprocess”" in message_of(error) and "[" not in message_of(error)


def test_a_page_is_read_once_for_each_change_and_only_what_has_changed(
    manager: InMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run_some(manager, n=6, failing=2)
    browser, readings = browser_of(manager.store, manager.clock), Readings(manager.store, monkeypatch)
    page_of(browser, f"/backfills/{one}")
    page_of(browser, "/backfills")
    assert readings()["backfill_item"] == 4, "numbers, map and reasons in one; a page of them; the failed; the list"

    page_of(browser, f"/backfills/{one}")
    page_of(browser, "/backfills")
    assert readings() == {}

    [item] = manager.store.read(BackfillItem, [Condition("ordinal", "=", 6)])
    readings()
    put(manager.leader, item.evolve(state="success", reason=None))
    page = page_of(browser, f"/backfills/{one}")
    assert "5 success" in page.root.whole_text and "1 failed" in page.root.whole_text
    assert readings() == {"backfill_item": 3, "task_instance": 1}, (
        "the map, the page, and the errors of what has failed"
    )
    assert "1 failed" in page_of(browser, "/backfills").root.whole_text


def test_the_time_left_goes_with_the_items_and_the_pace_is_read_every_few_seconds(
    manager: InMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, began = manager.backfill("flights", days("2013-01-01", 10)), manager.clock.now()
    put(manager.leader, manager.row(one).evolve(state="running", started_at=began))
    browser, readings = browser_of(manager.store, manager.clock), Readings(manager.store, monkeypatch)

    def ends(ordinal: int) -> None:
        item = manager.items(one)[ordinal - 1]
        run = DagRun("flights", f"r{ordinal}", "backfill", "success", 1, item.run_seq, began, backfill_id=one,
                     started_at=began, ended_at=manager.clock.now())  # fmt: skip
        put(manager.leader, item.evolve(state="success", run_id=run.run_id), run)
        readings()

    def time_left() -> str:
        facts = page_of(browser, f"/backfills/{one}").root.find("dl")[0].whole_text
        return facts.removeprefix("Time left ").partition(" until")[0]

    manager.clock.advance(seconds=10)
    ends(1)
    reverts = 1  # the first item with a run has them read
    assert (time_left(), readings()["dag_run"] - reverts) == ("1 min 30 s", 1), "nine to come, 10 s each"
    ends(2)
    assert (time_left(), readings()) == ("1 min 20 s", {"backfill_item": 2}), "eight, at the pace that is known"
    manager.clock.advance(seconds=6)
    assert (time_left(), readings()) == ("1 min 4 s", {"dag_run": 1}), "two in 16 s"
