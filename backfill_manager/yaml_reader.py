"""Reads YAML as plain values, with the line of each key and list entry: for the configuration, manifests and DAG files.

Anchors, aliases and merge keys (`<<`) work. What an alias stands for is counted each time it is used: a few lines that unfold
to a billion values are refused before they do.

`strict` is for DAG files: plain scalars mean what they look like. YAML 1.1, which PyYAML reads, knows more: `12:30` is 750
there, `no` is False, `010` is 8, `1e3` text and `2013-01-01` a date. A date is its text then, as in YAML 1.2; the others are
refused with a hint on quotes, because whoever wrote one meant something else; `1e-06` is a number, as in JSON. So the file, its
JSON Schema and an editor see the same values. The configuration was read as YAML 1.1 from the beginning, and is so still.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

Loc = tuple[str | int, ...]

MAX_SIZE: Final = 2_000_000  # characters of all values, each counted with
_SIZE_OF_A_VALUE: Final = 10  # more for the value itself
_CORE: Final = "tag:yaml.org,2002:"
_PLAIN_NUMBER: Final = {
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE),
}
_SIGNED_EXPONENT: Final = re.compile(r"-?[0-9]+[eE][-+][0-9]+")  # as JSON is written, and nobody writes a text
_HINTS: Final = {  # by a part of PyYAML's message
    "character '\\t'": "; indent with spaces, not with tabs",
    "cannot start any token": "; put the text in quotes, as in '@daily'",
    "an alias": "; a text that begins with * needs quotes, as in '* * * * *'",
    "mapping values are not allowed": "; a text with a colon and a blank in it needs quotes",
}


class YamlError(Exception):
    """What is wrong with a YAML text, and its line (from 1)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class Document:
    """Its value, and the line of each key and list entry (`()`: of the whole). Of `duplicates` the value has the first."""

    value: Any = None
    lines: dict[Loc, int] = field(default_factory=dict)
    duplicates: list[YamlError] = field(default_factory=list)

    def line(self, place: Loc) -> int:
        """Its own, else that of what is around it: what a merge key brought stands elsewhere."""
        return next(self.lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in self.lines)


def decode(content: bytes) -> str:
    """The text of a file. `YamlError` for what is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        byte = content[error.start]
        raise YamlError(line, f"not UTF-8 text: there is a byte 0x{byte:02x}; save the file as UTF-8") from None


def read_documents(text: str, *, strict: bool) -> list[Document]:
    """What a text holds, empty documents left out. `YamlError` for what can't be read."""
    import yaml  # type: ignore[import-untyped]

    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        return [_Reader(strict).document(node) for node in nodes if node is not None]
    except yaml.YAMLError as error:
        raise YamlError(_line_of(error, text), f"not valid YAML: {_problem(error)}") from None
    except RecursionError:
        raise YamlError(1, "its lists and mappings are nested too deeply to be read") from None


def _line_of(error: Any, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    return text[: getattr(error, "position", 0)].count("\n") + 1  # a character that YAML doesn't allow


def _problem(error: Any) -> str:
    character = getattr(error, "character", None)
    if character is not None:
        return f"the character U+{ord(character) if isinstance(character, str) else character:04X} is not allowed"
    parts = ", ".join(part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    message = parts or " ".join(str(error).split())
    return message + next((hint for sign, hint in _HINTS.items() if sign in message), "")


class _Reader:
    """Makes one document's nodes values."""

    def __init__(self, strict: bool) -> None:
        import yaml

        self._strict, self._yaml = strict, yaml
        self._constructor = yaml.constructor.SafeConstructor()
        self._document = Document()
        self._open: list[Any] = []  # nodes around the one that is being read
        self._size = 0

    def document(self, node: Any) -> Document:
        self._document.value = self._value(node, ())
        return self._document

    def _value(self, node: Any, place: Loc) -> Any:
        self._document.lines.setdefault(place, node.start_mark.line + 1)
        self._count(node)
        if isinstance(node, self._yaml.ScalarNode):
            return self._scalar(node)
        if any(node is outer for outer in self._open):
            _fail(node, "an alias stands inside of what it stands for")
        is_list = isinstance(node, self._yaml.SequenceNode)
        if node.tag != _CORE + ("seq" if is_list else "map"):
            _refuse_type(node)
        self._open.append(node)
        value: Any = (
            [self._value(each, (*place, n)) for n, each in enumerate(node.value)]
            if is_list
            else self._mapping(node, place)
        )
        self._open.pop()
        return value

    def _mapping(self, node: Any, place: Loc) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _CORE + "merge":
                is_list = isinstance(value_node, self._yaml.SequenceNode)
                for each in value_node.value if is_list else [value_node]:
                    source = self._value(each, ("<<",))
                    if not isinstance(source, dict):
                        _fail(each, "`<<` takes in a mapping, or a list of mappings")
                    merged = {**source, **merged}
                    self._document.lines.update({(*place, key): line for key in source if key not in own})
                continue
            key = self._key(key_node)
            at: Loc = (*place, key)
            if key in own:
                first = self._document.lines[at]
                self._document.duplicates.append(YamlError(line, f"{key!r} is here twice; first on line {first}"))
                continue
            self._document.lines[at] = line
            own[key] = self._value(value_node, at)
        return {**merged, **own}

    def _key(self, node: Any) -> str:
        self._count(node)
        is_scalar = isinstance(node, self._yaml.ScalarNode)
        key = self._scalar(node) if is_scalar else None
        if is_scalar and not self._strict:
            return str(node.value)
        if not isinstance(key, str):
            shown = node.value if is_scalar else "a list or mapping"
            _fail(node, f"a key must be text, and {shown} is none in YAML; put it in quotes")
        return key

    def _scalar(self, node: Any) -> Any:
        text, tag = node.value, node.tag.removeprefix(_CORE)
        if tag in {"str", "value", "merge"} or (tag == "timestamp" and self._strict):
            if self._strict and _is_number_elsewhere(node):
                if _SIGNED_EXPONENT.fullmatch(text):
                    return float(text)
                _fail(
                    node,
                    f"{text} without quotes is text here and a number in YAML 1.2; write '{text}', or the number in digits",
                )
            return _whole_characters(node, text)
        if tag == "null":
            return None
        if tag not in {"bool", "timestamp", *_PLAIN_NUMBER}:
            _refuse_type(node)
        try:
            value = self._constructor.construct_object(node)
        except (ValueError, IndexError, KeyError) as error:
            why = "is not a number that can be read" if tag in _PLAIN_NUMBER else f"can't be read: {error}"
            _fail(node, f"{text[:60]!r} {why}")
        if self._strict:
            _refuse_surprise(node, value, tag)
        return value

    def _count(self, node: Any) -> None:
        self._size += _SIZE_OF_A_VALUE + (len(node.value) if isinstance(node.value, str) else 0)
        if self._size > MAX_SIZE:
            _fail(node, "the document holds too much (each use of an alias counts); keep data in a file of its own")


def _whole_characters(node: Any, text: str) -> str:
    """JSON writes a character beyond the first 65,536 as a pair of escapes, which PyYAML leaves as two halves."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        _fail(node, "a text holds half a character: an escape from \\ud800 to \\udfff without the other")


def _is_number_elsewhere(node: Any) -> bool:
    """A plain scalar (no quotes, no tag) that YAML 1.1 takes for text and everyone else for a number: `1e3`, `0o17`."""
    is_plain = node.style is None and node.end_mark.index - node.start_mark.index == len(node.value)
    return is_plain and bool(_PLAIN_NUMBER["float"].fullmatch(node.value) or re.fullmatch("0o[0-7]+", node.value))


def _refuse_surprise(node: Any, value: Any, tag: str) -> None:
    """Refuses what is something else in YAML 1.1 than it looks like."""
    text = node.value
    if tag == "bool" and text.lower() not in {"true", "false"}:
        meant = str(value).lower()
        _fail(node, f"{text} without quotes is {meant} in YAML; write {meant}, or '{text}' if it is a text")
    if tag in _PLAIN_NUMBER and not _PLAIN_NUMBER[tag].fullmatch(text):
        _fail(node, f"{text} without quotes is the number {value} in YAML; write {value}, or '{text}' if it is a text")


def _refuse_type(node: Any) -> NoReturn:
    tag = f"!!{node.tag.removeprefix(_CORE)}" if node.tag.startswith(_CORE) else node.tag
    _fail(node, f"{tag} is a type that is not read here; leave it out")


def _fail(node: Any, message: str) -> NoReturn:
    raise YamlError(node.start_mark.line + 1, message)
