"""Sets of whole numbers as ranges, `1-5,9`: a hundred thousand neighbouring items are one range, never a list of numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

Ranges = tuple[tuple[int, int], ...]  # both ends included, in order, with a gap between any two

RANGE_PATTERN: Final = r"(0|[1-9][0-9]{0,14})(?:-([1-9][0-9]{0,14}))?"


def read_range(text: str) -> tuple[int, int]:
    """`5` or `5-20`; `ValueError` with what is wrong."""
    found = re.fullmatch(RANGE_PATTERN, text.strip())
    if found is None:
        raise ValueError(f"must be a number such as 5, or a range such as 5-20, not {text[:40]!r}")
    first, last = int(found[1]), int(found[2] or found[1])
    if first > last:
        raise ValueError(f"must begin with the lower number, {last}-{first}, not {text[:40]!r}")
    return first, last


def read_ranges(texts: Iterable[str]) -> Ranges:
    """`["1-5", "9"]`, in any order; `ValueError` for the first that is no range."""
    return merged(read_range(text) for text in texts)


def merged(pairs: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def range_texts(ranges: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """As `read_ranges` reads them."""
    return tuple(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def count_numbers(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def is_in(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    at = bisect_right(ranges, number, key=lambda one: one[0]) - 1
    return at >= 0 and number <= ranges[at][1]


def widened(ranges: Ranges, there: Iterable[int]) -> Ranges:
    """The fewest ranges that hold all of `there` (in order) that `ranges` hold, and none of the others of them: of a thousand
    chosen failures, when they are all that there are, one."""
    found: list[tuple[int, int]] = []
    is_open = False
    for number in there:
        if not is_in(number, ranges):
            is_open = False
        elif is_open:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
            is_open = True
    return tuple(found)
