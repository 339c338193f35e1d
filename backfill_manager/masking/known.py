"""Values that are secrets wherever they stand: those of `ctx.secret`, those of variables of the environment, and what a JSON
document has under names that look secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, quote_plus

from backfill_manager.masking.names import COUNTS, MASK, is_secret, is_secret_variable

_MIN_LINE_LENGTH: Final = 12  # of a secret of several lines, such as a key, that is printed line by line
_MIN_SECRET_LENGTH: Final = 6  # a shorter value would be found all over a text that has nothing to do with it
_WORDS: Final = frozenset({"default", "disabled", "enabled", "password", "secret", "optional", "required"})


@dataclass(frozen=True, repr=False)
class NamedSecret:
    """A value that is a secret for certain, as `ctx.secret` gives it out: it is masked however short or common it is."""

    value: str

    def __repr__(self) -> str:
        return f"NamedSecret({MASK})"


Known = str | NamedSecret  # a value that is masked wherever it stands
_of_this_process: tuple[Known, ...] = ()


def hide(value: str) -> None:
    """From now on this process masks it, in all that it masks: for the process of one try."""
    global _of_this_process
    _of_this_process = tuple(dict.fromkeys((*_of_this_process, *known_of(value))))


def known_of(value: str) -> tuple[Known, ...]:
    """What is masked of a secret: the value, and where it is a JSON document, what stands there under names that look secret."""
    try:
        document = json.loads(value) if value.lstrip()[:1] in ("{", "[") else None
    except ValueError:
        document = None
    return (NamedSecret(value), *secrets_in(document)) if value.strip() else ()


def secrets_in(value: Any, name: str = "") -> tuple[str, ...]:
    """The texts under names that look secret, for `more` of `mask_text`."""
    return tuple(dict.fromkeys(_secrets_in(value, name, is_secret(name))))


def _secrets_in(value: Any, name: str, hides: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _secrets_in(one, str(key), hides or is_secret(str(key)))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _secrets_in(one, name, hides)
    elif hides and isinstance(value, str):
        yield value
    elif hides and isinstance(value, int) and not isinstance(value, bool) and not COUNTS.search(name):
        yield str(value)


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values of variables whose names look secret."""
    return tuple(environ.get(name, "") for name in environ if is_secret_variable(name))


def known_pattern(more: tuple[Known, ...] = ()) -> re.Pattern[str] | None:
    """Finds what is masked wherever it stands, and these `more`. None: there is nothing."""
    values = secrets_of(os.environ) + _of_this_process + more
    return _any_of(values) if values else None


def longest_known(more: tuple[Known, ...] = ()) -> int:
    """How many characters the longest text has that `mask_text` masks wherever it stands."""
    return max(map(len, _spellings(secrets_of(os.environ) + _of_this_process + more)), default=0)


def without_known(value: Any, known: tuple[Known, ...]) -> Any:
    """A JSON value without these, wherever they stand; nothing else of it is masked."""
    if isinstance(value, dict):
        return {without_known(key, known): without_known(one, known) for key, one in value.items()}
    if isinstance(value, list):
        return [without_known(one, known) for one in value]
    pattern = _any_of(known)
    if pattern is None or isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    shown = pattern.sub(MASK, str(value))  # a number may be a secret, too: a PIN
    return value if shown == str(value) else shown


@lru_cache(maxsize=256)
def _any_of(values: tuple[Known, ...]) -> re.Pattern[str] | None:
    """Finds each of them. One of letters or digits alone has to stand for itself, as it may be part of a word; or is short."""
    parts = [
        rf"(?<![A-Za-z0-9]){re.escape(one)}(?![A-Za-z0-9])" if _may_be_part_of_a_word(one) else re.escape(one)
        for one in _spellings(values)
    ]
    return re.compile("|".join(parts)) if parts else None


@lru_cache(maxsize=256)
def _spellings(values: tuple[Known, ...]) -> list[str]:
    """Each of them as it is, and as Python, JSON and URLs write it; the longest first, as one may be a part of another. Left out
    are those that would hide what is no secret: short ones, words, and paths of files, unless they are secrets for certain."""
    spelled: set[str] = set()
    for known in values:
        is_certain = isinstance(known, NamedSecret)
        value = known.value if isinstance(known, NamedSecret) else known
        if not is_certain and (
            len(value) < _MIN_SECRET_LENGTH or value.lower() in _WORDS or (value[0] == "/" and os.path.exists(value))
        ):
            continue
        spelled |= {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        spelled |= {quote(value, safe=""), quote(value), quote_plus(value)}
        if "\n" in value:
            lines = (line.strip() for line in value.splitlines())
            shortest = _MIN_SECRET_LENGTH if is_certain else _MIN_LINE_LENGTH
            spelled |= {line for line in lines if len(line) >= shortest}
    return sorted(spelled, key=lambda one: (-len(one), one))


def _may_be_part_of_a_word(value: str) -> bool:
    return value.isalpha() or value.isdigit() or len(value) < _MIN_SECRET_LENGTH
