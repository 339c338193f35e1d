"""Masks texts: log lines, errors, reasons, code."""

from __future__ import annotations

import re

from backfill_manager.masking import patterns
from backfill_manager.masking.known import Known, known_pattern
from backfill_manager.masking.names import COUNTS, HINTS, MASK, LazyPattern, is_secret, starts_of_names
from backfill_manager.masking.open_values import OpenValues, without_blocks
from backfill_manager.masking.sql import mask_sql


def mask_text(text: str, more: tuple[Known, ...] = ()) -> str:
    """`password=x` -> `password=***`, `"token": "x"` -> `"token": "***"`, `s3://key:secret@host` -> `s3://***@host`, and values
    of secret variables of the environment (and these `more`) wherever they are."""
    text = _without_known(text, more)
    lower = text.lower()
    if not any(one in lower for one in HINTS):
        return text
    for pattern in (patterns.BEARER, patterns.COOKIE, patterns.ELEMENT, patterns.PRIVATE_KEY, *patterns.COMMANDS):
        text = pattern.sub(rf"\1{MASK}", text)
    for pattern in (patterns.AUTH, patterns.IDENTIFIED):
        text = pattern.sub(_hidden, text)
    if starts_of_names(text):
        for pattern in (patterns.PAIR, patterns.OPTION, patterns.TABBED):
            text = pattern.sub(_hidden, text)
        text = _hidden_at_names(
            without_blocks(text), (patterns.BEHIND, patterns.COMPARED, patterns.AMONG, patterns.IN_PLAN, patterns.NAMED)
        )
        text = patterns.ALIASED.sub(_hidden_alias, text)
    return _without_compared(text)


def mask_code(code: str, more: tuple[Known, ...] = ()) -> str:
    """The same for source code, where what stands behind a name is a secret only if it is a literal text, or within one
    or a comment (an address of a database, a header)."""
    code = _without_known(code, more)
    if "\n" in code:
        code = "\n".join(map(OpenValues(is_code=True).masked, code.split("\n")))
    code = patterns.TEXT_OF_CODE.sub(_masked_text_of_code, code)
    for pattern in (patterns.PAIR, patterns.AUTH, patterns.IDENTIFIED):
        code = pattern.sub(_hidden, code)
    code = _hidden_at_names(code, (patterns.BEHIND, patterns.COMPARED, patterns.AMONG, patterns.NAMED_LITERAL))
    code = patterns.ALIASED.sub(_hidden_alias, code)
    return _without_compared(code) if patterns.SQL_FILE.match(code) else code


def _without_known(text: str, more: tuple[Known, ...] = ()) -> str:
    """Without what is a secret whatever it stands behind: known values, and what lets one in at a URL."""
    if (known := known_pattern(more)) is not None:
        text = known.sub(MASK, text)
    if "://" in text:
        text = patterns.USER_AND_PASSWORD.sub(MASK, text)
        for pattern in (patterns.USER_OF_HTTP, patterns.SIGNATURE, patterns.KNOWN_WEBHOOK):
            text = pattern.sub(rf"\1{MASK}", text)
    return patterns.ORACLE.sub(rf"\1{MASK}", text) if "jdbc:" in text else text


def _hidden_at_names(text: str, patterns: tuple[LazyPattern, ...]) -> str:
    """The text after `pattern.sub(_hidden, text)` with one after another, each of which begins with a name."""
    starts = starts_of_names(text)
    for pattern in patterns:
        shown, end = [], 0
        for start in starts:
            if start >= end and (found := pattern.match(text, start)):
                shown += [text[end:start], _hidden(found)]
                end = found.end()
        if shown and (changed := "".join([*shown, text[end:]])) != text:
            text, starts = changed, starts_of_names(changed)
    return text


def _hidden(found: re.Match[str]) -> str:
    before, value, groups = found["before"], found["value"], found.groupdict()
    plain = groups["quoted"] if groups.get("quote") else value
    is_filled_in = plain.startswith("{") and patterns.PLACE.fullmatch(plain)  # `f"token={token}"`
    is_number = patterns.NUMBER.fullmatch(value) and COUNTS.search(before)
    is_folder = value.startswith("/") and patterns.WORKING_DIRECTORY.search(before)
    if (
        is_number
        or is_folder
        or is_filled_in
        or patterns.NOT_SECRET.fullmatch(plain)
        or (before.endswith(" = ") and patterns.CALL.match(value))
    ):
        return found[0]
    if quote_mark := groups.get("quote"):  # `b'x'` and `SecretStr('x')` are such texts, too
        return f"{before}{value[: value.index(quote_mark) + len(quote_mark)]}{MASK}{quote_mark}"
    marks = re.match(r"""\\*["']""", value)
    return f"{before}{marks[0]}{MASK}{marks[0]}" if marks else f"{before}{MASK}"


def _hidden_alias(found: re.Match[str]) -> str:
    shown = found[0] if patterns.NOT_SECRET.fullmatch(found["quoted"]) else None
    return shown or f"{found['quote']}{MASK}{found['quote']}{found['after']}"


def _masked_text_of_code(found: re.Match[str]) -> str:
    """Of a text of Python, by what it is within its quotation marks, which may be SQL."""
    masked = mask_text(found[0])
    marks = found[0][:3] if found[0][:3] in ('"""', "'''") else found[0][:1]
    if marks[0] not in "\"'" or not masked.startswith(marks):
        return masked
    return f"{marks}{_without_compared(masked.removeprefix(marks).removesuffix(marks))}{marks}"


def _without_compared(text: str) -> str:
    return mask_sql(text, _names_secret, _masked_literal)


def _names_secret(name: str) -> bool:
    return is_secret(name.rpartition(".")[2])


def _masked_literal(literal: str) -> str:
    return literal if patterns.NOT_SECRET.fullmatch(literal[1:-1]) else f"{literal[0]}{MASK}{literal[-1]}"
