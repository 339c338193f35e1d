"""The process that imports one DAG file: forked by the fork server for this file, ended by it or with it.

The file is other people's code: it may print, hang, exit, crash, eat memory. The result goes to a pipe of its own as one
JSON document, and the process ends there, whatever threads the file has started. When there is no result to give, the
C-level watchdog writes where the file was instead: it needs no help from the code that hangs or the interpreter that
crashed. What the file prints goes nowhere.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import functools
import gc
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.importing import bundle_path
from backfill_manager.dags.importing.bundle_path import Bundle
from backfill_manager.dags.importing.dag_file import load_dags
from backfill_manager.dags.importing.import_failure import explain
from backfill_manager.dags.yaml.text import fail_at
from backfill_manager.processes import limits

_LISTING: Final = frozenset({"os.listdir", "os.scandir"})  # `glob`, `os.walk` and pathlib come down to these
_IMPORT_SYSTEM: Final = frozenset({"<frozen importlib._bootstrap_external>", bundle_path.__file__})
NICENESS: Final = 10
_exit = os._exit  # as it is before the file may put something else in its place


@dataclass(frozen=True)
class ParseJob:
    """One file to read: `file` of the folder `root`, in at most `seconds` and `memory_mb` megabytes more than are used
    before it is begun. `limits` are defaults of DAGs that don't set these. `reader`: `module:Class` of a parser with a format of
    its own, and its `options`; "" is Python and YAML."""

    root: str
    file: str
    seconds: float
    memory_mb: int
    limits: Mapping[str, int]
    reader: str = ""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        text = json.dumps(dataclasses.asdict(self), default=str)  # dates, as YAML reads them
        values: dict[str, Any] = json.loads(text)
        return values


_bundles: dict[tuple[str, int, int], Bundle] = {}  # the one whose files were read last


def prepare(job: Mapping[str, Any]) -> None:
    """In the fork server: reads the folder's names, once for all of its files. A folder that was made anew is another one."""
    about = os.stat(job["root"])
    key = (job["root"], about.st_ino, about.st_mtime_ns)
    if key not in _bundles:
        _bundles.clear()
        _bundles[key] = Bundle(Path(job["root"]))
        gc.collect()
        gc.freeze()


def parse_and_exit(values: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """In the forked process: limit it, import the file, send the result, exit. Exit code 0: the result was sent."""
    job, (bundle,), (pipe,) = ParseJob(**values), _bundles.values(), descriptors
    own, pipe_before = os.getpid(), os.fstat(pipe)
    _discard_output()
    limits.apply_in_child(job.memory_mb, NICENESS)  # ticks come before parsing
    faulthandler.enable(file=pipe)
    faulthandler.dump_traceback_later(job.seconds, exit=True, file=pipe)
    bundle.enter()
    result = json.dumps(_parse_result(bundle, job)).encode()
    faulthandler.cancel_dump_traceback_later()
    if os.getpid() != own:
        _exit(0)  # a fork that the file made, and that came out of it too; one result is enough
    if not os.path.samestat(os.fstat(pipe), pipe_before):
        _exit(1)  # the file closed it, and opened something of its own in its place
    while result:
        result = result[os.write(pipe, result) :]
    _exit(0)


def _parse_result(bundle: Bundle, job: ParseJob) -> dict[str, Any]:
    """`{"dags": [definition, ...], "lines": [...], "imported": [file, ...], "read": [...], "listed": [...]}`, or
    `{"failed": {...}}`: all of the file or nothing."""
    root, file = bundle.root, job.file
    tracker = _FileAccessTracker(root)
    in_threads = _errors_of_threads(root)
    try:
        made = load_dags(job.reader, bundle, file, job.options)
        if in_threads:  # nobody else learns of it, and its DAGs are missing
            raise in_threads[0]
        read, listed = tracker.accesses()
        _refuse_twice(made, root / file)
    except BaseException as error:  # noqa: BLE001 - other people's code may raise anything, SystemExit included
        limits.lift_memory_limit()
        failed = explain(error, root, file)
        if isinstance(error, MemoryError):
            why = f"took more than {job.memory_mb} MB of memory to be read (import_memory of its bundle)"
            failed = dataclasses.replace(failed, message=why)
        return {"failed": dataclasses.asdict(failed)}
    definitions = []
    for dag in made:
        unsaid: dict[str, Any] = {name: value for name, value in job.limits.items() if name not in dag.explicit}
        definitions.append(dataclasses.replace(dag.spec, file=file, **unsaid).to_json())
    return {
        "dags": definitions,
        "lines": [dag.line for dag in made],
        "imported": sorted(bundle.imported_files() - {file}),
        "read": [name for name in read if name != file],
        "listed": listed,
    }


def _refuse_twice(made: Iterable[Dag], path: Path) -> None:
    first: dict[str, Dag] = {}
    for dag in made:
        if (other := first.setdefault(dag.dag_id, dag)) is not dag:
            where = f", first on line {other.line}" if other.line else ""
            message = f"DAG {dag.dag_id!r} is made twice in this file{where}; give one of them another dag_id"
            fail_at(path, dag.line or 1, message)


def _errors_of_threads(root: Path) -> list[BaseException]:
    """What ends a thread that runs code of the bundle is put here, from now on."""
    errors: list[BaseException] = []

    def keep(ended: threading.ExceptHookArgs) -> None:
        frames = traceback.extract_tb(ended.exc_traceback)
        if ended.exc_value is not None and any(Path(frame.filename).is_relative_to(root) for frame in frames):
            errors.append(ended.exc_value)

    threading.excepthook = keep  # for good: the process ends with the file
    return errors


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


class _FileAccessTracker:
    """Tracks which files and folders of the bundle the file reads while it is imported: what its DAGs depend on.

    Seen through Python's audit events, so whatever opens a file (`open`, pathlib, an import, `sql("x", "q.sql")`) is seen,
    and DAG authors need not declare anything; and through `os.stat`, by which `os.path.exists` and pathlib ask for files. What
    `import` looks up on its own (which files a folder holds) is not counted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._opened: set[str] = set()
        self._listed: set[str] = set()
        self._asked: set[str] = set()  # whether it is there, or how large or old
        sys.addaudithook(self._see)  # for good, as what follows: the process ends with the file
        stat = os.stat

        @functools.wraps(stat)
        def seen(path: Any, *args: Any, **settings: Any) -> os.stat_result:
            _note(self._asked, path)
            return stat(path, *args, **settings)

        os.stat = seen

    def accesses(self) -> tuple[list[str], list[str]]:
        """The files read and the folders listed up to now: paths within the bundle, with `/`, sorted; `""` is its root. A
        file that was looked for and is not there counts as its folder: what the file does depends on what that holds."""
        opened, listed, asked = map(self._inside, (self._opened, self._listed, self._asked))
        opened |= {name for name in asked if not (self._root / name).is_dir()}
        read = {name for name in opened if (self._root / name).is_file()}
        listed |= {self._nearest_folder(name) for name in opened - read}
        return sorted(read), sorted(listed)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            _note(self._opened, args[0])
        elif event in _LISTING and sys._getframe(1).f_code.co_filename not in _IMPORT_SYSTEM:
            _note(self._listed, args[0])

    def _inside(self, paths: set[str]) -> set[str]:
        roots = {str(self._root), os.path.realpath(self._root)}
        every = list(paths)  # threads of the file may still be at it
        return {path[len(root) + 1 :] for path in every for root in roots if f"{path}/".startswith(f"{root}/")}

    def _nearest_folder(self, name: str) -> str:
        while name and not (self._root / name).is_dir():
            name = os.path.dirname(name)
        return name


def _note(paths: set[str], path: Any) -> None:
    """`path` as it is meant now: the file may change its folder later. A descriptor (int) has been opened before."""
    if isinstance(path, int):
        return
    # No path, or none that means anything here; the call itself will fail.
    with suppress(OSError, TypeError, ValueError):
        paths.add(os.path.abspath(os.fsdecode("." if path is None else path)))
