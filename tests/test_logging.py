"""The manager's log lines: on standard error, in UTC, without secrets, and other loggers are left alone."""

from __future__ import annotations

import os
import sys

import pytest

from backfill_manager.logging import get_logger


def test_a_line_has_time_level_component_and_event(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("dags", bundle="examples").info("new version", dag_id="flights", version=3)
    out, err = capsys.readouterr()
    assert out == ""
    stamp, rest = err.split(" ", 1)
    assert stamp.startswith("timestamp=2") and stamp.endswith("Z")
    assert rest == 'level=info component=dags event="new version" bundle=examples dag_id=flights version=3\n'


def test_an_exception_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        get_logger("manager").exception("a loop failed")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "level=error" in err and "ValueError: two" in err


def test_debug_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("dags").debug("nothing")
    assert capsys.readouterr().err == ""


def test_secrets_are_hidden_by_key_and_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("store").warning(
        "connecting with password=hunter2", root="s3://key:hunter2@host/state", api_token="hunter2", rows=5
    )
    err = capsys.readouterr().err
    assert "hunter2" not in err
    assert "s3://***@host/state" in err and "api_token=***" in err and "rows=5" in err


def test_structlogs_own_configuration_is_left_alone() -> None:
    import structlog

    get_logger("dags")
    assert not structlog.is_configured()


def test_a_text_of_a_stranger_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("api").info("asked", path="/x\ntimestamp=0 event=forged\r\x1b[31m\u2028\u202eevil\ud800")
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.isascii() and err.rstrip("\n").isprintable()


def test_a_line_that_can_not_be_written_any_more_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under spark-submit standard error is a pipe to the JVM; a manager whose JVM was killed has still to give its lease back."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as broken:
        monkeypatch.setattr(sys, "stderr", broken)
        get_logger("tests").error("nobody hears this")
        with pytest.raises(BrokenPipeError):
            broken.flush()
        with open(os.devnull, "wb") as nowhere:  # for what is left in its buffer
            os.dup2(nowhere.fileno(), writer)
