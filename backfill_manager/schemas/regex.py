"""Regular expressions from outside, which choose tasks and DAGs by their ids.

Python's engine may take years for one (`(a+)+$` on forty letters) and holds the interpreter meanwhile, so they are matched
by RE2, in time linear in the id. RE2 has no look-around and no back-references.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from backfill_manager.schemas import errors

MAX_REGEX_LENGTH = 1000


def check_regex(field: str, text: str) -> None:
    """`InvalidInput` for what is no regular expression, is longer than 1000 characters, or can't be matched by RE2."""
    if len(text) > MAX_REGEX_LENGTH:
        raise errors.REGEX_TOO_LONG(field=field, length=f"{len(text):,}", max=f"{MAX_REGEX_LENGTH:,}")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise errors.NOT_A_REGEX(field=field, pattern=text[:60], reason=str(error)) from None
    if _linear_search(text) is None:
        raise errors.UNSUPPORTED_REGEX(field=field, pattern=text[:60])


def searcher(text: str) -> Callable[[str], object]:
    """A function that is true for the ids in which the expression is found. One of an older release may need Python's
    engine; it was checked for its cost when it was accepted."""
    return _linear_search(text) or re.compile(text).search


@lru_cache(maxsize=256)
def _linear_search(text: str) -> Callable[[str], object] | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        search: Callable[[str], object] = re2.compile(text, options).search
    except re2.error:
        return None
    return search
