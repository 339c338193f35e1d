"""The text of a `*.dag.yaml` file as plain values, each with the line it stands on.

Plain scalars mean what they look like. YAML 1.1, which PyYAML reads, knows more: `12:30` is 750 there, `no` is False,
`010` is 8 and `2013-01-01` a date. A date here is its text, as in YAML 1.2; the others are refused with a word on
quotes, because whoever wrote one meant something else. So this file, a JSON Schema and an editor see the same values.

Anchors, aliases and merge keys (`<<`) work. What an alias stands for is counted each time it is used: a few lines
that unfold to a billion values are refused before they do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from backfill_manager.errors import InvalidDag

T = TypeVar("T")
Place = tuple[str | int, ...]

LARGEST: Final = 2_000_000  # characters of all values, each counted with
PER_VALUE: Final = 10  # more for the value itself
_CORE: Final = "tag:yaml.org,2002:"
_PLAIN_NUMBER: Final = {
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)"),
    "float": re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE),
}
_HINTS: Final = {  # by a part of what PyYAML says
    "character '\\t'": "; indent with spaces, not with tabs",
    "cannot start any token": "; put the text in quotes, as in '@daily'",
    "an alias": "; a text that begins with * needs quotes, as in '* * * * *'",
    "mapping values are not allowed": "; a text with a colon and a blank in it needs quotes",
}


def at_line(path: Path, line: int, do: Callable[[], T]) -> T:
    """`do()`, called as if by that line of the file: whatever it raises, and whatever shows where a process hangs,
    names file and line as it does for a Python file."""
    call = ast.increment_lineno(ast.parse("do()", mode="eval"), line - 1)
    done: T = eval(compile(call, str(path), "eval"), {"do": do})
    return done


@dataclass
class Document:
    """One document of a file: its value, and the line of each key and list entry in it (`()`: of the whole)."""

    path: Path
    value: Any = None
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Its own, else that of what is around it: what a merge key brought stands elsewhere."""
        return next(self.lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in self.lines)

    def at(self, place: Place, do: Callable[[], T]) -> T:
        """See `at_line`."""
        return at_line(self.path, self.line(place), do)

    def wrong(self, place: Place, message: str) -> NoReturn:
        """`InvalidDag`, raised there."""
        _raise(self.path, self.line(place), message)


def documents_of(path: Path) -> list[Document]:
    """What the file holds, empty documents left out. `InvalidDag`, raised at the line, for what is no good YAML."""
    import yaml  # type: ignore[import-untyped]

    text = _text_of(path)
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
        read = [_Reading(path).document(node) for node in nodes]
    except yaml.YAMLError as error:
        _raise(path, _line_of(error, text), f"not valid YAML: {_problem(error)}")
    except RecursionError:
        _raise(path, 1, "its lists and mappings are nested too deeply to be read")
    return [document for document in read if document.value is not None]


def _text_of(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        _raise(path, line, f"not UTF-8 text: there is a byte 0x{content[error.start]:02x}; save the file as UTF-8")


def _raise(path: Path, line: int, message: str) -> NoReturn:
    def refuse() -> NoReturn:
        raise InvalidDag(message) from None

    at_line(path, line, refuse)


def _line_of(error: Any, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    return text[: getattr(error, "position", 0)].count("\n") + 1  # a character that YAML doesn't allow


def _problem(error: Any) -> str:
    character = getattr(error, "character", None)
    if character is not None:
        return f"the character U+{ord(character) if isinstance(character, str) else character:04X} is not allowed"
    said = ", ".join(part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    told = said or " ".join(str(error).split())
    hint = next((hint for sign, hint in _HINTS.items() if sign in told), "")
    return told + hint


class _Reading:
    """One document's nodes being made values."""

    def __init__(self, path: Path) -> None:
        self._into = Document(path)
        self._open: list[Any] = []  # nodes that we are inside of
        self._size = 0

    def document(self, node: Any) -> Document:
        self._into.value = self._value(node, ())
        return self._into

    def _value(self, node: Any, place: Place) -> Any:
        import yaml

        self._into.lines.setdefault(place, node.start_mark.line + 1)
        self._count(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if any(node is outer for outer in self._open):
            self._wrong(node, "an alias stands inside of what it stands for")
        self._open.append(node)
        if isinstance(node, yaml.SequenceNode):
            self._plain_tag(node, "seq")
            value: Any = [self._value(each, (*place, n)) for n, each in enumerate(node.value)]
        else:
            self._plain_tag(node, "map")
            value = self._mapping(node, place)
        self._open.pop()
        return value

    def _mapping(self, node: Any, place: Place) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _CORE + "merge":
                for source in self._merged(value_node):
                    merged = {**source, **merged}
                    self._into.lines.update({(*place, key): line for key in source if key not in own})
                continue
            key = self._key(key_node)
            at: Place = (*place, key)
            if key in own:
                self._wrong(key_node, f"{key!r} is here twice; first on line {self._into.lines[at]}")
            self._into.lines[at] = line
            own[key] = self._value(value_node, at)
        return {**merged, **own}

    def _merged(self, node: Any) -> Iterator[dict[str, Any]]:
        import yaml

        for each in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            source = self._value(each, ("<<",))
            if not isinstance(source, dict):
                self._wrong(each, "`<<` takes in a mapping, or a list of mappings")
            yield source

    def _key(self, node: Any) -> str:
        import yaml

        self._count(node)
        key = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        if not isinstance(key, str):
            shown = node.value if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            self._wrong(node, f"a key must be text, and {shown} is none in YAML; put it in quotes")
        return key

    def _scalar(self, node: Any) -> Any:
        text, tag = node.value, node.tag.removeprefix(_CORE)
        if tag in {"str", "timestamp", "value", "merge"}:
            return self._text(node, text)
        if tag == "null":
            return None
        if tag == "bool":
            return self._truth(node, text)
        if tag in _PLAIN_NUMBER:
            return self._number(node, text, tag)
        self._wrong(node, f"{_tag(node)} is a type that is not read here; leave it out")

    def _text(self, node: Any, text: str) -> str:
        """JSON writes a character beyond the first 65,536 as a pair of escapes, which PyYAML leaves as two halves."""
        if text.isascii():
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._wrong(node, "a text holds half a character: an escape from \\ud800 to \\udfff without the other")

    def _truth(self, node: Any, text: str) -> bool:
        meant = text.lower() in {"true", "yes", "on"}
        if text.lower() not in {"true", "false"}:
            told = str(meant).lower()
            self._wrong(node, f"{text} without quotes is {told} in YAML; write {told}, or '{text}' if it is a text")
        return meant

    def _number(self, node: Any, text: str, tag: str) -> int | float:
        import yaml

        reader = yaml.constructor.SafeConstructor()
        try:
            meant: int | float = reader.construct_yaml_int(node) if tag == "int" else reader.construct_yaml_float(node)
        except (ValueError, IndexError):
            self._wrong(node, f"{text[:60]!r} is not a number that can be read")
        if not _PLAIN_NUMBER[tag].fullmatch(text):
            self._wrong(
                node, f"{text} without quotes is the number {meant} in YAML; write {meant}, or '{text}' if it is a text"
            )
        return meant

    def _plain_tag(self, node: Any, kind: str) -> None:
        if node.tag != _CORE + kind:
            self._wrong(node, f"{_tag(node)} is a type that is not read here; leave it out")

    def _count(self, node: Any) -> None:
        self._size += PER_VALUE + (len(node.value) if isinstance(node.value, str) else 0)
        if self._size > LARGEST:
            self._wrong(
                node, "the document holds too much (each use of an alias counts); keep data in a file of its own"
            )

    def _wrong(self, node: Any, message: str) -> NoReturn:
        _raise(self._into.path, node.start_mark.line + 1, message)


def _tag(node: Any) -> str:
    tag: str = node.tag
    return f"!!{tag.removeprefix(_CORE)}" if tag.startswith(_CORE) else tag
