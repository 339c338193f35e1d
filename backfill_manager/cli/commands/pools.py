"""`bfm pools`: how many tasks may run at once."""

from __future__ import annotations

from typing import Annotated

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column
from backfill_manager.cli.render.response import print_response

app = group("pools", "How many tasks may run at once.")


@command(app, "list")
def list_(call: CliContext) -> None:
    """List the pools: slots (tasks at once) and how many are taken, weight and minimum share of the Spark pool.

    Example: [cyan]bfm pools list[/]
    """
    names = ("slots", "used", "free", "queued", "running", "weight", "min_share")
    empty = "No pools yet: the manager makes them when it starts (`bfm manager start`)."
    call.out.rows(call.source.pools(), ("name", *(Column(name, right=True) for name in names)), empty=empty)


@command(app, "set")
def set_(
    call: CliContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pool, see `bfm pools list`.")],
    slots: Annotated[int, typer.Option("--slots", min=1, metavar="N", help="Tasks at once.")],
    weight: Annotated[
        int | None,
        typer.Option("--weight", min=1, metavar="N", help="Its share of the cores. \\[default: as it is]"),
    ] = None,
    min_share: Annotated[
        int | None,
        typer.Option("--min-share", min=0, metavar="N", help="Cores it comes first for. \\[default: as it is]"),
    ] = None,
) -> None:
    """Change a pool. Slots change at once; Spark takes a new weight or share when the manager starts again. A new pool
    is made in conf/manager.yaml.

    Example: [cyan]bfm pools set backfill --slots 32[/]
    """
    print_response(call, call.source.set_pool(name, slots, weight, min_share), f"Set pool {name}")
