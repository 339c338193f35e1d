"""Watching a backfill to its end, and pausing, resuming, cancelling it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from support.bfm import Bfm
from support.sample_state import NOON, FilledState

from backfill_manager.cli.app import run
from backfill_manager.cli.commands.backfill_watch import bar, status_line
from backfill_manager.cli.context import CliContext
from backfill_manager.model.records import BackfillItem, Request, Response
from backfill_manager.queries.eta import ObservedPace
from backfill_manager.requests.submit import term_to_stop

JANUARY = ("flights", "--from", "2013-01-01", "--to", "2013-01-31")


def test_watching_ends_with_the_backfill_and_a_summary(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"running": 1, "pending": 3})
    state.clock.meanwhile = [lambda: None] * 10 + [
        lambda: state.goes_on("b1", succeed=[1, 2], start=[3]),
        *[lambda: None] * 10,
        lambda: state.goes_on("b1", "success", succeed=[3, 4]),
    ]

    result = bfm("backfill", "watch", "b1")

    first, second, last = result.out.splitlines()
    assert first.startswith("running  0/4  1 running, 3 pending")
    assert second.startswith("running  2/4  2 success, 1 running, 1 pending")
    assert "/min" in second
    assert "left" in second
    assert last.startswith("Backfill b1 of flights: success, 4 items: 4 success, in ")
    assert (result.code, result.err) == (0, "")


def test_failures_are_reported_as_they_come_and_make_exit_code_1(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"running": 2})
    state.clock.meanwhile = [
        lambda: state.goes_on("b1", fail=[1]),
        lambda: state.goes_on("b1", "failed", succeed=[2], reason="1 item failed"),
    ]

    result = bfm("backfill", "watch", "latest")

    assert result.code == 1
    failures = [line for line in result.out.splitlines() if line.startswith("failed 2013")]
    assert failures == ["failed 2013-01-01T05:00:00Z  clean: ValueError: no such [day]"]
    assert result.out.splitlines()[-1].endswith("1 item failed")


def test_the_summary_of_a_failed_backfill_says_its_counts_once(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"running": 2})
    state.clock.meanwhile = [lambda: state.goes_on("b1", "failed", fail=[1], succeed=[2], reason="1 failed of 2 items")]

    last = bfm("backfill", "watch", "b1").out.splitlines()[-1]

    assert "2 items: 1 success, 1 failed, in " in last
    assert "1 failed of" not in last


def test_failures_are_reported_after_others_were_cleared_meanwhile(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"running": 3})
    state.clock.meanwhile = [
        lambda: state.goes_on("b1", fail=[1, 2]),
        lambda: state.goes_on("b1", start=[1, 2]),
        lambda: state.goes_on("b1", succeed=[1], fail=[3]),
        lambda: state.goes_on("b1", "failed", fail=[2]),
    ]
    lines = bfm("backfill", "watch", "b1").out.splitlines()
    failures = [line.split()[1][:10] for line in lines if line.startswith("failed 2013")]
    assert failures == ["2013-01-01", "2013-01-02", "2013-01-03", "2013-01-02"]


def test_items_that_were_left_to_runs_of_others_make_exit_code_1(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1, "skipped": 3}, state="success")
    items = [row for row in state.store.read(BackfillItem) if row.state == "skipped"]
    state.put(*(row.evolve(reason="in flight") for row in items[:2]))

    result = bfm("backfill", "watch", "b1")

    assert result.code == 1
    assert "2 items left to runs of others, which were in flight, and may not be done: " in " ".join(result.err.split())


def test_a_backfill_that_finds_all_there_has_done_its_work(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"skipped": 3}, state="success")

    result = bfm("backfill", "watch", "b1")

    assert (result.code, "Nothing had to run" in result.err) == (0, True)


def test_many_failures_at_once_are_cut_short(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"failed": 25}, state="failed")

    result = bfm("backfill", "watch", "b1")

    assert sum(line.startswith("failed 2013") for line in result.out.splitlines()) == 10
    assert "and 15 more failed" in result.out


def test_as_a_document_only_the_end_is_on_standard_output(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"pending": 1})
    state.clock.meanwhile = [lambda: state.goes_on("b1", "success", succeed=[1])]

    result = bfm("backfill", "watch", "b1", "--output", "json")

    assert (result.document["backfill_id"], result.document["state"], result.document["success"]) == (
        "b1",
        "success",
        1,
    )
    assert "1 pending" in result.err


def test_a_backfill_that_waits_for_a_manager_says_so(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.requested("b1")
    state.clock.meanwhile = [lambda: state.backfill("b1", {"success": 1}, state="success")]

    result = bfm("backfill", "watch", "b1")

    assert "No manager is running; the backfill waits for one" in result.out
    assert "queued  (waiting for the manager)" in result.out
    assert result.code == 0


def test_each_end_of_the_manager_and_the_next_one_are_reported_while_watching(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"running": 1, "pending": 3})
    state.clock.meanwhile = [
        state.goes,
        *[lambda: None] * 30,
        state.leads,
        *[lambda: None] * 20,
        state.goes,
        *[lambda: None] * 30,
        state.leads,
        lambda: state.goes_on("b1", "success", succeed=[1, 2, 3, 4]),
    ]

    result = bfm("backfill", "watch", "b1")

    said = [line.partition(";")[0] for line in result.out.splitlines() if " manager is running" in line]
    assert (result.code, said) == (0, ["No manager is running", "A manager is running.", "No manager is running"])
    assert result.out.count("No manager is running; the backfill waits for one") == 2


@pytest.mark.parametrize("environ", [{"TERM": "xterm"}, {"TERM": "dumb", "COLUMNS": "200"}], ids=["pipe", "dumb"])
def test_where_nothing_can_be_drawn_colours_leave_lines_lines(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", **environ}.items():
        monkeypatch.setenv(name, value)
    state.leads()
    state.backfill("b1", {"running": 1})
    state.clock.meanwhile = [lambda: state.goes_on("b1", "success", succeed=[1])]

    watched = re.sub(r"\x1b\[[\d;]*m", "", bfm("backfill", "watch", "b1").out)

    assert "running  0/1  1 running" in watched and "\x1b" not in watched, "no cursor is moved"
    if environ["TERM"] != "dumb":
        [row] = [line for line in bfm("backfill", "list").out.splitlines() if "b1" in line]
        assert "flights" in row and "1: 1 success" in row and "2013-01-01T05:00:00Z" in row, (
            "no width, nothing left out"
        )


def test_watching_a_refused_backfill_tells_why(bfm: Bfm, state: FilledState) -> None:
    request = state.requested("b1")
    state.clock.meanwhile = [lambda: state.answers(request, "refused", "every date has a run already")]

    result = bfm("backfill", "watch", "b1")

    assert result.code == 4
    assert "was refused: every date has a run already" in result.err
    assert bfm("backfill", "show", "b1").code == 4


def test_create_and_wait_watches_what_it_asked_for(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.pools()
    state.leads()

    def accept(outcome: str, item: str) -> None:
        request = state.store.unanswered()[-1]
        backfill_id = bfm_id(request)
        state.backfill(backfill_id, {item: 1}, state=outcome)
        state.answers(request)

    state.clock.meanwhile = [lambda: accept("success", "success")]
    assert bfm("backfill", "create", *JANUARY, "--wait").code == 0
    state.clock.meanwhile = [lambda: accept("cancelled", "cancelled")]
    assert bfm("backfill", "create", *JANUARY, "--wait").code == 1
    state.clock.meanwhile = [lambda: state.answers_next("refused", "no")]
    assert bfm("backfill", "create", *JANUARY, "--wait").code == 4


def bfm_id(request: Request) -> str:
    import json

    matches: str = json.loads(request.payload_json)["backfill_id"]
    return matches


@pytest.mark.parametrize(
    ("below", "last"),
    [
        (["reports"], "Downstream: backfill below of reports is running; watch it: `bfm backfill watch below`"),
        ([], "Downstream: nothing was planned; `bfm requests show mine` shows why."),
    ],
)
def test_create_and_wait_names_the_backfills_downstream_which_it_does_not_wait_for(
    bfm: Bfm, state: FilledState, below: list[str], last: str
) -> None:
    state.dag()
    state.pools()
    state.leads()

    def accept() -> None:
        [request] = state.store.unanswered()
        state.backfill(bfm_id(request), {"success": 1}, state="success", request_id=request.request_id)
        for dag_id in below:
            state.backfill("below", {"running": 1}, dag_id=dag_id, request_id=request.request_id)
        state.backfill("other", {"running": 1})
        state.answers(request)

    state.clock.meanwhile = [accept]
    result = bfm("backfill", "create", *JANUARY, "--downstream", "--wait", "--request-id", "mine")
    assert result.code == 0
    assert result.err.splitlines()[-1] == last
    assert "other" not in result.err


def test_create_with_downstream_tells_at_once_where_its_result_will_be(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.pools()
    state.leads()
    said = "Downstream: `bfm requests show mine` shows which backfills were planned, or why none was."

    result = bfm("backfill", "create", *JANUARY, "--downstream", "--request-id", "mine", "--output", "json")
    copy = bfm("backfill", "create", "flights", "--copy-of", result.document["backfill_id"], "--request-id", "copy")
    without = bfm("backfill", "create", *JANUARY)

    assert result.err.splitlines() == [said]
    assert copy.err.splitlines() == [said.replace("mine", "copy")], "it has the option, too"
    assert "Downstream" not in without.err


def test_waiting_ends_when_the_backfill_has_paused_itself(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.pools()
    state.leads()

    def pauses() -> None:
        request = state.store.unanswered()[-1]
        state.backfill(
            bfm_id(request), {"failed": 2, "pending": 5}, state="paused", reason="2 items failed", stop_on_failure=2
        )
        state.answers(request)

    state.clock.meanwhile = [pauses]

    result = bfm("backfill", "create", *JANUARY, "--stop-on-failure", "2", "--wait")

    assert result.code == 1
    assert "It has paused itself: fix what failed, then `bfm backfill unpause" in result.err


def test_whoever_stops_watching_stops_only_that(state: FilledState, capfd: pytest.CaptureFixture[str]) -> None:
    state.leads()
    state.backfill("b1", {"pending": 1})
    before = state.fingerprint()

    def ctrl_c(seconds: float) -> None:
        raise KeyboardInterrupt

    args = ["--state", str(state.root), "backfill", "watch", "b1"]
    code = run(args, CliContext(environ={}, clock=state.clock, pause=ctrl_c))

    assert code == 130
    assert "The backfill keeps running." in capfd.readouterr().err
    assert state.fingerprint() == before


@pytest.mark.parametrize("verb", ["pause", "unpause", "cancel"])
def test_a_living_manager_is_waited_for_and_its_answer_shown(bfm: Bfm, state: FilledState, verb: str) -> None:
    state.leads()
    state.backfill("abc1", {"pending": 1})
    state.clock.meanwhile = [lambda: state.answers_next(message="as you wish")]

    result = bfm("backfill", verb, "abc")

    assert (result.code, result.out, result.err) == (0, "as you wish\n", "")
    [request] = state.store.read(Request)
    assert request.kind == f"backfill.{verb}"
    assert '"backfill_id": "abc1"' in request.payload_json


def test_a_refusal_is_exit_code_4_with_the_reason(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"pending": 1}, state="paused")
    state.clock.meanwhile = [lambda: state.answers_next("refused", "b1 is paused already")]

    result = bfm("backfill", "pause", "b1")

    assert (result.code, result.error) == (4, "b1 is paused already")


def test_without_a_manager_the_request_waits(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"pending": 1})

    result = bfm("backfill", "cancel", "b1", "--let-running-finish", "--output", "json")

    assert result.code == 0
    assert (result.document["outcome"], result.document["backfill_id"]) == ("waiting", "b1")
    assert "No manager is running" in result.err
    assert '"let_running_finish": true' in state.store.read(Request)[0].payload_json


def test_a_slow_manager_is_not_waited_for_for_ever(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.backfill("b1", {"pending": 1})

    result = bfm("backfill", "pause", "b1")

    assert result.code == 0
    assert "has not answered within 5 s" in result.err


def test_a_manager_that_ends_while_its_answer_is_awaited_is_said(bfm: Bfm, state: FilledState) -> None:
    state.leads()

    def answer() -> None:
        state.leads()
        state.answers_next(message="parsed")

    state.clock.meanwhile = [state.goes, *[lambda: None] * 150, answer]

    result = bfm("bundles", "parse", "examples")

    assert (result.code, result.err.count("No manager is running; the request waits for one")) == (0, 1)
    assert "submitted" in result.out or "parsed" in result.out


def test_what_has_ended_can_not_be_steered(bfm: Bfm, state: FilledState) -> None:
    state.backfill("b1", {"success": 1}, state="success")
    before = state.fingerprint()

    for verb in ("pause", "unpause", "cancel"):
        result = bfm("backfill", verb, "b1")
        assert (result.code, "has ended (success)" in result.error) == (4, True)
    assert state.fingerprint() == before


def test_of_a_pool_before_any_manager_it_is_said_who_makes_pools(bfm: Bfm, state: FilledState) -> None:
    refused = bfm("pools", "set", "backfil", "--slots", "8")

    assert refused.code == 3
    assert refused.error.startswith(
        "There is no pool 'backfil' yet: the first manager that starts makes those of its configuration (scheduled, backfill); "
    )
    assert "`bfm manager start`" in refused.error


def test_of_a_pool_only_what_is_named_is_asked_for(bfm: Bfm, state: FilledState) -> None:
    state.pools()

    assert bfm("pools", "set", "scheduled", "--slots", "8").code == 0
    assert bfm("pools", "set", "backfill", "--slots", "2", "--weight", "3").code == 0

    payloads = [request.payload_json for request in state.store.read(Request, order_by=["requested_at", "request_id"])]
    assert payloads == [
        '{"name": "scheduled", "slots": 8}',
        '{"name": "backfill", "slots": 2, "weight": 3}',
    ]
    assert "did you mean 'backfill'" in bfm("pools", "set", "backfil", "--slots", "8").error
    assert "made in the configuration file" in bfm("pools", "set", "quite_new", "--slots", "8").error
    assert bfm("pools", "set", "backfill", "--slots", "0").code == 2
    assert len(state.store.read(Request)) == 2


def test_limits_of_a_pools_processes_are_asked_for_alone(bfm: Bfm, state: FilledState) -> None:
    state.pools()
    plain = {"name": "backfill"}

    for options, expected in (
        (("--memory", "2 GB"), {"memory_mb": "2 GB"}),
        (("--memory", "none", "--nice", "12"), {"memory_mb": "none", "nice": "12"}),
    ):
        assert bfm("pools", "set", "backfill", *options).code == 0
        asked = max(state.store.read(Request), key=lambda row: row.requested_at)
        assert json.loads(asked.payload_json) == plain | expected
    refused = bfm("pools", "set", "backfill", "--memory", "much")
    assert (refused.code, "--memory must be MB, or a size such as `512 MB` or `2 GB`" in refused.error) == (2, True)
    assert "Nothing to set: give at least one of --slots, --weight" in bfm("pools", "set", "backfill").error


def test_stopping_waits_until_the_manager_is_gone(bfm: Bfm, state: FilledState) -> None:
    assert "there is nothing to stop" in bfm("manager", "stop").out
    state.leads()
    state.clock.meanwhile = [lambda: None, state.goes]

    result = bfm("manager", "stop", "--drain")

    assert (result.code, result.out) == (0, "The manager of term 1 has stopped.\n")
    [request] = state.store.read(Request)
    assert (request.kind, request.payload_json) == ("manager.stop", '{"drain": true}')


def test_a_manager_that_does_not_stop_is_reported(bfm: Bfm, state: FilledState) -> None:
    state.leads()

    result = bfm("manager", "stop", "--timeout", "3")

    assert result.code == 1
    assert "still runs after 3 s" in result.error


def test_a_manager_is_stopped_from_a_machine_whose_clock_is_ahead(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.clock.at += timedelta(days=1)

    state.clock.meanwhile = [lambda: state.leader.heartbeat(NOON + timedelta(seconds=9)), lambda: None, state.goes]
    result = bfm("manager", "stop")

    assert (result.code, result.out) == (0, "The manager of term 1 has stopped.\n")
    assert "Waiting up to 3600 s for a heartbeat of the manager of term 1." in result.err
    [request] = state.store.read(Request)
    assert term_to_stop(request.request_id) == 1


def test_a_manager_without_a_heartbeat_in_the_time_of_its_lease_is_not_running(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.leader.heartbeat(NOON, lease_s=2)
    state.clock.at += timedelta(days=1)

    assert "there is nothing to stop" in bfm("manager", "stop").out
    assert not state.store.read(Request)

    state.clock.at = NOON - timedelta(days=1)  # its heartbeats are of tomorrow
    assert bfm("manager", "stop").out == "The manager of term 1 has stopped.\n"


def test_a_stop_that_is_refused_says_so_at_once(bfm: Bfm, state: FilledState) -> None:
    """By a manager of an older release, which compares two clocks."""

    def refuses() -> None:
        [request] = state.store.read(Request)
        refused = Response(request.request_id, request.kind, "refused", None, "It was requested before.", None, NOON, 1)
        state.put(refused)

    state.leads()
    state.clock.meanwhile = [refuses]

    result = bfm("manager", "stop")

    assert (result.code, result.error) == (4, "It was requested before.")


def test_a_compaction_whose_manager_ends_before_it_is_carried_out_here(bfm: Bfm, state: FilledState) -> None:
    state.leads()
    state.clock.meanwhile = [lambda: None, state.goes]

    result = bfm("state", "compact", "--output", "json")

    assert (result.code, result.document["files"]["manager"], result.err) == (0, 1, "")
    assert [request.kind for request in state.store.read(Request)] == ["state.compact"]


def test_a_standby_that_takes_over_is_named(bfm: Bfm, state: FilledState) -> None:
    def change_over() -> None:
        state.goes()
        state.leads()

    state.leads()
    state.clock.meanwhile = [change_over]

    result = bfm("manager", "stop")

    assert "The manager of term 1 has stopped." in result.out
    assert "A standby has taken over: term 2" in result.err


# -- the picture -------------------------------------------------------------------------------------------------------

COUNTS = {"success": 0, "failed": 0, "cancelled": 0, "skipped": 0, "running": 0, "pending": 0}


def test_the_bar_is_full_and_hides_no_state() -> None:
    for counts in ({"success": 1000, "failed": 1, "pending": 3}, {"pending": 2}, {"running": 1, "skipped": 7}, {}):
        drawn = bar({**COUNTS, **counts}, 40)
        assert len(drawn) == 40
        assert len({span.style for span in drawn.spans}) >= len(counts)


def test_the_pace_is_that_of_the_last_minute() -> None:
    pace = ObservedPace()
    assert pace.per_minute is None
    for second in range(0, 121, 10):
        pace.observe(second, second * 2 if second <= 60 else 120 + (second - 60))
    assert pace.per_minute == 60, "two a second at first, one a second since"
    assert pace.seconds_left(30) == 30


def test_a_backfill_that_stands_still_promises_no_end() -> None:
    pace = ObservedPace()
    for second in range(100):
        pace.observe(second, 5)
    shown = status_line({**COUNTS, "state": "running", "planned": 9, "success": 5, "pending": 4, "reason": None}, pace)
    assert shown.plain == "running  5/9  5 success, 4 pending"
