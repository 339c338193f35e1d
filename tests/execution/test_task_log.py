"""What is kept of a log that is too long."""

from __future__ import annotations

import itertools

import pytest
from support.executor_fixture import a_launch

from backfill_manager.clock import SystemClock
from backfill_manager.execution.messages import CheckedWrite, Succeeded
from backfill_manager.execution.output.row_checks import CheckResults
from backfill_manager.execution.task_processes.task_log import (
    BETWEEN_ERRORS,
    HEAD_LINES,
    MAX_CHARS,
    TAIL_CHARS,
    TAIL_LINES,
    LogLines,
    shorten_middle,
)
from backfill_manager.model.records import TaskLog


def a_log() -> LogLines:
    return LogLines(a_launch(), SystemClock(), lambda: None)


def stored(lines: LogLines) -> list[TaskLog]:
    """What is taken while the try runs, and at its end."""
    taken = lines.take()
    lines.close()
    return [*taken, *lines.take()]


def test_a_log_of_no_more_lines_than_are_kept_is_whole() -> None:
    lines, all_lines = a_log(), [str(n) for n in range(HEAD_LINES + TAIL_LINES)]
    for message in all_lines:
        lines.add("INFO", message)
    rows = stored(lines)
    notice = rows.pop(HEAD_LINES).message
    assert notice.startswith("this try has logged 8,000 lines; its last 2,000 lines")
    assert [row.message for row in rows] == all_lines
    lines.add("INFO", "of a thread that was left behind")
    assert lines.take() == ()


def test_of_a_longer_log_head_and_tail_and_errors_are_kept_in_order() -> None:
    lines, errors = a_log(), range(9_000, 9_000 + BETWEEN_ERRORS * 2)
    for n in range(50_000):
        lines.add("ERROR" if n in errors else "INFO", str(n))
    assert lines.has_error(str(errors[-1]))
    head = lines.take()
    lines.close()
    notice, *end = lines.take()
    assert [row.message for row in head[:HEAD_LINES]] == [str(n) for n in range(HEAD_LINES)]
    assert len(head) == HEAD_LINES + 1, "while it runs it shows why no more lines appear"
    left_out = 50_000 - HEAD_LINES - TAIL_LINES
    assert notice.message == f"{left_out:,} lines are left out here, but for 100 of the errors among them"
    kept = [*errors[-BETWEEN_ERRORS:], *range(50_000 - TAIL_LINES, 50_000)]
    assert [row.message for row in end] == [str(n) for n in kept]
    numbers = [row.line for row in (*head, notice, *end)]
    assert numbers[0] == 1, "as pages and the API number them"
    assert all(one < following for one, following in itertools.pairwise(numbers)), "the order in which they are shown"


def test_the_end_of_a_flood_of_long_lines_takes_no_more_memory_than_its_limit() -> None:
    lines = a_log()
    for n in range(HEAD_LINES + TAIL_LINES):
        lines.add("INFO", "x" * MAX_CHARS if n >= HEAD_LINES else "")
    *_, notice = (row.message for row in stored(lines) if row.message.strip("x"))
    assert notice == f"{TAIL_LINES - TAIL_CHARS // MAX_CHARS:,} lines are left out here"


def test_of_a_long_line_both_ends_are_kept_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "what nobody reads")
    lines = a_log()
    lines.add("ERROR", "Traceback" + "what nobody reads" * 3_000 + "x" * 30_000 + "ValueError: the cause")
    (row,) = stored(lines)
    assert len(row.message) == MAX_CHARS
    assert row.message.startswith("Traceback***") and row.message.endswith("xValueError: the cause")
    assert "the middle is left out" in row.message and "nobody" not in row.message


def test_a_line_is_kept_as_a_terminal_would_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPORT_PASSWORD", "correct-horse-7")
    lines = a_log()
    for message in (
        "\x1b[1;31mfailed\x1b[0m after \x1b]0;title\x07 3 rows",
        " 10%|#   | 1/9\r 50%|##  | 5/9\r100%|####| 9/9",
        "a title\n\rfirst\rsecond\nthe end\r",
        "ends of lines of another system\r\nstay",
        "correct-\x1b[4mhorse\x1b[24m-7",
        "x" + "\r" * 1_000_000,  # takes no longer than any other of this length
    ):
        lines.add("INFO", message)
    assert [row.message for row in stored(lines)] == [
        "failed after  3 rows",
        "100%|####| 9/9",
        "a title\nsecond\nthe end\r",
        "ends of lines of another system\r\nstay",
        "***",
        shorten_middle("x" + "\r" * 1_000_000),
    ]


def test_what_checks_found_is_kept_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "what nobody reads")
    found = CheckedWrite(
        "t", "note <> 'of a param'", "token=abc", "failed", 5, 1, None, "what nobody reads, of a param"
    )
    lines = LogLines(a_launch(params={"db_password": "of a param"}), SystemClock(), lambda: None)
    shown = lines.check_without_secrets(found)
    assert (shown.condition, shown.name, shown.message) == ("note <> '***'", "token=***", "***, ***")
    assert (shown.table, shown.outcome, shown.rows, shown.failing) == ("t", "failed", 5, 1)
    results = CheckResults()  # in the process of the task, which may know more of the environment
    results.put("x", [found])
    assert results.all() == (found.without_secrets(),) and "nobody" not in str(results.all())


def test_a_result_is_kept_as_it_is_and_masked_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "what nobody reads")
    result = '{"dsn": "me, what nobody reads", "rows": 3}'
    assert a_log().without_secrets(Succeeded(result, 5)) == Succeeded(result, 5, '{"dsn": "me, ***", "rows": 3}')
    of_its_process = '{"dsn": "***, what nobody reads", "rows": 3}'  # whose environment had another secret, too
    assert a_log().without_secrets(Succeeded(result, 5, of_its_process)) == Succeeded(
        result, 5, '{"dsn": "***, ***", "rows": 3}'
    )
    assert a_log().without_secrets(Succeeded('{"rows": 3}')) == Succeeded('{"rows": 3}')
    assert a_log().without_secrets(Succeeded(None)) == Succeeded(None)
