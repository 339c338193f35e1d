"""Every page on an empty and on a busy system: status, content and the checks of `support.page_checks`."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urldefrag, urljoin

import pytest
from fastapi.testclient import TestClient
from support.busy_state import put
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.manager.services.notification_sender import compose
from backfill_manager.model.records import Notification
from backfill_manager.settings import Settings
from backfill_manager.testing import FakeClock, InMemoryManager

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"
# Address -> what a person must find there, on the busy system.
PAGES = {
    "/": ["Failed since yesterday", "Running now", "Backfills under way", "1 file", "running"],
    "/dags": ["shop", "every day at 06:00 (Europe/Berlin)", "1 file with import errors", "sales"],
    "/dags?q=REG": ["regions", "1 DAG of 4"],
    "/dags?tag=sales": ["regions", "shop"],
    "/dags?q=nonsense": ["No DAGs match"],
    "/dags/shop": ["19 runs", "join_customers", "Europe/Berlin", "16 success"],
    "/dags/shop?order=made&n=5": ["5 runs", "Older"],
    "/dags/shop?run=backfill__2024-01-12T00:00:00Z__2": ["Open run page", "7 tasks"],
    "/dags/shop?run=backfill__2024-01-13T00:00:00Z&task=clean": ["Open task page", "336,776 rows read"],
    "/dags/shop/panel?run=backfill__2024-01-13T00:00:00Z&task=clean": ["Open task page", "Whole log"],
    "/dags/regions": ["3 runs", "south/west", "50% off"],
    "/dags/shop/graph": ["7 tasks", "check_quality"],
    "/dags/shop/graph?run=latest": ["states of run"],
    "/dags/shop/graph?run=none": ["no run", "7 tasks"],
    "/dags/wide/graph": ["11 tasks", "a_task_with_a_name_that_is_mu…"],
    "/dags/shop/timeline": ["overridden by", "Next"],
    "/dags/shop/calendar": ["2024", "19 days with runs"],
    "/dags/shop/calendar?year=2024&show=duration": ["shades hold equal numbers of days"],
    "/dags/shop/calendar?year=1999": ["0 days with runs"],
    "/dags/shop/day/2024-01-12": ["1 run", "backfill__2024-01-12T00:00:00Z__2"],
    "/dags/shop/day/2023-01-12": ["No runs on this day"],
    "/dags/shop/gaps?start_date=2024-01-10&end_date=2024-01-14": ["gold.orders", "5 intervals", "it is gone"],
    "/gaps?start_date=2024-01-10&end_date=2024-01-14": ["shop", "1 DAG, 5 days", "it is gone", "New backfill of the"],
    "/gaps?q=nonsense": ["No DAGs match"],
    "/gaps/selected": ["Nothing is selected"],
    "/gaps/selected?cell=shop/2024-01-10&cell=wide/2024-01-12": ["New backfill of shop", "New backfill of wide"],
    "/dags/regions/gaps": ["holds no intervals"],
    "/dags/shop/gaps?start_date=nonsense": ["is not a date"],
    "/dags/shop/versions": ["2 versions", "0 6 * * *", "retries"],
    "/dags/shop/versions?before=1&after=1": ["No changes in the definition"],
    "/dags/shop/render": ["interval_start", "extract", "python"],
    "/dags/shop/code": ["Code not available on this server"],
    "/dags/shop/trigger": ["Trigger run"],
    "/dags/shop/clear": ["Dry run"],
    "/dags/shop/clear?dry_run=true&only=failed": ["6 tasks of 2 runs", "aggregate"],
    RUN: ["19 min 19 s", "backfill__2024-01-12T00:00:00Z__2", "join_customers", "1 failed, 1 warned, 1 passed, 1 skipped"],
    f"{RUN}/tasks/clean": ["ValueError: 3 rows without an order number", "336,776 rows read", "try 2", "3 of 1,234 rows"],
    f"{RUN}?page=1": ["Late data: 3 orders", "Ann agrees", "Edit note"],
    f"{RUN}/tasks/clean?try=1": ["of attempt 1"],
    f"{RUN}/tasks/clean?all=true": ["Spark stages", "10.7 MB", "9.4", "3 stages, 2 jobs", "8.2 MB", "(1 failed)"],
    "/dags/regions/runs/backfill__south~2Fwest": ["south/west"],
    f"{RUN}/revert": ["Revert", "Show the plan"],
    "/runs": ["shop", "scheduled__2024-01-30T05:00:00Z", "manual trigger"],
    "/runs?state=failed&dag=shop&sort=date": ["backfill__2024-01-12T00:00:00Z", "Clear filters"],
    "/tasks": ["join_customers", "Task instances", "Next"],
    "/tasks?task=clean&state=failed": ["No matching task instances"],
    "/tasks?sort=-duration&dag=shop": ["check_quality"],
    "/pools": ["backfill", "16 of 16"],
    "/tables": ["bronze.orders", "shop.extract", "s3a://lake/silver/orders"],
    "/tables/one?table=bronze.orders": ["shop.extract", "shop.clean", "1,234", "56,789", "square: table"],
    "/tables/one?table=s3a://lake/silver/orders%20%3Cclean%3E": ["bronze.orders", "shop.clean", "backfill__"],
    "/import-errors": ["broken.py", "line 3", "SyntaxError", "Traceback"],
    "/requests": ["dag.trigger", "refused", "waiting"],
    "/requests?kind=dag.trigger": ["All kinds"],
    "/notifications": ["ops", "shop: run", "status 503", "waiting"],
    "/notifications?state=sent&target=ops": ["Clear filters", "Any event", "has succeeded"],
    "/notifications?state=failed": ["No such notifications"],
    "/manager": ["Term 1", "Recent requests"],
    "/rest-api": ["REST API", "/openapi.json"],
    "/fragments/status_bar": ["Manager running"],
}  # fmt: skip
# Attributes that are no address: forms send paths of the server itself, and other texts may look like one.
NO_ADDRESS = {"value", "title", "aria-label", "placeholder", "aria-keyshortcuts", "data-go", "data-key"}
# The same without anything: what to do first.
EMPTY = {
    "/": "bfm manager start",
    "/dags": "bfm manager start",
    "/runs": "bfm dags trigger",
    "/tasks": "bfm dags trigger",
    "/pools": "bfm manager start",
    "/tables": "bfm dags trigger",
    "/import-errors": "bfm bundles parse",
    "/requests": "bfm backfill create",
    "/notifications": "bfm notify test",
    "/manager": "bfm manager start",
}


@pytest.mark.parametrize("address", PAGES)
def test_a_page_of_a_busy_system(busy: TestClient, address: str) -> None:
    answer = busy.get(address)
    page = Page(answer.text)
    shown = page.root.whole_text
    assert (answer.status_code, wrongs(page)) == (200, [])
    assert [word for word in PAGES[address] if word not in shown] == []
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("address", PAGES)
def test_every_address_in_a_page_has_the_path_under_which_people_reach_it(
    busy_ground_of_module: InMemoryManager, address: str
) -> None:
    path = "/apps/backfills"
    settings = Settings.model_validate({"api": {"public_url": f"https://example.com{path}"}})
    answer = browser_of(busy_ground_of_module.store, busy_ground_of_module.clock, settings).get(path + address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    addresses = [
        value
        for element in page.root.all()
        for name, value in element.attributes.items()
        if value and name not in NO_ADDRESS and value.startswith("/")
    ]
    assert [one for one in addresses if one.count(path) != 1 or not f"{one}/".startswith(f"{path}/")] == []
    assert addresses or address.startswith("/fragments")


@pytest.mark.parametrize("address", EMPTY)
def test_a_page_of_an_empty_system_says_what_to_do_first(empty: TestClient, address: str) -> None:
    answer = empty.get(address)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    assert EMPTY[address] in page.root.whole_text
    assert "No manager running." in page.root.whole_text


def test_every_page_says_that_the_manager_may_hang(manager: InMemoryManager, browser: TestClient) -> None:
    now = manager.clock.now()
    manager.leader.heartbeat(now, slow_loop="tick", slow_loop_since=now - timedelta(minutes=4))
    for address in ("/", "/manager"):
        page = Page(browser.get(address).text)
        assert "The manager may hang. Its loop tick has been at the same work for 4 min" in page.root.whole_text
        assert wrongs(page) == []


def test_the_link_of_a_message_leads_to_its_run_whatever_its_partition_is_called(busy: TestClient) -> None:
    runs = busy.get("/api/v1/dags/regions/runs").json()["items"]
    assert {run["partition_key"] for run in runs} == {"north", "south/west", "50% off"}
    for run in runs:
        row = Notification(
            "failed/1", "ops", "failed", "waiting", "regions", "t", "", 1, FakeClock().now(), run_id=run["run_id"]
        )
        link = compose([row], lambda _: [], "http://localhost")[1]
        assert busy.get(link).status_code == 200, link


def test_every_link_leads_somewhere(busy: TestClient) -> None:
    waiting, seen, dead = ["/dags"], set[str](), dict[str, str]()
    while waiting and len(seen) < 400:
        here = waiting.pop()
        answer = busy.get(here)
        if answer.status_code != 200:
            dead[here] = str(answer.status_code)
            continue
        for link in Page(answer.text).links:
            there = urldefrag(urljoin(f"http://localhost{here}", link)).url.removeprefix("http://localhost")
            # One of each kind of page is looked at with all its links; of runs and their tasks there are hundreds.
            if there not in seen:
                seen.add(there)
                waiting.append(there)
    assert dead == {}
    assert len(seen) > 100


@pytest.mark.parametrize(
    "address", ["/", "/dags", "/dags/nope", "/api/v1/dags", "/api/v1/health", "/metrics", "/api/v1/nope"]
)
def test_head_tells_what_get_would_without_its_body(busy: TestClient, address: str) -> None:
    submitted, shown = busy.get(address), busy.head(address)
    names = ("content-type", "etag", "location", "cache-control", "content-security-policy")
    assert (shown.status_code, shown.content) == (submitted.status_code, b"")
    assert [shown.headers.get(name) for name in names] == [submitted.headers.get(name) for name in names]


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("/dags/regions/runs/latest", "/dags/regions/runs/backfill__50~2525%20off"),
        (
            "/dags/shop/runs/2024-01-30T05:00:00Z/tasks/extract",
            "/dags/shop/runs/scheduled__2024-01-30T05:00:00Z/tasks/extract",
        ),
    ],
)
def test_a_short_name_leads_to_the_address_that_stays_right(busy: TestClient, address: str, whole: str) -> None:
    answer = busy.get(address)
    assert (answer.status_code, answer.headers["location"]) == (303, whole)
    assert busy.get(whole).status_code == 200


def test_text_from_outside_is_never_markup(busy: TestClient) -> None:
    trigger = next(link for link in Page(busy.get("/requests?kind=dag.trigger").text).links if "/requests/" in link)
    submitted = busy.get(trigger).text
    assert "<b>to see</b>" not in submitted
    assert "&lt;b&gt;to see&lt;/b&gt;" in submitted
    assert "<here>" not in busy.get("/import-errors").text
    assert "<without>" not in busy.get(f"{RUN}/tasks/clean").text
    assert '"><script>' not in busy.get("/dags?q=%22%3E%3Cscript%3E").text


def test_a_log_is_followed_from_the_last_line_that_was_seen(busy: TestClient) -> None:
    page = Page(busy.get(f"{RUN}/tasks/clean").text)
    (log,) = (one for one in page.root.all() if one.attributes.get("id") == "log")
    assert (log.attributes["data-src"], log.attributes["data-position"]) == (f"{RUN}/tasks/clean/log", "2.3")
    rest = busy.get(f"{RUN}/tasks/clean/log?after=1.2")
    assert rest.headers["X-Log-Position"] == "2.3"
    assert [line.whole_text.split()[-1] for line in Page(rest.text).root.find("div")] == [
        "written",
        "2",
        "read",
        "number",
        "written",
    ]
    nothing = busy.get(f"{RUN}/tasks/clean/log?after=2.3")
    assert (nothing.headers["X-Log-Position"], nothing.text.strip()) == ("2.3", "")


def test_an_address_of_a_run_holds_its_dag_and_older_ones_lead_there(busy: TestClient) -> None:
    there = "/dags/regions/runs/backfill__south~2Fwest"
    for address, leads_to in (
        ("/runs/regions/backfill__south~2Fwest", there),
        ("/runs/regions/backfill__south~2Fwest/load?try=1", f"{there}/tasks/load?try=1"),
        ("/runs/backfill__south~2Fwest", there),
        ("/dags/regions/runs", "/dags/regions?order=made"),
    ):
        answer = busy.get(address)
        assert (answer.status_code in (303, 308), answer.headers["location"]) == (True, leads_to)
        assert busy.get(leads_to).status_code == 200
    pages = (busy.get(address).text for address in ("/dags", "/dags/shop", "/dags/shop/timeline", "/requests", RUN))
    assert not [link for text in pages for link in Page(text).links if link.startswith("/runs/")]


def test_a_run_id_that_two_dags_have_is_reported_with_both(manager: InMemoryManager, browser: TestClient) -> None:
    [run] = [one for one in manager.runs("regions") if one.partition_key == "north"]
    put(manager, run.evolve(dag_id="quiet"))
    answer = browser.get(f"/runs/{run.run_id}")
    shown = Page(answer.text).root.whole_text
    assert answer.status_code == 422
    assert f"quiet/{run.run_id}, regions/{run.run_id}. Name the DAG too" in shown


def test_an_old_address_of_a_task_keeps_its_query_whatever_its_parameters_are_called(busy: TestClient) -> None:
    answer = busy.get("/runs/flights/first/clean?try=2&dag_id=x&run_id=y", follow_redirects=False)
    assert answer.status_code == 308
    assert answer.headers["location"] == "/dags/flights/runs/first/tasks/clean?try=2&dag_id=x&run_id=y"
