"""What a process prints, as lines. One that has no end is cut into several, at places across which no secret lies."""

from __future__ import annotations

import codecs
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


class PrintedLines:
    """The lines of one stream. `cut` says how much of a long text to take as a line, as `end_of_piece` does."""

    def __init__(self, cut: Callable[[str], int]) -> None:
        self._cut, self._begun = cut, ""
        # Which only the lines together tell; all else is masked line by line.
        self._open, self._blocks = OpenValues(), BlockLines()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, content: bytes) -> list[str]:
        """Those that are complete with these bytes."""
        return [text for text, _ in self.feed_pieces(content)]

    def feed_pieces(self, content: bytes) -> list[tuple[str, bool]]:
        """The same, each with whether it ends there; else the next one goes on with it."""
        *lines, self._begun = (self._begun + self._decode(content)).split("\n")
        pieces = [(self._masked(line.rstrip("\r")), True) for line in lines]
        while len(self._begun) > MAX_LINE and (end := self._cut(self._begun)):
            pieces.append((self._begun[:end].rstrip("\r"), False))
            self._begun = self._begun[end:]
        return pieces

    def rest(self) -> list[str]:
        """What is left at the end: a line, or none."""
        left, self._begun = self._begun + self._decode(b"", final=True), ""
        return [self._masked(left.rstrip("\r"))] if left else []

    def _masked(self, line: str) -> str:
        return self._blocks.masked(self._open.masked(line))


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
