"""Every command that the product names, in messages, help and pages, is one that `bfm` takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import backfill_manager
from backfill_manager.cli import app

PACKAGE = Path(backfill_manager.__file__).parent
COMMAND = re.compile(r"`(bfm [^`]+)`|\[cyan\](bfm .+?)\[/\]|<code>(bfm [^<]+)</code>", re.DOTALL)
GLOBAL = ("--state", "--server", "--conf", "--output")
MORE = ("…", "...")  # the rest is the reader's


def texts(node: ast.AST) -> Iterator[str]:
    """Each text of a module, what is filled in as `{}`."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def named_commands() -> list[tuple[str, str]]:
    found = set()
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix not in (".py", ".html"):
            continue
        source = path.read_text(encoding="utf-8")
        for text in texts(ast.parse(source)) if path.suffix == ".py" else (source,):
            for match in COMMAND.finditer(text):
                command = " ".join(next(filter(None, match.groups())).split())
                # Which command it is is filled in: see the helps.
                if not re.match(r"bfm (--\w+ \S+ )*(\w+ )?\{\}", command):
                    found.add((str(path.relative_to(PACKAGE)), command))
    for path_of_words, help in helps(typer.main.get_command(app._app([])), "bfm"):
        found |= {(path_of_words, match.group(2)) for match in COMMAND.finditer(help) if match.group(2)}
    return sorted(found)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for word, each in getattr(command, "commands", {}).items():
        yield from helps(each, f"{name} {word}")


def problem_of(command: str, *, may_be_named_only: bool = False) -> str | None:
    """What the real command line has against it. A text may speak of a command without its arguments."""
    filled = re.sub(r"\{\{[^}]*\}\}|(?<!['\"])\{[a-z_]*(![rs])?\}|\bN\b", "1", command.replace("&#39;", "'"))
    words = shlex.split(re.split(r" [>|] ", filled)[0])[1:]
    is_cut = any(word in MORE for word in words)
    words = [word for word in words if word not in MORE]
    while words and words[0] in GLOBAL:
        words = words[2:]
    found: Any = typer.main.get_command(app._app(words))
    while words and hasattr(found, "commands"):
        if words[0] not in found.commands:
            return f"no command {words[0]!r}"
        found, words = found.commands[words[0]], words[1:]
    if hasattr(found, "commands") or is_cut or words == ["--help"]:
        return None  # a group, or a command of which only the beginning is shown
    try:
        found.make_context("bfm", list(words))
    except Exception as error:  # noqa: BLE001 - of Click, which Typer may carry under a name of its own
        if may_be_named_only and type(error).__name__ == "MissingParameter" and all(word[0] == "-" for word in words):
            return None
        return f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return None


def test_there_are_hints_to_check() -> None:
    files = {file for file, _ in named_commands()}
    assert len(named_commands()) > 60
    assert "cli/render/errors.py" in files


@pytest.mark.parametrize(("file", "command"), named_commands())
def test_a_command_that_is_named_is_a_valid_one(file: str, command: str) -> None:
    assert problem_of(command, may_be_named_only=file != "cli/render/errors.py") is None


@pytest.mark.parametrize(
    "command",
    [
        "bfm backfills list",
        "bfm backfill watch",
        "bfm runs list --sate x",
        "bfm backfill create {dag} --max-active-runs x",
    ],
)
def test_a_command_that_is_wrong_is_found(command: str) -> None:
    assert problem_of(command) is not None
