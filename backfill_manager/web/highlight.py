"""Code as lines of HTML with a class for each kind of token. Pygments tells them apart; `app.css` has the colours, as the content
security policy refuses inline styles."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers.data import YamlLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer
from pygments.lexers.sql import SqlLexer

MAX_CHARACTERS: Final = 300_000  # a longer text has no colours
_LEXERS: Final[dict[str, type[Lexer]]] = {
    ".py": PythonLexer, ".sql": SqlLexer, ".sh": BashLexer, ".yaml": YamlLexer, ".yml": YamlLexer,
}  # fmt: skip
_FORMATTER: Final = HtmlFormatter(nowrap=True, classprefix="t-")  # its elements never go over the end of a line


def code_lines(text: str, file: str) -> list[Markup]:
    """The lines of a text; `file` ends as files of its language do (`.sql`). Of an unknown language they have no colours."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    lexer = _LEXERS.get(PurePath(f"x{file}").suffix)
    if lexer is None or len(text) > MAX_CHARACTERS:
        return [escape(line) for line in text.split("\n")]
    html = highlight(text, lexer(stripnl=False, ensurenl=False), _FORMATTER)
    return [Markup(line) for line in html.removesuffix("\n").split("\n")]
