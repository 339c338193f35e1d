"""What people have in their fingers from Airflow: understood, or answered with the line that helps."""

from __future__ import annotations

import json

import pytest
from support.bfm import Bfm
from support.sample_state import NEW_YEAR, FilledState

from backfill_manager.cli.airflow_aliases import OF_BACKFILL_CREATE, OF_TASKS_CLEAR, AirflowOption
from backfill_manager.model.records import Request
from backfill_manager.schemas.backfill_options import CreateBackfill

JANUARY = ("flights", "--from", "2013-01-01", "--to", "2013-01-31")


def fill(state: FilledState) -> None:
    state.dag()
    state.pools()


@pytest.fixture
def filled(state: FilledState) -> FilledState:
    return state.filled_by(fill)


def submitted(state: FilledState) -> CreateBackfill:
    [request] = state.store.read(Request)
    return CreateBackfill.from_payload(json.loads(request.payload_json)["ask"])


def test_a_backfill_in_the_words_of_airflow_2_is_the_same_backfill(bfm: Bfm, filled: FilledState) -> None:
    result = bfm(
        "backfill", "create", "flights", "--start-date", "2013-01-01", "--end-date", "2013-01-01", "--task-regex", "^cl",
        "-i", "--pool", "backfill", "-l", "-x", "-y",
    )  # fmt: skip

    assert result.code == 0
    assert submitted(filled) == CreateBackfill(
        dag_id="flights", start_date=NEW_YEAR, end_date=NEW_YEAR, tasks="^cl", with_upstream=False
    )
    assert result.err.splitlines()[:3] == [
        "--start-date is --from here.",
        "--end-date is --to here.",
        "--task-regex is --tasks here.",
    ]


def test_rerun_failed_tasks_runs_them_again_in_place_and_chooses_no_tasks(bfm: Bfm, filled: FilledState) -> None:
    result = bfm("backfill", "create", *JANUARY, "--rerun-failed-tasks", "-t", "^cl")
    assert (result.code, "leave --tasks ^cl out" in result.err, "`bfm tasks clear flights" in result.err) == (
        2,
        True,
        True,
    )

    result = bfm("backfill", "create", *JANUARY, "--rerun-failed-tasks")
    assert (result.code, submitted(filled).reprocess) == (0, "failed_tasks")
    assert result.err.splitlines()[0] == "--rerun-failed-tasks is --reprocess failed_tasks here."


def test_a_backfill_in_the_words_of_airflow_3_is_the_same_backfill(bfm: Bfm, filled: FilledState) -> None:
    result = bfm(
        "backfill", "create", "flights", "--from-date", "2013-01-01", "--to-date", "2013-01-01",
        "--reprocess-behavior", "completed", "--dag-run-conf", '{"full": true}',
    )  # fmt: skip

    assert result.code == 0
    assert submitted(filled) == CreateBackfill(
        dag_id="flights", start_date=NEW_YEAR, end_date=NEW_YEAR, reprocess="completed", conf={"full": True}
    )


def test_redoing_all_wins_over_redoing_what_failed(bfm: Bfm, filled: FilledState) -> None:
    bfm("backfill", "create", *JANUARY, "--rerun-failed-tasks", "--reset-dagruns")

    assert submitted(filled).reprocess == "completed"


def test_what_is_said_in_todays_words_wins(bfm: Bfm, filled: FilledState) -> None:
    bfm(
        "backfill", "create", *JANUARY, "--start-date", "2013-01-05", "--reprocess", "completed", "--rerun-failed-tasks"
    )

    ask = submitted(filled)
    assert (ask.start_date, ask.reprocess) == (NEW_YEAR, "completed")


DROPPED = [one for one in OF_BACKFILL_CREATE if one.parameter is None]


def test_every_option_that_was_dropped_is_known() -> None:
    known = {spelling for one in DROPPED for spelling in one.spellings}
    assert known >= {
        "--local", "-l", "--donot-pickle", "-x", "--continue-on-failures", "--delay-on-limit", "--run-at-least-once",
        "--disable-retry", "--treat-dag-as-regex",
        "-v", "--verbose", "-S", "--subdir",
    }  # fmt: skip


@pytest.mark.parametrize("old", DROPPED, ids=lambda old: old.spellings[0])
def test_a_dropped_option_gets_one_line_and_changes_nothing(bfm: Bfm, filled: FilledState, old: AirflowOption) -> None:
    plain = CreateBackfill(dag_id="flights", start_date=NEW_YEAR, end_date=NEW_YEAR)
    for spelling in old.spellings:
        value = ["7"] if old.takes_value else []
        args = ("backfill", "create", "flights", "-s", "2013-01-01", "-e", "2013-01-01", spelling, *value)
        result = bfm(*args, "--request-id", "same")
        assert (result.code, result.err.splitlines()[0]) == (0, old.message)
    assert submitted(filled) == plain
    assert old.message.startswith(f"{old.spellings[0]} is left out: ")


def test_old_spellings_are_not_in_the_help_and_h_is_help(bfm: Bfm) -> None:
    for args, olds in (("backfill", "create"), OF_BACKFILL_CREATE), (("tasks", "clear"), OF_TASKS_CLEAR):
        result = bfm(*args, "-h")
        assert result.code == 0
        assert "Usage:" in result.out
        assert not [old for old in olds if old.spellings[0] + " " in result.out]
    assert "Usage:" in bfm("-h").out
    assert "Usage:" in bfm("dags", "-h").out


def test_a_clear_in_the_words_of_airflow_is_the_same_clear(bfm: Bfm, filled: FilledState) -> None:
    filled.run("2013-01-01", {"clean": "failed"}, state="failed")

    result = bfm(
        "tasks", "clear", "flights", "--start-date", "2013-01-01", "--task-regex", "cl", "-S", "dags", "-x", "-y"
    )

    assert result.code == 0
    assert result.err.startswith(
        "--start-date is --from here.\n--task-regex is --tasks here.\n--exclude-subdags is left out"
    )
    ask = json.loads(filled.store.read(Request)[0].payload_json)["ask"]
    assert (ask["start"], ask["tasks"]) == ("2013-01-01", "cl")


@pytest.mark.parametrize(
    ("typed", "here"),
    [
        ("backfill flights -s 2013-01-01 -e 2013-01-31", "bfm backfill create flights -s 2013-01-01 -e 2013-01-31"),
        ("dags backfill flights -s 2013-01-01", "bfm backfill create flights -s 2013-01-01"),
        ("dags backfill -s 2013-01-01 flights", "bfm backfill create -s 2013-01-01 flights"),
        ("dags clear flights", "bfm tasks clear flights"),
        ("clear flights -t 'a b'", "bfm tasks clear flights -t 'a b'"),
        ("dags list-runs", "bfm runs list"),
        ("tasks states-for-dag-run flights latest", "bfm tasks states flights latest"),
        ("tasks test flights clean 2024-03-01", "bfm tasks run flights clean 2024-03-01"),
        ("backfill resume b1", "bfm backfill unpause b1"),
        ("backfill stop b1 --let-running-finish", "bfm backfill cancel b1 --let-running-finish"),
        ("backfill abort b1", "bfm backfill cancel b1"),
        ("runs stop 2013-01-05 --dag flights", "bfm runs cancel 2013-01-05 --dag flights"),
        ("runs abort latest", "bfm runs cancel latest"),
        ("runs retry latest", "bfm tasks clear DAG --run RUN --only-failed"),
        ("runs rerun 2013-01-05 --dag flights", "bfm tasks clear DAG --run RUN"),
        ("runs clear latest", "bfm tasks clear DAG --run RUN"),
        ("dags resume flights", "bfm dags unpause flights"),
        ("dags run flights", "bfm dags trigger flights"),
        ("logs flights 2013-01-05 clean", "bfm tasks logs flights 2013-01-05 clean"),
        ("status", "bfm manager status"),
        ("watch latest", "bfm backfill watch latest"),
    ],
)
def test_a_command_that_stands_elsewhere_is_answered_with_its_line(bfm: Bfm, typed: str, here: str) -> None:
    import shlex

    result = bfm(*shlex.split(typed))

    assert result.code == 2
    assert result.error.endswith(f"what you want is `{here}`.")


def test_a_mistyped_command_of_the_group_still_offers_the_nearest(bfm: Bfm) -> None:
    result = bfm("backfill", "creat")

    assert result.code == 2
    assert "create" in result.error
