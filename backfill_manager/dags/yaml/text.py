"""The documents of a `*.dag.yaml` file, and errors that are raised at a line of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from backfill_manager.errors import InvalidDag
from backfill_manager.yaml_reader import Document, YamlError, decode, read_documents

T = TypeVar("T")


def at_line(path: Path, line: int, do: Callable[[], T]) -> T:
    """`do()`, called as if by that line of the file: whatever it raises, and whatever shows where a process hangs,
    names file and line as it does for a Python file."""
    call = ast.increment_lineno(ast.parse("do()", mode="eval"), line - 1)
    done: T = eval(compile(call, str(path), "eval"), {"do": do})
    return done


def fail_at(path: Path, line: int, message: str) -> NoReturn:

    def fail() -> NoReturn:
        raise InvalidDag(message) from None

    at_line(path, line, fail)


def text_of(path: Path) -> str:
    """The file's content. `InvalidDag`, raised at the line, for what is not UTF-8."""
    try:
        return decode(path.read_bytes())
    except YamlError as error:
        fail_at(path, error.line, str(error))


def documents_of(path: Path) -> list[Document]:
    """What the file holds, empty documents left out. `InvalidDag`, raised at the line, for what is no good YAML."""
    try:
        documents = read_documents(text_of(path), strict=True)
        for problem in (each for document in documents for each in document.duplicates):
            raise problem
    except YamlError as error:
        fail_at(path, error.line, str(error))
    return [document for document in documents if document.value is not None]
