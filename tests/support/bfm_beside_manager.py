"""`bfm` in this process, beside a real manager in it and with the time that really passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext
from backfill_manager.settings import load_settings
from support.bfm import Bfm, BfmResult
from support.manager_process import PatientClock, manager_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_bundle(folder: Path, name: str, text: str) -> Path:
    """The configuration `folder`/m.yaml with one bundle, which holds this DAG file; returns the file."""
    file = folder / "bundle" / name
    file.parent.mkdir()
    (folder / "m.yaml").write_text(f"bundles:\n- {{name: examples, path: '{file.parent}'}}\n")
    file.write_text(text)
    return file


@contextmanager
def bfm_beside_manager(folder: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Iterator[Bfm]:
    """The configuration is `folder`/m.yaml, the state `folder`/state. The manager's log goes to standard error as well."""
    where = ("--conf", str(folder / "m.yaml"), "--state", str(folder / "state"))

    def run_it(*args: str) -> BfmResult:
        capfd.readouterr()
        code = run((*where, *args), CliContext(environ={}, clock=PatientClock()))
        return BfmResult(code, *capfd.readouterr())

    with manager_in_thread(load_settings(where[1], state=where[3], environ={}), spark):
        yield run_it
