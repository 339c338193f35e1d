"""DAG files are executed in processes of their own; whatever one does, we get all its DAGs or one clear error."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.loaded_files import load, only_failure, only_file

from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile, load_file
from backfill_manager.errors import InvalidDag, InvalidInput

AT_DEF = int(
    sys.version_info < (3, 11)
)  # of a decorated function, Python 3.10 tells the line of `def`, below its decorator
GOOD = """
from backfill_manager import dag, sql, task

@dag(schedule="@daily", start_date="2013-01-01")
def flights():
    @task
    def clean(ctx): ...
    clean() >> sql("count", "SELECT 1")
"""


def test_a_folder_of_dag_files_becomes_their_definitions(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("flights.py", GOOD)
    bundle.write_dag("more/two.py", "first", "second")
    first, second = load(loader, bundle)
    assert isinstance(first, ParsedFile) and isinstance(second, ParsedFile)
    assert (first.file, first.dag_ids, second.file, second.dag_ids) == (
        "flights.py", ("flights",), "more/two.py", ("first", "second"),
    )  # fmt: skip
    (spec,) = first.dags
    assert (spec.file, spec.schedule, [t.task_id for t in spec.in_order]) == (
        "flights.py",
        "@daily",
        ["clean", "count"],
    )
    assert first.definitions == (spec.to_json(),)


def test_a_syntax_error_is_reported_with_its_line(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", "from backfill_manager import dag\n\ndef x(:\n")
    failure = only_failure(loader, bundle)
    assert (failure.file, failure.line) == ("f.py", 3)
    assert failure.message == "SyntaxError: invalid syntax"
    assert 'File "f.py", line 3' in failure.traceback


def test_an_exception_is_reported_with_the_line_of_the_dag_file_and_its_own_traceback(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write("f.py", "from backfill_manager import dag\ndef broken():\n    return {}['key']\n\nbroken()\n")
    failure = only_failure(loader, bundle)
    assert (failure.line, failure.message) == (3, "KeyError: 'key'")
    assert failure.traceback.startswith('Traceback (most recent call last):\n  File "f.py", line 5, in <module>')
    assert "bundle_path" not in failure.traceback


def test_an_error_in_a_helper_module_names_the_import_and_the_helper(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("helpers.py", "\n\n1 / 0\n")
    bundle.write("f.py", "from backfill_manager import dag\nimport helpers\n")
    failure = only_failure(loader, bundle)
    assert (failure.line, failure.message) == (2, "ZeroDivisionError: division by zero (helpers.py, line 3)")


def test_a_mistake_in_a_dag_is_reported_with_the_line_that_says_it(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace("@task\n", "@task(retrys=1)\n"))
    failure = only_failure(loader, bundle)
    assert failure.line == 6 + AT_DEF
    assert failure.message == "DAG 'flights', task 'clean' has no setting 'retrys'; did you mean 'retries'?"


def test_a_schedule_that_is_none_is_reported_with_file_and_line(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace("@daily", "61 * * * *"))
    failure = only_failure(loader, bundle)
    assert failure.line == 4 + AT_DEF
    assert failure.message.startswith("DAG 'flights': ")
    assert "61 * * * *" in failure.message


def test_a_cycle_is_reported(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace('clean() >> sql("count", "SELECT 1")', "a = clean(); a >> sql('b', 'x') >> a"))
    assert only_failure(loader, bundle).message.startswith("DAG 'flights' has a cycle: ")


def test_one_bad_dag_takes_the_others_of_its_file_along_but_not_those_of_other_files(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write_dag("a.py", "good")
    bundle.write("b.py", GOOD + "\n@dag\ndef empty(): ...\n")
    good, bad = load(loader, bundle)
    assert isinstance(good, ParsedFile) and good.file == "a.py"
    assert isinstance(bad, FailedFile)
    assert (bad.file, bad.line, bad.message) == ("b.py", 10 + AT_DEF, "DAG 'empty' has no task")


def test_an_id_that_one_file_makes_twice_is_reported(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write(
        "f.py",
        "from backfill_manager import dag, sql\nfor _ in range(2):\n    @dag('same')\n    def d(): sql('s', 'SELECT 1')\n",
    )
    bundle.write(
        "g.py",
        (bundle.root / "f.py").read_text().replace("for _ in range(2):", "if True:")
        + "\n@dag\ndef same():\n  sql('s', 'x')",
    )
    in_loop, below = (one for one in load(loader, bundle) if isinstance(one, FailedFile))
    first, second = 3 + AT_DEF, 6 + AT_DEF
    same = f"DAG 'same' is made twice in this file, first on line {first}; give one of them another dag_id"
    assert [(one.file, one.line, one.message) for one in (in_loop, below)] == [
        ("f.py", first, same), ("g.py", second, same)
    ]  # fmt: skip


def test_a_dag_imported_from_another_file_belongs_to_that_file_alone(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    bundle.write_dag("b.py", "b", top="import a")
    results = load(loader, bundle)
    assert [(p.dag_ids, p.imported, p.read) for p in results if isinstance(p, ParsedFile)] == [
        (("a",), (), ()),
        (("b",), ("a.py",), ("a.py",)),
    ]


def test_a_dag_that_a_factory_of_a_helper_makes_belongs_to_the_file_that_called_it(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    factory = (
        "from backfill_manager import dag, sql\n"
        "def make(name):\n    @dag(name)\n    def d():\n        sql('s', 'q.sql')\n"
    )
    bundle.write("lib/_factory.py", factory)
    bundle.write("teams/q.sql", "SELECT 1")
    bundle.write("teams/f.py", "# a dag of backfill_manager\nfrom lib._factory import make\nmake('one')\nmake('two')\n")
    parsed = only_file(loader, bundle)
    assert (parsed.file, parsed.dag_ids) == ("teams/f.py", ("one", "two"))
    assert parsed.read == ("lib/_factory.py", "teams/q.sql")


def test_dags_that_threads_of_a_file_make_belong_to_the_file(loader: DagLoader, bundle: BundleFolder) -> None:
    made_by_pool = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from backfill_manager import dag, sql\n"
        "def make(name):\n    @dag(name)\n    def d():\n        sql('s', 'q.sql')\n"
        "with ThreadPoolExecutor(4) as pool:\n    list(pool.map(make, ['one', 'two', 'three']))\n"
    )
    bundle.write("teams/q.sql", "SELECT 1")
    bundle.write("teams/f.py", made_by_pool)
    bundle.write(
        "teams/g.py", "# a dag of backfill_manager\nfrom teams import f\n" + made_by_pool.replace("two", "other")
    )
    first, second = load(loader, bundle)
    assert isinstance(first, ParsedFile), first
    assert isinstance(second, ParsedFile), second
    assert sorted(first.dag_ids) == ["one", "three", "two"]
    assert sorted(second.dag_ids) == ["one", "other", "three"]


# The first is what a shell of Windows writes with `>`.
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_a_file_in_another_encoding_is_an_import_error_and_not_overlooked(
    encoding: str, loader: DagLoader, bundle: BundleFolder
) -> None:
    (bundle.root / "f.py").write_bytes((GOOD + "\nname = 'café'\n").encode(encoding))
    message = only_failure(loader, bundle).message
    kind = "ValueError" if sys.version_info < (3, 11) and encoding != "latin-1" else "SyntaxError"
    assert message.startswith(f"{kind}: ") and message.endswith("; save the file as UTF-8")


def test_limits_of_the_settings_hold_for_dags_that_set_none(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD + "\n@dag(max_active_runs=3)\ndef own():\n    sql('s', 'SELECT 1')\n")
    (parsed,) = loader.load(bundle.root, ["f.py"], limits={"max_active_runs": 5, "max_active_tasks": 6})
    assert isinstance(parsed, ParsedFile)
    assert [(d.dag_id, d.max_active_runs, d.max_active_tasks) for d in parsed.dags] == [
        ("flights", 5, 6),
        ("own", 3, 6),
    ]


@pytest.mark.parametrize("file", ["my-dag.py", "2024/load.v2.py", "über.py", "with space.py"])
def test_a_file_may_have_a_name_that_is_none_in_python(loader: DagLoader, bundle: BundleFolder, file: str) -> None:
    bundle.write_dag(file, "d")
    assert only_file(loader, bundle).file == file


def test_a_file_whose_name_is_no_text_is_reported_and_affects_no_other(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("good.py", "d")
    bundle.write_dag("bad.py", "e").rename(bundle.root / os.fsdecode(b"caf\xe9.py"))
    failure, other = load(loader, bundle)
    assert isinstance(failure, FailedFile)
    assert str(failure) == r"caf\udce9.py: its name is not UTF-8; give it another one"
    assert isinstance(other, ParsedFile) and other.dag_ids == ("d",)


@pytest.mark.parametrize("setting", ["description='\\ud800'", "params={'a': ['\\udcff']}", "tags=['\\udfff']"])
def test_half_a_character_that_no_table_could_hold_is_reported_with_its_line(
    loader: DagLoader, bundle: BundleFolder, setting: str
) -> None:
    bundle.write("f.py", GOOD.replace('schedule="@daily"', setting))
    failure = only_failure(loader, bundle)
    assert failure.message.startswith("DAG 'flights' holds half a character (a lone surrogate), in ...")
    assert failure.line == 4 + AT_DEF and failure.message.isascii()


def test_what_a_terminal_would_not_show_or_would_obey_is_written_out(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top=r"raise ValueError('é \x1b[31m \ud800 \0 end')")
    failure = only_failure(loader, bundle)
    assert failure.message == r"ValueError: é \x1b[31m \ud800 \x00 end"
    assert failure.traceback.encode()


def test_a_named_pipe_that_looks_like_a_dag_file_is_ignored(bundle: BundleFolder) -> None:
    os.mkfifo(bundle.root / "dag.py")
    assert bundle.scan().content.files == {}


def test_a_folder_that_is_not_there_is_one_error_of_the_bundle(bundle: BundleFolder) -> None:
    bundle.root.rmdir()
    scan = bundle.scan()
    assert not scan.readable
    assert str(scan.failed[0]) == f".: bundle 'b': the folder {bundle.root} does not exist"


def test_snapshots_that_cannot_be_written_are_one_error_of_the_bundle(bundle: BundleFolder) -> None:
    bundle.snapshots.write_text("a file in the way")
    scan = bundle.scan()
    assert not scan.readable
    assert f"the snapshots' folder {bundle.snapshots} can't be written" in scan.failed[0].message


def test_secrets_in_an_import_error_are_hidden_by_their_names(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="raise ValueError('can not connect with password=abc, token_count=5')")
    failure = only_failure(loader, bundle)
    assert failure.message == "ValueError: can not connect with password=***, token_count=5"
    assert "abc" not in failure.traceback and "password=***" in failure.traceback


def test_an_error_of_any_length_is_kept_as_a_short_one(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="raise ValueError('long ' * 100_000)")
    failure = only_failure(loader, bundle)
    assert failure.message.startswith("ValueError: long long") and len(failure.message) <= 2000
    assert 0 < len(failure.traceback) <= 50_000


def test_the_bundles_files_and_folders_that_a_file_looks_at_are_reported(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write("lib/names.py", "from pathlib import Path\nNAMES = (Path(__file__).parent / 'names.txt').read_text()")
    bundle.write("lib/names.txt", "x")
    bundle.write("tables/a.yaml", "a: 1")
    bundle.write("queries/q.sql", "SELECT 1")
    bundle.write("untouched.yaml", "")
    top = (
        "import os, glob\nfrom pathlib import Path\nfrom lib.names import NAMES\nhere = Path(__file__).parent\n"
        "for one in sorted(here.glob('tables/*.yaml')): one.read_text()\n"
        "os.chdir(here); os.listdir('queries')\n"
        "try: open(here / 'later' / 'more.yaml')\nexcept OSError: pass\n"
        "open('/etc/hostname' if os.path.exists('/etc/hostname') else os.devnull).close()"
    )
    text = "@dag('d')\ndef d():\n    sql('s', 'queries/q.sql')\n"
    bundle.write("f.py", f"from backfill_manager import dag, sql\n{top}\n{text}")
    bundle.write_dag("plain.py", "p")
    looking, plain = load(loader, bundle)
    assert isinstance(looking, ParsedFile) and isinstance(plain, ParsedFile)
    assert looking.imported == ("lib/names.py",)
    assert looking.read == ("lib/names.py", "lib/names.txt", "queries/q.sql", "tables/a.yaml")
    assert set(looking.listed) == {"", "queries", "tables"}
    assert (plain.imported, plain.read, plain.listed) == ((), (), ())


def test_a_file_that_asks_whether_there_is_another_depends_on_the_answer(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write("flags/on.txt", "")
    top = (
        "import os\nhere = os.path.dirname(os.path.abspath(__file__))\n"
        "on, off, is_folder = (os.path.exists(os.path.join(here, 'flags', name)) for name in ('on.txt', 'off.txt', '.'))\n"
    )
    text = "if on and not off and is_folder:\n    @dag('d')\n    def d():\n        sql('s', 'SELECT 1')\n"
    bundle.write("f.py", f"from backfill_manager import dag, sql\n{top}\n{text}")
    [asking] = load(loader, bundle)
    assert isinstance(asking, ParsedFile)
    assert (asking.dag_ids, asking.read, asking.listed) == (("d",), ("flags/on.txt",), ("flags",))


def test_results_come_in_the_order_of_the_files(loader: DagLoader, bundle: BundleFolder) -> None:
    for number in range(200):
        bundle.write_dag(f"f{number}.py", f"d{number}", top="raise ValueError" if number % 40 == 7 else "")
    files = [f"f{number}.py" for number in reversed(range(200))]
    results = loader.load(bundle.root, files)
    assert [one.file for one in results] == files
    failed = [one.file for one in results if isinstance(one, FailedFile)]
    assert failed == ["f167.py", "f127.py", "f87.py", "f47.py", "f7.py"]
    assert {one.dag_ids for one in results if isinstance(one, ParsedFile)} == {
        (f"d{number}",) for number in range(200) if number % 40 != 7
    }


def test_files_of_a_folder_that_is_gone_are_reported_and_those_of_another_are_read(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path
) -> None:
    bundle.write_dag("f.py", "d")
    (failure,) = loader.load(tmp_path / "gone", ["f.py"])
    assert str(failure) == f"f.py: {tmp_path / 'gone'} can't be read: No such file or directory"
    assert only_file(loader, bundle).dag_ids == ("d",)


def test_one_file_is_loaded_in_this_process_for_tests_of_ones_own(bundle: BundleFolder) -> None:
    bundle.write("helpers.py", "def cleaned(ctx):\n    return ctx * 2\n")
    path = bundle.write(
        "f.py", GOOD.replace("def clean(ctx): ...", "def clean(ctx): import helpers; return helpers.cleaned(ctx)")
    )
    (made,) = load_file(path)
    assert (made.functions["clean"](21), made.spec.file) == (42, "f.py")
    bundle.write("helpers.py", "def cleaned(ctx):\n    return ctx * 3\n")
    (again,) = load_file(path)
    assert (again.functions["clean"](21), made.functions["clean"](21)) == (63, 63)  # it imports only now


def test_a_file_of_another_folder_gets_the_modules_of_that_one(bundle: BundleFolder, tmp_path: Path) -> None:
    top = "import helpers\n" + GOOD.replace("def clean(ctx): ...", "def clean(ctx): return helpers.VALUE")
    path = bundle.write("f.py", top)
    bundle.write("helpers.py", "VALUE = 1")
    (tmp_path / "other" / "team").mkdir(parents=True)
    (tmp_path / "other" / "team" / "f.py").write_text(top)
    (tmp_path / "other" / "helpers.py").write_text("VALUE = 2")
    (first,) = load_file(path)
    (second,) = load_file(tmp_path / "other" / "team" / "f.py", root=tmp_path / "other")
    assert (first.functions["clean"](None), second.functions["clean"](None)) == (1, 2)
    assert sys.modules["helpers"].VALUE == 2 and str(bundle.root) not in sys.path


def test_modules_of_the_folder_that_the_caller_has_imported_itself_stay(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write("own_helpers.py", "class Value: ...")
    path = bundle.write(
        "own_dags.py", GOOD.replace("def clean(ctx): ...", "def clean(ctx): return own_helpers.Value()")
    )
    path.write_text("import own_helpers\n" + path.read_text())
    monkeypatch.syspath_prepend(str(bundle.root))
    own = importlib.import_module("own_dags")
    (made,) = load_file(path)
    assert isinstance(made.functions["clean"](None), own.own_helpers.Value)
    assert sys.modules["own_dags"] is own


def test_a_file_that_cannot_be_loaded_is_reported_with_file_and_line(bundle: BundleFolder) -> None:
    path = bundle.write("f.py", GOOD + "\nraise SystemExit(4)\n")
    with pytest.raises(InvalidDag, match=r"^f\.py, line 10: the file ended the process"):
        load_file(path)
    with pytest.raises(InvalidInput, match="is not a file"):
        load_file(bundle.root / "none.py")
