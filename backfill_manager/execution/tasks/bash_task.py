"""A `bash` task: a command in a process of its own, within the process of the task.

    values of the run ─► environment ─► bash -euo pipefail -c COMMAND ─► lines of the log, exit code ─► outcome

Nothing of a run is ever part of the command: it comes as variables (`BFM_INTERVAL_START`, `BFM_PARAM_X`), which bash does not
read as code. The last line that it prints is the task's result.
"""

from __future__ import annotations

import errno
import json
import os
import re
import selectors
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.errors import BackfillManagerError, InvalidInput, shorten
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.tasks.spark_executor_runtime import MAX_RESULT_CHARS, TaskSkipped
from backfill_manager.masking import mask_text
from backfill_manager.processes.printed_lines import Piece, PipeLines, end_of_piece

LINES_OF_ERROR: Final = 3  # the last ones of standard error
MAX_LINE_OF_ERROR: Final = 150  # characters of each
_STOPPED: Final = b"s"  # to the thread that reads
_BASH: Final = ("bash", "-euo", "pipefail", "-c")


class BashFailed(BackfillManagerError):
    """The command ended with an exit code that is not 0; one line, with the last of what it said."""


def run_bash(
    launch: TaskLaunch, log: Callable[[str, str], None], find_secret: Callable[[str], str], bundle: Path
) -> str | None:
    """Runs the command of the task to its end; returns the last line that it printed. `TaskSkipped` for its `skip_exit_code`,
    `BashFailed` for any other but 0. `bundle`: the folder of its version's files."""
    task = launch.task
    environ = {**os.environ, **variables(launch, bundle), **dict(task.env)}
    environ |= {name: find_secret(secret) for name, secret in task.secrets}
    with tempfile.TemporaryDirectory(prefix="bfm-bash-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) if task.cwd is None else bundle / task.cwd
        if not folder.is_dir():
            raise InvalidInput(f"cwd: {task.cwd} is no folder of the bundle, nor of this machine")
        known = launch.secrets
        code, printed, said = _run(task.bash or "", folder, environ, log, partial(end_of_piece, known=known))
    if os.path.lexists(scratch):  # a file of another user (`sudo`), or something still writes there
        log("WARNING", f"not all that it has left in {scratch} could be deleted")
    if code == 0:
        if printed and len(_as_json(printed)) > MAX_RESULT_CHARS:
            log(
                "WARNING",
                f"its last line is longer than a result may be ({MAX_RESULT_CHARS:,} characters); it has none",
            )
            return None
        return printed
    if code == task.skip_exit_code:
        raise TaskSkipped(f"ended with exit code {code}")
    ending = _ending(code)
    # Whole: no part of one is left.
    last = " / ".join(shorten(mask_text(line, known), MAX_LINE_OF_ERROR) for line in said)
    raise BashFailed(f"ended with {ending}: {last}" if last else f"ended with {ending}")


def variables(launch: TaskLaunch, bundle: Path) -> dict[str, str]:
    """What the command knows of its run. Of a param that is no text, the JSON; of null, nothing. What the run has not, is not
    set."""
    run, ti = launch.run, launch.ti
    start, end = launch.interval or (None, None)
    values = {
        "DAG_ID": ti.dag_id, "TASK_ID": ti.task_id, "RUN_ID": ti.run_id, "RUN_TYPE": run.run_type,
        "TRY_NUMBER": str(ti.try_number), "LOGICAL_DATE": format_instant(run.logical_date),
        "INTERVAL_START": format_instant(start), "INTERVAL_END": format_instant(end),
        "PARTITION_KEY": run.partition_key, "TIMEZONE": launch.dag.timezone,
        "BUNDLE": str(bundle), "MAPPED_VALUE": _text(mapped) if (mapped := launch.task.mapped_value) is not None else None,
    }  # fmt: skip
    found = {f"BFM_{name}": value for name, value in values.items() if value is not None}
    names: dict[str, str] = {}
    for name, value in launch.params.items():
        variable = "BFM_PARAM_" + re.sub(r"[^A-Za-z0-9_]", "_", name).upper()
        if (other := names.setdefault(variable, name)) != name:
            raise InvalidInput(f"params {other} and {name} are both {variable}; name one of them otherwise")
        found[variable] = _text(value)
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _as_json(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _run(
    command: str, folder: Path, environ: Mapping[str, str], log: Callable[[str, str], None], cut: Callable[[str], int]
) -> tuple[int, str | None, list[str]]:
    """Its exit code, the last line on standard output, and the last ones on standard error."""
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    printed = _Lines(out, lambda line: log("INFO", line), cut, keep=1)
    said = _Lines(err, lambda line: log("WARNING", line), cut, keep=LINES_OF_ERROR)
    process, is_stopped = None, False
    try:
        with _reading(printed, said) as take_unfinished_lines:
            try:
                process = _start(command, folder, environ, to_out, to_err)
                process.wait()
            except BaseException:  # it is stopped, by what this module can't import
                if process is None:
                    raise
                is_stopped = True
                # The command may end well, until the manager kills this process and all below it.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGTERM)
                take_unfinished_lines()
                process.wait()
    finally:
        if process is not None and not (printed.is_closed and said.is_closed):  # by what it has left behind
            with suppress(ProcessLookupError, PermissionError):  # of another user: `sudo`
                os.killpg(process.pid, signal.SIGKILL)
        os.close(out)
        os.close(err)
    if is_stopped:
        how = f"ended with {_ending(process.returncode)} after it was stopped"
        log("WARNING", f"the command {how}")
        raise BashFailed(how)
    return process.returncode, next(iter(printed.last), None), list(said.last)


def _start(command: str, folder: Path, environ: Mapping[str, str], out: int, err: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [*_BASH, command], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise InvalidInput("there is no bash on this machine") from None
    except ValueError as error:  # of a zero byte
        raise InvalidInput(f"the command or a variable can't be handed to bash: {error}") from None
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        name, value = max([("the command", command), *environ.items()], key=lambda one: len(one[1]))
        limits = "Linux takes 128 KB of each, and usually 2 MB of all"
        longest = f"{name} has {len(os.fsencode(value)):,} bytes"
        raise InvalidInput(f"the command and its variables are too long for the system ({limits}): {longest}") from None
    finally:
        os.close(out)
        os.close(err)


@contextmanager
def _reading(*streams: _Lines) -> Iterator[Callable[[], object]]:
    """Logs their lines until the end of the block. A thread of its own does: a stop is raised in this one, anywhere, and lines
    that it had read would be lost. What it gives logs also lines that have no end yet, as the command may be killed."""
    ended, end = os.pipe()
    reader = threading.Thread(target=_read_until_ended, args=(ended, streams), name="bfm bash", daemon=True)
    reader.start()
    try:
        yield lambda: os.write(end, _STOPPED)
    finally:
        os.close(end)
        reader.join()


def _read_until_ended(ended: int, streams: tuple[_Lines, ...]) -> None:
    """Until the pipe `ended` is closed. What the command has left behind may hold its streams open: it is not waited for."""
    has_ended = False
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for stream in streams:
                if not stream.is_closed:
                    selector.register(stream.end, selectors.EVENT_READ, stream)
            while not has_ended:
                for key, _ in selector.select():
                    if key.data is None:
                        has_ended = os.read(ended, 1) != _STOPPED
                        for stream in () if has_ended else streams:
                            stream.take(stream.rest())
                        continue
                    key.data.take(key.data.read() or ())
                    if key.data.is_closed:
                        selector.unregister(key.fileobj)
    finally:
        os.close(ended)
    for stream in streams:
        stream.take(stream.drain())


class _Lines(PipeLines):
    """The lines of a stream; the last ones that are not empty are kept."""

    def __init__(self, end: int, on_line: Callable[[str], None], cut: Callable[[str], int], *, keep: int) -> None:
        super().__init__(end, cut)
        self._on_line = on_line
        self.last: deque[str] = deque(maxlen=keep)
        self._has_begun = False  # the last of them: what comes next belongs to it

    def take(self, pieces: Iterable[Piece]) -> None:
        for text, is_end in pieces:
            self._on_line(text)
            begun = self.last.pop() if self._has_begun else ""
            line = begun if len(begun) > MAX_RESULT_CHARS else begun + text
            self._has_begun = not is_end
            if self._has_begun or line.strip():
                self.last.append(line if self._has_begun else line.strip())


def _ending(code: int) -> str:
    name = next((one.name for one in signal.Signals if one == -code), "unknown")
    return f"signal {-code} ({name})" if code < 0 else f"exit code {code}"
