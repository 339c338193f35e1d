"""`bfm manager`: the one process that runs tasks."""

from __future__ import annotations

import gc

from backfill_manager.cli import GC_THRESHOLD
from backfill_manager.cli.backend.base import Document, accepted
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import flag, option
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.cli.render.printer import moment
from backfill_manager.errors import BackfillManagerError
from backfill_manager.humanise import duration
from backfill_manager.schemas.request_kinds import MANAGER_STOP

STOP_POLL_INTERVAL_S = 0.2

group = Group("manager", "The manager, the one process that runs tasks: start it, show its status, stop it.")


@group.command("start")
def start(
    context: CliContext,
    until_idle: bool = flag("--until-idle", "Stop when all requests are answered and nothing is left to run."),
    with_ui: bool = flag("--with-ui", "Also serve the web pages and the REST API, at api.host and api.port."),
) -> int:
    """Start a manager in the foreground, until it is stopped (Ctrl-C, SIGTERM or `bfm manager stop`).

    It creates the state if there is none, loads the DAGs of its bundles, and runs what is requested. A second manager on
    the same state is a standby, which takes over when the first one ends. A manager whose Spark has died gives its lease
    back and ends with exit code 1: have a supervisor start it again.

    Example: [cyan]bfm --state ./state manager start[/]
    """
    context.local_backend()
    for warning in context.settings_and_places[1].warnings:
        context.out.note(warning, style="yellow")
    from backfill_manager.manager.manager import run_manager

    gc.set_threshold(*GC_THRESHOLD)
    beside = None
    if with_ui:
        from backfill_manager.cli.commands.serve import served_beside_a_manager

        beside = served_beside_a_manager(context)
    return run_manager(context.settings, state=context.settings.state, until_idle=until_idle, beside=beside)


@group.command("status")
def status(context: CliContext) -> int:
    """Show the active manager: term, host, process, and the age of its heartbeat. Exit code 1 if there is none.

    Example: [cyan]bfm manager status --output json[/]
    """
    row = context.out.in_zone(context.backend.manager())
    if row["term"] is not None or not context.out.is_table:
        fields = [
            ("state", ("running" if row["leading"] else "not running") if row["term"] else None),
            ("term", row["term"]), ("host", row.get("host")), ("pid", row.get("pid")),
            ("since", moment(row.get("started_at"))),
            ("heartbeat", row["term"] and f"{moment(row['heartbeat_at'])}, {_age(row['heartbeat_age_s'])}"),
            ("ended", moment(row.get("ended_at"))), ("version", row.get("version")),
            ("spark application", row.get("application_id")), ("slow loop", row.get("slow_loop")),
        ]  # fmt: skip
        context.out.print_fields(row, fields)
    if row["leading"]:
        if row["advice"]:
            context.out.note(row["advice"])
        return 0
    context.out.note(f"{row['advice'].rstrip('.')}; {HINTS['start_manager']}.")
    return 1


def _age(seconds: float) -> str:
    return f"{duration(seconds)} ago" if seconds >= 0 else f"{duration(-seconds)} ahead of this machine's clock"


@group.command("stop", schema="commands.StopManager")
def stop(
    context: CliContext,
    values: Document,
    timeout: float = option(
        "--timeout", "Maximum time to wait until the manager has stopped, in seconds.", min=0, default=60, metavar="S"
    ),
) -> int:
    """Stop the active manager, and wait until it has stopped. Running tasks run again with the next manager, unless --drain
    lets them finish first.

    Example: [cyan]bfm manager stop --drain --timeout 600[/]
    """
    from backfill_manager.queries.managers import LeaseWatch, is_lease_live
    from backfill_manager.requests.submit import id_of_stop

    # Not for a server: REST has no route for it, and a manager's host has the tables.
    backend = context.local_backend("send SIGTERM to the process that `bfm manager status` shows")
    store, clock = backend.store, context.clock
    watch = LeaseWatch(store, clock)
    row = first = watch.leader()
    if row is not None and not is_lease_live(row, clock.now()):
        context.out.note(f"Waiting up to {row.lease_s} s for a heartbeat of the manager of term {row.term}.")
        while row == first and row is not None:
            context.pause(STOP_POLL_INTERVAL_S)
            row = watch.leader()
    if row is None:
        last = store.lease()
        nothing = "No manager is running: there is nothing to stop."
        context.out.print_result({"stopped": True, "term": last.term if last else None}, nothing)
        return 0
    request = backend.submit(MANAGER_STOP, {"drain": False, **values}, id_of_stop(row.term, clock.new_id()))
    until, response = clock.monotonic() + timeout, None
    while (latest := watch.leader()) and latest.term == row.term:
        response = response or backend.wait(request, 0)
        if response is not None and response.term == row.term:
            accepted(response)
        if clock.monotonic() >= until:
            raise BackfillManagerError(
                f"The manager of term {row.term} (pid {row.pid} on {row.host}) was asked to stop and still runs after "
                f"{timeout:g} s. It may be waiting for running tasks, or for Spark to start; see `bfm manager status`."
            )
        context.pause(STOP_POLL_INTERVAL_S)
    context.out.print_result({"stopped": True, "term": row.term}, f"The manager of term {row.term} has stopped.")
    if latest is not None:
        context.out.note(f"A standby has taken over: term {latest.term}, pid {latest.pid} on {latest.host}.")
    return 0
