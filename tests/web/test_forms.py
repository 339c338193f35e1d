"""Forms submit requests, and the page after shows the response."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from support.page_checks import Page, wrongs

from backfill_manager.model.records import DagRow, Request
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.store.base import Condition
from backfill_manager.testing import InMemoryManager, dag_spec, days

RUN = "/dags/shop/runs/backfill__2024-01-13T00:00:00Z"
FAILED_RUN = "/dags/shop/runs/backfill__2024-01-19T00:00:00Z"


def last_asked(manager: InMemoryManager) -> tuple[str, dict[str, Any]]:
    (row, *_) = manager.store.read(Request, order_by=("-requested_at", "-request_id"), limit=1)
    return row.kind, json.loads(row.payload_json)


@pytest.mark.parametrize(
    ("address", "form", "kind", "payload"),
    [
        ("/dags/quiet/unpause", {}, "dag.unpause", {"dag_id": "quiet"}),
        ("/dags/shop/pause", {}, "dag.pause", {"dag_id": "shop"}),
        ("/pools/backfill", {"slots": "20"}, "pool.set", {"name": "backfill", "slots": 20}),
        (
            "/dags/shop/trigger", {"logical_date": "2024-01-25", "conf": '{"full": true}'}, "dag.trigger",
            {"dag_id": "shop", "logical_date": "2024-01-24T23:00:00Z", "conf": {"full": True}},
        ),
        ("/dags/shop/trigger", {}, "dag.trigger", {"dag_id": "shop", "logical_date": None, "conf": {}}),
        (
            "/dags/shop/trigger", {"partition_key": " north "}, "dag.trigger",
            {"dag_id": "shop", "logical_date": None, "conf": {}, "partition_key": "north"},
        ),
        (
            f"{RUN}/mark", {"state": "failed"}, "run.mark",
            {"dag_id": "shop", "run_id": "backfill__2024-01-13T00:00:00Z", "state": "failed"},
        ),
        (
            f"{RUN}/tasks/clean/mark", {"state": "skipped"}, "task.mark",
            {"dag_id": "shop", "run_id": "backfill__2024-01-13T00:00:00Z", "task_id": "clean", "state": "skipped"},
        ),
        (
            "/dags/shop/runs/scheduled__2024-01-30T05:00:00Z/cancel", {}, "run.cancel",
            {"dag_id": "shop", "run_id": "scheduled__2024-01-30T05:00:00Z"},
        ),
    ],
)  # fmt: skip
def test_a_form_asks_the_manager(
    manager: InMemoryManager,
    browser: TestClient,
    address: str,
    form: dict[str, str],
    kind: str,
    payload: dict[str, Any],
) -> None:
    manager.clock.advance(seconds=1)
    answer = browser.post(address, data=form)
    assert answer.status_code == 303
    assert last_asked(manager) == (kind, payload)
    back = browser.get(answer.headers["location"])
    page = Page(back.text)
    assert (back.status_code, wrongs(page)) == (200, [])
    assert "Submitted, waiting for the manager" in page.root.whole_text


def test_who_asked_and_from_where_is_kept(manager: InMemoryManager, browser: TestClient) -> None:
    manager.clock.advance(seconds=1)
    browser.post("/dags/shop/pause")
    (row, *_) = manager.store.read(Request, order_by=("-requested_at",), limit=1)
    assert (row.source, row.requested_by, row.requested_from) == ("ui", "local", "127.0.0.1")


def test_the_page_says_what_the_manager_answered(manager: InMemoryManager, browser: TestClient) -> None:
    answer = browser.post("/dags/shop/pause", data={"back": "/dags?q=shop"})
    there = answer.headers["location"]
    assert there.startswith("/dags?q=shop&request_id=")
    manager.drain()
    shown = Page(browser.get(there).text).root.whole_text
    assert "Done: DAG shop" in shown
    (row,) = manager.store.read(DagRow, [Condition("dag_id", "=", "shop")])
    assert row.is_paused


def test_a_refusal_is_reported_on_the_page(manager: InMemoryManager, browser: TestClient) -> None:
    manager.ask("run.mark", dag_id="shop", run_id="nope", state="failed")
    (row, *_) = manager.store.read(Request, [Condition("kind", "=", "run.mark")], limit=1)
    manager.drain()
    shown = Page(browser.get(f"/dags?request_id={row.request_id}").text).root.whole_text
    assert "Refused: There is no run" in shown


def test_a_clear_is_shown_before_it_is_asked_for(manager: InMemoryManager, browser: TestClient) -> None:
    shown = Page(browser.get(f"/dags/shop/clear?dry_run=true&run={FAILED_RUN.split('/')[-1]}&only=failed").text)
    (form,) = (one for one in shown.forms if one.attributes.get("method") == "post" and "Clear" in one.whole_text)
    fields = {str(one.attributes["name"]): str(one.attributes["value"]) for one in form.find("input")}
    assert "3 tasks" in form.whole_text
    answer = browser.post(str(form.attributes["action"]), data=fields)
    assert answer.status_code == 303
    manager.drain()
    assert "3 tasks" in Page(browser.get(answer.headers["location"]).text).root.whole_text
    again = Page(browser.get(f"{FAILED_RUN}/tasks/aggregate").text)
    assert "try 2" in again.root.whole_text


@pytest.mark.parametrize(
    "address", ["/dags/shop/trigger", f"/dags/shop/clear?dry_run=true&run={FAILED_RUN.split('/')[-1]}&only=failed"]
)
def test_a_form_that_is_sent_again_by_a_reload_makes_one_request(
    manager: InMemoryManager, browser: TestClient, address: str
) -> None:
    """The run, or the cleared tasks, would be there twice."""
    before = len(manager.store.read(Request))

    def send(times: int) -> list[str]:
        forms = Page(browser.get(address).text).forms
        (form,) = (one for one in forms if {"once"} <= {field.attributes.get("name") for field in one.find("input")})
        boxes = [one for one in form.find("input") if one.attributes.get("type") != "checkbox"]
        fields = {str(one.attributes["name"]): str(one.attributes.get("value") or "") for one in boxes}
        answers = [browser.post(str(form.attributes["action"]), data=fields) for _ in range(times)]
        assert {one.status_code for one in answers} == {303}
        return [one.headers["location"] for one in answers]

    first, again = send(2)
    assert first == again
    assert len(manager.store.read(Request)) == before + 1
    assert send(1) != [first]
    assert len(manager.store.read(Request)) == before + 2, "a form that was drawn anew"


def record_tick(page: Page, name: str) -> bool:
    """Whether the checkbox of the clear or trigger form is checked."""
    (box,) = (
        one
        for one in page.root.find("input")
        if one.attributes.get("name") == name and one.attributes.get("type") == "checkbox"
    )
    return "checked" in box.attributes


def test_a_run_of_a_date_in_the_future_is_refused_on_the_form_and_taken_with_its_box_ticked(
    manager: InMemoryManager, browser: TestClient
) -> None:
    assert not record_tick(Page(browser.get("/dags/shop/trigger").text), "allow_future")
    submitted = len(manager.store.read(Request))
    form = {"logical_date": "2031-05-01", "conf": '{"full": true}'}
    answer = browser.post("/dags/shop/trigger", data=form)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (422, [])
    (wrong,) = (one.whole_text for one in page.root.find("p") if one.attributes.get("role") == "alert")
    assert "“Logical date” 2031-05-01 lies in the future" in wrong
    assert "add “Allow future”" in wrong and "--" not in wrong
    assert len(manager.store.read(Request)) == submitted
    (date,) = (one for one in page.root.find("input") if one.attributes.get("name") == "logical_date")
    assert date.attributes["value"] == "2031-05-01" and not record_tick(page, "allow_future")

    manager.clock.advance(seconds=1)
    taken = browser.post("/dags/shop/trigger", data={**form, "allow_future": "on"})
    assert taken.status_code == 303
    assert last_asked(manager) == (
        "dag.trigger",
        {"dag_id": "shop", "logical_date": "2031-04-30T22:00:00Z", "conf": {"full": True}, "allow_future": True},
    )
    manager.drain()
    assert "Done" in Page(browser.get(taken.headers["location"]).text).root.whole_text
    kept = browser.post("/dags/shop/trigger", data={"logical_date": "someday", "allow_future": "on"})
    assert record_tick(Page(kept.text), "allow_future"), "a form that comes back is as it was filled in"


def test_a_run_that_the_manager_refuses_leaves_the_form_as_it_was_filled_in(
    manager: InMemoryManager, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = manager.store.append_request

    def answered_at_once(request: Request) -> None:
        plainly(request)
        manager.tick()

    monkeypatch.setattr(manager.store, "append_request", answered_at_once)
    live = next(run for run in manager.runs("shop") if run.state == "running" and run.logical_date is not None)
    form = {"logical_date": live.logical_date.isoformat(), "conf": '{"full": true}'}
    answer = browser.post("/dags/shop/trigger", data=form)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (409, [])
    (wrong,) = (one.whole_text for one in page.root.find("p") if one.attributes.get("role") == "alert")
    assert live.run_id in wrong
    (conf,) = (one.whole_text for one in page.root.find("textarea") if one.attributes.get("name") == "conf")
    assert conf == form["conf"]
    (date,) = (one for one in page.root.find("input") if one.attributes.get("name") == "logical_date")
    assert date.attributes["value"] == form["logical_date"]


@pytest.mark.parametrize("page", ["/dags/shop/clear", FAILED_RUN, f"{FAILED_RUN}/tasks/aggregate"])
def test_a_clear_begins_with_what_comes_after_the_tasks(browser: TestClient, page: str) -> None:
    """The DAG's form, and the links to it on the pages of a run and of a task."""
    if not page.endswith("clear"):
        (page,) = {link for link in Page(browser.get(page).text).links if "/clear?" in link}
    assert record_tick(Page(browser.get(page).text), "downstream")


def test_a_clear_without_what_comes_after_stays_without_it(browser: TestClient) -> None:
    run = FAILED_RUN.split("/")[-1]
    shown = Page(browser.get(f"/dags/shop/clear?dry_run=true&run={run}&tasks=^aggregate$").text)
    assert not record_tick(shown, "downstream"), "a browser sends nothing of a box that is not ticked"
    assert "stay" in shown.root.whole_text and "Select “Downstream”" in shown.root.whole_text


def test_the_page_of_a_run_that_left_tasks_out_says_so(manager: InMemoryManager, browser: TestClient) -> None:
    whole = manager.backfill("shop", days("2024-02-01", 1))
    partial = manager.backfill("shop", days("2024-02-02", 1), tasks="^clean$")
    manager.drain()
    shown = {
        run.backfill_id: Page(browser.get(f"/dags/shop/runs/{run.run_id}").text)
        for run in manager.runs("shop")
        if run.backfill_id in (whole, partial)
    }
    assert "partial: only selected tasks" in shown[partial].root.whole_text
    assert "only selected tasks" not in shown[whole].root.whole_text


@pytest.mark.parametrize(
    ("address", "form", "shown"),
    [
        ("/dags/shop/trigger", {"logical_date": "someday"}, "someday"),
        ("/dags/shop/trigger", {"conf": "{"}, "not JSON"),
        ("/dags/shop/trigger", {"conf": "[1]"}, "must be a JSON object"),
        (
            "/dags/quiet/trigger",
            {"conf": '{"ful": true}'},
            "'ful' is no parameter of DAG 'quiet'; did you mean 'full'?",
        ),
        ("/dags/quiet/trigger", {"conf": '{"full": "yes"}'}, 'must be of type boolean, not "yes"'),
        ("/dags/shop/trigger", {"partition_key": "a", "logical_date": "2024-01-25"}, "don't go together"),
        ("/dags/shop/clear", {"start": "1999-01-01", "end": "1999-01-02"}, "1999"),
        ("/dags/shop/clear", {"tasks": "nope"}, "matches no task"),
    ],
)
def test_a_wrong_value_brings_the_form_back_as_it_was(
    browser: TestClient, manager: InMemoryManager, address: str, form: dict[str, str], shown: str
) -> None:
    declared = {"full": ParamSpec("boolean", description="all of it")}
    manager.add_dag(dag_spec("quiet", "only", schedule="@monthly", params={"full": False}, declared_params=declared))
    manager.tick()
    submitted = len(manager.store.read(Request))
    answer = browser.post(address, data=form)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (422, [])
    assert shown in page.root.whole_text
    kept = [one.attributes.get("value") for one in page.root.find("input")] + [
        one.text for one in page.root.find("textarea")
    ]
    assert set(form.values()) <= set(kept)
    if "quiet" in address:
        assert "all of it" in page.root.whole_text, "the page shows what is declared"
    assert len(manager.store.read(Request)) == submitted


@pytest.mark.parametrize("address", ["/dags/copy/trigger", "/dags/copy/render", "/backfills/new?dag=copy"])
def test_forms_list_the_params_of_the_dag_and_show_them_as_the_example(
    browser: TestClient, manager: InMemoryManager, address: str
) -> None:
    declared = {
        "region": ParamSpec("string", ("eu", "us"), "which one"),
        "days": ParamSpec("integer", is_required=True),
    }
    params = {"region": "eu", "full": False, "db_password": "secret-value"}
    manager.add_dag(dag_spec("copy", "only", schedule=None, params=params, declared_params=declared))
    manager.tick()
    page = Page(browser.get(address).text)
    [table] = [one for one in page.root.find("div") if one.attributes.get("aria-label") == "Parameters"]
    for shown in ("region", "string", '"eu", "us"', "which one", "days", "integer", "required", "full", "false"):
        assert shown in table.whole_text
    assert all(
        "open" in one.attributes for one in page.root.find("details") if one.attributes.get("id") == "more-options"
    )
    [conf] = [one for one in page.root.find("textarea") if one.attributes["name"] == "conf"]
    assert json.loads(conf.attributes["placeholder"]) == {"region": "eu", "full": False, "days": 0}


@pytest.mark.parametrize("address", ["/dags/shop/trigger", "/backfills/new?dag=shop"])
def test_a_dag_without_params_has_no_example(browser: TestClient, address: str) -> None:
    page = Page(browser.get(address).text)
    [conf] = [one for one in page.root.find("textarea") if one.attributes["name"] == "conf"]
    assert not conf.attributes.get("placeholder")


@pytest.mark.parametrize(
    ("address", "form", "status"),
    [
        ("/pools/nope", {"slots": "3"}, 404),
        ("/pools/backfill", {"slots": "0"}, 422),
        ("/pools/backfill", {}, 422),
        (f"{RUN}/cancel", {}, 409),
        (f"{RUN}/mark", {"state": "running"}, 422),
        ("/dags/shop/runs/backfill__2024-01-10T00:00:00Z/mark", {"state": "failed"}, 409),
    ],
)
def test_what_can_be_refused_at_once_is(
    browser: TestClient, manager: InMemoryManager, address: str, form: dict[str, str], status: int
) -> None:
    submitted = len(manager.store.read(Request))
    answer = browser.post(address, data=form)
    assert (answer.status_code, wrongs(Page(answer.text))) == (status, [])
    assert len(manager.store.read(Request)) == submitted


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_form_leads_back_to_us_only(browser: TestClient, back: str) -> None:
    assert browser.post("/dags/shop/pause", data={"back": back}).headers["location"].startswith("/?request_id=")


# -- with tokens ------------------------------------------------------------------------------------------------------


def test_a_stranger_is_led_to_the_login_and_from_there_to_where_they_wanted(
    logged_in: Callable[[str], TestClient],
) -> None:
    browser = logged_in("")
    answer = browser.get("/dags/shop?order=made")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fdags%2Fshop%3Forder%3Dmade")
    page = Page(browser.get(answer.headers["location"]).text)
    assert wrongs(page) == []
    assert "Log in" in page.root.whole_text
    assert "shop" not in [link for link in page.links]
    entered = browser.post("/login", data={"token": "token of ada", "next": "/dags/shop?order=made"})
    assert entered.headers["location"] == "/dags/shop?order=made"
    assert browser.get("/dags/shop").status_code == 200


def test_a_wrong_token_stays_outside(logged_in: Callable[[str], TestClient]) -> None:
    browser = logged_in("")
    answer = browser.post("/login", data={"token": "wrong"})
    assert (answer.status_code, wrongs(Page(answer.text))) == (401, [])
    assert browser.get("/dags").status_code == 303


@pytest.mark.parametrize(
    "there", ["https://evil.example/", "//evil.example", "/\\evil", "/\t/evil", "javascript:alert(1)", "/x\r\nX: 1"]
)
def test_the_login_leads_to_our_pages_only(logged_in: Callable[[str], TestClient], there: str) -> None:
    answer = logged_in("").post("/login", data={"token": "token of ada", "next": there})
    assert answer.headers["location"] == "/dags"


def test_a_change_in_a_session_needs_the_token_of_its_forms(
    manager: InMemoryManager, logged_in: Callable[[str], TestClient]
) -> None:
    browser = logged_in("ada")
    submitted = len(manager.store.read(Request))
    refused = browser.post("/dags/shop/pause")
    assert (refused.status_code, len(manager.store.read(Request))) == (403, submitted)
    page = Page(browser.get("/dags").text)
    form = next(one for one in page.forms if one.attributes.get("action") == "/dags/shop/pause")
    fields = {str(one.attributes["name"]): str(one.attributes["value"]) for one in form.find("input")}
    assert browser.post("/dags/shop/pause", data=fields).status_code == 303
    assert len(manager.store.read(Request)) == submitted + 1


def test_a_viewer_sees_no_button_that_changes_anything(logged_in: Callable[[str], TestClient]) -> None:
    browser = logged_in("ben")
    for address in (
        "/dags",
        "/dags/shop",
        "/pools",
        RUN,
        f"{RUN}/tasks/clean",
        "/dags/shop/trigger",
        "/dags/shop/clear",
    ):
        answer = browser.get(address)
        page = Page(answer.text)
        posts = {one.attributes["action"] for one in page.forms if one.attributes.get("method") == "post"}
        assert (answer.status_code, wrongs(page)) == (200, [])
        assert posts - {"/dags/shop/trigger"} == {"/logout"}, address
    shown = browser.post("/pools/backfill", data={"slots": "3", "csrf_token": "x"})
    assert shown.status_code == 403


def test_logging_out_closes_the_session(logged_in: Callable[[str], TestClient]) -> None:
    browser = logged_in("ada")
    page = Page(browser.get("/pools").text)
    (form,) = (one for one in page.forms if one.attributes.get("action") == "/logout")
    fields = {str(one.attributes["name"]): str(one.attributes["value"]) for one in form.find("input")}
    cookie = {"Cookie": f"bfm_session={browser.cookies['bfm_session']}"}
    assert browser.post("/logout", data=fields).headers["location"] == "/login"
    assert browser.get("/pools").status_code == 303
    assert browser.get("/pools", headers=cookie).status_code == 303, "a copy of the cookie is worth nothing either"


def test_the_address_of_the_logout_asks_before_it_logs_out(logged_in: Callable[[str], TestClient]) -> None:
    browser = logged_in("ada")
    page = Page(browser.get("/logout").text)
    assert wrongs(page) == []
    assert "You are logged in as ada (operator)." in page.root.whole_text
    assert browser.get("/pools").status_code == 200, "no link of another site logs anybody out"
    form = next(one for one in page.root.find("main")[0].find("form"))
    fields = {str(one.attributes["name"]): str(one.attributes["value"]) for one in form.find("input")}
    assert browser.post(str(form.attributes["action"]), data=fields).headers["location"] == "/login"
    assert browser.get("/logout").headers["location"] == "/login"


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://["}]
)
def test_another_site_can_not_log_a_browser_in(logged_in: Callable[[str], TestClient], headers: dict[str, str]) -> None:
    """Login CSRF: a session as somebody else, in whose name requests would be made."""
    answer = logged_in("").post("/login", data={"token": "token of ada"}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_a_program_with_a_wrong_token_is_refused_and_slowed_down_on_pages_too(
    logged_in: Callable[[str], TestClient],
) -> None:
    stranger = logged_in("")
    wrong = {"Authorization": "Bearer guessed"}
    assert [stranger.get("/dags", headers=wrong).status_code for _ in range(30)].count(429) > 0
    assert logged_in("").get("/dags", headers=wrong).status_code == 401
    assert logged_in("").get("/dags").status_code == 303


def test_guesses_at_the_login_page_are_slowed_down_too(logged_in: Callable[[str], TestClient]) -> None:
    stranger = logged_in("")
    guesses = [stranger.get("/login", headers={"Authorization": f"Bearer {n}"}).status_code for n in range(30)]
    assert (guesses[0], guesses[-1]) == (200, 429), "it leads away from here with a right one"
    assert stranger.get("/login", headers={"Authorization": "Bearer token of ada"}).status_code == 303


def test_a_form_that_was_tampered_with_is_no_failure_of_ours(manager: InMemoryManager, browser: TestClient) -> None:
    backfill_id = manager.backfill("shop", days("2024-02-01", 2))
    for drawn in ('{"overrides": 5}', '{"conf": "x", "tasks": {}}', '{"pool": [1]}', "[]", "{", '{"batch": NaN}'):
        answer = browser.post(f"/backfills/{backfill_id}/settings", data={"drawn": drawn, "version": "another"})
        assert answer.status_code in (409, 422)


@pytest.mark.parametrize("conf", ['{"a": "\\ud800"}', '{"a": NaN}', '{"a": ' + "[" * 300 + "]" * 300 + "}"])
def test_parameters_that_no_table_could_hold_are_refused(
    manager: InMemoryManager, browser: TestClient, conf: str
) -> None:
    before = len(manager.store.unanswered())
    assert browser.post("/dags/shop/trigger", data={"conf": conf}).status_code == 422
    form = {
        "dag": "shop",
        "do": "create",
        "kind": "single",
        "start_date": "2024-01-01",
        "end_date": "2024-01-02",
        "conf": conf,
    }
    assert browser.post("/backfills/new", data=form).status_code == 422
    assert len(manager.store.unanswered()) == before


def test_an_address_of_a_date_beyond_the_calendar_is_reported(busy: TestClient) -> None:
    for address in ("/requests?before=", "/dags/shop?before="):
        assert busy.get(f"{address}0001-01-01T00:00:00%2B14:00").status_code == 422
