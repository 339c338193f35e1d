"""`bfm notify`: notifications, and their targets."""

from __future__ import annotations

from backfill_manager.cli import options as o
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, option
from backfill_manager.cli.render.printer import Column
from backfill_manager.errors import InvalidInput, NotFound

group = Group("notify", "Notifications: messages about runs and backfills, and where they go.")

STATE = option("--state", "Only messages in this state: waiting, sent, failed (repeatable).", metavar="S")
EVENT = option("--event", "Only messages about this event: failed, late, ... (repeatable).", metavar="NAME")


@group.command("list")
def list_(
    context: CliContext,
    dag: str | None = o.DAG_FILTER,
    state: list[str] | None = STATE,
    event: list[str] | None = EVENT,
    target: str | None = option("--target", "Only messages for this target.", metavar="NAME"),
    backfill: str | None = option("--backfill", "Only messages about this backfill.", metavar="ID"),
    limit: int | None = o.LIMIT,
) -> None:
    """List notifications, newest first: what was sent, what waits, what was given up after a day (failed), and why.

    Example: [cyan]bfm notify list --state waiting --target ops[/]
    """
    from backfill_manager.queries.notifications import EVENTS, STATES

    states = o.chosen_states("notify list", "notification", state, STATES)
    events = tuple(event or ())
    if unknown := [one for one in events if one not in EVENTS]:
        raise InvalidInput(f"--event must be one of {', '.join(EVENTS)}, not {unknown[0]!r}.")
    limit = context.out.limit(limit)
    rows = context.backend.notifications(
        state=states, event=events, target=target, dag_id=dag, backfill_id=backfill, limit=limit
    )
    columns = (
        Column("created_at", "created"), "state", "target", "event", Column("title", fold=True),
        Column("failures", "failed attempts"), Column("error", fold=True),
    )  # fmt: skip
    is_filtered = any((states, events, target, dag, backfill))
    empty = "No such notifications." if is_filtered else "No notifications yet: try the targets with `bfm notify test`."
    context.out.print_rows(rows, columns, empty=empty, limit=limit)


@group.command("test")
def test(
    context: CliContext,
    target: str | None = argument(
        "TARGET", "Name of a target in `notifications` of the configuration.", default=None, show_default="all"
    ),
) -> int:
    """Send a message to each target of the configuration, from this machine. Exit code 1 if one can't be sent.

    Example: [cyan]bfm notify test ops[/]
    """
    import socket

    from backfill_manager.manager.services.notification_sender import AppriseChannel
    from backfill_manager.manager.services.notification_settings import targets_of

    context.refuse_server("the configuration of this machine")
    known = [one.name for one in context.settings.notifications]
    if target is not None and target not in known:
        raise NotFound("notification target", target, known, more=f"; there are {', '.join(known)}." if known else "")
    if not known:
        raise InvalidInput("The configuration has no notifications; docs/how-to/get-notified.md says how to set them.")
    chosen = [one for one in context.settings.notifications if target in (None, one.name)]
    found = []
    for one in targets_of(chosen):
        dags = ", ".join(one.dags) or "those that name it"
        text = f"A test from {socket.gethostname()}. Events: {', '.join(sorted(one.events))}; DAGs: {dags}."
        error = AppriseChannel(one).send("backfill_manager: a test message", text, is_bad=False)
        found.append({"target": one.name, "sent": error is None, "error": error})
    columns = [Column("target", whole=True), Column("sent", of=lambda row: "yes" if row["sent"] else "no")]
    columns += [Column("error", fold=True)] if any(row["error"] for row in found) else []
    context.out.print_rows(found, columns)
    return 0 if all(row["sent"] for row in found) else 1
