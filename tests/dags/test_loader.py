"""DAG files are executed in processes of their own; whatever one does, we get all its DAGs or one clear error."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.bundles.files import read_bundle
from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, LoaderClosed, ParsedFile, load_file
from backfill_manager.dags.importing.parse_file import ParseJob
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.processes.channel import Channel

AT_DEF = int(sys.version_info < (3, 11))  # Python 3.10 has the line of `def` where a decorator is called
GOOD = """
from backfill_manager import dag, sql, task

@dag(schedule="@daily", start_date="2013-01-01")
def flights():
    @task
    def clean(ctx): ...
    clean() >> sql("count", "SELECT 1")
"""

# Of a decorated function, Python 3.10 tells the line of `def`; later ones that of the decorator, which stands just above it.
BELOW = 1 if sys.version_info < (3, 11) else 0

# For a file that never ends: time enough for its process, which stands behind all others for a core, to come to that line.
SHORT_S = 2.0

Results = list[ParsedFile | FailedFile]


def process_ids(loader: DagLoader) -> tuple[int, ...]:
    """Of the fork servers that are alive."""
    return tuple(one.pid for servers in loader._servers for one in list(servers._servers.values()) if one.is_alive)


@pytest.fixture(scope="module")
def shared() -> Iterator[DagLoader]:
    """One loader for most of these tests: the next one would notice what a file does to its fork server."""
    with DagLoader(workers=2) as loader:
        yield loader


@pytest.fixture
def loader(shared: DagLoader) -> Iterator[DagLoader]:
    yield shared
    assert children_of(process_ids(shared)) == []


def children_of(pids: tuple[int, ...]) -> list[int]:
    """On Linux; empty elsewhere."""
    lists = [Path(f"/proc/{pid}/task/{pid}/children") for pid in pids]
    return [int(child) for path in lists if path.exists() for child in path.read_text().split()]


def load(loader: DagLoader, bundle: BundleFolder, **settings: float) -> Results:
    return loader.load(bundle.root, read_bundle(bundle.root).candidates, **settings)  # type: ignore[arg-type]


def only_file(loader: DagLoader, bundle: BundleFolder) -> ParsedFile:
    (result,) = load(loader, bundle)
    assert isinstance(result, ParsedFile), result
    return result


def only_failure(loader: DagLoader, bundle: BundleFolder, **settings: float) -> FailedFile:
    (failure,) = load(loader, bundle, **settings)
    assert isinstance(failure, FailedFile)
    assert "\n" not in failure.message
    return failure


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
    assert failure.line == 6 + BELOW
    assert failure.message == "DAG 'flights', task 'clean' has no setting 'retrys'; did you mean 'retries'?"


def test_a_schedule_that_is_none_is_reported_with_file_and_line(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write("f.py", GOOD.replace("@daily", "61 * * * *"))
    failure = only_failure(loader, bundle)
    assert failure.line == 4 + BELOW
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
    assert (bad.file, bad.line, bad.message) == ("b.py", 10 + BELOW, "DAG 'empty' has no task")


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


@pytest.mark.parametrize(
    ("top", "message"),
    [
        ("import sys; sys.exit(3)", "the file ended the process (SystemExit: 3) instead of making its DAGs"),
        ("import sys; sys.exit()", "the file ended the process (SystemExit: 0) instead of making its DAGs"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Odd(Exception):\n    def __str__(self): return 5\nraise Odd", "Odd: <"),
        ("raise BaseException('odd')", "BaseException: odd"),
        ("import os; os._exit(7)", "the process that read the file ended with exit code 7 before its DAGs were made"),
        ("import os; os._exit(0)", "the process that read the file ended with exit code 0 before its DAGs were made"),
        ("import os; os.kill(os.getpid(), 9)", "the process that read the file was killed by signal 9"),
        ("import os; os.closerange(3, 100); raise ValueError", "the process that read the file ended with exit code"),
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_a_file_that_ends_its_process_is_an_error_and_no_more(
    loader: DagLoader, bundle: BundleFolder, top: str, message: str
) -> None:
    bundle.write_dag("f.py", "d", top=top)
    assert only_failure(loader, bundle).message.startswith(message)


def test_a_file_that_crashes_python_is_reported_with_the_line_where_it_did(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write_dag("f.py", "d", top="\nimport ctypes\nctypes.string_at(0)")
    failure = only_failure(loader, bundle)
    assert (failure.line, failure.message) == (4, "the file crashed Python: Segmentation fault")


def test_a_file_that_hangs_is_ended_and_reported_with_the_line_where_it_hung(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    bundle.write_dag("f.py", "d", top="import threading\nthreading.Event().wait()")
    failure = only_failure(loader, bundle, import_timeout=SHORT_S)
    assert failure.line == 3
    assert failure.message == "took longer than 2 seconds to be read (import_timeout of its bundle)"


def test_what_a_file_prints_however_much_goes_nowhere(
    loader: DagLoader, bundle: BundleFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    noise = (
        "import os, sys\nprint('{}' * 2_000_000)\nprint('x' * 2_000_000, file=sys.stderr)\nos.write(1, b'\\xff' * 99)"
    )
    bundle.write_dag("f.py", "d", top=noise)
    assert only_file(loader, bundle).dag_ids == ("d",)
    assert capfd.readouterr() == ("", "")


def test_threads_and_processes_that_a_file_starts_end_with_it(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path
) -> None:
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
    assert only_file(loader, bundle).dag_ids == ("d",)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # comes back when the child is gone


def test_a_file_reads_nothing_from_standard_input_and_finds_no_neighbour_of_the_current_folder(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    bundle.write_dag("f.py", "d", top="import sys\nassert sys.stdin.read() == ''\nimport neighbour")
    assert only_failure(loader, bundle).message == "ModuleNotFoundError: No module named 'neighbour'"


def test_a_file_that_starts_spark_when_it_is_read_cannot_reach_the_managers_jvm(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "x")
    bundle.write_dag("f.py", "d", top="import os\nassert not [name for name in os.environ if 'GATEWAY' in name]")
    with DagLoader(workers=1) as own:  # it starts with this environment
        assert only_file(own, bundle).dag_ids == ("d",)


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


def test_what_ends_a_thread_of_a_file_before_its_dags_are_made_is_an_import_error(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    thread = "import threading\nfrom backfill_manager import dag, sql\n\n@dag\ndef one():\n    sql('s', 'SELECT 1')\n\n"
    thread += "def make():\n    int('x')\n\nmaking = threading.Thread(target=make)\nmaking.start()\nmaking.join()\n"
    bundle.write("f.py", thread)
    failed = only_failure(loader, bundle)
    assert (failed.line, failed.message) == (9, "ValueError: invalid literal for int() with base 10: 'x'")


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


def test_what_a_file_writes_to_every_descriptor_it_finds_is_an_error_that_holds_nothing_of_it(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    top = "import os\nfor fd in range(3, 50):\n    try: os.write(fd, b'gar\\nbage')\n    except OSError: pass"
    bundle.write_dag("a.py", "a", top=top)
    bundle.write_dag("b.py", "b", top=top + "\nos._exit(0)")
    bundle.write_dag("c.py", "c", top=top + "\nimport ctypes; ctypes.string_at(0)")
    bundle.write_dag("d.py", "d")
    *failed, last = load(loader, bundle)
    assert all(isinstance(one, FailedFile) and "bage" not in one.message + one.traceback for one in failed)
    assert isinstance(failed[0], FailedFile)
    assert failed[0].message == "what its process answered can't be read; does it write to files it did not open?"
    assert isinstance(last, ParsedFile)


# -- what a file may do to its process, and to nobody else ------------------------------------------------------------


def test_a_file_that_hangs_in_c_is_ended_and_reported_with_its_line(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')")
    failure = only_failure(loader, bundle, import_timeout=SHORT_S)
    assert failure.line == 3
    assert failure.message == "took longer than 2 seconds to be read (import_timeout of its bundle)"
    assert 'File "f.py", line 3' in failure.traceback and "fork_server" not in failure.traceback


def test_a_file_that_hangs_and_stops_the_watchdog_is_ended_all_the_same(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    top = "import faulthandler, time\nfaulthandler.cancel_dump_traceback_later()\ntime.sleep(600)"
    bundle.write_dag("f.py", "d", top=top)
    failure = only_failure(loader, bundle, import_timeout=0.1)
    assert failure.message == "took longer than 0.1 seconds to be read (import_timeout of its bundle)"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process maps")
@pytest.mark.parametrize("eats", ["x = b'1' * (200 << 20)", "x = []\nwhile True: x.append(bytearray(1 << 16))"])
def test_a_file_that_takes_too_much_memory_is_reported_with_its_limit(
    loader: DagLoader, bundle: BundleFolder, eats: str
) -> None:
    bundle.write_dag("f.py", "d", top=eats)
    bundle.write_dag("g.py", "e", top="x = b'1' * (20 << 20)")
    failure, other = load(loader, bundle, import_memory_mb=64)
    assert isinstance(failure, FailedFile) and isinstance(other, ParsedFile)
    assert failure.message == "took more than 64 MB of memory to be read (import_memory of its bundle)"
    assert failure.line == eats.count("\n") + 2


def test_what_a_file_prints_is_kept_nowhere_and_secrets_are_hidden(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_PASSWORD", "hunter-2")
    top = (
        "import os, sys\nfor out in (sys.stdout, sys.stderr): print('of ' 'mine ' * 999, file=out, flush=True)\n"
        "secret = os.environ.pop('WAREHOUSE_PASSWORD')\n"
    )
    with DagLoader(workers=1) as own:  # it starts with this environment
        for end in ("raise ValueError(f'{secret} is wrong')", "os._exit(3)", "import ctypes; ctypes.string_at(0)"):
            bundle.write_dag("f.py", "d", top=top + end)
            failure = only_failure(own, bundle)
            assert "hunter" not in str(failure) + failure.traceback
            assert "of mine" not in str(failure) + failure.traceback
            if end.startswith("raise"):
                assert failure.message == "ValueError: *** is wrong"
                assert "ValueError: *** is wrong" in failure.traceback


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


def test_a_process_that_leaves_the_session_of_its_file_ends_with_it_too(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path
) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux gives orphans back")
    lock = tmp_path / "lock"
    child = (
        f"import fcntl, os, threading; os.fork() and os._exit(0); os.setsid(); file = open({str(lock)!r}, 'w');"
        "fcntl.flock(file, fcntl.LOCK_EX); print('locked', flush=True); threading.Event().wait()"
    )
    top = (
        "import subprocess, sys\n"
        f"daemon = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE, start_new_session=True)\n"
        "assert daemon.stdout.readline() == b'locked\\n'\n"
    )
    bundle.write_dag("f.py", "d", top=top)
    assert only_file(loader, bundle).dag_ids == ("d",)
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # comes back when the daemon is gone


def test_a_file_that_forks_gives_one_answer(loader: DagLoader, bundle: BundleFolder) -> None:
    bundle.write_dag("f.py", "d", top="import os\nos.fork()\nos.fork()")
    assert only_file(loader, bundle).dag_ids == ("d",)


def test_a_file_that_closes_our_pipe_and_opens_its_own_gets_nothing_of_ours_into_it(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    top = f"import os\nos.closerange(3, 100)\nfiles = [open({str(mine)!r}, 'w') for _ in range(20)]"
    bundle.write_dag("f.py", "d", top=top)
    assert only_failure(loader, bundle).message.startswith("the process that read the file ended with exit code 1")
    assert mine.read_text() == ""


@pytest.mark.parametrize("kill", ["SIGKILL", "SIGSTOP"])
def test_a_file_that_kills_its_parent_costs_one_error_and_the_fork_server_is_replaced(
    bundle: BundleFolder, monkeypatch: pytest.MonkeyPatch, kill: str
) -> None:
    monkeypatch.setattr("backfill_manager.dags.importing.loader._GRACE_S", 0.5)
    monkeypatch.setattr("backfill_manager.processes.fork_server_client.STOP_TIMEOUT_S", 0.5)
    bundle.write_dag("a.py", "a")
    bundle.write_dag("b.py", "b", top=f"import os, signal, time\nos.kill(os.getppid(), signal.{kill})\ntime.sleep(600)")
    bundle.write_dag("c.py", "c")
    with DagLoader(workers=1) as own:
        (before,) = own.load(bundle.root, ["a.py"])
        old = process_ids(own)
        good, failed, after = load(own, bundle, import_timeout=SHORT_S)
        assert isinstance(before, ParsedFile) and isinstance(good, ParsedFile) and isinstance(after, ParsedFile)
        assert isinstance(failed, FailedFile)
        assert "kill its parent" in failed.message or "took longer than 2 seconds" in failed.message
        assert process_ids(own) != old


def test_a_fork_server_that_dies_while_it_has_nothing_to_do_costs_nothing(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    with DagLoader(workers=1) as own:
        only_file(own, bundle)
        (old,) = process_ids(own)
        os.kill(old, signal.SIGKILL)
        assert only_file(own, bundle).dag_ids == ("a",)


def test_what_a_file_changes_in_its_process_the_next_one_does_not_see(bundle: BundleFolder) -> None:
    changes = """
        import builtins, json, os, sys, backfill_manager
        os.environ["LEFT"] = "behind"
        os.chdir("/")
        builtins.left = json.left = backfill_manager.left = sys.modules["left"] = json
        json.dumps, os.getcwd = None, None
        sys.path.insert(0, "/left")
        import helpers
        helpers.left = 1
        raise ValueError("after all that")
    """
    reads_files = """
        import builtins, json, os, sys, backfill_manager, helpers
        assert "LEFT" not in os.environ and os.getcwd() != "/" and "/left" not in sys.path
        assert not [one for one in (builtins, json, backfill_manager, helpers) if hasattr(one, "left")]
        assert "left" not in sys.modules and json.dumps(1) == "1"
    """
    bundle.write("helpers.py", "")
    bundle.write("a.py", "# dag of backfill_manager" + changes.replace("\n        ", "\n"))
    bundle.write_dag("b.py", "b", top=reads_files.replace("\n        ", "\n"))
    with DagLoader(workers=1) as own:
        first, second = load(own, bundle)
    assert isinstance(first, FailedFile)
    assert isinstance(second, ParsedFile), second


# -- what a file reads ------------------------------------------------------------------------------------------------


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


# -- the loader and its fork servers ---------------------------------------------------------------------------------------


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


def test_fork_servers_do_not_grow_with_the_files_they_read(bundle: BundleFolder) -> None:
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    bundle.write_dag("f.py", "d", top="import decimal")
    with DagLoader(workers=1) as own:
        own.load(bundle.root, ["f.py"] * 50)
        before = own_memory_mb(own)
        own.load(bundle.root, ["f.py"] * 200)
        assert own_memory_mb(own) - before < 4


def own_memory_mb(loader: DagLoader) -> float:
    """Without the pages of files, which come and go as the machine has memory for them."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in process_ids(loader)]
    return sum(int(re.findall(r"RssAnon:\s+(\d+)", text)[0]) for text in texts) / 1024


def test_files_of_a_folder_that_is_gone_are_reported_and_those_of_another_are_read(
    loader: DagLoader, bundle: BundleFolder, tmp_path: Path
) -> None:
    bundle.write_dag("f.py", "d")
    (failure,) = loader.load(tmp_path / "gone", ["f.py"])
    assert str(failure) == f"f.py: {tmp_path / 'gone'} can't be read: No such file or directory"
    assert only_file(loader, bundle).dag_ids == ("d",)


def test_pandas_and_pyspark_are_there_before_the_files_that_need_them(loader: DagLoader, bundle: BundleFolder) -> None:
    top = (
        "import sys\nassert 'pandas' in sys.modules and 'pyspark.sql.functions' in sys.modules\nimport pandas, pyspark"
    )
    bundle.write_dag("f.py", "d", top=top)
    bundle.write_dag("plain.py", "p", top="import os\nassert 'OMP_NUM_THREADS' not in os.environ")
    parsed = [one for one in load(loader, bundle) if isinstance(one, ParsedFile)]
    assert [one.file for one in parsed] == ["f.py", "plain.py"]


def test_a_module_that_no_fork_server_survives_is_not_imported_again(
    bundle: BundleFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken" / "pandas").mkdir(parents=True)
    (tmp_path / "broken" / "pandas" / "__init__.py").write_text("import os; os._exit(1)")
    monkeypatch.syspath_prepend(str(tmp_path / "broken"))
    bundle.write_dag("f.py", "d", top="# would like pandas")
    with DagLoader(workers=1) as own:
        assert only_file(own, bundle).dag_ids == ("d",)
        kept = process_ids(own)
        assert only_file(own, bundle).dag_ids == ("d",)
        assert process_ids(own) == kept


def test_closing_ends_the_fork_servers_and_whoever_waits_for_a_file(bundle: BundleFolder, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    bundle.write_dag("f.py", "d", top=f"open({str(begun)!r}, 'w').close()\nimport time; time.sleep(600)")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            load(own, bundle)
        except LoaderClosed as error:
            raised.append(error)

    own = DagLoader(workers=1)
    waiting = threading.Thread(target=wait)
    waiting.start()
    begun.open().close()  # comes back when the file is being read
    pids = process_ids(own)
    own.close()
    waiting.join()
    assert len(raised) == 1
    assert process_ids(own) == ()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(LoaderClosed):
        own.load(bundle.root, ["f.py"])


def test_a_manager_that_is_killed_leaves_no_process_behind(bundle: BundleFolder, tmp_path: Path) -> None:
    lock, begun = tmp_path / "lock", tmp_path / "begun"
    os.mkfifo(begun)
    top = (
        f"import fcntl, time\nfile = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        f"open({str(begun)!r}, 'w').close()\ntime.sleep(600)"
    )
    bundle.write_dag("f.py", "d", top=top)
    manager = (
        "import sys; from pathlib import Path; from backfill_manager.dags.importing.loader import DagLoader\n"
        "DagLoader(workers=1).load(Path(sys.argv[1]), ['f.py'], import_timeout=600)"
    )
    process = subprocess.Popen([sys.executable, "-c", manager, str(bundle.root)], stderr=subprocess.PIPE)
    with process:
        begun.open().close()
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""  # to its end: the fork server, which holds it too, is gone
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # comes back when the file's process is gone


def test_a_fork_server_ends_in_silence_when_the_manager_is_killed_before_it_has_read_the_answer(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    pipe = os.open(tmp_path / "answers", os.O_WRONLY | os.O_CREAT)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-m", "backfill_manager.processes.fork_server", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE,
        )  # fmt: skip
    with ours, server:
        job = ParseJob(str(tmp_path / "no_such_folder"), "f.py", seconds=60, memory_mb=100, limits={})
        parse_file = "backfill_manager.dags.importing.parse_file"
        request = {
            "fork": 1,
            "call": f"{parse_file}:parse_and_exit",
            "prepare": f"{parse_file}:prepare",
            "name": "parse",
        }
        assert Channel(ours).receive() is not None  # its number
        Channel(ours).send({**request, "job": job.to_json()}, [pipe])
        os.close(pipe)
        select.select([ours], [], [])  # it has refused, and nobody reads that: closing now resets the connection
        ours.close()
        assert server.stderr is not None
        assert server.stderr.read() == b""
    assert server.returncode == 0


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
