"""DAG files are executed in processes of their own; whatever one does, we get all its DAGs or one clear error."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest
from bundle_folder import BundleFolder

from backfill_manager.dags.loading.import_failure import FailedFile
from backfill_manager.dags.loading.loader import content_hash, load_file, parse
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.settings import BundleSettings, LimitSettings

GOOD = """
from backfill_manager import dag, sql, task

@dag(schedule="@daily", start_date="2013-01-01")
def flights():
    @task
    def clean(ctx): ...
    clean() >> sql("count", "SELECT 1")
"""


def only_failure(bundle: BundleFolder, import_timeout: float = 30) -> FailedFile:
    scan = bundle.scan(import_timeout=import_timeout)
    assert scan.parsed == ()
    (failure,) = scan.failed
    assert "\n" not in failure.message
    return failure


def test_a_folder_of_dag_files_becomes_their_definitions(bundle: BundleFolder) -> None:
    bundle.write("flights.py", GOOD)
    bundle.write_dag("more/two.py", "first", "second")
    scan = bundle.scan()
    assert scan.failed == ()
    assert {p.file: [d.dag_id for d in p.dags] for p in scan.parsed} == {
        "flights.py": ["flights"],
        "more/two.py": ["first", "second"],
    }
    spec = scan.parsed[0].dags[0]
    assert (spec.file, spec.schedule, [t.task_id for t in spec.in_order]) == (
        "flights.py",
        "@daily",
        ["clean", "count"],
    )


def test_files_that_can_make_no_dag_cost_no_process(bundle: BundleFolder) -> None:
    explosive = "import backfill_manager  # no dag here\nraise SystemExit"
    bundle.write("_helper.py", explosive)
    bundle.write(".hidden/x.py", explosive)
    bundle.write("__pycache__/x.py", explosive)
    bundle.write("plain.py", "raise SystemExit")
    bundle.write("venv/pyvenv.cfg", "")
    bundle.write("venv/lib/x.py", explosive)
    bundle.write("table/_delta_log/0.json", "{}")
    bundle.write("table/x.py", explosive)
    scan = bundle.scan()
    assert (scan.parsed, scan.failed, list(scan.content.files)) == ((), (), ["_helper.py", "plain.py"])


def test_a_syntax_error_is_told_with_its_line(bundle: BundleFolder) -> None:
    bundle.write("f.py", "from backfill_manager import dag\n\ndef x(:\n")
    failure = only_failure(bundle)
    assert (failure.file, failure.line) == ("f.py", 3)
    assert failure.message == "SyntaxError: invalid syntax"
    assert 'File "f.py", line 3' in failure.traceback


def test_an_exception_is_told_with_the_line_of_the_dag_file_and_its_own_traceback(bundle: BundleFolder) -> None:
    bundle.write("f.py", "from backfill_manager import dag\ndef broken():\n    return {}['key']\n\nbroken()\n")
    failure = only_failure(bundle)
    assert (failure.line, failure.message) == (3, "KeyError: 'key'")
    assert failure.traceback.startswith('Traceback (most recent call last):\n  File "f.py", line 5, in <module>')
    assert "bundle_imports" not in failure.traceback


def test_an_error_in_a_helper_module_names_the_import_and_the_helper(bundle: BundleFolder) -> None:
    bundle.write("helpers.py", "\n\n1 / 0\n")
    bundle.write("f.py", "from backfill_manager import dag\nimport helpers\n")
    failure = only_failure(bundle)
    assert (failure.line, failure.message) == (2, "ZeroDivisionError: division by zero (helpers.py, line 3)")


def test_a_mistake_in_a_dag_is_told_with_the_line_that_says_it(bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace("@task\n", "@task(retrys=1)\n"))
    failure = only_failure(bundle)
    assert failure.line == 6
    assert failure.message == "DAG 'flights', task 'clean' has no setting 'retrys'; did you mean 'retries'?"


def test_a_schedule_that_is_none_is_told_with_file_and_line(bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace("@daily", "61 * * * *"))
    failure = only_failure(bundle)
    assert failure.line == 4
    assert failure.message.startswith("DAG 'flights': ")
    assert "61 * * * *" in failure.message


def test_a_cycle_is_told(bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace('clean() >> sql("count", "SELECT 1")', "a = clean(); a >> sql('b', 'x') >> a"))
    assert only_failure(bundle).message.startswith("DAG 'flights' has a cycle: ")


def test_one_bad_dag_takes_the_others_of_its_file_along_but_not_those_of_other_files(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "good")
    bundle.write("b.py", GOOD + "\n@dag\ndef empty(): ...\n")
    scan = bundle.scan()
    assert [p.file for p in scan.parsed] == ["a.py"]
    assert [(f.file, f.line, f.message) for f in scan.failed] == [("b.py", 10, "DAG 'empty' has no task")]


def test_an_id_that_one_file_makes_twice_is_told(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "same", "same")
    assert only_failure(bundle).message == "DAG 'same' is made twice in this file; give one of them another dag_id"


@pytest.mark.parametrize(
    ("top", "told"),
    [
        ("import sys; sys.exit(3)", "the file ended the process (SystemExit: 3) instead of making its DAGs"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("import os; os._exit(7)", "the process that read the file ended with exit code 7 before its DAGs were made"),
        ("import os; os.kill(os.getpid(), 9)", "the process that read the file was killed by signal 9"),
        ("import os; os.closerange(3, 100); raise ValueError", "the process that read the file ended with exit code"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_a_file_that_ends_its_process_is_an_error_and_no_more(bundle: BundleFolder, top: str, told: str) -> None:
    bundle.write_dag("f.py", "d", top=top)
    assert only_failure(bundle).message.startswith(told)


def test_a_file_that_crashes_python_is_told_with_the_line_where_it_did(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="\nimport ctypes\nctypes.string_at(0)")
    failure = only_failure(bundle)
    assert (failure.line, failure.message) == (4, "the file crashed Python: Segmentation fault")


def test_a_file_that_hangs_is_ended_and_told_with_the_line_where_it_hung(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="import threading\nthreading.Event().wait()")
    failure = only_failure(bundle, import_timeout=0.5)
    assert failure.line == 3
    assert failure.message == "took longer than 0.5 seconds to be read (import_timeout of its bundle)"


def test_what_a_file_prints_however_much_goes_nowhere(bundle: BundleFolder, capfd: pytest.CaptureFixture[str]) -> None:
    noise = (
        "import os, sys\nprint('{}' * 2_000_000)\nprint('x' * 2_000_000, file=sys.stderr)\nos.write(1, b'\\xff' * 99)"
    )
    bundle.write_dag("f.py", "d", top=noise)
    scan = bundle.scan()
    assert [p.file for p in scan.parsed] == ["f.py"]
    assert capfd.readouterr() == ("", "")


def test_threads_and_processes_that_a_file_starts_end_with_it(bundle: BundleFolder, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    child = (
        f"import fcntl, sys, threading; file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('locked', flush=True); threading.Event().wait()"
    )
    top = (
        "import subprocess, sys, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "assert child.stdout.readline() == b'locked\\n'\n"
    )
    bundle.write_dag("f.py", "d", top=top)
    assert [p.file for p in bundle.scan().parsed] == ["f.py"]
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # comes back when the child is gone


def test_a_file_reads_nothing_from_standard_input_and_finds_no_neighbour_of_the_current_folder(
    bundle: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    bundle.write_dag("f.py", "d", top="import sys\nassert sys.stdin.read() == ''\nimport neighbour")
    assert only_failure(bundle).message == "ModuleNotFoundError: No module named 'neighbour'"


def test_a_file_that_starts_spark_when_it_is_read_cannot_reach_the_managers_jvm(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "x")
    bundle.write_dag("f.py", "d", top="import os\nassert not [name for name in os.environ if 'GATEWAY' in name]")
    assert bundle.scan().failed == ()


def test_a_dag_imported_from_another_file_belongs_to_that_file_alone(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    bundle.write_dag("b.py", "b", top="import a")
    scan = bundle.scan()
    assert {p.file: ([d.dag_id for d in p.dags], p.imported) for p in scan.parsed} == {
        "a.py": (["a"], ()),
        "b.py": (["b"], ("a.py",)),
    }


def test_a_dag_that_a_factory_of_a_helper_makes_belongs_to_the_file_that_called_it(bundle: BundleFolder) -> None:
    factory = (
        "from backfill_manager import dag, sql\n"
        "def make(name):\n    @dag(name)\n    def d():\n        sql('s', 'q.sql')\n"
    )
    bundle.write("lib/_factory.py", factory)
    bundle.write("teams/q.sql", "SELECT 1")
    bundle.write("teams/f.py", "# a dag of backfill_manager\nfrom lib._factory import make\nmake('one')\nmake('two')\n")
    scan = bundle.scan()
    assert scan.failed == ()
    assert [(p.file, [d.dag_id for d in p.dags]) for p in scan.parsed] == [("teams/f.py", ["one", "two"])]


def test_limits_of_the_settings_hold_for_dags_that_say_nothing(bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD + "\n@dag(max_active_runs=3)\ndef own():\n    sql('s', 'SELECT 1')\n")
    scan = bundle.scan(limits=LimitSettings(max_active_runs=5, max_active_tasks=6))
    assert [(d.dag_id, d.max_active_runs, d.max_active_tasks) for d in scan.parsed[0].dags] == [
        ("flights", 5, 6),
        ("own", 3, 6),
    ]


@pytest.mark.parametrize("file", ["my-dag.py", "2024/load.v2.py", "über.py", "with space.py"])
def test_a_file_may_have_a_name_that_is_none_in_python(bundle: BundleFolder, file: str) -> None:
    bundle.write_dag(file, "d")
    scan = bundle.scan()
    assert (scan.failed, [p.file for p in scan.parsed]) == ((), [file])


def test_a_named_pipe_that_looks_like_a_dag_file_is_passed_by(bundle: BundleFolder) -> None:
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


def test_the_content_hash_is_told_without_parsing_and_changes_with_the_files(bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d")
    settings = BundleSettings(name="b", path=str(bundle.root))
    before = content_hash(settings, snapshots=bundle.snapshots)
    assert before == bundle.scan().content_hash
    bundle.write("query.sql", "SELECT 1")
    assert content_hash(settings, snapshots=bundle.snapshots) != before
    settings = BundleSettings(name="b", path=str(bundle.root / "nothing"))
    assert content_hash(settings, snapshots=bundle.snapshots) is None


def test_an_answer_that_is_none_is_an_error(bundle: BundleFolder) -> None:
    """A file may write to every descriptor it finds, the pipe included."""
    top = "import os\nfor fd in range(3, 50):\n    try: os.write(fd, b'garbage')\n    except OSError: pass"
    bundle.write_dag("f.py", "d", top=top)
    assert isinstance(parse(bundle.root, "f.py", 30, {}), FailedFile)


# -- load_file --------------------------------------------------------------------------------------------------------


def test_one_file_is_loaded_in_this_process_for_tests_of_ones_own(bundle: BundleFolder) -> None:
    bundle.write("helpers.py", "def cleaned(ctx):\n    return ctx * 2\n")
    path = bundle.write(
        "f.py", GOOD.replace("def clean(ctx): ...", "def clean(ctx): import helpers; return helpers.cleaned(ctx)")
    )
    (made,) = load_file(path)
    assert (made.functions["clean"](21), made.spec.file) == (42, "f.py")
    bundle.write("helpers.py", "def cleaned(ctx):\n    return ctx * 3\n")
    (again,) = load_file(path)
    assert (again.functions["clean"](21), made.functions["clean"](21)) == (63, 42)


def test_a_file_that_cannot_be_loaded_is_told_with_file_and_line(bundle: BundleFolder) -> None:
    path = bundle.write("f.py", GOOD + "\nraise SystemExit(4)\n")
    with pytest.raises(InvalidDag, match=r"^f\.py, line 10: the file ended the process"):
        load_file(path)
    with pytest.raises(InvalidInput, match="is not a file"):
        load_file(bundle.root / "none.py")
