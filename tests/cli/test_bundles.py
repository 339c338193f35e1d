"""Bundles and versions on the command line: what there is, what parsing would change, what differs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.parsers.local_parse import parse_bundle
from backfill_manager.dags.yaml import json_schema
from backfill_manager.errors import NotFound
from backfill_manager.humanise import parse_outcome
from backfill_manager.model.records import DagRow, DagVersion, Record, Request, Response
from backfill_manager.schemas.errors import error_columns
from backfill_manager.settings import BundleSettings
from backfill_manager.store.base import Condition, matching

CONF = "bundles:\n  - {name: mine, path: ../dags}\n"
ONE_TASK = (
    "from backfill_manager import dag, sql, task\nimport helper\n@dag(SETTINGS)\ndef one():\n    sql('s', 'SELECT N')\n"
)


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "manager.yaml").write_text(CONF)
    folder = tmp_path / "dags"
    folder.mkdir()
    write(folder)
    return folder


def write(folder: Path, settings: str = "", n: int = 1, helper: str = "X = 1\n") -> None:
    (folder / "one.py").write_text(ONE_TASK.replace("SETTINGS", settings).replace("SELECT N", f"SELECT {n}"))
    (folder / "helper.py").write_text(helper)


class Parsing:
    """The manager's hand: what is parsed of `dags` is committed."""

    def __init__(self, state: FilledState, folder: Path) -> None:
        self._state, self._folder, self._shelf = state, folder, DagCatalog()

    def __call__(self) -> None:
        rows: list[Record] = []
        put = self._shelf.put
        self._shelf.put = lambda row: (rows.append(row), put(row))[1]  # type: ignore[method-assign]
        settings = BundleSettings(name="mine", path="dags")
        submission = parse_bundle(settings, snapshots=self._folder.parent / "snapshots")
        self._shelf.submit(submission, self._state.clock.at)
        self._state.put(*rows)


def test_a_dry_run_of_parsing_needs_no_manager_and_no_state(bfm: Bfm, dags: Path) -> None:
    result = bfm("bundles", "parse", "mine", "--dry-run", "--output", "json")
    assert result.code == 0
    assert result.document["changes"] == [{"dag_id": "one", "file": "one.py", "change": "new", "version": 1}]
    assert (result.document["dry_run"], result.document["errors"]) == (True, [])
    table = bfm("bundles", "parse", "mine", "-n")
    assert "one" in table.out and "Nothing was stored." in table.out
    assert not (dags.parent / "state").exists()


def test_a_pool_that_does_not_exist_is_reported_and_is_no_error(bfm: Bfm, dags: Path) -> None:
    (dags / "slow.py").write_text(
        "from backfill_manager import dag, sql\n@dag\ndef slow():\n    sql('s', 'SELECT 1', pool='slwo')\n"
    )
    result = bfm("bundles", "parse", "mine", "--dry-run")
    assert result.code == 0
    assert "There is no pool 'slwo', which task s of DAG slow names: it fails when it starts." in result.err
    document = bfm("bundles", "parse", "mine", "--dry-run", "--output", "json").document
    assert document["unknown_pools"] == [{"dag_id": "slow", "pool": "slwo", "tasks": ["s"]}]


def test_files_of_airflow_are_named_as_no_other_command_mentions_them(bfm: Bfm, dags: Path) -> None:
    (dags / "etl").mkdir()
    (dags / "etl" / "old.py").write_text("import pendulum\nfrom airflow import DAG\nwith DAG('old'):\n    pass\n")
    (dags / "etl" / "task_flow.py").write_text(
        "if True:\n    import airflow.sdk\n\n@airflow.sdk.dag\ndef d():\n    pass\n"
    )
    (dags / "_dag_helper.py").write_text("from airflow.models import Variable  # private to the DAGs beside it\n")
    (dags / "notes.py").write_text("# Our DAGs of airflow import nothing from airflow\nfrom airflows import dag\n")
    result = bfm("bundles", "parse", "mine", "--dry-run")
    assert result.code == 0
    assert (
        "(1 DAG in 1 file); of Airflow, and not read: etl/old.py, etl/task_flow.py. Nothing was stored." in result.out
    )
    assert result.err == "bfm import airflow FILE translates a file of Airflow into a draft.\n"
    only_one = bfm("bundles", "parse", "mine", "etl/old.py", "-n", "--output", "json").document
    assert only_one["airflow_files"] == ["etl/old.py"]
    (dags / "etl" / "old.py").write_text(
        (dags / "one.py").read_text().replace("def one", "def old") + "import airflow\n"
    )
    ours_too = bfm("bundles", "parse", "mine", "etl/old.py", "-n", "--output", "json").document
    assert (ours_too["airflow_files"], [one["file"] for one in ours_too["errors"]]) == ([], ["etl/old.py"])


def test_a_dry_run_says_how_many_dags_and_files_it_looked_at(bfm: Bfm, dags: Path, state: FilledState) -> None:
    (dags / "two.py").write_text((dags / "one.py").read_text().replace("def one", "def two"))
    new = bfm("bundles", "parse", "mine", "-n")
    assert "bundle mine: would be: 2 new (2 DAGs in 2 files). Nothing was stored.\n" in new.out
    Parsing(state, dags)()
    again = bfm("bundles", "parse", "mine", "-n")
    assert again.out == "bundle mine: nothing would change (2 DAGs in 2 files). Nothing was stored.\n"


def test_parsing_after_a_file_was_removed_names_the_dags_that_stay_active(
    bfm: Bfm, dags: Path, state: FilledState
) -> None:
    (dags / "two.py").write_text((dags / "one.py").read_text().replace("def one", "def two"))
    Parsing(state, dags)()
    (dags / "two.py").unlink()
    left = bfm("bundles", "parse", "mine", "-n")
    assert left.out.startswith(
        "bundle mine: nothing would change (1 DAG in 1 file); no longer defined, but still active: two."
    )
    assert left.err.startswith("--deactivate-removed deactivates them at once")
    assert bfm("bundles", "parse", "mine", "-n", "--output", "json").document["still_active"] == ["two"]
    taken = bfm("bundles", "parse", "mine", "-n", "--deactivate-removed")
    assert "would be: 1 deactivated" in taken.out and (taken.err, "still active" in taken.out) == ("", False)


@pytest.mark.parametrize(
    ("result", "dry_run", "text"),
    [
        ({"dags": 4, "files": 3}, False, "bundle x: nothing has changed (4 DAGs in 3 files)"),
        ({"dags": 4, "files": 3}, True, "bundle x: nothing would change (4 DAGs in 3 files)"),
        ({"dags": 4}, False, "bundle x: nothing has changed (4 DAGs)"),
        ({"dags": 1, "files": 1, "changes": [{"change": "new"}]}, True, "bundle x: would be: 1 new (1 DAG in 1 file)"),
    ],
)
def test_what_parsing_has_changed_is_reported_with_what_was_looked_at(
    result: dict[str, Any], dry_run: bool, text: str
) -> None:
    assert parse_outcome({"bundle": "x", "changes": [], "errors": [], **result}, dry_run=dry_run) == text


def test_a_file_that_can_not_be_read_is_reported_with_its_line_and_by_the_exit_code(bfm: Bfm, dags: Path) -> None:
    (dags / "broken.py").write_text("from backfill_manager import dag\n\n1 / 0\n")
    result = bfm("bundles", "parse", "mine", "broken.py", "--dry-run", "--output", "json")
    assert result.code == 1
    (error,) = result.document["errors"]
    assert (error["file"], error["line"], error["message"]) == ("broken.py", 3, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (("mien",), 3, "'mine'"),
        (("mine", "nowhere.py"), 2, "has no file or folder 'nowhere.py'"),
        (
            ("mine", "../etc"),
            2,
            "must be a path within the bundle, such as daily/flights.py, or empty for all of it, not '../etc'",
        ),
    ],
)
def test_a_bundle_or_path_that_is_not_there_is_reported_in_one_line(
    bfm: Bfm, dags: Path, words: tuple[str, ...], code: int, shown: str
) -> None:
    result = bfm("bundles", "parse", *words, "--dry-run")
    assert (result.code, shown in result.error) == (code, True)


def test_parsing_for_good_is_asked_of_the_manager(bfm: Bfm, dags: Path, state: FilledState) -> None:
    result = bfm("bundles", "parse", "mine", "sub", "--deactivate-removed")
    assert result.code == 0 and "submitted" in result.out and "No manager is running" in result.err
    (request,) = state.store.read(Request)
    assert request.kind == "bundle.parse"
    assert '"deactivate_removed": true' in request.payload_json and '"subpath": "sub"' in request.payload_json


def test_the_managers_answer_is_reported_and_files_that_failed_make_the_exit_code(
    bfm: Bfm, dags: Path, state: FilledState
) -> None:
    state.leads()

    def answers() -> None:
        (request,) = state.store.unanswered()
        document = (
            '{"bundle": "mine", "commit_id": null, "dags": 1, "files": 3, "changes": [], '
            '"errors": [{"file": "x.py", "line": 7, "message": "no"}]}'
        )
        state.put(
            Response(
                request_id=request.request_id, kind=request.kind, outcome="accepted", object_id="mine", message="done",
                payload_json=document, answered_at=state.clock.at, term=state.leader.term,
            )
        )  # fmt: skip

    state.clock.meanwhile.append(answers)
    result = bfm("bundles", "parse", "mine")
    assert result.code == 1
    assert "x.py" in result.out
    assert "bundle mine: nothing has changed (1 DAG in 3 files); 1 file could not be read\n" in result.out


@pytest.mark.parametrize("words", [("parse", "another"), ("deactivate", "another", "daily")])
def test_a_bundle_that_the_manager_does_not_have_is_no_such_thing(
    bfm: Bfm, dags: Path, state: FilledState, words: tuple[str, ...]
) -> None:
    state.leads()

    def answers() -> None:
        (request,) = state.store.unanswered()
        state.put(
            Response(
                request_id=request.request_id, kind=request.kind, outcome="refused", object_id=None, payload_json=None,
                message="", answered_at=state.clock.at, term=state.leader.term,
                **error_columns(NotFound("bundle", "another", ["other"])),
            )
        )  # fmt: skip

    state.clock.meanwhile.append(answers)
    result = bfm("bundles", *words)
    assert (result.code, result.error) == (3, "There is no bundle 'another'; did you mean 'other'?")


def test_bundles_are_listed_with_what_came_of_them(bfm: Bfm, dags: Path, state: FilledState) -> None:
    before = bfm("bundles", "list", "--output", "json").document
    assert [(one["name"], one["path"], one["dags"], one["refreshed_at"]) for one in before] == [
        ("mine", str(dags), 0, None)
    ]
    (dags / "broken.py").write_text("from backfill_manager import dag\n1 / 0\n")
    Parsing(state, dags)()
    (after,) = bfm("bundles", "list", "--output", "json").document
    assert (after["dags"], after["errors"], after["parser"]) == (1, 1, "standard")


def test_a_bundle_is_shown_with_how_it_is_read_and_when_it_was(bfm: Bfm, dags: Path, state: FilledState) -> None:
    before = bfm("bundles", "show", "mine", "--output", "json").document
    assert (before["settings"]["max_file_parse_interval"], before["parsed_at"]) == (None, None)
    (dags / "glacier").mkdir()
    (dags / "manifest.yaml").write_text(
        "version: v1beta\nmax_file_parse_interval: 5 minutes\n"
        "directories: [{path: glacier, max_file_parse_interval: 1 day}]\n"
    )
    Parsing(state, dags)()
    after = bfm("bundles", "show", "mine", "--output", "json").document
    assert after["settings"]["max_file_parse_interval"] == 300
    assert after["settings"]["directories"][0]["max_file_parse_interval"] == 86400
    assert after["parsed_at"] is not None
    shown = bfm("bundles", "show", "mine").out
    assert "import memory            1 GB" in shown
    assert "max file parse interval  300 s" in shown and '"path": "glacier", "max_file_parse_interval": 86400' in shown
    wrong = bfm("bundles", "show", "mien")
    assert (wrong.code, wrong.error) == (3, "There is no bundle 'mien'; did you mean 'mine'?")


def test_a_bundle_that_is_configured_no_more_is_listed_as_such(bfm: Bfm, dags: Path, state: FilledState) -> None:
    Parsing(state, dags)()
    (dags.parent / "conf" / "manager.yaml").write_text(CONF.replace("mine", "other"))
    header, _, *rows = bfm("bundles", "list").out.splitlines()
    column = header.index("configured")
    assert [(row.split()[0], row[column:].split()[0]) for row in rows] == [("mine", "no"), ("other", "yes")]
    assert "configured      no" in bfm("bundles", "show", "mine").out


def test_config_check_names_what_is_wrong_with_parsers_of_packages_and_their_options(
    bfm: Bfm, dags: Path, sheet_parser: Path
) -> None:
    conf = dags.parent / "conf" / "manager.yaml"
    conf.write_text(
        "bundles:\n"
        "  - {name: mine, path: dags, parser: sheets, options: {look_every: 5}}\n"  # the rest may be in its manifest
        "  - {name: other, path: dags, parser: standard}\n"
    )
    assert bfm("config", "check").code == 0
    conf.write_text(
        "bundles:\n"
        "  - name: mine\n"
        "    path: dags\n"
        "    parser: sheets\n"
        "    options:\n"
        "      delimitr: ';'\n"
        "  - {name: other, path: dags, parser: not_installed}\n"
    )
    result = bfm("config", "check")
    assert result.code == 2
    assert "line 6: bundles[0].options.delimitr is not a setting; did you mean 'delimiter'?" in result.err
    assert "line 7: bundles[1].parser: There is no bundle parser 'not_installed'" in result.err


def test_config_check_refuses_an_address_of_messages_with_which_no_manager_starts(bfm: Bfm, dags: Path) -> None:
    conf = dags.parent / "conf" / "manager.yaml"
    conf.write_text("bundles: []\nnotifications: [{name: ops, url: 'https://example.org/x'}]\n")
    result = bfm("config", "check")
    assert result.code == 2
    assert "notifications, ops: Apprise does not take this address (https://...)" in result.err
    conf.write_text(
        "bundles: []\nnotifications: [{name: ops, url: 'jsons://example.org/x'}, {name: mail, url_env: ELSEWHERE}]\n"
    )
    assert bfm("config", "check").code == 0, "what is in the environment of the manager's machine is not known here"
    assert bfm("config", "show").code == 0  # other commands go on


def test_config_check_refuses_a_transport_of_lineage_with_which_no_manager_starts(bfm: Bfm, dags: Path) -> None:
    conf = dags.parent / "conf" / "manager.yaml"
    conf.write_text("bundles: []\nopenlineage: {transport: {type: http}}\n")
    result = bfm("config", "check")
    assert result.code == 2 and "openlineage.transport: " in result.err
    conf.write_text("bundles: []\nopenlineage: {transport: {type: http, url: 'http://127.0.0.1:9'}}\n")
    assert bfm("config", "check").code == 0


def test_parsing_a_bundle_of_sheets_here_goes_through_its_parser(bfm: Bfm, dags: Path, sheet_parser: Path) -> None:
    for file in dags.glob("*.py"):
        file.write_text("raise SystemExit('nobody executes this: dag backfill_manager')")
    (dags / "manifest.yaml").write_text("version: v1beta\nparser: sheets\noptions: {start_date: 2024-01-01}\n")
    (dags / "a.sheet").write_text("dag,task,after,runs\ntotals,load,,SELECT 1\n")
    (dags / "b.sheet").write_text("dag,task,after,runs\nbad,load,up,SELECT 1\n")
    result = bfm("bundles", "parse", "mine", "--dry-run", "--output", "json")
    assert [change["dag_id"] for change in result.document["changes"]] == ["totals"]
    assert [(error["file"], error["line"]) for error in result.document["errors"]] == [("b.sheet", 2)]
    assert result.code == 1


def test_versions_are_listed_and_what_differs_is_shown(bfm: Bfm, dags: Path, state: FilledState) -> None:
    parse = Parsing(state, dags)
    parse()
    write(dags, "schedule='@daily', tags=['x']", 2, "X = 2\n")
    parse()
    listed = bfm("dags", "versions", "one", "--output", "json").document
    assert [(one["version"], one["is_current"]) for one in listed] == [(2, True), (1, False)]

    matches = bfm("dags", "versions", "one", "--diff", "1", "2", "--output", "json").document
    assert {"name": "schedule", "before": None, "after": "@daily"} in matches["settings"]
    assert matches["tasks"] == [
        {"task_id": "s", "change": "changed", "settings": [{"name": "sql", "before": "SELECT 1", "after": "SELECT 2"}]}
    ]
    assert [file["file"] for file in matches["files"]] == ["helper.py", "one.py"]
    text = bfm("dags", "versions", "one", "--diff", "1", "2").out
    assert "-X = 1" in text and "+X = 2" in text and 'schedule: null -> "@daily"' in text

    (second,) = state.store.read(DagVersion, matching(dag_id="one", version=2))
    state.put(second.evolve(python="/cache/environments/0123/bin/python"))
    text = bfm("dags", "versions", "one", "--diff", "1", "2").out
    assert 'python: null -> "/cache/environments/0123/bin/python"' in text

    wrong = bfm("dags", "versions", "one", "--diff", "1", "9")
    assert (wrong.code, wrong.error) == (2, "DAG 'one' has no version 9; it has 1 to 2")
    assert bfm("dags", "versions", "two").code == 3


@pytest.mark.parametrize(("typed", "files"), [("./one.py", 1), ("./sub/", 1), ("sub//./b.py", 1), (".", 2), ("./", 2)])
def test_a_path_may_be_typed_as_a_shell_completes_it(bfm: Bfm, dags: Path, typed: str, files: int) -> None:
    (dags / "sub").mkdir()
    (dags / "sub" / "b.py").write_text((dags / "one.py").read_text().replace("def one", "def two"))
    document = bfm("bundles", "parse", "mine", typed, "--dry-run", "--output", "json").document
    assert (document["files"], document["errors"]) == (files, [])


def test_a_dag_or_a_path_can_be_deactivated(bfm: Bfm, dags: Path, state: FilledState) -> None:
    Parsing(state, dags)()
    assert bfm("dags", "deactivate", "one").code == 0
    assert bfm("bundles", "deactivate", "mine", "sub").code == 0
    kinds = {request.kind: request.payload_json for request in state.store.read(Request)}
    assert kinds == {
        "dag.deactivate": '{"dag_id": "one"}', "bundle.deactivate": '{"bundle": "mine", "subpath": "sub"}',
    }  # fmt: skip


def test_a_dag_that_a_person_deactivated_is_reported_with_who_and_what_brings_it_back(
    bfm: Bfm, dags: Path, state: FilledState
) -> None:
    Parsing(state, dags)()
    (row,) = state.store.read(DagRow, [Condition("dag_id", "=", "one")])
    state.put(row.evolve(is_active=False, deactivated_by="ada"))
    back = "parsing the bundle 'mine' on request brings it back, as long as one.py defines it"
    why = f"ada deactivated it at 2024-05-15T12:00:00Z; {back}"
    assert why in bfm("dags", "show", "one").out
    result = bfm("dags", "pause", "one")
    assert (result.code, " ".join(result.error.split())) == (
        4,
        f"DAG 'one' is not active: {why}: `bfm bundles parse mine`.",
    )


def test_the_schema_that_editors_use_is_printed(bfm: Bfm) -> None:
    result = bfm("dags", "schema")
    assert (result.code, result.err) == (0, "")
    assert result.document == json_schema.schema()


PLUGIN = """
from backfill_manager.dags.parsers.parser import BundleParser

class OnlyNightly(BundleParser):
    name = "nightly"

    def next_look(self, last):
        return None
"""


def wheel(folder: Path) -> Path:
    """A package that offers a parser, as its author would publish it."""
    path = folder / "nightly_parser-1.0-py3-none-any.whl"
    about = "nightly_parser-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nightly_parser.py", PLUGIN)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: nightly-parser\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            f"{about}/entry_points.txt", "[backfill_manager.bundle_parsers]\nnightly = nightly_parser:OnlyNightly\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return path


def test_a_parser_from_an_installed_package_is_known_by_its_name(dags: Path, tmp_path: Path) -> None:
    (tmp_path / "conf" / "manager.yaml").write_text(CONF.replace("path: ../dags", "path: ../dags, parser: nightly"))
    bfm = [sys.executable, "-m", "backfill_manager", "bundles", "parse", "mine", "--dry-run"]
    without = subprocess.run(bfm, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "There is no bundle parser 'nightly': it must be 'standard', 'single_pass' or 'event'" in without.stderr
    assert "is its package installed where the manager runs?" in without.stderr

    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel(tmp_path))], check=True, capture_output=True)
    withit = subprocess.run(
        bfm,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site)},
    )
    assert (withit.returncode, withit.stderr) == (0, "")
    assert "one" in withit.stdout
