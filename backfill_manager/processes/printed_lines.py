"""What a process prints, as lines. One that has no end is cut into several, at places across which no secret lies."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from backfill_manager.masking import BlockLines, Known, OpenValues, longest_known, mask_text

MAX_LINE: Final = 1 << 16  # characters of a line that is printed; a longer one is cut into several
_BEFORE: Final = 4096  # characters before the end of a piece, where a secret and its name may stand
_AFTER: Final = 256  # and behind it, where more of the secret may be
_SEPARATORS: Final = re.compile(r"[\s,;&}\])]")
_MAX_SEPARATORS: Final = 8  # at which it is tried to cut
MAX_DRAIN: Final = 1024  # reads of what is left in a pipe at its end

Piece = tuple[str, bool]  # of a line, and whether the line ends there; else the next one goes on with it


class PrintedLines:
    """The lines of one stream. `cut` says how much of a long text to take as a line, as `end_of_piece` does."""

    def __init__(self, cut: Callable[[str], int]) -> None:
        self._cut, self._begun = cut, ""
        # Which only the lines together tell; all else is masked line by line.
        self._open, self._blocks = OpenValues(), BlockLines()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, content: bytes) -> list[Piece]:
        """Those that are complete with these bytes."""
        *lines, self._begun = (self._begun + self._decode(content)).split("\n")
        pieces = [(self._masked(line.rstrip("\r")), True) for line in lines]
        while len(self._begun) > MAX_LINE and (end := self._cut(self._begun)):
            pieces.append((self._begun[:end].rstrip("\r"), False))
            self._begun = self._begun[end:]
        return pieces

    def rest(self) -> list[Piece]:
        """What is left at the end: a line, or none."""
        left, self._begun = self._begun + self._decode(b"", final=True), ""
        return [(self._masked(left.rstrip("\r")), True)] if left else []

    def _masked(self, line: str) -> str:
        return self._blocks.masked(self._open.masked(line))


class PipeLines(PrintedLines):
    """Those that come out of a pipe. Nothing here waits for them."""

    def __init__(self, end: int, cut: Callable[[str], int]) -> None:
        super().__init__(cut)
        self.end, self.is_closed = end, False
        os.set_blocking(end, False)

    def read(self) -> list[Piece] | None:
        """What has come; None when there is nothing now, or never will be (`is_closed`)."""
        try:
            content = os.read(self.end, 1 << 16)
        except BlockingIOError:
            return None
        self.is_closed = not content
        return self.feed(content) if content else None

    def drain(self) -> list[Piece]:
        """What is there still. The end is not waited for: a process that has escaped may hold it open."""
        pieces: list[Piece] = []
        for _ in range(MAX_DRAIN):
            if (read := self.read()) is None:
                break
            pieces += read
        return pieces + self.rest()


def end_of_piece(text: str, known: tuple[Known, ...] = ()) -> int:
    """How much of a line without end is taken, so that no secret lies across that place; 0: more of the line is needed to say."""
    after = max(_AFTER, longest_known(known))
    if len(text) < MAX_LINE + after:
        return 0
    before = max(_BEFORE, after)

    def is_between_secrets(place: int) -> bool:
        left, right = text[max(0, place - before) : place], text[place : place + after]
        return mask_text(left + right, known) == mask_text(left, known) + mask_text(right, known)

    return next(filter(is_between_secrets, _places(text, len(text) - after, after)), len(text))


def _places(text: str, last: int, step: int) -> Iterator[int]:
    """Where a text may be cut, from the best place on."""
    yield last
    near = range(last - 1, max(0, last - _BEFORE), -1)
    yield from islice((place + 1 for place in near if _SEPARATORS.match(text, place)), _MAX_SEPARATORS)
    while (last := last - step) > 0:
        yield last
        step *= 2
