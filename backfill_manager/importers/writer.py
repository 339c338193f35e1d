"""Writes a `Draft` as Python text: `write`. What it writes is parsed before it is given, so it is always right Python."""

from __future__ import annotations

import ast
import io
import keyword
import re
import textwrap
import tokenize
from collections.abc import Iterable, Mapping
from typing import Final

from backfill_manager.importers.draft import Block, Code, Draft, DraftDag, DraftTask, Item, Remark

WIDTH: Final = 120
OURS: Final = ("Check", "Param", "condition", "dag", "file", "sql", "task")  # of `backfill_manager`
_STRING_STARTS: Final = {
    getattr(tokenize, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(tokenize, name)
}
_STRING_ENDS: Final = {getattr(tokenize, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(tokenize, name)}


def write(draft: Draft) -> str:
    body = _tidy("\n".join(_lines(draft.items, draft.origin))).strip("\n")
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    ours = [name for name in OURS if name in used]
    parts = [_docstring(draft.doc)] if draft.doc else []
    imports = [text for text in draft.imports if _is_needed(text, used)]
    future = [text for text in imports if text.startswith("from __future__")]
    parts += ["\n".join(future)] if future else []
    others = [text for text in imports if text not in future]
    parts += ["\n".join(others)] if others else []
    parts += [f"from backfill_manager import {', '.join(ours)}"] if ours else []
    gap = "\n" if re.match(r"(#.*\n)*(@|def |class |async def )", body) else ""
    text = _tidy("\n\n".join([*parts, gap + body])).strip() + "\n"
    ast.parse(text)
    return text


def quoted(text: str) -> str:
    """A string literal, in double quotes where that is plain to read; of several lines if it has some."""
    if "\n" in text and '"""' not in text and not text.endswith('"') and _is_plain(text):
        escaped = text.replace("\\", "\\\\")
        return f'"""{escaped}"""'
    return repr(text) if '"' in text or "'" in repr(text)[1:-1] else '"' + repr(text)[1:-1] + '"'


def identifier(name: str, prefix: str, default: str) -> str:
    """A name of Python; it begins with `prefix` where the name itself can't be one."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or default
    return f"{prefix}_{made}" if made[0].isdigit() or keyword.iskeyword(made) else made


def call(function: str, arguments: Iterable[str]) -> str:
    """A call on one line, or with a line for each argument."""
    arguments = list(arguments)
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH - 8 and "\n" not in line:
        return line
    return f"{function}(\n" + "".join(shifted(f"{one},\n", 4) for one in arguments) + ")"


def keywords(settings: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def unparse(node: ast.AST) -> str:
    """Text of Python, with double quotes."""
    text = ast.unparse(node)
    lines = text.splitlines(keepends=True)
    for (row, begin), (last, end) in reversed(_strings(text)):
        line = lines[row - 1]
        if row == last and re.fullmatch(r"f?'[^'\"\\]*'", line[begin:end]):
            lines[row - 1] = line[:begin] + line[begin:end].replace("'", '"') + line[end:]
    return "".join(lines)


def shifted(text: str, by: int) -> str:
    """The text `by` columns further right (left, if negative); lines within a string stay as they are."""
    inside = _lines_in_strings(text)
    shifted_lines = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if number in inside or not line.strip():
            shifted_lines.append(line)
        elif by >= 0:
            shifted_lines.append(" " * by + line)
        else:
            shifted_lines.append(line[min(-by, len(line) - len(line.lstrip(" "))) :])
    return "".join(shifted_lines)


def _lines_in_strings(text: str) -> set[int]:
    """Lines that begin within a string."""
    return {line for (first, _), (last, _) in _strings(text) for line in range(first + 1, last + 1)}


def _strings(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where string literals begin and end: line and column. Those within an f-string are part of it."""
    found: list[tuple[tuple[int, int], tuple[int, int]]] = []
    begun: list[tuple[int, int]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in _STRING_STARTS:
                begun.append(token.start)
            elif token.type in _STRING_ENDS and begun:
                start = begun.pop()
                found += [] if begun else [(start, token.end)]
            elif token.type == tokenize.STRING and not begun:
                found.append((token.start, token.end))
    except (
        tokenize.TokenError,
        IndentationError,
        SyntaxError,
    ):  # a part of a statement: what was seen until there counts
        pass
    return found


def _is_plain(text: str) -> bool:
    return all(char == "\n" or char.isprintable() for char in text)


def _docstring(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    escaped = "".join(char if char == "\n" or char.isprintable() else repr(char)[1:-1] for char in escaped)
    return f'"""{escaped}{" " if escaped.endswith(chr(34)) else ""}"""'


def _is_needed(statement: str, used: set[str]) -> bool:
    [node] = ast.parse(statement).body
    if not isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ):
        return True
    return any(alias.name == "*" or (alias.asname or alias.name).partition(".")[0] in used for alias in node.names)


def _lines(items: Iterable[Item], origin: str) -> Iterable[str]:
    for item in items:
        match item:
            case Remark():
                yield item.todo(origin)
            case Code():
                is_definition = re.match(r"(#.*\n)*(@|def |class |async def )", item.text) is not None
                yield from [""] * is_definition
                yield item.text
                yield from ["", ""] * is_definition
            case Block():
                yield item.header
                yield _indented("\n".join(_lines(item.items, origin)))
            case DraftTask():
                yield _task(item, origin)
            case DraftDag():
                yield f"\n\n{_dag(item, origin)}\n"


def _task(task: DraftTask, origin: str) -> str:
    body = "\n".join([*task.guards, task.body.strip("\n")])
    header = f"def {task.function}(ctx{', ' if task.parameters else ''}{task.parameters}):"
    return f"\n{_decorator('@task', task, task.settings, origin)}\n{header}\n{_indented(body)}\n"


def _dag(dag: DraftDag, origin: str) -> str:
    doc = f"{_docstring(textwrap.indent(dag.doc, '    ').strip())}\n" if dag.doc else ""
    body = doc + "\n".join(_lines(dag.items, origin))
    settings = dict(dag.settings)
    if dag.params:
        default_args = {name: settings.pop(name) for name in ["default_args"] if name in settings}
        settings = {**settings, "params": _mapping(dag.params), **default_args}
    return f"{_decorator('@dag', dag, settings, origin)}\ndef {dag.function}():\n{_indented(body)}\n"


def _mapping(texts: Mapping[str, str]) -> str:
    """A dict on one line, or with a line for each of its items."""
    items = [f"{quoted(name)}: {text}" for name, text in texts.items()]
    line = f"{{{', '.join(items)}}}"
    if len(line) < 80 and "\n" not in line:
        return line
    return "{\n" + "".join(shifted(f"{one},\n", 4) for one in items) + "}"


def _decorator(name: str, of: DraftTask | DraftDag, settings: Mapping[str, str], origin: str) -> str:
    todos = (f"{remark.todo(origin)}\n" for remark in of.remarks)
    return "".join(todos) + (call(name, keywords(settings)) if settings else name)


def _indented(body: str) -> str:
    """What follows a header; `pass` where it has no statement."""
    has_code = any(line.strip() and not line.lstrip().startswith("#") for line in body.splitlines())
    return shifted(body if has_code else f"{body}\npass".lstrip("\n"), 4)


def _tidy(text: str) -> str:
    """At most two empty lines in a row, one within a function, none after a header."""
    inside = _lines_in_strings(text)
    tidied: list[str] = []
    empty = 0
    for number, line in enumerate(text.split("\n"), 1):
        if number not in inside and not line.strip():
            empty += 1
            continue
        if empty and tidied:
            opened = tidied[-1].rstrip().endswith(":") and number - empty - 1 not in inside
            is_top = not line.startswith(" ")
            tidied += [""] * (0 if opened else min(empty, 2 if is_top else 1))
        empty = 0
        tidied.append(line.rstrip() if number not in inside and number + 1 not in inside else line)
    return "\n".join(tidied)
