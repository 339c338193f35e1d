"""`bfm config token`: what it prints is a configuration, with an end if one was asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support.bfm import Bfm

from backfill_manager.settings import load_settings


def test_what_is_printed_is_a_token_and_its_configuration(bfm: Bfm, tmp_path: Path) -> None:
    result = bfm("config", "token", "ada", "--role", "operator", "--expires", "2999-01-31")
    [token] = result.out.splitlines()
    (tmp_path / "manager.yaml").write_text(result.err[result.err.index("api:") :])
    [made] = load_settings(str(tmp_path / "manager.yaml"), environ={}).api.tokens
    assert (made.name, made.role, made.sha256) == ("ada", "operator", hashlib.sha256(token.encode()).hexdigest())
    assert made.expires is not None and made.expires.isoformat() == "2999-02-01T00:00:00+00:00"
    assert "expires" not in bfm("config", "token", "ada").err


def test_the_file_that_it_belongs_into_is_the_one_in_use(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("state: ./state\n")
    assert "Put this into mine.yaml," in bfm("--conf", "mine.yaml", "config", "token", "ada").err
    assert "Put this into conf/manager.yaml," in bfm("config", "token", "ada").err


@pytest.mark.parametrize(
    ("expires", "complaint"),
    [
        ("soon", "--expires must be a date (YYYY-MM-DD) or an instant (YYYY-MM-DDTHH:MM:SSZ)"),
        ("2001-01-01", "--expires 2001-01-01 is over already"),
    ],
)
def test_an_end_that_is_none_is_refused(bfm: Bfm, expires: str, complaint: str) -> None:
    result = bfm("config", "token", "ada", "--expires", expires)
    assert (result.code, complaint in result.error) == (2, True)
