"""The page *New backfill*, with and without scripts: the form, its dry run, and what it requests."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    FORM,
    fields_of,
    followed,
    map_of,
    page_of,
    put,
    queued_request,
    sent,
    text_of,
)
from support.page_checks import Page, wrongs
from support.page_client import browser_of

from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.model.records import (
    Request,
    Response,
)
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.errors import KIND_IMPLIES_REPROCESS
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days
from backfill_manager.web.pages import backfill_forms


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
