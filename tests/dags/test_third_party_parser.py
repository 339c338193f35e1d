"""A third-party parser (tests/data/sheet_parser) with a format that is not Python: what it is given, what it
decides, and the errors of its mistakes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bundle_folder import BundleFolder
from support.own_process import OwnProcess

from backfill_manager.clock import format_instant
from backfill_manager.dags.bundles.files import PYTHON_AND_YAML
from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.dags.importing.loader import DagLoader
from backfill_manager.dags.parsers.bundle_state import BundleState
from backfill_manager.dags.parsers.local_parse import parse_bundle, parse_dry_run
from backfill_manager.dags.parsers.parser import BundleParser, check_submission
from backfill_manager.dags.parsers.registry import parser_for
from backfill_manager.errors import InvalidConfig, InvalidDag, InvalidInput
from backfill_manager.model.records import DagVersion
from backfill_manager.settings import BundleSettings
from backfill_manager.testing import FakeClock

SHEET = """\
dag,task,after,runs
totals,load,,SELECT 1
totals,check,load,SELECT 2
other,only,,SELECT 3
"""
MANIFEST = "version: v1beta\nparser: sheets\noptions:\n  start_date: 2024-01-01\n"


class Reading:
    """A bundle of sheets that is read by its own parser; `restart` is another manager over the same state."""

    def __init__(self, folder: BundleFolder, loader: DagLoader, **settings: Any) -> None:
        self.folder, self.loader, self.clock, self.catalog = folder, loader, FakeClock(), DagCatalog()
        self.store, self.settings = self.catalog, folder.settings(**settings)
        self.restart()

    def restart(self) -> None:
        self.bundle = BundleState(self.settings, snapshots=self.folder.snapshots)
        self.parser: BundleParser = parser_for(self.bundle, self.loader, self.store, self.clock)

    def scan(self) -> int:
        """How many submissions came of it, if it was due."""
        due = self.parser.due_in()
        result = list(self.parser.scan_results()) if due is not None and due <= 0 else []
        for submission in result:
            self.store.submit(submission, self.clock.now())
        return len(result)

    @property
    def active(self) -> list[str]:
        return sorted(row.dag_id for row in self.catalog.dags.values() if row.is_active)

    @property
    def errors(self) -> dict[str, str]:
        return {p.file: f"{p.line}: {p.message}" for p in self.catalog.problems.values() if p.is_current}


Read = Callable[..., Reading]


@pytest.fixture
def sheets(bundle: BundleFolder, sheet_parser: Path) -> BundleFolder:
    bundle.write("manifest.yaml", MANIFEST)
    bundle.write("daily/totals.sheet", SHEET)
    return bundle


@pytest.fixture
def loader(sheet_parser: Path) -> Iterator[DagLoader]:
    """Its workers find the package."""
    with DagLoader(workers=1) as loader:
        yield loader


@pytest.fixture
def read(sheets: BundleFolder, loader: DagLoader) -> Read:
    return lambda **settings: Reading(sheets, loader, **settings)


# -- files become DAGs ------------------------------------------------------------------------------------------------


def test_files_of_its_format_become_dags_and_no_other_file_is_executed(
    sheets: BundleFolder, read: Read, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    sheets.write("looks_like.py", f"# dag backfill_manager\nimport pathlib; pathlib.Path({str(touched)!r}).touch()")
    it = read()
    assert it.scan() == 1
    assert (it.active, it.errors) == (["other", "totals"], {})
    spec, version = it.store.read("totals")
    assert [(task.task_id, task.upstream, task.sql) for task in spec.tasks] == [
        ("load", (), "SELECT 1"),
        ("check", ("load",), "SELECT 2"),
    ]
    assert (version.file, format_instant(spec.start_date)) == ("daily/totals.sheet", "2024-01-01T00:00:00Z")
    assert (Path(version.snapshot) / version.file).read_text() == SHEET
    it.store.submit(it.parser.parse(), it.clock.now())  # asked for, as by `bfm bundles parse`
    assert not touched.exists()


def test_an_edit_of_a_sheet_makes_a_version_of_the_dags_that_differ(sheets: BundleFolder, read: Read) -> None:
    it = read()
    it.scan()
    sheets.write("daily/totals.sheet", SHEET.replace("SELECT 2", "SELECT 22"))
    sheets.write("new.sheet", "dag,task,after,runs\nadded,t,,SELECT 1\n")
    it.clock.advance(seconds=30)
    it.scan()
    assert {row.dag_id: row.current_version for row in it.catalog.dags.values()} == {
        "totals": 2,
        "other": 2,
        "added": 1,
    }


def test_a_bundle_in_an_archive_or_a_git_repository_brings_the_files_of_the_format(
    sheets: BundleFolder, loader: DagLoader, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "sheets.zip", "w") as archive:
        for path in sorted(sheets.root.rglob("*.*")):
            archive.write(path, path.relative_to(sheets.root))
    git = ["git", "-c", "user.name=ada", "-c", "user.email=ada@example.org", "-C", str(sheets.root)]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "sheets"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    for settings in (
        BundleSettings(name="zip", path=str(tmp_path / "sheets.zip")),
        BundleSettings(name="git", git=str(sheets.root)),
    ):
        result = parse_bundle(settings, snapshots=tmp_path / "kept", loader=loader)
        assert [(one.file, one.dag_ids) for one in result.parsed] == [("daily/totals.sheet", ("totals", "other"))]


def test_a_large_file_of_the_format_does_not_seem_to_be_gone(sheets: BundleFolder, read: Read) -> None:
    sheets.write("daily/totals.sheet", SHEET + "\n" * (2 << 20))
    it = read()
    it.scan()
    assert (it.active, it.errors) == (["other", "totals"], {})


def test_a_python_task_of_a_sheet_runs_the_function_of_its_version(
    sheets: BundleFolder, read: Read, tmp_path: Path
) -> None:
    sheets.write("helpers.py", "def clean(ctx):\n    return 'first'\n")
    sheets.write("p.sheet", "dag,task,after,runs\np,clean,,python helpers:clean\n")
    it = read()
    it.scan()
    sheets.write("helpers.py", "def clean(ctx):\n    return 'second'\n")
    it.clock.advance(seconds=30)
    it.scan()
    first, second = it.catalog.versions["p", 1], it.catalog.versions["p", 2]
    assert [cleaned(version) for version in (first, second)] == ["first", "second"]
    assert it.catalog.versions["totals", 1].reader_json is None  # SQL tasks are all in the definition
    gone = dataclasses.replace(
        second, version=3, reader_json=json.dumps({"reader": "not_here.parsers:P", "options": {}})
    )
    with pytest.raises(InvalidDag, match=r"not_here.parsers:P can't be imported.*is its package installed here"):
        cleaned(gone)


def cleaned(version: DagVersion) -> Any:
    """What the task `clean` of the version returns, in a process of its own."""
    program = """
        import sys
        sys.path[:] = path
        from backfill_manager.dags.importing.task_code import load_dag
        result = load_dag(version, None).functions["clean"](None)
    """
    with OwnProcess() as process:
        return process.run(program, version=version, path=sys.path)


# -- what is wrong in a file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("bad,one,,SELECT 1\nbad,two,three,SELECT 2\n", "3: task 'two' comes after 'three', which is not above it"),
        ("bad,one,,SELECT 1\nbad,two\n", "3: a row must have 4 cells"),
        ("ok,one,,SELECT 1\nbad,o n e,,SELECT 1\n", "3: DAG 'bad', task 'o n e': task_id must be"),
        ("bad,one,,python helpers:cleen\n", "2: helpers:cleen names no function of helpers; did you mean 'clean'?"),
        ("bad,one,,python no_such:f\n", "2: no_such:f names the module no_such, which is not in the bundle"),
        ("totals,one,,SELECT 1\n", "None: DAG 'totals' is already made by daily/totals.sheet"),
    ],
)
def test_a_mistake_in_a_sheet_is_an_import_error_with_its_line_and_the_others_go_on(
    rows: str, message: str, sheets: BundleFolder, read: Read
) -> None:
    sheets.write("helpers.py", "def clean(ctx): ...\n")
    sheets.write("zbad.sheet", f"dag,task,after,runs\n{rows}")
    it = read()
    it.scan()
    assert it.active == ["other", "totals"]
    assert list(it.errors) == ["zbad.sheet"] and it.errors["zbad.sheet"].startswith(message)


def test_a_sheet_that_breaks_keeps_its_last_good_dags(sheets: BundleFolder, read: Read) -> None:
    it = read()
    it.scan()
    (sheets.root / "daily/totals.sheet").write_bytes(SHEET.encode() + b"x,y,,\xff\n")
    it.clock.advance(seconds=30)
    it.scan()
    assert it.active == ["other", "totals"]
    assert it.errors == {"daily/totals.sheet": "5: not UTF-8 text: there is a byte 0xff; save the file as UTF-8"}


# -- its own keys -----------------------------------------------------------------------------------------------------


def test_its_options_come_from_manifest_and_configuration_which_wins(sheets: BundleFolder, read: Read) -> None:
    sheets.write("manifest.yaml", MANIFEST + "  delimiter: ';'\n  look_every: 5\n")
    sheets.write("daily/totals.sheet", SHEET.replace(",", "|"))
    it = read(options={"delimiter": "|"})
    assert it.scan() == 1
    assert (it.parser.options.delimiter, it.parser.options.look_every, it.active) == ("|", 5.0, ["other", "totals"])
    row = it.store.bundle("b")
    assert row is not None and row.settings_json is not None
    assert json.loads(row.settings_json)["options"] == {"delimiter": "|", "start_date": "2024-01-01", "look_every": 5.0}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (
            MANIFEST + "  delimitr: ';'\n",
            "manifest.yaml, line 5: options.delimitr is not a setting; did you mean 'delimiter'?",
        ),
        (
            MANIFEST + "  delimiter: ';;'\n",
            "manifest.yaml, line 5: options.delimiter is wrong: string must have at most 1",
        ),
        (MANIFEST.replace("2024-01-01", "soon"), "manifest.yaml, line 4: options.start_date"),
        ("version: v1beta\nparser: sheets\n", "manifest.yaml, line 1: options.start_date is missing"),
        ("version: v1beta\nparser: sheets\noptions: 7\n", "manifest.yaml, line 3: options must be keys and values"),
        ("version: v1beta\nparser: sheetz\n", "did you mean 'sheets'?"),
        (
            "version: v1beta\nparser: standard\noptions: {x: 1}\n",
            "manifest.yaml, line 1: must leave out options: the parser 'standard' has none",
        ),
    ],
)
def test_a_wrong_option_is_reported_with_its_line(
    manifest: str, message: str, sheets: BundleFolder, read: Read
) -> None:
    sheets.write("manifest.yaml", manifest)
    with pytest.raises(InvalidConfig) as error:
        read()
    assert message in str(error.value)


def test_a_wrong_option_of_the_configuration_names_its_bundle(read: Read) -> None:
    with pytest.raises(
        InvalidConfig, match=r"^bundle 'b': options.delimitr is not a setting; did you mean 'delimiter'\?$"
    ):
        read(options={"delimitr": ";"})


def test_a_manifest_that_becomes_wrong_stops_nothing(sheets: BundleFolder, read: Read) -> None:
    it = read()
    it.scan()
    sheets.write("manifest.yaml", MANIFEST + "  delimitr: ';'\n")
    it.clock.advance(seconds=30)
    it.scan()
    assert it.active == ["other", "totals"]
    assert "line 5: options.delimitr is not a setting" in it.errors["manifest.yaml"]
    sheets.write("manifest.yaml", MANIFEST)
    it.clock.advance(seconds=30)
    it.scan()
    assert it.errors == {}


def test_the_spelling_of_aip_85_brings_options_too(sheets: BundleFolder, read: Read) -> None:
    sheets.write(
        "manifest.yaml",
        "version: v1beta\nbundle_parser: sheets\nbundle_config:\n  - start_date: 2024-02-01\n    delimiter: ','\n",
    )
    it = read()
    it.scan()
    assert format_instant(it.store.read("totals")[0].start_date) == "2024-02-01T00:00:00Z"


# -- what it is given --------------------------------------------------------------------------------------------------


def test_it_knows_when_it_last_parsed_and_what_has_changed_since_also_after_a_restart(
    sheets: BundleFolder, read: Read
) -> None:
    it = read()
    assert it.parser.last_parse is None
    it.scan()
    first = it.clock.now()
    assert it.parser.last_parse == first
    it.clock.advance(seconds=60)
    it.restart()
    assert it.parser.last_parse == first
    assert it.scan() == 0  # nothing has changed: its own rule, which needs both
    sheets.write("new.sheet", "dag,task,after,runs\nadded,t,,SELECT 1\n")
    sheets.write("daily/totals.sheet", SHEET.replace("SELECT 3", "SELECT 33"))
    it.restart()
    changes = it.parser.changes(it.parser.bundle.fetch())
    assert (changes.added, changes.edited, changes.removed) == (("new.sheet",), ("daily/totals.sheet",), ())
    it.clock.advance(seconds=60)
    assert it.scan() == 1
    assert it.active == ["added", "other", "totals"] and it.parser.last_parse == it.clock.now()


def test_a_scan_that_fails_is_repeated_whatever_the_parser_says(sheets: BundleFolder, read: Read) -> None:
    sheets.write("manifest.yaml", MANIFEST + "  look_every: 86400\n")
    it = read()
    sheets.root.rename(sheets.root.with_name("away"))
    assert it.scan() == 1 and "does not exist" in it.errors["."]
    sheets.root.with_name("away").rename(sheets.root)
    it.clock.advance(seconds=30)
    it.scan()
    assert (it.active, it.errors) == (["other", "totals"], {})


# -- on demand --------------------------------------------------------------------------------------------------------


def test_parsing_on_demand_and_its_dry_run_go_through_the_parser(sheets: BundleFolder, sheet_parser: Path) -> None:
    sheets.write("broken.sheet", "dag,task\n")
    bundle = BundleState(sheets.settings(), snapshots=sheets.snapshots)
    result = parse_dry_run(bundle, "", [], FakeClock())
    assert [(change.dag_id, change.change) for change in result.changes] == [("totals", "new"), ("other", "new")]
    assert [(error.file, error.line) for error in result.errors] == [("broken.sheet", 1)]
    assert parse_dry_run(bundle, "daily", [], FakeClock()).errors == ()
    with pytest.raises(InvalidInput, match="has no file or folder 'nope'"):
        parse_dry_run(bundle, "nope", [], FakeClock())


def test_a_bundle_that_can_not_be_had_for_a_test_of_a_dag_is_an_error_of_it_alone(tmp_path: Path) -> None:
    for settings, message in (
        (BundleSettings(name="gone", path=str(tmp_path / "gone")), "does not exist"),
        (
            BundleSettings(name="lost", path=str(tmp_path), parser="not_installed"),
            "There is no bundle parser 'not_installed'",
        ),
    ):
        result = parse_bundle(settings, snapshots=tmp_path / "kept")
        assert not result.readable and message in result.failed[0].message


# -- parsers that misbehave -------------------------------------------------------------------------------------------

MODULE = """
import threading
from backfill_manager import dag, sql
from backfill_manager.dags.parsers import BundleParser

class Odd(BundleParser):
    name = "odd"
    files = ("*.odd",)

    def next_look(self, last):
        return self.clock.now()

    @classmethod
    def read(cls, file, options):
        {read}
"""


@pytest.fixture
def odd(
    bundle: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, str]]]:
    """The errors of a bundle with one file, whose parser's `read` has this body."""
    site = tmp_path / "odd_site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    loaders = []

    def errors(body: str, **settings: Any) -> dict[str, str]:
        module = f"odd_{tmp_path.name}"
        (site / f"{module}.py").write_text(MODULE.format(read=body))
        loader = DagLoader(workers=1)
        loaders.append(loader)
        parser_class = __import__(module).Odd
        bundle.write("f.odd", "one\ntwo\nthree\n")
        catalog = DagCatalog()
        store = catalog
        parser = parser_class(
            BundleState(bundle.settings(**settings), snapshots=bundle.snapshots), loader, store, FakeClock()
        )
        for submission in parser.scan_results():
            store.submit(submission, parser.clock.now())
        return {p.file: f"{p.line}: {p.message}" for p in catalog.problems.values() if p.is_current}

    yield errors
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('sql')", "None: KeyError: 'sql'"),
        ("file.at(2).__enter__(); 1 / 0", "None: ZeroDivisionError: division by zero"),
        ("\n        with file.at(2): 1 / 0", "2: ZeroDivisionError: division by zero"),
        ("return 'totals'", "None: odd_"),
        ("return [{'dag_id': 'x'}]", "None: odd_"),
        ("yield 7", "None: odd_"),
        ("return file.as_usual()", "None: is neither Python nor *.dag.yaml"),
        ("raise SystemExit(3)", "None: the file ended the process (SystemExit: 3)"),
        ("import os; os._exit(4)", "None: the process that read the file ended with exit code 4"),
        ("bytearray(1 << 30)", "None: took more than 64 MB of memory to be read (import_memory of its bundle)"),
        ("\n        with file.at(3): threading.Event().wait()", "None: took longer than 1 seconds to be read"),
    ],
)
def test_what_a_parser_does_wrong_with_a_file_is_an_error_of_the_file(
    body: str, message: str, odd: Callable[..., dict[str, str]]
) -> None:
    errors = odd(body, import_timeout=1, import_memory=64)
    assert list(errors) == ["f.odd"] and errors["f.odd"].startswith(message), errors


def test_a_read_that_yields_its_dags_makes_them_once(odd: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    assert odd("yield dag('one')(lambda: sql('s', 'SELECT 1'))") == {}


def test_a_submission_that_the_manager_could_not_take_in_is_refused(sheets: BundleFolder, read: Read) -> None:
    it = read()
    good = it.parser.parse()
    check_submission(good, it.parser)
    (one,) = good.parsed
    for bad, message in (
        ("totals", "gave a str instead of a Submission"),
        (dataclasses.replace(good, bundle="mine"), "another bundle, 'mine'"),
        (dataclasses.replace(good, parsed=(dataclasses.replace(one, definitions=("{}", "{}")),)), "can't be stored"),
        (dataclasses.replace(good, parsed=(dataclasses.replace(one, dag_ids=("a", "b")),)), "are not those of its"),
        (dataclasses.replace(good, parsed=(dataclasses.replace(one, file="x"),)), "no such file in the bundle"),
    ):
        with pytest.raises(InvalidInput, match=message):
            check_submission(bad, it.parser)


def test_the_usual_patterns_have_no_name_of_their_own_in_paths() -> None:
    """Caches of git repositories and archives that were made before there were patterns are still found."""
    assert PYTHON_AND_YAML.key == ""
