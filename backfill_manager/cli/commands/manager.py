"""`bfm manager`: the one process that runs things."""

from __future__ import annotations

from typing import Annotated

import typer

from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import moment
from backfill_manager.errors import BackfillManagerError
from backfill_manager.queries.managers import is_lease_live
from backfill_manager.requests import submit
from backfill_manager.schemas import kinds

app = group("manager", "Start, look at and stop the manager.")


@command(app, "start")
def start(
    call: CliContext,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when every request is answered and nothing is left to run.")
    ] = False,
    with_ui: Annotated[
        bool, typer.Option("--with-ui", help="Serve the web pages and the REST API too, at api.host and api.port.")
    ] = False,
) -> int:
    """Start a manager here and stay until it is stopped (Ctrl-C, SIGTERM or `bfm manager stop`).

    It makes the state if there is none, loads the DAGs of its bundles, and runs what is asked for. A second one on the
    same state stands by and takes over when the first goes away. One that can't go on, as its Spark is gone, gives its lease
    back and ends with exit code 1: have a supervisor start it again.

    Example: [cyan]bfm --state ./state manager start[/]
    """
    call.needs_tables()
    from backfill_manager.manager.manager import run_manager

    beside = None
    if with_ui:
        from backfill_manager.cli.commands.serve import served_beside_a_manager

        beside = served_beside_a_manager(call)
    return run_manager(call.settings, state=call.settings.state, until_idle=until_idle, beside=beside)


@command(app, "status")
def status(call: CliContext) -> int:
    """Tell who leads: term, host, process, and how long ago it gave a sign of life. Exit code 1 when nobody does.

    Example: [cyan]bfm manager status --output json[/]
    """
    found = call.source.manager()
    if found["term"] is not None or not call.out.is_table:
        fields = [
            ("state", ("leading" if found["leading"] else "not running") if found["term"] else None),
            ("term", found["term"]),
            ("host", found.get("host")),
            ("pid", found.get("pid")),
            ("since", moment(found.get("started_at"))),
            ("heartbeat", found["term"] and f"{moment(found['heartbeat_at'])}, {found['heartbeat_age_s']:g} s ago"),
            ("ended", moment(found.get("ended_at"))),
            ("version", found.get("version")),
            ("spark application", found.get("application_id")),
        ]
        call.out.thing(found, fields)
    if found["leading"]:
        return 0
    call.out.remark(found["advice"])
    return 1


@command(app, "stop")
def stop(
    call: CliContext,
    drain: Annotated[bool, typer.Option("--drain", help="Let running tasks finish first; no new ones start.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait until it is gone.")] = 60,
) -> int:
    """Ask the leading manager to stop, and wait until it is gone. What was running runs again with the next manager,
    unless it is given the time to finish with --drain.

    Example: [cyan]bfm manager stop --drain --timeout 600[/]
    """

    call.needs_tables("send SIGTERM to the process that `bfm manager status` tells")
    store, clock = call.store, call.clock
    row = store.lease()
    if row is None or not is_lease_live(row, clock.now()):
        term = row.term if row else None
        call.out.told({"stopped": True, "term": term}, "No manager is leading: there is nothing to stop.")
        return 0
    submit.submit(store, clock, kinds.MANAGER_STOP, {"drain": drain})
    until = clock.monotonic() + timeout
    while True:
        now = store.lease()
        if now is None or now.term != row.term or not is_lease_live(now, clock.now()):
            break
        if clock.monotonic() >= until:
            raise BackfillManagerError(
                f"The manager of term {row.term} (pid {row.pid} on {row.host}) was asked to stop and still leads "
                f"after {timeout:g} s. It may be waiting for running tasks; look again with `bfm manager status`."
            )
        call.pause(0.2)
    call.out.told({"stopped": True, "term": row.term}, f"The manager of term {row.term} has stopped.")
    if now is not None and now.term != row.term and is_lease_live(now, clock.now()):
        call.out.remark(f"A standby has taken over: term {now.term}, pid {now.pid} on {now.host}.")
    return 0
