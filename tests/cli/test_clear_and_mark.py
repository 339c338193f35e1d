"""`bfm tasks clear`, `tasks mark`, `runs mark`, `runs cancel`: what they show first, ask, and refuse."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest
from support.bfm import Bfm
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager.model.records import DagRun, Request
from backfill_manager.schemas.commands import ClearTasks

DONE = {"clean": "success", "delays": "success"}
BROKEN = {"clean": "failed", "delays": "upstream_failed"}
MIDWAY = {"clean": "success", "delays": "running"}


def fill(state: FilledState) -> None:
    """Three days: the first well, the second failed, the third in the middle of it."""
    state.dag()
    state.run("2013-01-01", DONE)
    state.run("2013-01-02", BROKEN, state="failed", run_type="backfill")
    state.run("2013-01-03", MIDWAY, state="running", run_type="manual")


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def submitted(state: FilledState) -> tuple[str, dict[str, Any]]:
    [request] = state.store.read(Request)
    return request.kind, json.loads(request.payload_json)


def types(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# -- clear: preview and question ---------------------------------------------------------------------------------------


def test_a_clear_shows_what_it_would_touch_and_then_asks(
    bfm: Bfm, filled: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    types(monkeypatch, "y\n")

    result = bfm("tasks", "clear", "flights", "-s", "2013-01-01", "-e", "2013-01-02")

    assert result.code == 0
    lines = result.out.splitlines()
    assert "scheduled__2013-01-01T05:00:00Z" in lines[2]
    assert "clean (success), delays (success)" in lines[2]
    assert "clean (failed), delays (upstream_failed)" in lines[3]
    assert "4 tasks of 2 runs." in lines
    assert "Clear 4 tasks of 2 runs? [y/N] " in result.err
    kind, payload = submitted(filled)
    assert kind == "tasks.clear"
    assert ClearTasks.from_payload(payload["ask"]) == ClearTasks(
        dag_id="flights", start_date="2013-01-01", end_date="2013-01-02"
    )


@pytest.mark.parametrize("answer", ["n\n", "\n", "perhaps\n"])
def test_whoever_does_not_say_yes_clears_nothing(
    bfm: Bfm, filled: FilledState, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    types(monkeypatch, answer)

    result = bfm("tasks", "clear", "flights")

    assert result.code == 0
    assert "Nothing was cleared." in result.err
    assert filled.store.read(Request) == []


def test_where_nobody_can_answer_it_says_how_not_to_be_asked(
    bfm: Bfm, filled: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    types(monkeypatch, "")

    result = bfm("tasks", "clear", "flights")

    assert result.code == 2
    assert "as there was no answer; -y clears without asking" in result.err
    assert filled.store.read(Request) == []


def test_with_yes_it_does_not_ask_and_tells_the_managers_answer(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(message="2 tasks of 1 run are cleared")]

    result = bfm("tasks", "clear", "flights", "--only-failed", "-y")

    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == "2 tasks of 1 run are cleared"


def test_a_dry_run_asks_neither_person_nor_manager(bfm: Bfm, filled: FilledState) -> None:
    before = filled.fingerprint()

    preview = bfm("tasks", "clear", "flights", "-n")
    shown = bfm("tasks", "clear", "flights", "--dry-run", "--output", "json").document

    assert "6 tasks of 3 runs." in preview.out
    assert shown["summary"] == {"runs": 3, "tasks": 6, "running": 1, "stay_upstream_failed": 0}
    assert [run["run_type"] for run in shown["runs"]] == ["scheduled", "backfill", "manual"]
    assert shown["runs"][1]["tasks"] == [
        {"task_id": "clean", "state": "failed"},
        {"task_id": "delays", "state": "upstream_failed"},
    ]
    assert filled.fingerprint() == before


def test_that_running_tasks_are_stopped_first_is_said_before_the_question(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("tasks", "clear", "flights", "--only-running", "-n")

    assert "manual__2013-01-03T05:00:00Z" in result.out
    assert "1 of them is running or about to: stopped first." in result.out


def test_every_flag_of_a_clear_arrives(bfm: Bfm, filled: FilledState) -> None:
    result = bfm(
        "tasks", "clear", "fl.*s", "-R", "-s", "2013-01-01", "-e", "2013-01-03", "-t", "^clean", "-u", "-d", "-f",
        "--latest-version", "--yes",
    )  # fmt: skip

    assert result.code == 0, result.err
    assert ClearTasks.from_payload(submitted(filled)[1]["ask"]) == ClearTasks(
        dag_id="fl.*s", is_regex=True, start_date="2013-01-01", end_date="2013-01-03", tasks="^clean", upstream=True,
        downstream=True, only_failed=True, latest_version=True,
    )  # fmt: skip


def test_one_run_is_cleared_by_name_or_date(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("tasks", "clear", "flights", "--run", "2013-01-02", "--run", "manual", "-y", "--output", "json")

    assert result.document["summary"] == {"runs": 2, "tasks": 4, "running": 1, "stay_upstream_failed": 0}
    ask = ClearTasks.from_payload(submitted(filled)[1]["ask"])
    assert ask.run_ids == ("backfill__2013-01-02T05:00:00Z", "manual__2013-01-03T05:00:00Z")


def test_many_runs_are_shown_in_part_and_counted_whole(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 60}, state="success")

    result = bfm("tasks", "clear", "flights", "-n")

    assert "… and 10 more runs; `--dry-run --output json` lists them all." in result.out
    assert "120 tasks of 60 runs." in result.out


def test_a_move_to_the_current_version_is_shown(bfm: Bfm, filled: FilledState) -> None:
    filled.dag(version=3)

    result = bfm("tasks", "clear", "flights", "-e", "2013-01-01", "--latest-version", "-n")

    assert "1 → 3" in result.out


NOTHING = {
    "what never ran": (
        ("flights", "-s", "2014-01-01", "-e", "2014-01-05"),
        2,
        "`bfm backfill create flights --from 2014",
    ),
    "nothing that failed": (("flights", "-e", "2013-01-01", "-f"), 2, "no task that failed"),
    "nothing that runs": (("flights", "-e", "2013-01-02", "-r"), 2, "no task that is running"),
    "an expression for no task": (("flights", "-t", "claen"), 2, "there are clean, delays"),
    "an unknown DAG": (("flihgts",), 3, "did you mean 'flights'"),
    "an unknown DAG and a run": (("flihgts", "--run", "x"), 3, "did you mean 'flights'"),
    "an unknown run": (("flights", "--run", "2015-01-01"), 3, "no run of DAG 'flights' with the id '2015-01-01'"),
    "an expression for no DAG": (("^x", "-R"), 3, "there are flights"),
    "a gone DAG's current version": (("gone", "--latest-version"), 2, "DAG 'gone' is gone"),
    "a gone DAG that never ran": (("gone",), 2, "nor can it run any more"),
    "two filters that leave nothing": (("flights", "-f", "-r"), 2, "use one of them"),
    "no date": (("flights", "-s", "soon"), 2, "--from: 'soon' is not a date"),
    "a broken expression": (("flights", "-t", "cle(an"), 2, "is not a regular expression"),
}


@pytest.mark.parametrize("what", NOTHING)
def test_a_clear_of_nothing_is_reported_in_one_line_and_not_asked(bfm: Bfm, filled: FilledState, what: str) -> None:
    filled.dag("gone", is_active=False)
    before = filled.fingerprint()
    args, code, shown = NOTHING[what]

    result = bfm("tasks", "clear", *args, "-y")

    assert (result.code, shown in result.error) == (code, True), result.err
    assert filled.fingerprint() == before


def test_a_dag_that_is_gone_can_be_cleared_with_the_version_it_had(bfm: Bfm, filled: FilledState) -> None:
    filled.dag(is_active=False)

    assert bfm("tasks", "clear", "flights", "-y").code == 0
    assert submitted(filled)[0] == "tasks.clear"


# -- mark and cancel ---------------------------------------------------------------------------------------------------


def test_a_run_is_marked_and_cancelled_by_its_date(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(message="it is")] * 2

    marked = bfm("runs", "mark", "2013-01-02", "success", "--dag", "flights")
    cancelled = bfm("runs", "cancel", "manual", "--output", "json")

    assert (marked.code, marked.out) == (0, "it is\n")
    assert (cancelled.document["outcome"], cancelled.document["dag_id"]) == ("accepted", "flights")
    assert [
        (one.kind, json.loads(one.payload_json)) for one in filled.store.read(Request, order_by=["requested_at"])
    ] == [
        ("run.mark", {"dag_id": "flights", "run_id": "backfill__2013-01-02T05:00:00Z", "state": "success"}),
        ("run.cancel", {"dag_id": "flights", "run_id": "manual__2013-01-03T05:00:00Z"}),
    ]


def test_several_runs_are_marked_after_a_preview(
    bfm: Bfm, filled: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("dags", "mark", "flights", "success", "--date", "2013-01-01/2013-01-02", "--date", "2013-01-03")
    shown = bfm(*chosen, "--dry-run", "--output", "json").document
    assert shown["summary"] == {"runs": 2, "unchanged": 1, "running": 1, "by_state": {"failed": 1, "running": 1}}
    assert [run["run_id"] for run in shown["runs"]] == [
        "backfill__2013-01-02T05:00:00Z",
        "manual__2013-01-03T05:00:00Z",
    ]
    assert filled.store.read(Request) == []

    types(monkeypatch, "y\n")
    result = bfm(*chosen)
    assert result.code == 0
    assert "2 runs to be marked success." in result.out.splitlines()
    assert "1 of them is queued or running: stopped first." in result.out.splitlines()
    assert "Mark 2 runs success? [y/N] " in result.err
    kind, payload = submitted(filled)
    assert (kind, payload["dates"]) == ("runs.mark", ["2013-01-01/2013-01-02", "2013-01-03"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--item", "3"), "--item 3 are items of a backfill; name it with --backfill"),
        (("--date", "2013-01-03/2013-01-01"), "--date 2013-01-03/2013-01-01 is the wrong way round"),
        (("--date", "2013-01-02/"), "--date: '' is not a date"),
        (("--date", "2012-01-01"), "has no run on 2012-01-01 to mark"),
        (("--backfill", "nobodys"), "nobodys"),
    ],
)
def test_a_choice_of_no_run_is_refused_in_one_line(
    bfm: Bfm, filled: FilledState, options: tuple[str, ...], why: str
) -> None:
    result = bfm("dags", "mark", "flights", "failed", *options, "--yes")
    assert result.code != 0
    assert why in result.err
    assert filled.store.read(Request) == []


def test_a_task_is_marked(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("tasks", "mark", "flights", "2013-01-02", "clean", "skipped")

    assert (result.code, result.out.startswith("Mark clean of backfill__2013-01-02T05:00:00Z skipped: submitted")) == (
        0,
        True,
    )
    assert submitted(filled) == (
        "task.mark",
        {"dag_id": "flights", "run_id": "backfill__2013-01-02T05:00:00Z", "task_id": "clean", "state": "skipped"},
    )


@pytest.mark.parametrize(
    "args",
    [
        ("runs", "show", "2013-02-06", "--dag", "flights"),
        ("runs", "cancel", "flights/2013-02-06"),
        ("tasks", "states", "flights", "2013-02-06"),
        ("tasks", "logs", "flights", "2013-02-06", "clean"),
        ("tasks", "clear", "flights", "--run", "2013-02-06", "--yes"),
    ],
    ids=" ".join,
)
def test_a_date_in_a_batch_is_answered_with_the_run_that_took_it(
    bfm: Bfm, filled: FilledState, args: tuple[str, ...]
) -> None:
    filled.run("2013-02-05", DONE, run_id="five", items=5, interval_end=NEW_YEAR + 40 * DAY)

    result = bfm(*args)

    assert result.code == 3
    assert result.error == (
        "There is no run of DAG 'flights' with the id '2013-02-06'; this date is part of run five, which takes 5 intervals "
        "together: name that run."
    )


@pytest.mark.parametrize(
    ("args", "code", "shown"),
    [
        (("runs", "cancel", "backfill"), 4, "has ended (failed): there is nothing to cancel"),
        (
            ("runs", "mark", "old", "success"),
            4,
            "was overridden and is kept unchanged; the current run is new",
        ),
        (("runs", "mark", "manual", "skipped"), 2, "'skipped' is not one of"),
        (("runs", "cancel", "nothing"), 3, "There is no run 'nothing'"),
        (("runs", "cancel", ""), 3, "There is no run ''; see `bfm runs list`."),
        (("tasks", "mark", "flights", "2013-01-02", "claen", "success"), 3, "did you mean 'clean'"),
        (("tasks", "mark", "flights", "old", "clean", "success"), 4, "was overridden"),
        (("tasks", "mark", "flights", "2013-01-02", "clean", "done"), 2, "'done' is not one of"),
        (("tasks", "mark", "flihgts", "2013-01-02", "clean", "failed"), 3, "did you mean 'flights'"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_can_not_be_marked_or_cancelled_is_reported(
    bfm: Bfm, filled: FilledState, args: tuple[str, ...], code: int, shown: str
) -> None:
    filled.run("2013-01-01", DONE, run_id="old", state="overridden", overridden_by="new")
    before = filled.fingerprint()

    result = bfm(*args)

    assert (result.code, shown in result.error) == (code, True), result.err
    assert filled.fingerprint() == before


def test_a_mark_of_runs_that_have_the_state_asks_nobody(bfm: Bfm, filled: FilledState) -> None:
    has_it = [run.run_id for run in filled.store.read(DagRun) if run.state == "success"][:1]
    result = bfm("dags", "mark", "flights", "success", "--run", *has_it, "-y")
    assert (result.code, "Nothing is to be marked." in result.err) == (0, True)
    document = bfm("dags", "mark", "flights", "success", "--run", *has_it, "-y", "--output", "json").document
    assert (document["request_id"], document["outcome"], document["summary"]["unchanged"]) == (None, None, 1)
    assert document["message"] == "Nothing is to be marked."
    assert filled.store.read(Request) == []
