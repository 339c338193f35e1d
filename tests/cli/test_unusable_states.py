"""A state that is not there, not writable, newer, or broken: one line, the right exit code, and nothing is touched."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.bfm import Bfm
from support.of_another_user import NAMELESS, ONLY_AS_ROOT, bfm_without_home, bfm_without_rights
from support.sample_state import FilledState

from backfill_manager.model.records import SCHEMA_VERSION
from backfill_manager.store.table_properties import VERSION_PROPERTY

READING = [
    ("dags", "list"),
    ("backfill", "list"),
    ("backfill", "show", "latest"),
    ("backfill", "diff", "latest"),
    ("runs", "list"),
    ("requests", "list"),
    ("pools", "list"),
    ("manager", "status"),
    ("state", "check"),
    ("state", "compact"),
    ("state", "prune", "--dry-run"),
    ("state", "locations"),
    ("state", "sql", "SELECT 1"),
]


@pytest.mark.parametrize("args", READING, ids=" ".join)
def test_without_a_state_every_command_says_how_to_make_one(bfm: Bfm, tmp_path: Path, args: tuple[str, ...]) -> None:
    result = bfm("--state", "./nowhere", *args)

    assert result.code == 2
    assert (
        "There is no state at ./nowhere; a manager that starts there makes it. Create it with `bfm --state ./nowhere state init`"
        in result.error
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_offered_can_be_copied_whatever_the_place_is_called(bfm: Bfm) -> None:
    result = bfm("--state", "./mein Zustand", "dags", "list")
    assert "There is no state at ./mein Zustand;" in result.error
    assert "`bfm --state './mein Zustand' state init`" in result.error


@pytest.mark.parametrize("option", ["--state", "--server", "--conf", "--timezone"])
def test_an_option_for_the_state_without_a_value_is_no_other_state(bfm: Bfm, state: FilledState, option: str) -> None:
    state.dag()
    for args in ((option, "", "dags", "list"), ("dags", "list", option, "")):
        result = bfm(*args)
        assert (result.code, result.out) == (2, "")
        assert result.error == f"{option} must not be empty: give it a value, or leave it out."


@pytest.mark.parametrize(
    "args",
    [
        ("runs", "list", "--dag", ""),
        ("runs", "cancel", "latest", "--dag", ""),
        ("runs", "list", "--backfill="),
        ("backfill", "list", "--state", "running", "--state", ""),
        ("notify", "list", "--target", ""),
        ("serve", "--host", ""),
    ],
    ids=" ".join,
)
def test_an_option_of_a_command_without_a_value_is_not_taken_as_left_out(
    bfm: Bfm, state: FilledState, args: tuple[str, ...]
) -> None:
    state.dag("flights")
    option = [arg for arg in args if arg.startswith("--")][-1].removesuffix("=")

    result = bfm(*args)

    assert (result.code, result.out) == (2, "")
    assert result.error == f"{option} must not be empty: give it a value, or leave it out."


@pytest.mark.parametrize("args", [*READING, ("state", "init"), ("doctor",), ("manager", "start")], ids=" ".join)
def test_a_file_in_place_of_the_state_is_reported(bfm: Bfm, tmp_path: Path, args: tuple[str, ...]) -> None:
    (tmp_path / "a.file").write_text("in the way")

    result = bfm("--state", "a.file", *args)

    assert result.code != 0
    assert "a.file is a file, and a state needs a folder." in result.out + result.err
    assert "Unexpected" not in result.err
    assert (tmp_path / "a.file").read_text() == "in the way"


def test_a_folder_without_the_right_to_it_is_no_missing_state_and_no_bug(state: FilledState, tmp_path: Path) -> None:
    state.dag()
    (tmp_path / "locked").mkdir()
    state.root.rename(tmp_path / "locked" / "state")
    (tmp_path / "dags").mkdir()
    (tmp_path / "locked").chmod(0)
    try:
        for args in (("dags", "list"), ("state", "init")):
            ended = bfm_without_rights("--state", "locked/state", *args, cwd=tmp_path)
            assert (ended.returncode, ended.stdout) == (2, "")
            assert ended.stderr == "The state at locked/state can't be read: Permission denied.\n"

        for args in (("import", "airflow", "locked/x"), ("init", "locked/x"), ("import", "dbt", "locked/x")):
            ended = bfm_without_rights(*args, cwd=tmp_path)
            assert (ended.returncode, ended.stdout) == (1, "")
            [line] = ended.stderr.splitlines()
            assert line.startswith("locked/x") and line.endswith(": Permission denied.")

        places = {"STATE": "locked/state", "WAREHOUSE": "locked/tables", "CACHE": "locked", "HOME": "locked"}
        environ = {f"BFM_{name}": str(tmp_path / place) for name, place in places.items()}
        environ["BFM_BUNDLES"] = json.dumps([{"name": "b", "path": str(tmp_path / "locked" / "dags")}])
        ended = bfm_without_rights("doctor", "--output", "json", cwd=tmp_path, environ=environ)
    finally:
        (tmp_path / "locked").chmod(0o700)
    wrong = {one["name"]: one["found"] for one in json.loads(ended.stdout) if one["status"] == "error"}
    assert set(wrong) == {"jars", "bundles", "state", "warehouse", "tables"}
    assert all("ermission denied" in found or "can't be read" in found for found in wrong.values())


@ONLY_AS_ROOT
def test_a_user_without_a_home_gets_an_error_of_what_is_missing(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    missing = f"User {NAMELESS} has no home, where its cache would be: set HOME or BFM_CACHE."

    checks = json.loads(bfm_without_home("doctor", "--output", "json", cwd=tmp_path).stdout)
    served = bfm_without_home("serve", "--port", "0", cwd=tmp_path)

    assert [one["found"] for one in checks if one["name"] == "jars"] == [missing]
    assert (served.returncode, served.stderr.splitlines()[-1]) == (2, missing)


def test_a_state_of_runs_in_place_of_the_states_place_is_reported_as_what_it_is(bfm: Bfm) -> None:
    for args in (("tasks", "list", "flights"), ("tasks", "states", "flights", "latest"), ("pools", "list")):
        result = bfm(*args, "--state", "failed")
        assert (result.code, result.error) == (
            2,
            "There is no state at failed; a manager that starts there makes it. Here --state is where the state is kept; the "
            "states of a run's tasks are shown by `bfm tasks states DAG RUN`.",
        )


def test_a_state_that_can_not_be_written_is_reported(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("in the way")

    result = bfm("--state", "a_file/state", "state", "init")

    assert result.code == 2
    assert "a_file/state" in result.error
    assert (tmp_path / "a_file").read_text() == "in the way"


def test_a_request_without_the_right_to_write_it_is_refused_in_one_line(state: FilledState, tmp_path: Path) -> None:
    state.pools()
    table = state.root / "request"
    before = state.fingerprint()
    table.chmod(0o555)
    try:
        ended = bfm_without_rights("--state", str(state.root), "pools", "set", "backfill", "--slots", "3", cwd=tmp_path)
    finally:
        table.chmod(0o755)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"Table request at {table} can't be written: this user may not write into its folder.\n"
    assert state.fingerprint() == before


@pytest.mark.parametrize("command", [("state", "compact"), ("state", "init")], ids=" ".join)
def test_a_state_without_the_right_to_write_it_is_refused_in_one_line(
    state: FilledState, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before, tables = state.fingerprint(), [entry for entry in state.root.iterdir() if entry.is_dir()]
    for table in tables:
        table.chmod(0o555)
    try:
        ended = bfm_without_rights("--state", str(state.root), *command, cwd=tmp_path)
    finally:
        for table in tables:
            table.chmod(0o755)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"Table \w+ at \S+ can't be written: this user may not write into its folder.\n", ended.stderr)
    assert state.fingerprint() == before


def test_a_request_that_can_not_be_written_is_reported(bfm: Bfm, state: FilledState) -> None:
    state.pools()
    before = state.fingerprint()
    log = state.root / "request" / "_delta_log"
    log.rename(state.root / "request" / "kept")
    log.symlink_to("kept/00000000000000000000.json/nowhere")  # even root can't write here

    result = bfm("pools", "set", "backfill", "--slots", "3")

    assert result.code == 2
    assert str(state.root / "request") in result.error
    log.unlink()
    (state.root / "request" / "kept").rename(log)
    assert state.fingerprint() == before


def test_a_state_of_a_newer_version_is_left_alone(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    for place in state.store.locations().values():
        DeltaTable(place).alter.set_table_properties(
            {VERSION_PROPERTY: str(SCHEMA_VERSION + 1)}, raise_if_not_exists=False
        )
    before = state.fingerprint()

    for args in (("runs", "list"), ("state", "init"), ("pools", "set", "backfill", "--slots", "3")):
        result = bfm(*args)
        assert result.code == 2
        assert "this backfill_manager knows" in result.error
    assert state.fingerprint() == before


def test_a_corrupt_table_file_is_named(bfm: Bfm, state: FilledState) -> None:
    state.dag("flights")
    state.backfill("b1", {"success": 1})
    for file in (state.root / "dag_run").glob("*.parquet"):
        file.write_bytes(b"this was a table once")
    before = state.fingerprint()

    result = bfm("runs", "list")
    checked = bfm("state", "check", "--output", "json")

    assert result.code == 2
    assert "dag_run" in result.error
    assert checked.code == 1
    assert [one["table"] for one in checked.document if one["outcome"] == "wrong"] == ["dag_run"]
    assert bfm("backfill", "list").code == 0, "what is whole can still be read"
    assert state.fingerprint() == before


def test_a_corrupt_log_is_named(bfm: Bfm, state: FilledState) -> None:
    (state.root / "backfill" / "_delta_log" / "00000000000000000000.json").write_text("{nonsense\n")

    result = bfm("backfill", "list")

    assert result.code == 2
    assert "backfill" in result.error


def test_a_table_that_is_gone_is_named(bfm: Bfm, state: FilledState) -> None:
    import shutil

    shutil.rmtree(state.root / "task_log")

    checked = bfm("state", "check", "--output", "json")

    assert checked.code == 1
    assert [one["table"] for one in checked.document if one["outcome"] == "wrong"] == ["task_log"]


def test_an_ambiguous_beginning_lists_what_begins_so(bfm: Bfm, state: FilledState) -> None:
    state.backfill("abc1", {})
    state.backfill("abc2", {})

    result = bfm("backfill", "cancel", "abc")

    assert result.code == 2
    assert "abc1" in result.error
    assert "abc2" in result.error
    assert state.store.unanswered() == []


def test_a_wrong_id_offers_the_nearest(bfm: Bfm, state: FilledState) -> None:
    state.backfill("abc123def456", {})

    result = bfm("backfill", "show", "abc123dfe456")

    assert (result.code, "did you mean 'abc123def456'" in result.error) == (3, True)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (("backfil", "list"), "backfill"),
        (("backfill", "lst"), "list"),
        (("backfill", "list", "--limt", "3"), "--limit"),
        (("backfill", "list", "--limit", "many"), "'--limit'"),
        (("--output", "xml", "dags", "list"), "xml"),
        (("tasks", "logs", "flights"), "RUN"),
        (("--conf", "absent.yaml", "dags", "list"), "absent.yaml"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(bfm: Bfm, args: tuple[str, ...], shown: str) -> None:
    result = bfm(*args)

    assert result.code == 2
    assert shown in result.error


def test_a_traceback_is_only_for_those_who_ask(bfm: Bfm) -> None:
    assert "Traceback" not in bfm("backfill", "list").err
    assert "Traceback" in bfm("--debug", "backfill", "list").err
    assert "Traceback" in bfm("backfill", "list", "--debug").err
