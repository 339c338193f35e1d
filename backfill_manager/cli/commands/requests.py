"""`bfm requests`: what was requested, and what the manager answered."""

from __future__ import annotations

from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import LIMIT, argument
from backfill_manager.cli.render.printer import Column

group = Group("requests", "Requests: what was submitted, by whom, and what the manager answered.")


@group.command("list")
def list_(context: CliContext, limit: int | None = LIMIT) -> None:
    """List requests, newest first, each with its outcome (accepted or refused) or `waiting`.

    Example: [cyan]bfm requests list --limit 10[/]
    """
    columns = (
        "request_id", "kind", Column("requested_by", "by"), Column("requested_at", "submitted"), "outcome",
        Column("object_id", "object"), Column("message", fold=True),
    )  # fmt: skip
    limit = context.out.limit(limit)
    context.out.print_rows(context.backend.requests(limit=limit), columns, empty="No requests yet.", limit=limit)


@group.command("show")
def show(context: CliContext, request: str = argument("ID", "Id of the request, a prefix of it, or `latest`.")) -> None:
    """Show one request with its payload, and the response.

    Example: [cyan]bfm requests show latest[/]
    """
    context.out.print_fields(context.backend.request(request))
