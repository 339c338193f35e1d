"""Whether Spark is still there."""

from __future__ import annotations

import contextlib
import errno
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.execution.error_format import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_TIMEOUT_S: Final = 5.0  # of a JVM that does not answer, to learn its exit code
MAX_CALLS: Final = 3  # that fail one after another before the JVM counts as dead


@contextlib.contextmanager
def ignore_stopped_context() -> Iterator[None]:
    """For cleaning up only: without Spark there is nothing to clean up."""
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError, AttributeError):  # a stopped SparkContext has no `_jsc`
        yield


def spark_gone_reason(spark: SparkSession) -> str | None:
    """Why this session's Spark is gone, as part of a sentence; None while it is there. Two calls to the JVM.

    A call that fails proves little (this process may be out of file descriptors, one connection may have broken), so it is
    repeated before the JVM counts as dead."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    java_context = context._jsc
    if java_context is None:
        return "its SparkContext was stopped"
    jvm = getattr(context._gateway, "proc", None)  # the process, if PySpark started it
    failed: Exception | None = None
    for _ in range(MAX_CALLS):
        try:
            return "its SparkContext was stopped" if java_context.sc().isStopped() else None
        except (Py4JError, OSError) as error:
            if _is_out_of_descriptors(error):
                return None
            failed = error
    if jvm is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # its connections end before the process does
            code = jvm.wait(EXIT_TIMEOUT_S)
            named = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            return f"its JVM (pid {jvm.pid}) has ended with {f'exit code {code}' if code >= 0 else named}"
    return f"its JVM does not answer ({one_line(failed)})" if failed else None


def lack_of_executors(spark: SparkSession) -> Callable[[], bool] | None:
    """Whether Spark jobs wait while the driver has no executor. None where it is its own, or Spark is another build."""
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    if context.master.startswith("local") and not context.master.startswith("local-cluster"):
        return None
    try:
        java_context = context._jsc.sc()
        running, managers = java_context.dagScheduler().activeJobs, java_context.getExecutorMemoryStatus
        running().size(), managers().size()
    except (Py4JError, TypeError):
        return None
    return lambda: bool(running().size() and managers().size() <= 1)  # the driver's own


def temporary_folders(spark: SparkSession) -> tuple[Path, ...]:
    """Where the driver has its blocks and PySpark its files: without them Spark answers, and nothing works. Those of other
    machines, or that can't be seen from here, are left out."""
    context = spark.sparkContext
    of_blocks = context._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirs()
    folders = [Path(str(folder)) for folder in of_blocks]
    if context._temp_dir is not None:
        folders += (Path(context._temp_dir).parent, Path(context._temp_dir))
    return tuple(folder for folder in folders if folder.is_dir())


def jvm_pid(spark: SparkSession) -> int:
    """Of the driver's JVM, which is on this machine."""
    jvm: Any = spark.sparkContext._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _is_out_of_descriptors(error: BaseException | None) -> bool:
    """Anywhere in the chain: Py4J raises an error of its own when a connection could not be made."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return False
