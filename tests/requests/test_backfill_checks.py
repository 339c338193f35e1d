"""Everything that `check_backfill` turns down, each in one line that says what would be right; and what it lets through."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

import pytest

from backfill_manager.clock import parse_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.task_selection import selected_tasks
from backfill_manager.errors import InvalidInput
from backfill_manager.planning.backfills.backfill_range import with_defaults
from backfill_manager.requests.backfill_checks import check_backfill
from backfill_manager.schemas.backfill_options import CreateBackfill

TASKS = (TaskSpec("clean"), TaskSpec("delays", upstream=("clean",)))
DAILY = DagSpec("flights", TASKS, schedule="@daily")
WEEKLY = dataclasses.replace(DAILY, schedule="@weekly")
BOUNDED = dataclasses.replace(
    DAILY, start_date=parse_instant("2013-01-01T00:00:00Z"), end_date=parse_instant("2013-12-31T00:00:00Z")
)
EVERY_MINUTE = dataclasses.replace(DAILY, schedule="* * * * *")
EVERY_SECOND = dataclasses.replace(DAILY, schedule={"seconds": 1})
FAR_AWAY = parse_instant("2099-01-01T00:00:00Z")
NOW = parse_instant("2014-06-15T12:00:00Z")
UNSCHEDULED = dataclasses.replace(DAILY, schedule=None)
WAITING = dataclasses.replace(DAILY, tasks=(*TASKS, TaskSpec("rolling", depends_on_past=True)))


def day(number: int, month: int = 1) -> datetime:
    return parse_instant(f"2013-{month:02}-{number:02}T00:00:00Z")


RANGE: dict[str, Any] = {"start_date": day(1), "end_date": day(31)}
LISTED: dict[str, Any] = {"kind": "dates", "dates": (day(1),)}
KEYED: dict[str, Any] = {"kind": "partitions", "partitions": ("south",)}


@pytest.mark.parametrize(
    ("dag", "result", "message"),
    [
        (DAILY, {"start_date": day(2), "end_date": day(1)}, "start_date 2013-01-02T00:00:00Z is after end_date 2013-01-01"),
        (DAILY, {"end_date": day(1)}, "needs start_date (the DAG has no start_date"),
        (UNSCHEDULED, {"kind": "single", "start_date": day(1)}, "needs end_date (the DAG has no end_date"),
        (
            UNSCHEDULED, {"kind": "single"},
            "needs start_date (the DAG has no start_date to take instead) and end_date (the DAG has no end_date",
        ),
        (DAILY, {}, "needs start_date (the DAG has no start_date to take instead)"),
        (DAILY, {"kind": "single", "start_date": day(1), "end_date": day(1)}, "and this range is empty"),
        (UNSCHEDULED, RANGE, "has no schedule, so a range holds no intervals; use kind single, dates or"),
        (dataclasses.replace(DAILY, schedule="@once"), RANGE, "has the schedule '@once'"),
        (
            WEEKLY,
            {"start_date": day(7), "end_date": day(12)},
            "no interval of '@weekly' (UTC) starts between 2013-01-07T00:00:00Z and 2013-01-12T00:00:00Z; "
            "the nearest start at 2013-01-06T00:00:00Z and 2013-01-13T00:00:00Z",
        ),
        (EVERY_MINUTE, {"start_date": day(1), "end_date": FAR_AWAY}, "more than one backfill may"),
        (EVERY_SECOND, {"start_date": day(1), "end_date": day(31, 12)}, "31,449,601"),
        (DAILY, {**RANGE, "tasks": "cle(an"}, "tasks 'cle(an' is not a regular expression: missing )"),
        (DAILY, {**RANGE, "tasks": "a{99999999999}"}, "is not a regular expression"),
        (DAILY, {**RANGE, "tasks": "cleen"}, "tasks 'cleen' matches no task of DAG 'flights'; there are clean, delays"),
        (WAITING, {**RANGE, "run_backwards": True}, "its task 'rolling' has depends_on_past"),
        (DAILY, {**RANGE, "max_active_runs": 0}, "max_active_runs must be 1 or more, not 0"),
        (DAILY, {**RANGE, "stop_on_failure": -1}, "stop_on_failure must be 1 or more, not -1"),
        (DAILY, {**RANGE, "reprocess": "fail"}, "did you mean 'failed'"),
        (DAILY, {**RANGE, "kind": "scedule"}, "did you mean 'schedule'"),
        (DAILY, {**RANGE, "conf": [1]}, "conf must be a JSON object"),
        (DAILY, {**RANGE, "priority": "high"}, "priority must be a whole number"),
        (DAILY, {"kind": "dates"}, "needs dates, at least once"),
        (DAILY, {"kind": "partitions"}, "needs partitions, at least once"),
        (DAILY, {**LISTED, **RANGE}, "neither start_date and end_date nor partitions"),
        (DAILY, {**KEYED, **RANGE}, "neither start_date and end_date nor dates"),
        (DAILY, {**RANGE, "dates": (day(1),)}, "neither dates nor partitions"),
        (DAILY, {"kind": "partitions", "partitions": (" ",)}, "printable characters"),
        (DAILY, {"kind": "partitions", "partitions": ("a\nb",)}, "printable characters"),
    ],
)  # fmt: skip
def test_it_is_refused_in_one_line(dag: DagSpec, result: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_backfill(CreateBackfill.parse({"dag_id": dag.dag_id, **result}), dag, NOW)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("dag", "result"),
    [
        (DAILY, RANGE), (DAILY, {"start_date": day(1), "end_date": day(1)}), (BOUNDED, {}),
        (BOUNDED, {"start_date": day(1), "end_date": day(2)}), (UNSCHEDULED, {**RANGE, "kind": "single"}),
        (UNSCHEDULED, LISTED), (UNSCHEDULED, KEYED), (DAILY, {**RANGE, "run_backwards": True, "tasks": "^cl"}),
        (WAITING, RANGE),
    ],
)  # fmt: skip
def test_what_can_be_done_passes(dag: DagSpec, result: dict[str, Any]) -> None:
    check_backfill(CreateBackfill(dag_id=dag.dag_id, **result), dag, NOW)


def test_newest_first_is_refused_where_a_task_depends_on_the_past_and_the_task_is_named() -> None:
    with pytest.raises(InvalidInput, match="its task 'rolling' has depends_on_past"):
        check_backfill(CreateBackfill(dag_id="flights", **RANGE, run_backwards=True), WAITING, NOW)
    by_override = CreateBackfill(
        dag_id="flights", **RANGE, run_backwards=True, overrides={"delays.depends_on_past": True}
    )
    with pytest.raises(InvalidInput, match="its task 'delays' has depends_on_past"):
        check_backfill(by_override, DAILY, NOW)
    in_order = CreateBackfill(
        dag_id="flights", **RANGE, run_backwards=True, overrides={"rolling.depends_on_past": False}
    )
    check_backfill(in_order, WAITING, NOW)


def test_the_ends_left_out_are_the_dags_own_in_what_is_kept() -> None:
    ask = with_defaults(CreateBackfill(dag_id="flights", end_date=day(31)), BOUNDED, NOW)
    assert ask.config()["start_date"] == "2013-01-01T00:00:00Z" and ask.end_date == day(31)
    assert with_defaults(CreateBackfill(dag_id="flights", **KEYED), BOUNDED, NOW).start_date is None


def test_tasks_are_chosen_where_the_expression_is_found() -> None:
    assert selected_tasks("an|^del", DAILY) == ("clean", "delays")
    assert selected_tasks("s$", DAILY) == ("delays",)
    assert selected_tasks(None, DAILY) == ("clean", "delays")
