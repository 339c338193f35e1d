"""What the manager's log says of a tick: the ends of backfills and what has failed, in few lines however much that is."""

from __future__ import annotations

import re

import pytest

from backfill_manager.execution import messages as m
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.manager.telemetry.logged_changes import MAX_LINES, MAX_TEXT_CHARS, logged_changes
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance
from backfill_manager.model.transitions import Changes
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

Log = pytest.CaptureFixture[str]


def lines(capsys: Log) -> list[str]:
    """What was logged since, without what each line has."""
    return [re.sub(r"^timestamp=\S+ ", "", line) for line in capsys.readouterr().err.splitlines()]


def failing(*dates: str, error: str = "ValueError: no flights", retries: int = 1) -> InMemoryManager:
    """Whose task `clean` fails on these dates, and has one more try."""

    def script(launch: TaskLaunch) -> m.Outcome:
        return m.Failed(error) if any(date in launch.key[1] for date in dates) else m.Succeeded()

    spec = dag_spec("flights", "clean", "load", upstream={"load": ["clean"]}, each={"clean": {"retries": retries}})
    return InMemoryManager(spec, script=script)


def test_a_failed_backfill_its_runs_and_their_tries_are_logged_and_what_succeeds_is_not(capsys: Log) -> None:
    manager = failing("2024-01-02")
    backfill = manager.backfill("flights", days("2024-01-01", 30))
    manager.drain()
    of_try = 'level=warning component=tick event="try failed" dag=flights run=backfill__2024-01-02T00:00:00Z task=clean'
    first, second, run, ended = lines(capsys)
    assert first == f'{of_try} try_number=1 error="ValueError: no flights" will_retry=yes'
    assert second == f'{of_try} try_number=2 error="ValueError: no flights" will_retry=no'
    assert run.startswith(
        'level=warning component=tick event="run failed" dag=flights run=backfill__2024-01-02T00:00:00Z'
    )
    assert f"backfill={backfill}" in run
    assert ended == (
        f'level=warning component=tick event="backfill ended" dag=flights backfill={backfill} state=failed '
        'reason="1 failed of 30 items" success=29 failed=1'
    )


def test_a_backfill_that_succeeds_is_one_line(capsys: Log) -> None:
    manager = failing()
    backfill = manager.backfill("flights", days("2024-01-01", 30))
    manager.drain()
    assert lines(capsys) == [
        f'level=info component=tick event="backfill ended" dag=flights backfill={backfill} state=success success=30'
    ]


def test_one_that_pauses_itself_says_why_once_and_one_that_is_cancelled_that_it_is(capsys: Log) -> None:
    manager = failing("2024-01-01")
    backfill = manager.backfill("flights", days("2024-01-01", 3), max_active_runs=1, stop_on_failure=1)
    manager.drain()
    assert lines(capsys)[-1] == (
        f'level=warning component=tick event="backfill paused" dag=flights backfill={backfill} state=paused '
        'reason="1 failed item: paused by stop_on_failure=1" pending=2 failed=1'
    )
    manager.ask("backfill.set", backfill_id=backfill, changes={"priority": 7})
    manager.drain()
    assert manager.row(backfill).priority == 7
    assert lines(capsys) == []
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=False)
    manager.drain()
    (line,) = lines(capsys)
    assert f'event="backfill ended" dag=flights backfill={backfill} state=cancelled reason=' in line
    assert line.endswith(" failed=1 cancelled=2")


def test_a_run_that_failed_before_is_not_logged_again_for_a_note(capsys: Log) -> None:
    manager = failing("2024-01-01")
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    (run,) = manager.runs("flights")
    lines(capsys)
    manager.clock.advance(seconds=60)
    manager.ask("run.note", dag_id="flights", run_id=run.run_id, text="the source was down", was="")
    manager.drain()
    assert [row.note for row in manager.runs("flights")] == ["the source was down"]
    assert lines(capsys) == []


def test_an_error_is_one_line_of_some_hundred_characters_without_secrets(capsys: Log) -> None:
    manager = failing("2024-01-01", error=f"ValueError: password=hunter2\nevent=forged {'x' * 10_000}")
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    first = lines(capsys)[0]
    assert 'error="ValueError: password=*** event=forged xxx' in first
    assert MAX_TEXT_CHARS < len(first) < MAX_TEXT_CHARS + 300


def test_much_that_fails_at_once_is_a_few_lines_and_how_many_more(capsys: Log) -> None:
    manager = failing("2024", retries=0)
    backfill = manager.backfill("flights", days("2024-01-01", 300), max_active_runs=300)
    failures, ended = 0, list[str]()
    while manager.tick():
        said = lines(capsys)
        assert len(said) <= MAX_LINES + 1
        failures += sum("try failed" in line or "run failed" in line for line in said)
        failures += sum(int(found) for found in re.findall(r'event="and more" left_out=(\d+)', "\n".join(said)))
        ended += [line for line in said if "backfill ended" in line]
    assert failures == 2 * 300, "a try and a run of each date"
    assert [f"backfill={backfill} state=failed" in line for line in ended] == [True], "whatever else there is"


def test_what_sums_up_goes_before_what_it_sums_up() -> None:
    clock, changes, live = FakeClock(), Changes(), InMemoryManager(dag_spec("flights", "clean"))
    backfill = live.state.backfills[live.backfill("flights", days("2024-01-01", 1))]
    for number in range(MAX_LINES + 5):
        ti = c.queued(TaskInstance("flights", f"run{number}", "clean", s.SCHEDULED, number), clock.now(), "backfill")
        ti = c.failed(c.started(ti, clock.now()), clock.now(), "boom")
        changes.put(ti)
        changes.put(c.try_of(ti, term=1))
    said = logged_changes(changes, clock.now(), [backfill])
    assert [line.event for line in said] == [*["try failed"] * (MAX_LINES - 1), "backfill ended", "and more"]
    assert said[-1].fields == {"left_out": 6}
