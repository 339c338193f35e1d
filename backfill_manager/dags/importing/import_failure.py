"""Describes why a DAG file failed to import, for its author: file and line, one sentence, the traceback of their code."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backfill_manager.errors import BackfillManagerError, error_message

MAX_MESSAGE_LENGTH: Final = 500
MAX_TRACEBACK_LENGTH: Final = 20_000
_NULL_BYTES: Final = "source code string cannot contain null bytes"
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
        file = to_utf8(self.file)
        return f"{file}, line {self.line}: {self.message}" if self.line else f"{file}: {self.message}"


def explain(error: BaseException, root: Path, file: str) -> FailedFile:
    """The import error of `file` of the bundle at `root`."""
    from backfill_manager.masking import mask_text

    path = str(root / file)
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    message = _sentence(error, root)
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno
    elif not isinstance(error, BackfillManagerError):
        message += _other_location(error, frames, root, path)
    return FailedFile(file, line, _one_line(mask_text(message)), _user_traceback(error, root))


def explain_dump(dump: str, root: Path, file: str, message: str) -> FailedFile:
    """The same from what `faulthandler` wrote before the process ended: innermost frame first. Only lines of its own
    form are kept (the file can write to the same pipe), and of the frames not those that are our machinery."""
    path = str(root / file)
    line = next((int(found["line"]) for found in _FRAME.finditer(dump) if found["file"] == path), None)
    kept = []
    for one in filter(_DUMPED.fullmatch, dump.splitlines()):
        frame = _FRAME.search(one)
        if frame is None or not frame["file"].startswith((_OURS, *_MACHINERY)):
            kept.append(f"{one}\n")
    text = "".join(kept).replace(f"{root}/", "")
    return FailedFile(file, line, message, text[-MAX_TRACEBACK_LENGTH:])


def to_utf8(text: str) -> str:
    """What can be written everywhere: half a character (of a file's name, of a message) as Python escapes it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _sentence(error: BaseException, root: Path) -> str:
    message_of = error_message(error)
    if isinstance(error, BackfillManagerError):
        return message_of
    if isinstance(error, SystemExit):
        return f"the file ended the process (SystemExit: {message_of or 0}) instead of making its DAGs"
    if isinstance(error, SyntaxError) or message_of == _NULL_BYTES:  # which Python 3.10 has as a ValueError
        text = error.msg if isinstance(error, SyntaxError) else message_of
        is_encoding = "codec can't decode" in text or "null bytes" in text
        return f"{type(error).__name__}: {text}{'; save the file as UTF-8' if is_encoding else ''}"
    if isinstance(error, ModuleNotFoundError) and _is_missing_below(root, error.name or ""):
        return f"{type(error).__name__}: No module named {error.name!r} in the bundle"
    return f"{type(error).__name__}: {message_of}" if message_of else type(error).__name__


def _is_missing_below(root: Path, module: str) -> bool:
    """Whether the package that lacks the module is one of the bundle."""
    package = sys.modules.get(module.rpartition(".")[0])
    places = [getattr(package, "__file__", None), *getattr(package, "__path__", ())]
    return any(Path(place).is_relative_to(root) for place in places if place)


def _other_location(error: BaseException, frames: traceback.StackSummary, root: Path, path: str) -> str:
    """` (helpers.py, line 3)` when another file of the bundle is where it broke."""
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError) and error.filename:
        places = [(error.filename, error.lineno)]
    inside = [(name, line) for name, line in places if Path(name).is_relative_to(root)]
    if not inside or inside[-1][0] == path:
        return ""
    name, line = inside[-1]
    return f" ({Path(name).relative_to(root).as_posix()}, line {line})"


def _user_traceback(error: BaseException, root: Path) -> str:
    """The traceback from their file on, without the frames that are our machinery; files named within the bundle."""
    from backfill_manager.masking import mask_text

    formatted = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [formatted, formatted.__cause__, formatted.__context__]
    for one in filter(None, chain):
        kept = [f for f in one.stack if not f.filename.startswith((_OURS, *_MACHINERY))]
        one.stack = traceback.StackSummary.from_list(kept)
    return to_utf8(mask_text("".join(formatted.format()).replace(f"{root}/", "")))[-MAX_TRACEBACK_LENGTH:]


def _one_line(text: str) -> str:
    """What a terminal would not show, or would obey (escapes), as Python writes it."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))
    return line if len(line) <= MAX_MESSAGE_LENGTH else f"{line[: MAX_MESSAGE_LENGTH - 3]}..."
