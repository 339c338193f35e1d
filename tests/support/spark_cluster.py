"""A standalone Spark cluster on loopback: a master and workers of the installed PySpark, each a process that a test may kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from support.manager_process import TIMEOUT_S, wait_for
from support.process_tree import processes_below

_PORT: Final = re.compile(r"Successfully started service 'sparkMaster' on port (\d+)")
_UI_PORT: Final = re.compile(r"Successfully started service 'MasterUI' on port (\d+)")


def _installed() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def spark_home(folder: Path) -> Path:
    """PySpark's own folder seen from another one, for `local-cluster`: its workers leave their files in the home's `work`."""
    folder.mkdir()
    for entry in _installed().iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


class Cluster:
    """`cores` and `memory` (MB) of each worker."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: int = 1024) -> None:
        self.folder, self._cores, self._memory = folder, cores, memory
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.port = self.ui_port = 0
        folder.mkdir(parents=True)
        self.start_master()
        for _ in range(workers):
            self.start_worker()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start_master(self) -> None:
        """Again at the port that it had; it remembers applications and workers."""
        log = self._log("master")
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.ui_port)]
        self._master = self._start("master.Master", options, log)

        def ports() -> list[re.Match[str] | None] | None:
            found = [pattern.search(log.read_text()) for pattern in (_PORT, _UI_PORT)]
            return found if all(found) else None

        port, ui_port = wait_for(ports)
        self.port, self.ui_port = int(port[1]), int(ui_port[1])

    def kill_master(self) -> None:
        assert self._master is not None
        _kill(self._master)

    def start_worker(self) -> None:
        name = f"worker{self._started}"
        log = self._log(name)
        options = [
            "--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self.folder / name), "--cores", str(self._cores),
            "--memory", f"{self._memory}m", self.url,
        ]  # fmt: skip
        self._workers.append(self._start("worker.Worker", options, log))
        wait_for(lambda: "Successfully registered with master" in log.read_text())

    def kill_worker(self) -> None:
        """The oldest, with its executors: the machine is gone."""
        _kill(self._workers.pop(0))

    def applications(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/json/", timeout=TIMEOUT_S) as answer:
            return json.load(answer)["activeapps"]  # type: ignore[no-any-return]

    def kill_application(self, application_id: str) -> None:
        """As somebody does on the page of the master."""
        form = urllib.parse.urlencode({"id": application_id, "terminate": "true"}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui_port}/app/kill/", form, timeout=TIMEOUT_S) as answer:
            assert answer.status == 200

    def stop(self) -> None:
        for process in (*self._workers, *([self._master] if self._master else [])):
            _kill(process)

    def _log(self, name: str) -> Path:
        self._started += 1
        return self.folder / f"{name}.{self._started}.log"

    def _start(self, name: str, options: list[str], log: Path) -> subprocess.Popen[bytes]:
        home = _installed()
        recovery = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.folder / 'recovery'}"
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
        environment |= {
            "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_MASTER_OPTS": recovery, "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(self.folder / "local"),
        }  # fmt: skip
        with log.open("wb") as file:
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options],
                env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started: executors have sessions of the worker, their Python workers, too."""
    for pid in (*processes_below(process.pid), process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(TIMEOUT_S)
