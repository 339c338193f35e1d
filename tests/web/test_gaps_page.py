"""The tab *Gaps* of a DAG: the matrix, and the way from a cell to a backfill."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from support.lake import Lake
from support.page_checks import Page, wrongs
from support.page_client import browser_of
from support.sample_state import FilledState, StandingClock

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.schedule.timetable import Timetable
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import TableAccess
from backfill_manager.requests.data_gaps import backfill_of_days, gap_days
from backfill_manager.web.pages import data_gaps

ADDRESS = "/dags/flights/gaps?start_date=2024-05-01&end_date=2024-05-04"


@pytest.fixture
def browser(tmp_path: Path) -> TestClient:
    state = FilledState(tmp_path / "state", StandingClock())
    Lake(state, tmp_path / "lake").story()
    return browser_of(state.store, state.clock)


def test_a_cell_leads_to_the_form_that_does_its_interval_again(browser: TestClient) -> None:
    answer = browser.get(ADDRESS)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    links = [one for one in page.root.find("a") if "gap" in (one.attributes.get("class") or "").split()]
    assert [one.attributes.get("class").split()[0] for one in links] == ["s-failed", "s-upstream", "s-retry"]
    form = browser.get(links[0].attributes["href"])
    assert form.status_code == 200
    assert parse_qs(urlsplit(links[0].attributes["href"]).query)["dates"] == ["2024-05-02T00:00:00Z"]
    assert "2024-05-02T00:00:00Z</textarea>" in form.text


def test_all_that_is_missing_or_outdated_becomes_a_backfill(browser: TestClient) -> None:
    page = Page(browser.get(ADDRESS).text)
    buttons = {
        one.whole_text: one.attributes["href"]
        for one in page.root.find("a")
        if "button" in (one.attributes.get("class") or "")
    }
    missing = parse_qs(urlsplit(buttons["Backfill what is missing"]).query)
    assert (missing["kind"], missing["by"], missing["start_date"]) == (["missing"], ["data"], ["2024-05-01"])
    form = browser.get(buttons["Backfill what is missing"]).text
    assert '<option value="data" selected>' in form
    assert 'value="outdated" checked' in browser.get(buttons["Backfill what is outdated"]).text


def test_nothing_is_found(browser: TestClient) -> None:
    assert "No gaps" in browser.get("/dags/flights/gaps?start_date=2024-05-01&end_date=2024-05-01").text


# -- of all DAGs ------------------------------------------------------------------------------------------------------
MATRIX = "/gaps?start_date=2024-05-01&end_date=2024-05-04"


def test_dags_and_days_by_what_was_found(browser: TestClient) -> None:
    answer = browser.get(MATRIX)
    page = Page(answer.text)
    assert (answer.status_code, wrongs(page)) == (200, [])
    cells = [one for one in page.root.find("input") if one.attributes.get("name") == "cell"]
    assert [one.attributes["value"] for one in cells] == [f"flights/2024-05-0{day}" for day in (1, 2, 3, 4)]
    assert [one.attributes["aria-label"].partition(": ")[2] for one in cells] == [
        "1 interval: 1 done", "1 interval: 1 done; 1 empty", "1 interval: 1 done; 1 rewritten", "1 interval: 1 done; 1 outdated",
    ]  # fmt: skip
    labels = [one for one in page.root.find("label") if "gap" in (one.attributes.get("class") or "").split()]
    assert [one.attributes["class"].split()[0] for one in labels] == ["s-success", "s-failed", "s-upstream", "s-retry"]


@pytest.mark.parametrize("zone", ["", "mine:America/New_York"])
@pytest.mark.parametrize("name", ["start_date", "end_date"])
def test_a_wrong_date_is_said_once_and_whole(browser: TestClient, zone: str, name: str) -> None:
    browser.cookies.set("bfm-zone", zone)
    page = Page(browser.get(f"/gaps?{name}=2024-02-31").text)
    assert wrongs(page) == []
    assert page.root.whole_text.count("2024-02-31' is not a date") == 1 and "flights/" not in page.root.whole_text


def test_days_of_a_table_that_can_not_be_read_are_not_called_done(tmp_path: Path) -> None:
    state = FilledState(tmp_path / "state", StandingClock())
    lake = Lake(state, tmp_path / "lake")
    lake.story()
    (tmp_path / "lake" / "silver").rename(tmp_path / "lake" / "away")
    (tmp_path / "lake" / "silver").mkdir()
    (tmp_path / "lake" / "silver" / "a.csv").touch()
    found = gap_days(state.store, "flights", "2024-05-01", "2024-05-04", state.clock.now())
    assert found.problem is not None and "it is no Delta table" in found.problem
    assert [day.worst for day in found.days.values()] == ["unknown"] * 4


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ((2,), {"kind": ["schedule"], "start_date": ["2024-05-02"], "end_date": ["2024-05-02"]}),
        ((4, 3), {"kind": ["schedule"], "start_date": ["2024-05-03"], "end_date": ["2024-05-04"]}),
        ((2, 4), {"kind": ["dates"], "dates": ["2024-05-02T00:00:00Z\n2024-05-04T00:00:00Z"]}),
    ],
)
def test_a_selection_becomes_the_form_of_a_backfill(
    browser: TestClient, days: tuple[int, ...], expected: dict[str, list[str]]
) -> None:
    cells = "&".join(f"cell=flights/2024-05-0{day}" for day in days)
    answer = browser.get(f"/gaps/selected?{cells}", follow_redirects=False)
    assert answer.status_code == 303
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked == {"dag": ["flights"], "reprocess": ["completed"], **expected}
    form = browser.get(answer.headers["location"])
    assert form.status_code == 200 and all(text in form.text for text in expected.get("dates", [""])[0].split())


def test_the_form_has_the_selected_days_of_the_dag_in_whatever_zone_it_is_shown(browser: TestClient) -> None:
    browser.cookies.set("bfm-zone", "mine:America/New_York")
    answer = browser.get("/gaps/selected?cell=flights/2024-05-02", follow_redirects=False)
    page = Page(browser.get(answer.headers["location"]).text)
    fields = {one.attributes.get("name"): one.attributes.get("value") for one in page.root.find("input")}
    start, end = (f"{fields[f'{name}_date']}T{fields[f'{name}_time']}" for name in ("start", "end"))
    assert (start, end) == ("2024-05-01T20:00", "2024-05-02T19:59:59.999999")


def test_what_can_not_be_selected_is_said(browser: TestClient) -> None:
    assert "is not a DAG and a day" in browser.get("/gaps/selected?cell=nonsense").text
    assert "is not a DAG and a day" in browser.get("/gaps/selected?cell=flights/2024-13-01").text
    assert browser.get("/gaps/selected?cell=nothing/2024-05-01").status_code == 404


def test_hours_of_a_day_are_one_cell_in_the_zone_of_the_dag(tmp_path: Path) -> None:
    """The 2nd of May of New York is from 04:00 in UTC; of its hours one is done, and rows of another lie there."""
    state = FilledState(tmp_path / "state", StandingClock())
    lake = Lake(state, tmp_path / "lake")
    lake.dag()
    state.dag("hourly", schedule="@hourly", tasks=(TaskSpec("clean"),))
    hour = datetime(2024, 5, 2, 4, tzinfo=UTC)
    run_id = state.run(dag_id="hourly", on="2024-05-02T04:00Z", interval_end=hour + timedelta(hours=1))
    version = lake.rows("silver", 2)
    state.put(
        TableAccess(
            dag_id="hourly", run_id=run_id, task_id="clean", launch=1, number=0, dag_version=1, run_seq=1, access="write",
            succeeded=True, at=hour + timedelta(hours=1), table_name="silver", table_path=lake.path("silver"), version=version,
            interval_start=hour, interval_end=hour + timedelta(hours=1), interval_column="at",
        )
    )  # fmt: skip
    found = gap_days(state.store, "hourly", "2024-05-02", "2024-05-03", state.clock.now())
    assert found.problem is None
    first, second = (found.days[date(2024, 5, day)] for day in (2, 3))
    assert (first.intervals, first.done, first.findings) == (24, 1, {"empty": 1, "no_run": 1})
    assert (second.intervals, second.done, second.worst, second.is_done) == (24, 0, None, False)
    assert first.describe() == "24 intervals: 1 done; 1 empty; 1 no_run"
    with pytest.raises(InvalidInput, match="than a list takes"):
        backfill_of_days(state.store, "hourly", [date(2024, 5, day) for day in range(1, 31, 2)])
    whole = backfill_of_days(state.store, "hourly", [date(2024, 5, day) for day in range(1, 31)])
    assert (whole["kind"], whole["start_date"], whole["end_date"]) == ("schedule", "2024-05-01", "2024-05-30")


def test_the_range_stays_the_same_from_page_to_page(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_gaps, "PER_PAGE", 1)
    browser.cookies.set("bfm-zone", "mine:America/New_York")
    address, seen = f"{ADDRESS}&zone=UTC", []
    while address:
        page = Page(browser.get(address).text)
        fields = {one.attributes.get("name"): one.attributes.get("value") for one in page.root.find("input")}
        seen.append((fields["start_date"], fields["end_date"]))
        links = [one.attributes.get("href") or "" for one in page.root.find("a")]
        address = next((one for one in links if f"page={len(seen) + 1}" in one), "")
    assert seen == [("2024-04-30T20:00", "2024-05-04T19:59:59.999999")] * 3


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01"])
def test_a_day_at_the_end_of_all_years_has_no_interval(browser: TestClient, day: str) -> None:
    answer = browser.get(f"/gaps/selected?cell=flights/{day}")
    assert "has no interval on these days" in answer.text


def test_days_that_lie_far_apart_are_a_list_whatever_lies_between(browser: TestClient, tmp_path: Path) -> None:
    state = FilledState(tmp_path / "other", StandingClock())
    state.dag("often", schedule="*/15 * * * *", tasks=(TaskSpec("clean"),))
    chosen = backfill_of_days(state.store, "often", [date(2000, 1, 1), date(2024, 1, 1)])
    assert (chosen["kind"], len(chosen["dates"].split())) == ("dates", 192)


def test_what_many_days_of_a_frequent_schedule_hold_is_not_made_interval_by_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million in a minute, for whoever may read pages."""
    state = FilledState(tmp_path / "other", StandingClock())
    state.dag("often", schedule="* * * * *", tasks=(TaskSpec("clean"),))
    made, intervals = [], Timetable.intervals

    def counted(self: Timetable, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        for one in intervals(self, start, end):
            made.append(one)
            yield one

    monkeypatch.setattr(Timetable, "intervals", counted)
    january = [date(year, 1, day) for year in range(2020, 2060) for day in range(1, 29)]
    with pytest.raises(InvalidInput, match="than a list takes"):
        backfill_of_days(state.store, "often", january)
    assert backfill_of_days(state.store, "often", january[:28])["end_date"] == "2020-01-28"
    assert len(made) < 1000


def test_days_between_which_nothing_is_due_are_one_range(tmp_path: Path) -> None:
    state = FilledState(tmp_path / "other", StandingClock())
    state.dag("weekly", schedule="0 6 * * 1", tasks=(TaskSpec("clean"),))
    mondays = [date(2024, 1, 1) + timedelta(weeks=n) for n in range(3)]
    assert backfill_of_days(state.store, "weekly", mondays)["kind"] == "schedule"
    assert len(backfill_of_days(state.store, "weekly", mondays[::2])["dates"].split()) == 2
