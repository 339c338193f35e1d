"""Times that commands print: with their zone, or in the one that was chosen."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.model.records import DagRun, TaskLog

RUN = "backfill__2013-01-01T05:00:00Z"


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
