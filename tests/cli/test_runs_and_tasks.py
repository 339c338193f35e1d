"""Runs, their tasks and their logs, as commands print them."""

from __future__ import annotations

from datetime import timedelta

from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.model.records import DagRun, TaskInstance, TaskTry

RUN = "backfill__2013-01-01T05:00:00Z"


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
