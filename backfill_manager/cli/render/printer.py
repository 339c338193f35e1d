"""`Output`: tables for people, one JSON or YAML document for programs.

Standard output carries the result and nothing else; notes (what to do next, what was left out) go to standard error.
Text from the state is never read as markup.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import rich.console
from rich.segment import Segment
from rich.text import Text

from backfill_manager.cli.render.times import Times
from backfill_manager.clock import format_instant
from backfill_manager.humanise import CONTROL, duration, visible

if TYPE_CHECKING:
    from rich.table import Table

Format = Literal["table", "json", "yaml"]
DEFAULT_LIMIT: Final = 50  # rows of a table; documents have all

COLOURS: Final[Mapping[str, str]] = {
    "success": "green", "accepted": "green", "ok": "green", "leading": "green",
    "running": "cyan", "queued": "blue", "scheduled": "blue", "pending": "bright_black", "none": "bright_black",
    "failed": "red", "refused": "red", "wrong": "red", "error": "red", "upstream_failed": "dark_orange", "up_for_retry": "yellow",
    "paused": "yellow", "waiting": "yellow", "warning": "yellow", "cancelled": "magenta", "skipped": "bright_black",
    "overridden": "bright_black", "removed": "bright_black", "stopped": "yellow",
}  # fmt: skip
_STATE_COLUMNS = frozenset({"state", "outcome", "status"})
_NEVER_WRAPPED = _STATE_COLUMNS | {"backfill_id", "request_id", "run_id", "object_id"}
_MAX_TEXT_WIDTH = 60
_MIN_TEXT_WIDTH = 4
_INSTANT_SUFFIX = "_at"  # of fields that hold when something happened; dates and bounds of intervals have other names
_FRACTION = re.compile(r"\.\d+(?=(?:Z|[+-]\d\d:\d\d)\Z)")
_PIPE_WIDTH = 100_000  # a pipe has no width: its reader wants whole values


class Console(rich.console.Console):
    """Writes what a terminal would obey so that it can be seen (`visible`), whatever is printed: texts come from the state."""

    @property
    def is_screen(self) -> bool:
        """Whether it has a width. A pipe has none, also where `FORCE_COLOR`, as in CI, wants colours in it."""
        return self.is_terminal and (self.file.isatty() or "COLUMNS" in os.environ)

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


@dataclass(frozen=True)
class Column:
    """One column of a table: a field of the rows, its heading, and how its values are written."""

    field: str
    heading: str | None = None
    write: Callable[[Any], str] | None = None
    right: bool = False
    fold: bool = False  # long text: may be broken over lines
    optional: bool = False  # left out where the screen is too narrow; `show` and JSON have it
    whole: bool = False  # never broken over lines, as states, ids and numbers
    of: Callable[[Any], Any] | None = None  # makes the value from the whole row

    def value(self, row: Mapping[str, Any]) -> Any:
        return self.of(row) if self.of else row.get(self.field)


COMMIT: Final = Column("commit_id", "commit", lambda commit: commit[:12] if commit else "")
ERROR_COLUMNS: Final = ("file", Column("line", right=True), Column("message", fold=True))


class Output:
    """`times`: in which zone tables have instants; asked when the first table is printed."""

    def __init__(self, form: Format, times: Callable[[], Times] = Times) -> None:
        self.form = form
        self._times = times

    @property
    def is_table(self) -> bool:
        return self.form == "table"

    def print_rows(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column | str], *, empty: str = "Nothing found.",
        limit: int | None = None, document: Any = None, dag_id: str | None = None, as_stored: bool = False,
    ) -> None:  # fmt: skip
        """A list: a table of `columns`, with a note when there may be more than `limit`; or all fields as one document, if not
        another one is named. `dag_id`: of rows that name none. `as_stored`: instants stay in UTC whatever is chosen."""
        if not self.is_table:
            self.print_document(list(rows) if document is None else document)
        elif not rows:
            self.note(empty)
        else:
            shown = rows if as_stored else [self.in_zone(row, dag_id) for row in rows]
            self._print_table(shown, [Column(one) if isinstance(one, str) else one for one in columns])
            if len(rows) == limit:
                self.note(f"The newest {limit}; --limit shows more.")

    def in_zone(self, row: Mapping[str, Any], dag_id: str | None = None) -> dict[str, Any]:
        """The row with its instants in the zone that people have chosen; for programs as it is."""
        return self._times().in_row(row, dag_id) if self.is_table else dict(row)

    def limit(self, typed: int | None) -> int | None:
        """How many rows are read; None: all."""
        return typed or (DEFAULT_LIMIT if self.is_table else None)

    def print_document(self, value: Any) -> None:
        """One JSON or YAML document; JSON also where the format is `table`."""
        plain = as_plain(value)
        if self.form == "yaml":
            import yaml  # type: ignore[import-untyped]

            sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))
        else:
            text = json.dumps(plain, indent=2, ensure_ascii=False)
            # JSON itself escapes the first 32 alone; a terminal obeys others, too.
            sys.stdout.write(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")

    def print_fields(self, resource: Mapping[str, Any], fields: Sequence[tuple[str, Any]] | None = None) -> None:
        """One resource: `fields` (label, value; instants are taken `in_zone`) for people, all of `resource` as a document
        otherwise."""
        if not self.is_table:
            self.print_document(resource)
            return
        pairs = self.in_zone(resource).items() if fields is None else fields
        shown = [(label, value) for label, value in pairs if value not in (None, "", [], {})]
        width = max((len(label) for label, _ in shown), default=0)
        for label, value in shown:
            name = f"{label.replace('_', ' '):<{width}}  "
            self.print_line(Text.assemble((name, "bold"), cell(label, value, None)))

    def print_result(self, document: Mapping[str, Any], text: str | Text) -> None:
        """What was done: a sentence for people, `document` for programs."""
        if self.is_table:
            self.print_line(text)
        else:
            self.print_document(document)

    def print_line(self, text: str | Text) -> None:
        """One line of the result; only for people."""
        if self.is_table:
            # A text of rich's, as it would replace `:book:` in a string by a picture.
            shown = Text(visible(text)) if isinstance(text, str) else text
            Console().print(shown, soft_wrap=True, highlight=False)

    def note(self, text: str, style: str = "") -> None:
        """One line on standard error, in every format."""
        Console(stderr=True).print(Text(visible(text), style=style), soft_wrap=True, highlight=False)

    def _print_table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        console = Console(highlight=False)
        if not console.is_screen:
            console.width = _PIPE_WIDTH
        shown = [one for one in columns if not one.fold or any(one.value(row) is not None for row in rows)]
        wide = console.options.update(max_width=_PIPE_WIDTH)
        while console.measure(table := _table(rows, shown, console), options=wide).maximum > console.width:
            spare = next((column for column in reversed(shown) if column.optional), None)
            if spare is None:
                break
            shown.remove(spare)
        narrowest = _table(rows, shown, console, text_width=_MIN_TEXT_WIDTH)
        # Where not even that fits, the terminal breaks the lines: else columns would vanish, and ids be cut off.
        console.width = max(console.width, console.measure(narrowest, options=wide).maximum)
        console.print(table)


def _table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], console: Console, text_width: int | None = None
) -> Table:
    """`text_width`: at most, of columns that may be broken over lines."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        # On a narrow screen ids, states and numbers stay whole; the rest is broken over lines, never cut off.
        is_whole = column.right or column.whole or column.field in _NEVER_WRAPPED
        folded = _MAX_TEXT_WIDTH if column.fold and console.is_screen else None
        heading = column.heading if column.heading is not None else column.field.replace("_", " ")
        table.add_column(
            Text(visible(heading)),  # of `state sql` somebody's own, which is no markup
            justify="right" if column.right else "left",
            no_wrap=is_whole,
            overflow="fold",
            max_width=folded if text_width is None or is_whole else text_width,
        )
    for row in rows:
        table.add_row(*(cell(column.field, column.value(row), column.write) for column in columns))
    return table


def cell(field: str, value: Any, write: Callable[[Any], str] | None) -> Text:
    if value is None:
        return Text("")
    text = write(value) if write else moment(value) if field.endswith(_INSTANT_SUFFIX) else format_value(value)
    return Text(visible(text), style=COLOURS.get(text, "") if field in _STATE_COLUMNS else "")


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return format_instant(value) or ""
    if isinstance(value, dict | list | tuple):
        return json.dumps(as_plain(value), ensure_ascii=False)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def moment(value: Any) -> str:
    """Formats when something happened, to the second: `2013-01-05T05:00:07Z`; nothing for None. JSON has the fraction. Not
    for an id, a logical date or a bound of an interval: these are typed again to name a run."""
    return "" if value is None else _FRACTION.sub("", format_value(value))


def first_line(value: Any) -> str:
    """The first line of an error, for a table; `show` and JSON have the whole."""
    lines = str(value).strip().splitlines()
    return lines[0] if lines else ""


NOTE: Final = Column("note", None, first_line, fold=True)  # of runs and backfills


def shortened(value: Sequence[Any], limit: int = 5) -> str:
    """`3, 4, 5, 6, 7 and 12 more`."""
    shown = ", ".join(format_value(one) for one in value[:limit])
    return shown if len(value) <= limit else f"{shown} and {len(value) - limit:,} more"


def seconds(value: float) -> str:
    """`0.8 s`, `42 s`, `3 min 05 s`, `2 h 07 min`, `3 d 04 h`."""
    return duration(value, padded=True)


def as_plain(value: Any) -> Any:
    """Converts to what JSON and YAML can hold: instants as ISO-8601 with `Z`, anything unknown as its text."""
    if isinstance(value, Mapping):
        return {str(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(one) for one in value]
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
