"""Backfills in a notebook, live: an extension of IPython.

    %load_ext backfill_manager.notebook
    %backfill                                               # those that are newest
    %backfill latest                                        # one, drawn until it has ended
    %backfill 01kb4 --server http://127.0.0.1:8099 --once

It draws what `bfm backfill watch` draws, and finds the state, or the server, as `bfm` does. Interrupting the kernel ends the
watching, not the backfill. The extra `notebook` brings IPython and its kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.commands.backfill_watch import Draw, Print, follow, live_view, summary_line
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.printer import COLOURS
from backfill_manager.errors import BackfillManagerError
from backfill_manager.queries.eta import ObservedPace, items_ended

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

MAX_LISTED: Final = 20
MAX_LINES: Final = 10  # failures and remarks that stay under a backfill; the newest
WIDTH: Final = 100  # columns


_PARSER: Final = MagicArgumentParser(
    "backfill", description="Shows a backfill, live until it has ended.", add_help=False
)
_PARSER.add_argument(
    "id", nargs="?", help="Its id, the beginning of it, or `latest`. Without one the newest backfills are listed."
)
_PARSER.add_argument(
    "--state", help="Folder or URI of the state, or catalog.schema. Default: BFM_STATE, or as configured."
)
_PARSER.add_argument("--server", help="Address of a server, in place of the state. Default: BFM_SERVER.")
_PARSER.add_argument("--conf", help="The configuration file.")
_PARSER.add_argument("--once", action="store_true", help="Draw it as it is now, and go on with the next cell.")


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Called by `%load_ext`."""
    ipython.register_magic_function(backfill, "line", "backfill")


def backfill(line: str) -> None:
    """`%backfill`; `UsageError`, which IPython prints as one line, for whatever is wrong."""
    options = _PARSER.parse_argstring(line)
    context = CliContext(state=options.state, server=options.server, conf=options.conf)
    try:
        if options.id is None:
            display(_table(context))
        else:
            show(context, context.backend.backfill(options.id)["backfill_id"], once=options.once)
    except BackfillManagerError as error:
        raise UsageError(str(error)) from None
    finally:
        context.close()


backfill.__doc__ = _PARSER.format_help()  # what `%backfill?` shows


def _table(context: CliContext) -> Table | Text:
    listed = context.backend.backfills(dag_id=None, state=(), limit=MAX_LISTED)
    if not listed:
        return Text("There are no backfills yet: `bfm backfill create DAG` makes one.")
    table = Table("backfill", "dag", "state", "ended", "failed", "created by")
    for one in listed:
        ended = f"{items_ended(one):,} of {one['planned']:,}"
        state = Text(one["state"], style=COLOURS.get(one["state"], ""))
        table.add_row(one["backfill_id"], one["dag_id"], state, ended, f"{one['failed']:,}", one["created_by"])
    return table


def show(context: CliContext, backfill_id: str, *, once: bool = False) -> None:
    """Draws it as one output of the cell until it has ended, or has paused itself after failures."""
    with _card(context) as (draw, print_line):
        if once:
            shown = context.backend.backfill(backfill_id, with_eta=True)
            draw(context.out.in_zone(shown), context.backend.running_tasks(shown), ObservedPace())
            return
        try:
            ended = follow(context, backfill_id, end_when_stuck=True, draw=draw, print_line=print_line)
        except KeyboardInterrupt:
            print_line(Text("No longer watched; the backfill keeps running."))
        else:
            print_line(summary_line(ended))


@contextmanager
def _card(context: CliContext) -> Iterator[tuple[Draw, Print]]:
    """One output of the cell, replaced each time; lines stay under what is drawn."""
    handle: Any = display(Text("…"), display_id=True)
    lines: deque[Text] = deque(maxlen=MAX_LINES)
    drawn: list[Any] = []

    def update() -> None:
        handle.update(Panel(Group(*drawn, *lines), width=WIDTH))

    def draw(backfill: Document, tasks: list[Document], pace: ObservedPace) -> None:
        drawn[:] = [live_view(WIDTH - 4, backfill, tasks, pace)]
        if url := context.server_url:
            page = f"{url.rstrip('/')}/backfills/{backfill['backfill_id']}"
            drawn.append(Text(page, style=f"link {page}"))
        update()

    def print_line(line: Text) -> None:
        lines.append(line)
        update()

    yield draw, print_line
