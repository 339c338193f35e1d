"""`bfm state`: the state tables (Delta)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import accepted
from backfill_manager.cli.backend.watched import say_who_is_waited_for
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, flag
from backfill_manager.cli.render.printer import Column, format_value
from backfill_manager.errors import InvalidInput, Refused
from backfill_manager.humanise import plural
from backfill_manager.masking import mask_values, masked_json, secrets_in
from backfill_manager.schemas import errors
from backfill_manager.schemas.request_kinds import STATE_COMPACT, STATE_PRUNE

if TYPE_CHECKING:
    from backfill_manager.cli.backend.local import LocalBackend

MANAGER_CHECK_INTERVAL_S: Final = 1.0  # whether the manager that is compacting is still active

# These commands are about tables: none of them goes to a server.
group = Group("state", "The state tables (Delta): create, check, compact, prune, query.")


@group.command("init")
def init(context: CliContext) -> None:
    """Create the state tables that are missing, and upgrade those of an older release. Safe to repeat; `bfm manager start`
    does it too. Refused on storage without conditional put, where two writers could make the same commit: a former leader
    could not be kept from writing.

    Example: [cyan]bfm --state ./state state init[/]
    """
    store = context.local_backend().any_store
    created, upgraded = store.init(recreate=True)
    if not created:  # where all is made anew, that has been looked at already
        store.check_promises()
    done = [
        f"{verb} {plural(len(names), 'table')}"
        for verb, names in (("created", created), ("upgraded", upgraded))
        if names
    ]
    what = " and ".join(done).capitalize() or "All tables exist"
    document = {"state": store.root, "engine": store.engine, "made": created, "upgraded": upgraded}
    context.out.print_result(document, f"{what} at {store.root}.")


@group.command("check")
def check(
    context: CliContext,
    repair: bool = flag(
        "--repair",
        "Repair what can be derived from the log or from other tables. Not possible while a manager is leading.",
    ),
) -> int:
    """Check every file of every state table, and say what is damaged and what to do. Each file must be there, whole,
    readable, and of the right version and engine; keys must be unique, and JSON readable. Exit code 1 if a table is not in
    order (with [cyan]--repair[/]: if it is not in order after it).

    A repair throws no file away: a damaged one gets the ending `.damaged`. What it does: docs/reliability.md.

    Example: [cyan]bfm state check --repair[/]
    """
    from backfill_manager.queries.state_check import check_state

    backend = context.local_backend("see by `bfm manager status` whether the server can read it")
    if repair:
        from backfill_manager.manager.maintenance.state_repair import repair_state

        for line in repair_state(backend.any_store, context.settings, context.clock, note=context.out.note):
            context.out.note(line)
        checks = check_state(backend.any_store)
    else:
        checks = check_state(backend.store)
    rows = [
        {"table": one.table, "outcome": "ok" if one.ok else "wrong", "message": one.message, "file": one.file}
        for one in checks
    ]
    context.out.print_rows(rows, ("table", "outcome", Column("message", fold=True)))
    return 0 if all(one.ok for one in checks) else 1


@group.command("compact")
def compact(context: CliContext) -> None:
    """Rewrite small files of the state tables into few large ones, and delete what nothing refers to any more. The active
    manager does it (its ticks wait meanwhile), or this command if there is none. Managers compact by themselves: use this
    for a state that you hand on, or that many short-lived managers have written.

    Example: [cyan]bfm state compact[/]
    """
    backend = context.local_backend()
    done = _by_manager(context, backend, STATE_COMPACT, "compact") if backend.has_active_manager() else None
    files = None if done is None else done["files"]
    if files is None:
        from backfill_manager.manager.maintenance.short_leadership import compact_state

        files = compact_state(backend.store, context.settings, context.clock)
    rows = [{"table": table, "files": number} for table, number in files.items()]
    context.out.print_rows(rows, ("table", "files"), document={"files": files})


@group.command("prune")
def prune(
    context: CliContext,
    dry_run: bool = flag("--dry-run", "Only count what would be deleted with this configuration."),
) -> None:
    """Delete what has ended and is older than its age in `retention` of the configuration. The active manager does it, by
    its own configuration, or this command if there is none. Managers do it by themselves once an hour: use this to do it
    now. What is active or needed stays: docs/semantics.md, "Retention".

    Example: [cyan]bfm state prune --dry-run[/]
    """
    backend = context.local_backend()
    gone = _by_manager(context, backend, STATE_PRUNE, "prune") if not dry_run and backend.has_active_manager() else None
    pruned = gone["pruned"] if gone is not None else _pruned_here(context, backend, dry_run=dry_run)
    rows = [{"what": what, "number": number} for what, number in pruned.items()]
    number = Column("number", "would be deleted" if dry_run else "deleted")
    context.out.print_rows(rows, ("what", number), document={"dry_run": dry_run, "pruned": pruned})


def _pruned_here(context: CliContext, backend: LocalBackend, *, dry_run: bool) -> dict[str, int]:
    from backfill_manager.manager.maintenance.retention import Sweep, ages
    from backfill_manager.manager.maintenance.short_leadership import prune_state
    from backfill_manager.manager.snapshots import own_snapshots

    settings, store = context.settings, backend.store
    if not ages(settings.retention):
        raise errors.NO_RETENTION()
    snapshots = own_snapshots(settings, store.root)
    if dry_run:
        return dict(Sweep(store, settings.retention, context.clock.now(), snapshots=snapshots).run())
    return dict(prune_state(store, settings, context.clock, snapshots))


def _by_manager(context: CliContext, backend: LocalBackend, kind: str, to: str) -> dict[str, Any] | None:
    """Its answer, however long that takes: the command shows whom it waits for. None when no manager is active any more before
    the request was answered: the next manager does it once more, which is harmless."""
    request = backend.submit(kind, {})
    is_first = True
    while (response := backend.wait(request, MANAGER_CHECK_INTERVAL_S)) is None:
        if not backend.has_active_manager():
            return None
        if is_first:
            say_who_is_waited_for(context, backend.manager(), to)
        is_first = False
    return dict(json.loads(accepted(response).payload_json or "{}"))


@group.command("locations")
def locations(context: CliContext) -> None:
    """Print where each state table is, to read it with Spark, DuckDB, Databricks SQL or Power BI.

    Example: [cyan]bfm state locations --output json[/]
    """
    tables = context.local_backend().store.locations()
    rows = [{"table": table, "location": location} for table, location in tables.items()]
    context.out.print_rows(rows, ("table", "location"), document=tables)


group.command("where", hidden=True)(locations)  # its name before


@group.command("adopt")
def adopt(
    context: CliContext,
    as_copy: bool = flag(
        "--as-copy",
        "This state is a copy. It continues under a new id and writes its output again.",
    ),
    as_original: bool = flag(
        "--as-original", "This state was moved here. A state that is left at the old place gets a new id."
    ),
) -> None:
    """Decide which of two states is the original, after one was copied. A manager refuses to start on a copy while the
    original is still in its place: every state has an id, which is part of each output's transaction, and two that share
    one would take each other's output for their own.

    [cyan]--as-copy[/] is also right for a state that was restored from a backup, or copied to the same path on another
    machine: what the backup does not know of is then written again. No manager may be running on it.

    Example: [cyan]bfm --state ./state-for-tests state adopt --as-copy[/]
    """
    backend = context.local_backend()
    if as_copy == as_original:
        raise InvalidInput("Choose what this state is: --as-copy or --as-original.")
    from backfill_manager.manager.maintenance.short_leadership import adopt_state

    store = backend.store
    store.init()
    adopted = adopt_state(store, context.settings, context.clock, "copy" if as_copy else "original")
    document = {
        "state": store.root, "state_id": adopted.state_id, "previous_state_id": adopted.previous_id,
        "other_state": adopted.other, "other_state_id": adopted.other_id,
    }  # fmt: skip
    context.out.print_result(document, f"The state at {store.root} continues as {adopted.state_id}.")
    if adopted.other is not None and as_original:
        context.out.note(
            f"The one at {adopted.other} is a copy from now on: {adopted.other_id}."
            if adopted.other_id is not None
            else f"The one at {adopted.other} could not be changed. Start no manager there before "
            f"`bfm --state {shlex.quote(adopted.other)} state adopt --as-copy`."
        )


@group.command("export")
def export(
    context: CliContext, target: str = argument("FOLDER|FILE.tar", "New folder, or new file, to export to.")
) -> None:
    """Write the whole state into a folder or a `.tar` file. It holds a Parquet file for each table, the files of DAG
    versions, and a manifest with checksums. All tables are of one moment; a manager may keep running.

    Example: [cyan]bfm state export ./back-up-of-monday.tar[/]
    """
    from backfill_manager.manager.maintenance.state_transfer import export_state
    from backfill_manager.manager.snapshots import snapshots_folder

    store = context.local_backend().store
    snapshots = snapshots_folder(context.settings, store.root)
    manifest = export_state(store, Path(target), snapshots, context.clock.now(), context.out.note)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    context.out.print_result(manifest, f"{plural(rows, 'row')} of {store.root} are in {target}.")


@group.command("import")
def import_(
    context: CliContext,
    source: str = argument("FOLDER|FILE.tar", "Folder or file that `bfm state export` has written."),
    as_original: bool = flag(
        "--as-original", "The state was moved and keeps its id. Nothing may have run since the export."
    ),
) -> None:
    """Create a new state from an export. Its engine may be another one. Every checksum is checked first. The state gets a
    new id, as with `bfm state adopt --as-copy`: what the export does not know of is then written again.

    Example: [cyan]bfm --state ./restored state import ./back-up-of-monday.tar[/]
    """
    from backfill_manager.manager.maintenance.state_transfer import import_state
    from backfill_manager.manager.snapshots import snapshots_folder

    store, settings = context.local_backend().any_store, context.settings
    snapshots, as_copy = snapshots_folder(settings, store.root), None if as_original else context.clock
    manifest = import_state(store, Path(source), snapshots, context.out.note, as_copy=as_copy)
    if as_original and manifest["tables"]["manager"]["rows"]:
        from backfill_manager.manager.maintenance.short_leadership import adopt_state

        try:
            adopt_state(store, settings, context.clock, "original")
        except Refused:
            adopt = f"`bfm --state {shlex.quote(store.root)} state adopt --as-original`"
            context.out.note(f"The state at {store.root} is complete, and can't be led before {adopt} has succeeded.")
            raise
    rows = sum(table["rows"] for table in manifest["tables"].values())
    context.out.print_result(manifest, f"{plural(rows, 'row')} of {source} are in the state at {store.root}.")


@group.command("sql")
def sql(context: CliContext, query: str = argument('"SELECT …"', "One SQL statement that only reads.")) -> None:
    """Query the state tables with SQL. It can only read; secrets are masked.

    Example: [cyan]bfm state sql "SELECT state, count(*) AS runs FROM dag_run GROUP BY state"[/]
    """
    names, rows = context.local_backend().store.query(query)
    if twice := sorted({name for name in names if names.count(name) > 1}):  # one would stand in the place of the other
        raise InvalidInput(f"Several columns of the result are called {', '.join(twice)}; name them apart with AS.")
    dicts = [_without_secrets(dict(zip(names, row, strict=True))) for row in rows]
    columns = [Column(name, write=format_value) for name in names]  # as the tables hold it, whatever a column is called
    context.out.print_rows(dicts, columns, empty="No rows.", as_stored=True)


def _without_secrets(row: dict[str, Any]) -> dict[str, Any]:
    """JSON documents by the names in them, and what is secret there in every other value too."""
    documents = {name: document for name, value in row.items() if (document := _document(value)) is not None}
    known = secrets_in(list(documents.values()))
    shown = {name: masked_json(value, known) or value if name in documents else value for name, value in row.items()}
    masked: dict[str, Any] = mask_values(shown, more=known)
    return masked


def _document(value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return None
    try:
        return json.loads(value)
    except ValueError:  # a text that begins like one
        return None
