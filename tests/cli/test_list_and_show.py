"""What the reading commands print: the same as a table and as one document, wherever the global options stand."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable
from support.bfm import Bfm
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager import file
from backfill_manager.cli.commands.run_watch import run_summary
from backfill_manager.cli.render.printer import Output, cell
from backfill_manager.dags.definition import TaskSpec
from backfill_manager.model.records import Backfill, DagRun, Pool, Request, TaskInstance, TaskLog, TaskTry
from backfill_manager.store.table_properties import VERSION_PROPERTY

RUN = "backfill__2013-01-01T05:00:00Z"


def test_global_options_work_before_and_after_the_command(bfm: Bfm, state: FilledState, tmp_path: Path) -> None:
    state.backfill("b1", {"success": 1})
    (tmp_path / "elsewhere").mkdir()
    place = str(state.root)

    before = bfm("--state", place, "--output", "json", "backfill", "show", "b1")
    after = bfm("backfill", "show", "b1", "--output", "json", "--state", place)
    by_environment = bfm("backfill", "show", "b1", "--output", "json", environ={"BFM_STATE": place})

    assert before.code == 0
    assert before == after == by_environment
    assert before.document["backfill_id"] == "b1"


def test_previews_are_marked_in_the_list(bfm: Bfm, state: FilledState) -> None:
    for name, outcome in (("b1", None), ("b2", "promoted")):
        state.backfill(name, {"success": 1}, state="success", preview_id=name, preview_outcome=outcome)
    state.backfill("b3", {"success": 1}, state="success")
    of = {line.split()[0]: line for line in bfm("backfill", "list").out.splitlines() if line.startswith("b")}
    assert of["b1"].rstrip().endswith(" preview") and "promoted preview" in of["b2"] and "preview" not in of["b3"]


def test_an_option_of_the_command_wins_over_a_global_one_of_the_same_name(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"failed": 1}, state="failed")
    state.backfill("b2", {"success": 1}, state="success")

    result = bfm("--state", str(state.root), "--output", "json", "backfill", "list", "--state", "failed")

    assert [one["backfill_id"] for one in result.document] == ["b1"]


def test_a_place_given_as_a_filter_is_explained(bfm: Bfm, state: FilledState) -> None:
    result = bfm("backfill", "list", "--state", "./state")

    assert result.code == 2
    assert "'./state' is no state of a backfill" in result.err
    assert "`bfm --state ./state backfill list`" in result.err


def test_backfills_are_listed_as_table_json_and_yaml(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 3, "failed": 1, "pending": 2})

    table, json_, yaml_ = (bfm("backfill", "list", "--output", form) for form in ("table", "json", "yaml"))

    assert "b1" in table.out
    assert "schedule 2013-01-01T05:00:00Z .. 2013-01-31T05:00:00Z" in table.out
    assert json_.document == yaml.safe_load(yaml_.out)
    assert json_.document[0]["success"] == 3
    assert json_.err == yaml_.err == ""


def test_a_list_of_nothing_says_what_to_do(bfm: Bfm, state: FilledState) -> None:
    assert "create one with `bfm backfill create`" in bfm("backfill", "list").err
    assert "a manager loads them from its bundles" in bfm("dags", "list").err
    assert bfm("backfill", "list", "--output", "json").out == "[]\n"


def test_one_backfill_is_shown_by_prefix_and_as_the_latest(bfm: Bfm, state: FilledState) -> None:
    state.backfill("abc123", {"success": 2, "pending": 1})

    assert bfm("backfill", "show", "abc", "--output", "json") == bfm("backfill", "show", "latest", "--output", "json")
    people = bfm("backfill", "show", "latest").out
    assert "abc123" in people
    assert "planned" in people


def test_items_are_paged_for_people_and_whole_for_programs(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 30, "pending": 30})

    first = bfm("backfill", "items", "b1")
    second = bfm("backfill", "items", "b1", "--offset", "50")
    whole = bfm("backfill", "items", "b1", "--output", "json")
    some = bfm("backfill", "items", "b1", "--output", "json", "--limit", "3", "--offset", "2")

    assert "2013-02-19T05:00:00Z" in first.out
    assert "2013-02-21T05:00:00Z" not in first.out
    assert "1 to 50 of 60; then --offset 50" in first.err
    assert "2013-03-01T05:00:00Z" in second.out
    assert second.err == ""
    assert len(whole.document) == 60
    assert [one["ordinal"] for one in some.document] == [3, 4, 5]
    assert len(bfm("backfill", "items", "b1", "--state", "pending", "--output", "json").document) == 30


def test_dags_are_listed_with_what_is_due_next_and_broken_files_are_counted(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.dag("hourly", schedule={"seconds": 5400})
    state.dag("gone", is_active=False)
    state.import_error()

    result = bfm("dags", "list")
    [flights, hourly] = bfm("dags", "list", "--output", "json").document

    assert "America/New_York" in result.out
    assert "every 1 h 30 min" in result.out
    assert "gone" not in result.out
    assert result.err == "1 file could not be read: see `bfm dags import-errors`.\n"
    assert (flights["dag_id"], flights["next_logical_date"]) == ("flights", "2024-05-14T04:00:00Z")
    assert flights["next_due_at"] == "2024-05-15T04:00:00Z", (
        "yesterday's interval was due when it was over, in New York"
    )
    assert hourly["schedule"] == {"seconds": 5400}
    errors = bfm("dags", "import-errors", "--output", "json").document
    assert (errors[0]["file"], errors[0]["line"]) == ("broken.py", 3)


def test_the_next_intervals_of_a_dag_follow_its_clock(bfm: Bfm, state: FilledState) -> None:
    state.dag()

    shown = bfm("dags", "next", "flights", "-n", "3", "--output", "json").document

    assert [one["interval_start"] for one in shown] == [f"2024-05-{day}T04:00:00Z" for day in (14, 15, 16)]
    assert shown[0]["interval_end"] == shown[0]["due_at"] == shown[1]["interval_start"]
    assert "2024-05-16 00:00:00-04:00" in bfm("dags", "next", "flights", "-n", "3").out


def test_what_the_next_intervals_will_wait_for(bfm: Bfm, state: FilledState) -> None:
    waits = ("bronze.events", file("/in/{interval_start:%Y-%m-%d}/_SUCCESS"))
    state.dag(tasks=(TaskSpec("clean", waits_for=waits), TaskSpec("report", waits_for=waits[:1])))
    shown = bfm("dags", "next", "flights", "-n", "2", "--output", "json").document
    days = ("2024-05-14", "2024-05-15")  # of New York
    assert [one["waits_for"] for one in shown] == [["bronze.events", f"/in/{day}/_SUCCESS"] for day in days]
    assert "bronze.events" in bfm("dags", "next", "flights").out
    assert "bronze.events, /in/{interval_start:%Y-%m-%d}/_SUCCESS" in " ".join(
        bfm("dags", "show", "flights").out.split()
    )
    assert bfm("dags", "show", "flights", "--output", "json").document["tasks"][0]["waits_for"] == [
        "bronze.events", "/in/{interval_start:%Y-%m-%d}/_SUCCESS",
    ]  # fmt: skip


def test_what_comes_next_goes_on_from_the_latest_backfill_run_and_not_from_runs_by_hand(
    bfm: Bfm, state: FilledState
) -> None:
    state.dag()
    state.dag("hourly", schedule="@hourly")
    state.run(on="2024-05-14", run_type="backfill")
    state.run(on="2024-05-17", run_type="manual")
    state.run(on="2024-05-18", run_type="backfill", run_id="early")  # made before its interval had ended
    state.run(on="2024-05-20", run_type="external", dag_id="flights")
    state.run(on="2024-05-19", state="overridden", run_id="old")

    shown = bfm("dags", "next", "flights", "-n", "2", "--output", "json").document
    listed = {one["dag_id"]: one["next_due_at"] for one in bfm("dags", "list", "--output", "json").document}

    assert [one["due_at"] for one in shown] == ["2024-05-16T04:00:00Z", "2024-05-17T04:00:00Z"]
    assert listed == {"flights": "2024-05-16T04:00:00Z", "hourly": "2024-05-15T12:00:00Z"}


def test_a_dag_without_an_interval_left_says_so(bfm: Bfm, state: FilledState) -> None:
    state.dag("by_hand", schedule=None)
    state.dag("over", end_date=NEW_YEAR + 5 * DAY)

    assert "has no schedule" in bfm("dags", "next", "by_hand").err
    assert "has no interval left: its end_date is 2013-01-06 00:00:00-05:00." in bfm("dags", "next", "over").err
    assert bfm("dags", "next", "over", "--output", "json").out == "[]\n"


def test_one_dag_is_shown_with_its_tasks(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 2, "failed": 1})

    shown = bfm("dags", "show", "flights", "--output", "json").document
    people = bfm("dags", "show", "flights").out

    assert [(task["task_id"], task["upstream"]) for task in shown["tasks"]] == [("clean", []), ("delays", ["clean"])]
    assert shown["runs"] == {"failed": 1, "success": 2}
    assert "1 failed, 2 success" in people
    assert [task["task_id"] for task in bfm("tasks", "list", "flights", "--output", "json").document] == [
        "clean",
        "delays",
    ]


def test_a_dag_that_names_a_pool_that_does_not_exist_is_shown_with_it(bfm: Bfm, state: FilledState) -> None:
    state.dag(
        tasks=(TaskSpec("clean", pool="slow"), TaskSpec("load", pool="slow"), TaskSpec("report", pool="backfill"))
    )
    assert bfm("dags", "show", "flights").err == "", "no manager has made the pools"
    state.pools()
    assert (
        "There is no pool 'slow', which tasks clean, load of DAG flights name: they fail when they start."
        in bfm("dags", "show", "flights").err
    )
    assert bfm("dags", "show", "flights", "--output", "json").document["unknown_pools"] == {"slow": ["clean", "load"]}
    state.put(Pool(name="slowly", slots=2, weight=1, min_share=0))
    assert "they fail when they start; did you mean 'slowly'? A new pool" in bfm("dags", "show", "flights").err
    state.put(Pool(name="slow", slots=2, weight=1, min_share=0))
    assert bfm("dags", "show", "flights").err == ""


def test_when_a_run_is_late_and_who_is_notified_of_a_dag_is_shown(bfm: Bfm, state: FilledState) -> None:
    state.dag(expected_by=7200.0, notify=("sales-team",))

    shown = bfm("dags", "show", "flights", "--output", "json").document
    people = " ".join(bfm("dags", "show", "flights").out.split())

    assert (shown["expected_by_s"], shown["notify"]) == (7200.0, ["sales-team"])
    assert "expected by 2 h after the end of an interval" in people
    assert "notifies sales-team" in people


def test_callbacks_are_shown_as_what_they_are(bfm: Bfm, state: FilledState) -> None:
    tasks = (
        TaskSpec("clean"),
        TaskSpec("clean.on_failure", calls_back="failed", watches="clean"),
        TaskSpec("on_success", calls_back="success"),
    )
    state.dag(tasks=tasks)

    shown = bfm("tasks", "list", "flights", "--output", "json").document
    assert [(one["task_id"], one["calls_back"], one["watches"], one["trigger_rule"]) for one in shown] == [
        ("clean", None, None, "all_success"), ("clean.on_failure", "failed", "clean", None), ("on_success", "success", None, None)
    ]  # fmt: skip
    for people in (bfm("tasks", "list", "flights").out, bfm("dags", "show", "flights").out):
        assert "callback: failure of clean" in people
        assert "callback: success of the run" in people
    refused = bfm("tasks", "run", "flights", "clean.on_failure", "2013-01-05")
    assert refused.code == 3
    assert "clean.on_failure is a callback: clear it to have it called again" in refused.error


def test_runs_and_their_tasks_are_listed_and_shown(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 1, "failed": 1})

    [failed] = bfm("runs", "list", "--backfill", "latest", "--state", "failed", "--output", "json").document
    shown = bfm("runs", "show", "2013-01-02", "--dag", "flights", "--output", "json").document
    states = bfm("tasks", "states", "flights", failed["run_id"], "--output", "json").document

    assert failed["logical_date"] == "2013-01-02T05:00:00Z"
    assert shown["run_id"] == failed["run_id"]
    assert shown["tasks"] == states
    assert [(one["task_id"], one["state"]) for one in states] == [("clean", "failed"), ("delays", "upstream_failed")]
    people = bfm("tasks", "states", "flights", "latest").out
    assert "ValueError: no such [day]" in people, "what comes from the state is not read as markup"
    assert "second line" not in people


def test_runs_of_one_type_are_listed(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    by_hand = state.run("2013-01-01", run_type="manual")
    state.run("2013-01-02", run_type="scheduled")

    assert [one["run_id"] for one in bfm("runs", "list", "--type", "manual", "--output", "json").document] == [by_hand]
    assert bfm("runs", "list", "--type", "backfill").err == "No runs.\n"
    assert "'manual'" in bfm("runs", "list", "--type", "manul").error


def test_what_runs_has_the_time_that_it_took_so_far(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    run_id = state.run("2013-01-01", state="running", started_at=state.clock.at - timedelta(seconds=90))
    seq = state.store.read(DagRun)[0].run_seq
    started = state.clock.at - timedelta(seconds=75)
    state.put(TaskInstance("flights", run_id, "clean", "running", seq, started_at=started, try_number=1))

    assert "1 min 30 s" in bfm("runs", "list").out
    assert all(took in bfm("runs", "show", run_id).out for took in ("1 min 30 s", "1 min 15 s"))
    assert "1 min 15 s" in bfm("tasks", "states", "flights", run_id).out
    assert bfm("runs", "show", run_id, "--output", "json").document["duration_s"] is None


def test_every_time_that_is_printed_says_its_zone(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.dag()
    state.backfill("b1", {"success": 1, "failed": 1}, created_at=state.clock.at)
    [run, *_] = state.store.read(DagRun)
    at = state.clock.at + timedelta(milliseconds=7)
    state.put(TaskLog("flights", run.run_id, "clean", 1, 1, 0, at, "INFO", "said", run.run_seq))
    printed = ""
    for command in (
        ("runs", "list"), ("runs", "show", run.run_id), ("runs", "timeline", "flights"), ("backfill", "list"),
        ("backfill", "show", "b1"), ("backfill", "items", "b1"), ("tasks", "states", "flights", "latest"),
        ("tasks", "logs", "flights", run.run_id, "clean"), ("dags", "list"), ("dags", "show", "flights"),
        ("dags", "next", "flights"), ("manager", "status"), ("requests", "list"),
    ):  # fmt: skip
        printed += bfm(*command).out
    times = re.findall(r"\d\d:\d\d:\d\d\S*", printed)
    assert len(times) > 20
    assert [time for time in times if not re.search(r"(Z|[+-]\d\d:\d\d)\W*$", time)] == []


@pytest.mark.parametrize(
    ("chosen", "created", "logical_date"),
    [
        ("utc", "2024-05-15T12:00:00Z", "2013-01-02T05:00:00Z"),
        ("dag", "2024-05-15T08:00:00-04:00", "2013-01-02T00:00:00-05:00"),
        ("Asia/Tokyo", "2024-05-15T21:00:00+09:00", "2013-01-02T14:00:00+09:00"),
        ("local", "2024-05-15T14:00:00+02:00", "2013-01-02T06:00:00+01:00"),
    ],
)
def test_one_option_puts_all_times_of_tables_in_one_zone(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch, chosen: str, created: str, logical_date: str
) -> None:
    state.leads()
    state.dag()
    until = state.clock.at + timedelta(hours=1)
    config = {"type": "schedule", "start_date": "2013-01-02T05:00:00Z", "end_date": "2013-01-03T05:00:00Z"}
    state.backfill(
        "b1", {"success": 1, "failed": 1}, created_at=state.clock.at, waits_until=until, window="20:00-06:00",
        config_json=json.dumps(config), conf_json='{"since": "2001-02-03T04:05:06Z"}',
    )  # fmt: skip
    state.logged(RUN, "since 2001-02-03T04:05:06Z")

    commands = (
        ("backfill", "show", "b1"), ("backfill", "items", "b1"), ("backfill", "list"), ("runs", "timeline", "flights"),
        ("runs", "show", "2013-01-02", "--dag", "flights"), ("tasks", "logs", "flights", RUN, "clean"), ("manager", "status"),
        ("dags", "show", "flights"), ("dags", "list"), ("dags", "next", "flights"), ("runs", "list"),
        ("tasks", "states", "flights", RUN),
    )  # fmt: skip
    with monkeypatch.context() as environment:
        environment.setenv("TZ", "Europe/Berlin")
        time.tzset()
        printed = {command: bfm(*command, "--timezone", chosen).out for command in commands}
    time.tzset()

    for command in (("backfill", "show", "b1"), ("backfill", "list")):
        assert created in printed[command] and f"schedule {logical_date} .. " in printed[command]
    for command in (("backfill", "items", "b1"), ("runs", "timeline", "flights")):
        assert logical_date in printed[command]
    assert printed["runs", "show", "2013-01-02", "--dag", "flights"].replace("__", "").count(logical_date) > 1, (
        "date and interval"
    )
    assert "since 2001-02-03T04:05:06Z" in printed["tasks", "logs", "flights", RUN, "clean"], "what a task says stays"
    assert '{"since": "2001-02-03T04:05:06Z"}' in printed["backfill", "show", "b1"], "and what somebody has typed"
    if chosen != "utc":
        for text in printed.values():
            left = text.replace("2001-02-03T04:05:06Z", "")
            assert chosen == "dag" or not re.search(r"(?<!__)\b\d{4}-\d\d-\d\dT[\d:.]+Z", left), text
    document = bfm("--timezone", chosen, "backfill", "show", "b1", "--output", "json").document
    assert document["created_at"] == "2024-05-15T12:00:00Z", "programs get UTC"


def test_a_zone_of_the_environment_and_one_that_does_not_exist(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 1}, created_at=state.clock.at)
    shown = bfm("backfill", "list", environ={"BFM_TIMEZONE": "Asia/Tokyo"}).out
    assert "2024-05-15T21:00:00+09:00" in shown
    for options in ((), ("--output", "json")):
        wrong = bfm("backfill", "list", "--timezone", "Europe/Berln", *options)
        assert (wrong.code, "--timezone: there is no time zone 'Europe/Berln'; did you mean" in wrong.error) == (
            2,
            True,
        )
    wrong = bfm("backfill", "list", environ={"BFM_TIMEZONE": "../etc"})
    assert (wrong.code, "BFM_TIMEZONE: there is no time zone" in wrong.error) == (2, True)


def test_names_of_pools_stay_whole_on_a_narrow_terminal(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "50"}.items():
        monkeypatch.setenv(name, value)
    state.pools()
    lines = [line.split()[:1] for line in bfm("pools", "list").out.splitlines()]
    assert ["scheduled"] in lines and ["backfill"] in lines


def test_no_column_of_what_matters_vanishes_on_a_narrow_terminal(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "50"}.items():
        monkeypatch.setenv(name, value)
    state.dag()
    run_id = state.run("2013-01-01", {"clean": "failed"}, state="cancelled", reason="too late")
    shown = bfm("runs", "list").out
    assert any(run_id in line and "cancelled" in line for line in shown.splitlines()), "whole"
    assert {"flig", "hts", "too", "late"} <= set(shown.split()), "broken over lines, and all there"


def test_a_run_that_left_tasks_out_by_choice_is_distinguished_from_a_whole_one(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.run("2013-01-01", {"clean": "success"}, is_partial=True)
    state.run("2013-01-02", {"clean": "success", "delays": "success"}, is_partial=False)
    state.run("2013-01-03", {"clean": "success"})  # made by an older release

    shown = bfm("runs", "list", "--output", "json").document
    assert {one["logical_date"][:10]: one["is_partial"] for one in shown} == {
        "2013-01-01": True, "2013-01-02": False, "2013-01-03": None,
    }  # fmt: skip
    assert [one["is_partial"] for one in bfm("runs", "timeline", "flights", "--output", "json").document] == [
        True, False, None,
    ]  # fmt: skip
    for command in (("runs", "list"), ("runs", "timeline", "flights")):
        lines = bfm(*command).out.splitlines()
        assert ["partial" in line for line in lines if "2013-01-0" in line].count(True) == 1, command
        assert "partial" in next(line for line in lines if "2013-01-01" in line), command

    shown = ("runs", "show", "2013-01-01", "--dag", "flights")
    assert bfm(*shown, "--output", "json").document["is_partial"] is True
    assert "is partial yes" in [" ".join(line.split()) for line in bfm(*shown).out.splitlines()]


def test_a_task_shows_the_spark_jobs_of_its_last_try(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 1})
    [run] = state.store.read(DagRun)
    first = TaskTry(run.dag_id, run.run_id, "clean", 1, 1, "failed", run.run_seq, term=1, spark_jobs_json="[1]")
    state.put(first, first.evolve(launch=2, try_number=2, state="success", spark_jobs_json=str([*range(3, 15)])))

    states = bfm("tasks", "states", "flights", "latest", "--output", "json").document
    shown = bfm("runs", "show", "latest", "--output", "json").document

    assert {one["task_id"]: one["spark_jobs"] for one in states} == {"clean": [*range(3, 15)], "delays": []}
    assert [one["spark_jobs"] for one in shown["tries"]] == [[1], [*range(3, 15)]]
    assert "3, 4, 5, 6, 7 and 7 more" in bfm("tasks", "states", "flights", "latest").out


def test_logs_are_printed_and_can_be_followed(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"running": 1})
    state.logged(RUN, "began [bold]")
    state.clock.meanwhile = [
        lambda: state.logged(RUN, "half done"),
        lambda: state.goes_on("b1", succeed=[1]),
    ]

    result = bfm("tasks", "logs", "flights", RUN, "clean", "--follow")

    assert result.code == 0
    assert [line.split(" ", 3)[-1].strip() for line in result.out.splitlines()] == ["began [bold]", "half done"]
    shown = bfm("tasks", "logs", "flights", RUN, "clean", "--output", "json").document
    assert [line["message"] for line in shown] == ["began [bold]", "half done"]
    for output in ("table", "json"):
        none = bfm("tasks", "logs", "flights", RUN, "clean", "--try", "7", "--output", output)
        assert none.code == 3 and f"no try of 'clean' in {RUN} with the number '7'; the last one is 1." in none.err
    assert bfm("tasks", "logs", "flights", RUN, "claen").code == 3


def test_no_terminal_obeys_what_a_task_has_logged_or_failed_with(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"running": 1})
    state.logged(RUN, "\x1b]0;title\x07 and \x1b[31mred\u202e\nnext\tline")
    out = bfm("tasks", "logs", "flights", RUN, "clean").out
    assert r"\x1b]0;title\x07 and \x1b[31mred\u202e" in out and "\nnext " in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert str(cell("error", "\x1b[2J failed", None)) == r"\x1b[2J failed"


def test_no_terminal_obeys_an_error_in_a_line_of_its_own_or_in_a_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "\x1b]0;title\x1b\\ \x9b31mred\u202e"
    run = {"run_id": RUN, "dag_id": "flights", "state": "failed", "duration_s": None, "reason": said}
    Output("table").print_line(run_summary(run))
    Output("json").print_document(run)
    line, _, document = capsys.readouterr().out.partition("\n")
    assert line.endswith(r"\x1b]0;title\x1b\ \x9b31mred\u202e")
    assert not {"\x1b", "\x9b", "\u202e"} & set(document) and json.loads(document) == run


def test_requests_are_listed_and_shown(bfm: Bfm, state: FilledState) -> None:
    state.answers(state.requested("b1", request_id="abc"), "refused", "no such dates")

    assert bfm("requests", "list", "--output", "json").document[0]["outcome"] == "refused"
    assert "no such dates" in bfm("requests", "list").out
    assert "--limit shows more" in bfm("requests", "list", "--limit", "1").err
    assert bfm("requests", "show", "ab", "--output", "json").document["payload"]["backfill_id"] == "b1"
    assert bfm("requests", "show", "zz").code == 3


def test_the_manager_status_tells_whether_one_leads(bfm: Bfm, state: FilledState) -> None:
    nobody = bfm("manager", "status")
    assert (nobody.code, nobody.out) == (1, "")
    assert "bfm manager start" in nobody.err

    state.leads()
    leading = bfm("manager", "status")
    assert leading.code == 0
    assert "4711" in leading.out
    shown = bfm("manager", "status", "--output", "json").document
    assert (shown["leading"], shown["term"], shown["host"], shown["heartbeat_age_s"]) == (True, 1, "here", 0.0)

    assert leading.err == "" and "slow loop" not in leading.out
    since = state.clock.now() - timedelta(minutes=4)
    state.leader.heartbeat(state.clock.now(), slow_loop="tick", slow_loop_since=since)
    slow = bfm("manager", "status")
    assert slow.code == 0 and "tick" in slow.out and "at the same work for 4 min, or hangs" in slow.err

    state.clock.at -= timedelta(minutes=10)
    assert "10 min ahead of this machine's clock" in bfm("manager", "status").out
    state.clock.at += timedelta(minutes=12)
    assert "2 min ago" in bfm("manager", "status").out

    state.goes()
    stopped = bfm("manager", "status", "--output", "json")
    assert (stopped.code, stopped.document["leading"]) == (1, False)


def test_the_state_is_made_checked_found_and_queried(bfm: Bfm, tmp_path: Path) -> None:
    made = bfm("state", "init", "--output", "json").document
    again = bfm("state", "init")
    checked = bfm("state", "check", "--output", "json")
    places = bfm("state", "locations", "--output", "json").document
    submitted = bfm("state", "sql", "SELECT count(*) AS n, max(started_at) AS at FROM dag_run", "--output", "json")

    assert "dag_run" in made["made"]
    assert "All tables exist" in again.out
    assert (checked.code, {one["outcome"] for one in checked.document}) == (0, {"ok"})
    assert Path(places["dag_run"]) == tmp_path / "state" / "dag_run"
    assert submitted.document == [{"n": 0, "at": None}]


def test_a_state_of_an_older_release_is_upgraded_and_not_called_created(bfm: Bfm, tmp_path: Path) -> None:
    bfm("state", "init")
    for table in ("dag", "pool"):
        older = DeltaTable(str(tmp_path / "state" / table))
        older.alter.set_table_properties({VERSION_PROPERTY: "2"}, raise_if_not_exists=False)
    assert "Upgraded 2 tables at " in bfm("state", "init").out
    assert bfm("state", "sql", "DROP TABLE dag_run").code == 2
    assert bfm("state", "sql", "SELECT * FROM dag_rum").code == 2


def test_no_command_prints_a_secret_of_parameters(bfm: Bfm, state: FilledState) -> None:
    state.dag(params={"api_key": "dag-secret", "db_password": "", "full": True})
    conf = '{"db_password": "conf-secret", "full": true}'
    run_id = state.run("2013-01-05", run_type="manual", conf_json=conf)
    state.backfill("b1", {"running": 1}, conf_json=conf)
    printed = [bfm("dags", "trigger", "flights", "--logical-date", "2013-01-06", "--conf", conf, "--output", "json")]
    printed += [bfm("backfill", "set", "b1", "--conf", conf.replace("true", "false"), "--output", "json")]
    for args in (
        ("dags", "show", "flights"), ("runs", "show", f"flights/{run_id}"), ("backfill", "show", "b1"),
        ("requests", "show", "latest"), ("state", "sql", "SELECT payload_json FROM request"),
        ("state", "sql", "SELECT conf_json AS c FROM dag_run"), ("state", "sql", "SELECT definition_json FROM dag_version"),
    ):  # fmt: skip
        printed += [bfm(*args), bfm(*args, "--output", "json")]
    for one in printed:
        assert one.code == 0 and "-secret" not in one.out + one.err
    assert "".join(one.out for one in printed).count("***") >= len(printed) - 2  # these show no parameters to people
    stored = "".join(row.payload_json for row in state.store.read(Request))
    assert stored.count("conf-secret") == 2, "the manager gets it as it is"


def test_a_query_shows_no_secret_of_a_document_elsewhere(bfm: Bfm, state: FilledState) -> None:
    state.run("2013-01-05", run_type="manual", conf_json='{"db_password": "hunter2", "note": "it is hunter2"}')
    shown = bfm("state", "sql", "SELECT conf_json AS c, 'of hunter2' AS x FROM dag_run", "--output", "json")
    assert shown.document == [{"c": '{"db_password": "***", "note": "it is ***"}', "x": "of ***"}]


def test_a_table_with_a_schema_is_asked_for_without(bfm: Bfm, state: FilledState) -> None:
    refused = bfm("state", "sql", "SELECT * FROM public.task_instance")
    assert (refused.code, refused.err.strip()) == (
        2,
        "The query can't be run: name the table task_instance alone, without a schema",
    )


def test_instants_of_a_query_are_utc_with_a_z(bfm: Bfm, state: FilledState) -> None:
    state.store.append_request(Request("r1", "manager.stop", '{"drain": false}', "ada", state.clock.at))

    assert bfm("state", "sql", "SELECT requested_at FROM request", "--output", "json").document == [
        {"requested_at": "2024-05-15T12:00:00Z"}
    ]


def test_the_configuration_is_shown_with_secrets_masked(bfm: Bfm, tmp_path: Path) -> None:
    digest = "ab" * 32
    (tmp_path / "m.yaml").write_text(
        f"api:\n  session_secret: verysecret{digest}\n  tokens:\n  - {{name: ci, sha256: {digest}, role: operator}}\n"
        "bundles: [{name: team, git: 'https://verysecret@example.com/dags.git'}]\n"
        "spark:\n  conf:\n    spark.hadoop.fs.s3a.secret.key: verysecret\n    spark.executor.cores: 2\n"
    )

    for form in ("table", "json", "yaml"):
        result = bfm("--conf", "m.yaml", "config", "show", "--output", form)
        assert result.code == 0
        assert "verysecret" not in result.out
        assert digest not in result.out
    shown = yaml.safe_load(result.out)
    assert shown["spark"]["conf"]["spark.executor.cores"] == "2"
    assert shown["api"]["tokens"][0]["name"] == "ci"


def test_config_check_tells_where_the_settings_come_from(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("lease: {seconds: 20}\n")

    result = bfm("--conf", "m.yaml", "config", "check", "--output", "json", environ={"BFM_STATE": "x"})

    assert result.document == {"ok": True, "sources": ["defaults", "m.yaml", "environment (BFM_STATE)"], "warnings": []}
    others = {"BFM_STAET": "x", "BFM_CACHE": "x", "BFM_LEASE__SECONDS": "20"}  # the first two set nothing here
    sources = bfm("--conf", "m.yaml", "config", "check", "--output", "json", environ=others).document["sources"]
    assert sources == ["defaults", "m.yaml", "environment (BFM_LEASE__SECONDS)"]
    (tmp_path / "m.yaml").write_text("lease: {secconds: 20}\n")
    wrong = bfm("--conf", "m.yaml", "config", "check")
    assert wrong.code == 2
    assert "line 1" in wrong.err
    assert "did you mean 'seconds'" in wrong.err


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("BFM_STAET", "BFM_STATE"),
        ("BFM_WAREHOUS", "BFM_WAREHOUSE"),
        ("BFM_SEVER", "BFM_SERVER"),
        ("BFM_LEASE_SECONDS", "BFM_LEASE__SECONDS"),
        ("BFM_POOLS_BACKFILL_SLOTS", "BFM_POOLS__BACKFILL__SLOTS"),
    ],
)
def test_a_variable_with_nearly_the_name_of_a_setting_is_a_warning(
    bfm: Bfm, tmp_path: Path, variable: str, meant: str
) -> None:
    warning = f"environment, {variable}: it sets nothing; did you mean '{meant}'?"

    checked = bfm("config", "check", "--output", "json", environ={variable: "x"})
    assert (checked.code, checked.document["warnings"]) == (0, [warning])
    assert warning in checked.err
    (tmp_path / "file").write_text("")
    started = bfm("--state", str(tmp_path / "file" / "state"), "manager", "start", environ={variable: "x"})
    assert warning in started.err


def test_variables_for_other_purposes_are_no_warnings(bfm: Bfm) -> None:
    others = ("CACHE", "TOKEN", "TOKEN_FILE", "TIMEZONE", "IVY_SETTINGS", "SECRET_STATE", "SLACK_URL", "TASK_ID")
    environ = {f"BFM_{name}": "UTC" for name in others}
    checked = bfm("config", "check", "--output", "json", environ=environ)
    assert (checked.document["warnings"], checked.err) == ([], "")


def test_what_is_old_enough_is_counted_and_then_deleted(bfm: Bfm, state: FilledState, tmp_path: Path) -> None:
    for name in ("b1", "b2"):
        state.backfill(name, {"success": 2}, state="success", completed_at=state.clock.at)
    no_age = "No age is set: everything is kept for ever. Set some below `retention` in the configuration file, such as"
    assert no_age in bfm("state", "prune", "--dry-run").error
    (tmp_path / "m.yaml").write_text("retention: {runs: 1 hour, tries: 1 hour, logs: 1 hour}\n")
    state.goes()
    state.clock.at += 400 * DAY
    counted = bfm("--conf", "m.yaml", "state", "prune", "--dry-run", "--output", "json")
    assert counted.document == {
        "dry_run": True,
        "pruned": {"logs": 0, "tries": 0, "runs": 0, "backfills": 1, "notifications": 0},
    }
    assert "would be deleted" in bfm("--conf", "m.yaml", "state", "prune", "--dry-run").out
    assert len(state.store.read(Backfill)) == 2
    pruned = bfm("--conf", "m.yaml", "state", "prune", "--output", "json")
    assert pruned.document == {"dry_run": False, "pruned": counted.document["pruned"]}
    assert [row.backfill_id for row in state.store.read(Backfill)] == ["b2"]


def test_pools_are_listed_with_their_use(bfm: Bfm, state: FilledState) -> None:
    state.pools()
    state.backfill("b1", {"running": 2})

    shown = {one["name"]: one for one in bfm("pools", "list", "--output", "json").document}

    assert (shown["backfill"]["used"], shown["backfill"]["slots"], shown["scheduled"]["used"]) == (2, 16, 0)


@pytest.mark.parametrize(
    "group", ["manager", "dags", "backfill", "runs", "tasks", "requests", "pools", "state", "config"]
)
def test_every_command_has_a_help_with_an_example(bfm: Bfm, group: str) -> None:
    import importlib

    commands = importlib.import_module(f"backfill_manager.cli.commands.{group}").group.commands
    for name in commands:
        result = bfm(group, name, "--help")
        assert result.code == 0
        assert f"bfm {group} {name}" in result.out or "Example" in result.out
        assert "--output" in result.out


@pytest.mark.parametrize("words", ["backfill create", "backfill set", "tasks clear", "dags trigger"])
def test_a_help_names_every_option_in_full_on_a_narrow_terminal(
    bfm: Bfm, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def help_at(columns: int) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        return bfm(*words.split(), "--help").out

    options = {name for name in re.findall(r"--[a-z-]+", help_at(250)) if not name.startswith("--no-")}
    narrow = help_at(80)
    # the first column, one row after the other: what is broken into lines is whole there
    names = "".join(
        row.strip("│ ").split()[0] for row in narrow.splitlines() if row.startswith("│ --") or row[2:3].isalpha()
    )
    assert "…" not in narrow
    assert options and {option for option in options if option not in names} == set()


def test_the_help_lists_the_groups_in_the_order_of_use(bfm: Bfm) -> None:
    result = bfm("--help")

    groups = [line.split()[1] for line in result.out.partition(" Commands ")[2].splitlines() if line.startswith("│ ")]
    named = [one for one in groups if one in {"manager", "dags", "backfill", "runs", "tasks", "state"}]
    assert named == ["manager", "dags", "backfill", "runs", "tasks", "state"]


@pytest.mark.parametrize("group", [[], ["dags"], ["backfill"], ["state"], ["import"]])
def test_a_list_of_commands_has_one_sentence_of_each(
    bfm: Bfm, group: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    listed = bfm(*group, "--help").out.partition(" Commands ")[2].partition("╰")[0].splitlines()[1:]
    assert listed and [row for row in listed if not re.fullmatch(r"│ [a-z-]+ +[^ ].*\. +│", row)] == []
    assert [row for row in listed if ". " in row.rstrip(" │")] == []


def test_dags_that_are_gone_are_listed_with_all_and_shown_with_why(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.dag("gone", is_active=False)
    why = "gone.py of the bundle 'examples' is gone or no longer defines it, since 2024-05-15T12:00:00Z"

    listed = bfm("dags", "list", "--all")
    assert "gone" not in bfm("dags", "list").out
    assert [line.split()[0] for line in listed.out.splitlines()[2:]] == ["flights", "gone"]
    assert why in listed.out
    assert f"not active        {why}" in bfm("dags", "show", "gone").out
    assert bfm("dags", "next", "gone").err.strip() == f"gone is not active: {why}."
    for command in (("dags", "versions", "gone"), ("runs", "timeline", "gone"), ("runs", "list", "--dag", "gone")):
        assert bfm(*command).code == 0, command
    for submitted in (("dags", "trigger", "gone"), ("dags", "unpause", "gone"), ("dags", "pause", "gone")):
        result = bfm(*submitted)
        assert (result.code, result.error) == (4, f"DAG 'gone' is not active: {why}."), submitted


def test_a_text_is_printed_as_it_is_and_no_picture_of_it(bfm: Bfm, state: FilledState) -> None:
    state.dag(tasks=[TaskSpec("totals", kind="sql", sql="SELECT raw:book:title, '[red]:dog:'")])
    assert "  SELECT raw:book:title, '[red]:dog:'" in bfm("dags", "render", "flights", "2013-01-05").out

    shown = bfm("state", "sql", """SELECT count(*) AS "days [total]", 1 AS ":dog:" FROM dag""")
    assert shown.out.splitlines()[0].split() == ["days", "[total]", ":dog:"]


def test_columns_of_one_name_are_refused_as_one_would_stand_for_the_other(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.run("2013-01-05", tasks={"clean": "failed"})
    of_both = "FROM dag_run r JOIN task_instance t ON r.run_id = t.run_id"

    refused = bfm("state", "sql", f"SELECT r.state, t.state {of_both}")

    assert (refused.code, refused.out) == (2, "")
    assert refused.error == "Several columns of the result are called state; name them apart with AS."
    apart = bfm("state", "sql", f"SELECT r.state, t.state AS of_task {of_both}", "--output", "json").document
    assert apart == [{"state": "success", "of_task": "failed"}]
