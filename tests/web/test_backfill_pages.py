"""Pages *Backfills*, backfill details, settings and *New backfill*, with and without scripts."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urldefrag, urljoin, urlsplit

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.execution.messages import Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    AUTO_BATCH,
    Backfill,
    BackfillItem,
    DagRun,
    Manager,
    Record,
    Request,
    Response,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.requests import submit
from backfill_manager.schemas.backfill_options import UPDATABLE_FIELDS, CreateBackfill
from backfill_manager.schemas.errors import KIND_IMPLIES_REPROCESS
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web.page import message_of
from backfill_manager.web.pages import backfill_forms
from backfill_manager.web.pages.backfills import rate
from backfill_manager.web.pages.form_fields import SETTINGS, as_typed, read_settings

SPECS = (
    dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}, batchable=True, description="Flights of a day",
             start_date=datetime(2013, 1, 1, 5, tzinfo=UTC), end_date=datetime(2013, 12, 31, 5, tzinfo=UTC),
             timezone="America/New_York", schedule="@daily"),
    dag_spec("regions", "load", schedule=None, params={"full": False}),
)  # fmt: skip


@pytest.fixture
def manager() -> InMemoryManager:
    """Nothing has run yet; tasks run until a test ends them."""
    return InMemoryManager(*SPECS, script=lambda launch: None, clock=FakeClock(datetime(2024, 1, 31, 12, tzinfo=UTC)))


@pytest.fixture
def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, SystemClock())


def page_of(browser: TestClient, address: str, status: int = 200) -> Page:
    answer = browser.get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, []), address
    return page


def sent(browser: TestClient, address: str, status: int, **form: Any) -> Page:
    """Submits a form that is answered with a page."""
    answer = browser.post(address, data=form)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (status, [])
    return page


def followed(browser: TestClient, address: str, **form: Any) -> tuple[str, Page]:
    """Submits a form that redirects; returns the address and the page there."""
    answer = browser.post(address, data=form)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"], page_of(browser, answer.headers["location"])


def fields_of(page: Page, form: str) -> dict[str, str]:
    """The fields that a browser would submit of this form if nothing was edited."""
    (found,) = [one for one in page.forms if form in (one.attributes.get("id"), one.attributes.get("action"))]
    sent: dict[str, str] = {}
    for one in found.find("input"):
        if one.attributes.get("type") not in ("checkbox", "radio") or "checked" in one.attributes:
            sent[str(one.attributes["name"])] = one.attributes.get("value") or ""
    for one in found.find("textarea"):
        sent[str(one.attributes["name"])] = one.whole_text
    for one in found.find("select"):
        options = one.find("option")
        chosen = [option for option in options if "selected" in option.attributes] or options[:1]
        sent[str(one.attributes["name"])] = chosen[0].attributes.get("value") or chosen[0].whole_text
    return sent


def text_of(page: Page, id_: str) -> str:
    return next(one for one in page.root.all() if one.attributes.get("id") == id_).whole_text


def buttons(page: Page) -> list[str]:
    return [one.whole_text for one in page.root.find("button") if one.whole_text]


def queued_request(manager: InMemoryManager) -> tuple[str, dict[str, Any]]:
    row = manager.store.read(Request)[-1]
    return row.kind, json.loads(row.payload_json)


def put(leader: Leader, *rows: Record) -> None:
    changes = Changes()
    for row in rows:
        changes.put(row)
    leader.commit(changes)


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


def run_some(
    manager: InMemoryManager, first: str = "2013-01-01", *, n: int = 6, failing: int = 0, **fields: Any
) -> str:
    """A backfill of `n` days from `first` whose tasks have all ended; the last `failing` days failed."""
    from backfill_manager.execution.messages import Failed, Succeeded

    bad = {end for _, end in days(first, n)[n - failing :]} if failing else set()
    manager.script = lambda launch: Failed("ValueError: no rows") if launch.run.interval_end in bad else Succeeded()
    made = manager.backfill("flights", days(first, n), **fields)
    manager.drain()
    manager.script = lambda launch: None
    return made


def partitions(manager: InMemoryManager, *keys: str) -> str:
    config = {"type": "partitions", "partitions": keys, "run_backwards": False}
    return manager.backfill("regions", keys=keys, config_json=json.dumps(config))


# -- the list ---------------------------------------------------------------------------------------------------------


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


# -- one backfill -----------------------------------------------------------------------------------------------------


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


def map_of(page: Page) -> str:
    (found,) = [one.attributes["data-map"] for one in page.root.all() if "data-map" in one.attributes]
    return str(found)


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


# -- many items -------------------------------------------------------------------------------------------------------


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


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_setting_is_changed_while_it_runs(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changed = {"priority": "7", "max_active_runs": "2", "overrides": "retries=3\nclean.timeout=600", "is_polite": "on",
               "conf": '{"full": true}', "window": "20:00-06:00"}  # fmt: skip
    where, _ = followed(browser, f"/backfills/{one}/settings", **{**form, **changed})
    assert queued_request(manager) == (
        "backfill.set",
        {
            "backfill_id": one,
            "changes": {"priority": 7, "max_active_runs": 2, "overrides": {"retries": 3, "clean.timeout": 600},
                        "is_polite": True, "conf": {"full": True}, "window": "20:00-06:00"},
            "was": {"priority": 0, "max_active_runs": 16, "overrides": {}, "is_polite": False, "conf": {}, "window": None},
        },
    )  # fmt: skip
    manager.drain()
    page = page_of(browser, where)
    assert "Done" in text_of(page, "flash")
    zoned = "20:00-06:00 America/New_York"
    assert zoned in text_of(page, "backfill-settings")
    assert any(f"window: {zoned}" in answer.message for answer in manager.store.read(Response))
    for form_of in (f"/backfills/{one}/settings", "/backfills/new?dag=flights"):
        assert text_of(page_of(browser, form_of), "hint-window").endswith("Zone: America/New_York.")
    again = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    assert (again["priority"], again["overrides"].split()) == ("7", ["clean.timeout=600", "retries=3"])


def test_outside_its_window_it_says_until_when_it_waits(manager: InMemoryManager, browser: TestClient) -> None:
    manager.clock.advance(hours=12)
    one = manager.backfill("flights", days("2013-01-01", 4), window="20:00-06:00")
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "Waits for its time window, 20:00-06:00 America/New_York, until 31 Jan 2024, 20:00" in text_of(
        page, "backfill-progress"
    )
    assert "waits for its time window, 20:00-06:00 America/New_York, until 31 Jan 2024" in text_of(
        page_of(browser, "/backfills"), f"b-{one}"
    )
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    followed(browser, f"/backfills/{one}/settings", **{**form, "window": ""})
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "Waits" not in text_of(page, "backfill-progress") and "any time" in text_of(page, "backfill-settings")


def test_nothing_changed_asks_for_nothing(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    where, _ = followed(browser, f"/backfills/{one}/settings", **form)
    assert where == f"/backfills/{one}"
    assert manager.store.read(Request) == []


def test_wrong_settings_are_reported_by_field_and_nothing_typed_is_lost(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    wrong = {"priority": "much", "batch": "0", "overrides": "retries", "conf": "{full", "tasks": "keep.*me"}
    page = sent(browser, f"/backfills/{one}/settings", 422, **{**form, **wrong})
    assert text_of(page, "error-priority") == "“Priority” must be a whole number, not 'much'."
    assert text_of(page, "error-batch") == "“Batch” must be a whole number of 1 to 1,000,000,000, or `auto`, not 0."
    assert "must be NAME=VALUE" in text_of(page, "error-overrides")
    assert "is not JSON" in text_of(page, "error-conf")
    again = fields_of(page, "settings-form")
    assert {name: again[name] for name in wrong} == wrong
    assert manager.store.read(Request) == []


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("tasks", "nothing_has_this", "matches no task of DAG 'flights'"),
        ("tasks", "(((", "is not a regular expression"),
        ("window", "25:00-26:00", "20:00-06:00"),
        ("pool", "nopool", "There is no pool 'nopool'"),
        ("pool", "backfil", "There is no pool 'backfil'; did you mean 'backfill'?"),
        ("overrides", "colour=red", "is not a setting that a backfill can set"),
    ],
)
def test_settings_that_do_not_fit_the_dag_are_reported_at_their_field(
    manager: InMemoryManager, browser: TestClient, field: str, text: str, words: str
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    form = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    page = sent(browser, f"/backfills/{one}/settings", 422, **{**form, field: text})
    assert words in text_of(page, f"error-{field}")
    assert fields_of(page, "settings-form")[field] == text


def test_two_who_change_it_at_once_see_both_values_and_overwrite_nothing(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changes = {"priority": 3, "window": "20:00-06:00"}
    submit.submit(
        manager.store, manager.clock, "backfill.set", {"backfill_id": one, "changes": changes}, requested_by="grace"
    )
    manager.drain()
    before = len(manager.store.read(Request))

    page = sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9", "batch": "2"})
    assert "grace changed these settings meanwhile" in page.root.whole_text
    (rows,) = [table.find("tbody")[0].find("tr") for table in page.root.find("table")]
    assert [[cell.whole_text for cell in row.find("td")] for row in rows] == [
        ["Priority", "0", "3", "9"],
        ["Time window", "empty", "20:00-06:00", "unchanged: the form has the current value"],
    ]
    assert len(manager.store.read(Request)) == before
    assert find_backfill(manager.store, one)["priority"] == 3

    # What was typed is still there; sent once more it is decided.
    again = fields_of(page, "settings-form")
    assert (again["priority"], again["batch"], again["window"]) == ("9", "2", "20:00-06:00")
    followed(browser, f"/backfills/{one}/settings", **again)
    assert queued_request(manager)[1]["changes"] == {"priority": 9, "batch": 2}


def test_of_two_who_save_in_the_same_moment_the_second_sees_both_values(
    manager: InMemoryManager, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    plainly = manager.store.append_request

    def a_moment_later(request: Request) -> None:
        monkeypatch.setattr(manager.store, "append_request", plainly)
        hers = {"backfill_id": one, "changes": {"priority": 3, "batch": 2}, "was": {"priority": 0, "batch": 1}}
        submit.submit(manager.store, manager.clock, "backfill.set", hers, requested_by="grace")
        plainly(request)
        manager.drain()  # the manager answers both

    monkeypatch.setattr(manager.store, "append_request", a_moment_later)
    page = sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9", "window": "20:00-06:00"})

    assert text_of(page, "error-priority").startswith("“Priority” is 3 now, not 0: somebody has changed it")
    assert "grace changed these settings meanwhile" in page.root.whole_text
    (rows,) = [table.find("tbody")[0].find("tr") for table in page.root.find("table")]
    assert [[cell.whole_text for cell in row.find("td")] for row in rows] == [
        ["Batch", "1", "2", "unchanged: the form has the current value"],
        ["Priority", "0", "3", "9"],
    ]
    found = find_backfill(manager.store, one)
    assert (found["priority"], found["batch"], found["window"]) == (3, 2, None)

    # What was typed is still there; sent once more it is decided.
    again = fields_of(page, "settings-form")
    assert (again["priority"], again["batch"], again["window"]) == ("9", "2", "20:00-06:00")
    followed(browser, f"/backfills/{one}/settings", **again)
    manager.drain()
    found = find_backfill(manager.store, one)
    assert (found["priority"], found["batch"], found["window"]) == (9, 2, "20:00-06:00")


def test_a_change_that_waits_for_the_manager_counts_as_made(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    changes = {"backfill_id": one, "changes": {"priority": 3}}
    submit.submit(manager.store, manager.clock, "backfill.set", changes, requested_by="grace")
    page = page_of(browser, f"/backfills/{one}/settings")
    assert fields_of(page, "settings-form")["priority"] == "3"
    assert "Pending change by grace" in page.root.whole_text
    notice = browser.get(f"/backfills/{one}/settings/notice?drawn={mine['version'] or '-'}").text
    assert "grace requested a change to these settings" in notice
    again = fields_of(page, "settings-form")["version"]
    assert "grace" not in browser.get(f"/backfills/{one}/settings/notice", params={"drawn": again}).text
    assert sent(browser, f"/backfills/{one}/settings", 409, **{**mine, "priority": "9"})


def test_a_pause_by_another_is_no_conflict_of_settings(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    mine = fields_of(page_of(browser, f"/backfills/{one}/settings"), "settings-form")
    manager.ask("backfill.pause", backfill_id=one)
    manager.drain()
    followed(browser, f"/backfills/{one}/settings", **{**mine, "priority": "9"})
    assert queued_request(manager)[1]["changes"] == {"priority": 9}


def test_every_setting_is_read_back_as_it_is_shown() -> None:
    values = {
        "max_active_runs": 3, "priority": -2, "pool": "backfill", "batch": 7, "stop_on_failure": 4, "window": "20:00-06:00",
        "is_polite": True, "tasks": "^clean", "mark_success": False, "conf": {"a": [1, "ü"]}, "with_upstream": False,
        "with_downstream": True,
        "overrides": {"retries": 3, "clean.trigger_rule": "all_done", "clean.pool": "7", "x": None, "y": " b ", "z": "a\nb"},
        "batch_target": 90.5, "notify": "ops",
    }  # fmt: skip
    assert set(values) == set(UPDATABLE_FIELDS) == set(SETTINGS)
    errors: dict[str, str] = {}
    assert read_settings({name: as_typed(name, value) for name, value in values.items()}, errors) == values
    assert errors == {}
    typed = {"batch": "auto", "batch_target": "10 min", "pool": "backfill", "priority": "0"}
    found = read_settings(typed, errors)
    assert (found["batch"], found["batch_target"], errors) == ("auto", 600.0, {})


def test_a_backfill_whose_batches_size_themselves_shows_how_large_they_became(
    manager: InMemoryManager, browser: TestClient
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 40), batch=AUTO_BATCH, batch_target=90.0, max_active_runs=1)
    assert "auto, 1 min 30 s at most" in page_of(browser, f"/backfills/{one}").root.whole_text
    manager.script = lambda _: Succeeded()
    manager.drain()
    page = page_of(browser, f"/backfills/{one}")
    assert "auto: up to 19 intervals per run so far, 1 min 30 s at most" in page.root.whole_text
    two = manager.backfill("flights", days("2014-01-01", 3), batch=AUTO_BATCH, is_paused=True, state=s.PAUSED)
    form = fields_of(page_of(browser, f"/backfills/{two}/settings"), "settings-form")
    assert form["batch"] == "auto"
    followed(browser, f"/backfills/{two}/settings", **{**form, "batch": "3", "batch_target": "2 min"})
    assert queued_request(manager)[1]["changes"] == {"batch": 3, "batch_target": 120.0}


# -- a new one --------------------------------------------------------------------------------------------------------


class Hand:
    """Stands in for the planner, which needs Spark: answers each dry run with a plan of `days_` days."""

    def __init__(
        self,
        manager: InMemoryManager,
        monkeypatch: pytest.MonkeyPatch,
        days_: int = 31,
        refusal: BackfillManagerError | None = None,
    ) -> None:
        self.manager, self.days, self.refusal = manager, days_, refusal
        self.submitted: list[dict[str, Any]] = []
        plainly = manager.store.append_request

        def ask(request: Request) -> None:
            plainly(request)
            self.answer(request)

        monkeypatch.setattr(manager.store, "append_request", ask)

    def answer(self, request: Request) -> None:
        self.submitted.append(json.loads(request.payload_json)["ask"])
        outcome, message = ("refused", str(self.refusal)) if self.refusal else ("accepted", "planned, not made")
        error = (
            {
                "error_code": self.refusal.code,
                "error_field": self.refusal.field,
                "error_params": json.dumps(self.refusal.params),
            }
            if self.refusal
            else {}
        )
        put(
            self.manager.leader,
            Response(request_id=request.request_id, kind=request.kind, outcome=outcome, object_id=None, message=message,
                     payload_json=json.dumps(self.plan()), answered_at=request.requested_at, term=1, **error),
        )  # fmt: skip

    def plan(self) -> dict[str, Any]:
        items = [
            {"ordinal": k + 1, "logical_date": f"{start:%Y-%m-%dT05:00:00Z}", "partition_key": None, "batch": None,
             "state": "skipped" if k == 3 else "pending", "reason": "already exists" if k == 3 else None,
             "rows": 900 + k, "files": 1, "bytes": 50_000}
            for k, (start, _) in enumerate(days("2013-01-01", self.days))
        ]  # fmt: skip
        estimate = {
            "rows": 27004, "files": 3, "bytes": 1_500_000, "run_s": {"median": 2.0, "shortest": 1.0, "longest": 4.0},
            "total_s": 61.0, "finishes_at": None, "unknown": ["weather"],
        }  # fmt: skip
        summary = {
            "dag_id": "flights", "items": self.days, "pending": self.days - 1, "runs": self.days - 1,
            "skipped": {"already exists": 1}, "max_active_runs": 4, "estimate": estimate,
        }  # fmt: skip
        return {"items": items, "summary": summary, "downstream": []}


REGION = {"dag": "regions", "kind": "partitions", "partitions": "emea", "start_date": "", "end_date": ""}
FORM = {"dag": "flights", "sent": "1", "kind": "schedule", "reprocess": "none", "start_date": "2013-01-01",
        "end_date": "2013-01-31", "once": "abc"}  # fmt: skip


@pytest.fixture
def led(manager: InMemoryManager) -> TestClient:
    """A client by whose clock the manager is running."""
    row = manager.store.lease()
    assert row is not None
    clock = FakeClock(row.heartbeat_at + timedelta(milliseconds=5))
    return browser_of(manager.store, clock)


@pytest.fixture
def unled(manager: InMemoryManager) -> TestClient:
    """A client by whose clock the manager is gone."""
    row = manager.store.lease()
    assert row is not None
    return browser_of(manager.store, FakeClock(row.heartbeat_at + timedelta(hours=1)))


def test_a_large_plan_is_described_as_everywhere(led: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill_forms, "MAX_LIVE_ITEMS", 1)
    led.cookies.set("bfm-zone", "utc")
    shown = Page(led.post("/backfills/new/dry-run", data={**FORM, "zone": "America/New_York"}).text).root.whole_text
    assert "Every interval from 2013-01-01 05:00 UTC to " in shown and "Large plan" in shown


def test_the_form_begins_with_what_the_dag_and_the_link_say(browser: TestClient) -> None:
    page = page_of(browser, "/backfills/new?dag=flights&start_date=2013-02-01&kind=missing")
    form = fields_of(page, "create-form")
    assert (form["kind"], form["start_date"], form["pool"], form["batch"]) == ("missing", "2013-02-01", "backfill", "")
    assert "Empty: auto for a DAG that is batchable, else 1." in page.root.whole_text
    assert "America/New_York" in page.root.whole_text
    words = {one.whole_text for one in page.root.find("button") if one.attributes.get("name") == "quick"}
    assert {"7 days", "December 2013", "2013", "Full range"} <= words
    assert fields_of(page_of(browser, "/backfills/new?dag=regions"), "create-form")["kind"] == "single"
    assert "Select a DAG above" in page_of(browser, "/backfills/new").root.whole_text
    assert "There is no DAG 'nope'" in page_of(browser, "/backfills/new?dag=nope", 404).root.whole_text


def test_the_dry_run_is_the_managers(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    found = led.post("/backfills/new/dry-run", data={**FORM, "batch": "5"}).text
    page = Page(found)
    assert "30 items would run, 1 skipped (already exists)." in page.root.whole_text
    assert "27,004 rows in 3 files, 1.5 MB" in page.root.whole_text
    assert "about 1 min 1 s in total with 4 active runs" in page.root.whole_text
    assert "Size unknown: weather" in page.root.whole_text
    assert "2013-01-04" in page.root.whole_text
    assert json.loads(map_of(page))["cells"][3][5] == 1
    (ask,) = hand.submitted
    assert (ask["start_date"], ask["end_date"], ask["batch"]) == ("2013-01-01T05:00:00Z", "2013-01-31T05:00:00Z", 5)
    assert queued_request(manager)[0] == "backfill.dry_run"


def test_the_dry_run_says_how_batches_size_themselves(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand, why = Hand(manager, monkeypatch), "Batches size themselves: no run of this DAG has succeeded yet, so ..."
    document = hand.plan()
    document["summary"]["batching"] = why
    monkeypatch.setattr(hand, "plan", lambda: document)
    assert why in Page(led.post("/backfills/new/dry-run", data={**FORM, "batch": ""}).text).root.whole_text
    assert hand.submitted[0]["batch"] is None  # the planner decides


def test_the_plan_says_what_has_not_ended_and_what_would_run_it(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    document = hand.plan()
    for item in document["items"][-2:]:
        item.update(state="skipped", reason="not complete yet")
    document["summary"].update(pending=len(document["items"]) - 2, skipped={"not complete yet": 2})
    monkeypatch.setattr(hand, "plan", lambda: document)
    result = Page(led.post("/backfills/new/dry-run", data={**FORM, "end_date": ""}).text).root.whole_text
    assert "2 skipped (not complete yet)" in result and "“Allow future” includes them." in result
    form = fields_of(Page(led.get("/backfills/new?dag=flights").text), "create-form")
    assert form["ignore_first_depends_on_past"] == "on" and "allow_future" not in form


def test_the_plan_names_what_its_items_would_wait_for(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    document = hand.plan()
    document["items"][1].update(waits_for=["/in/02/_SUCCESS", "<b>"], may_wait_for=[])
    waits = [("/in/{interval_start:%d}", 1, 0, None), ("a.b", 2, 0, "table not found"), ("condition x", 0, 30, None)]
    names = ("waits_for", "missing", "unknown", "problem")
    every = [dict(zip(names, one, strict=True)) for one in waits]
    document["summary"]["waits"] = {"items": 2, "unknown": 28, "for": every}
    monkeypatch.setattr(hand, "plan", lambda: document)
    result = Page(led.post("/backfills/new/dry-run", data=FORM).text).root.whole_text
    assert "1 item would wait for /in/{interval_start:%d}." in result
    assert "2 items would wait for a.b: table not found." in result
    assert "Not looked for in a dry run: condition x (30 items)." in result
    assert result.count("waits for /in/02/_SUCCESS, <b>") == 1
    summary = {"pending": 2, "runs": 2, "skipped": {}, "waits": {"items": 2, "unknown": 0, "for": every[1:2]}}
    document["downstream"] = [{"dag_id": "report", "waits_for": ["flights"], "items": [], "summary": summary}]
    result = Page(led.post("/backfills/new/dry-run", data=FORM).text).root.whole_text
    assert "report, after flights: 2 items would run.2 items would wait for a.b: table not found." in " ".join(
        result.split()
    )


def test_the_plan_names_the_tasks_that_run_and_the_failed_ones_that_run_again_in_place(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    document = hand.plan()
    for item in document["items"]:
        again = item["ordinal"] == 2
        item.update(run_id="backfill__2013-01-02T05:00:00Z" if again else None, failed_tasks=2 if again else None)
    document["summary"].update(tasks=["clean", "delays"], reruns={"runs": 1, "failed_tasks": 2})
    monkeypatch.setattr(hand, "plan", lambda: document)
    result = Page(led.post("/backfills/new/dry-run", data=FORM).text).root.whole_text
    assert "Tasks: clean, delays." in result
    assert "30 items would run (1 run in place, to re-run 2 failed tasks), 1 skipped" in result
    assert result.count("re-runs 2 failed tasks") == 1


def test_the_plan_points_out_what_may_not_be_meant(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    document = hand.plan()
    document["summary"].update(existing_not_succeeded=2, before_start_date=1, unknown_pools={"slow": ["load"]})
    below = {**document["summary"], "dag_id": "report", "unknown_pools": {"backfil": ["a"]}}
    document["downstream"] = [{"dag_id": "report", "waits_for": ["flights"], "items": [], "summary": below}]
    monkeypatch.setattr(hand, "plan", lambda: document)
    result = Page(led.post("/backfills/new/dry-run", data=FORM).text).root.whole_text
    assert "2 of the dates that have a run did not succeed" in result
    assert "1 item would run before the start date of the DAG" in result
    assert "there is no pool slow. Tasks that name it fail when they start: load." in result
    assert (
        "there is no pool backfil; did you mean 'backfill'? Tasks of report that name it fail when they start: a."
        in result
    )


def test_the_plan_says_why_it_has_no_dag_downstream(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand(manager, monkeypatch)
    document = hand.plan()
    monkeypatch.setattr(hand, "plan", lambda: document)
    assert "Downstream" not in led.post("/backfills/new/dry-run", data=FORM).text
    document["summary"].update(left_out={"by_hand": "it has no schedule"})
    assert "by_hand would be skipped: it has no schedule." in led.post("/backfills/new/dry-run", data=FORM).text
    document["summary"].update(left_out={}, no_downstream="no DAG reads a")
    assert "Nothing is downstream: no DAG reads a." in led.post("/backfills/new/dry-run", data=FORM).text


def test_without_scripts_the_button_brings_the_same_plan(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hand(manager, monkeypatch)
    page = sent(led, "/backfills/new", 200, **FORM, do="dry_run", conf='{"full": true}')
    assert "30 items would run" in text_of(page, "dry-run")
    assert fields_of(page, "create-form")["conf"] == '{"full": true}'
    quick = sent(led, "/backfills/new", 200, **FORM, quick="2013-03-01/2013-03-31")
    form = fields_of(quick, "create-form")
    assert (form["start_date"], form["end_date"]) == ("2013-03-01", "2013-03-31")


def test_a_plan_that_the_manager_refuses_or_is_long_over_is_reported(
    manager: InMemoryManager, led: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill_forms, "PLAN_TIMEOUT_S", 0.0)
    assert "No plan within" in led.post("/backfills/new/dry-run", data=FORM).text
    Hand(manager, monkeypatch, refusal=KIND_IMPLIES_REPROCESS(kind="missing", reprocess="completed"))
    assert "leave out “Reprocess” completed." in led.post("/backfills/new/dry-run", data=FORM).text


def test_without_a_manager_it_says_so_and_can_be_asked_for_all_the_same(
    manager: InMemoryManager, unled: TestClient
) -> None:
    result = unled.post("/backfills/new/dry-run", data=FORM).text
    assert "No manager running" in result
    assert "31 items" in Page(result).root.whole_text
    assert manager.store.read(Request) == []
    where, page = followed(unled, "/backfills/new", **FORM, do="create")
    kind, payload = queued_request(manager)
    assert (kind, urlsplit(where).path) == ("backfill.create", f"/backfills/{payload['backfill_id']}")
    assert "waiting for a manager" in page.root.whole_text
    assert payload["ask"]["start_date"] == "2013-01-01T05:00:00Z"


def test_very_many_items_are_not_planned_at_every_key(led: TestClient, manager: InMemoryManager) -> None:
    manager.add_dag(dag_spec("minutes", "one", schedule="* * * * *"))
    manager.commit()
    result = led.post("/backfills/new/dry-run", data={**FORM, "dag": "minutes", "end_date": "2014-01-01"}).text
    assert "press Dry run" in result
    assert manager.store.read(Request) == []


def test_the_same_form_sent_twice_makes_one_backfill(manager: InMemoryManager, browser: TestClient) -> None:
    first, _ = followed(browser, "/backfills/new", **FORM, do="create")
    second, _ = followed(browser, "/backfills/new", **FORM, do="create")
    other, _ = followed(browser, "/backfills/new", **{**FORM, "end_date": "2013-01-30"}, do="create")
    assert first == second != other
    assert len(manager.store.read(Request)) == 2


def test_all_options_go_into_the_request(manager: InMemoryManager, browser: TestClient) -> None:
    more = {
        "start_time": "06:30", "run_backwards": "on", "reprocess": "failed", "max_active_runs": "2", "batch": "7",
        "stop_on_failure": "3", "priority": "-1", "window": "20:00-06:00", "tasks": "^clean", "is_polite": "on",
        "mark_success": "on", "downstream": "on", "overrides": "retries=3", "conf": '{"a": 1}',
        "allow_future": "on", "with_upstream": "on", "with_downstream": "on",
        "notify": "ops",
    }  # fmt: skip
    followed(browser, "/backfills/new", **{**FORM, **more}, do="create")
    ask = queued_request(manager)[1]["ask"]
    assert ask == {
        "dag_id": "flights", "kind": "schedule", "by": "runs", "start_date": "2013-01-01T11:30:00Z",
        "end_date": "2013-01-31T05:00:00Z",
        "dates": [], "partitions": [], "run_backwards": True, "reprocess": "failed", "max_active_runs": 2, "batch": 7,
            "batch_target": None, "notify": "ops",
        "stop_on_failure": 3, "priority": -1, "window": "20:00-06:00", "tasks": "^clean", "is_polite": True,
        "mark_success": True, "downstream": True, "overrides": {"retries": 3}, "conf": {"a": 1}, "pool": "backfill",
        "preview": False,
        "allow_future": True, "ignore_first_depends_on_past": False, "with_upstream": True, "with_downstream": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "typed",
    [
        {
            "start_time": "06:30", "run_backwards": "on", "reprocess": "failed", "max_active_runs": "2", "batch": "7",
            "stop_on_failure": "3", "priority": "-1", "window": "20:00-06:00", "tasks": "^clean", "is_polite": "on",
            "mark_success": "on", "downstream": "on", "overrides": "retries=3", "conf": '{"a": 1, "password": "s3cr3t"}',
            "allow_future": "on", "with_downstream": "on", "notify": "ops", "batch_target": "300",
        },
        {"kind": "single", "end_time": "06:00", "preview": "on", "ignore_first_depends_on_past": "on"},
        {"kind": "single", "start_date": "2013-11-03", "start_time": "06:30Z", "end_date": "2013-11-05"},
        {"kind": "missing", "by": "data", "with_upstream": "on", "tasks": "clean"},
        {"kind": "dates", "dates": "2013-01-05, 2013-02-07\n2013-03-01T06:00"},
    ],
)  # fmt: skip
def test_a_copy_has_every_option_and_setting_of_the_backfill(
    manager: InMemoryManager, browser: TestClient, typed: dict[str, str]
) -> None:
    followed(browser, "/backfills/new", **{**FORM, **typed}, do="create")
    first = queued_request(manager)[1]
    page = page_of(browser, f"/backfills/new?copy={first['backfill_id']}")
    assert f"A copy of {first['backfill_id']}" in page.root.whole_text
    assert "s3cr3t" not in browser.get(f"/backfills/new?copy={first['backfill_id']}").text
    followed(browser, "/backfills/new", **fields_of(page, "create-form"), do="create")
    second = queued_request(manager)[1]
    assert second["backfill_id"] != first["backfill_id"]
    assert second["ask"] == first["ask"]
    assert set(first["ask"]) == {*CreateBackfill.model_fields}, "an option that came later would be in it"


def test_a_planned_backfill_is_copied_with_the_range_that_it_had(manager: InMemoryManager, browser: TestClient) -> None:
    config = {"type": "schedule", "start_date": "2013-02-01T05:00:00Z", "end_date": "2013-02-03T05:00:00Z"}
    made = manager.backfill("flights", days("2013-02-01", 3), priority=4, config_json=json.dumps(config))
    manager.drain()
    row = manager.row(made)
    link = to_copy(page_of(browser, f"/backfills/{row.backfill_id}"))
    assert link == f"/backfills/new?copy={row.backfill_id}"
    followed(browser, "/backfills/new", **fields_of(page_of(browser, link), "create-form"), do="create")
    ask = queued_request(manager)[1]["ask"]
    assert (ask["start_date"], ask["end_date"]) == (config["start_date"], config["end_date"])
    assert (ask["dag_id"], ask["kind"], ask["priority"]) == (row.dag_id, config["type"], row.priority)


def test_a_secret_is_copied_to_no_other_dag(manager: InMemoryManager, browser: TestClient) -> None:
    conf = {"full": {"password": "s3cr3t"}}
    followed(browser, "/backfills/new", **{**FORM, "conf": json.dumps(conf)}, do="create")
    copied = {"conf": '{"full": {"password": "***"}}', "copied": queued_request(manager)[1]["backfill_id"], "once": "b"}
    followed(browser, "/backfills/new", **{**FORM, **copied}, do="create")
    assert queued_request(manager)[1]["ask"]["conf"] == conf
    page = sent(browser, "/backfills/new", 422, **{**REGION, "sent": "1", **copied}, do="create")
    assert "holds '***', which is how a secret is shown; give the value itself" in page.root.whole_text
    assert queued_request(manager)[1]["ask"]["dag_id"] == "flights"


def to_copy(page: Page) -> str:
    (link,) = (one.attributes["href"] for one in page.root.find("a") if one.whole_text == "Copy")
    return str(link)


@pytest.mark.parametrize(
    ("typed", "result"),
    [
        ({"kind": "dates", "dates": "2013-01-05, 2013-02-07\n2013-03-01T06:00Z"},
         {"kind": "dates", "dates": ["2013-01-05T05:00:00Z", "2013-02-07T05:00:00Z", "2013-03-01T06:00:00Z"]}),
        ({"kind": "partitions", "partitions": "emea\n\n apac \nemea"}, {"kind": "partitions", "partitions": ["emea", "apac"]}),
        ({"kind": "single"},
         {"kind": "single", "start_date": "2013-01-01T05:00:00Z", "end_date": "2013-02-01T05:00:00Z"}),
        ({"kind": "single", "end_time": "06:00"}, {"kind": "single", "end_date": "2013-01-31T11:00:00Z"}),
        ({"kind": "stale", "start_date": "", "end_date": ""}, {"kind": "stale", "end_date": "2013-12-31T05:00:00Z"}),
        ({"kind": "missing", "by": "data"}, {"kind": "missing", "by": "data"}),
        ({"kind": "outdated", "by": "data"}, {"kind": "outdated", "by": "runs"}),
    ],
)  # fmt: skip
def test_each_kind_reads_its_own_fields(
    manager: InMemoryManager, browser: TestClient, typed: dict[str, str], result: dict[str, Any]
) -> None:
    followed(browser, "/backfills/new", **{**FORM, **typed}, do="create")
    ask = queued_request(manager)[1]["ask"]
    assert {name: ask[name] for name in result} == result


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"start_date": "2013-02-31"}, "start_date", "'2013-02-31' is not a date"),
        ({"start_date": "soon"}, "start_date", "use YYYY-MM-DD, YYYY-MM-DDTHH:MM or"),
        ({"start_date": "2013-03-01", "end_date": "2013-02-01"}, "start_date", "is after “To”"),
        ({"kind": "dates", "dates": ""}, "dates", "List at least one date."),
        ({"kind": "dates", "dates": "2013-01-05 tomorrow"}, "dates", "'tomorrow' is not a date"),
        ({"kind": "partitions"}, "partitions", "List at least one partition."),
        ({"kind": "nonsense"}, "kind", "not 'nonsense'"),
        ({"reprocess": "all"}, "reprocess", "not 'all'"),
        ({"batch": "many"}, "batch", "must be a whole number"),
        ({"max_active_runs": "99999999999"}, "max_active_runs", "or less, not 99999999999"),
        ({"conf": "[1]"}, "conf", "must be a JSON object"),
        ({**REGION, "conf": '{"ful": 1}'}, "conf", "'ful' is no parameter of DAG 'regions'; did you mean 'full'?"),
        ({"tasks": "nothing"}, "tasks", "matches no task"),
        ({"pool": "scheduled"}, "pool", "is for scheduled runs"),
        ({"overrides": "clean.pool=scheduled"}, "overrides", "is for scheduled runs"),
        ({"overrides": "pool=nope"}, "overrides", "there is no pool 'nope'. There are backfill"),
        ({"dag": "regions"}, "kind", "use “Kind” single, “Dates” or “Partitions”"),
    ],
)
def test_what_is_wrong_is_reported_at_its_field_and_nothing_typed_is_lost(
    manager: InMemoryManager, browser: TestClient, typed: dict[str, str], field: str, words: str
) -> None:
    filled = {**FORM, "window": "20:00-06:00", "overrides": "retries=3", **typed}
    page = sent(browser, "/backfills/new", 422, **filled, do="create")
    assert words in text_of(page, f"error-{field}")
    kept = fields_of(page, "create-form")
    assert {name: kept.get(name, "") for name in filled if name != "once"} == {
        name: text for name, text in filled.items() if name != "once"
    }
    fragment = Page(browser.post("/backfills/new/dry-run", data=filled).text)
    assert words in text_of(fragment, f"error-{field}")
    assert manager.store.read(Request) == []


def test_a_form_without_any_range_creates_nothing(manager: InMemoryManager, browser: TestClient) -> None:
    """As one that was come back to, whose fields are empty again."""
    form = {**FORM, "start_date": "", "end_date": "", "do": "create"}
    for kind in ("schedule", "single"):
        assert "type one of its ends" in sent(browser, "/backfills/new", 422, **{**form, "kind": kind}).root.whole_text
    assert manager.store.read(Request) == []
    followed(browser, "/backfills/new", **{**form, "end_date": "2013-01-03"})
    assert len(manager.store.read(Request)) == 1


def test_a_form_without_a_dag_is_refused_with_the_reason(browser: TestClient) -> None:
    assert "Select a DAG first." in sent(browser, "/backfills/new", 422, **{**FORM, "dag": ""}).root.whole_text
    assert sent(browser, "/backfills/new", 404, **{**FORM, "dag": "nope"})


@pytest.mark.parametrize(
    "address",
    ["/backfills?dag=%00", "/backfills/%00", "/backfills/a~2Fb", "/backfills/..%2f..", "/backfills?after=%F0%9F%98%80",
     "/backfills/new?dag=%3Cscript%3E", "/backfills/1'%20or%201=1", "/backfills/x/items/1e9", "/backfills?state="],
)  # fmt: skip
def test_odd_addresses_get_a_page_that_says_so(browser: TestClient, address: str) -> None:
    answer = browser.get(address)
    assert answer.status_code in (200, 404, 422), answer.status_code
    assert wrongs(Page(answer.text)) == []
    assert "<script>" not in answer.text


def test_odd_forms_get_a_page_that_says_so(manager: InMemoryManager, browser: TestClient) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    odd = {
        "conf": "[" * 5000,
        "overrides": "retries=" + "[" * 5000,
        "tasks": "(?P<" * 50,
        "priority": "١٢",
        "window": "\x00",
    }
    for address in ("/backfills/new", f"/backfills/{one}/settings"):
        for name, text in odd.items():
            sent(browser, address, 422, **{**FORM, "do": "create", name: text})
    sent(browser, f"/backfills/{one}/cancel", 422, running="perhaps")
    a_file = browser.post("/backfills/new", files={"conf": ("a.json", b"{}")}, data={**FORM, "batch": "x"})
    assert a_file.status_code == 200  # nothing was asked for
    assert manager.store.read(Request) == []


def test_several_mistakes_are_reported_at_once(browser: TestClient) -> None:
    page = sent(
        browser, "/backfills/new", 422, **{**FORM, "start_date": "soon", "batch": "x", "conf": "{"}, do="create"
    )
    assert all(text_of(page, f"error-{name}") for name in ("start_date", "batch", "conf"))


def test_what_the_manager_refuses_comes_back_with_the_form(
    manager: InMemoryManager, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hand(manager, monkeypatch, refusal=InvalidInput("there is nothing to run"))
    page = sent(browser, "/backfills/new", 409, **{**FORM, "window": "20:00-06:00"}, do="create")
    assert "There is nothing to run." in page.root.whole_text
    assert fields_of(page, "create-form")["window"] == "20:00-06:00"


# -- who may ----------------------------------------------------------------------------------------------------------


def test_a_viewer_sees_everything_and_can_change_nothing(
    manager: InMemoryManager, logged_in: Callable[[str], TestClient]
) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    failed = run_some(manager, n=3, failing=1)
    ben = logged_in("ben")
    for address in ("/backfills", f"/backfills/{one}", f"/backfills/{failed}", f"/backfills/{one}/settings",
                    "/backfills/new?dag=flights"):  # fmt: skip
        page = page_of(ben, address)
        posts = [form.attributes.get("action") for form in page.forms if form.attributes.get("method") == "post"]
        assert posts == ["/logout"], address
    token = csrf(page_of(ben, "/backfills"))
    for verb in ("pause", "unpause", "cancel", "retry", "settings"):
        assert ben.post(f"/backfills/{one}/{verb}", data={"csrf_token": token}).status_code == 403
    for address in ("/backfills/new", "/backfills/new/dry-run"):
        assert ben.post(address, data={**FORM, "csrf_token": token}).status_code == 403
    assert manager.store.read(Request) == []


def csrf(page: Page) -> str:
    return next(
        str(one.attributes["content"]) for one in page.root.find("meta") if one.attributes.get("name") == "csrf-token"
    )


def test_a_session_needs_its_csrf_token(manager: InMemoryManager, logged_in: Callable[[str], TestClient]) -> None:
    one = manager.backfill("flights", days("2013-01-01", 4))
    ada = logged_in("ada")
    assert ada.post(f"/backfills/{one}/pause", data={}).status_code == 403
    assert ada.post("/backfills/new", data={**FORM, "do": "create", "csrf_token": "wrong"}).status_code == 403
    assert manager.store.read(Request) == []
    page = page_of(ada, "/backfills/new?dag=flights")
    where, _ = followed(
        ada, "/backfills/new", **{**fields_of(page, "create-form"), "end_date": "2013-01-31"}, do="create"
    )
    assert "request_id" in parse_qs(urlsplit(where).query)
    row = manager.store.read(Request)[-1]
    assert (row.requested_by, row.source) == ("ada", "ui")
    followed(ada, f"/backfills/{one}/pause", csrf_token=csrf(page))


def test_a_stranger_is_led_to_the_login(logged_in: Callable[[str], TestClient]) -> None:
    answer = logged_in("").get("/backfills?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fbackfills%3Fstate%3Dfailed")


# -- texts ------------------------------------------------------------------------------------------------------------


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


# -- what is read for them ----------------------------------------------------------------------------------------------


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


# -- previews ---------------------------------------------------------------------------------------------------------


def a_preview(manager: InMemoryManager, **changed: Any) -> str:
    preview_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.state.put(manager.row(preview_id).evolve(preview_id=preview_id, **changed))
    manager.commit()
    return preview_id


def test_a_preview_says_so_and_is_compared_promoted_or_discarded(browser: TestClient, manager: InMemoryManager) -> None:
    preview_id = a_preview(manager, state="success", completed_at=manager.clock.now())
    page = page_of(browser, f"/backfills/{preview_id}")
    assert "This is a preview" in page.root.whole_text
    forms = [form.attributes["action"] for form in page.forms]
    assert {f"/backfills/{preview_id}/{what}" for what in ("promote", "discard")} <= set(forms)

    page = page_of(browser, f"/backfills/{preview_id}/diff")
    assert "Not compared yet" in page.root.whole_text
    browser.post(f"/backfills/{preview_id}/diff", data={"key": "id, region"})
    browser.post(f"/backfills/{preview_id}/promote", data={"rebase": "true"})
    asked = {one.kind: json.loads(one.payload_json) for one in manager.store.unanswered()}
    assert asked == {
        "backfill.diff": {"backfill_id": preview_id, "key": ["id", "region"], "table": None},
        "backfill.promote": {"backfill_id": preview_id, "partial": False, "rebase": True},
    }

    (request,) = (one for one in manager.store.unanswered() if one.kind == "backfill.diff")
    example = {"key": {"id": 3}, "new": "<b>"}
    table = {
        "table": "silver.t", "key": ["id"], "added": 1, "removed": 0, "changed": 2, "same": 3,
        "schema_changes": [{"column": "w", "old": None, "new": "int"}],
        "columns": [{"name": "v", "rows": 2, "examples": [example]}],
        "intervals": [
            {"interval": "2013-01-01 – 2013-01-02", "added": 1, "removed": 0, "changed": 2},
            {"interval": "", "interval_start": "2013-01-05T05:00:00Z", "interval_end": "2013-01-06T05:00:00Z",
             "added": 1, "removed": 0, "changed": 2},
        ],
    }  # fmt: skip
    changes, payload = Changes(), json.dumps({"tables": [table]})
    changes.put(Response(request.request_id, request.kind, "accepted", preview_id, "", payload, manager.clock.now(), 1))
    manager.leader.commit(changes)
    page = page_of(browser, f"/backfills/{preview_id}/diff")
    for text in ("silver.t", "2013-01-01 – 2013-01-02", "none in the table, int in the preview", '{"id": 3}',
                 "2013-01-05 – 2013-01-06"):  # fmt: skip
        assert text in page.root.whole_text


def test_a_preview_is_created_by_the_form_and_marked_in_the_list(browser: TestClient, manager: InMemoryManager) -> None:
    names = [one.attributes.get("name") for one in page_of(browser, "/backfills/new?dag=flights").root.find("input")]
    assert names.count("preview") == 1
    followed(browser, "/backfills/new", **FORM, preview="on", do="create")
    assert queued_request(manager)[1]["ask"]["preview"] is True
    a_preview(manager, state="success", preview_outcome="promoted")
    shown = page_of(browser, "/backfills")
    tags = [one.whole_text for one in shown.root.find("span") if one.attributes.get("class") == "tag"]
    assert tags == ["preview", "promoted preview"], "what waits for the manager comes first"


def test_the_page_of_a_preview_with_failures_offers_to_leave_them_out(
    browser: TestClient, manager: InMemoryManager
) -> None:
    def offered(preview_id: str) -> list[str | None]:
        forms = page_of(browser, f"/backfills/{preview_id}").forms
        (form,) = (one for one in forms if one.attributes["action"] == f"/backfills/{preview_id}/promote")
        return [one.attributes["name"] for one in form.find("input") if one.attributes.get("type") == "checkbox"]

    whole, failed = (run_some(manager, first, n=3, failing=n) for first, n in (("2013-01-01", 0), ("2013-02-01", 1)))
    for one in (whole, failed):
        manager.state.put(manager.row(one).evolve(preview_id=one))
    manager.commit()
    assert (offered(whole), offered(failed)) == (["rebase"], ["partial", "rebase"])
    browser.post(f"/backfills/{failed}/promote", data={"partial": "true"})
    assert queued_request(manager) == (
        "backfill.promote", {"backfill_id": failed, "partial": True, "rebase": False}
    )  # fmt: skip


@pytest.mark.parametrize(
    ("action", "named"), [("promote", "Promotion requested by"), ("discard", "Discard requested by")]
)
def test_while_the_end_of_a_preview_is_requested_it_is_not_offered_again(
    browser: TestClient, manager: InMemoryManager, action: str, named: str
) -> None:
    preview_id, other = (run_some(manager, first, n=1) for first in ("2013-01-01", "2013-02-01"))
    for one in (preview_id, other):
        manager.state.put(manager.row(one).evolve(preview_id=one))
    manager.commit()

    def offered(of: str) -> set[str]:
        actions = {form.attributes["action"] or "" for form in page_of(browser, f"/backfills/{of}").forms}
        return {one for one in ("promote", "discard") if f"/backfills/{of}/{one}" in actions}

    browser.post(f"/backfills/{preview_id}/{action}")
    page = page_of(browser, f"/backfills/{preview_id}")
    assert named in page.root.whole_text and offered(preview_id) == set()
    assert offered(other) == {"promote", "discard"}, "the requested one is another preview"

    (request,) = manager.store.unanswered()
    put(
        manager.leader,
        Response(request.request_id, request.kind, "refused", preview_id, "", None, manager.clock.now(), 1),
    )
    assert named not in page_of(browser, f"/backfills/{preview_id}").root.whole_text
    assert offered(preview_id) == {"promote", "discard"}


def test_a_preview_that_is_over_or_runs_has_no_such_buttons(browser: TestClient, manager: InMemoryManager) -> None:
    over = a_preview(manager, state="success", completed_at=manager.clock.now(), preview_outcome="promoted")
    page = page_of(browser, f"/backfills/{over}")
    assert "This preview is promoted." in page.root.whole_text and f"/backfills/{over}/promote" not in str(page.forms)
    running = a_preview(manager)
    page = page_of(browser, f"/backfills/{running}")
    assert "This is a preview" in page.root.whole_text and f"/backfills/{running}/promote" not in str(page.forms)


# -- undo -------------------------------------------------------------------------------------------------------------


def test_a_run_and_a_backfill_are_reverted_and_a_reverted_run_says_so(
    browser: TestClient, manager: InMemoryManager
) -> None:
    manager.script = lambda _: Succeeded()
    backfill_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    first, second = (f"backfill__2013-01-0{n}T00:00:00Z" for n in (1, 2))
    home = f"/dags/flights/runs/{first.replace(':', '%3A')}"
    page = page_of(browser, home)
    of_run = next(
        form.attributes["action"] for form in page.forms if str(form.attributes["action"]).endswith("/revert/plan")
    )
    page = page_of(browser, f"/backfills/{backfill_id}")
    assert f"/backfills/{backfill_id}/revert/plan" in [form.attributes["action"] for form in page.forms]

    browser.post(str(of_run).removesuffix("/plan"))
    browser.post(f"/backfills/{backfill_id}/revert")
    asked = {one.kind: json.loads(one.payload_json) for one in manager.store.unanswered()}
    assert asked == {
        "run.revert": {"dag_id": "flights", "run_id": first, "dry_run": False},
        "backfill.revert": {"backfill_id": backfill_id, "dry_run": False},
    }

    row = next(run for run in manager.runs("flights") if run.run_id == first)
    manager.state.put(row.evolve(reverted_at=manager.clock.now(), reverted_by="r1", restored_run_id=second))
    manager.commit()
    page = page_of(browser, home)
    assert "reverted" in page.root.whole_text and "those of " + second in " ".join(page.root.whole_text.split())
    actions = [str(form.attributes["action"]) for form in page.forms]
    assert not [one for one in actions if one.endswith(("/revert/plan", "/mark"))]
    assert "reverted" in page_of(browser, "/dags/flights/timeline").root.whole_text
    browser = browser_of(manager.store, manager.clock)  # no response says that the other's cache is old
    rows = [one.whole_text for one in page_of(browser, f"/backfills/{backfill_id}").root.find("tr")]
    assert [one.split()[0] for one in rows if "reverted" in one] == ["1"]


@pytest.mark.parametrize("of", ["run", "backfill"])
def test_the_plan_of_a_revert_is_shown_before_the_question(
    browser: TestClient, manager: InMemoryManager, of: str
) -> None:
    manager.script = lambda _: Succeeded()
    backfill_id = manager.backfill("flights", days("2013-01-01", 2))
    manager.drain()
    run_id = "backfill__2013-01-01T00:00:00Z"
    home = f"/backfills/{backfill_id}" if of == "backfill" else f"/dags/flights/runs/{run_id.replace(':', '%3A')}"
    object_id = backfill_id if of == "backfill" else run_id
    page = page_of(browser, f"{home}/revert")
    assert [form.attributes["action"] for form in page.forms if "revert" in str(form.attributes["action"])] == [
        f"{home}/revert/plan".replace("%3A", ":")
    ]

    sent = browser.post(f"{home}/revert/plan", follow_redirects=False).headers["location"]
    (asked,) = manager.store.unanswered()
    assert sent.startswith(f"{home}/revert?request_id=".replace("%3A", ":")) and asked.request_id in sent
    assert json.loads(asked.payload_json)["dry_run"] is True
    page = page_of(browser, sent)
    assert "The manager reads the history of the tables" in page.root.whole_text

    table = {
        "table": "gold.<x>", "version": None, "back_to": [3, 7], "intervals": ["2013-01-01", "2013-01-02"],
        "rows_now": 1200, "rows_then": 1100, "runs": [{"dag_id": "flights", "run_id": run_id}],
    }  # fmt: skip
    readers = [{"dag_id": "report", "run_id": f"r{n}", "task_id": "a", "table": "gold.x"} for n in range(12)]
    ends = {"interval_start": "2013-01-01T05:00:00Z", "interval_end": "2013-01-02T05:00:00Z"}
    one = {**table, "table": "gold.y", "intervals": ["2013-01-01T05:00:00Z – 2013-01-02T05:00:00Z"], **ends}
    payload = json.dumps({"tables": [table, one], "read_by": readers, "readers": 12})
    changes = Changes()
    changes.put(Response(asked.request_id, asked.kind, "accepted", object_id, "", payload, manager.clock.now(), 1))
    manager.leader.commit(changes)
    page = page_of(browser, sent)
    shown = page.root.whole_text
    assert "gold.<x> 2 intervals: 2013-01-01 … 2013-01-02 3, 7 1 1,200 1,100" in shown
    assert "gold.y 2013-01-01 – 2013-01-02 3, 7" in shown
    assert "12 tasks read this since" in shown and "report/r9, ..." in shown and "report/r10" not in shown
    assert [form.attributes["action"] for form in page.forms if "revert" in str(form.attributes["action"])] == [
        f"{home}/revert".replace("%3A", ":")
    ]
