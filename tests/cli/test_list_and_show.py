"""What the reading commands print: the same as a table and as one document, wherever the global options stand."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from support.bfm import Bfm
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager import file
from backfill_manager.dags.definition import TaskSpec
from backfill_manager.model.records import Pool, Request


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


def test_when_a_dag_does_not_run_when_a_run_is_late_and_who_is_notified_is_shown(bfm: Bfm, state: FilledState) -> None:
    state.dag(expected_by=7200.0, notify=("sales-team",), exclude_dates=("2025-12-25", "2025-12-26"))

    shown = bfm("dags", "show", "flights", "--output", "json").document
    people = " ".join(bfm("dags", "show", "flights").out.split())

    assert (shown["expected_by_s"], shown["notify"]) == (7200.0, ["sales-team"])
    assert "expected by 2 h after the end of an interval" in people
    assert "notifies sales-team" in people
    assert shown["exclude_dates"] == ["2025-12-25", "2025-12-26"]
    assert "excluded dates 2025-12-25, 2025-12-26" in people and ", except 2 dates" in people


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


def test_pools_are_listed_with_their_use(bfm: Bfm, state: FilledState) -> None:
    state.pools()
    state.backfill("b1", {"running": 2})

    shown = {one["name"]: one for one in bfm("pools", "list", "--output", "json").document}

    assert (shown["backfill"]["used"], shown["backfill"]["slots"], shown["scheduled"]["used"]) == (2, 16, 0)


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
