"""`bfm pools`: how many tasks may run at once."""

from __future__ import annotations

from typing import Final

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, spellings
from backfill_manager.cli.render.printer import Column
from backfill_manager.cli.render.response import submit
from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.request_kinds import POOL_SET

_OPTIONAL: Final = ("free", "weight", "min_share", "memory_mb", "nice")  # where the screen is too narrow for all

group = Group("pools", "Pools: how many tasks may run at once, and how Spark shares its cores.")


@group.command("list")
def list_(context: CliContext) -> None:
    """List the pools, with their slots and how many are taken. Slots are tasks at once. Also shown: weight and minimum
    share of the Spark pool, memory (MB) and nice of task processes.

    Example: [cyan]bfm pools list[/]
    """
    numbers = ("slots", "used", "free", "queued", "running", "weight", "min_share", "memory_mb", "nice")
    columns = [Column("name", whole=True), *(Column(name, right=True, optional=name in _OPTIONAL) for name in numbers)]
    empty = "No pools yet: the manager creates them when it starts (`bfm manager start`)."
    context.out.print_rows(context.backend.pools(), columns, empty=empty)


@group.command("set", schema="commands.SetPool", without=("name",))
def set_(
    context: CliContext, values: Document, name: str = argument("NAME", "Name of the pool, see `bfm pools list`.")
) -> None:
    """Change a pool. Slots change at once; memory and nice apply to the next task that starts; Spark takes a new weight or
    share when the manager starts again. A new pool is added in conf/manager.yaml.

    Example: [cyan]bfm pools set backfill --slots 32 --memory "2 GB"[/]
    """
    if not values:
        fields = ", ".join(spellings("commands.SetPool")[1:])
        raise InvalidInput(f"Nothing to set: give at least one of {fields}.")
    submit(context, POOL_SET, {"name": name, **values}, "Set pool {name}", "name")
