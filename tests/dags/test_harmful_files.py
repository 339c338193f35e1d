"""Whatever a DAG file does to its process, it is one clear error, and no other file, nor the manager, is affected."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.loaded_files import SHORT_S, load, only_failure, only_file, process_ids

from backfill_manager.dags.importing.import_failure import FailedFile
from backfill_manager.dags.importing.loader import DagLoader, ParsedFile


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


def test_what_ends_a_thread_of_a_file_before_its_dags_are_made_is_an_import_error(
    loader: DagLoader, bundle: BundleFolder
) -> None:
    thread = "import threading\nfrom backfill_manager import dag, sql\n\n@dag\ndef one():\n    sql('s', 'SELECT 1')\n\n"
    thread += "def make():\n    int('x')\n\nmaking = threading.Thread(target=make)\nmaking.start()\nmaking.join()\n"
    bundle.write("f.py", thread)
    failed = only_failure(loader, bundle)
    assert (failed.line, failed.message) == (9, "ValueError: invalid literal for int() with base 10: 'x'")


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
