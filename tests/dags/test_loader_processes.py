"""The processes of the loader: how many there are, what they hold, and that none is left."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.bundle_folder import BundleFolder
from support.loaded_files import load, only_file, process_ids

from backfill_manager.dags.importing.loader import DagLoader, LoaderClosed, ParsedFile
from backfill_manager.dags.importing.parse_file import ParseJob
from backfill_manager.processes.channel import Channel


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


def test_a_fork_server_that_dies_while_it_has_nothing_to_do_costs_nothing(bundle: BundleFolder) -> None:
    bundle.write_dag("a.py", "a")
    with DagLoader(workers=1) as own:
        only_file(own, bundle)
        (old,) = process_ids(own)
        os.kill(old, signal.SIGKILL)
        assert only_file(own, bundle).dag_ids == ("a",)


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
