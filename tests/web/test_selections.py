"""What pages do with a selection: what each action shows before it is done, the request that follows, and what is refused."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from support.page_client import browser_of

from backfill_manager.dags.schedule.timetable import Timetable, timetable_of
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, Request
from backfill_manager.queries.selected_dates import dates_of_runs
from backfill_manager.store.base import Condition, matching
from backfill_manager.testing import InMemoryManager, dag_spec, days
from backfill_manager.web.pages import selections

FAILING = (3, 4, 9)


def some_fail(launch: TaskLaunch) -> Outcome:
    at = launch.run.logical_date
    return Failed("boom") if at is not None and at.day in FAILING else Succeeded()


@pytest.fixture
def scene() -> tuple[InMemoryManager, TestClient, str]:
    manager = InMemoryManager(
        dag_spec("flights", "clean", schedule="@daily"), dag_spec("hourly", "a", schedule="@hourly"),
        dag_spec("regions", "load", schedule=None), script=some_fail,
    )  # fmt: skip
    backfill = manager.backfill("flights", days("2013-01-01", 20))
    manager.drain()
    return manager, browser_of(manager.store, manager.clock), backfill


def posts(browser: TestClient, address: str, **fields: str) -> Any:
    token = re.search(r'name="csrf-token" content="([^"]*)"', browser.get("/backfills").text)
    assert token is not None
    return browser.post(address, data={"csrf_token": token[1], **fields})


def text_of(answer: Any) -> str:
    main = answer.text[answer.text.index("<main") :]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def hidden_fields(answer: Any) -> dict[str, str]:
    """Of the form that does it."""
    form = re.findall(r"<form[^>]*method=\"post\".*?</form>", answer.text, re.DOTALL)[-1]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    found += re.findall(r'<textarea name="([^"]*)" hidden>([^<]*)</textarea>', form)
    return {name: html.unescape(value) for name, value in found if name != "csrf_token"}


def test_more_runs_than_are_listed_are_refused_and_not_cut(
    scene: tuple[InMemoryManager, TestClient, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, browser, _ = scene
    monkeypatch.setattr(selections, "MAX_LISTED", 5)
    numbers = [run.run_seq for run in manager.runs("flights")]
    answer = posts(browser, "/dags/flights/selected", do="clear", of="runs", selected=f"{min(numbers)}-{max(numbers)}")
    assert answer.status_code == 422
    assert "More than 5 runs are selected; select fewer." in text_of(answer)


def payload(manager: InMemoryManager, kind: str) -> dict[str, Any]:
    (row,) = manager.store.read(Request, [Condition("kind", "=", kind)])
    return dict(json.loads(row.payload_json))


def value_of(answer: Any, name: str) -> str:
    found = re.search(rf'<input[^>]*name="{name}"[^>]*value="([^"]*)"', answer.text)
    assert found is not None, name
    return found[1]


def test_a_retry_of_selected_items_is_shown_and_then_submitted(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    manager, browser, backfill = scene
    shown = posts(browser, f"/backfills/{backfill}/selected", do="retry", selected="1-4")
    assert "Retry 2 failed items" in text_of(shown)
    assert "4 items selected" in text_of(shown)
    fields = hidden_fields(shown)
    assert fields["items"] == "1-4"
    answer = posts(browser, f"/backfills/{backfill}/retry", **fields)
    assert answer.status_code == 303
    assert payload(manager, "backfill.retry") == {
        "backfill_id": backfill, "latest_version": False, "downstream": False, "items": ["1-4"],
    }  # fmt: skip


def test_a_retry_says_when_nothing_of_it_failed_or_the_backfill_still_runs(
    scene: tuple[InMemoryManager, TestClient, str],
) -> None:
    manager, browser, backfill = scene
    shown = posts(browser, f"/backfills/{backfill}/selected", do="retry", selected="1-2")
    assert "None of the selected items has failed" in text_of(shown)
    assert f'action="/backfills/{backfill}/retry"' not in shown.text
    manager.script = lambda _: None
    running = manager.backfill("regions", keys=["north"])
    manager.drain()
    shown = posts(browser, f"/backfills/{running}/selected", do="retry", selected="1")
    assert "can be retried when it has ended" in text_of(shown)


def test_a_clear_of_selected_items_is_a_dry_run_first_and_then_submitted(
    scene: tuple[InMemoryManager, TestClient, str],
) -> None:
    manager, browser, backfill = scene
    shown = posts(browser, f"/backfills/{backfill}/selected", do="clear", selected="3,5-6")
    assert "3 tasks of 3 runs" in text_of(shown)
    assert f"3 items of backfill {backfill}: 3, 5 to 6" in text_of(shown)
    fields = hidden_fields(shown)
    again = posts(browser, "/dags/flights/clear/dry-run", **{**fields, "tasks": "^clean$"})
    assert "3 tasks of 3 runs" in text_of(again)
    answer = posts(browser, "/dags/flights/clear", **fields)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"/backfills/{backfill}?request_id=")
    ask = payload(manager, "tasks.clear")["ask"]
    assert (ask["backfill_id"], ask["items"], ask["downstream"]) == (backfill, ["3", "5-6"], True)


@pytest.mark.parametrize(("do", "state", "marked"), [("mark_success", "success", 2), ("mark_failed", "failed", 2)])
def test_a_mark_of_selected_items_is_shown_and_submitted(
    scene: tuple[InMemoryManager, TestClient, str], do: str, state: str, marked: int
) -> None:
    manager, browser, backfill = scene
    shown = posts(browser, f"/backfills/{backfill}/selected", do=do, selected="1-4")
    assert f"Mark {marked} runs {state}" in text_of(shown)
    assert "2 selected runs are" in text_of(shown)
    answer = posts(browser, "/dags/flights/mark", **hidden_fields(shown))
    assert answer.status_code == 303
    sent = payload(manager, "runs.mark")
    assert (sent["state"], sent["backfill_id"], sent["items"]) == (state, backfill, ["1-4"])


def test_selected_items_become_a_range_or_dates(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    _, browser, backfill = scene
    shown = posts(browser, f"/backfills/{backfill}/selected", do="create", selected="3-7")
    assert (value_of(shown, "start_date"), value_of(shown, "end_date")) == ("2013-01-03", "2013-01-07")
    assert re.search(r'name="kind" value="schedule" checked', shown.text)
    shown = posts(browser, f"/backfills/{backfill}/selected", do="create", selected="3-4,9")
    assert re.search(r'name="kind" value="dates" checked', shown.text)
    assert "2013-01-03\n2013-01-04\n2013-01-09" in shown.text
    assert re.search(r'value="completed" selected', shown.text)


def test_a_selected_interval_that_is_none_of_the_schedule_stays_as_it_is() -> None:
    """A month as one run, a part of a day, such a part before a whole day, and weeks of a DAG that is daily by now."""
    (day, midnight), following = days("2013-01-01", 2)
    afternoon = (day + timedelta(hours=13), midnight)
    manager = InMemoryManager(dag_spec("flights", "clean", schedule="@daily"))
    browser = browser_of(manager.store, manager.clock)

    def form(*intervals: tuple[datetime, datetime]) -> str:
        backfill = manager.backfill("flights", intervals)
        manager.drain()
        shown = posts(browser, f"/backfills/{backfill}/selected", do="create", selected=f"1-{len(intervals)}")
        kind = re.search(r'name="kind" value="([a-z]*)" checked', shown.text)
        assert kind is not None
        if kind[1] == "dates":
            listed = re.search(r'<textarea[^>]*name="dates"[^>]*>([^<]*)<', shown.text)
            return f"dates {listed and listed[1].split()}"
        return f"{kind[1]} {value_of(shown, 'start_date')} {value_of(shown, 'end_date')} {value_of(shown, 'end_time')}"

    assert form((day, day + timedelta(days=31))) == "single 2013-01-01 2013-01-31 "
    assert form(afternoon, following) == "dates ['2013-01-01T13:00', '2013-01-02']"
    assert form((day, midnight)) == "schedule 2013-01-01 2013-01-01 "
    assert form(afternoon) == "dates ['2013-01-01T13:00']"
    weeks = [(day + timedelta(days=7 * n), day + timedelta(days=7 * n + 7)) for n in range(2)]
    assert form(*weeks) == "schedule 2013-01-01 2013-01-14 ", "the last week, too"


def test_selected_batches_become_all_of_their_dates() -> None:
    manager = InMemoryManager(dag_spec("flights", "clean", schedule="@daily", batchable=True))
    manager.backfill("flights", days("2013-01-01", 21), batch=7)
    manager.drain()
    browser = browser_of(manager.store, manager.clock)
    first, second, third = (str(run.run_seq) for run in manager.store.read(DagRun, order_by=["logical_date"]))
    shown = posts(browser, "/dags/flights/selected", do="create", of="runs", selected=f"{first},{second}")
    assert (value_of(shown, "start_date"), value_of(shown, "end_date")) == ("2013-01-01", "2013-01-14")
    shown = posts(browser, "/dags/flights/selected", do="create", of="runs", selected=f"{first},{third}")
    listed = re.search(r'<textarea[^>]*name="dates"[^>]*>([^<]*)<', shown.text)
    assert listed is not None
    assert listed[1].split() == [f"2013-01-{day:02}" for day in (*range(1, 8), *range(15, 22))]


Part = tuple[int, int] | str | None  # of January in hours from the first; a partition; neither
DAILY, MONTHLY, NONE = (timetable_of(dag_spec("d", "a", schedule=one)) for one in ("@daily", "@monthly", None))


def runs_of(*parts: Part) -> list[DagRun]:
    first, runs = days("2013-01-01", 1)[0][0], []
    for n, part in enumerate(parts):
        run = DagRun("d", f"r{n}", "manual", "success", 1, n, first)
        if isinstance(part, tuple):
            start, end = (first + timedelta(hours=hour) for hour in part)
            items = max(1, (end - start).days)
            run = run.evolve(logical_date=start, interval_start=start, interval_end=end, items=items)
        runs.append(run.evolve(partition_key=part) if isinstance(part, str) else run)
    return runs


@pytest.mark.parametrize(
    ("parts", "timetable", "chosen"),
    [
        ([(0, 24)], DAILY, "schedule 01T00 01T00"),
        ([(0, 24), (24, 48)], DAILY, "schedule 01T00 02T00"),
        ([(13, 24), (24, 48)], DAILY, "dates 01T13 02T00"),  # a part of a day before a day
        ([(24, 48), (0, 24), (0, 24)], DAILY, "schedule 01T00 02T00"),  # two runs of one date
        ([(0, 24), (48, 72)], DAILY, "dates 01T00 03T00"),
        ([(0, 24)], NONE, "single 01T00 02T00"),
        ([(0, 24), (24, 30)], NONE, "dates 01T00 02T00"),  # there is no schedule that it could be a range of
        ([(5, 5)], NONE, "dates 01T05"),
        ([(0, 24), (24, 24)], DAILY, "dates 01T00 02T00"),
        ([(0, 48)], NONE, "single 01T00 03T00"),
        ([(0, 48), (72, 96)], DAILY, "dates 01T00 02T00 04T00"),  # a batch
        ([(24, 72)], MONTHLY, "single 02T00 04T00"),  # of a DAG that was daily then
        (["south", "north", "south"], DAILY, "partitions south north"),
    ],
)
def test_what_selected_runs_are_as_a_backfill(parts: list[Part], timetable: Timetable, chosen: str) -> None:
    options = dates_of_runs(runs_of(*parts), timetable).options()
    kind = options.pop("kind")
    values = (value for option in options.values() for value in ([option] if isinstance(option, str) else option))
    said = [value.removeprefix("2013-01-").removesuffix(":00:00Z") for value in values]
    assert " ".join([kind, *said]) == chosen


@pytest.mark.parametrize(
    ("parts", "why"), [(["south", (0, 24)], "so select one kind"), ([None], "has no date and no partition")]
)
def test_selected_runs_that_make_no_backfill_are_refused(parts: list[Part], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        dates_of_runs(runs_of(*parts), DAILY)


def test_selected_partitions_become_partitions(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    manager, browser, _ = scene
    backfill = manager.backfill("regions", keys=["north", "south/west", "50% off"])
    manager.drain()
    shown = posts(browser, f"/backfills/{backfill}/selected", do="create", selected="2-3")
    assert re.search(r'name="kind" value="partitions" checked', shown.text)
    assert "south/west\n50% off" in shown.text


def test_selected_days_become_dates_of_the_schedule(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    _, browser, _ = scene
    first = 734_869  # 2013-01-01
    shown = posts(browser, "/dags/hourly/selected", do="create", of="days", selected=f"{first}-{first + 2}")
    assert (value_of(shown, "start_date"), value_of(shown, "end_date")) == ("2013-01-01", "2013-01-03")
    shown = posts(browser, "/dags/hourly/selected", do="create", of="days", selected=f"{first},{first + 2}")
    listed = re.search(r'<textarea[^>]*name="dates"[^>]*>([^<]*)<', shown.text)
    assert listed is not None
    assert len(listed[1].split()) == 48
    shown = posts(browser, "/dags/regions/selected", do="create", of="days", selected=f"{first}-{first + 1}")
    assert "2013-01-01\n2013-01-02" in shown.text


def test_selected_days_and_runs_are_cleared_by_dates_and_ids(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    manager, browser, _ = scene
    first = 734_869
    shown = posts(browser, "/dags/flights/selected", do="retry", of="days", selected=f"{first}-{first + 3},{first + 8}")
    assert "3 tasks of 3 runs" in text_of(shown)  # those that failed
    fields = hidden_fields(shown)
    assert (fields["dates"], fields["only"]) == ("2013-01-01/2013-01-04,2013-01-09", "failed")
    posts(browser, "/dags/flights/clear", **fields)
    assert payload(manager, "tasks.clear")["ask"]["dates"] == ["2013-01-01/2013-01-04", "2013-01-09"]

    runs = manager.store.read(DagRun, matching(dag_id="flights"), order_by=["logical_date"])[:2]
    numbers = ",".join(str(run.run_seq) for run in runs)
    shown = posts(browser, "/dags/flights/selected", do="mark_failed", of="runs", selected=numbers)
    assert "Mark 2 runs failed" in text_of(shown)
    posts(browser, "/dags/flights/mark", **hidden_fields(shown))
    assert payload(manager, "runs.mark")["run_ids"] == [run.run_id for run in runs]


def test_all_that_match_the_filter_are_ranges(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    _, browser, backfill = scene
    assert browser.get(f"/backfills/{backfill}/matching").text == "1-20"
    assert browser.get(f"/backfills/{backfill}/matching?state=failed").text == "3-4,9"
    assert browser.get(f"/backfills/{backfill}/matching?state=failed&from=4&to=8").text == "4"
    assert browser.get(f"/backfills/{backfill}/matching?state=odd").status_code == 422


@pytest.mark.parametrize(
    ("selected", "why"),
    [
        ("", "Nothing is selected"),
        ("x", "The selection must be a number such as 5, or a range such as 5-20, not 'x'"),
        (",".join(str(2 * n + 1) for n in range(2001)), "scattered over 2,001 ranges; at most 2,000 are possible"),
        ("30", "has 20 items, numbered from 1"),
    ],
)
def test_a_selection_of_nothing_or_too_much_is_refused_in_one_line(
    scene: tuple[InMemoryManager, TestClient, str], selected: str, why: str
) -> None:
    _, browser, backfill = scene
    answer = posts(browser, f"/backfills/{backfill}/selected", do="mark_success", selected=selected)
    assert answer.status_code == 422
    assert why in text_of(answer)


def test_more_dates_than_a_form_lists_are_refused(
    scene: tuple[InMemoryManager, TestClient, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser, backfill = scene
    monkeypatch.setattr(selections, "MAX_LISTED", 3)
    answer = posts(browser, f"/backfills/{backfill}/selected", do="create", selected="1,3,5,7")
    assert (answer.status_code, "More than 3 separate dates" in text_of(answer)) == (422, True)
    assert posts(browser, f"/backfills/{backfill}/selected", do="create", selected="1-7").status_code == 200


def test_a_reload_of_what_was_posted_leads_back(scene: tuple[InMemoryManager, TestClient, str]) -> None:
    _, browser, backfill = scene
    for address, back in (
        (f"/backfills/{backfill}/selected", f"/backfills/{backfill}"),
        ("/dags/flights/selected", "/dags/flights"),
        ("/dags/flights/clear/dry-run", "/dags/flights/clear"),
    ):
        assert browser.get(address).headers["location"] == back


def test_a_viewer_may_select_nothing(manager: InMemoryManager, logged_in: Callable[[str], TestClient]) -> None:
    backfill = manager.store.read(Backfill)[0].backfill_id
    assert manager.store.read(BackfillItem, matching(backfill_id=backfill))
    ben, ada = logged_in("ben"), logged_in("ada")
    for address in (f"/backfills/{backfill}", "/dags/shop", "/dags/shop/calendar"):
        assert "selection.js" not in ben.get(address).text
        assert 'id="selection"' not in ben.get(address).text
        assert 'id="selection"' in ada.get(address).text
    for address, fields in (
        (f"/backfills/{backfill}/selected", {}), ("/dags/shop/selected", {"of": "days"}),
        ("/dags/shop/mark", {"state": "failed", "dates": "2024-01-05"}), ("/dags/shop/clear/dry-run", {}),
    ):  # fmt: skip
        assert posts(ben, address, do="clear", selected="1", **fields).status_code == 403
