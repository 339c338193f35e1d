"""From DAG files to definitions and import errors, without ever running a DAG file in this process.

    file of a snapshot ─► fork server (warm) ─► a process for this file ─► ParsedFile | FailedFile

A file gives all of its DAGs or one error, never half a result. The fork servers (`processes/`) stay; the processes that run the
files' code live for one file each, so files are kept apart from each other and from the manager.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import LifoQueue
from threading import Condition, Lock
from typing import Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.importing.bundle_path import enter_bundle
from backfill_manager.dags.importing.import_failure import (
    MAX_TRACEBACK_LENGTH,
    FailedFile,
    explain,
    explain_dump,
    to_utf8,
)
from backfill_manager.dags.importing.parse_file import ParseJob
from backfill_manager.errors import BackfillManagerError, InvalidDag, InvalidInput, shorten
from backfill_manager.masking import mask_text
from backfill_manager.processes.fork_server_client import ForkedProcess, ForkServerProcess, ForkServers, NoProcess

_PRELOADABLE: Final = ("pyspark", "pandas")  # costly to import; a worker has it once a file has needed it
MAX_WORKERS: Final = 4
MAX_MESSAGE_LENGTH: Final = 2000  # characters; lists of errors repeat them
MAX_RESULT_SIZE: Final = 64 << 20
_CALL: Final = "backfill_manager.dags.importing.parse_file:parse_and_exit"
_PREPARE: Final = "backfill_manager.dags.importing.parse_file:prepare"
_STARTUP_TIMEOUT_S: Final = 120.0  # for the server to start, and to import pandas or PySpark on a busy machine
_GRACE_S: Final = 3.0  # for the watchdog in the file's process, which knows more, to be first
_POLL_INTERVAL_S: Final = 0.2  # for the process to begin
_ATTEMPTS: Final = 3  # to find a worker that gets as far as the file


@dataclass(frozen=True)
class ParseReply:
    """What came of a file. `began`: its process was started. `code`: how that ended; None when the fork server was lost
    (`server_code`: how). `late`: it took longer than its time. `refused`: why it was not read."""

    output: bytes = b""
    began: bool = False
    code: int | None = None
    server_code: int | None = None
    late: bool = False
    refused: str = ""


class LoaderClosed(BackfillManagerError):
    """The loader was closed before all files were parsed; there is no result for any of them."""


@dataclass(frozen=True)
class ParsedFile:
    """What one file defines. `definitions` are its DAGs as JSON, as they were made where the file was run, and in the
    order of `dag_ids`. Of the bundle's other files: `imported` are those it imported, `read` all it opened; `listed` are
    folders whose files it listed (`""` is the root). Names within the bundle, with `/`."""

    file: str
    dag_ids: tuple[str, ...]
    definitions: tuple[str, ...]
    imported: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    lines: tuple[int | None, ...] = ()  # that made its DAGs; left out, or None, where they are not known

    def where(self, dag_id: str) -> int | None:
        """The line that makes the DAG."""
        return next((line for one, line in zip(self.dag_ids, self.lines, strict=False) if one == dag_id), None)

    @property
    def dags(self) -> tuple[DagSpec, ...]:
        """Read from the definitions each time."""
        return tuple(DagSpec.from_json(text) for text in self.definitions)


class DagLoader:
    """Reads at most `workers` files at once, each in a process of its own, forked by a server of its own: a file that kills its
    parent ends no other. `load` may be called from any thread; several at once take turns file by file, so that a bundle of many
    or slow files holds up no other. `close` may be called from any thread, at any time: a `load` that is under way then raises
    `LoaderClosed`."""

    def __init__(self, *, workers: int | None = None) -> None:
        self._count = workers or min(MAX_WORKERS, os.cpu_count() or 1)
        self._servers = [ForkServers() for _ in range(self._count)]
        self._places: LifoQueue[ForkServers] = LifoQueue()  # the last one used is the warmest
        for servers in self._servers:
            self._places.put(servers)
        self._clock = SystemClock()  # a real process takes real time
        self._lock = Lock()
        self._loads, self._load_ended = 0, Condition(self._lock)  # how many are under way
        self._processes: set[ForkedProcess] = set()
        self._closed = False

    def load(
        self,
        root: Path,
        files: Sequence[str],
        *,
        import_timeout: float = 30.0,
        import_memory_mb: int = 1024,
        limits: Mapping[str, int] | None = None,
        reader: str = "",
        options: Mapping[str, Any] | None = None,
        python: str | None = None,
    ) -> list[ParsedFile | FailedFile]:
        """What each of `files` of the folder `root` (a snapshot: it does not change) defines, in their order. A file may
        take `import_timeout` seconds and `import_memory_mb` MB; `limits` are defaults of its DAGs. `reader` is
        `module:Class` of a parser whose `read` makes the DAGs, given `options`; "" is Python and YAML. `python` is the
        interpreter that runs the files; None is this one."""

        def parse(file: str) -> ParsedFile | FailedFile:
            if to_utf8(file) != file:
                return FailedFile(file, None, "its name is not UTF-8; give it another one")
            job = ParseJob(str(root), file, import_timeout, import_memory_mb, limits or {}, reader, options or {})
            return result_of(self._parse(job, python), job)

        with self._counted(), ThreadPoolExecutor(self._count, thread_name_prefix="bfm-parse") as threads:
            return list(threads.map(parse, files))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._loads += 1
        try:
            yield
        finally:
            with self._lock:
                self._loads -= 1
                self._load_ended.notify_all()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()
            self._load_ended.wait_for(lambda: self._loads == 0)
        for servers in self._servers:
            servers.close()

    def __enter__(self) -> DagLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _parse(self, job: ParseJob, python: str | None) -> ParseReply:
        """A server that ends before it comes to the file is not the file's fault: another one tries."""
        to_preload = _preloads(Path(job.root) / job.file)
        if job.reader:
            to_preload += (job.reader.partition(":")[0],)
        reply = ParseReply()
        servers = self._places.get()
        try:
            for _ in range(_ATTEMPTS):
                if not self._closed:
                    with suppress(NoProcess):
                        reply = self._read(servers.get(python), job, to_preload)
                if self._closed:
                    raise LoaderClosed("The loader of DAG files was closed")
                if reply.began or reply.refused:
                    break
        finally:
            self._places.put(servers)
        return reply

    def _read(self, server: ForkServerProcess, job: ParseJob, preload: Sequence[str]) -> ParseReply:
        output, late = bytearray(), False
        with _pipe() as (pipe, theirs), _pipe() as (ended, end):
            process = server.fork(
                _CALL, job.to_json(), [theirs], name="bfm parse", preload=preload, prepare=_PREPARE,
                on_end=partial(os.write, end, b"."),
            )  # fmt: skip
            with self._lock:
                self._processes.add(process)
                if self._closed:
                    process.kill()
            readable = select.poll()
            readable.register(pipe, select.POLLIN)
            readable.register(ended, select.POLLIN)
            has_begun, deadline = False, self._clock.monotonic() + _STARTUP_TIMEOUT_S
            while not process.has_ended:
                now = self._clock.monotonic()
                if process.pid is not None and not has_begun:
                    has_begun, deadline = True, now + job.seconds + _GRACE_S
                if now >= deadline or len(output) > MAX_RESULT_SIZE:
                    if late:  # it was killed, and that has not helped
                        server.stop()
                    late, deadline = now >= deadline, now + _GRACE_S
                    process.kill()
                wait_s = deadline - now if has_begun else min(deadline - now, _POLL_INTERVAL_S)
                if any(descriptor == pipe for descriptor, _ in readable.poll(wait_s * 1000)):
                    output += os.read(pipe, 1 << 16)
            os.read(ended, 1)  # `on_end` has been called, so the pipe may be closed
            os.set_blocking(pipe, False)  # a process that has escaped may hold it open
            with suppress(BlockingIOError):
                while len(output) <= MAX_RESULT_SIZE and (chunk := os.read(pipe, 1 << 16)):
                    output += chunk
            with self._lock:
                self._processes.discard(process)
        return ParseReply(
            bytes(output), began=process.pid is not None, code=process.code, late=late, refused=process.refused,
            server_code=server.exit_code if process.is_lost else None,
        )  # fmt: skip


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _preloads(path: Path) -> tuple[str, ...]:
    """A cheap search of the text: a name in a comment costs one import and nothing else."""
    with suppress(OSError):  # importing it will fail with the reason
        text = path.read_bytes()
        return tuple(name for name in _PRELOADABLE if name.encode() in text)
    return ()


def result_of(reply: ParseReply, job: ParseJob) -> ParsedFile | FailedFile:
    file = job.file
    if reply.refused:
        return FailedFile(file, None, reply.refused)
    if not reply.began:
        how = _ending(reply.server_code) if reply.server_code is not None else "did not get as far"
        return FailedFile(file, None, f"no process could be had to read the file in: each of {_ATTEMPTS} {how}")
    if len(reply.output) > MAX_RESULT_SIZE:
        return FailedFile(file, None, f"its DAGs take more than {MAX_RESULT_SIZE >> 20} MB to write down")
    return _parsed(reply.output, file) if reply.code == 0 and reply.output else _without_result(reply, job)


def _parsed(output: bytes, file: str) -> ParsedFile | FailedFile:
    """The file could write to the pipe as well, so nothing about the content is assumed."""
    try:
        answer: dict[str, Any] = json.loads(output)
        if "failed" in answer:
            return _sanitized(FailedFile(**answer["failed"]))
        definitions = tuple(answer["dags"])
        imported, read, listed = (tuple(answer[name]) for name in ("imported", "read", "listed"))
        dag_ids = tuple(DagSpec.from_json(text).dag_id for text in definitions)
        lines = tuple(line if isinstance(line, int) else None for line in answer["lines"])
        return ParsedFile(file, dag_ids, definitions, imported, read, listed, lines)
    except (AttributeError, KeyError, TypeError, ValueError):
        message = "what its process answered can't be read; does it write to files it did not open?"
        return FailedFile(file, None, message)


def _sanitized(failed: FailedFile) -> FailedFile:
    """Not longer than lists can repeat, and without secrets once more: with this environment, as the file may have taken one out
    of that of its process."""
    message = shorten(to_utf8(mask_text(failed.message)), MAX_MESSAGE_LENGTH)
    traceback = shorten(to_utf8(mask_text(failed.traceback)), MAX_TRACEBACK_LENGTH)
    return dataclasses.replace(failed, message=message, traceback=traceback)


def _without_result(reply: ParseReply, job: ParseJob) -> FailedFile:
    root, file = Path(job.root), job.file
    dump = reply.output.decode("utf-8", "replace")
    if reply.late or "Timeout (" in dump:
        took = f"took longer than {job.seconds:g} seconds to be read (import_timeout of its bundle)"
        return explain_dump(dump, root, file, took)
    _, crashed, crash = dump.partition("Fatal Python error: ")
    if crashed:
        return explain_dump(dump, root, file, f"the file crashed Python: {crash.splitlines()[0][:60]}")
    if reply.code is None:
        how = _ending(reply.server_code or 0)
        return FailedFile(file, None, f"the process that watched over the file {how}; does the file kill its parent?")
    return FailedFile(file, None, f"the process that read the file {_ending(reply.code)} before its DAGs were made")


def _ending(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def load_file(path: str | Path, *, root: Path | None = None) -> list[Dag]:
    """The DAGs of one file, executed in this process: for tests of one's own DAGs. `root` is the bundle that its imports
    start from, by default its folder. `InvalidDag` names file and line of whatever is wrong.

    The bundle stays on `sys.path`, before what is installed, until the next call: imports inside its functions find it, and so
    do those of the caller. The next call takes the folder and the modules that were imported from it out again, so it executes
    files that were edited anew; functions of the call before keep the modules they have, but import from the new one. A module
    of another place that was loaded under the name of one of the bundle's is taken out of `sys.modules`."""
    file = Path(path).absolute()
    if not file.is_file():
        raise InvalidInput(f"{path} is not a file")
    folder = (root or file.parent).absolute()
    bundle = enter_bundle(folder)
    name = file.relative_to(folder).as_posix()
    try:
        return [dataclasses.replace(dag, spec=dataclasses.replace(dag.spec, file=name)) for dag in bundle.dags_of(name)]
    except (Exception, SystemExit) as error:
        failed = explain(error, folder, name)
        bundle.leave()
        raise InvalidDag(str(failed)) from error
