"""`dags trigger`, `dags pause`, `tasks run`, `runs timeline`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.model.records import DagRun, Request


def submitted(state: FilledState) -> tuple[str, dict[str, Any]]:
    [request] = state.store.read(Request)
    return request.kind, json.loads(request.payload_json)


# -- trigger -----------------------------------------------------------------------------------------------------------


def test_a_run_by_hand_is_asked_for_in_the_zone_of_the_dag(bfm: Bfm, state: FilledState) -> None:
    state.dag()

    result = bfm("dags", "trigger", "flights", "--logical-date", "2013-01-05", "--conf", '{"full": true}')

    assert result.code == 0
    assert submitted(state) == (
        "dag.trigger",
        {"dag_id": "flights", "logical_date": "2013-01-05T05:00:00Z", "conf": {"full": True}},
    )
    assert "No manager is running" in result.err


def test_without_a_date_the_interval_that_the_manager_chose_is_shown(bfm: Bfm, state: FilledState) -> None:
    def accept() -> None:
        run_id = state.run("2024-05-14", run_type="manual", state="queued")
        state.answers_next(message=f"run {run_id} from 14 to 15 May", object_id=run_id)

    state.dag()
    state.leads()
    state.clock.meanwhile = [accept]

    result = bfm("dags", "trigger", "flights")

    assert submitted(state)[1]["logical_date"] is None
    assert result.out == "Triggered: run manual__2024-05-14T04:00:00Z from 14 to 15 May.\n"


@pytest.mark.parametrize(("ends_as", "code"), [("success", 0), ("failed", 1), ("cancelled", 1)])
def test_with_wait_it_ends_when_the_run_has_ended(bfm: Bfm, state: FilledState, ends_as: str, code: int) -> None:
    def accept() -> None:
        run_id = state.run("2024-05-14", run_type="manual", state="running", tasks={"clean": "running"})
        state.answers_next(message=f"run {run_id}", object_id=run_id)

    def end() -> None:
        [row] = state.store.read(DagRun)
        state.put(row.evolve(state=ends_as))
        state.task_goes(row.run_id, "clean", ends_as)

    state.dag()
    state.leads()
    state.clock.meanwhile = [accept, end]

    result = bfm("dags", "trigger", "flights", "--wait")

    assert result.code == code
    assert f"{ends_as}  clean" in result.out
    assert result.out.splitlines()[-1].startswith(f"Run manual__2024-05-14T04:00:00Z of flights: {ends_as}")


def test_a_manager_that_ends_while_its_run_or_log_is_watched_is_reported(bfm: Bfm, state: FilledState) -> None:
    def accept() -> None:
        run_id = state.run("2024-05-14", run_type="manual", state="running", tasks={"clean": "running"})
        state.answers_next(message=f"run {run_id}", object_id=run_id)

    def end() -> None:
        state.leads()
        [row] = state.store.read(DagRun)
        state.put(row.evolve(state="success"))
        state.task_goes(row.run_id, "clean", "success")

    def again() -> None:
        state.task_goes("manual__2024-05-14T04:00:00Z", "clean", "running")
        state.goes()

    quiet = [lambda: None] * 20
    state.dag()
    state.leads()
    state.clock.meanwhile = [accept, state.goes, *quiet, end]
    assert "No manager is running; the run waits for one" in bfm("dags", "trigger", "flights", "--wait").out

    again()
    state.clock.meanwhile = [*quiet, end]
    followed = bfm("tasks", "logs", "flights", "latest", "clean", "--follow")
    assert "No manager is running; the task waits for one" in followed.err
    assert (followed.code, followed.err.count("No manager is running")) == (0, 1)


def test_with_wait_and_nobody_who_answers_it_does_not_succeed(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    result = bfm("dags", "trigger", "flights", "--wait")
    assert result.code == 1
    assert "No manager is running; the request waits for one" in result.err


def test_a_triggered_run_as_a_document(bfm: Bfm, state: FilledState) -> None:
    def accept() -> None:
        state.answers_next(object_id=state.run("2024-05-14", run_type="manual", state="queued"))

    state.dag()
    state.leads()
    state.clock.meanwhile = [accept]

    shown = bfm("dags", "trigger", "flights", "--output", "json").document

    assert (shown["outcome"], shown["run_id"]) == ("accepted", "manual__2024-05-14T04:00:00Z")
    assert shown["run"]["interval_end"] == "2024-05-15T04:00:00Z"


@pytest.mark.parametrize(
    ("args", "code", "shown"),
    [
        (("flihgts",), 3, "did you mean 'flights'"),
        (("flights", "--logical-date", "soon"), 2, "--logical-date: 'soon' is not a date"),
        (("flights", "--conf", "[1]"), 2, "must be a JSON object"),
        (("gone",), 4, "no longer defines it"),
    ],
)
def test_a_run_by_hand_that_makes_no_sense_is_reported(
    bfm: Bfm, state: FilledState, args: tuple[str, ...], code: int, shown: str
) -> None:
    state.dag()
    state.dag("gone", is_active=False)

    result = bfm("dags", "trigger", *args)

    assert (result.code, shown in result.error) == (code, True)
    assert state.store.read(Request) == []


def test_a_trigger_that_the_manager_refuses_is_exit_code_4(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.leads()
    state.clock.meanwhile = [lambda: state.answers_next("refused", "2013-01-05 runs already")]

    result = bfm("dags", "trigger", "flights")

    assert (result.code, result.error) == (4, "2013-01-05 runs already")


def test_a_date_in_the_future_is_refused_in_one_line_unless_it_is_asked_for(bfm: Bfm, state: FilledState) -> None:
    """It is noon of 15 May 2024, and eight o'clock in New York."""
    state.dag()
    for date in ("2030-01-01", "2024-05-15T08:00:01"):
        result = bfm("dags", "trigger", "flights", "--logical-date", date)
        assert (result.code, result.error) == (
            2,
            f"--logical-date {date} lies in the future (it is 2024-05-15T08:00:00-04:00 now); to run it before its time, add "
            "--allow-future",
        )
    assert state.store.read(Request) == []

    assert bfm("dags", "trigger", "flights", "--logical-date", "2030-01-01", "--allow-future").code == 0
    assert submitted(state) == (
        "dag.trigger",
        {"dag_id": "flights", "logical_date": "2030-01-01T05:00:00Z", "conf": {}, "allow_future": True},
    )


def test_the_interval_that_runs_now_is_not_in_the_future(bfm: Bfm, state: FilledState) -> None:
    state.dag()

    assert bfm("dags", "trigger", "flights", "--logical-date", "2024-05-15").code == 0
    assert submitted(state)[1] == {"dag_id": "flights", "logical_date": "2024-05-15T04:00:00Z", "conf": {}}


@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_a_dag_is_paused_and_resumed(bfm: Bfm, state: FilledState, verb: str) -> None:
    state.dag()

    assert bfm("dags", verb, "flights").code == 0
    assert submitted(state) == (f"dag.{verb}", {"dag_id": "flights"})
    assert bfm("dags", verb, "flihgts").code == 3


# -- one task by hand --------------------------------------------------------------------------------------------------

BY_HAND = "external__2024-05-15T12:00:00Z"


@pytest.mark.parametrize(("ended", "code"), [("success", 0), ("skipped", 0), ("failed", 1)])
def test_a_task_run_by_hand_is_followed_to_its_end(bfm: Bfm, state: FilledState, ended: str, code: int) -> None:
    def begin() -> None:
        state.run("2013-01-05", {"clean": "running"}, run_type="external", run_id=BY_HAND, state="running")
        state.answers_next(object_id=BY_HAND)

    error = "ValueError: no" if ended == "failed" else None
    state.dag()
    state.leads()
    state.clock.meanwhile = [
        begin,
        lambda: state.logged(BY_HAND, "half done"),
        lambda: state.task_goes(BY_HAND, "clean", ended, error=error),
    ]

    result = bfm("tasks", "run", "flights", "clean", "2013-01-05")

    assert submitted(state) == (
        "task.run",
        {"dag_id": "flights", "task_id": "clean", "logical_date": "2013-01-05T05:00:00Z"},
    )
    assert result.code == code
    log, last = result.out.splitlines()
    assert log.endswith("half done")
    assert last.startswith(f"clean of flights for 2013-01-05: {ended}")
    assert last.endswith("ValueError: no") == (ended == "failed")
    assert result.err == f"clean of flights runs as {BY_HAND}.\n"


def test_a_task_run_by_hand_as_a_document(bfm: Bfm, state: FilledState) -> None:
    def done() -> None:
        state.run("2013-01-05", {"clean": "success"}, run_type="external", run_id=BY_HAND)
        state.logged(BY_HAND, "done")
        state.answers_next(object_id=BY_HAND)

    state.dag()
    state.leads()
    state.clock.meanwhile = [done]

    shown = bfm("tasks", "run", "flights", "clean", "2013-01-05", "--output", "json").document

    assert (shown["task_id"], shown["state"], shown["run_id"]) == ("clean", "success", BY_HAND)
    assert [line["message"] for line in shown["logs"]] == ["done"]


@pytest.mark.parametrize(
    ("args", "code", "shown"),
    [
        (("flights", "claen", "2013-01-05"), 3, "did you mean 'clean'"),
        (("flihgts", "clean", "2013-01-05"), 3, "did you mean 'flights'"),
        (("flights", "clean", "soon"), 2, "T: 'soon' is not a date"),
        (("flights", "clean"), 2, "T"),
    ],
)
def test_a_task_by_hand_that_makes_no_sense_is_reported(
    bfm: Bfm, state: FilledState, args: tuple[str, ...], code: int, shown: str
) -> None:
    state.dag()

    result = bfm("tasks", "run", *args)

    assert (result.code, shown in result.error) == (code, True)
    assert state.store.read(Request) == []


def test_a_manager_that_does_not_begin_the_task_is_reported(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.leads()

    result = bfm("tasks", "run", "flights", "clean", "2013-01-05")

    assert result.code == 1
    assert "has not begun it within 60 s" in result.err


# -- the timeline ------------------------------------------------------------------------------------------------------


def fill(state: FilledState) -> None:
    """1 January re-done twice, a batch that was put in before it, a run by hand whose predecessor is cancelled."""
    state.dag()
    first = state.run("2013-01-01", run_type="scheduled", state="overridden", overridden_by="second", run_id="first")
    assert first == "first"
    state.run("2013-01-01", run_type="backfill", state="overridden", overridden_by="third", run_id="second")
    state.run("2013-01-01", run_type="backfill", run_id="third", dag_version=2, previous_run_id="batch")
    state.run("2012-12-20", run_type="backfill", run_id="batch", items=12)
    state.run("2013-01-02", run_type="scheduled", run_id="fourth", state="cancelled", previous_run_id="third")
    state.run("2013-01-03", run_type="manual", run_id="fifth", state="running", previous_run_id="third")
    state.run("2013-01-02", run_type="external", run_id="by hand")
    state.run(None, run_type="backfill", run_id="a partition", partition_key="emea")


@pytest.fixture
def history(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def test_the_timeline_is_listed_in_the_order_of_logical_dates_with_what_was_overridden(
    bfm: Bfm, history: FilledState
) -> None:
    runs = bfm("runs", "timeline", "flights", "--output", "json").document

    assert [(run["run_id"], run["previous_run_id"]) for run in runs] == [
        ("batch", None),
        ("third", "batch"),
        ("fourth", "third"),
        ("fifth", "third"),
    ]
    [second] = runs[1]["overridden"]
    assert (second["run_id"], [one["run_id"] for one in second["overridden"]]) == ("second", ["first"])
    assert runs[0]["items"] == 12


def test_the_timeline_is_drawn_as_people_would(bfm: Bfm, history: FilledState) -> None:
    lines = bfm("runs", "timeline", "flights").out.splitlines()[2:]

    drawn = [" ".join(line.split()) for line in lines if line.strip()]
    assert drawn == [
        "╷ ● 2012-12-20T05:00:00Z success backfill 2012-12-21T05:00:00Z 1 batch 12 intervals",
        "↑ ● 2013-01-01T05:00:00Z success backfill 2013-01-02T05:00:00Z 2 third",
        "╰○ 2013-01-01T05:00:00Z overridden backfill 2013-01-02T05:00:00Z 1 second",
        "╰○ 2013-01-01T05:00:00Z overridden scheduled 2013-01-02T05:00:00Z 1 first",
        "↑ ⊘ 2013-01-02T05:00:00Z cancelled scheduled 2013-01-03T05:00:00Z 1 fourth",
        "⇡ ◐ 2013-01-03T05:00:00Z running manual 2013-01-04T05:00:00Z 1 fifth after third",
    ]


def test_only_the_newest_part_of_a_long_timeline_is_shown(bfm: Bfm, history: FilledState) -> None:
    result = bfm("runs", "timeline", "flights", "-n", "2")

    assert "fifth" in result.out
    assert "third" in result.out, "as the one that the first line comes after"
    assert " batch" not in result.out
    assert "The newest 2; -n shows more." in result.err
    assert [one["run_id"] for one in bfm("runs", "timeline", "flights", "-n", "1", "--output", "json").document] == [
        "fifth"
    ]


def test_a_dag_without_runs_or_without_existence_says_so(bfm: Bfm, state: FilledState) -> None:
    state.dag()

    assert "has no run with a logical date yet" in bfm("runs", "timeline", "flights").err
    assert bfm("runs", "timeline", "flights", "--output", "json").document == []
    assert bfm("runs", "timeline", "flihgts").code == 3


def test_a_run_is_found_by_its_date_whoever_ran_a_task_of_it_by_hand(bfm: Bfm, history: FilledState) -> None:
    shown = bfm("runs", "show", "2013-01-02", "--dag", "flights", "--output", "json").document

    assert shown["run_id"] == "fourth"
