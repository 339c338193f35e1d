"""What storage refuses is said in one line, with its causes and without what signs a request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from backfill_manager.store.delta_base import MAX_ERROR_LENGTH, engine_message

ARROW = "\n          \x1b[31m↳\x1b[0m "


def test_the_causes_stand_behind_the_message() -> None:
    error = DeltaError(
        ARROW.join(["Generic S3 error", "Error performing list request", "403 Forbidden: InvalidAccessKeyId"])
    )
    assert engine_message(error) == "Generic S3 error: Error performing list request: 403 Forbidden: InvalidAccessKeyId"


def test_a_signed_url_is_named_without_its_signature() -> None:
    error = DeltaError(
        ARROW.join(["Generic MicrosoftAzure error", "Error performing GET https://a.net/c/t?sv=1&sig=hidden in 3 ms"])
    )
    assert engine_message(error) == "Generic MicrosoftAzure error: Error performing GET https://a.net/c/t in 3 ms"


def test_a_file_that_is_missing_is_named_alone() -> None:
    path = f"tmp/{'long/' * 60}dag_run/part-0.parquet"
    chain = f"External error: Parquet error: Failed to fetch metadata for file {path}: Object Store error: "
    error = DeltaError(f"{chain}Object at location /{path} not found: No such file or directory (os error 2)")
    assert engine_message(error) == "its file part-0.parquet is missing"


def test_a_long_chain_is_cut() -> None:
    assert len(engine_message(DeltaError(ARROW.join(["what"] * 200)))) <= MAX_ERROR_LENGTH


def test_lines_that_are_no_causes_are_left_out() -> None:
    assert engine_message(DeltaError("Corrupt footer\nat row group 3")) == "Corrupt footer"


@pytest.mark.processes
def test_a_command_without_credentials_names_them_in_one_line(tmp_path: Path) -> None:
    names = ("AWS_", "RUST_LOG")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    environ |= {"HOME": str(tmp_path), "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "backfill_manager", "--state", "s3://nowhere/state", "pools", "list"]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Table manager at s3://nowhere/state/manager can't be looked for: ")
    assert "credential" in line
    assert line.endswith(
        "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role that may use it."
    )
