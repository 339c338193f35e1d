"""`bfm bench`: measure what the manager costs."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from backfill_manager.cli.context import CliContext, command, group

ABOUT: Final = "a manager of its own on this machine"
app = group("bench", "Measure what the manager costs.")


@app.callback()
def _is_a_group() -> None:
    """Measure what the manager costs."""


@command(app, "overhead")
def overhead(
    call: CliContext,
    tasks: Annotated[int, typer.Option("--tasks", min=1, metavar="N", help="Tiny Spark jobs to run each way.")] = 400,
    width: Annotated[int, typer.Option("--width", min=1, metavar="N", help="How many at once.")] = 16,
) -> None:
    """Run N tiny Spark jobs by the manager, and the same N by a bare thread pool in the same Spark session; compare.

    Example: [cyan]bfm bench overhead --tasks 400 --width 16[/]
    """
    call.needs_no_server(ABOUT)
    from backfill_manager.manager.bench import overhead as measure

    call.out.thing(measure(tasks=tasks, width=width))


@command(app, "isolation")
def isolation(
    call: CliContext,
    runs: Annotated[int, typer.Option("--runs", min=5, metavar="N", help="Scheduled runs to measure, twice.")] = 30,
    width: Annotated[int, typer.Option("--width", min=1, metavar="N", help="Slots of the backfill pool.")] = 16,
) -> None:
    """Run a small scheduled DAG alone, then beside a backfill that takes every slot of its pool; compare its times.

    Example: [cyan]bfm bench isolation --runs 30 --width 16[/]
    """
    call.needs_no_server(ABOUT)
    from backfill_manager.manager.bench_isolation import isolation as measure

    call.out.thing(measure(runs=runs, width=width))
