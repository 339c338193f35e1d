"""`bfm requests`: what was asked, and what the manager answered."""

from __future__ import annotations

from typing import Annotated

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column

app = group("requests", "What was asked, by whom, and what the manager answered.")


@command(app, "list")
def list_(
    call: CliContext,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many. \\[default: 50, all for JSON]")] = None,
) -> None:
    """List requests, newest first, each with its answer (accepted or refused) or `waiting`.

    Example: [cyan]bfm requests list --limit 10[/]
    """
    limit = limit or (50 if call.out.is_table else None)
    columns = (
        "request_id", "kind", Column("requested_by", "by"), Column("requested_at", "asked"), "outcome",
        Column("object_id", "about"), Column("message", fold=True),
    )  # fmt: skip
    call.out.rows(call.source.requests(limit), columns, empty="Nothing was asked yet.")


@command(app, "show")
def show(
    call: CliContext,
    request: Annotated[str, typer.Argument(metavar="ID", help="Its id, a beginning of it, or `latest`.")],
) -> None:
    """Show one request with all that was asked, and the answer.

    Example: [cyan]bfm requests show latest[/]
    """
    call.out.thing(call.source.request(request))
