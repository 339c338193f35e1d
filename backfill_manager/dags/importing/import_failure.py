"""Why a DAG file could not be loaded, for who wrote it: their file, their line, one sentence, their traceback."""

from __future__ import annotations

import importlib
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.errors import BackfillManagerError, error_message

LONGEST_MESSAGE: Final = 500
LONGEST_TRACEBACK: Final = 20_000
_OURS: Final = str(Path(__file__).parents[2])
_MACHINERY: Final = ("<frozen ", str(Path(importlib.__file__).parent))
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_DUMPED: Final = re.compile(
    r"Timeout \([\d:.]+\)!|Fatal Python error: [\w ]{1,60}"
    r"|(Current thread|Thread) 0x[0-9a-f]+( \[[^\]]{0,20}\])? \(most recent call first\):"
    r'|  File "[^"]{1,500}", line \d{1,9} in \S{1,500}|  (\.\.\.|<no Python frame>)'
)


@dataclass(frozen=True)
class FailedFile:
    """`file` is the path within the bundle; `line` is a line of it."""

    file: str
    line: int | None
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        file = as_text(self.file)
        return f"{file}, line {self.line}: {self.message}" if self.line else f"{file}: {self.message}"


def explain(error: BaseException, root: Path, file: str) -> FailedFile:
    """What happened when `file` of the bundle at `root` was executed."""
    from backfill_manager.masking import mask_environment

    path = str(root / file)
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    message = _sentence(error)
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno
    elif not isinstance(error, BackfillManagerError):
        message += _elsewhere(error, frames, root, path)
    return FailedFile(file, line, _one_line(mask_environment(message)), _theirs(error, root, path))


def explain_dump(dump: str, root: Path, file: str, message: str) -> FailedFile:
    """The same from what `faulthandler` wrote before the process ended: innermost frame first. Only lines of its own
    form are kept (the file can write to the same pipe), and of the frames not those that are our machinery."""
    path = str(root / file)
    line = next((int(found["line"]) for found in _FRAME.finditer(dump) if found["file"] == path), None)
    kept = [one for one in dump.splitlines() if _DUMPED.fullmatch(one) and not _is_ours(one)]
    return FailedFile(
        file, line, message, "".join(f"{one}\n" for one in kept).replace(f"{root}/", "")[-LONGEST_TRACEBACK:]
    )


def as_text(told: str) -> str:
    """What can be written everywhere: half a character (of a file's name, of somebody's message) as Python writes it."""
    return told.encode("utf-8", "backslashreplace").decode()


def _is_ours(line: str) -> bool:
    found = _FRAME.search(line)
    return found is not None and found["file"].startswith((_OURS, *_MACHINERY))


def _sentence(error: BaseException) -> str:
    said = error_message(error)
    if isinstance(error, BackfillManagerError):
        return said
    if isinstance(error, SystemExit):
        return f"the file ended the process (SystemExit: {said or 0}) instead of making its DAGs"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _elsewhere(error: BaseException, frames: traceback.StackSummary, root: Path, path: str) -> str:
    """` (helpers.py, line 3)` when another file of the bundle is where it broke."""
    where: tuple[str, int | None] | None = None
    if isinstance(error, SyntaxError) and error.filename:
        where = (error.filename, error.lineno)
    else:
        inside = [frame for frame in frames if Path(frame.filename).is_relative_to(root)]
        if inside:
            where = (inside[-1].filename, inside[-1].lineno)
    if where is None or where[0] == path or not Path(where[0]).is_relative_to(root):
        return ""
    return f" ({Path(where[0]).relative_to(root).as_posix()}, line {where[1]})"


def _theirs(error: BaseException, root: Path, path: str) -> str:
    """The traceback from their file on, without the frames that are our machinery; files named within the bundle."""
    from backfill_manager.masking import mask_environment

    told = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [told, told.__cause__, told.__context__]
    for one in chain:
        if one is not None:
            kept = [f for f in one.stack if not f.filename.startswith((_OURS, *_MACHINERY))]
            one.stack = traceback.StackSummary.from_list(kept)
    return as_text(mask_environment("".join(told.format()).replace(f"{root}/", "")))[-LONGEST_TRACEBACK:]


def _one_line(text: str) -> str:
    """What a terminal would not show, or would obey (escapes), as Python writes it."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))
    return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 3]}..."
