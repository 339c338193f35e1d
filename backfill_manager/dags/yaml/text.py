"""The documents of a `*.dag.yaml` file, and errors that are raised at a line of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from backfill_manager import yaml_reader
from backfill_manager.errors import InvalidDag
from backfill_manager.yaml_reader import Loc, YamlError

T = TypeVar("T")


def at_line(path: Path, line: int, do: Callable[[], T]) -> T:
    """`do()`, called as if by that line of the file: whatever it raises, and whatever shows where a process hangs,
    names file and line as it does for a Python file."""
    call = ast.increment_lineno(ast.parse("do()", mode="eval"), line - 1)
    done: T = eval(compile(call, str(path), "eval"), {"do": do})
    return done


def fail_at(path: Path, line: int, message: str) -> NoReturn:
    """Raises `InvalidDag` at that line of the file."""

    def fail() -> NoReturn:
        raise InvalidDag(message) from None

    at_line(path, line, fail)


@dataclass
class Document:
    """One document of a file."""

    path: Path
    content: yaml_reader.Document

    def at(self, place: Loc, do: Callable[[], T]) -> T:
        """See `at_line`."""
        return at_line(self.path, self.content.line(place), do)

    def wrong(self, place: Loc, message: str) -> NoReturn:
        """Raises `InvalidDag` at the line of `place`."""
        fail_at(self.path, self.content.line(place), message)


def text_of(path: Path) -> str:
    """The file's content. `InvalidDag`, raised at the line, for what is not UTF-8."""
    try:
        return yaml_reader.decode(path.read_bytes())
    except YamlError as error:
        fail_at(path, error.line, str(error))


def documents_of(path: Path) -> list[Document]:
    """What the file holds, empty documents left out. `InvalidDag`, raised at the line, for what is no good YAML."""
    try:
        documents = yaml_reader.read_documents(text_of(path), strict=True)
    except YamlError as error:
        fail_at(path, error.line, str(error))
    for problem in (each for document in documents for each in document.duplicates):
        fail_at(path, problem.line, str(problem))
    return [Document(path, document) for document in documents if document.value is not None]
