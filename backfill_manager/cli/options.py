"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

DEFAULT_LIMIT: Final = 50  # rows of a table; documents have all

Dag = Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, see `bfm dags list`.")]
BackfillId = Annotated[
    str, typer.Argument(metavar="ID", help="The backfill's id, a prefix of it, or `latest`.", show_default=False)
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help=f"How many. \\[default: {DEFAULT_LIMIT}, all for JSON]"),
]
DagFilter = Annotated[str | None, typer.Option("--dag", metavar="DAG", help="Only of this DAG.")]


def state_filter(states: Sequence[str]) -> Any:
    help = f"Only in this state ({', '.join(states)}); may be repeated."
    return Annotated[list[str] | None, typer.Option("--state", "-S", metavar="S", help=help)]


def state_uri_hint(command: str, states: Sequence[str] | None) -> str:
    """For who meant the global option: as an option of `command`, `--state` is a filter."""
    uri = next((one for one in states or () if any(sign in one for sign in "/.\\:")), None)
    return f". (Where the state is comes before the command: `bfm --state {uri} {command}`)" if uri else ""
