"""`bfm backfill set` and `retry`; the settings of a backfill when it is asked for; the time it still takes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.bfm import Bfm
from support.sample_state import DAY, NEW_YEAR, FilledState

from backfill_manager.cli.commands.backfill_watch import status_line
from backfill_manager.dags.definition import TaskSpec
from backfill_manager.model.records import Backfill, BackfillItem, DagRun, Pool, Request
from backfill_manager.queries.eta import ObservedPace
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import matching

JANUARY = ("flights", "--from", "2013-01-01", "--to", "2013-01-31")


def fill(state: FilledState) -> None:
    state.dag(batchable=True)
    state.pools()
    state.backfill("b1", {"success": 1, "pending": 3})


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def submitted(state: FilledState) -> tuple[str, dict[str, Any]]:
    [request] = state.store.read(Request)
    return request.kind, json.loads(request.payload_json)


# -- asked for with settings -------------------------------------------------------------------------------------------


def test_a_backfill_is_asked_for_with_settings_of_its_own(bfm: Bfm, filled: FilledState) -> None:
    result = bfm(
        "backfill", "create", *JANUARY, "--kind", "stale", "--batch", "7", "--set", "retries=3", "--set",
        "clean.trigger_rule=all_done", "--window", "20:00-06:00", "--polite", "--downstream", "--output", "json",
    )  # fmt: skip

    assert result.code == 0, result.err
    ask = CreateBackfill.from_payload(submitted(filled)[1]["ask"])
    assert ask == CreateBackfill(
        dag_id="flights", kind="stale", start_date=NEW_YEAR, end_date=NEW_YEAR + timedelta(days=30), batch=7,
        overrides={"retries": 3, "clean.trigger_rule": "all_done"}, window="20:00-06:00", is_polite=True, downstream=True,
    )  # fmt: skip
    shown = result.document
    assert (shown["batch"], shown["window"], shown["is_polite"], shown["parents"]) == (7, "20:00-06:00", True, [])
    assert shown["overrides"] == {"retries": 3, "clean.trigger_rule": "all_done"}


WRONG = {
    "an unknown setting": (("--set", "retires=3"), "did you mean 'retries'"),
    "a setting of an unknown task": (("--set", "claen.retries=3"), "did you mean 'clean'"),
    "a wrong value": (("--set", "retries=many"), "--set retries: "),
    "a setting that has an option": (("--set", "max_active_runs=3"), "--max-active-runs"),
    "no value": (("--set", "retries"), "must be NAME=VALUE"),
    "a setting twice": (("--set", "retries=1", "--set", "retries=2"), "sets 'retries' twice"),
    "a batch of a DAG that is not batchable": (("--batch", "3"), "does not say batchable=True"),
    "hours that are none": (("--window", "evenings"), "must be a span of hours such as 20:00-06:00"),
    "hours without length": (("--window", "20:00-20:00"), "begins where it ends"),
    "stale and reprocess": (("--kind", "stale", "--reprocess", "failed"), "itself determines which dates run again"),
}


@pytest.mark.parametrize("what", WRONG)
def test_settings_that_make_no_sense_are_reported_in_one_line(bfm: Bfm, state: FilledState, what: str) -> None:
    state.dag()
    state.pools()
    args, shown = WRONG[what]

    result = bfm("backfill", "create", *JANUARY, *args)

    assert (result.code, shown in result.error) == (2, True), result.err
    assert state.store.read(Request) == []


def test_an_unknown_setting_lists_those_there_are(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("backfill", "create", *JANUARY, "--set", "colour=red")

    assert "max_active_tasks, retries, retry_delay" in result.error


# -- set ---------------------------------------------------------------------------------------------------------------


def test_only_what_is_named_is_changed(bfm: Bfm, filled: FilledState) -> None:
    filled.leads()
    filled.clock.meanwhile = [lambda: filled.answers_next(message="changed")]

    result = bfm("backfill", "set", "b1", "--priority", "0", "--no-polite")

    assert (result.code, result.out) == (0, "changed\n")
    assert submitted(filled) == ("backfill.set", {"backfill_id": "b1", "changes": {"priority": 0, "is_polite": False}})


def test_everything_about_a_backfill_can_be_changed(bfm: Bfm, filled: FilledState) -> None:
    filled.put(Pool(name="slow", slots=2, weight=1, min_share=0))

    result = bfm(
        "backfill", "set", "b1", "--max-active-runs", "2", "--priority", "5", "--pool", "slow", "--batch", "3",
        "--stop-on-failure", "1", "--window", "20:00-06:00", "--polite", "--tasks", "^cl", "--mark-success",
        "--set", "retries=3", "--set", "clean.pool=slow", "--conf", '{"full": true}',
    )  # fmt: skip

    assert result.code == 0, result.err
    assert submitted(filled)[1]["changes"] == {
        "max_active_runs": 2, "priority": 5, "pool": "slow", "batch": 3, "stop_on_failure": 1, "window": "20:00-06:00",
        "is_polite": True, "tasks": "^cl", "mark_success": True, "overrides": {"retries": 3, "clean.pool": "slow"},
        "conf": {"full": True},
    }  # fmt: skip


def test_settings_that_were_made_before_stay(bfm: Bfm, filled: FilledState) -> None:
    filled.backfill("b2", {"pending": 1}, overrides_json='{"retries": 1, "weight": 2}')

    bfm("backfill", "set", "b2", "--set", "retries=3")

    assert submitted(filled)[1]["changes"] == {"overrides": {"retries": 3, "weight": 2}}


def test_settings_of_two_changes_that_wait_are_both_made(bfm: Bfm, filled: FilledState) -> None:
    filled.backfill("b2", {"pending": 1}, overrides_json='{"weight": 2}')
    assert bfm("backfill", "set", "b2", "--set", "retries=3").code == 0
    assert bfm("backfill", "set", "b2", "--set", "clean.timeout=600").code == 0
    first, second = (
        json.loads(row.payload_json) for row in filled.store.read(Request, order_by=["requested_at", "request_id"])
    )
    assert first["changes"]["overrides"] == second["was"]["overrides"] == {"weight": 2, "retries": 3}
    assert second["changes"]["overrides"] == {"weight": 2, "retries": 3, "clean.timeout": 600}


def test_what_was_set_can_be_taken_away(bfm: Bfm, filled: FilledState) -> None:
    filled.backfill("b2", {"pending": 1}, window="20:00-06:00", tasks="^cl", with_upstream=False, stop_on_failure=2)

    removed = ("window", "tasks", "stop-on-failure", "batch-target", "notify")
    result = bfm("backfill", "set", "b2", *(f"--no-{name}" for name in removed))

    assert result.code == 0, result.err
    assert submitted(filled)[1]["changes"] == {
        "window": None, "tasks": None, "stop_on_failure": None, "batch_target": None, "notify": None,
        "with_upstream": True, "with_downstream": False,
    }  # fmt: skip


UNCHANGEABLE = {
    "nothing": ((), 2, "Nothing to change was named; the options are --conf"),
    "an unknown setting": (("--set", "colour=red"), 2, "There are max_active_tasks, retries"),
    "a near setting": (("--set", "retires=3"), 2, "did you mean 'retries'"),
    "an unknown task": (("--set", "claen.retries=3"), 2, "did you mean 'clean'"),
    "an unknown pool": (("--pool", "backfil"), 3, "did you mean 'backfill'"),
    "the pool of the scheduled runs": (("--pool", "scheduled"), 2, "for scheduled runs"),
    "tasks that there are not": (("--tasks", "^nothing"), 2, "there are clean, delays"),
    "hours that are none": (("--window", "25:00-26:00"), 2, "must be a span of hours"),
    "a window and none": (
        ("--window", "20:00-06:00", "--no-window"),
        2,
        "--window and --no-window contradict each other",
    ),
    "no runs at once": (("--max-active-runs", "0"), 2, "--max-active-runs"),
    "broken JSON": (("--conf", "{"), 2, "--conf is not JSON"),
}


@pytest.mark.parametrize("what", UNCHANGEABLE)
def test_a_change_that_makes_no_sense_is_reported_in_one_line(bfm: Bfm, filled: FilledState, what: str) -> None:
    before = filled.fingerprint()
    args, code, shown = UNCHANGEABLE[what]

    result = bfm("backfill", "set", "b1", *args)

    assert (result.code, shown in result.error) == (code, True), result.err
    assert filled.fingerprint() == before


def test_batches_need_a_dag_that_is_batchable(bfm: Bfm, state: FilledState) -> None:
    state.dag("rolling", tasks=[TaskSpec("sum")])
    state.backfill("b1", {"pending": 3}, dag_id="rolling")

    assert "does not say batchable=True" in bfm("backfill", "set", "b1", "--batch", "2").error


def test_batches_that_size_themselves_need_a_dag_that_is_batchable_too(bfm: Bfm, state: FilledState) -> None:
    state.dag("rolling", tasks=[TaskSpec("sum")])
    state.backfill("b1", {"pending": 3}, dag_id="rolling")

    assert "does not say batchable=True" in bfm("backfill", "set", "b1", "--batch", "auto").error
    created = bfm("backfill", "create", "rolling", "-s", "2013-01-01", "-e", "2013-01-31", "--batch", "auto")
    assert "does not say batchable=True" in created.error
    assert "must be a whole number of 1 to" in bfm("backfill", "set", "b1", "--batch", "many").error
    assert "must be seconds, or a time such as" in bfm("backfill", "set", "b1", "--batch-target", "soon").error


@pytest.mark.parametrize(
    ("typed", "batch", "target"),
    [((), None, None), (("--batch", "auto", "--batch-target", "30m"), "auto", 1800.0), (("--batch", "1"), 1, None)],
)
def test_batches_are_asked_for_as_they_were_typed(
    bfm: Bfm, state: FilledState, typed: tuple[str, ...], batch: int | str, target: float | None
) -> None:
    state.dag(batchable=True)

    assert bfm("backfill", "create", *JANUARY, *typed).code == 0

    (request,) = state.store.unanswered()
    ask = CreateBackfill.from_payload(json.loads(request.payload_json)["ask"])
    assert (ask.batch, ask.batch_target) == (batch, target)
    listed = bfm("backfill", "list", "--output", "json").document
    assert [(one["batch"], one["batch_target"]) for one in listed] == [(batch, target)]


def test_changed_batches_are_kept_as_what_they_mean(bfm: Bfm, state: FilledState) -> None:
    state.dag(batchable=True)
    state.backfill("b1", {"pending": 3})

    assert bfm("backfill", "set", "b1", "--batch", "auto", "--batch-target", "1 h").code == 0

    (request,) = state.store.unanswered()
    assert json.loads(request.payload_json)["changes"] == {"batch": "auto", "batch_target": 3600.0}


def test_a_backfill_that_has_ended_can_not_be_changed(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"success": 1}, state="success")

    result = bfm("backfill", "set", "b1", "--priority", "3")

    assert (result.code, "has ended (success)" in result.error) == (4, True)


def test_one_that_still_waits_for_the_manager_can_be_changed(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.requested("b1")

    assert bfm("backfill", "set", "b1", "--set", "retries=3").code == 0


# -- retry -------------------------------------------------------------------------------------------------------------


def test_a_failed_backfill_is_retried(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("abc1", {"success": 2, "failed": 1}, state="failed")
    state.clock.meanwhile = [lambda: state.answers_next(message="1 item runs again")]

    result = bfm("backfill", "retry", "abc")

    assert (result.code, result.out) == (0, "1 item runs again\n")
    as_it_is = {"latest_version": False, "downstream": False}
    assert submitted(state) == ("backfill.retry", {"backfill_id": "abc1", **as_it_is})


@pytest.mark.parametrize(("end", "code"), [("success", 0), ("failed", 1)])
def test_a_retry_is_watched_until_the_backfill_has_ended_again(
    bfm: Bfm, state: FilledState, end: str, code: int
) -> None:
    state.dag()
    state.leads()
    state.backfill("abc1", {"success": 2, "failed": 1}, state="failed")
    [backfill] = state.store.read(Backfill)
    [item] = state.store.read(BackfillItem, matching(state="failed"))

    def answer() -> None:
        state.put(backfill.evolve(state="running", completed_at=None), item.evolve(state="pending"))
        state.answers_next(message="1 item runs again")

    def finish() -> None:
        state.put(backfill.evolve(state=end), item.evolve(state=end))

    state.clock.meanwhile = [answer, finish]
    result = bfm("backfill", "retry", "abc1", "--wait")

    assert result.code == code, result.err
    assert "1 item runs again" in result.err and f"flights: {end}, 3 items" in result.out


def test_a_retry_that_nobody_answers_is_not_watched(bfm: Bfm, state: FilledState) -> None:
    """Its backfill still shows how it ended before."""
    state.backfill("abc1", {"success": 2, "failed": 1}, state="failed")
    result = bfm("backfill", "retry", "abc1", "--wait")
    assert result.code == 1 and "Retry backfill abc1: submitted (request " in result.out
    assert submitted(state)[0] == "backfill.retry"


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({}, "`bfm backfill create flights --copy-of abc1 --reprocess failed` runs what has not succeeded"),
        ({"reprocess": "completed"}, "`bfm backfill create flights --copy-of abc1` does its whole range again"),
    ],
)
@pytest.mark.parametrize("outcome", ["accepted", "refused"])
def test_a_retry_says_which_command_runs_cancelled_items_and_that_command_asks_for_them(
    bfm: Bfm, state: FilledState, fields: dict[str, str], command: str, outcome: str
) -> None:
    state.dag()
    state.pools()
    state.leads()
    state.backfill("abc1", {"success": 1, "failed": 1, "cancelled": 2}, state="failed", with_upstream=True, **fields)
    state.clock.meanwhile = [lambda: state.answers_next(outcome, message="so it is")]

    result = bfm("backfill", "retry", "abc1")

    assert (result.code == 0) == (outcome == "accepted")
    assert f"Its 2 cancelled items can't be retried; when it has ended, {command}." in result.err
    state.goes()
    created = bfm(*command.split("`")[1].split()[1:])
    assert created.code == 0, created.err
    (request,) = state.store.unanswered()
    ask = CreateBackfill.from_payload(json.loads(request.payload_json)["ask"])
    assert (ask.kind, ask.start_date, ask.end_date) == ("schedule", NEW_YEAR, NEW_YEAR + 30 * DAY)
    assert ask.reprocess == fields.get("reprocess", "failed")


def test_a_retry_of_what_has_no_cancelled_items_says_nothing_of_them(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("abc1", {"failed": 1}, state="failed")
    state.clock.meanwhile = [lambda: state.answers_next()]
    assert "cancelled" not in bfm("backfill", "retry", "abc1").err


def test_a_live_backfill_is_not_moved_to_another_version_and_says_what_to_do(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1}, state="running")
    before = state.fingerprint()

    result = bfm("backfill", "retry", "b1", "--latest-version")

    assert result.code == 4
    assert (
        "is running and keeps its version of the DAG, 1, to its end: only one that has ended is moved" in result.error
    )
    assert (
        "`bfm backfill cancel b1` ends it, and `bfm backfill create flights --kind missing --from … --to …`"
        in result.error
    )
    assert state.fingerprint() == before


@pytest.mark.parametrize(
    ("backfill_state", "shown"),
    [
        ("running", "is running: only one that has ended is retried; `bfm backfill watch b1`"),
        ("paused", "is paused: only one that has ended is retried"),
        ("success", "has no failed item: there is nothing to retry"),
    ],
)
def test_a_retry_of_what_lives_or_is_well_is_refused(
    bfm: Bfm, state: FilledState, backfill_state: str, shown: str
) -> None:
    state.backfill("b1", {"success": 1}, state=backfill_state)
    before = state.fingerprint()

    result = bfm("backfill", "retry", "b1")

    assert (result.code, shown in result.error) == (4, True)
    assert state.fingerprint() == before


# -- the time left -----------------------------------------------------------------------------------------------------


def test_the_time_left_follows_from_the_rate_so_far(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 2, "failed": 1, "running": 1, "pending": 5})
    state.clock.at += timedelta(seconds=30)

    shown = bfm("backfill", "show", "b1", "--output", "json").document

    assert shown["time_left_s"] == 60.0, "three items in 30 s, six are left"
    assert shown["finishes_at"] == "2024-05-15T12:01:30Z"
    assert "time left        1 min 00 s" in bfm("backfill", "show", "b1").out


def test_before_anything_has_ended_it_follows_from_past_runs(bfm: Bfm, state: FilledState) -> None:
    state.backfill("old", {"success": 5}, state="success")  # of 2 s each
    state.backfill("b1", {"pending": 9}, max_active_runs=4)

    shown = bfm("backfill", "show", "b1", "--output", "json").document

    assert shown["time_left_s"] == 6.0, "nine runs, four at once, are three rounds"


def test_a_batched_run_counts_for_all_its_intervals(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1, "pending": 10}, batch=10)
    [run] = state.store.read(DagRun)
    state.put(run.evolve(items=10))
    state.clock.at += timedelta(seconds=20)

    assert bfm("backfill", "show", "b1", "--output", "json").document["time_left_s"] == 20.0


@pytest.mark.parametrize("backfill_state", ["paused", "success"])
def test_what_stands_still_has_no_time_left(bfm: Bfm, state: FilledState, backfill_state: str) -> None:
    state.backfill("b1", {"success": 2, "pending": 5}, state=backfill_state)
    state.clock.at += timedelta(seconds=30)

    shown = bfm("backfill", "show", "b1", "--output", "json").document

    assert (shown["time_left_s"], shown["finishes_at"]) == (None, None)


def test_one_that_works_by_night_promises_no_end(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1, "pending": 2}, window="20:00-06:00")
    state.clock.at += timedelta(seconds=30)

    shown = bfm("backfill", "show", "b1", "--output", "json").document

    assert (shown["time_left_s"], shown["finishes_at"]) == (60.0, None)


def test_outside_its_window_it_says_what_it_waits_for_and_until_when(bfm: Bfm, state: FilledState) -> None:
    until = NEW_YEAR + timedelta(hours=20)
    state.dag()
    state.backfill("b1", {"success": 1, "pending": 2}, window="20:00-06:00", waits_until=until)
    state.clock.at += timedelta(seconds=30)

    shown = bfm("backfill", "show", "b1", "--output", "json").document
    assert (shown["time_left_s"], shown["waits_until"]) == (None, "2013-01-02T01:00:00Z")
    for command in ("list",), ("show", "b1"):
        text = " ".join(bfm("backfill", *command).out.split())
        assert (
            "its time window, 20:00-06:00 America/New_York" in text
            and "2013-01-02T01:00:00Z" in text
            and " left " not in text
        )
    assert "window 20:00-06:00 America/New_York " in " ".join(bfm("backfill", "show", "b1").out.split())
    line = status_line(shown, ObservedPace()).plain
    assert line.endswith("(waits for its time window, 20:00-06:00 America/New_York, until 2013-01-02T01:00:00Z)")


def test_a_watcher_is_shown_the_time_left_from_the_first_look_on(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"success": 1, "running": 1})
    state.clock.at += timedelta(seconds=30)
    state.clock.meanwhile = [lambda: state.goes_on("b1", "success", succeed=[2])]

    result = bfm("backfill", "watch", "b1")

    assert result.out.splitlines()[0] == "running  1/2  1 success, 1 running  about 30 s left"
