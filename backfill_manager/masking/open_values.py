"""Secrets of several lines: a private key, a text in quotation marks, a value or a block of YAML. Lines keep their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from backfill_manager.masking.names import HINTS, MASK, NAME, LazyPattern, is_secret, starts_of_names
from backfill_manager.masking.patterns import BEGIN_KEY

# `password: |` of YAML, whose value is the lines below it that are indented more; as a text of Python or JSON writes it, too.
_BLOCK_MARK: Final = re.compile(r":[ \t]{1,9}(?:[!&]\S{1,100}[ \t]{1,9})?[|>][+-]?\d?[+-]?(?:[ \t]+#.*|\s*)\Z")
_KEY_OF_BLOCK: Final = re.compile(rf"""{NAME}["']?[ \t]{{0,9}}\Z""")
_KEY_ALONE: Final = re.compile(r"""[ ]*(?:[-?][ ]+)*(?=["']?[\w. -]{1,120}["']?[ \t]*\Z)""")
_END_OF_LINE: Final = re.compile(r"(\n|\\{1,8}n)")
_END_OF_TEXT: Final = re.compile(r"""(?<!\\)["']|\Z""")
# What may stand on a line of a key: base64, `Proc-Type: 4,ENCRYPTED`, nothing; as a comment or a text of code, too.
_LINE_OF_KEY: Final = re.compile(
    r"(?:\#|--)?\s?[\"']?(?:[A-Za-z0-9+/=]+|[A-Za-z-]{1,40}: [^\n]{0,200})?(?:\\n)?[\"',]{0,4}"
)
_BEGINS_KEY: Final = LazyPattern(rf"{BEGIN_KEY}[^\n]*\Z")
# A value in quotation marks that do not end on their line.
_OPEN: Final = LazyPattern(
    rf"""(?P<before>{NAME}["'`]?\]?[ \t]{{0,9}}(?:=>|:=|={{1,3}}|:)[ \t]{{0,9}}[bfru]{{0,2}}"""
    r"""(?P<quote>"{3}|'{3}|["']))(?P<rest>(?:\\.|(?!(?P=quote))[^\\])*)\\?\Z"""
)
# `password: first`, alone on its line: lines below it that are indented more go on with the value.
_PLAIN: Final = re.compile(
    r"""(?P<before>[ ]*(?:[-?][ ]+)*)["']?(?P<key>[\w.-]{1,120})["']?:[ ]+[^\s"'|>&*!{\[#%@`].*\Z"""
)
_GOES_ON: Final = re.compile(r"(?![\w.-]+:(?:\s|\Z)|-\s|at\s|File\s).+")
_MAX_OPEN: Final = 60  # lines of one value: its end may be missing


class OpenValues:
    """The lines of a text, one after the other, each masked as far as it is of a secret that an earlier line begins: a private
    key, a text in quotation marks, a value of YAML (not in code, where `token: str` declares a name)."""

    def __init__(self, *, is_code: bool = False) -> None:
        self._is_code = is_code
        self._goes_on: Callable[[str], str | None] | None = (
            None  # masks the next line; None: it is no part of the secret
        )
        self._lines = 0

    def masked(self, line: str) -> str:
        if self._goes_on is not None:
            shown = self._goes_on(line) if self._lines < _MAX_OPEN else None
            self._lines += 1
            if shown is not None:
                return shown
        self._goes_on, self._lines = None, 0
        if "-----BEGIN" in line and _BEGINS_KEY.search(line) and "-----END" not in line:
            self._goes_on = self._of_key
        elif ('"' in line or "'" in line) and (open_ := self._opened(line)):
            quote = open_["quote"]
            self._goes_on = lambda line: self._of_quoted(line, quote)
            return open_["before"] + (MASK if open_["rest"].strip() else open_["rest"])
        elif not self._is_code and ": " in line and (plain := _PLAIN.match(line)) and is_secret(plain["key"]):
            indentation = len(plain["before"])
            self._goes_on = lambda line: _of_plain(line, indentation)
        return line

    def _opened(self, line: str) -> dict[str, str] | None:
        lower = line.lower()
        if not any(one in lower for one in HINTS):
            return None
        for start in starts_of_names(line):
            if found := _OPEN.match(line, start):
                return {**found.groupdict(), "before": line[:start] + found["before"]}
        return None

    def _of_key(self, line: str) -> str | None:
        key, end, after = line.partition("-----END")
        content = key.strip()
        if end:
            self._goes_on = None
        elif not _LINE_OF_KEY.fullmatch(content):
            return None
        shown = _hidden_content(key) if any(map(str.isalnum, content)) else key  # else it is what stands before a line
        return f"{shown}{end}{after}"

    def _of_quoted(self, line: str, quote: str) -> str:
        found = re.match(rf"(?:\\.|(?!{quote})[^\\])*", line)
        end = found.end() if found else 0
        if line.startswith(quote, end):
            self._goes_on = None
        return f"{_hidden_content(line[:end])}{line[end:]}"


def _of_plain(line: str, indentation: int) -> str | None:
    content = line.lstrip(" ")
    return _hidden_content(line) if len(line) - len(content) > indentation and _GOES_ON.fullmatch(content) else None


def _hidden_content(text: str) -> str:
    content = text.strip()
    return text.replace(content, MASK) if content else text


class BlockLines:
    """The lines of a text, one after the other, each masked where it is of the block of a secret: lines keep their numbers."""

    def __init__(self) -> None:
        self._of_key: int | None = None  # the indentation of the key whose block goes on

    def masked(self, line: str) -> str:
        content = line.strip()
        if self._of_key is not None and (not content or len(line) - len(line.lstrip(" ")) > self._of_key):
            return line.replace(content, MASK) if content else line
        mark, self._of_key = _BLOCK_MARK.search(line), None
        if mark and _KEY_OF_BLOCK.search(line, max(0, mark.start() - 120), mark.start()):
            before = _KEY_ALONE.match(line[: mark.start()])
            self._of_key = before.end() if before else 0  # else it is behind the beginning of a text
        return line


def without_blocks(text: str) -> str:
    if "\n" in text:
        text = "\n".join(map(OpenValues().masked, text.split("\n")))
    lines, parts = BlockLines(), _END_OF_LINE.split(text)
    for at in range(0, len(parts), 2):
        end = len(parts[at])
        if at and parts[at - 1] != "\n" and (quote_mark := _END_OF_TEXT.search(parts[at])):
            end = quote_mark.start()
        ended, after = parts[at][:end], parts[at][end:]
        parts[at] = lines.masked(ended) + after
        if after:
            lines = BlockLines()
    return "".join(parts)
