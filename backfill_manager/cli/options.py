"""Options that `backfill create` and `backfill set` share."""

from __future__ import annotations

from typing import Annotated

import typer

MaxActiveRuns = Annotated[
    int | None, typer.Option("--max-active-runs", min=1, metavar="N", help="Runs at once. \\[default: the DAG's own]")
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=1, metavar="N", help="Up to N neighbouring intervals make one run, of DAGs that are batchable."
    ),
]
Conf = Annotated[
    str | None,
    typer.Option("--conf", "-c", metavar="JSON", help="Parameters of the runs, as a JSON object (64 kB at most)."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the DAG or its tasks, for this backfill alone: retries=3, clean.timeout=600; may be repeated.",
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        "--tasks",
        "-t",
        metavar="REGEX",
        help="Run only tasks whose id matches, and what is upstream of them; the others are skipped. Such runs are partial: "
        "to a backfill of all tasks their dates are missing.",
    ),
]
DownstreamTasks = Annotated[
    bool | None,
    typer.Option(
        "--downstream-tasks/--no-downstream-tasks",
        help="With --tasks: and what is downstream of them in the DAG. \\[default: no]",
        show_default=False,
    ),
]
Upstream = Annotated[
    bool | None,
    typer.Option(
        "--upstream/--no-upstream",
        help="With --tasks: run what is upstream of them, too, or these tasks alone. \\[default: upstream]",
        show_default=False,
    ),
]
IgnoreDependencies = Annotated[
    bool,
    typer.Option("--ignore-dependencies", "-i", help="The same as --no-upstream: run the tasks of --tasks alone."),
]
StopOnFailure = Annotated[
    int | None, typer.Option("--stop-on-failure", min=1, metavar="N", help="Pause after N failed items.")
]
Window = Annotated[
    str | None,
    typer.Option(
        "--window", metavar="HH:MM-HH:MM", help="Start work only in these hours of the DAG's zone, such as 20:00-06:00."
    ),
]
