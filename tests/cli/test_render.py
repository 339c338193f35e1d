"""`dags render`, over the tables and over a server; the dry run of a backfill shows the same of its first item."""

from __future__ import annotations

import pytest
from support.bfm import Bfm
from support.page_checks import Page
from support.page_client import browser_of
from support.sample_state import FilledState

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.planning.backfills.rendering import PlannedRun, render
from backfill_manager.schemas.params import ParamSpec


def fill(state: FilledState) -> None:
    rows = TaskSpec("rows", kind="sql", sql="SELECT *\nFROM orders[0] WHERE region = :region", into="copied")
    declared = {"region": ParamSpec("string", ("eu", "us"))}
    tasks = (rows, TaskSpec("tell", upstream=("rows",)))
    state.dag(tasks=tasks, params={"region": "eu"}, declared_params=declared)


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def test_sql_params_and_interval_are_shown(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("dags", "render", "flights", "2013-01-05", "--conf", '{"region": "us"}')
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert ":interval_start = TIMESTAMP '2013-01-05T05:00:00Z'" in lines
    assert ":region = 'us'" in lines
    assert lines[lines.index("task rows (sql, into copied)") + 2] == "  FROM orders[0] WHERE region = :region"
    assert "task tell (python)" in lines


def test_one_task_of_a_date_or_of_a_partition(bfm: Bfm, filled: FilledState) -> None:
    of_date = bfm("dags", "render", "flights", "2013-01-05", "tell", "--output", "json").document
    assert ([task["task_id"] for task in of_date["tasks"]], of_date["logical_date"]) == (
        ["tell"],
        "2013-01-05T05:00:00Z",
    )
    of_key = bfm("dags", "render", "flights", "--partition", "north", "rows", "--output", "json").document
    assert [task["task_id"] for task in of_key["tasks"]] == ["rows"]
    assert (of_key["partition_key"], of_key["interval_start"]) == ("north", None)
    assert of_key["sql_parameters"] == {"region": "'eu'", "run_id": "'manual__north'", "partition_key": "'north'"}


def test_a_date_of_no_interval_is_said_to_be_none(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("dags", "render", "flights", "2013-01-05T07:30")
    assert result.code == 0 and "interval_start = TIMESTAMP '2013-01-06T05:00:00Z'" in result.out
    assert "No interval starts at 2013-01-05T07:30" in result.err and "this is the next one" in result.err
    assert "No interval" not in bfm("dags", "render", "flights", "2013-01-05").err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("flihgts", "2013-01-05"), 3, "did you mean 'flights'"),
        (("flights", "2013-01-05", "row"), 3, "did you mean 'rows'"),
        (("flights", "soon"), 2, "DATE: 'soon' is not a date; use YYYY-MM-DD, YYYY-MM-DDTHH:MM"),
        (("flights", "2013-01-05", "--conf", '{"region": "uk"}'), 2, "did you mean 'us'"),
        (("flights", "2013-01-05", "rows", "--partition", "north"), 2, "DATE and --partition don't go together"),
    ],
)
def test_what_could_not_run_is_refused(
    bfm: Bfm, filled: FilledState, args: tuple[str, ...], code: int, message: str
) -> None:
    result = bfm("dags", "render", *args)
    assert (result.code, message in " ".join(result.err.split())) == (code, True), result.err


def test_a_server_and_the_page_show_the_same(bfm: Bfm, filled: FilledState) -> None:
    here = bfm("dags", "render", "flights", "2013-01-05", "--conf", '{"region": "us"}', "--output", "json").document
    query = {"logical_date": "2013-01-05", "conf": '{"region": "us"}'}
    browser = browser_of(filled.store, filled.clock)
    assert browser.get("/api/v1/dags/flights/render", params=query).json() == here
    wrong = browser.get("/api/v1/dags/flights/render", params={"conf": '{"regoin": 1}'})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "unknown_param")
    shown = Page(browser.get("/dags/flights/render", params=query).text).root.whole_text
    assert "FROM orders[0] WHERE region = :region" in shown and "TIMESTAMP '2013-01-05T05:00:00Z'" in shown
    assert "Interval 2013-01-05 to 2013-01-06" in shown, "in the zone of the page"
    browser.cookies.set("bfm-zone", "utc")
    in_utc = Page(browser.get("/dags/flights/render", params=query).text).root.whole_text
    assert "2013-01-05 05:00 UTC to 2013-01-06 05:00 UTC" in in_utc
    refused = Page(browser.get("/dags/flights/render", params={"conf": '{"regoin": 1}'}).text).root.whole_text
    assert "did you mean 'region'?" in refused


def test_a_dry_run_shows_its_first_item(bfm: Bfm, filled: FilledState) -> None:
    spec = filled.dag()
    first = render(spec, PlannedRun("backfill__north", None, "north", {}), ["clean"])
    filled.pools()
    filled.leads()
    summary = {"dag_id": "flights", "items": 0, "pending": 1, "runs": 1, "skipped": {}}
    filled.clock.meanwhile = [
        lambda: filled.answers_next(payload={"items": [], "summary": summary, "first_item": first})
    ]
    result = bfm("backfill", "create", "flights", "--partition", "north", "-n")
    assert "What the tasks of the first run see:" in result.out.splitlines()
    assert "task clean (python)" in result.out.splitlines()
