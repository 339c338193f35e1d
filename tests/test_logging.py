"""The manager's log lines: on standard error, in UTC, without secrets, and other loggers are left alone."""

from __future__ import annotations

import os
import sys

import pytest

from backfill_manager.logging import get_logger
from backfill_manager.masking import mask_environment, mask_text


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("AWS_SECRET_ACCESS_KEY=abc next", "AWS_SECRET_ACCESS_KEY=*** next"),
        ("/a/path and 12:30:00 and s3://bucket/key", "/a/path and 12:30:00 and s3://bucket/key"),
        ("the token bucket is empty", "the token bucket is empty"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_and_the_rest_is_not(text: str, shown: str) -> None:
    assert mask_text(text) == shown


def test_secrets_of_the_environment_are_hidden_wherever_a_text_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "hunter2")
    monkeypatch.setenv("OTHER_TOKEN", "hunter2-and-more")
    monkeypatch.setenv("aws_secret_access_key", "line\none")
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("REGION", "eu-west-1")
    shown = mask_environment(r"no hunter2, no hunter2-and-more, no 'line\none'; abc in eu-west-1, s3://me:word@host/x")
    assert shown == "no ***, no ***, no '***'; abc in eu-west-1, s3://***@host/x"
    assert mask_environment("line\none") == "***"


@pytest.mark.parametrize("name", ["DB_PASS", "MYSQL_PASSWD", "ssh_passphrase", "PG_PWD", "API_KEY", "GH_TOKEN"])
def test_a_variable_that_is_named_like_a_secret_is_hidden(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "hunter2-")
    assert mask_environment("no hunter2-") == "no ***"


def test_structlogs_own_configuration_is_left_alone() -> None:
    import structlog

    get_logger("dags")
    assert not structlog.is_configured()


def test_a_text_of_a_stranger_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("api").info("asked", path="/x\ntimestamp=0 event=forged\r\x1b[31m\u2028\u202eevil\ud800")
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.isascii() and err.rstrip("\n").isprintable()


@pytest.mark.usefixtures("must_end")
@pytest.mark.parametrize("piece", ["a.", "token", "token ", "bearer ", "://a:", "password=x "])
def test_a_long_text_is_searched_for_secrets_once_not_from_each_of_its_characters(piece: str) -> None:
    mask_text(piece * (600_000 // len(piece)))


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
