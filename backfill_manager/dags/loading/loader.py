"""From a bundle's folder to definitions and import errors, without ever running a DAG file in this process.

    folder ─► snapshot ─► for each file that may make DAGs: a process ─► ParsedFile | FailedFile ─► BundleScan

A file gives all of its DAGs or one error, never half a result. What becomes of a scan (versions, last good DAGs, ids
that two files claim) is decided in `versions`. One process per file is the simple way to keep files apart from each
other and from the manager; whatever parses more cleverly one day gives the same `BundleScan`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import SystemClock
from backfill_manager.dags.bundles.files import BundleContent, read_bundle
from backfill_manager.dags.bundles.snapshot import take
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.loading.import_failure import FailedFile, explain, explain_dump
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.settings import BundleSettings, LimitSettings

if TYPE_CHECKING:
    from backfill_manager.dags.authoring import Dag

START_UP_S: Final = 10.0  # for the interpreter itself, beside the file's own time
LARGEST_ANSWER: Final = 64 << 20
KEPT_OUTPUT: Final = 4096
OUR_JVM: Final = frozenset({"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_ENV_LOADED"})


@dataclass(frozen=True)
class ParsedFile:
    """What one file defines; `imported` names the bundle's other files that it imported."""

    file: str
    dags: tuple[DagSpec, ...]
    imported: tuple[str, ...] = ()


@dataclass(frozen=True)
class BundleScan:
    """What a bundle holds at one moment. `readable` False: its folder can't be read, which says nothing of its DAGs."""

    bundle: str
    path: str
    parser: str
    content: BundleContent
    snapshot: str = ""
    parsed: tuple[ParsedFile, ...] = ()
    failed: tuple[FailedFile, ...] = ()
    readable: bool = True

    @property
    def content_hash(self) -> str:
        return self.content.hash


def content_hash(bundle: BundleSettings, *, snapshots: Path) -> str | None:
    """What a scan would say as its `content_hash`, for the cost of reading the files; None when they can't be read."""
    try:
        return read_bundle(Path(bundle.path), without=snapshots).hash
    except InvalidInput:
        return None


def scan_bundle(bundle: BundleSettings, *, snapshots: Path, limits: LimitSettings | None = None) -> BundleScan:
    """Snapshot the bundle under `snapshots`, and parse every file that may make DAGs, each in a process of its own."""
    root = Path(bundle.path)
    try:
        taken = take(root, snapshots)
    except InvalidInput as error:
        failed = FailedFile(".", None, f"bundle {bundle.name!r}: {error}")
        return BundleScan(
            bundle.name, bundle.path, bundle.parser, BundleContent({}, ()), failed=(failed,), readable=False
        )
    defaults = (limits or LimitSettings()).model_dump()
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1), thread_name_prefix="bfm-parse") as threads:
        results = list(
            threads.map(lambda file: parse(taken.path, file, bundle.import_timeout, defaults), taken.content.candidates)
        )
    return BundleScan(
        bundle.name,
        bundle.path,
        bundle.parser,
        taken.content,
        snapshot=str(taken.path),
        parsed=tuple(result for result in results if isinstance(result, ParsedFile)),
        failed=tuple(result for result in results if isinstance(result, FailedFile)),
    )


def load_file(path: str | Path, *, root: Path | None = None) -> list[Dag]:
    """The DAGs of one file, executed in this process: for `dags test` and for tests of one's own DAGs. `root` is the
    bundle that its imports start from, by default its folder. `InvalidDag` names file and line of whatever is wrong."""
    from backfill_manager.dags.loading.bundle_imports import open_bundle

    file = Path(path).absolute()
    folder = (root or file.parent).absolute()
    if not file.is_file():
        raise InvalidInput(f"{path} is not a file")
    bundle = open_bundle(folder)
    name = file.relative_to(folder).as_posix()
    try:
        return [dataclasses.replace(dag, spec=dataclasses.replace(dag.spec, file=name)) for dag in bundle.dags_of(name)]
    except (Exception, SystemExit) as error:
        bundle.close()
        raise InvalidDag(str(explain(error, folder, name))) from error


# -- one file ---------------------------------------------------------------------------------------------------------


def parse(root: Path, file: str, time_limit: float, limits: dict[str, Any]) -> ParsedFile | FailedFile:
    """Execute one file of the folder `root` in a process of its own, for at most `time_limit` seconds."""
    with _process(root, file, time_limit, limits) as (process, pipe):
        told, printed = _listen(process, pipe, time_limit + START_UP_S)
        if told is None:
            return FailedFile(file, None, _too_long(time_limit), printed)
        if len(told) > LARGEST_ANSWER:
            return FailedFile(file, None, f"its DAGs take more than {LARGEST_ANSWER >> 20} MB to write down", printed)
        answer = _answer(told)
        if answer is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_UP_S)
    if answer is None:
        return _silent(process.returncode, told.decode("utf-8", "replace"), printed, root, file, time_limit)
    if "failed" in answer:
        return FailedFile(**answer["failed"])
    return ParsedFile(file, tuple(DagSpec.from_json(text) for text in answer["dags"]), tuple(answer["imported"]))


@contextmanager
def _process(
    root: Path, file: str, time_limit: float, limits: dict[str, Any]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process in a session of its own, so that what it starts ends with it; gone when the block is left."""
    pipe, theirs = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "backfill_manager.dags.loading.parse_file",
                    str(root), file, str(theirs), str(time_limit), json.dumps(limits),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=(theirs,), start_new_session=True,
                env=_environment(),
            )  # fmt: skip
        finally:
            os.close(theirs)
        with process:
            try:
                yield process, pipe
            finally:
                with suppress(ProcessLookupError, PermissionError):  # gone; or a zombie, on macOS
                    os.killpg(process.pid, signal.SIGKILL)
                if process.stdout:
                    process.stdout.close()
    finally:
        os.close(pipe)


def _environment() -> dict[str, str]:
    """Ours, with the same modules to be found, but no way into our JVM: a DAG file that starts Spark when it is read
    would otherwise be given, and could stop, the session that tasks are running in."""
    kept = {name: value for name, value in os.environ.items() if name not in OUR_JVM}
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _listen(process: subprocess.Popen[bytes], pipe: int, seconds: float) -> tuple[bytes | None, str]:
    """What came through the pipe until its end, and the last words it printed; None when its time was up."""
    assert process.stdout is not None
    told, printed = bytearray(), bytearray()
    clock = SystemClock()  # a real process takes real time
    deadline = clock.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ, told)
        selector.register(process.stdout, selectors.EVENT_READ, printed)
        while True:
            left = deadline - clock.monotonic()
            if left <= 0:
                return None, printed.decode("utf-8", "replace")
            if len(told) > LARGEST_ANSWER:
                return bytes(told), printed.decode("utf-8", "replace")
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if not chunk and key.data is told:
                    return bytes(told), printed.decode("utf-8", "replace")
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
                if key.data is printed:
                    del printed[:-KEPT_OUTPUT]


def _answer(told: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(told)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _silent(code: int, dump: str, printed: str, root: Path, file: str, time_limit: float) -> FailedFile:
    """The process ended without an answer."""
    if dump.startswith("Timeout"):
        return explain_dump(dump, root, file, _too_long(time_limit))
    if dump.startswith("Fatal Python error"):
        why = dump.partition("\n")[0].removeprefix("Fatal Python error: ")
        return explain_dump(dump, root, file, f"the file crashed Python: {why}")
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return FailedFile(file, None, f"the process that read the file {how} before its DAGs were made", dump + printed)


def _too_long(time_limit: float) -> str:
    return f"took longer than {time_limit:g} seconds to be read (import_timeout of its bundle)"
