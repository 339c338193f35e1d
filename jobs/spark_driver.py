"""Runs spark-submit with the options that are needed at submit time, and handles signals for it.

    spark-submit.sh ─► submit.py ─► spark-submit (a JVM) ─► manager.py (the driver)

- Delta's jars, its extension and catalog, the fair scheduler and the bind address cannot be set by the driver: when it starts,
  the JVM is already running.
- SIGTERM and Ctrl-C mean: finish running tasks, start nothing new. spark-submit would die of them and leave the driver
  behind, so Spark runs in a session of its own and the signal is sent to the *driver*. A second signal ends both at once.
- If this process is killed, the driver notices (backfill_manager/manager/services/parent_watchdog.py). So nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Final

from backfill_manager.process_info import is_process_alive

if TYPE_CHECKING:
    from backfill_manager.settings import Settings

HERE: Final = Path(__file__).resolve().parent.parent
# Java says so of every Spark 4, and of a package that Java 24 has no more; nothing turns it off
JVM_CHATTER: Final = (b"WARNING: Using incubator modules", b"WARNING: package sun.security.action not in java.base")
TIME_TO_END_S: Final = 45.0  # more than the manager takes to drain


def spark_arguments(settings: Settings, options: list[str]) -> list[str]:
    """For spark-submit, up to the application's file: ours, then conf/manager.yaml's, then the person's, who wins."""
    from backfill_manager.execution.spark.connectors import spark_jars
    from backfill_manager.execution.spark.session import (
        BASE_CONF,
        jars_beside_deltas,
        with_deltas_extension,
        with_master,
    )
    from backfill_manager.execution.spark.site_settings import EXTENSIONS, with_site_lists

    site_conf = with_site_lists(settings.spark.conf, _last_value(options, "--properties-file"))
    configured, own_conf = jars_beside_deltas(site_conf)
    options, jars = _take_jars(options)
    typed_conf = dict(
        value.split("=", 1) for name, value in pairwise(options) if name in ("--conf", "-c") and "=" in value
    )
    typed = _last_value(options, "--master") or typed_conf.get("spark.master")
    conf = {**BASE_CONF, "spark.ui.enabled": "false", "spark.driver.memory": "2g"}
    conf |= with_deltas_extension(with_master(typed or settings.spark.master, own_conf))
    # spark-submit prefers `--master`, which is ours
    arguments = ["--name", "backfill_manager", "--master", conf.pop("spark.master"), "--jars"]
    arguments.append(",".join([*spark_jars(settings.warehouse), *configured, *jars]))
    for key, value in conf.items():
        arguments += ["--conf", f"{key}={value}"]
    if EXTENSIONS in typed_conf:
        options += ["--conf", f"{EXTENSIONS}={with_deltas_extension(typed_conf)[EXTENSIONS]}"]
    return arguments + options


def _take_jars(options: list[str]) -> tuple[list[str], list[str]]:
    """spark-submit takes the last `--jars`, and `spark.jars` only without one: take theirs out, to be given in one list with
    ours."""
    kept, jars = list[str](), list[str]()
    rest = iter(options)
    for option in rest:
        name, _, value = option.partition("=")
        is_conf = name in ("--conf", "-c")
        if not value and (is_conf or name == "--jars"):
            value = next(rest, "")
        if name == "--jars":
            jars += value.split(",")
        elif is_conf and value.startswith("spark.jars="):
            jars += value.partition("=")[2].split(",")
        else:
            kept += [name, value] if is_conf else [option]
    return kept, [jar for jar in jars if jar]


def _last_value(options: list[str], wanted: str) -> str | None:
    found = None
    for at, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name == wanted:
            found = value if equals else next(iter(options[at + 1 :]), None)
    return found


def spark_environment(environ: Mapping[str, str], master: str) -> dict[str, str]:
    import pyspark

    from backfill_manager.execution.spark.session import jvm_variables
    from backfill_manager.execution.spark.site_settings import jvm_log_option

    home = str(Path(pyspark.__file__).parent)  # not some other Spark of this machine
    return {
        **jvm_variables(master),
        **environ,
        "SPARK_HOME": home,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": environ.get("PYSPARK_PYTHON") or sys.executable,
        "SPARK_SUBMIT_OPTS": f"{jvm_log_option({**environ, 'SPARK_HOME': home})} "
        f"-XX:+UseSerialGC {environ.get('SPARK_SUBMIT_OPTS', '')}",
        "TZ": "UTC",
        "BFM_SUBMITTER_PID": str(os.getpid()),
    }


class Driver:
    """spark-submit with the manager under it. `output` takes what both say; None: our own streams. `interrupts`: the
    first signal is also raised here, as KeyboardInterrupt, for there is more to do than to wait."""

    def __init__(
        self, spark: list[str], arguments: list[str], output: IO[bytes] | None = None, *, interrupts: bool = False
    ) -> None:
        self._spark, self._arguments, self._output, self._interrupts = spark, arguments, output, interrupts
        self._signals: list[int] = []

    def __enter__(self) -> Driver:
        self._scratch = tempfile.TemporaryDirectory(prefix="bfm-")
        self._pid_file = Path(self._scratch.name) / "driver.pid"
        environ = spark_environment(os.environ, _last_value(self._spark, "--master") or "")
        environ["BFM_DRIVER_PID_FILE"] = str(self._pid_file)
        command = [f"{environ['SPARK_HOME']}/bin/spark-submit", *self._spark, "jobs/manager.py", *self._arguments]
        self._jvm = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output or subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._pass_on_errors, daemon=True)
        self._listener.start()
        self._before = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        return self

    def __exit__(self, *_: object) -> None:
        """Gone it is, in any case: the JVM, and the driver, which may outlive it."""
        try:
            if self._jvm.poll() is None:
                self.end()
            try:
                self._jvm.wait(TIME_TO_END_S)
            except subprocess.TimeoutExpired:
                self.end_at_once()
                self._jvm.wait()
            self._outlast_driver()
            self._listener.join(1)
        finally:
            for signum, handler in self._before.items():
                signal.signal(signum, handler)
            self._scratch.cleanup()

    @property
    def pid(self) -> int | None:
        """The Python process; None until it has begun."""
        try:
            return int(self._pid_file.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None

    @property
    def signalled(self) -> int | None:
        """The first signal that came."""
        return self._signals[0] if self._signals else None

    def poll(self) -> int | None:
        """The exit code if it has ended."""
        code = self._jvm.poll()
        return code if code is None or code >= 0 else 128 - code

    def wait(self) -> int:
        self._jvm.wait()
        code = self.poll()
        assert code is not None
        return code

    def end(self) -> None:
        """Let what runs finish, and stop. A driver that has not begun yet has nothing to finish."""
        _send(self.pid or self._jvm.pid, signal.SIGTERM)

    def end_at_once(self) -> None:
        """What ran is run again by the next manager; the state is whole at any moment."""
        if self.pid:
            _send(self.pid, signal.SIGKILL)
        _send(self._jvm.pid, signal.SIGKILL)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._signals.append(signum)
        if len(self._signals) > 1:
            self.end_at_once()
            return
        self.end()
        if self._interrupts:
            raise KeyboardInterrupt

    def _outlast_driver(self) -> None:
        ended = threading.Event()
        for _ in range(int(TIME_TO_END_S * 10)):
            pid = self.pid
            if pid is None or not is_process_alive(pid):
                return
            ended.wait(0.1)
        self.end_at_once()

    def _pass_on_errors(self) -> None:
        for line in self._jvm.stderr or ():
            if not line.startswith(JVM_CHATTER):
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()


def _send(pid: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)
