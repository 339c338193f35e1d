"""Regular expressions from outside, which choose tasks and DAGs by their ids.

Python's engine tries every way in which an expression may fit before it says no, and holds the interpreter meanwhile:
`(a+)+$` on forty letters stops a server, or the manager, for years. So an expression is measured before it is used: how
many ways there are at most, over an id of full length. It is a bound from above; what stays below it is answered at once.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.errors import InvalidInput

LONGEST_EXPRESSION: Final = 1000  # characters
LONGEST_ID: Final = 200  # of a task or DAG, see dags.keywords
MAX_BACKTRACKS: Final = (
    10_000_000  # about a tenth of a second for the longest id, a thousandth for one of forty letters
)
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

Nodes = Sequence[tuple[Any, Any]]  # of the parsed expression: what it is, and its arguments


def check_expression(option: str, text: str) -> None:
    """`InvalidInput` for what is no regular expression, is longer than 1000 characters, or may take too long."""
    if len(text) > LONGEST_EXPRESSION:
        raise InvalidInput(
            f"{option} holds {len(text):,} characters; a regular expression may have {LONGEST_EXPRESSION:,}"
        )
    try:
        re.compile(text)
        ways = LONGEST_ID * _ways_of_all(_without_an_end_that_always_fits(_parser.parse(text)))
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{option} {text[:60]!r} is not a regular expression: {error}") from None
    if ways > MAX_BACKTRACKS:
        raise InvalidInput(
            f"{option} {text[:60]!r} could take very long: a repetition within another, or too many of them one after the "
            "other. It is looked for anywhere in an id, so `.*` is not needed at its ends"
        )


def _without_an_end_that_always_fits(nodes: Nodes) -> Nodes:
    """`clean.*`: at the end what may match nothing never fails, so nothing is tried again because of it."""
    if nodes and str(nodes[-1][0]).endswith("_REPEAT"):
        least, _, inner = nodes[-1][1]
        if least == 0 and _ways_of_all(inner) == 1:
            return nodes[:-1]
    return nodes


def _ways_of_all(nodes: Nodes) -> float:
    return math.prod(_ways(str(op), args) for op, args in nodes)


def _ways(op: str, args: Any) -> float:
    """In how many ways a part may fit, from one place on; infinity for more than can be counted."""
    match op:
        case "BRANCH":
            each = [_ways_of_all(one) for one in args[1]]
            return max(each) if _begin_differently(args[1]) else sum(each)
        case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT":
            return _ways_of_all(args[-1])
        case "ATOMIC_GROUP":
            return _ways_of_all(args)
        case "GROUPREF_EXISTS":
            return _ways_of_all(args[1]) + (_ways_of_all(args[2]) if args[2] else 1)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, inner = args
            return _ways_of_repeat(min(least, LONGEST_ID), min(most, LONGEST_ID), _ways_of_all(inner))
        case _:  # one character, a place, what a group held
            return 1


def _begin_differently(branches: Sequence[Nodes]) -> bool:
    """By a letter each, no two by the same (nor by `a` and `A`): only one of them can fit."""
    first = [one[0] if one else None for one in branches]
    letters = {chr(args).casefold() for op, args in filter(None, first) if str(op) == "LITERAL"}
    return len(letters) == len(branches)


def _ways_of_repeat(least: int, most: int, each: float) -> float:
    if each <= 1:
        return most - least + 1
    total = 0.0
    for times in range(least, most + 1):
        if times * math.log(each) > math.log(MAX_BACKTRACKS):
            return math.inf
        total += each**times
    return total
